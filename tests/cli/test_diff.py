# SPDX-License-Identifier: Apache-2.0
"""`lockstep diff`, as a user runs it."""

import json
import pathlib

BACKWARD = {"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward"}]}


def write(folder, name, *steps, layout=None):
    path = folder / name
    path.write_text(json.dumps({"lockstep": 1, "layout": layout or {"dp": 2},
                                "model": {"parameters": [{"name": "w", "shape": [8]}]},
                                "batch": {"micro_batches": 1}, "schedule": {"steps": [BACKWARD, *steps]}}))
    return str(path)


def mean(**more):
    return {"name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg", **more}


def test_equal_schedules(run, tmp_path):
    old, new = write(tmp_path, "old.json", mean()), write(tmp_path, "new.json", mean())
    result = run("diff", old, new)
    assert result.returncode == 0
    assert result.stdout == (f"same gradients  {old} → {new}\n"
                             "  dp 2 = 2 ranks, 1 micro-batch, loss token_mean over uneven tokens\n"
                             "  Every optimizer gets the same, in 16 elements of all ranks together.\n"
                             "  For every size: the same gradients (open: dp, micro_batches).\n\n"
                             "communication in an optimizer step\n"
                             "  step                calls  ranks  sent by all ranks\n"
                             "  all steps           1             64 B\n"
                             "  the busiest rank                  32 B\n"
                             "  The same steps in the same order.\n")


def test_other_gradients(run, tmp_path):
    old, new = write(tmp_path, "old.json", mean()), write(tmp_path, "new.json", mean(reduce="sum"))
    result = run("diff", old, new)
    assert result.returncode == 1
    assert ("\ngradients that optimizers get\n  w [0, 8)  ranks 0, 1\n    old  (g0+g1)/2\n    new  g0 + g1\n"
            in result.stdout)
    assert "   mean              all_reduce (avg) → all_reduce  1      2      64 B\n" in result.stdout
    report = json.loads(run("diff", old, new, "-f", "json").stdout)
    assert report["same_gradients"] is False
    assert report["gradients"] == [{"parameter": "w", "ranks": [0, 1], "elements": [0, 8], "old": "(g0+g1)/2",
                                    "new": "g0 + g1"}]
    assert report["steps"][0]["old"] == {"op": "all_reduce", "reduce": "avg", "calls": 1, "smallest_group": 2, "largest_group": 2,
                                         "bytes": 64}


def test_the_ranks_of_the_new_one_where_others_own_the_elements(run, tmp_path):
    reduced = {"name": "sum", "op": "reduce", "over": "dp", "root": 1}
    old, new = write(tmp_path, "old.json", reduced), write(tmp_path, "new.json", {**reduced, "root": 0, "reduce": "avg"})
    result = run("diff", old, new)
    assert result.returncode == 1
    assert "  w [0, 8)  rank 1, in the new one rank 0\n    old  g0 + g1\n    new  (g0+g1)/2\n" in result.stdout
    report = json.loads(run("diff", old, new, "-f", "json").stdout)
    assert [(each["ranks"], each["new_ranks"]) for each in report["gradients"]] == [([1], [0])]


def test_one_file_with_two_sets_of_options(run, tmp_path):
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps({"lockstep": 1, "layout": {"dp": 2}, "model": {"preset": "gpt2", "layers": 1},
                                "schedule": {"framework": "megatron"}, "expect": {"verdict": "match", "ranks": []}}))
    result = run("diff", str(path), "--new", "use_distributed_optimizer=true")
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{path} → {path} with use_distributed_optimizer=true\n" in result.stdout
    assert "+ dp_reduce_scatter  reduce_scatter" in result.stdout
    assert "- dp_all_reduce      all_reduce" in result.stdout
    assert "ownership of elements by ranks' optimizers\n" in result.stdout
    assert run("diff", str(path), "--old", "layout.dp=4", "--new", "layout.dp=4").returncode == 0


def test_a_deadlock_is_no_equal(run, tmp_path):
    old = write(tmp_path, "old.json", mean())
    new = write(tmp_path, "new.json", mean(only={"dp": [0]}))
    result = run("diff", old, new)
    assert result.returncode == 1
    assert f"  The new one ends in a deadlock (lockstep check {new}).\n" in result.stdout
    assert "  There is no optimizer step that both complete, so no gradients are compared.\n" in result.stdout


def test_mistakes(run, tmp_path):
    old = write(tmp_path, "old.json", mean())
    larger = write(tmp_path, "larger.json", mean(), layout={"dp": 4})
    assert run("diff", old, larger).returncode == 2
    assert ("No rank of the one stands for a rank of the other: the old layout is dp 2 in order tp-cp-sp-ep-dp-pp, the new "
            "one dp 4 in order tp-cp-sp-ep-dp-pp.\n") in run("diff", old, larger).stdout
    for arguments, message in [
        ([old], f"error: {old} alone is compared with nothing: name a second file, or say what is to be otherwise, such "
                "as --new use_distributed_optimizer=true\n"),
        ([old, old, old], "error: diff takes two files, or one with --old or --new, found 3\n"),
        ([old, "--new", "x"], "error: a change is KEY=VALUE, such as use_distributed_optimizer=true, found \"x\"\n"),
        ([old, "--new", "lockstep.x=1"], "error: \"lockstep.x=1\" cannot be set: \"lockstep\" is the number 1, which has "
                                         "no members\n"),
        ([old, "--new", "layout..dp=1"], "error: \"layout..dp=1\" has an empty name between its dots\n"),
        ([old, "--new", "schedule.steps.7.by=2"], "error: \"schedule.steps.7.by=2\" cannot be set: \"schedule.steps\" has 2 "
         "elements, named by numbers from 0; the nearest is \"schedule.steps.1\"\n"),
        ([old, "--new", "schedule.steps.micro_batch.by=2"], "error: \"schedule.steps.micro_batch.by=2\" cannot be set: "
         "\"schedule.steps\" has 2 elements, named by numbers from 0; the nearest is \"schedule.steps.0\"\n"),
        ([old, "--new", "schedule.stps.1.by=2"], "error: \"schedule.stps.1.by=2\" cannot be set: the file has no "
         "\"schedule.stps\"; did you mean \"schedule.steps\"?\n"),
        ([old, "--new", "layot.dp=4"], "layot.dp=4:1:1: error: unknown key \"layot\" at the top level of the scenario; did "
         "you mean \"layout\"?\n    1 | 4\n      | ^\n"),
        ([old, "--new", "layout.dp=any"], f"error: {old} has an axis of size \"any\", and diff compares the ranks of one "
                                          "layout: give it a size, such as --old layout.dp=4 --new layout.dp=4\n"),
        ([old, "--new", "batch.micro_batches=any"], f"error: {old} has any number of micro-batches, and diff compares the calls "
         "of one: give it, such as --old batch.micro_batches=4 --new batch.micro_batches=4\n"),
        ([old, "--new", "layout.dp=x"], "layout.dp=x:1:1: error: expected an integer of at least 1 or \"any\", found the string \"x\"\n"
         "    1 | x\n      | ^\n"),
    ]:
        result = run("diff", *arguments)
        assert (result.returncode, result.stderr) == (2, message)


def test_elements_of_lists_are_numbers(run, tmp_path):
    old = write(tmp_path, "old.json", mean())
    changed = run("diff", old, "--new", "schedule.steps.1.reduce=sum", "--this-layout")
    assert changed.returncode == 1, changed.stderr
    assert run("diff", old, "--new", "schedule.steps.1.reduce=avg", "--this-layout").returncode == 0


def test_mistakes_that_a_change_uncovers_have_their_places_in_the_file(run, tmp_path):
    path = tmp_path / "old.json"
    path.write_text("""{
  "lockstep": 1, "layout": { "dp": 2 },

  "model": { "parameters": [{ "name": "w", "shape": [8] }] },
  "schedule": { "steps": [
    { "name": "all", "op": "all_reduce", "over": { "dp": [1] } }] }
}
""", encoding="utf-8")
    result = run("diff", str(path), "--new", "layout.dp=1")
    assert result.returncode == 2
    assert result.stderr.startswith(f"{path}:6:59: error: coordinate 1 is not on axis \"dp\", which has size 1")


def test_the_same_here_and_others_elsewhere(run, tmp_path):
    """A fixed factor in the place of the group's size."""
    old = write(tmp_path, "old.json", mean())
    new = write(tmp_path, "new.json", mean(reduce="sum"), {"name": "half", "op": "scale", "by": "1/2"})
    result = run("diff", old, new)
    assert result.returncode == 1
    assert ("  Every optimizer gets the same, in 16 elements of all ranks together.\n"
            "  For every size: other gradients for every size but dp = 2 (open: dp, micro_batches).\n"
            "  The smallest: tp 1, cp 1, sp 1, dp 1, pp 1, 1 micro-batch: rank 0 gets g0 for w, from the new one g0/2.\n"
            in result.stdout)
    every = json.loads(run("diff", old, new, "-f", "json").stdout)["every_size"]
    assert every["verdict"] == "other" and every["parameters"] == ["w"] and every["smallest"]["sizes"]["dp"] == 1
    here = run("diff", old, new, "--this-layout")
    assert here.returncode == 0 and "For every size" not in here.stdout
    assert json.loads(run("diff", old, new, "--this-layout", "-f", "json").stdout)["every_size"] is None


def test_owners_change_and_gradients_do_not(run, tmp_path):
    """Sharded against replicated, and what a stale slice makes of it."""
    scatter = {"name": "scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg"}
    old, new = write(tmp_path, "old.json", mean()), write(tmp_path, "new.json", scatter)
    assert "  For every size: the same gradients (open: dp, micro_batches).\n" in run("diff", old, new).stdout
    stale = write(tmp_path, "stale.json", scatter, {"name": "all", "op": "own", "over": []})
    assert "  For every size: the same gradients only at dp = 1 (open: dp, micro_batches).\n" in run("diff", old, stale).stdout
    # Rank 1 owns a stale slice that it did not own before, and another owner has the right one.
    assert "  For every size: the same gradients only at dp = 1 (open: dp, micro_batches).\n" in run("diff", new, stale).stdout
    assert run("diff", "--this-layout", new, stale).stdout.startswith("other gradients")


def test_elements_whose_owner_changes_are_counted(run, tmp_path):
    def to(root):
        return {"name": "sum", "op": "reduce", "over": "dp", "root": root}
    old, new = write(tmp_path, "old.json", to(0)), write(tmp_path, "new.json", to(1))
    assert "  Every optimizer gets the same, in 8 elements of all ranks together.\n" in run("diff", old, new).stdout
    both = write(tmp_path, "both.json", {"name": "sum", "op": "all_reduce", "over": "dp"})
    assert "in 16 elements of all ranks together" in run("diff", old, both).stdout
    assert "in 8 elements of all ranks together" in run("diff", both, old).stdout
    nobody = write(tmp_path, "nobody.json", to(0), {"name": "own", "op": "own", "over": "dp", "geometry": {"kind": "counts", "counts": [0, 8]}})
    assert "No element has an optimizer in both" not in run("diff", old, nobody).stdout


def test_equal_lists_of_tokens_are_equal_however_they_are_written(run, tmp_path):
    """Those of one optimizer step are used again in the next one."""
    once = [[[[3]], [[5]]], [[[4]], [[6]]]]

    def given(name, tokens):
        path = tmp_path / name
        path.write_text(json.dumps({"lockstep": 1, "layout": {"dp": 2}, "model": {"parameters": [{"name": "w", "shape": [8]}]},
                                    "batch": {"micro_batches": 2, "steps": 2, "loss": "sum", "tokens": tokens},
                                    "schedule": {"steps": [{"name": "zero", "op": "zero"}, BACKWARD,
                                                           {"name": "sum", "op": "all_reduce", "over": "dp"}]}}))
        return str(path)

    old, new = given("old.json", once), given("new.json", once + once)
    assert run("diff", old, new).returncode == 0
    assert "other numbers of tokens" not in run("diff", old, new).stdout + run("diff", new, old).stdout
    other = given("other.json", once + [once[0], [[[4]], [[7]]]])
    assert "the two have other numbers of tokens" in run("diff", old, other).stdout


def test_a_framework_file_that_is_set_is_found_from_the_scenario(run, tmp_path):
    (tmp_path / "cases" / "parts").mkdir(parents=True)
    framework = {"lockstep_framework": 1, "name": "ours", "steps": [BACKWARD, {"name": "sum", "op": "all_reduce", "over": "dp"}]}
    (tmp_path / "cases" / "ours.jsonc").write_text(json.dumps(framework))
    framework["steps"][1]["reduce"] = "avg"
    (tmp_path / "cases" / "parts" / "patched.jsonc").write_text(json.dumps(framework))
    (tmp_path / "cases" / "case.json").write_text(json.dumps({
        "lockstep": 1, "layout": {"dp": 2}, "model": {"parameters": [{"name": "w", "shape": [8]}]}, "schedule": {"framework": "./ours.jsonc"}}))
    for name in ("cases/case.json", str(tmp_path / "cases" / "case.json")):
        result = run("diff", name, "--new", "framework=./parts/patched.jsonc")
        assert result.returncode == 1, result.stdout + result.stderr
        assert result.stdout.startswith(f"other gradients  {name} → {name} with framework=./parts/patched.jsonc\n")
        assert "\n  For every size: the same gradients only at dp = 1" in result.stdout, result.stdout


def test_a_list_of_ones_is_even(run, tmp_path):
    """In formulas of a proof as well, and under a name that no parameter has as a use."""

    def given(name, tokens, by="1 / (tokens * micro_batches)"):
        path = tmp_path / name
        each = {"name": "m", "op": "each", "steps": [{"name": "b", "op": "backward", "by": by}]}
        path.write_text(json.dumps({"lockstep": 1, "layout": {"dp": 2}, "model": {"parameters": [{"name": "w", "shape": [8]}]},
                                    "batch": {"micro_batches": 2, "loss": {"weight": "1"}, "tokens": tokens},
                                    "schedule": {"steps": [each, {"name": "mean", "op": "all_reduce", "over": "dp"}]}}))
        return str(path)

    ones = [[[[1]], [[1]]], [[[1]], [[1]]]]
    even, listed = given("even.json", "even"), given("listed.json", ones)
    for old, new in ((even, listed), (listed, even), (listed, listed)):
        result = run("diff", old, new)
        assert result.returncode == 0 and "\n  For every size: the same gradients (nothing is open).\n" in result.stdout, result.stdout
    other = given("other.json", ones, "1 / micro_batches")
    assert "\n  For every size: the same gradients (nothing is open).\n" in run("diff", even, other).stdout
    wrong = given("wrong.json", ones, "1 / (tokens + 1)")
    assert run("diff", even, wrong).returncode == 0  # 1/2 either way
    assert "\n  For every size: the same gradients (nothing is open).\n" in run("diff", even, wrong).stdout
    wrong = given("wrong.json", ones, "1 / (tokens + 2)")
    assert "\n  For every size: other gradients" in run("diff", even, wrong).stdout
    by = "1 / sum(tokens.ranks, dp)"
    files = given("a.json", {"main": "even", "ranks": ones}, by), given("b.json", {"main": ones, "ranks": ones}, by)
    assert "\n  For every size: the same gradients (nothing is open).\n" in run("diff", *files).stdout
    said = run("diff", even, given("twos.json", [[[[2]], [[2]]], [[[2]], [[2]]]])).stdout
    assert "not decided for every size: the two have other numbers of tokens" in said
    said = run("diff", listed, given("uneven.json", "uneven")).stdout
    assert "not decided for every size: one of them leaves the numbers of tokens open, and the other gives them" in said


def test_buckets_that_hold_other_parameters_are_not_one(run, tmp_path):
    """The first parameter of a bucket is cut otherwise where it has the bucket for itself, and who owns it finds it stale."""
    def cut(name, separate):
        path = tmp_path / name
        bucket = {"kind": "bucket", "align_parameter": 1, "align_bucket": "n", "separate": separate}
        path.write_text(json.dumps({
            "lockstep": 1, "layout": {"dp": 2}, "batch": {"tokens": "even"},
            "model": {"parameters": [{"name": "a", "shape": [24]}, {"name": "b", "shape": [48]}]},
            "schedule": {"steps": [BACKWARD, {"name": "scatter", "op": "reduce_scatter", "over": "dp", "geometry": bucket},
                                   {"name": "own", "op": "own", "over": "dp"}]}}))
        return str(path)
    files = cut("together.json", []), cut("apart.json", ["b"])
    result = run("diff", *files)
    assert ("  For every size: the same gradients only at dp = 1, wherever a cut gives an element these owners (open: dp, "
            "micro_batches).\n" in result.stdout)
    assert "  The smallest: tp 1, cp 1, sp 1, dp 2, pp 1, 1 micro-batch: rank 0 gets g0 for a, from the new one g0 + g1.\n" in result.stdout
    assert json.loads(run("diff", *files, "-f", "json").stdout)["every_size"]["parameters"] == ["a", "b"]


def test_what_is_certain_is_told_from_what_cuts_decide(run, tmp_path):
    """Owners along dp read slices that were cut along dp and cp; with cp = 1 the two cuts may be one."""
    scatter = {"name": "scatter", "op": "reduce_scatter", "over": ["dp", "cp"]}
    own = {"name": "own", "op": "own", "over": "dp", "geometry": {"kind": "flat"}}
    gather = {"name": "gather", "op": "all_gather", "over": ["dp", "cp"]}
    layout = {"dp": 2, "cp": 1}
    old = write(tmp_path, "old.json", scatter, own, layout=layout)
    new = write(tmp_path, "new.json", scatter, gather, own, layout=layout)
    result = run("diff", old, new)
    assert result.stdout.startswith("same gradients")
    assert ("  For every size: other gradients for cp ≥ 2 and dp = 1; also other gradients as soon as dp ≥ 2, wherever a cut gives an "
            "element these owners (open: cp, dp, micro_batches).\n" in result.stdout)


def test_sizes_that_one_refuses_are_listed(run, tmp_path):
    old = write(tmp_path, "old.json", mean(), layout={"dp": 4})
    new = write(tmp_path, "new.json", mean(), {"name": "last", "op": "scale", "by": 2, "only": {"dp": [2]}}, layout={"dp": 4})
    result = run("diff", old, new)
    assert ("  For every size: other gradients for every size, of the sizes that both allow (open: dp, micro_batches).\n"
            in result.stdout)
    assert "  dp 1 and others are refused by the new one: coordinate 2 is not on axis \"dp\", which has size 1\n" in result.stdout
    every = json.loads(run("diff", old, new, "-f", "json").stdout)["every_size"]
    assert every["refused"][0]["by"] == "new" and every["refused"][0]["size"] == 1
    # What both refuse is not the old one's alone.
    result = run("diff", new, new)
    assert "  dp 1 and others are refused by both: coordinate 2 is not on axis \"dp\", which has size 1\n" in result.stdout
    assert "refused by the" not in result.stdout
    # Nor what the other refuses besides.
    fewer = write(tmp_path, "fewer.json", mean(), {"name": "last", "op": "scale", "by": 2, "only": {"dp": [1]}}, layout={"dp": 4})
    more = write(tmp_path, "more.json", mean(), {"name": "last", "op": "scale", "by": 2, "only": {"dp": [1]}},
                 {"name": "more", "op": "scale", "by": 1, "only": {"dp": [2]}}, layout={"dp": 4})
    told = run("diff", fewer, more).stdout
    assert "  dp 1 is refused by the old one: " in told and "  dp 1 and others are refused by the new one: " in told
    every = json.loads(run("diff", new, new, "-f", "json").stdout)["every_size"]
    assert [(one["by"], one["axis"], one["size"]) for one in every["refused"]] == [("old", "dp", 1), ("new", "dp", 1)]


def test_what_is_not_decided_for_every_size(run, tmp_path):
    some = mean(when="rank.dp >= 0 and 2 * floor(dp / 2) == dp")
    odd = {"name": "odd", "op": "scale", "by": "1/(dp+1)"}
    old, new = write(tmp_path, "old.json", some, odd), write(tmp_path, "new.json", odd, some)
    result = run("diff", old, new)
    assert result.returncode == 0
    assert "  For every size: the same gradients where both could be followed (open: dp, micro_batches).\n" in result.stdout
    assert "  not decided for dp ≥ 2" in result.stdout


def test_an_order_of_axes_of_size_1_is_no_difference(run, tmp_path):
    old = write(tmp_path, "old.json", mean(), layout={"dp": 4})
    new = write(tmp_path, "new.json", mean(), layout={"dp": 4, "order": "pp-dp-tp-cp-sp-ep"})
    assert run("diff", "--this-layout", old, new).returncode == 0
    for name, layout in [("old", {"dp": 2, "tp": 2}), ("new", {"dp": 2, "tp": 2, "order": "pp-dp-tp-cp-sp-ep"})]:
        write(tmp_path, f"{name}.json", mean(), layout=layout)
    result = run("diff", old, new)
    assert result.returncode == 2
    assert ("  A rank has other coordinates in the one than in the other: the old layout is dp 2 tp 2 in order tp-cp-sp-ep-dp-pp, "
            "the new one dp 2 tp 2 in order pp-dp-tp-cp-sp-ep.\n") in result.stdout


def extraction(folder, name, *, line=9, factor="1/2", world=2, loss="local_mean"):
    """Of a script that all-reduces a tensor of 8 elements after it was multiplied."""
    events = [{"event": "parameter", "id": 0, "name": "w", "shape": [8], "pieces": [{"range": [0, 8]}]},
              {"event": "contribution", "step": 0, "micro_batch": 0, "parameter": 0, "piece": 0, "source": 0},
              {"event": "collective", "step": 0, "op": "all_reduce", "group": {"axes": ["dp"]}, "elements": 8, "dtype": "float32",
               "reduce": "sum", "call": f"train.py:{line} in hook", "input": [[0, 8, [[factor, 0, 0]]]], "output": {"source": 1, "elements": 8}},
              {"event": "result", "step": 0, "parameter": 0, "piece": 0, "content": [[0, 8, [["1", 1, 0]]]]},
              {"event": "step", "step": 0, "micro_batches": 1, "tokens": [None]}, {"event": "end"}]
    path = folder / name
    path.write_text(json.dumps({"lockstep_extract": 1, "world": world, "mesh": {"axes": ["dp"], "sizes": [world]}, "data_axes": ["dp"],
                                "loss": loss, "programs": [{"ranks": [[0, world]], "played": [0], "events": events}]}))
    return str(path)


def test_two_extractions_of_the_same_gradients(run, tmp_path):
    old, new = extraction(tmp_path, "old.json"), extraction(tmp_path, "new.json", line=200)
    result = run("diff", old, new)
    assert result.returncode == 0, result.stderr
    assert result.stdout == (f"same gradients  {old} → {new}\n"
                             "  dp 2 = 2 ranks, 1 optimizer step\n"
                             "  Every optimizer gets the same, in 16 elements of all ranks together.\n\n"
                             "communication in all optimizer steps\n"
                             "  The same functions call as often, in groups of the same sizes, with as many elements.\n")


def test_two_extractions_of_other_gradients(run, tmp_path):
    old, new = extraction(tmp_path, "old.json"), extraction(tmp_path, "new.json", factor="1/3")
    result = run("diff", old, new)
    assert result.returncode == 1
    assert "\n  w [0, 8)  ranks 0, 1\n    old  (g0+g1)/2\n    new  (g0+g1)/3\n" in result.stdout
    report = json.loads(run("diff", old, new, "-f", "json").stdout)
    assert report["verdict"] == "other" and [(one["old"], one["new"]) for one in report["gradients"]] == [("(g0+g1)/2", "(g0+g1)/3")]


def test_a_scenario_against_an_extraction(run, tmp_path):
    scenario, right = write(tmp_path, "scenario.json", mean()), extraction(tmp_path, "right.json", loss="sum")
    result = run("diff", scenario, right)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith(f"same gradients  {scenario} → {right}\n  dp 2 = 2 ranks, 1 optimizer step\n"
                                    "  Every optimizer gets the same, in 1 parameter, 16 elements of all ranks together.\n")
    wrong = extraction(tmp_path, "wrong.json", factor="1/3", loss="sum")
    result = run("diff", scenario, wrong)
    assert result.returncode == 1
    assert ("\n  w [0, 8)  ranks 0, 1\n    scenario  (g0+g1)/2\n              by backward and mean\n"
            "    code      (g0+g1)/3\n              by all_reduce at train.py:9 in hook\n") in result.stdout
    report = json.loads(run("diff", scenario, wrong, "-f", "json").stdout)
    assert (report["verdict"], report["parameters"], report["placements"]) == ("other", 1, [])
    assert [(one["old_by"], one["new_by"]) for one in report["gradients"]] == [(["backward", "mean"], ["all_reduce at train.py:9 in hook"])]
    with open(right, encoding="utf-8") as file:
        assert run("diff", scenario, "-", stdin=file).returncode == 0
    assert run("diff", scenario, right, "--name", "w=v").returncode == 1


def test_an_extraction_whose_loss_nobody_knows_is_not_called_the_same(run, tmp_path):
    scenario = write(tmp_path, "scenario.json", mean())
    for loss, said in [(None, "the code does not say what each of its backwards is the gradient of (--loss)"),
                       ("sum", "what each backward of the code is the gradient of counts as it is (loss sum)")]:
        result = run("diff", scenario, extraction(tmp_path, "code.json", loss=loss), "--old", 'schedule.steps.0.steps.0.by="1/3"')
        assert result.returncode == 1 and result.stdout.startswith("undecided") and said in result.stdout, result.stdout


def test_a_scenario_that_cuts_elsewhere_has_other_owners_and_the_same_gradients(run, tmp_path):
    shards = {"name": "shards", "op": "reduce_scatter", "over": "dp", "reduce": "avg", "geometry": {"kind": "rows"}}
    result = run("diff", write(tmp_path, "scenario.json", shards), extraction(tmp_path, "code.json", loss="local_mean"), "--old",
                 'schedule.steps.0.steps.0.by="1/(tokens*micro_batches)"')
    assert result.returncode == 0, result.stdout + result.stderr
    assert "  Whoever gets an element gets the same, some of them on other ranks, in 1 parameter, 16 elements of all ranks together.\n" in result.stdout
    assert "  w: 2 ranks read other elements\n" in result.stdout


def test_an_axis_counts_as_that_of_the_scenario_whatever_its_name(run, tmp_path):
    """Ranks along cp yield shares of one gradient, and nobody asks whether they do."""
    scenario = write(tmp_path, "scenario.json", {"name": "sum", "op": "all_reduce", "over": "cp"}, layout={"cp": 2})
    for axis in ["cp", "context"]:
        code = tmp_path / f"{axis}.json"
        text = json.loads(pathlib.Path(extraction(tmp_path, code.name, factor="1", loss="sum")).read_text())
        text["mesh"]["axes"], text["data_axes"] = [axis], []
        text["programs"][0]["events"][0]["placed"] = [axis]
        text["programs"][0]["events"][2]["group"] = [0, 1]
        code.write_text(json.dumps(text))
        result = run("diff", scenario, str(code))
        assert result.returncode == 0 and result.stdout.startswith("same gradients"), result.stdout + result.stderr


def test_extractions_that_are_not_compared(run, tmp_path):
    old, wide = extraction(tmp_path, "old.json"), extraction(tmp_path, "wide.json", world=4)
    result = run("diff", old, wide)
    assert result.returncode == 2
    assert result.stdout == f"cannot be compared  {old} → {wide}\n  The old one is of dp 2 = 2 ranks, the new one of dp 4 = 4 ranks.\n"
    scenario = write(tmp_path, "scenario.json", mean())
    for arguments, said in [((old, scenario), f"{old} is what `lockstep extract` has written, and {scenario} is not: what is expected comes first, as in "
                                               f"lockstep diff {scenario} {old}"),
                            ((scenario, old, "--new", "dp=4"), f"{old} is what `lockstep extract` has written: --new and --this-layout are for scenarios"),
                            ((scenario, old, "--name", "w"), "--name w: expected SCENARIO=CODE"),
                            ((scenario, old, "--name", "*=w"), "--name *=w: a star stands for the same text in both, so both need as many"),
                            ((scenario, old, "--name", "v=w"), "--name v=w: no parameter of the scenario has such a name"),
                            ((old, wide, "--name", "w=v"), "--name is for a scenario against an extraction"),
                            ((scenario, scenario, "--name", "w=v"), "--name is for a scenario against what `lockstep extract` has written"),
                            (("-", "-"), "diff - -: standard input is one file"),
                            ((scenario, old, "--old", "layout.dp=any"), "give it a size, such as --old layout.dp=4\n"),
                            ((old,), f"{old} alone is compared with nothing: name a second extraction, or before it a scenario"),
                            ((old, wide, "--this-layout"), f"{old} is what `lockstep extract` has written: --old, --new and --this-layout are for scenarios")]:
        result = run("diff", *arguments)
        assert result.returncode == 2 and said in result.stderr, result.stderr
    missing = str(tmp_path / "nowhere.json")
    for arguments in ((old, missing), (missing, old)):
        result = run("diff", *arguments)
        assert result.returncode == 2 and f"there is no file or folder {missing}" in result.stderr, result.stderr


def test_an_extraction_from_standard_input(run, tmp_path):
    old, new = extraction(tmp_path, "old.json"), extraction(tmp_path, "new.json", factor="1/3")
    with open(old, encoding="utf-8") as file:
        result = run("diff", "-", new, stdin=file)
    assert result.returncode == 1 and result.stdout.startswith(f"other gradients  <stdin> → {new}\n"), result.stderr


def test_a_lost_tie_is_told_as_such_whichever_is_the_old_one(run, tmp_path):
    files = {}
    for kind, more in (("one tensor", {}), ("several tensors", {"copy": "head"})):
        files[kind] = str(tmp_path / f"{len(more)}.json")
        tied = [{"name": "w", "shape": [8], "tied": "words"}, {"name": "head", "shape": [8], "tied": "words", **more}]
        (tmp_path / f"{len(more)}.json").write_text(json.dumps(
            {"lockstep": 1, "layout": {"dp": 2}, "model": {"parameters": tied}, "batch": {"micro_batches": 1},
             "schedule": {"steps": [BACKWARD, mean()]}}))
    # Of other names or another shape that is told instead.
    text = (tmp_path / "1.json").read_text()
    (tmp_path / "other.json").write_text(text.replace("[8]", "[16]").replace('"head", "shape"', '"lm", "shape"'))
    said = run("diff", files["one tensor"], str(tmp_path / "other.json")).stdout
    assert 'Parameter "w" has another shape, place or use in the new one.' in said and 'Only the new one has parameter "lm".' in said
    for old, new in (("one tensor", "several tensors"), ("several tensors", "one tensor")):
        result = run("diff", files[old], files[new])
        assert result.returncode == 2
        assert result.stdout.splitlines()[1:] == [f'  Parameter "w" and what is tied to it are {old} in the old one, and {new} in the new one.']


def test_what_is_tied_to_others_is_there_in_both(run, tmp_path):
    files = []
    for tied in (("a", "b"), ("a", "c")):
        files.append(str(tmp_path / f"{tied[1]}.json"))
        parameters = [{"name": name, "shape": [8], **({"tied": "t"} if name in tied else {})} for name in ("a", "b", "c")]
        (tmp_path / f"{tied[1]}.json").write_text(json.dumps(
            {"lockstep": 1, "layout": {"dp": 2}, "model": {"parameters": parameters}, "batch": {"micro_batches": 1},
             "schedule": {"steps": [BACKWARD, mean()]}}))
    said = run("diff", *files).stdout
    assert "Only the" not in said
    assert 'Parameter "b" is tied to others in the new one than in the old one.' in said


def test_norms_that_differ_are_not_said_to_be_of_a_clip_where_there_is_none(run, tmp_path):
    def norm(**more):
        return {"name": "norm", "op": "norm", **more}

    def with_norm(name, **more):
        path = tmp_path / name
        document = json.loads((tmp_path / write(tmp_path, name, mean())).read_text())
        document["schedule"]["steps"].append(norm(**more))
        path.write_text(json.dumps(document))
        return name

    said = run("diff", with_norm("once.json"), with_norm("twice.json", over="dp")).stdout
    assert "\nwhat gradient norms count\n" in said and "clip" not in said, said
