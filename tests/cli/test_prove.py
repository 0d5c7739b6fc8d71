# SPDX-License-Identifier: Apache-2.0
"""prove: statements, the counterexample, the printed proof, exit statuses and messages."""

import json
import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2])

TIED = """{
  "lockstep": 1, "name": "tied", "layout": { "pp": 2, "dp": 2 },
  "model": { "parameters": [
    { "name": "word", "shape": [150], "stage": 0, "tied": "embedding" }, { "name": "layer", "shape": [70], "stage": 0 },
    { "name": "norm", "shape": [10], "stage": -1 }, { "name": "output", "shape": [150], "stage": -1, "tied": "embedding" } ] },
  "batch": { "tokens": "even" },
  "schedule": { "steps": [
    { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1/micro_batches" } ] },
    { "name": "scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg",
      "geometry": { "kind": "bucket", "align_parameter": 1, "align_bucket": "n" } },
    { "name": "tie", "op": "all_reduce", "over": { "pp": ["first", "last"] }, "params": ["tied:embedding"] } ] }
}
"""


def proved(files):
    """right.json, for any number of micro-batches."""
    text = (files / "right.json").read_text().replace('"op": "backward" }', '"op": "backward", "by": "1/micro_batches" }')
    (files / "right.json").write_text(text)


def test_right_for_every_size(run, files):
    assert run("prove", "-q", "right.json").stdout == "wrong   right.json  right only at micro_batches = 1\n"
    proved(files)
    done = run("prove", "right.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "proved  right.json  right\n"
        "  right for every size\n"
        "  open: dp, micro_batches; 4 cases, 4 classes of parameters\n"
    )
    assert run("prove", "-q", "right.json").stdout == "proved  right.json  right for every size\n"


def test_wrong_sizes_and_the_smallest_one(run, files):
    (files / "tied.json").write_text(TIED)
    done = run("prove", "tied.json", "--counterexample", "small.json")
    assert done.returncode == 1
    assert done.stdout == (
        "wrong   tied.json  tied\n"
        "  wrong as soon as dp ≥ 2 and pp ≥ 2, wherever its cuts give an element these owners\n"
        "  open: dp, pp, micro_batches; 12 cases, 32 classes of parameters\n"
        "  wrong: word\n"
        "  smallest: tp 1, cp 1, sp 1, dp 2, pp 2, 1 micro-batch: "
        "rank 1 gets g3 + (g0+g1)/2 for word, not (g0+g1+g2+g3)/2\n"
    )
    # It is a scenario, and it expects what is found.
    assert run("test", "small.json").returncode == 0
    assert "g3 + (g0+g1)/2" in run("check", "small.json").stdout


def test_the_sizes_in_the_file_do_not_matter(run, files):
    (files / "tied.json").write_text(TIED)
    (files / "large.json").write_text(TIED.replace('"pp": 2, "dp": 2', '"pp": 3, "dp": 64'))
    assert run("prove", "-q", "tied.json").stdout.split("  ")[2] == run("prove", "-q", "large.json").stdout.split("  ")[2]


def test_a_file_that_is_wrong_where_the_proof_has_no_answer(run, files):
    for dp in (2, 3):  # rank 2 is the first one that the last step changes
        (files / f"odd{dp}.json").write_text(json.dumps({
            "lockstep": 1, "layout": {"dp": dp}, "batch": {"loss": "sum"}, "model": {"parameters": [{"name": "w", "shape": [8]}]},
            "schedule": {"steps": [
                {"name": "each", "op": "each", "steps": [{"name": "backward", "op": "backward"}]},
                {"name": "sum", "op": "all_reduce", "over": "dp"},
                {"name": "odd", "op": "scale", "by": "2", "when": "rank.dp * rank.dp > 1"}]}}))  # fmt: skip
    right = json.loads(run("prove", "-f", "json", "odd2.json").stdout)
    assert (right["verdict"], right["counterexample"]) == ("undecided", None)
    wrong = json.loads(run("prove", "-f", "json", "odd3.json", "--counterexample", "small.json").stdout)
    assert (wrong["verdict"], wrong["statement"]) == ("wrong", f"wrong at the sizes of the file; {right['statement']}")
    assert wrong["undecided"] == right["undecided"] and wrong["counterexample"]["sizes"]["dp"] == 3
    assert json.loads((files / "small.json").read_text())["layout"] == {"dp": 3}
    assert run("test", "small.json").returncode == 0
    assert "\n  the file: tp 1, cp 1, sp 1, dp 3, pp 1, 2 micro-batches: rank 2 gets " in run("prove", "odd3.json").stdout
    stuck = (files / "odd3.json").read_text().replace('"op": "scale", "by": "2"', '"op": "all_reduce", "over": "dp"')
    (files / "stuck.json").write_text(stuck)
    found = json.loads(run("prove", "-f", "json", "stuck.json", "--counterexample", "small.json").stdout)
    assert (found["verdict"], found["counterexample"]["what"]) == ("wrong", "a deadlock")
    assert run("test", "small.json").returncode == 0
    # A right file is said to be no more than that.
    assert "wrong" not in run("prove", "-q", "odd2.json").stdout


def test_json(run, files):
    proved(files)
    (files / "tied.json").write_text(TIED)
    done = run("prove", "-f", "json", "--proof", "tied.json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["lockstep"], report["verdict"]) == (1, 1, "wrong")
    assert report["open"] == ["dp", "pp", "micro_batches"] and report["wrong_parameters"] == ["word"]
    assert report["counterexample"]["sizes"] == {"tp": 1, "cp": 1, "sp": 1, "dp": 2, "pp": 2, "micro_batches": 1}
    assert report["counterexample"]["scenario"]["expect"] == {"verdict": "mismatch"}
    assert [entry["verdict"] for entry in json.loads(run("prove", "-f", "json", "right.json", "tied.json").stdout)] == ["right", "wrong"]


def test_the_printed_proof_is_the_worked_example(run, files):
    """design.md: after the reduce-scatter 1/n of every contribution where the rank owns the element, 1 where it stays."""
    (files / "tied.json").write_text(TIED)
    report = json.loads(run("prove", "-f", "json", "--proof", "tied.json").stdout)
    case = next(one for one in report["proof"] if one["sizes"] == "pp = 2, dp ≥ 2 and micro_batches = 1" or one["sizes"] == "dp ≥ 2, pp = 2 and micro_batches = 1")
    word = next(one for one in case["classes"] if one["parameters"] == ["word"])
    scatter = next(step for step in word["steps"] if step["step"] == "scatter")
    held = {(row["pp"], row["dp"]): row["value"] for row in scatter["after"]["grad"]["word.main"]}
    assert word["owners"] == ["slice of scatter", "slice of scatter"]
    first = [(relation, value) for (stage, relation), value in held.items() if stage.split(" | ")[0] in ("rank = first", "rank = contributor = first")]
    for relation, value in first:
        blocks = [set(block.split(" = ")) for block in relation.split(" | ")]
        owns = any({"rank", "owner 1"} <= block for block in blocks)
        assert value == ("1/dp" if owns else "1")
        assert owns or any({"rank", "contributor"} <= block for block in blocks)


def test_the_printed_proof_as_text(run, files):
    """Before and after each step, and how it ends."""
    proved(files)
    text = run("prove", "--proof", "right.json").stdout
    assert text.endswith("""
dp ≥ 2 and micro_batches ≥ 2
  weight
    backward: backward, in any micro-batch
      grad held of weight.main
        0
      and after it
        1/micro_batches   where dp: rank = contributor
    mean: all_reduce avg over dp
      grad held of weight.main
        1/micro_batches   where dp: rank = contributor
      and after it
        1/(dp*micro_batches)
    at the end
      one device has of weight.main
        1/(dp*micro_batches)
    right
""")


def test_what_is_not_decided(run, files):
    proved(files)
    text = (files / "right.json").read_text().replace('"reduce": "avg"', '"when": "rank.dp == 0"')
    # At its own sizes it is right; at two it would be a counterexample of its own.
    (files / "some.json").write_text(text.replace('"dp": 2', '"dp": 1'))
    done = run("prove", "some.json")
    assert done.returncode == 1
    assert "  not decided for dp ≥ 2 and micro_batches = 1: mean: not all ranks of a group reach it with the same parameters\n" in done.stdout
    assert run("prove", "some.json", "--counterexample", "none.json").stderr == (
        "lockstep prove: some.json has no counterexample; none.json was not written\n"
    )
    assert not (files / "none.json").exists()


def test_any_number_of_micro_batches_is_what_the_file_opens(run, files):
    proved(files)
    text = (files / "right.json").read_text().replace('"micro_batches": 1', '"micro_batches": "any"')
    (files / "any.json").write_text(text)
    done = run("prove", "any.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "proved  any.json  right\n  right for every size\n  open: micro_batches; 2 cases, 2 classes of parameters\n"
    # Each step of two goes through the same number.
    (files / "steps.json").write_text(text.replace('"any"', '"any", "steps": 2'))
    done = run("prove", "-q", "steps.json")
    assert done.stdout == "wrong   steps.json  wrong for every size\n"  # the first step's gradients were not cleared
    (files / "both.json").write_text(text.replace('"dp": 2', '"dp": "any"'))
    assert "open: dp, micro_batches; 4 cases" in run("prove", "both.json").stdout
    regrown = text.replace('"by": "1/micro_batches" }', '"by": "1/micro_batches" }, { "name": "regrow", "op": "all_reduce", "over": "dp" }')
    (files / "regrown.json").write_text(regrown)
    done = run("prove", "regrown.json")
    assert done.returncode == 1
    assert "  not decided for micro_batches ≥ 2: regrow: it acts in every micro-batch on what earlier ones have left\n" in done.stdout


FEW = """{
  "lockstep_framework": 1, "name": "few",
  "rules": [ { "refuse": "micro_batches < pp", "because": "{micro_batches} micro-batches are fewer than the {pp} stages." } ],
  "steps": [
    { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1 / micro_batches" } ] },
    { "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" } ]
}
"""


def test_numbers_of_micro_batches_that_a_framework_refuses_are_passed_over(run, files):
    (files / "few.jsonc").write_text(FEW)
    (files / "any.json").write_text("""{
      "lockstep": 1, "layout": { "dp": 2, "pp": 5 }, "batch": { "micro_batches": "any", "tokens": "even" },
      "model": { "parameters": [ { "name": "weight", "shape": [8], "stage": 4 } ] }, "schedule": { "framework": "./few.jsonc" }
    }""")
    done = run("prove", "any.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "  open: micro_batches; 1 case, 1 class of parameters\n" in done.stdout
    checked = run("check", "any.json")
    assert checked.returncode == 0 and ", 5 micro-batches, " in checked.stdout
    (files / "few.jsonc").write_text(FEW.replace("micro_batches < pp", "micro_batches < 100"))
    done = run("check", "any.json")
    assert done.returncode == 2 and "2 micro-batches are fewer than the 5 stages." in done.stdout


def test_sizes_that_few_micro_batches_refuse_are_looked_at_with_more(run, files):
    twice = '{ "name": "twice", "op": "scale", "by": 2, "when": "pp > 2" }, { "name": "mean"'
    (files / "few.jsonc").write_text(FEW.replace('{ "name": "mean"', twice))
    (files / "any.json").write_text("""{
      "lockstep": 1, "layout": { "dp": 2, "pp": "any" }, "batch": { "micro_batches": "any", "tokens": "even" },
      "model": { "parameters": [ { "name": "weight", "shape": [8] } ] }, "schedule": { "framework": "./few.jsonc" }
    }""")
    done = run("prove", "any.json")
    assert done.returncode == 1
    # The rule refuses one micro-batch with any number of stages from 3 on.
    assert "  wrong as soon as pp ≥ 3 and micro_batches ≥ 2\n  open: pp, micro_batches; " in done.stdout
    assert "not decided" not in done.stdout
    assert "dp 2, pp 3, 3 micro-batches: rank 0 gets g0 + g1 for weight, not (g0+g1)/2\n" in done.stdout


def test_a_framework_s_condition_on_their_number_is_not_taken_from_an_example(run, files):
    for condition, verdict in (("micro_batches > 1", "right only at micro_batches = 1"), ("micro_batches > 8", "wrong as soon as micro_batches ≥ 9")):
        twice = f'{{ "name": "twice", "op": "scale", "by": 2, "when": "{condition}" }}, {{ "name": "mean"'
        (files / "few.jsonc").write_text(FEW.replace('{ "name": "mean"', twice))
        (files / "any.json").write_text("""{
          "lockstep": 1, "layout": { "dp": 2 }, "batch": { "micro_batches": "any", "tokens": "even" },
          "model": { "parameters": [ { "name": "weight", "shape": [8] } ] }, "schedule": { "framework": "./few.jsonc" }
        }""")
        done = run("prove", "any.json")
        assert done.returncode == 1
        assert verdict in done.stdout


def test_an_axis_that_is_any_leaves_the_others_as_written(run, files):
    text = json.loads(one_parameter({"dp": 2, "pp": "any"}, [{**DP_SUM, "reduce": "avg"}]))
    assert statement(run, files, json.dumps(text)) == ("wrong", "wrong for every size")
    checked = run("check", "one.json")
    assert checked.returncode == 1 and "\n  dp 2 = 2 ranks" in checked.stdout


def test_messages(run, files):
    done = run("prove", "invalid.json")
    assert done.returncode == 2 and "invalid.json:" in done.stderr and "layuot" in done.stderr
    done = run("prove", "right.json", "-f", "junit")
    assert (done.returncode, done.stderr) == (
        2,
        'lockstep prove: --format takes one of text, json; found "junit"\nSee `lockstep prove --help`.\n',
    )
    done = run("prove", "right.json", "wrong.json", "--counterexample", "small.json")
    assert (done.returncode, done.stderr) == (
        2,
        "error: --counterexample takes the one of a single scenario, but there are 2 files; name one\n",
    )
    (files / "empty").mkdir()
    done = run("prove", "empty")
    assert (done.returncode, done.stderr) == (4, "lockstep: nothing was checked: there is no scenario, in a *.json or *.jsonc file, in empty\n")


def one_parameter(layout, steps, **parameter):
    """A file whose steps come after a backward that is right once dp is summed over."""
    backward = {"op": "backward", "name": "backward", "by": "1/sum(tokens, dp, micro_batch)"}
    return json.dumps(
        {
            "lockstep": 1,
            "name": "one",
            "layout": layout,
            "model": {"parameters": [{"name": "a", "shape": [8], **parameter}]},
            "schedule": {"steps": [{"op": "each", "name": "each", "steps": [backward]}, *steps]},
        }
    )


DP_SUM = {"op": "all_reduce", "name": "sum", "over": "dp"}


def statement(run, files, text):
    (files / "one.json").write_text(text)
    done = run("prove", "one.json")
    return done.stdout.splitlines()[0].split()[0], done.stdout.splitlines()[1].strip()


def test_a_coordinate_that_only_large_layouts_have_is_looked_at(run, files):
    twice = {"op": "scale", "name": "twice", "by": 2, "when": "rank.dp == 7"}
    for size in (2, 8, "any"):
        text = one_parameter({"dp": size}, [DP_SUM, twice])
        assert statement(run, files, text) == ("wrong", "wrong as soon as dp ≥ 8")
    # Each smaller size would be a case of its own.
    text = one_parameter({"dp": 2}, [DP_SUM, {**twice, "when": "rank.dp == 70"}])
    assert statement(run, files, text) == ("open", "right where it could be followed")
    assert "not decided for dp ≥ 40" in run("prove", "one.json").stdout


def test_a_stage_counted_from_the_end_is_a_named_one_at_some_size(run, files):
    twice = {"op": "scale", "name": "twice", "by": 2, "only": {"pp": [4]}}
    for pp in (7, 8):
        assert statement(run, files, one_parameter({"dp": 2, "pp": pp}, [DP_SUM, twice], stage=-3)) == ("wrong", "wrong for pp = 7")


def test_sizes_around_the_files_own_are_tried_where_small_ones_are_refused(run, files):
    last = {"op": "scale", "name": "last", "by": "16 / dp", "only": {"dp": [15]}}
    assert statement(run, files, one_parameter({"dp": 16}, [DP_SUM, last])) == ("wrong", "right only at dp = 16")


def test_a_cut_that_does_not_come_out_even_at_some_size_is_no_mistake_of_the_file(run, files):
    geometry = {"kind": "bucket", "align_bucket": "128"}
    scatter = {"op": "reduce_scatter", "name": "scatter", "over": "dp", "geometry": geometry}
    assert statement(run, files, one_parameter({"dp": 4}, [scatter]))[0] == "open"
    assert 'whose length is a multiple of "128" into n equal slices' in run("prove", "one.json").stdout


def test_an_alignment_that_speaks_of_sizes_is_a_multiple_of_n_where_that_is_so_at_every_size(run, files):
    scatter = {"op": "reduce_scatter", "name": "scatter", "over": "dp"}

    def said(layout, over, **geometry):
        step = {**scatter, "over": over, "geometry": {"kind": "bucket", **geometry}}
        gather = {"op": "all_gather", "name": "gather", "over": over, "geometry": step["geometry"]}
        return statement(run, files, one_parameter(layout, [step, gather]))

    right, parts = ("proved", "right for every size"), {"dp_shard": 2, "dp_replicate": 2}
    for align in ("dp", "lcm(n, dp)", "lcm(n, tp)", "3 * dp", "lcm(128, dp * 2)", "world"):
        assert said({"dp": 4}, "dp", align_bucket=align)[0] == "proved", align
    assert said(parts, ["dp_shard", "dp_replicate"], align_bucket="dp") == right
    assert said(parts, "dp", align_bucket="dp_replicate * dp_shard") == right
    # Of one part of dp alone it is no multiple of the whole, and of another axis none at all.
    for over, align in (("dp", "dp_shard"), ("dp", "dp * 1/2"), ("dp", "tp"), ("dp", "lcm(tp, 128)")):
        assert said(parts, over, align_bucket=align)[0] == "open", align
        assert "whether that comes out even depends on sizes that are open" in run("prove", "one.json").stdout


def test_what_has_one_size_is_not_said_to_be_right_for_every_size(run, files):
    text = json.loads(one_parameter({"dp": 2}, [DP_SUM]))
    text["batch"] = {"micro_batches": 1, "tokens": [[[[1]], [[2]]]]}
    text["schedule"]["steps"][0]["steps"][0]["by"] = "1/3"
    said = statement(run, files, json.dumps(text))
    assert said == ("proved", "right at the one size that it has")
    assert "nothing is open" in run("prove", "one.json").stdout


def test_what_stays_beside_experts_is_said_and_the_number_of_micro_batches_is_open(run, files):
    text = {"lockstep": 1, "layout": {"dp": 1, "cp": 2, "ep": 2}, "batch": {"micro_batches": 1, "loss": "sum"},
            "model": {"parameters": [{"name": "w", "shape": [60]},
                                     {"name": "e", "shape": [4, 24], "shard": {"ep": 0}, "dispatch": ["ep"]}]},
            "schedule": {"steps": [
                {"name": "each", "op": "each", "steps": [{"name": "backward", "op": "backward"}]},
                {"name": "dense", "op": "all_reduce", "over": ["dp", "cp"], "params": "w"},
                {"name": "experts", "op": "all_reduce", "over": "edp", "params": "e"}]}}
    said = statement(run, files, json.dumps(text))
    assert said == ("proved", "right for every size, with cp = 2 and dp = 1 and ep = 2")
    shown = run("prove", "one.json").stdout
    assert "\n  open: micro_batches; " in shown and "one layout" not in shown
    assert "\n  dp stays 1: beside experts other sizes are followed only where cp, sp and dp_replicate are 1" in shown
    # Where a step tells micro-batches apart their number is the file's, and each reason is given once.
    text["schedule"]["steps"][0]["steps"].append({"name": "late", "op": "scale", "by": 2, "when": "micro_batch == 2"})
    assert statement(run, files, json.dumps(text)) == ("proved", "right at the one size that it has, with cp = 2 and dp = 1 and ep = 2")
    shown = run("prove", "one.json").stdout
    assert "\n  nothing is open; " in shown and shown.count("dp stays 1") == 1
    text["layout"]["dp"] = "any"
    assert statement(run, files, json.dumps(text)) == ("open", "no proof for every size")
    assert "\n  nothing is open; " in run("prove", "one.json").stdout


def own_framework(files, backward='"1 / (tokens * micro_batches)"', when="true", let=""):
    """A mean over ranks in a framework file of the user's own, which has another step or factor under a condition."""
    (files / "mine.jsonc").write_text("""{ "lockstep_framework": 1, "name": "mine", "help": "A loop.", "options": {},
      "batch": { "loss": "local_mean" }, "rules": [ { "refuse": "sp > 1", "because": "no" } ],
      "let": { %s },
      "steps": [
        { "name": "zero", "op": "zero" },
        { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": %s } ] },
        { "name": "mean", "op": "scale", "by": "1 / (dp * cp)", "when": "%s" },
        { "name": "sum", "op": "all_reduce", "over": ["dp", "cp"] } ] }""" % (let, backward, when))
    (files / "mine.json").write_text("""{ "lockstep": 1, "layout": { "dp": 2 }, "model": { "parameters": [
      { "name": "w", "shape": [64] } ] }, "batch": { "micro_batches": 2 }, "schedule": { "framework": "./mine.jsonc" } }""")


def replays(run, files, *layouts):
    """Verdicts of mine.json at these layouts; "micro_batches" may stand among the sizes."""
    verdicts = []
    for sizes in layouts:
        document = json.loads((files / "mine.json").read_text())
        document["batch"] = {"micro_batches": sizes.get("micro_batches", 2)}
        document["layout"] = {axis: size for axis, size in sizes.items() if axis != "micro_batches"}
        (files / "at.json").write_text(json.dumps(document))
        verdicts.append(run("check", "-q", "--no-blame", "--engine", "symbolic", "at.json").stdout.split()[0])
    return verdicts


def test_a_condition_on_sizes_is_found_wherever_it_changes(run, files):
    own_framework(files)
    assert run("prove", "--open", "all", "-q", "mine.json").stdout == "proved  mine.json  right for every size, with tp = 1\n"
    products = "; for ".join(f"cp = {cp} and dp = {18 // cp}" for cp in (18, 1, 3, 2, 6, 9))
    for when, said in {"dp != 7": "wrong for dp = 7",
                       "dp < 9": "wrong as soon as dp ≥ 9",
                       "dp != 200": "wrong for dp = 200",
                       "dp != 5000": "wrong for dp = 5000",
                       "dp < 13 or dp > 64": "wrong for 13 ≤ dp ≤ 64",
                       "dp * cp != 18": f"wrong for {products}",
                       "not (dp == 4 and cp == 3)": "wrong for cp = 3 and dp = 4",
                       "not (dp == 40 and cp == 3)": "wrong for cp = 3 and dp = 40"}.items():
        own_framework(files, when=when)
        assert run("prove", "--open", "all", "-q", "mine.json").stdout == f"wrong   mine.json  {said}, with tp = 1\n", when
    own_framework(files, when="dp * cp != 18")
    layouts = [{"dp": 18}, {"dp": 2, "cp": 9}, {"dp": 6, "cp": 3}, {"dp": 17}, {"dp": 18, "cp": 2}]
    assert replays(run, files, *layouts) == ["mismatch"] * 3 + ["match"] * 2


def test_a_condition_on_what_is_no_sum_of_sizes_is_found_where_it_changes_too(run, files):
    eighteen = "; for ".join(f"cp = {cp} and dp = {18 // cp}" for cp in (18, 1, 3, 2, 6, 9))
    for when, said in {"floor(dp / 129) < 1": "wrong as soon as dp ≥ 129",
                       "lcm(dp, dp) != 200": "wrong for dp = 200",
                       "lcm(cp * dp, dp) != 18": f"wrong for {eighteen}",
                       "lcm(dp, 7) != 7": "wrong for dp = 7; for cp ≥ 2 and dp = 1",
                       "not (max(max(cp, dp), 1000) > 1000)": "wrong as soon as dp ≥ 1001, or cp ≥ 1001",
                       "world / dp < 4": "wrong as soon as dp ≥ 2 and pp ≥ 4, or cp ≥ 2 and pp ≥ 2, or cp ≥ 4",
                       "ceil(world / dp / 2) <= 3": "wrong as soon as dp ≥ 2 and pp ≥ 7, or cp ≥ 2 and pp ≥ 4, or "
                                                    "cp ≥ 3 and pp ≥ 3, or cp ≥ 4 and pp ≥ 2, or cp ≥ 7",
                       "(world / dp - max(1, 6)) * (cp - 6) != 0":
                           "wrong for cp = 6; for cp = 3 and pp = 2; for cp = 2 and pp = 3; for cp = 1, dp ≥ 2 and pp = 6"}.items():
        own_framework(files, when=when)
        done = run("prove", "--open", "all", "-q", "mine.json")
        assert done.stdout == f"wrong   mine.json  {said}, with tp = 1\n", when
    own_framework(files, when="ceil(world / dp / 2) <= 3")
    layouts = [{"dp": 2, "pp": 7}, {"cp": 3, "pp": 3}, {"cp": 7}, {"dp": 64, "pp": 6}, {"dp": 4, "cp": 3, "pp": 2}]
    assert replays(run, files, *layouts) == ["mismatch"] * 3 + ["match"] * 2


def test_what_arithmetic_does_not_tell_leaves_the_proof_open(run, files):
    own_framework(files, when="dp / 3 != floor(dp / 3)")
    assert replays(run, files, {"dp": 3}, {"dp": 4}, {"dp": 33}) == ["mismatch", "match", "mismatch"]
    done = run("prove", "-v", "mine.json")
    assert not done.stdout.startswith("proved")
    assert "micro_batches ≥ 2: it takes floor() of something that is open\n" in done.stdout


def test_a_condition_that_decides_nothing_changes_nothing(run, files):
    """One of a name that is not used, of an option that rules it out, of a step that is left out."""
    far = '"far": { "if": "dp == 200", "then": false, "else": true }, "farther": "far and dp == 300"'
    for when, said in {"far": "dp = 200", "not farther": "dp = 300", "cp == 1 or far": "cp ≥ 2 and dp = 200"}.items():
        own_framework(files, when=when, let=far)
        assert run("prove", "--open", "all", "-q", "mine.json").stdout == f"wrong   mine.json  wrong for {said}, with tp = 1\n", when
    for when in ("true", "true or far", "not (false and farther)"):
        own_framework(files, when=when, let=far)
        assert run("prove", "--open", "all", "-q", "mine.json").stdout == "proved  mine.json  right for every size, with tp = 1\n", when


def test_a_value_that_depends_on_the_number_of_micro_batches_is_a_case(run, files):
    own_framework(files, backward='{ "if": "micro_batches == 4", "then": "1 / tokens", "else": "1 / (tokens * micro_batches)" }')
    assert run("prove", "--open", "all", "-q", "mine.json").stdout == "wrong   mine.json  wrong for micro_batches = 4, with tp = 1\n"
    assert replays(run, files, *({"dp": 2, "micro_batches": count} for count in (3, 4, 5))) == ["match", "mismatch", "match"]


def test_many_sizes_at_which_it_is_right_cut_no_end_off(run, files):
    """As many roots as there are: none of them may be lost behind the last size that is looked at."""
    own_framework(files)
    factor = "*".join(f"(dp - {root})" for root in range(4, 18))
    text = (files / "mine.json").read_text().replace(
        '"./mine.jsonc"', f'"./mine.jsonc", "edits": [ {{ "set": "mean", "by": "1 / (dp * cp) + {factor}" }} ]')
    (files / "mine.json").write_text(text.replace('"dp": 2', '"dp": "any"'))
    said = run("prove", "-q", "-v", "mine.json").stdout
    assert said == "wrong   mine.json  wrong for every size but " + " or ".join(f"dp = {root}" for root in range(4, 18)) + "\n"


def test_all_sizes_that_are_refused_are_told(run, files):
    own_framework(files)
    text = (files / "mine.jsonc").read_text()
    (files / "mine.jsonc").write_text(text.replace('"refuse": "sp > 1"', '"refuse": "sp > 1 or dp / 3 == floor(dp / 3) or dp == 7"'))
    done = run("prove", "mine.json")
    sizes = [size for size in range(1, 65) if size % 3 == 0 or size == 7]
    assert "  dp 3, 6, 7, 9, 12, 15, 18, 21, 24 and 13 more are refused, and others above 64 may be: dp 3: no\n" in done.stdout
    [one] = [one for one in json.loads(run("prove", "-f", "json", "mine.json").stdout)["refused"] if one["axis"] == "dp"]
    assert one == {"axis": "dp", "sizes": sizes, "tried": 64, "why": "no"}


def with_step(files, step):
    """own_framework() with one more step at the end."""
    text = (files / "mine.jsonc").read_text()
    (files / "mine.jsonc").write_text(text.replace('"over": ["dp", "cp"] } ]', '"over": ["dp", "cp"] }, %s ]' % step))


TWICE = '{ "name": "twice", "op": "scale", "by": 2%s }'


def test_a_name_without_a_value_at_some_sizes_has_none_there(run, files):
    for let in ('"way": { "if": "dp == 200", "then": "\'avg\'" }', '"one": { "if": "dp == 200", "then": "\'avg\'" }, "way": "one"'):
        own_framework(files, let=let)
        text = (files / "mine.jsonc").read_text()
        (files / "mine.jsonc").write_text(text.replace('"op": "all_reduce"', '"op": "all_reduce", "reduce": "way"'))
        assert run("prove", "--open", "all", "-q", "mine.json").stdout == "wrong   mine.json  wrong for dp = 200, with tp = 1\n", let


def test_a_size_in_a_name_is_followed_or_leaves_the_proof_open(run, files):
    for name, let in {"w{floor(dp / 200)}": "", "w{dp == 200}": "", "w{far}": '"far": "dp == 200"', "w{part}": '"part": "floor(dp / 200)"'}.items():
        own_framework(files, let=let)
        text = (files / "mine.jsonc").read_text()
        (files / "mine.jsonc").write_text(text.replace('"op": "scale"', '"op": "scale", "params": "%s"' % name))
        floored = "floor" in name or "part" in name
        (files / "mine.json").write_text((files / "mine.json").read_text().replace('"name": "w"', '"name": "%s"' % ("w0" if floored else "wfalse")))
        # Of what is rounded down there are as many names as sizes.
        said = "wrong for 200 ≤ dp ≤ 2399, of the sizes that could be followed" if floored else "wrong for dp = 200"
        assert run("prove", "--open", "all", "-q", "mine.json").stdout == f"wrong   mine.json  {said}, with tp = 1\n", name
        layouts = [{"dp": 2}, {"dp": 199}, {"dp": 200}, {"dp": 201}, {"dp": 400}]
        expected = ["match"] * 2 + ["mismatch"] * 3 if floored else ["match"] * 2 + ["mismatch", "match", "match"]
        assert replays(run, files, *layouts) == expected, name
    own_framework(files, let='"far": "floor(dp / 200)"')
    with_step(files, TWICE % ', "only": { "pp": ["far"] }')
    text = (files / "mine.jsonc").read_text()
    (files / "mine.jsonc").write_text(text.replace(TWICE % ', "only": { "pp": ["far"] }', '{ "name": "once", "op": "scale", "by": 1, "only": { "pp": ["far"] } }'))
    assert run("prove", "--open", "all", "-q", "mine.json").stdout.startswith("open ")


def test_a_string_that_reads_like_a_name_is_none(run, files):
    own_framework(files, let='"far": "dp == 200", "kind": { "if": "true", "then": "\'far\'" }')
    with_step(files, TWICE % ', "when": "kind == \'far\'"')
    assert run("prove", "--open", "all", "-q", "mine.json").stdout == "wrong   mine.json  wrong for every size, with tp = 1\n"


def test_a_default_of_the_layout_that_a_size_decides_is_a_case(run, files):
    for layout, when in {'"sequence_parallel": { "if": "cp == 50", "then": true, "else": false }': "sequence_parallel",
                         '"virtual_stages": { "if": "pp == 50", "then": 2, "else": 1 }': "virtual_stages > 1"}.items():
        own_framework(files)
        with_step(files, TWICE % (', "when": "%s"' % when))
        text = (files / "mine.jsonc").read_text()
        (files / "mine.jsonc").write_text(text.replace('"batch":', '"layout": { %s }, "batch":' % layout))
        axis = "cp" if "cp" in layout else "pp"
        assert run("prove", "--open", "all", "-q", "mine.json").stdout == f"wrong   mine.json  wrong for {axis} = 50, with tp = 1\n", layout
    own_framework(files)
    with_step(files, TWICE % ', "when": "cp == 1"')
    text = (files / "mine.jsonc").read_text()
    (files / "mine.jsonc").write_text(text.replace('"batch":', '"layout": { "cp": 2 }, "batch":'))
    assert run("prove", "--open", "all", "-q", "mine.json").stdout == "wrong   mine.json  wrong for cp = 1, with tp = 1\n"


def test_whether_pipeline_groups_agree_is_not_taken_from_an_example(run, files):
    own_framework(files, let='"apart": "not pipeline_groups_agree"')
    with_step(files, TWICE % ', "when": "apart"')
    text = (files / "mine.json").read_text()
    (files / "mine.json").write_text(text.replace('{ "dp": 2 }', '{ "dp": 2, "order": "tp-pp-dp", "etp": 1 }'))
    assert run("prove", "-q", "mine.json").stdout.startswith("open ")


def test_a_size_that_is_refused_beside_small_others_is_looked_at_beside_larger_ones(run, files):
    own_framework(files, let='"alone": "dp == 1"')
    with_step(files, TWICE % ', "when": "alone"')
    text = (files / "mine.jsonc").read_text()
    (files / "mine.jsonc").write_text(text.replace('"refuse": "sp > 1"', '"refuse": "sp > 1 or (dp == 1 and cp == 1)"'))
    done = run("prove", "--open", "all", "mine.json")
    assert done.returncode == 1 and done.stdout.startswith("wrong ") and "dp 1, " in done.stdout


def test_sizes_that_are_refused_wherever_they_were_tried_are_not_called_right(run, files):
    """Beyond them, where nobody looked, they may be allowed, and wrong."""
    own_framework(files)
    text = (files / "mine.jsonc").read_text()
    (files / "mine.jsonc").write_text(text.replace('"refuse": "sp > 1"', '"refuse": "sp > 1 or pp > 1 and micro_batches < 60"'))
    # The file says nothing of pp, so that the statement is about the size that could be read.
    assert run("prove", "--open", "all", "-q", "mine.json").stdout == "proved  mine.json  right for every size, with pp = 1 and tp = 1\n"
    assert "  pp stays 1: " in run("prove", "--open", "all", "mine.json").stdout
    assert "the same gradients, with pp = 1 and tp = 1 (open: " in run("diff", "mine.json", "mine.json").stdout
    scenario = (files / "mine.json").read_text()
    (files / "mine.json").write_text(scenario.replace('{ "dp": 2 }', '{ "dp": 2, "pp": 1 }'))
    assert run("prove", "--open", "all", "-q", "mine.json").stdout == "open    mine.json  right where it could be followed\n"
    assert "  not decided for pp ≥ 2: " in run("prove", "--open", "all", "mine.json").stdout
    (files / "mine.json").write_text(scenario)
    (files / "mine.jsonc").write_text(text.replace('"refuse": "sp > 1"', '"refuse": "sp > 1 or dp > 1 and cp > 1 and dp < 30"'))
    done = run("prove", "--open", "all", "mine.json")
    assert "open: dp, pp, micro_batches;" in done.stdout and "  cp stays 1: " in done.stdout


def test_a_counterexample_that_would_be_no_valid_scenario_is_not_written(run, tmp_path):
    """At one rank less the model communicates nothing, and what the file's edits are of is not there."""
    path = ROOT / "scenarios" / "deepspeed" / "8491-exchange-without-backward-in-the-model.json"
    done = run("prove", "-q", str(path), "--counterexample", "example.json")
    assert done.returncode == 1
    if (tmp_path / "example.json").exists():
        assert run("check", "-q", "example.json").returncode == 1
    else:
        assert "example.json was not written" in done.stderr


def test_a_coordinate_of_dp_is_one_on_the_axes_of_experts(run, files):
    """Rank 1 of dp is the last of ep at ep = 2 alone."""
    (files / "root.json").write_text("""{ "lockstep": 1, "layout": { "ep": 2, "dp": 4 },
      "model": { "parameters": [ { "name": "w", "shape": [4] }, { "name": "expert", "shape": [4], "dispatch": ["ep"], "frozen": true } ] },
      "batch": { "micro_batches": 1, "tokens": "even" },
      "schedule": { "steps": [
        { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1/micro_batches" } ] },
        { "name": "reduce", "op": "reduce", "over": "dp", "root": { "dp": 1 }, "reduce": "avg" },
        { "name": "send", "op": "broadcast", "over": ["ep", "edp"], "root": { "ep": "last", "edp": 0 } },
        { "name": "own", "op": "own", "over": [] } ] } }""")
    (files / "large.json").write_text((files / "root.json").read_text().replace('"ep": 2, "dp": 4', '"ep": 4, "dp": 8'))
    assert [run("check", "-q", name).returncode for name in ("root.json", "large.json")] == [0, 1]
    assert "wrong for ep ≠ 2 and edp ≥ 2; for ep ≥ 3, of the sizes that could be followed" in run("prove", "root.json").stdout


def test_a_long_statement_is_shortened_and_true_by_itself(run, files):
    """tests/report/brief_statement_test.cpp has every kind of statement."""

    def said(condition, *options):
        twice = {"op": "scale", "name": "twice", "by": 2, "when": condition}
        (files / "one.json").write_text(one_parameter({"dp": "any", "tp": "any"}, [DP_SUM, twice]))
        return run("prove", *options, "one.json").stdout

    kinds = (
        ("dp * tp >= 60", "wrong as soon as ", ", or ", "one of {} more conditions holds"),
        ("dp * tp == 60", "wrong for ", "; for ", "{} more ranges of sizes"),
    )
    for condition, head, between, more in kinds:
        whole = json.loads(said(condition, "-f", "json"))["statement"]
        brief = said(condition).splitlines()[1].strip()
        assert said(condition, "-q").rstrip("\n").endswith(f"  {brief}")
        assert said(condition, "-v").splitlines()[1].strip() == whole
        every = whole.removeprefix(head).split(between)
        told = brief.removesuffix(" (-v prints all)").removeprefix(head).split(between)
        assert len(told) == 5 and set(told[:4]) < set(every)
        assert told[4] == more.format(len(every) - 4)
    assert "-v" not in said("dp >= 3")


def test_a_list_of_tokens_keeps_the_axes_of_its_ranks_and_the_statement_says_so(run, files):
    """Right at the dp of the list alone: with another one the file would list other tokens."""
    document = {
        "lockstep": 1,
        "layout": {"dp": 2, "tp": 2},
        "model": {"parameters": [{"name": "w", "shape": [12], "shard": {"tp": 0}}]},
        "batch": {"micro_batches": 1, "loss": "sum", "tokens": [[[[1]], [[2]]]]},
        "schedule": {"steps": [{"name": "m", "op": "each", "steps": [{"name": "b", "op": "backward"}]},
                               {"name": "r", "op": "all_reduce", "over": "dp"}, {"name": "s", "op": "scale", "by": "2/dp"}]},
    }
    (files / "a.json").write_text(json.dumps(document))
    said = json.loads(run("prove", "-f", "json", "a.json").stdout)
    assert (said["verdict"], said["statement"]) == ("right", "right for every size, with dp = 2 and micro_batches = 1")
    assert [(one["axis"], one["size"]) for one in said["kept"]] == [("dp", 2), ("micro_batches", 1)]
    text = run("prove", "a.json").stdout
    assert "  dp stays 2: the file lists numbers of its ranks under \"tokens\"\n" in text
    assert "  micro_batches stays 1: the file lists numbers of each under \"tokens\"\n" in text


def test_an_edit_of_a_late_iteration_is_no_mistake_where_the_number_of_micro_batches_is_any(run, files):
    """Some numbers have it: the file was refused for one of two."""
    document = {
        "lockstep": 1,
        "layout": {"dp": 2},
        "model": {"parameters": [{"name": "w", "shape": [12]}]},
        "batch": {"micro_batches": "any", "loss": "sum", "tokens": "even"},
        "schedule": {"steps": [{"name": "m", "op": "each", "steps": [{"name": "b", "op": "backward"}]}, {"name": "r", "op": "all_reduce", "over": "dp"}]},
    }
    for edit in ({"drop": "b[7]"}, {"drop": "b[-8]"}):
        document["schedule"]["edits"] = [edit]
        (files / "a.json").write_text(json.dumps(document))
        said = json.loads(run("prove", "-f", "json", "a.json").stdout)
        assert [(one["sizes"], one["step"]) for one in said["undecided"]] == [("micro_batches = 1", None), ("micro_batches ≥ 2", "b")]
        (files / "b.json").write_text(json.dumps({**document, "batch": {**document["batch"], "micro_batches": 7}}))
        assert "does not exist: an optimizer step has 7 micro-batches" in run("check", "b.json").stdout


def test_a_counterexample_in_another_folder_finds_the_files_that_the_scenario_names(run, tmp_path):
    (tmp_path / "cases" / "found").mkdir(parents=True)
    (tmp_path / "cases" / ".git").mkdir()
    steps = [{"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward"}]},
             {"name": "sum", "op": "all_reduce", "over": "dp"}]
    (tmp_path / "cases" / "ours.jsonc").write_text(json.dumps({"lockstep_framework": 1, "name": "ours", "steps": steps}))
    case = {"lockstep": 1, "layout": {"dp": 1}, "model": {"parameters": [{"name": "w", "shape": [8]}]},
            "batch": {"micro_batches": 1, "loss": "local_mean"}, "schedule": {"framework": "./ours.jsonc"}}
    (tmp_path / "cases" / "case.json").write_text(json.dumps(case))
    done = run("prove", "-q", "cases/case.json", "--counterexample", "cases/found/example.json")
    assert (done.returncode, done.stderr) == (1, "")
    example = json.loads((tmp_path / "cases" / "found" / "example.json").read_text())
    assert example["schedule"]["framework"] == "../ours.jsonc"
    assert run("test", "-q", "cases/found").returncode == 0
    # In the same folder it is named as before; on a device it is what would stand beside the scenario.
    run("prove", "-q", "cases/case.json", "--counterexample", "cases/beside.json")
    assert json.loads((tmp_path / "cases" / "beside.json").read_text())["schedule"]["framework"] == "./ours.jsonc"
    assert '"./ours.jsonc"' in run("prove", "-q", "cases/case.json", "--counterexample", "/dev/stdout").stdout
    # What lies below a folder may be named from there, and what lies beside it may not.
    run("prove", "-q", "cases/case.json", "--counterexample", "above.json")
    assert json.loads((tmp_path / "above.json").read_text())["schedule"]["framework"] == "./cases/ours.jsonc"
    (tmp_path / "other").mkdir()
    done = run("prove", "-q", "cases/case.json", "--counterexample", "other/example.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert 'a scenario in "other" could not name the file "cases/./ours.jsonc", which lies outside' in done.stderr
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.parametrize("framework", ["megatron", "torchtitan"])
def test_an_axis_of_which_every_size_from_some_on_is_refused_is_decided(run, tmp_path, framework):
    """6 key-value heads and a vocabulary of 1,000 leave tp 1 and 2. A framework's expert tensor parallelism goes with tp, and no expert is there."""
    document = {"lockstep": 1, "layout": {"tp": "any"}, "batch": {"micro_batches": 1}, "schedule": {"framework": framework},
                "model": {"preset": "llama", "layers": 2, "hidden": 96, "heads": 12, "query_groups": 6, "vocab": 1000, "ffn": 80}}
    (tmp_path / "a.json").write_text(json.dumps(document))
    said = json.loads(run("prove", "-f", "json", "a.json").stdout)
    assert (said["verdict"], said["undecided"]) == ("right", [])
    assert "  tp ≥ 3 is refused: tp 3: " in run("prove", "a.json").stdout
    assert run("check", "-q", "a.json").returncode == 0
    assert [run("check", "-q", "a.json", "--set", f"tp={tp}").returncode for tp in (1, 2, 3, 6, 7, 8)] == [0, 0, 2, 2, 2, 2]
    # What the file itself says of experts is a question of its own.
    document["layout"]["etp"] = "any"
    (tmp_path / "a.json").write_text(json.dumps(document))
    assert "no parameter or step speaks of the expert mesh" in run("check", "a.json").stdout


def test_what_is_in_some_micro_batches_alone_is_not_said_to_act_in_every_one(run, tmp_path):
    document = {"lockstep": 1, "layout": {"dp": 2}, "model": {"parameters": [{"name": "a", "shape": [8]}]}, "batch": {"micro_batches": "any", "loss": "sum"},
                "schedule": {"steps": [{"name": "each", "op": "each", "steps": [{"name": "backward", "op": "backward"}]}, {"name": "sum", "op": "all_reduce", "over": "dp"}],
                             "edits": [{"insert": {"name": "z", "op": "zero"}, "before": "backward[0]"}]}}
    (tmp_path / "a.json").write_text(json.dumps(document))
    assert "z: it acts in some micro-batches and not in others, on what is there by then\n" in run("prove", "a.json").stdout


def test_an_extraction_is_no_scenario(run, tmp_path):
    (tmp_path / "step.json").write_text('{\n "lockstep_extract": 1, "command": [] }')
    for command in ("prove", "repair", "explain", "show", "mutate"):
        done = run(command, "step.json")
        said = "step.json:2:22: error: expected a scenario, found what `lockstep extract` has written; `lockstep check` and `lockstep diff` read it"
        assert done.returncode == 2 and said in done.stdout + done.stderr, command
