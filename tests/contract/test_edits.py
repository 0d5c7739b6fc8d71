# SPDX-License-Identifier: Apache-2.0
"""The sections "Edits" and "Step names shared by the frameworks" of the scenario format."""

import json

from contract_program import (
    ROOT,
    W,
    assert_held,
    backward,
    check,
    message,
    messages,
    owned,
    parameter,
    run,
    scenario,
    show,
    step,
    verdicts,
)

MEAN = step("mean", "all_reduce", over="dp", reduce="avg")
NOTE = step("note", "leftover", what="n")
DP2 = {"dp": 2}


def edited(*edits, steps=None, parameters=(W,), **keys):
    return scenario(steps or [step("zero", "zero"), backward(), MEAN], parameters, DP2, edits=edits, **keys)


def names(content):
    """Of the steps in their order, those inside `each` after its name."""
    result = []
    for entry in show(content)["steps"]:
        result.append(entry.get("name", entry["op"]))
        result += [inner.get("name", inner["op"]) for inner in entry.get("steps", [])]
    return result


def test_a_bug_is_a_right_schedule_and_an_edit_and_a_repair_is_an_edit_too():
    bug = {"set": "mean", "reduce": "sum"}
    repair = {"insert": step("half", "scale", by="1/2"), "after": "mean"}
    assert verdicts(edited(), edited(bug), edited(bug, repair)) == ["match", "mismatch", "match"]


def test_drop_takes_a_step_out():
    assert names(edited({"drop": "mean"})) == ["zero", "micro_batches", "backward"]
    assert_held(check(edited({"drop": "mean"})), "w", {0: "g0", 1: "g1"})
    # One inside each as well.
    assert_held(check(edited({"drop": "backward"}, {"insert": NOTE, "after": "mean"})), "w", {0: "n", 1: "n"})


def test_duplicate_runs_a_step_twice_and_names_the_second_2():
    content = edited({"duplicate": "mean"}, {"set": "mean.2", "reduce": "sum"})
    assert names(content) == ["zero", "micro_batches", "backward", "mean", "mean.2"]
    assert_held(check(content), "w", {0: "g0 g1", 1: "g0 g1"})
    assert_held(check(edited({"duplicate": "backward"})), "w", {0: "g0 g1", 1: "g0 g1"})


def test_move_takes_a_step_before_or_after_another():
    steps = [step("zero", "zero"), backward(), MEAN, NOTE]
    assert names(edited({"move": "note", "before": "zero"}, steps=steps)) == [
        "note",
        "zero",
        "micro_batches",
        "backward",
        "mean",
    ]
    assert names(edited({"move": "zero", "after": "micro_batches"}, steps=steps)) == [
        "micro_batches",
        "backward",
        "zero",
        "mean",
        "note",
    ]
    # Into each, next to a step of its body.
    content = edited({"move": "note", "after": "backward"}, steps=steps, batch={"micro_batches": 2})
    assert names(content) == ["zero", "micro_batches", "backward", "note", "mean"]
    assert_held(check(content), "w", {0: "1/2: g0 g1 g0.1 g1.1; 2: n", 1: "1/2: g0 g1 g0.1 g1.1; 2: n"})
    assert messages(edited({"move": "note"}, steps=steps))


def test_set_replaces_keys_and_null_removes_one():
    steps = [backward(), step("x", "scale", by="2", when="rank.dp == 0")]
    assert_held(check(edited({"set": "x", "by": "5"}, steps=steps)), "w", {0: "5: g0", 1: "g1"})
    assert_held(check(edited({"set": "x", "when": None}, steps=steps)), "w", {0: "2: g0", 1: "2: g1"})
    assert_held(
        check(edited({"set": "x", "when": None, "by": "3", "only": {"dp": [1]}}, steps=steps)),
        "w",
        {0: "g0", 1: "3: g1"},
    )
    # A key is replaced whole, not merged.
    picked = [backward(), step("x", "scale", by="2", only={"dp": [0], "pp": [0]})]
    assert_held(check(edited({"set": "x", "only": {"pp": [0]}}, steps=picked)), "w", {0: "2: g0", 1: "2: g1"})
    assert messages(edited({"set": "x", "bye": "5"}, steps=steps))


def test_set_merges_geometry_key_by_key():
    geometry = {"kind": "bucket", "align_parameter": 1, "align_bucket": 2, "separate": ["w"]}
    steps = [backward(), step("x", "reduce_scatter", over="dp", reduce="avg", geometry=geometry)]
    two = [W, parameter("v", [4])]

    def found(*edits):
        return [
            (entry["begin"], entry["end"])
            for entry in show(edited(*edits, steps=steps, parameters=two))["geometry"][0]["buckets"]
        ]

    assert found() == [(0, 4), (4, 8)]
    assert found({"set": "x", "geometry": {"separate": []}}) == [(0, 8)]
    assert found({"set": "x", "geometry": {"align_bucket": 6}}) == [(0, 6), (6, 12)]
    assert found({"set": "x", "geometry": {"separate": None}}) == [(0, 8)]


def test_another_kind_of_geometry_starts_from_its_own_defaults():
    geometry = {"kind": "bucket", "align_parameter": 1, "align_bucket": 6, "separate": ["w"]}
    steps = [backward(), step("x", "reduce_scatter", over="dp", reduce="avg", geometry=geometry)]

    def cut(new):
        content = edited({"set": "x", "geometry": new}, steps=steps, parameters=[W])
        return [entry["slices"] for entry in show(content)["geometry"][0]["parameters"]]

    assert cut({"align_bucket": 8}) == [[[0, 4], [0, 0]]]
    assert cut({"kind": "parameter"}) == cut({"kind": "flat"}) == [[[0, 2], [2, 4]]]


def test_insert_puts_a_new_step_before_or_after_another():
    assert names(edited({"insert": NOTE, "before": "mean"})) == ["zero", "micro_batches", "backward", "note", "mean"]
    assert names(edited({"insert": NOTE, "after": "mean"}))[-1] == "note"
    assert names(edited({"insert": NOTE, "before": "backward"})) == [
        "zero",
        "micro_batches",
        "note",
        "backward",
        "mean",
    ]
    assert names(
        edited({"insert": {**backward(), "name": "more"}, "after": "mean"}, steps=[step("zero", "zero"), MEAN])
    ) == ["zero", "mean", "more", "backward"]
    assert '"mean"' in message(edited({"insert": MEAN, "after": "mean"}))
    assert messages(edited({"insert": NOTE, "before": "mean", "after": "zero"}))


def test_parameter_replaces_keys_of_the_parameters_that_a_selector_chooses():
    two = [parameter("a", [4], tags=["norm"]), parameter("b", [4], tags=["norm"]), W]
    report = check(edited({"parameter": "tag:norm", "only": {"dp": [0]}}, parameters=two))
    for name in ("a", "b"):
        assert_held(report, name, {0: "1/2: g0", 1: "1/2: g0"})
    assert_held(report, "w", {0: "1/2: g0 g1", 1: "1/2: g0 g1"})
    report = check(
        edited(
            {"parameter": ["a", "w"], "shape": [6], "tags": None},
            {"insert": step("x", "scale", by="2", params=["tag:norm"]), "after": "mean"},
            parameters=two,
        )
    )
    assert owned(report, "a")[0] == owned(report, "w")[0] == [[0, 6]] and owned(report, "b")[0] == [[0, 4]]
    assert_held(report, "a", {0: "1/2: g0 g1", 1: "1/2: g0 g1"})
    assert_held(report, "b", {0: "g0 g1", 1: "g0 g1"})
    assert messages(edited({"parameter": "none*", "frozen": True}))


def test_edits_apply_in_order():
    twice = {"insert": step("x", "scale", by="2"), "after": "mean"}
    assert verdicts(edited(twice, {"drop": "x"}), edited(twice, {"set": "x", "by": "1"})) == ["match", "match"]
    assert '"x"' in message(edited({"drop": "x"}, twice))
    after = [
        {"insert": step("a", "scale", by="2"), "after": "mean"},
        {"insert": step("b", "scale", by="3"), "after": "mean"},
    ]
    assert names(edited(*after))[-3:] == ["mean", "b", "a"]


def test_an_index_names_one_iteration_and_the_each_is_unrolled_there():
    three = {"micro_batches": 3}

    def noted(place):
        inserted = [step("note", "leftover", what="n"), step("double", "scale", by="2")]
        if "after" in place:
            inserted.reverse()  # the later one lands directly behind it
        return check(
            scenario(
                [step("zero", "zero"), backward()], edits=[{"insert": one, **place} for one in inserted], batch=three
            )
        )

    # Everything before the note, and the note itself, is doubled.
    for place, expected in (
        ({"after": "backward[0]"}, "2: g0 n; 1: g0.1 g0.2"),
        ({"after": "backward[1]"}, "2: g0 g0.1 n; 1: g0.2"),
        ({"before": "backward[1]"}, "2: g0 n; 1: g0.1 g0.2"),
        ({"after": "backward[first]"}, "2: g0 n; 1: g0.1 g0.2"),
        ({"after": "backward[last]"}, "2: g0 g0.1 g0.2 n"),
        ({"before": "backward[last]"}, "2: g0 g0.1 n; 1: g0.2"),
    ):
        assert_held(noted(place), "w", {0: expected})


def test_drop_duplicate_and_move_take_an_iteration_as_well():
    def result(*edits):
        return check(scenario([step("zero", "zero"), backward(), NOTE], edits=edits, batch={"micro_batches": 3}))

    assert_held(result({"drop": "backward[1]"}), "w", {0: "g0 g0.2 n"})
    assert_held(result({"duplicate": "backward[first]"}), "w", {0: "2: g0; 1: g0.1 g0.2 n"})
    # With what is put beside it: once, like the note itself.
    assert_held(
        result({"move": "note", "before": "backward[last]"}, {"insert": step("x", "scale", by="2"), "before": "note"}),
        "w",
        {0: "2: g0 g0.1; 1: g0.2 n"},
    )
    assert_held(
        result({"move": "note", "after": "backward[0]"}, {"insert": step("x", "scale", by="2"), "after": "note"}),
        "w",
        {0: "2: g0 n; 1: g0.1 g0.2"},
    )
    assert messages(scenario([backward()], edits=[{"drop": "backward[3]"}], batch={"micro_batches": 3}))


def test_what_an_edit_put_into_one_iteration_stays_there_under_later_edits():
    def result(*edits, **keys):
        return check(
            scenario(
                [step("zero", "zero"), backward()],
                edits=[{"insert": NOTE, "after": "backward[1]"}, *edits],
                batch={"micro_batches": 3},
                **keys
            )
        )

    assert_held(result({"set": "note", "by": "2"}), "w", {0: "1: g0 g0.1 g0.2; 2: n"})
    # A condition of its own is joined to it, not put in its place.
    assert_held(
        result({"set": "note", "when": "rank.dp == 0"}, layout=DP2), "w", {0: "g0 g0.1 g0.2 n", 1: "g1 g1.1 g1.2"}
    )
    assert_held(result({"duplicate": "note"}), "w", {0: "1: g0 g0.1 g0.2; 2: n"})
    assert_held(result({"set": "micro_batches", "only": {"dp": [0]}}), "w", {0: "g0 g0.1 g0.2 n"})
    # Moved to another iteration, and out of the `each`.
    double = {"insert": step("double", "scale", by="2"), "after": "note"}
    assert_held(result({"move": "note", "after": "backward[0]"}, double), "w", {0: "2: g0 n; 1: g0.1 g0.2"})
    assert_held(result({"move": "note", "after": "zero"}), "w", {0: "g0 g0.1 g0.2 n"})


SHARED = [
    "zero",
    "backward",
    "loss_scale",
    "dp_scale",
    "dp_all_reduce",
    "dp_reduce_scatter",
    "instance_all_reduce",
    "replicate_all_reduce",
    "expert_dp_scale",
    "expert_dp_all_reduce",
    "expert_dp_reduce_scatter",
    "norm_all_reduce",
    "embedding_all_reduce",
    "position_embedding_all_reduce",
    "tied_all_reduce",
    "conditional_embedding_all_reduce",
    "token_count_scale",
    "grad_norm",
]


def step_names(framework):
    """Every step name in a framework's file, as the program prints it."""
    process = run("show", "framework:" + framework)
    assert process.returncode == 0
    return [word.split('"')[1] for word in process.stdout.split('"name": ')[1:] if word.startswith('"')]


FRAMEWORKS = sorted(path.stem for path in (ROOT / "frameworks").glob("*.jsonc"))


def test_the_frameworks_share_step_names():
    assert FRAMEWORKS
    used = set()
    for framework in FRAMEWORKS:
        found = [name for name in step_names(framework) if name in SHARED]
        assert {"zero", "backward"} <= set(found)
        used |= set(found)
    assert {
        "dp_scale",
        "dp_all_reduce",
        "dp_reduce_scatter",
        "norm_all_reduce",
        "embedding_all_reduce",
        "grad_norm",
        "token_count_scale",
    } <= used


def test_a_framework_uses_the_names_it_has_at_its_own_place():
    # Megatron: norms over tp come after the data-parallel reduction, the embedding after the norms, the tokens last.
    found = step_names("megatron")
    order = [
        "zero",
        "backward",
        "dp_scale",
        "dp_all_reduce",
        "dp_reduce_scatter",
        "instance_all_reduce",
        "norm_all_reduce",
        "embedding_all_reduce",
        "token_count_scale",
        "grad_norm",
    ]
    assert [name for name in found if name in order] == order
    assert json.dumps(found).count("loss_scale") == 0
    # An edit names them.
    content = scenario([], [W], DP2)
    content["schedule"] = {"framework": "megatron", "edits": [{"drop": "dp_scale"}]}
    assert verdicts(content) == ["mismatch"]
