# SPDX-License-Identifier: Apache-2.0
"""repair: what it prints, what it writes, and what it refuses."""

import json
import os
import re
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2])


def test_repairs_are_ranked_and_verified(run, files):
    done = run("repair", "wrong.json")
    assert done.returncode == 0
    assert done.stdout.startswith(
        "mismatch  wrong.json  wrong\n"
        "\n"
        "  1. mean; no additional communication\n"
        '     { "set": "mean", "reduce": "avg" }\n'
    )
    assert done.stdout.count("     replayed at the file's own sizes by symbolic and host\n") == 3
    assert run("repair", "--most", "1", "wrong.json").stdout.count("replayed") == 1


def test_what_is_proved_for_every_size_comes_first_and_the_rest_says_where_it_is_wrong(run, files):
    # The loss is a mean over the tokens of one micro-batch, so that no reduction is right with more of them.
    document = json.loads((files / "wrong.json").read_text())
    few = run("repair", "wrong.json").stdout
    assert "     right only at micro_batches = 1; the smallest wrong layout has " in few
    document["schedule"]["steps"][0]["steps"][0]["by"] = "1 / sum(tokens, dp, micro_batch)"
    document["schedule"]["steps"][1]["reduce"] = "avg"
    document.pop("expect", None)
    (files / "averaged.json").write_text(json.dumps(document))
    report = json.loads(run("repair", "-f", "json", "--most", "9", "averaged.json").stdout)
    reaches = [repair["reach"] for repair in report["repairs"] if not repair["other_owners"]]
    # Its steps divide by the tokens of dp alone: nothing is known of a layout with cp, whatever the proof says of dp.
    assert reaches[0] == "every size of the axes in play" and reaches == sorted(reaches, key=["every size", "every size of the axes in play", "the layouts tried", "its own sizes", "some sizes"].index)
    # The loss is divided by the tokens of all ranks, and then the mean over ranks is taken: its own factor comes first.
    assert report["repairs"][0]["edits"] == [{"set": "backward", "by": "dp / sum(tokens, dp, micro_batch)"}]
    assert [{"set": "mean", "reduce": "sum"}] in [repair["edits"] for repair in report["repairs"]]
    assert report["repairs"][0]["proof"] == "right for every size of dp and micro_batches"
    wrong = [repair for repair in report["repairs"] if repair["reach"] == "some sizes"]
    assert wrong and all("wrong" in repair["proof"] or repair["sizes"]["wrong_at"] for repair in wrong)


def test_json(run, files):
    report = json.loads(run("repair", "-f", "json", "wrong.json").stdout)
    assert list(report) == ["lockstep", "file", "verdict", "repairs", "found", "tried", "time"]
    assert report["verdict"] == "mismatch" and report["found"] >= len(report["repairs"]) == 3
    best = report["repairs"][0]
    assert list(best) == ["edits", "steps", "verified", "sizes", "reach", "proof", "other_owners", "keeps_norms", "added_bytes_per_rank"]
    assert best["edits"] == [{"set": "mean", "reduce": "avg"}]
    assert best["steps"] == ["mean"]
    assert best["verified"] == ["symbolic", "host"]
    assert best["sizes"] == {"tried": 5, "right": 3, "wrong_at": "micro-batches 2"}
    assert best["reach"] == "some sizes"
    assert (best["other_owners"], best["keeps_norms"], best["added_bytes_per_rank"]) == (False, True, 0)
    # A check looks at nothing of the kind.
    assert "keeps_norms" not in json.loads(run("check", "-f", "json", "wrong.json").stdout)["diagnosis"]["repairs"][0]


def test_each_repair_is_right_when_it_is_written(run, files):
    for take in ("1", "2", "3"):
        done = run("repair", "--take", take, "--to", f"repaired-{take}.json", "wrong.json")
        assert (done.returncode, done.stderr) == (0, f"wrote repaired-{take}.json with repair {take}\n")
        assert run("test", f"repaired-{take}.json").stdout.startswith("ok ")
    assert json.loads((files / "repaired-1.json").read_text())["schedule"]["edits"] == [{"set": "mean", "reduce": "avg"}]


def test_write_keeps_comments_and_the_old_file(run, files):
    old = "// ours\n" + (files / "wrong.json").read_text()
    (files / "wrong.json").write_text(old)
    done = run("repair", "--write", "wrong.json")
    assert (done.returncode, done.stderr) == (0, "wrote wrong.json with repair 1; wrong.json.orig is as it was\n")
    assert (files / "wrong.json.orig").read_text() == old
    assert (files / "wrong.json").read_text().startswith("// ours\n")
    assert run("test", "wrong.json").returncode == 0 and run("check", "-q", "wrong.json").returncode == 0
    again = run("repair", "wrong.json")
    assert again.stdout == "match  wrong.json  wrong\n  there is nothing to repair\n"


def test_a_deadlock_is_repaired(run, files):
    assert '{ "set": "mean", "when": null, "reduce": "avg" }' not in run("repair", "stuck.json").stdout
    done = run("repair", "stuck.json")
    assert done.returncode == 0 and "deadlock  stuck.json" in done.stdout
    run("repair", "--to", "moving.json", "stuck.json")
    assert run("check", "moving.json").returncode == 0


def test_nothing_is_found_where_nothing_can_be(run, files):
    # What is lost for good cannot be had from edits of the steps: a parameter that never takes part.
    text = (files / "right.json").read_text().replace('"shape": [8]', '"shape": [8], "dtype": "float32"')
    text = text.replace('"reduce": "avg"', '"reduce": "avg"').replace('"tokens": "even"', '"tokens": "even", "loss": { "weight": "7 + micro_batch" }')
    (files / "lost.json").write_text(text)
    done = run("repair", "lost.json")
    assert done.returncode == 1
    # Of two edits not all are tried: it is not said that none would do.
    assert re.search(r"\n  no repair was found among the \d+ schedules that were tried; docs/repair.md says which\n", done.stdout)
    assert "no edit" not in done.stdout and "no two edits" not in done.stdout


def test_what_was_not_tried_is_not_said_to_be_no_repair(run, tmp_path):
    # One rank is left out of w1's sum, and nothing sums w0: two edits mend it, and the search does not come to the pair.
    reduce = {"op": "all_reduce", "over": "dp"}
    steps = [{"name": "m", "op": "each", "steps": [{"name": "b", "op": "backward"}]},
             {"name": "q1", **reduce, "params": ["w1"], "only": {"dp": [0, 1, 2]}},
             *({"name": f"q{i}", **reduce, "params": [f"w{i}"]} for i in (2, 3, 4)),
             {"name": "s", "op": "scale", "by": "1 / sum(tokens, dp, micro_batch)"}]
    document = {"lockstep": 1, "layout": {"dp": 4}, "model": {"parameters": [{"name": f"w{i}", "shape": [64]} for i in range(6)]},
                "batch": {"micro_batches": 1}, "schedule": {"steps": steps}}
    (tmp_path / "two.json").write_text(json.dumps(document))
    said = run("repair", "two.json").stdout
    assert "no two edits" not in said and ("no repair was found among the" in said or "schedules were tried; " in said), said
    document["schedule"]["edits"] = [{"set": "q1", "only": None}, {"insert": {"name": "x", **reduce, "params": ["w0", "w5"]}, "after": "m"}]
    (tmp_path / "mended.json").write_text(json.dumps(document))
    assert run("check", "mended.json").stdout.startswith("match")


def test_of_a_file_for_any_size_both_searches_are_counted(run, files):
    """The first one looks with one micro-batch, where nothing that matches is right for any number of them."""
    each = {"name": "each", "op": "each", "steps": [{"name": "backward", "op": "backward"}]}
    total = {"name": "sum", "op": "all_reduce", "over": "dp"}
    content = {
        "lockstep": 1,
        "layout": {"dp": 2},
        "model": {"parameters": [{"name": "weight", "shape": [4]}]},
        "schedule": {"steps": [{"name": "zero", "op": "zero"}, each, total]},
    }
    tried = {}
    for count in ("any", 1, 2):
        content["batch"] = {"micro_batches": count, "loss": "local_mean"}
        (files / "counted.json").write_text(json.dumps(content))
        found = json.loads(run("repair", "-f", "json", "counted.json").stdout)
        assert found["repairs"]
        tried[count] = found["tried"]
    assert tried["any"] == tried[1] + tried[2]


def test_a_repaired_file_keeps_the_sizes_that_are_any(run, files):
    text = (files / "wrong.json").read_text().replace('"dp": 2', '"dp": "any"').replace('"micro_batches": 1', '"micro_batches": "any"')
    (files / "any.json").write_text(text)
    assert run("repair", "--write", "any.json").returncode == 0
    assert (files / "any.json.orig").read_text() == text
    repaired = (files / "any.json").read_text()
    assert '"dp": "any"' in repaired and '"micro_batches": "any"' in repaired and '"edits": [' in repaired


def test_mistakes(run, files):
    def says(*arguments):
        done = run("repair", *arguments)
        assert done.returncode == 2 and done.stdout == ""
        return done.stderr

    assert says("--take", "0", "wrong.json") == 'error: --take takes a whole number from 1 to 1000; found "0"\n'
    assert says("--most", "many", "wrong.json") == 'error: --most takes a whole number from 1 to 1000; found "many"\n'
    assert says("--write", "--to", "x.json", "wrong.json") == "error: --write changes FILE and --to writes another file; give one of them\n"
    assert says(".") == "error: repair takes one scenario, and . stands for 4: invalid.json and others; name one of them\n"
    (files / "wrong.json.orig").write_text("")
    assert says("--write", "wrong.json") == (
        "error: wrong.json.orig exists, and --write would overwrite it; move it away, or use --to\n"
    )
    assert "unknown key" in says("invalid.json")
    done = run("repair", "--take", "900", "--to", "x.json", "wrong.json")
    assert done.returncode == 2 and done.stderr.startswith("error: --take 900: there are ") and not (files / "x.json").exists()


@pytest.mark.parametrize("option", ["--to", "--write"])
def test_a_repair_with_which_the_file_is_not_decided_is_not_written(run, files, option):
    """The second repair is right at the micro-batches that are shown, and not decided for any number of them."""
    text = (ROOT / "scenarios" / "picotron" / "cp-alone.json").read_text()
    (files / "any.json").write_text(re.sub(r'"micro_batches": \d+', '"micro_batches": "any"', text))
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    done = run("repair", "any.json", "--take", "2", option, *(["new.json"] if option == "--to" else []))
    assert done.returncode == 2 and "is not decided for micro_batches" in done.stderr and "the file is not written" in done.stderr
    assert {path.name: path.read_bytes() for path in files.iterdir()} == before


def of_deepspeed(options, edits=()):
    return {
        "lockstep": 1,
        "layout": {"dp": 4},
        "model": {"parameters": [{"name": "w", "shape": [16]}]},
        "batch": {"micro_batches": 2},
        "schedule": {"framework": "deepspeed", "options": options, "edits": list(edits)},
    }


TWICE = {"zero_stage": 3, "reduce_scatter": False, "gradient_predivide_factor": 4}


def test_options_of_the_framework_come_before_edits_of_its_steps(run, files):
    (files / "twice.json").write_text(json.dumps(of_deepspeed(TWICE)))
    shown = run("repair", "--most", "1", "twice.json")
    assert shown.returncode == 0
    assert shown.stdout.split("\n\n")[1] == (
        "  option gradient_predivide_factor: 1, its default, in place of 4\n"
        "     right for every size of dp (parametric)\n"
        "     replayed at the file's own sizes by symbolic and host\n"
        "     right at the file's own sizes as well, and proved for no others: 2 and 3"
    )
    assert re.search(r"\n  \d+ other values of \d+ options were tried, one at a time; \d+ options have a value that is right\n\n  1\. ", shown.stdout)
    assert "shows this repair and others, and tries other values of the framework's options\n" in run("check", "twice.json").stdout
    report = json.loads(run("repair", "-f", "json", "twice.json").stdout)
    assert list(report) == ["lockstep", "file", "verdict", "options", "option_values_tried", "repairs", "found", "tried", "time"]
    assert report["options"][0] == {
        "option": "gradient_predivide_factor", "value": 4, "given": True, "right": [1, 2, 3], "to_default": True,
        "asks_otherwise": False, "keeps_norms": True, "verified": ["symbolic", "host"],
        "reach": "every size of the axes in play", "proof": "right for every size of dp",
    }
    # 2 divides twice where there are two ranks: of it nothing more is said than was seen.
    two = of_deepspeed({**TWICE, "gradient_predivide_factor": 2})
    two["layout"]["dp"] = 2
    (files / "two.json").write_text(json.dumps(two))
    assert run("check", "-q", "two.json").returncode == 1


def test_a_file_with_edits_of_its_own_is_repaired_in_its_edits(run, files):
    (files / "edited.json").write_text(json.dumps(of_deepspeed({"zero_stage": 0}, [{"drop": "dp_scale"}])))
    shown = run("repair", "edited.json").stdout
    assert "\n  option " not in shown and "\n  1. " in shown
    assert "options of the framework" not in run("check", "edited.json").stdout


def test_an_engine_that_replays_nothing_is_said_to_decide(run, files):
    large = of_deepspeed({"gradient_allreduce_op": "sum"})
    large["layout"]["dp"] = 4096
    (files / "large.json").write_text(json.dumps(large))
    shown = run("repair", "--most", "1", "large.json").stdout
    assert shown.count("     decided at the file's own sizes by parametric, replayed by host\n") == 2 and "replayed at" not in shown


def test_no_options_are_promised_where_none_are_given(run, files):
    none = of_deepspeed({})
    none["schedule"] = {"framework": "deepspeed", "options": {}}
    none["batch"]["loss"] = "sum"
    (files / "none.json").write_text(json.dumps(none))
    shown = run("check", "none.json").stdout
    assert "shows this repair and others\n" in shown


def test_a_value_that_is_right_at_a_small_layout_alone_is_not_said_to_be_right(run, files):
    framework = {
        "lockstep_framework": 1, "name": "kinds", "help": "Divides in several ways.",
        "options": {"kind": {"type": "integer", "default": 0, "allowed": [0, 1, 2], "help": "0: not at all; 1: by dp; 2: by at most 2"}},
        "batch": {"loss": "micro_batch_mean"},
        "steps": [
            {"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward", "by": "1 / (tokens * micro_batches)"}]},
            {"name": "sum", "op": "all_reduce", "over": "dp"},
            {"name": "by_dp", "op": "scale", "by": "1 / dp", "when": "kind == 1"},
            {"name": "by_two", "op": "scale", "by": "1 / min(dp, 2)", "when": "kind == 2"},
        ],
    }
    (files / "kinds.jsonc").write_text(json.dumps(framework))
    document = {**of_deepspeed({}), "schedule": {"framework": "./kinds.jsonc", "options": {"kind": 0}}}
    (files / "kinds.json").write_text(json.dumps(document))
    found, = json.loads(run("repair", "-f", "json", "kinds.json").stdout)["options"]
    assert found["right"] == [1] and found["reach"] == "every size of the axes in play"
    document["layout"]["dp"] = 2
    (files / "kinds.json").write_text(json.dumps(document))
    found, = json.loads(run("repair", "-f", "json", "kinds.json").stdout)["options"]
    assert found["right"] == [1, 2]


def test_a_mean_that_is_missing_is_also_said_as_a_scale_and_a_sum(run):
    report = json.loads(run("repair", "-f", "json", ROOT / "scenarios/ddp/noop-hook.json").stdout)
    mean, two = report["repairs"][:2]
    assert mean["edits"] == [{"insert": {"name": "dp_all_reduce", "op": "all_reduce", "over": "dp", "reduce": "avg"}, "after": "micro_batches"}]
    assert two["edits"] == [
        {"insert": {"name": "dp_all_reduce_scale", "op": "scale", "by": "1 / dp"}, "after": "micro_batches"},
        {"insert": {"name": "dp_all_reduce", "op": "all_reduce", "over": "dp"}, "after": "dp_all_reduce_scale"},
    ]
    assert two["reach"] == mean["reach"] == "every size of the axes in play" and two["verified"] == ["symbolic", "host"]
    assert report["found"] == 4


ZERO = {"name": "zero", "op": "zero"}
BACKWARD = {"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward", "by": "1 / (tokens * micro_batches)"}]}
SUM = {"name": "sum", "op": "all_reduce", "over": ["dp", "cp"], "reduce": "sum"}
MEAN = {"name": "mean", "op": "all_reduce", "over": ["dp", "cp"], "reduce": "avg"}


def write_with_option(files, option, steps, layout, given=None, batch=None, of_framework=None):
    """A file of a framework of its own with one option, "o"."""
    framework = {
        "lockstep_framework": 1, "name": "own", "options": {"o": option}, "steps": [ZERO, *steps],
        "batch": {"loss": "local_mean"}, **(of_framework or {}),
    }
    (files / "own.fw.json").write_text(json.dumps(framework))
    document = {
        "lockstep": 1, "layout": layout, "batch": batch or {},
        "model": {"parameters": [{"name": "w", "shape": [8, 4]}, {"name": "n", "shape": [4]}]},
        "schedule": {"framework": "./own.fw.json", "options": {} if given is None else {"o": given}},
    }
    (files / "own.json").write_text(json.dumps(document))
    return document


def rights(run, file):
    return {option["option"]: option["right"] for option in json.loads(run("repair", "-f", "json", file).stdout)["options"]}


FLAG = {"type": "boolean", "default": False}


@pytest.mark.parametrize("option, given, by, layout", [
    ({"type": "integer", "default": 8}, 4, "1 / o", {"dp": 8}),
    ({"type": "integer", "default": 1000}, 7, "1 / o", {"dp": 1000}),
    ({"type": "integer", "default": 4096}, 7, "1 / o", {"dp": 4096}),
    (FLAG, None, {"if": "o and dp >= 3", "then": "1 / dp", "else": "1"}, {"dp": 4}),
    (FLAG, None, {"if": "o", "then": "1 / max(dp, 3)", "else": "1"}, {"dp": 4}),
])
def test_values_are_judged_at_the_sizes_of_the_file(run, files, option, given, by, layout):
    write_with_option(files, option, [BACKWARD, {"name": "scale", "op": "scale", "by": by}, SUM], layout, given)
    assert rights(run, "own.json") == {"o": [option["default"] if given else True]}
    assert "tried, one at a time; 1 option has a value that is right\n" in run("repair", "own.json").stdout


def test_an_option_that_gives_the_micro_batches_is_not_overruled(run, files):
    backward = {**BACKWARD, "steps": [{**BACKWARD["steps"][0], "by": "1 / tokens"}]}
    counts = {"micro_batches": {"if": "o > 1", "then": 4, "else": 1}, "loss": "local_mean"}
    write_with_option(files, {"type": "integer", "default": 1}, [backward, MEAN], {"dp": 2}, 4, of_framework={"batch": counts})
    assert rights(run, "own.json") == {"o": [1]}
    shown = run("repair", "own.json").stdout
    assert "  option o: 1, its default, in place of 4; what is right changes with it; the sizes are then micro-batches 1\n" in shown
    assert "     wrong at other sizes; the smallest wrong layout has dp 1, 2 micro-batches" in shown


def test_sizes_of_the_layout_are_values_of_a_number(run, files):
    given = {"gradient_divide_factor": 12}
    document = {"lockstep": 1, "layout": {"dp_shard": 1, "dp_replicate": 6}, "batch": {"micro_batches": 2, "loss": "micro_batch_mean"},
                "model": {"parameters": [{"name": "w", "shape": [24, 8]}]}, "schedule": {"framework": "fsdp2", "options": given}}
    (files / "factor.json").write_text(json.dumps(document))
    assert 6 in rights(run, "factor.json")["gradient_divide_factor"]
    own = rights(run, str(ROOT / "scenarios/fsdp2/one-shard-divided-twice.json"))
    assert 2 in own["gradient_divide_factor"] and own["force_sum_reduction_for_comms"] == [False]


@pytest.mark.parametrize("steps, layout, batch", [
    # The norm of the second optimizer step, which is counted twice, goes with the option.
    ([MEAN, {"name": "norm", "op": "norm", "when": "not o or step == 0"},
      {"name": "norm2", "op": "norm", "over": "dp", "when": "step == 1 and not o"}], {"dp": 2}, {"steps": 2}),
    # So does the second step's clip, of a gradient that is clipped twice.
    ([MEAN, {"name": "norm", "op": "norm"}, {"name": "clip", "op": "clip", "when": "not o or step == 0"},
      {"name": "clip2", "op": "clip", "when": "not o and step == 1"}], {"dp": 2}, {"steps": 2}),
    # It keeps its name, and no rank takes it.
    ([MEAN, {"name": "norm", "op": "norm", "over": "dp", "when": {"if": "o", "then": "rank.dp > 100"}}], {"dp": 2}, {}),
])
def test_an_option_that_takes_a_norm_or_clip_away_in_any_run_is_no_repair(run, files, steps, layout, batch):
    document = write_with_option(files, FLAG, [BACKWARD, *steps], layout, batch=batch)
    assert rights(run, "own.json") == {}
    shown = run("repair", "own.json").stdout
    assert "1 other value of 1 option was tried, one at a time; none was found to be right; 1 matches only as a norm or a clip loses a gradient\n" in shown
    assert json.loads(run("repair", "-f", "json", "own.json").stdout)["option_values_without_norm"] == [{"option": "o", "value": True}]
    document["schedule"]["options"] = {"o": True}
    (files / "with.json").write_text(json.dumps(document))
    assert run("check", "-q", "with.json").returncode == 0


def test_an_option_that_drops_a_norm_taken_twice_is_a_repair(run, files):
    steps = [BACKWARD, MEAN, {"name": "norm", "op": "norm"}, {"name": "norm2", "op": "norm", "over": "dp", "when": "not o"}]
    write_with_option(files, FLAG, steps, {"dp": 2}, batch={"steps": 2})
    assert rights(run, "own.json") == {"o": [True]}


def test_an_option_that_brings_other_sizes_says_them(run, files):
    write_with_option(files, FLAG, [BACKWARD], {}, of_framework={"layout": {"dp": {"if": "o", "then": 1, "else": 4}}})
    shown = run("repair", "own.json").stdout
    assert "  option o: true in place of false, its default; the sizes are then dp 1\n" in shown
    option = shown.split("\n\n")[1]
    assert "     replayed at these sizes by symbolic and host" in option and "the file's own sizes" not in option
    assert json.loads(run("repair", "-f", "json", "own.json").stdout)["options"][0]["sizes"] == "dp 1"


def test_what_is_right_at_the_files_own_sizes_is_not_said_to_be_wrong_for_every_size(run, files):
    by = {"if": "o", "then": "1 / lcm(dp, 2)", "else": "1"}
    write_with_option(files, FLAG, [BACKWARD, {"name": "scale", "op": "scale", "by": by}, SUM], {"dp": 2})
    shown = run("repair", "own.json").stdout
    assert "  option o: true in place" in shown and "wrong for every size" not in shown
    assert "     wrong for dp = 1, of the sizes that could be followed" in shown


def test_a_part_of_what_was_changed_stands_behind_what_is_right_for_more_sizes(run):
    """The file splits a scale in two. Taking back one of the halves is right where experts have one replica alone."""
    found = json.loads(run("repair", "-f", "json", ROOT / "scenarios/deepspeed/5618-experts-divided-by-edp.json").stdout)["repairs"]
    assert [one["edits"] for one in found[:2]] == [
        [{"set": "dp_scale", "params": None}, {"drop": "expert_dp_scale"}],
        [{"set": "expert_dp_scale", "by": "1 / (edp * ep)"}],
    ]
    assert [one["reach"] for one in found[:2]] == ["every size of the axes in play"] * 2 and found[2]["reach"] != "some sizes"


def test_a_list_of_tokens_is_not_read_for_other_micro_batches(run, files):
    """A list of two for two optimizer steps of one micro-batch would be that of one step with two, which asks for another gradient."""
    name = ROOT / "scenarios/pytorch/42577-join-divides-by-all.json"
    best = json.loads(run("repair", "-f", "json", name).stdout)["repairs"][0]
    assert best["edits"] == [{"set": "dp_scale", "by": "1 / sum(tokens.ranks, dp, micro_batch)"}]
    assert best["sizes"] == {"tried": 0, "right": 0, "wrong_at": ""} and best["reach"] == "its own sizes"
    assert "     no other layout was tried\n" in run("repair", name).stdout


def test_an_option_that_gives_a_list_of_tokens_other_micro_batches_has_no_verdict(run, files):
    backward = {**BACKWARD, "steps": [{**BACKWARD["steps"][0], "by": "1 / tokens"}]}
    counts = {"micro_batches": {"if": "o", "then": 2, "else": 1}, "loss": "local_mean"}
    tokens = {"steps": 2, "tokens": [[[[1]], [[3]]], [[[5]], [[7]]]]}
    write_with_option(files, FLAG, [backward, SUM], {"dp": 2}, batch=tokens, of_framework={"batch": counts})
    assert json.loads(run("repair", "-f", "json", "own.json").stdout)["option_values_without_verdict"] == 1


def test_values_without_a_verdict_are_counted_apart(run, files):
    option = {"type": "integer", "default": 1}
    scale = {"name": "scale", "op": "scale", "by": "1 / (o - 2)"}
    write_with_option(files, option, [BACKWARD, scale, SUM], {"dp": 2}, 5)
    shown = run("repair", "own.json").stdout
    assert "  2 other values of 1 option were tried, one at a time; none was found to be right\n" in shown
    assert "\n  with 1 other value there is no verdict, right or wrong\n" in shown
    assert json.loads(run("repair", "-f", "json", "own.json").stdout)["option_values_without_verdict"] == 1


def test_a_value_that_is_not_decided_for_any_size_is_not_called_wrong(run, files):
    by = {"if": "o", "then": "1 / (dp * (1 + floor(micro_batches / 3)))", "else": "1"}
    write_with_option(files, FLAG, [BACKWARD, {"name": "scale", "op": "scale", "by": by}, SUM], {"dp": 2}, batch={"micro_batches": "any"})
    shown = run("repair", "own.json").stdout
    assert "\n  with 1 other value there is no verdict, right or wrong\n" in shown and "was tried, one at a time" not in shown


def test_layouts_around_are_those_around_the_files_own_sizes(run, files):
    """Right around the smallest layout, and not at each that is around the file's own."""
    by = {"if": "not o or (dp_shard == 4 and dp_replicate == 4)", "then": "1", "else": "1 / lcm(dp, dp)"}
    steps = [BACKWARD, {"name": "scale", "op": "scale", "by": by}, SUM]
    write_with_option(files, FLAG, steps, {"dp_shard": 4, "dp_replicate": 3})
    assert re.search(r"; right at (\d+) of \d+ other layouts that were tried, wrong at dp_replicate 4\n", run("repair", "own.json").stdout)


def test_what_was_tried_at_a_smaller_layout_says_so(run, files):
    write_with_option(files, {"type": "integer", "default": 1}, [BACKWARD, {"name": "scale", "op": "scale", "by": "1 / (o + rank.dp)"}, MEAN], {"dp": 2000}, 4)
    shown = run("repair", "own.json").stdout
    assert " tried, one at a time, all at dp 2 alone, where the same goes wrong; none was found to be right\n" in shown


@pytest.mark.parametrize("missing", [["total_norm", "total_norm_replicated"], ["total_norm"], ["total_norm_replicated"]], ids=" and ".join)
def test_a_norm_that_a_clip_lacks_is_put_in_front_of_it(run, tmp_path, missing):
    """A right scenario of the corpus without its norm, or without a part of it."""
    text = (ROOT / "scenarios/transformers/46113-clips-a-list-of-copies-fixed.json").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not any(f'"name": "{name}"' in line for name in missing)]
    (tmp_path / "case.json").write_text("\n".join(lines).replace('"match"', '"mismatch"'))
    found = json.loads(run("repair", "-f", "json", "case.json").stdout)
    first = found["repairs"][0]
    inserted = [(edit["insert"]["op"], edit["insert"]["over"], edit["before"]) for edit in first["edits"]]
    assert inserted == [("norm", ["tp", "dp"], "clip_grads_with_norm")] * len(missing)
    assert first["keeps_norms"] and first["verified"] == ["symbolic", "host"]
    counted = [edit["insert"].get("count") for edit in first["edits"]]
    assert counted == [None if name == "total_norm" else "rank.tp == 0" for name in missing]
    done = run("repair", "case.json", "--to", "repaired.json")
    assert done.returncode == 0 and run("check", "-q", "repaired.json").stdout.startswith("match")


def wrong_by_files(folder):
    """A wrong scenario in folder/cases whose framework and model are files of its own, beside it and below it."""
    (folder / "cases" / ".git").mkdir(parents=True)
    (folder / "cases" / "parts").mkdir()
    (folder / "cases" / "ours.jsonc").write_text(json.dumps({
        "lockstep_framework": 1, "name": "ours",
        "steps": [{"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward"}]},
                  {"name": "mean", "op": "all_reduce", "over": "dp"}]}))
    (folder / "cases" / "parts" / "small.jsonc").write_text(json.dumps({
        "lockstep_model": 1, "name": "small", "parameters": [{"name": "w", "shape": [8]}]}))
    (folder / "cases" / "case.json").write_text('''{
  // ours
  "$schema": "../schema/scenario.schema.json",
  "lockstep": 1, "layout": { "dp": 2 }, "model": { "preset": "./parts/small.jsonc" },
  "batch": { "micro_batches": 1, "tokens": "even", "loss": "local_mean" },
  "schedule": { "framework": "ours.jsonc" }
}
''')


def test_a_repaired_file_in_another_folder_finds_the_files_that_the_scenario_names(run, tmp_path):
    wrong_by_files(tmp_path)
    (tmp_path / "cases" / "deep" / "er").mkdir(parents=True)
    done = run("repair", "cases/case.json", "--to", "cases/deep/er/repaired.json")
    assert (done.returncode, done.stderr) == (0, "wrote cases/deep/er/repaired.json with repair 1\n")
    text = (tmp_path / "cases" / "deep" / "er" / "repaired.json").read_text()
    for changed in ('"framework": "../../ours.jsonc"', '"preset": "../../parts/small.jsonc"', '"$schema": "../../../schema/scenario.schema.json"'):
        assert changed in text
    assert text.startswith("{\n  // ours\n")
    assert run("check", "-q", "cases/deep/er/repaired.json").stdout.startswith("match ")
    # Beside it everything stays as it is written.
    assert run("repair", "cases/case.json", "--to", "cases/repaired.json").returncode == 0
    assert '"framework": "ours.jsonc"' in (tmp_path / "cases" / "repaired.json").read_text()
    assert run("check", "-q", "cases/repaired.json").stdout.startswith("match ")


def test_a_repaired_file_is_not_written_where_it_may_not_name_what_the_scenario_names(run, tmp_path):
    wrong_by_files(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    done = run("repair", "cases/case.json", "--to", "elsewhere/repaired.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert 'a scenario in "elsewhere" could not name the file "cases/ours.jsonc", which lies outside' in done.stderr
    assert not list((tmp_path / "elsewhere").iterdir())
    done = run("repair", "cases/case.json", "--to", "elsewhere/repaired.json", "--include", "cases")
    assert done.returncode == 0, done.stderr
    assert '"framework": "../cases/ours.jsonc"' in (tmp_path / "elsewhere" / "repaired.json").read_text()
    assert run("check", "-q", "elsewhere/repaired.json", "--include", "cases").returncode == 0


def with_steps(layout, parameters, *steps, **batch):
    each = {"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward", "by": "1 / (tokens * micro_batches)"}]}
    return {"lockstep": 1, "layout": layout, "model": {"parameters": parameters}, "batch": {"loss": "local_mean", **batch},
            "schedule": {"steps": [{"name": "zero", "op": "zero"}, each, *steps]}}


def of_all(layout):
    """What is known of a file that speaks of these axes: listed steps say nothing of a layout that has others."""
    return "every size of the axes in play", f"right for every size of {', '.join(sorted(layout))} and micro_batches"


@pytest.mark.parametrize("by, right", [("dp", "1 / dp"), ("dp * cp", "1 / (dp * cp)"), ("cp / dp", "1 / (dp * cp)")])
def test_a_factor_that_is_upside_down_is_turned(run, tmp_path, by, right):
    """Where other sizes come to the same number here, the one that is right elsewhere is shown."""
    total = {"name": "sum", "op": "all_reduce", "over": ["dp", "cp"] if "cp" in by else "dp"}
    document = with_steps({"dp": 2, "cp": 2} if "cp" in by else {"dp": 2}, [{"name": "w", "shape": [8]}], total,
                          {"name": "scale", "op": "scale", "by": by}, micro_batches=2)
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    report = json.loads(run("repair", "-f", "json", "wrong.json").stdout)
    best = report["repairs"][0]
    assert (best["reach"], best["proof"]) == of_all(document["layout"]), best
    assert best["edits"] == [{"set": "scale", "by": right}]
    blamed = json.loads(run("check", "-f", "json", "wrong.json").stdout)["diagnosis"]["blame"]
    assert [one["step"] for one in blamed] == ["scale"]


@pytest.mark.parametrize("layout, by, right", [({"dp": 4}, "1/2", "1 / dp"), ({"dp": 3}, "1/2", "1 / dp"), ({"dp": 6}, "2", "1 / dp"),
                                               ({"dp": 2, "cp": 2}, "1/8", "1 / (cp * dp)")])
def test_a_number_that_is_written_down_is_the_size_that_it_stands_for(run, tmp_path, layout, by, right):
    """And not one that happens to be right here, such as micro_batches / (2 * dp)."""
    document = with_steps(layout, [{"name": "w", "shape": [8]}], {"name": "sum", "op": "all_reduce", "over": list(layout)},
                          {"name": "scale", "op": "scale", "by": by}, micro_batches=2)
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    best = json.loads(run("repair", "-f", "json", "wrong.json").stdout)["repairs"][0]
    assert (best["edits"], best["reach"], best["proof"]) == ([{"set": "scale", "by": right}], *of_all(layout))
    said = json.loads(run("check", "-f", "json", "wrong.json").stdout)["diagnosis"]
    assert said["repairs"][0]["edits"] == best["edits"] and [one["step"] for one in said["blame"]] == ["scale"]
    document["schedule"]["steps"][1]["steps"][0]["by"] = "1 / (tokens * 3)"
    document["schedule"]["steps"][3]["by"] = right
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    best = json.loads(run("repair", "-f", "json", "wrong.json").stdout)["repairs"][0]
    assert (best["edits"], best["reach"], best["proof"]) == ([{"set": "backward", "by": "1 / (tokens * micro_batches)"}], *of_all(layout))


def test_a_norm_that_counts_one_copy_of_what_is_tied_leaves_nothing_out(run, tmp_path):
    parameters = [{"name": "e", "shape": [8], "stage": 0, "tied": "t"}, {"name": "h", "shape": [8], "stage": 1, "tied": "t"}, {"name": "w", "shape": [8]}]
    document = with_steps({"pp": 2}, parameters, {"name": "tie", "op": "all_reduce", "over": "pp", "params": ["tied:t"]},
                          {"name": "norm", "op": "norm", "over": "pp"}, micro_batches=2)
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    found = json.loads(run("repair", "-f", "json", "wrong.json").stdout)
    once, in_two = found["repairs"]
    assert once["edits"] == [{"set": "norm", "count": "rank.pp == 0"}] and once["keeps_norms"]
    assert in_two["edits"][0] == {"set": "norm", "params": ["!tied:t"]} and in_two["keeps_norms"]
    assert found["without_norm"] > 0  # the norm dropped


def test_what_is_right_at_the_layout_that_is_shown_is_not_said_of_any_size(run, tmp_path):
    """Sizes are "any", and the step that is too much is right to leave out where there are two ranks alone."""
    document = with_steps({"dp": "any"}, [{"name": "w", "shape": [8]}], {"name": "sum", "op": "all_reduce", "over": "dp"},
                          {"name": "scale", "op": "scale", "by": "dp - 1"}, micro_batches=1)
    document["batch"]["loss"] = {"weight": "1 / (tokens * (1 + floor(dp / 3)))"}
    (tmp_path / "any.json").write_text(json.dumps(document))
    shown = run("check", "any.json").stdout
    assert "\n    right at this layout with { " in shown and "\n    right with { " not in shown
    assert "`lockstep repair any.json` looks for what is right for every size\n" in shown and "has this" not in shown
    assert '"right at this layout with {' in run("check", "-f", "sarif", "any.json").stdout or "right at this layout with" in run("check", "-f", "github", "any.json").stdout
    document["layout"]["dp"] = 1
    (tmp_path / "one.json").write_text(json.dumps(document))
    shown = run("check", "one.json").stdout
    assert "\n    right with { " in shown and "`lockstep repair one.json` shows this repair and others\n" in shown


def norm_of_all(layout, parameters, steps, over):
    """What counts each parameter as often as ranks hold it."""
    return {
        "lockstep": 1, "layout": layout, "model": {"parameters": parameters}, "batch": {"micro_batches": 2},
        "schedule": {"steps": [
            {"name": "mb", "op": "each", "steps": [{"name": "bw", "op": "backward"}]}, *steps,
            {"name": "sc", "op": "scale", "by": "1 / sum(tokens, dp, micro_batch)"}, {"name": "norm", "op": "norm", "over": over}]},
    }


def matrix(name, **more):
    return {"name": name, "shape": [8, 4], "shard": {"tp": 0}, **more}


@pytest.mark.parametrize("document", [
    norm_of_all({"dp": 2, "tp": 2}, [{"name": "ln", "shape": [4]}, matrix("l0"), matrix("x")],
                [{"name": "ar", "op": "all_reduce", "over": "dp", "params": ["ln", "x"]},
                 {"name": "rs", "op": "reduce_scatter", "over": "dp", "params": ["l0"]}], ["tp", "dp"]),
    norm_of_all({"dp": 2, "tp": 2, "pp": 2},
                [matrix("emb", tied="w", stage=0), {"name": "ln", "shape": [4], "stage": 0}, matrix("l1", stage=1),
                 {"name": "all", "shape": [8], "stage": "all"}, matrix("head", tied="w", stage=-1)],
                [{"name": "emb_ar", "op": "all_reduce", "over": {"pp": ["first", "last"]}, "params": ["emb", "head"]},
                 {"name": "all_ar", "op": "all_reduce", "over": "pp", "params": ["all"]},
                 {"name": "ar", "op": "all_reduce", "over": "dp"}], ["tp", "pp"]),
], ids=["slices", "copies"])
def test_a_norm_that_is_cut_in_three_is_at_fault_alone_and_each_new_one_is_inserted_once(run, files, document):
    (files / "norm.json").write_text(json.dumps(document))
    found = json.loads(run("check", "-f", "json", "norm.json").stdout)
    assert [blame["step"] for blame in found["diagnosis"]["blame"]] == ["norm"]
    said = run("check", "norm.json").stdout
    assert "nothing counts" not in said and said.count("at fault: ") == 1
    (best, *_) = json.loads(run("repair", "-f", "json", "norm.json").stdout)["repairs"]
    changed = [edit.get("set") or edit["insert"]["name"] for edit in best["edits"]]
    assert changed == ["norm", "norm_replicated", "norm_replicated_once"] == best["steps"]
    (files / "mended.json").write_text(json.dumps({**document, "schedule": {**document["schedule"], "edits": best["edits"]}}))
    assert run("check", "-q", "mended.json").returncode == 0


def test_of_a_norm_that_is_missing_for_half_of_what_it_counts_that_half_is_told(run, files):
    parameters = [{"name": "ln", "shape": [24], "stage": 0}, {"name": "l0", "shape": [24, 4], "stage": 0},
                  {"name": "l1", "shape": [24, 4], "stage": -1}, {"name": "all", "shape": [24], "stage": "all"}]
    document = norm_of_all({"dp": 2, "pp": 2}, parameters,
                           [{"name": "all_ar", "op": "all_reduce", "over": "pp", "params": ["all"]},
                            {"name": "rs", "op": "reduce_scatter", "over": "dp", "params": ["l*"]},
                            {"name": "ar", "op": "all_reduce", "over": "dp", "params": ["*", "!l*"]}], ["dp", "pp"])
    document["schedule"]["steps"][-1]["count"] = "rank.dp == 0 and rank.pp == 0"
    (files / "half.json").write_text(json.dumps(document))
    said = " ".join(run("check", "half.json").stdout.split())
    assert "nothing counts 12 of 24 elements of ln, 48 of 96 elements of l0 and l1 in the norm" in said


def test_a_step_that_leaves_out_a_part_is_blamed_where_what_it_takes_is_wrong_too(run, files):
    document = norm_of_all({"dp": 2}, [{"name": "ln", "shape": [4]}, {"name": "l0", "shape": [8, 4]}],
                           [{"name": "rs", "op": "reduce_scatter", "over": "dp", "reduce": "avg", "params": ["ln"]}], "dp")
    document["schedule"]["steps"].pop()
    (files / "part.json").write_text(json.dumps(document))
    said = " ".join(run("check", "part.json").stdout.split())
    assert "at fault: rs it leaves out l0: nothing sums the gradients of l0 over dp (2 ranks) rank 0 gets g0/9 of l0" in said


def test_every_size_is_said_where_every_axis_is_open(run, files):
    wide = {"lockstep": 1, "layout": {"tp": 1, "cp": 1, "sp": 1, "dp": 2, "pp": 1},
            "model": {"parameters": [{"name": "a", "shape": [8], "stage": 0}]},
            "schedule": {"steps": [{"name": "mb", "op": "each", "steps": [{"name": "bw", "op": "backward"}]},
                                   {"name": "ar", "op": "all_reduce", "over": ["dp", "cp", "sp"], "reduce": "avg"},
                                   {"name": "sc", "op": "scale", "by": "1 / sum(tokens, dp, cp, sp, micro_batch)"}]}}
    for layout, reach in [(wide["layout"], "every size"), ({"dp": 2}, "every size of the axes in play")]:
        document = {**wide, "layout": layout}
        if reach != "every size":
            document["schedule"] = {"steps": [step | {"over": "dp"} if "over" in step else step for step in wide["schedule"]["steps"]]}
            document["schedule"]["steps"][-1] = {"name": "sc", "op": "scale", "by": "1 / sum(tokens, dp, micro_batch)"}
        (files / "reach.json").write_text(json.dumps(document))
        (best, *_) = json.loads(run("repair", "-f", "json", "reach.json").stdout)["repairs"]
        assert best["reach"] == reach, best
