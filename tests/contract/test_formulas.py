# SPDX-License-Identifier: Apache-2.0
"""How formulas are written, as the section "What is compared" of the scenario format says."""

from contract_program import (
    W,
    backward,
    check,
    each,
    expectation_holds,
    named,
    parameter,
    rank_entries,
    run,
    scenario,
    step,
    write,
)

DP2 = {"dp": 2}
USES = [parameter("w", [4], uses=["main", "aux"])]


def formula(content, rank=0, name="w"):
    """The one that the report prints for all that the rank owns."""
    pieces = rank_entries(check(content), name)[rank]["pieces"]
    assert len(pieces) == 1
    return pieces[0]["formula"]


def reference(content, name="w"):
    return named(check(content), name)["reference"]["formula"]


def test_formulas_are_written_in_what_backward_added_by_included():
    # Twice the gradient is g0 all the same; one device then wants half of it.
    content = scenario([backward(by="2")])
    assert formula(content) == "g0"
    assert reference(content) == "g0/2"


def test_by_is_printed_where_it_is_not_1():
    with_by = run("check", write(scenario([backward(by="1 / tokens"), step("x", "scale", by="3")], layout=DP2))).stdout
    plain = run("check", "--no-blame", write(scenario([backward(), step("x", "scale", by="3")], layout=DP2))).stdout
    assert "1 / tokens" in with_by
    assert "tokens" not in plain.replace("over even tokens", "").replace("over its tokens", "").replace("of its tokens", "")


def test_g3_is_rank_3s_over_all_micro_batches_of_the_step_and_all_uses():
    content = scenario([backward()], USES, {"dp": 4}, {"micro_batches": 3, "loss": "sum"})
    assert [formula(content, rank) for rank in range(4)] == ["g0", "g1", "g2", "g3"]
    assert reference(content) in ("g0 + g1 + g2 + g3", "g0+g1+g2+g3")
    # Of this optimizer step.
    content = scenario(
        [step("zero", "zero"), backward(), step("x", "scale", by="step + 1")],
        batch={"steps": 2, "micro_batches": 2, "loss": "sum"},
    )
    assert formula(content) == "2*g0"


def test_g3_1_is_micro_batch_1_numbered_on_through_optimizer_steps():
    one = each(step("backward", "backward", when="micro_batch == 1"))
    assert formula(scenario([one], layout={"dp": 4}, batch={"micro_batches": 2}), 3) == "g3.1"
    # The second of the second step is number 3.
    content = scenario(
        [step("zero", "zero"), each(step("backward", "backward", when="step == 0 or micro_batch == 1"))],
        batch={"micro_batches": 2, "steps": 2, "loss": "sum"},
    )
    assert formula(content) == "g0.3"


def test_a_use_is_written_behind_a_dot_with_or_without_a_micro_batch():
    assert formula(scenario([backward(uses=["aux"])], USES, {"dp": 4}, {"micro_batches": 2}), 3) == "g3.aux"
    second = each(step("backward", "backward", uses=["aux"], when="micro_batch == 1"))
    assert formula(scenario([second], USES, {"dp": 4}, {"micro_batches": 2}), 3) == "g3.1.aux"
    # Both uses together are the rank's.
    assert formula(scenario([backward()], USES, {"dp": 4}, {"micro_batches": 2}), 3) == "g3"


def test_another_parameters_contribution_has_its_name_in_brackets():
    two = [W, parameter("v", [4])]
    steps = [
        backward(),
        step("a", "all_reduce", over="dp", params=["w"], only={"dp": [0]}),
        step("b", "all_reduce", over="dp", params=["v"], only={"dp": [1]}),
    ]
    assert formula(scenario(steps, two, DP2)) == "g0 + g1[v]"
    assert formula(scenario(steps, two, DP2), 1, "v") == "g1 + g0[w]"


def test_a_foreign_element_has_brackets_too():
    pieces = [parameter("w", [4], shard={"tp": 0})]
    content = scenario([backward(), step("x", "broadcast", over="tp", root=0)], pieces, {"tp": 2})
    found = formula(content, 1)
    assert found.startswith("g0[w") and found.endswith("]") and formula(content, 0) == "g0"


def test_a_leftover_is_written_by_its_what():
    assert formula(scenario([backward(), step("x", "leftover", what="parameter", by="2")])) == "g0 + 2*parameter"
    different = formula(scenario([step("x", "leftover", what="old", per="rank")], layout=DP2), 1)
    assert different.startswith("old") and different != formula(
        scenario([step("x", "leftover", what="old", per="rank")], layout=DP2), 0
    )


def test_nothing_is_written_0():
    assert formula(scenario([backward(), step("x", "zero")])) == "0"


def test_844_prints_as_in_the_issue():
    # Both ends of the pipeline hold the embedding; the first has it in the slice of dp rank 1, the last in that of 0.
    ends = [
        parameter("word", [4], tied="t"),
        parameter("first", [4]),
        parameter("last", [4], stage=-1),
        parameter("output", [4], tied="t", stage=-1),
    ]
    bucket = {"kind": "bucket", "align_parameter": 1, "align_bucket": "n"}
    steps = [
        backward(),
        step("scatter", "reduce_scatter", over="dp", reduce="avg", geometry=bucket),
        step("embedding", "all_reduce", over={"pp": ["first", "last"]}, params=["tied:t"]),
    ]
    content = scenario(steps, ends, {"pp": 2, "dp": 2})
    report = check(content)
    assert report["verdict"] == "mismatch"
    # Buffers in reverse order: first | word and output | last.
    assert formula(content, 1, "word") == "g3 + (g0+g1)/2"
    assert formula(content, 2, "output") == "g0 + (g2+g3)/2"
    assert reference(content, "word") == "(g0+g1+g2+g3)/2"


def test_formulas_are_compared_as_algebra():
    content = scenario([backward(), step("x", "scale", by="2/3")], layout=DP2)
    for text in ("2*g0/3", "2/3*g0", "(g0+g0)/3", "g0 - g0/3", "g0/3+g0/3"):
        assert expectation_holds(content, verdict="mismatch", formula={"w": {"0": text}}), text
    for text in ("g0", "2*g1/3", "2/3*g0 + g1", "0"):
        assert not expectation_holds(content, verdict="mismatch", formula={"w": {"0": text}}), text
