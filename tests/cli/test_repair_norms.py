# SPDX-License-Identifier: Apache-2.0
"""What doubting readers found: repairs that lose a norm, faults that were not named, bytes and owners of what ran, examples of other steps."""

import json

PARAMETERS = [{"name": "a", "shape": [8]}, {"name": "b", "shape": [8]}]
BACKWARD = {"name": "backward", "op": "backward"}
SUM = {"name": "ar", "op": "all_reduce", "over": "dp"}
TOKENS = {"name": "tok", "op": "scale", "by": "1 / sum(tokens, dp, micro_batch)"}
NORM = {"name": "norm", "op": "norm"}
CLIP = {"name": "clip", "op": "clip"}


def write(folder, *steps, inside=(), layout=None, parameters=None, **batch):
    document = {"lockstep": 1, "layout": layout or {"dp": 2}, "model": {"parameters": parameters or PARAMETERS}, "batch": batch,
                "schedule": {"steps": [{"name": "zero", "op": "zero"},
                                       {"name": "micro_batches", "op": "each", "steps": [BACKWARD, *inside]}, *steps]}}
    (folder / "case.json").write_text(json.dumps(document), encoding="utf-8")
    return "case.json"


def repairs(run, case, *more):
    return json.loads(run("repair", "-f", "json", *more, case).stdout)


def test_a_norm_that_never_runs_keeps_nothing(run, tmp_path):
    """The other norm says that it counts the same, and no rank comes to it: to drop the first one is no repair."""
    never = {"name": "norm_tp", "op": "norm", "over": "tp", "when": "tp > 1"}
    for dp, parameters in [(2, PARAMETERS), (300, [{"name": f"p{i}", "shape": [8]} for i in range(40)])]:
        case = write(tmp_path, SUM, TOKENS, {**NORM, "over": "dp"}, never, layout={"dp": dp}, parameters=parameters)
        found = repairs(run, case, "--most", "10")
        assert [{"drop": "norm"}] not in [one["edits"] for one in found["repairs"]]
        assert found["without_norm"] >= 1
        assert '{ "drop": "norm" }' not in run("check", case).stdout


def test_what_is_waited_for_is_sent_before_and_after(run, tmp_path):
    wait = {"name": "w", "op": "wait", "for": "ar"}
    case = write(tmp_path, {**SUM, "async": True}, TOKENS, wait, NORM, CLIP)
    said = run("repair", case).stdout
    assert '1. tok; no additional communication\n     { "move": "tok", "after": "w" }' in said


def test_nothing_is_said_of_bytes_where_ranks_wait_for_each_other(run, tmp_path):
    first = {"name": "first", "op": "all_reduce", "over": "dp", "only": {"dp": 0}, "params": "a"}
    case = write(tmp_path, SUM, first, TOKENS)
    report = repairs(run, case)
    assert report["verdict"] == "deadlock"
    assert report["repairs"]
    assert all("added_bytes_per_rank" not in one for one in report["repairs"])
    assert " sent per rank" not in run("repair", case).stdout


def test_other_owners_are_seen_after_a_race_as_well(run, tmp_path):
    case = write(tmp_path, SUM, TOKENS, {**NORM, "over": "dp", "async": True}, CLIP, {"name": "w", "op": "wait", "for": "norm"})
    first = repairs(run, case)["repairs"][0]
    assert not first["other_owners"]
    assert first["steps"] == ["clip", "norm"]


def test_a_wrong_scale_and_a_wrong_norm_are_both_at_fault(run, tmp_path):
    scale = {"name": "s", "op": "scale", "by": "dp / 512", "when": "rank.dp == 1"}
    case = write(tmp_path, SUM, TOKENS, scale, {**NORM, "over": "dp"}, layout={"dp": 4})
    said = run("check", case).stdout
    assert "at fault: s\n" in said
    assert "at fault: norm\n" in said


def test_a_norm_of_names_is_cut_in_two_beside_what_it_counts_already(run, tmp_path):
    parameters = [{"name": "a", "shape": [8], "shard": {"tp": 0}}, {"name": "b", "shape": [8]}]
    norm = {**NORM, "over": ["tp", "dp"], "params": ["a", "b"], "count": "rank.dp == 0"}
    case = write(tmp_path, SUM, TOKENS, norm, layout={"dp": 2, "tp": 2}, parameters=parameters)
    edits = repairs(run, case)["repairs"][0]["edits"]
    assert edits[0] == {"set": "norm", "params": ["a"]}
    assert edits[1]["insert"]["params"] == ["b"]
    assert edits[1]["insert"]["count"] == "rank.dp == 0 and rank.tp == 0"


def test_examples_are_of_what_the_step_acts_on(run, tmp_path):
    each = [{**SUM, "name": f"of_{name}", "params": name} for name in "ab"]
    case = write(tmp_path, TOKENS, inside=each, micro_batches=2)
    said = run("check", case).stdout
    for name in "ab":
        assert f" of {name} where" in said[said.index(f"at fault: of_{name}"):].split("at fault: ")[1]


def test_part_of_a_parameter_is_not_told_as_all_of_it(run, tmp_path):
    case = write(tmp_path, {**SUM, "op": "reduce_scatter"}, TOKENS, NORM)
    assert "rank 0 counts 4 of 8 elements of a in the norm 0 times instead of 1" in run("check", case).stdout


def test_a_repair_that_changes_owners_is_explained_where_nothing_else_is(run, tmp_path):
    scatter = {"name": "rs", "op": "reduce_scatter", "over": "dp", "params": ["!b"]}
    case = write(tmp_path, scatter, {**SUM, "params": ["b"]}, TOKENS, {**NORM, "over": "dp"}, CLIP)
    said = run("check", case).stdout
    assert "right with" not in said or "at fault: " in said


def test_a_common_multiple_of_what_may_be_no_whole_number_is_not_decided(run, tmp_path):
    scale = {"name": "s", "op": "scale", "by": "2", "when": "lcm(max(1, dp / 64), 5) < 5"}
    case = write(tmp_path, SUM, TOKENS, scale, layout={"dp": 4})
    assert run("check", "--set", "layout.dp=65", case).returncode == 2  # 65/64 is none
    assert run("prove", case).stdout.startswith("open ")
    whole = write(tmp_path, SUM, TOKENS, {**scale, "when": "lcm(max(1, 2 * dp), 5) < 5"}, layout={"dp": 4})
    assert run("prove", whole).stdout.startswith("proved ")
