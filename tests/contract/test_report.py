# SPDX-License-Identifier: Apache-2.0
"""The report format: `lockstep check --format json`."""

import json
from fractions import Fraction

from contract_program import (
    W,
    assert_held,
    backward,
    check,
    check_all,
    each,
    named,
    owned,
    parameter,
    rank_entries,
    run,
    scenario,
    show,
    step,
    write,
)

DP2 = {"dp": 2}
MEAN = step("mean", "all_reduce", over="dp", reduce="avg")
RIGHT = scenario([backward(), MEAN], layout=DP2)
WRONG = scenario([backward(), step("sum", "all_reduce", over="dp")], layout=DP2)
STUCK = scenario([backward(), {**MEAN, "only": {"dp": [0]}}], layout=DP2)
INVALID = scenario(
    [backward(), {**MEAN, "only": {"dp": [0]}}, step("sum", "all_reduce", over="dp", only={"dp": [1]})], layout=DP2
)
RACE = scenario(
    [backward(), {**MEAN, "async": True}, step("touch", "scale", by="2"), {"op": "wait", "for": "mean"}], layout=DP2
)

KEYS = {
    "lockstep",
    "scenario",
    "file",
    "source",
    "layout",
    "verdict",
    "step",
    "engines",
    "expected",
    "parameters",
    "norm",
    "stuck",
    "errors",
    "diagnosis",
    "time",
}


def test_one_object_per_scenario_and_an_array_where_several_files_are_given():
    paths = [write(RIGHT, "one.json"), write(WRONG, "two.json")]
    alone = json.loads(run("check", "--format", "json", paths[0]).stdout)
    assert alone["verdict"] == "match"
    both = json.loads(run("check", "--format", "json", *paths).stdout)
    assert [report["verdict"] for report in both] == ["match", "mismatch"]


def test_keys_stay():
    for content in (RIGHT, WRONG, STUCK, INVALID, RACE, {**RIGHT, "layout": {"dq": 2}}):
        report = check(content)
        assert KEYS <= set(report)
        assert report["lockstep"] == 1
    entry = named(check(WRONG), "w")
    assert {"name", "tied", "verdict", "replicas_agree", "unowned", "reference", "ranks"} <= set(entry)
    assert {"owned", "verdict", "pieces", "hash", "expected_hash"} <= set(entry["ranks"][0])
    assert {"elements", "verdict", "formula", "ratio", "coefficients"} <= set(entry["ranks"][0]["pieces"][0])
    assert {"rank", "micro_batch", "use", "value"} <= set(entry["ranks"][0]["pieces"][0]["coefficients"][0])
    assert {"formula", "hash"} <= set(entry["reference"])
    assert {"blame", "repairs"} <= set(check(WRONG)["diagnosis"])


def test_the_example_of_the_report_has_the_parts_of_844():
    # The embedding of a pipeline's ends, cut differently: rank 1 holds g3 + (g0+g1)/2.
    ends = [
        parameter("word", [4], tied="word_embeddings"),
        parameter("first", [4]),
        parameter("last", [4], stage=-1),
        parameter("output", [4], tied="word_embeddings", stage=-1),
    ]
    bucket = {"kind": "bucket", "align_parameter": 1, "align_bucket": "n"}
    content = scenario(
        [
            backward(),
            step("scatter", "reduce_scatter", over="dp", reduce="avg", geometry=bucket),
            step("embedding_all_reduce", "all_reduce", over={"pp": ["first", "last"]}, params=["tied:word_embeddings"]),
        ],
        ends,
        {"pp": 2, "dp": 2},
        name="small-844",
        source="NVIDIA/Megatron-LM#844",
        expect={"verdict": "mismatch"},
    )
    path = write(content, "844.json")
    report = json.loads(run("check", "--format", "json", path).stdout)
    assert (report["scenario"], report["file"], report["source"], report["expected"]) == (
        "small-844",
        str(path),
        "NVIDIA/Megatron-LM#844",
        True,
    )
    assert report["layout"] == {
        "tp": 1,
        "cp": 1,
        "sp": 1,
        "dp": 2,
        "dp_shard": 2,
        "dp_replicate": 1,
        "pp": 2,
        "ep": 1,
        "etp": 1,
        "edp": 2,
        "world": 4,
    }
    entry = named(report, "word")
    assert (entry["tied"], entry["verdict"], entry["replicas_agree"], entry["unowned"]) == (
        "word_embeddings",
        "mismatch",
        False,
        [],
    )
    assert entry["reference"]["formula"] == "(g0+g1+g2+g3)/2" and len(entry["reference"]["hash"]) == 32
    rank = entry["ranks"][0]
    assert (rank["rank"], rank["at"], rank["owned"]) == (1, {"pp": 0, "dp": 1}, [[0, 4]])
    piece = rank["pieces"][0]
    assert (piece["elements"], piece["verdict"], piece["formula"], piece["ratio"]) == (
        [0, 4],
        "mismatch",
        "g3 + (g0+g1)/2",
        None,
    )
    assert piece["coefficients"][0] == {"rank": 0, "micro_batch": 0, "use": "word", "value": "1/2"}
    assert len(rank["hash"]) == len(rank["expected_hash"]) == 32 and rank["hash"] != rank["expected_hash"]
    assert [entry["step"] for entry in report["diagnosis"]["blame"]] == ["embedding_all_reduce"]


def test_verdict_is_one_of_six():
    broken = {**RIGHT, "layout": {"dq": 2}}
    assert [report["verdict"] for report in check_all([RIGHT, WRONG, STUCK, INVALID, RACE, broken])] == [
        "match",
        "mismatch",
        "deadlock",
        "invalid_collective",
        "race",
        "error",
    ]


def test_step_is_the_first_wrong_optimizer_step_else_the_last():
    steps = [step("zero", "zero"), backward(), MEAN]
    right = scenario(steps, layout=DP2, batch={"steps": 3})
    wrong = scenario([*steps, step("x", "scale", by="2", when="step == 1")], layout=DP2, batch={"steps": 3})
    assert [report["step"] for report in check_all([right, wrong])] == [2, 1]


def test_engines_lists_every_engine_that_ran():
    assert check(WRONG)["engines"] == {"symbolic": "mismatch", "host": "mismatch"}
    assert check(WRONG, "--engine", "symbolic")["engines"] == {"symbolic": "mismatch"}
    assert check(WRONG, "--engine", "host")["engines"] == {"host": "mismatch"}


def test_sampled_replays_say_so():
    # Above 2 * 10^9 element-steps: 2^30 elements on 2 ranks, two steps.
    large = scenario([backward(), MEAN], [parameter("w", [1 << 30])], DP2)
    host = check(large)["engines"]["host"]
    assert set(host) == {"verdict", "elements", "of"}
    assert host["verdict"] == "match" and 0 < host["elements"] < host["of"]
    assert isinstance(check(RIGHT)["engines"]["host"], str)


def test_expected_says_whether_expect_holds_and_is_null_without_one():
    contents = [{**WRONG, "expect": {"verdict": "mismatch"}}, {**WRONG, "expect": {"verdict": "match"}}, WRONG]
    assert [report["expected"] for report in check_all(contents)] == [True, False, None]


def test_parameters_are_those_that_are_wrong_and_with_all_every_one():
    content = scenario(
        [backward(), MEAN, step("x", "scale", by="2", params=["b"])], [parameter("a", [4]), parameter("b", [4])], DP2
    )
    path = write(content)
    assert [entry["name"] for entry in json.loads(run("check", "--format", "json", path).stdout)["parameters"]] == ["b"]
    assert [(entry["name"], entry["verdict"]) for entry in check(content)["parameters"]] == [
        ("a", "match"),
        ("b", "mismatch"),
    ]


def test_owned_is_in_local_half_open_elements_and_at_gives_the_coordinates():
    report = check(
        scenario(
            [backward(), step("scatter", "reduce_scatter", over="dp")],
            [parameter("w", [8], shard={"tp": 0})],
            {"tp": 2, "dp": 2},
        )
    )
    # 4 local elements, cut at 2.
    assert owned(report, "w") == {0: [[0, 2]], 1: [[0, 2]], 2: [[2, 4]], 3: [[2, 4]]}
    for rank, entry in rank_entries(report, "w").items():
        if "at" in entry:
            assert entry["rank"] == rank and entry["at"] == {"tp": rank % 2, "dp": rank // 2}
    lone = rank_entries(check(scenario([backward()], layout=DP2)), "w")
    assert [lone[rank]["at"] for rank in (0, 1)] == [{"dp": 0}, {"dp": 1}]


def test_ranks_with_equal_content_may_share_an_entry():
    report = check(scenario([backward(), step("sum", "all_reduce", over="dp")], layout={"dp": 4}))
    ranks = [rank for entry in named(report, "w")["ranks"] for rank in entry.get("ranks", [entry.get("rank")])]
    assert sorted(ranks) == [0, 1, 2, 3]
    assert_held(report, "w", {rank: "g0 g1 g2 g3" for rank in range(4)})


def test_stuck_of_a_deadlock_says_who_waits_in_what_for_whom():
    assert check(STUCK)["stuck"] == [{"rank": 0, "waits_in": "mean", "for": [1]}]


def test_stuck_of_an_invalid_collective_says_who_calls_what_with_whom():
    found = [{key: entry[key] for key in ("rank", "calls", "with")} for entry in check(INVALID)["stuck"]]
    assert found == [{"rank": 0, "calls": "mean", "with": [1]}, {"rank": 1, "calls": "sum", "with": [0]}]


def test_stuck_of_a_race_says_which_step_touches_what_is_in_flight():
    found = [{key: entry[key] for key in ("rank", "step", "in_flight")} for entry in check(RACE)["stuck"]]
    assert found == [
        {"rank": 0, "step": "touch", "in_flight": "mean"},
        {"rank": 1, "step": "touch", "in_flight": "mean"},
    ]
    assert all("touches" in entry for entry in check(RACE)["stuck"])
    assert check(RIGHT)["stuck"] == check(WRONG)["stuck"] == []


def test_errors_are_for_the_verdict_error_only():
    report = check({**RIGHT, "layout": {"dq": 2}})
    assert report["verdict"] == "error"
    assert [(entry["line"], entry["pointer"]) for entry in report["errors"]] == [(1, "/layout/dq")]
    assert set(report["errors"][0]) == {"line", "column", "pointer", "message"}
    for content in (RIGHT, WRONG, STUCK, INVALID, RACE):
        assert check(content)["errors"] == []


TIED = [parameter("word", [4], tied="t"), parameter("head", [4], tied="t", stage=-1)]


def test_parameters_has_one_entry_per_name():
    for layout in ({"pp": 2}, {"dp": 2}, {"pp": 2, "dp": 2}):
        names = [entry["name"] for entry in check(scenario([backward()], [*TIED, W], layout))["parameters"]]
        assert sorted(names) == ["head", "w", "word"]


def test_a_parameter_that_is_wrong_just_like_another_is_listed_without_ranks():
    two = [W, parameter("v", [4])]
    content = scenario([backward(), step("sum", "all_reduce", over="dp")], two, DP2)
    report = check(content, "--engine", "parametric")
    assert "like" not in named(report, "w") and named(report, "w")["ranks"]
    assert (named(report, "v")["like"], named(report, "v")["ranks"]) == ("w", [])


def test_a_rank_is_listed_under_the_name_that_its_own_stage_gives():
    report = check(scenario([backward()], TIED, {"pp": 2}))
    assert list(rank_entries(report, "word")) == [0] and list(rank_entries(report, "head")) == [1]


def test_several_uses_in_one_buffer_are_listed_under_the_first():
    report = check(scenario([backward()], TIED, DP2))
    assert list(rank_entries(report, "word")) == [0, 1] and named(report, "head")["ranks"] == []
    assert_held(report, "word", {0: "g0 g0@head", 1: "g1 g1@head"})


def test_copy_is_there_where_the_file_says_which_copy_of_a_tied_group_it_is():
    lost = [TIED[0], {**TIED[1], "copy": "second"}]
    report = check(scenario([backward()], lost, {"pp": 2}), "--all")
    assert [named(report, name).get("copy") for name in ("word", "head")] == [None, "second"]
    assert [entry.get("copy") for entry in show(scenario([backward()], lost, {"pp": 2}))["parameters"]] == [None, "second"]


def test_tied_names_the_group():
    report = check(scenario([backward()], [*TIED, W], {"pp": 2}))
    assert [named(report, name)["tied"] for name in ("word", "head", "w")] == ["t", "t", None]


def test_with_all_every_owned_element_stands_in_exactly_one_piece():
    flat = {"kind": "flat", "align": 6}
    content = scenario(
        [backward(), step("scatter", "reduce_scatter", over="dp", geometry=flat), step("all", "own", over=[])],
        [W, parameter("v", [7])],
        DP2,
    )
    report = check(content)
    for name in ("w", "v"):
        assert list(rank_entries(report, name)) == [0, 1]
        for entry in rank_entries(report, name).values():
            elements = [index for piece in entry["pieces"] for index in range(*piece["elements"])]
            assert elements == [index for interval in entry["owned"] for index in range(*interval)]


def test_neighbours_with_equal_forms_are_merged():
    # Scattered, doubled in two halves, and equal again.
    content = scenario(
        [backward(), step("scatter", "reduce_scatter", over="dp"), step("gather", "all_gather", over="dp")], layout=DP2
    )
    assert [piece["elements"] for piece in rank_entries(check(content), "w")[0]["pieces"]] == [[0, 4]]
    halves = scenario(
        [
            backward(),
            step("mine", "own", over="dp"),
            step("x", "scale", by="2", on="owned"),
            step("all", "own", over=[]),
        ],
        layout=DP2,
    )
    assert [piece["elements"] for piece in rank_entries(check(halves), "w")[0]["pieces"]] == [[0, 2], [2, 4]]
    halves["schedule"]["steps"].append(step("back", "zero"))
    assert [piece["elements"] for piece in rank_entries(check(halves), "w")[0]["pieces"]] == [[0, 4]]


def test_a_piece_that_no_contribution_reached_has_an_empty_list():
    piece = rank_entries(check(scenario([backward(), step("x", "zero")])), "w")[0]["pieces"][0]
    assert (piece["coefficients"], piece["formula"], piece["ratio"]) == ([], "0", "0")


def coefficients(content, rank=0, name="w"):
    pieces = rank_entries(check(content), name)[rank]["pieces"]
    assert len(pieces) == 1
    return pieces[0]["coefficients"]


def test_coefficients_are_exact_fractions_relative_to_what_backward_added():
    # by is part of what was added: 7 * gradient is g0, a third of it 1/3.
    assert [entry["value"] for entry in coefficients(scenario([backward(by="7"), step("x", "scale", by="1/3")]))] == [
        "1/3"
    ]
    many = coefficients(scenario([backward(), step("x", "scale", by="1000000007/3000000000")]))
    assert Fraction(many[0]["value"]) == Fraction(1000000007, 3000000000)


def test_where_several_backward_steps_add_it_is_relative_to_the_last():
    twice = scenario([each(step("first", "backward", by="3"), step("second", "backward", by="2"))])
    # 3 + 2 gradients in units of 2.
    assert [entry["value"] for entry in coefficients(twice)] == ["5/2"]
    # Of that contribution: the other micro-batch has one of its own.
    mixed = scenario(
        [each(step("first", "backward", by="3"), step("second", "backward", by="2", when="micro_batch == 1"))],
        batch={"micro_batches": 2},
    )
    assert [(entry["micro_batch"], entry["value"]) for entry in coefficients(mixed)] == [(0, "1"), (1, "5/2")]


def test_coefficients_of_0_are_left_out():
    steps = [
        backward(),
        step("keep", "copy", **{"from": "grad", "to": "kept"}),
        MEAN,
        step("x", "scale", by="2"),
        step("minus", "scale", by="-1", buffer="kept"),
        step("less", "accumulate", **{"from": "kept"}),
    ]
    # g0 + g1 - g0 on rank 0.
    assert [(entry["rank"], entry["value"]) for entry in coefficients(scenario(steps, layout=DP2))] == [(1, "1")]


def test_coefficients_are_ordered_by_rank_micro_batch_and_use():
    uses = [parameter("word", [4], tied="t", uses=["main", "aux"]), parameter("head", [4], tied="t")]
    found = coefficients(
        scenario([backward(), step("sum", "all_reduce", over="dp")], uses, DP2, {"micro_batches": 2}), 1, "word"
    )
    order = [(entry["rank"], entry["micro_batch"], entry["use"]) for entry in found]
    assert [entry[:2] for entry in order] == [
        (rank, micro_batch) for rank in range(2) for micro_batch in range(2) for _ in range(3)
    ]
    per_piece = [entry[2] for entry in order[:3]]
    assert sorted(per_piece) == ["head", "word", "word:aux"]
    assert [entry[2] for entry in order] == per_piece * 4


def test_use_is_the_parameters_name_for_main_else_name_and_use():
    w = [parameter("w", [4], uses=["main", "aux"])]
    assert [entry["use"] for entry in coefficients(scenario([backward()], w))] in (["w", "w:aux"], ["w:aux", "w"])


def test_a_foreign_contribution_carries_foreign_and_of():
    two = [W, parameter("v", [4])]
    steps = [
        backward(),
        step("a", "all_reduce", over="dp", params=["w"], only={"dp": [0]}),
        step("b", "all_reduce", over="dp", params=["v"], only={"dp": [1]}),
    ]
    own, foreign = coefficients(scenario(steps, two, DP2))
    assert "foreign" not in own and (foreign["foreign"], foreign["of"], foreign["rank"]) == (True, "v", 1)
    # Of several copies it is the one with this use.
    lost = [W, parameter("word", [4], tied="t"), parameter("v", [4], tied="t", copy="v")]
    own, foreign = coefficients(scenario(steps, lost, DP2))
    assert (foreign["of"], foreign["use"]) == ("v", "v")
    # Another element of the same parameter.
    pieces = [parameter("w", [4], shard={"tp": 0})]
    found = coefficients(scenario([backward(), step("x", "broadcast", over="tp", root=0)], pieces, {"tp": 2}), 1)
    assert [(entry["foreign"], entry["of"], entry["rank"]) for entry in found] == [(True, "w", 0)]


def test_a_leftover_has_its_what_in_place_of_rank_and_micro_batch():
    found = coefficients(scenario([backward(), step("x", "leftover", what="parameter", by="3")]))
    leftover = [entry for entry in found if "leftover" in entry]
    assert len(leftover) == 1 and len(found) == 2
    assert (leftover[0]["leftover"], leftover[0]["value"]) == ("parameter", "3")
    assert "rank" not in leftover[0] and "micro_batch" not in leftover[0]


def test_unowned_is_in_local_elements():
    # Stage 1 of tp 2: 4 local elements of 8, of which the second half has no owner.
    content = scenario(
        [backward(), MEAN, step("less", "own", over="dp", only={"dp": [0]})],
        [parameter("w", [8], shard={"tp": 0}, stage=1)],
        {"tp": 2, "dp": 2, "pp": 2},
    )
    report = check(content)
    assert named(report, "w")["unowned"] == [[2, 4]]


def test_frozen_parameters_may_be_listed_without_ranks():
    report = check(scenario([backward()], [W, parameter("ice", [4], frozen=True)]))
    assert report["verdict"] == "match"
    listed = [entry for entry in report["parameters"] if entry["name"] == "ice"]
    assert all(not rank["owned"] for entry in listed for rank in entry["ranks"])


def test_ratio_is_got_over_expected_where_the_piece_is_one_multiple_of_the_reference():
    def ratios(*steps, **keys):
        report = check(scenario([backward(), *steps], layout=DP2, **keys))
        return [piece["ratio"] for piece in rank_entries(report, "w")[0]["pieces"]]

    assert ratios(step("sum", "all_reduce", over="dp")) == ["2"]
    assert ratios(MEAN, step("x", "scale", by="-1/7")) == ["-1/7"]
    assert ratios(MEAN) == ["1"]
    assert ratios() == [None]
    assert ratios(MEAN, step("x", "leftover", what="n")) == [None]
    assert ratios(step("x", "zero")) == ["0"]


def test_norm_lists_parameter_rank_counted_and_expected():
    report = check(scenario([backward(), MEAN, step("norm", "norm", over="dp")], layout=DP2))
    assert report["norm"] == [{"parameter": "w", "rank": rank, "counted": "2", "expected": "1"} for rank in (0, 1)]


def test_check_looks_at_the_verdict_alone_and_only_test_honours_expect():
    for content, status in (
        (RIGHT, 0),
        (WRONG, 1),
        (STUCK, 1),
        (INVALID, 1),
        (RACE, 1),
        ({**RIGHT, "layout": {"dq": 2}}, 2),
    ):
        assert run("check", "--format", "json", write(content)).returncode == status
    expected = write({**WRONG, "expect": {"verdict": "mismatch"}})
    assert (run("check", expected).returncode, run("test", expected).returncode) == (1, 0)
