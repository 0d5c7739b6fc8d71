# SPDX-License-Identifier: Apache-2.0
"""The section "batch" of the scenario format."""

import copy

from contract_program import (
    W,
    assert_held,
    backward,
    check,
    check_all,
    message,
    messages,
    named,
    parameter,
    run,
    scenario,
    show,
    step,
    verdicts,
    write,
)

SUM = step("sum", "all_reduce", over=["dp", "cp", "sp"])


def reference(report, name="w"):
    return named(report, name)["reference"]["formula"]


def test_there_are_2_micro_batches_by_default_or_a_list_with_one_count_per_optimizer_step():
    default = scenario([backward(), SUM], batch={"loss": "sum"})
    del default["batch"]["micro_batches"]
    assert_held(check(default), "w", {0: "g0 g0.1"})
    # 1 + 3 micro-batches: the second step has those numbered 1 to 3.
    counts = scenario([step("zero", "zero"), backward()], batch={"micro_batches": [1, 3], "steps": 2, "loss": "sum"})
    report = check(counts)
    assert (report["verdict"], report["step"]) == ("match", 1)
    assert_held(report, "w", {0: "g0.1 g0.2 g0.3"})
    counts["batch"]["micro_batches"] = [1, 3, 1]
    assert messages(counts)


def test_there_is_1_optimizer_step_by_default():
    report = check(scenario([backward()], batch={"loss": "sum"}))
    assert (report["verdict"], report["step"]) == ("match", 0)
    report = check(scenario([step("zero", "zero"), backward()], batch={"steps": 3, "loss": "sum"}))
    assert (report["verdict"], report["step"]) == ("match", 2)
    assert_held(report, "w", {0: "g0.2"})


def test_tokens_are_uneven_by_default_by_the_formula_of_the_format():
    layout = {"dp": 2, "cp": 2, "sp": 2}
    counts = [2, 1]  # micro-batches of the two optimizer steps
    explicit = [
        [[[2 ** ((m + d + c + s) % 3) for s in range(2)] for c in range(2)] for d in range(2)] for m in range(3)
    ]
    steps = [step("zero", "zero"), backward(by="1/tokens"), SUM]
    batch = {"micro_batches": counts, "steps": 2, "loss": "sum"}
    default = scenario(steps, layout=layout, batch={**batch})
    del default["batch"]["tokens"]
    named_uneven = scenario(steps, layout=layout, batch={**batch, "tokens": "uneven"})
    listed = scenario(steps, layout=layout, batch={**batch, "tokens": explicit})
    right = scenario([step("zero", "zero"), backward(), SUM], layout=layout, batch={**batch, "tokens": explicit})
    reports = check_all([default, named_uneven, listed, right])
    assert [report["verdict"] for report in reports] == ["mismatch"] * 3 + ["match"]
    assert reference(reports[0]) == reference(reports[1]) == reference(reports[2])
    # By hand: what backward added is G/tokens, and one device adds the G: 2^((0+d)%3) and 2^((1+d)%3).
    small = scenario([backward(by="1/tokens"), SUM], layout={"dp": 3}, batch={"micro_batches": 2, "loss": "sum"})
    del small["batch"]["tokens"]
    assert reference(check(small)) == "g0.0 + 2*g0.1 + 2*g1.0 + 4*g1.1 + 4*g2.0 + g2.1"


def test_tokens_even_are_1_each():
    even = scenario(
        [backward(by="tokens"), SUM], layout={"dp": 3}, batch={"micro_batches": 2, "tokens": "even", "loss": "sum"}
    )
    assert verdicts(even) == ["match"]


def test_a_list_of_tokens_has_an_entry_per_micro_batch_of_all_steps_or_of_one():
    # Two optimizer steps of two micro-batches; dp 2.
    of_one = [[[[1]], [[2]]], [[[3]], [[4]]]]
    of_all = of_one + [[[[5]], [[6]]], [[[7]], [[8]]]]
    # Step 0 is right on purpose (the factor is 1 there), so that the report is of step 1.
    steps = [step("zero", "zero"), each_step_factor(), SUM]
    for tokens, expected in (
        (of_one, "g0.2 + 3*g0.3 + 2*g1.2 + 4*g1.3"),
        (of_all, "5*g0.2 + 7*g0.3 + 6*g1.2 + 8*g1.3"),
    ):
        report = check(
            scenario(steps, layout={"dp": 2}, batch={"micro_batches": 2, "steps": 2, "tokens": tokens, "loss": "sum"})
        )
        assert (report["verdict"], report["step"]) == ("mismatch", 1)
        assert reference(report) == expected
    three = scenario(steps, layout={"dp": 2}, batch={"micro_batches": 2, "steps": 2, "tokens": of_all[:3]})
    assert messages(three)
    wrong_shape = scenario(steps, layout={"dp": 3}, batch={"micro_batches": 2, "steps": 2, "tokens": of_one})
    assert messages(wrong_shape)


def each_step_factor():
    """Divides by the tokens in optimizer step 1 only."""
    return {
        "name": "micro_batches",
        "op": "each",
        "steps": [
            step("backward", "backward", when="step == 0"),
            step("backward_divided", "backward", by="1/tokens", when="step == 1"),
        ],
    }


def test_tokens_may_be_given_per_use():
    w = [parameter("w", [4], uses=["main", "mtp"])]
    batch = {"tokens": {"main": [[[[3]], [[5]]]], "mtp": [[[[7]], [[11]]]]}, "loss": "sum"}
    steps = [
        {
            "name": "micro_batches",
            "op": "each",
            "steps": [
                step("backward", "backward", by="1/tokens", uses=["main"]),
                step("backward_mtp", "backward", by="1/tokens.mtp", uses=["mtp"]),
            ],
        },
        SUM,
    ]
    report = check(scenario(steps, w, {"dp": 2}, batch))
    assert reference(report) == "3*g0.main + 7*g0.mtp + 5*g1.main + 11*g1.mtp"


def test_tokens_of_a_name_that_no_parameter_has_count_what_factors_and_losses_ask_for():
    batch = {
        "micro_batches": 1,
        "steps": 2,
        "tokens": {"main": [[[[3]], [[5]]], [[[2]], [[0]]]], "ranks": [[[[1]], [[1]]], [[[1]], [[0]]]]},
        "loss": {"weight": "1 / (tokens * sum(tokens.ranks, dp))"},
    }

    def join(by, batch=batch):
        return scenario([step("zero", "zero"), backward(by="1/tokens"), SUM, step("mean", "scale", by=by)], layout={"dp": 2}, batch=batch)

    assert verdicts(join("1 / sum(tokens.ranks, dp, micro_batch)"), join("1 / dp")) == ["match", "mismatch"]
    assert check(join("1 / dp"))["step"] == 1  # rank 1 is out of data there
    # A factor asks for what the batch lists, the batch lists what something asks for, and no backward adds it.
    assert "ranks" in message(join("1 / sum(tokens.ranks, dp, micro_batch)", {**batch, "loss": "sum", "tokens": batch["tokens"]["main"]}))
    assert "ranks" in message(join("1 / dp", {**batch, "loss": "sum"}))
    assert messages(scenario([step("b", "backward", uses=["ranks"]), SUM], layout={"dp": 2}, batch=batch))


def test_an_edit_may_take_away_what_asked_for_a_list_of_tokens():
    """The list stays in the file; what `show --resolved` prints has it no more, and reads back."""
    batch = {"steps": 2, "micro_batches": 1, "loss": "token_mean",
             "tokens": {"main": [[[[3]], [[5]]], [[[2]], [[0]]]], "ranks": [[[[1]], [[1]]], [[[1]], [[0]]]]}}
    steps = [step("zero", "zero"), backward(), SUM, step("mean", "scale", by="1 / sum(tokens.ranks, dp, micro_batch)")]
    wrong = scenario(steps, layout={"dp": 2}, batch=batch)
    edited = copy.deepcopy(wrong)
    edited["schedule"]["edits"] = [{"set": "mean", "by": "1 / sum(tokens, dp, micro_batch)"}]
    dropped = copy.deepcopy(wrong)
    dropped["schedule"]["edits"] = [{"drop": "mean"}]
    other_way = copy.deepcopy(wrong)
    assert verdicts(wrong, edited, dropped) == ["mismatch", "match", "mismatch"]
    resolved = show(edited, "--resolved")
    assert list(resolved["batch"]["tokens"]) == ["main"]
    assert verdicts(resolved) == ["match"]
    # An edit that takes back what another has put there; and nothing is left of a batch without tokens for main.
    del other_way["schedule"]["steps"][-1]
    other_way["schedule"]["edits"] = [{"insert": step("t", "scale", by="sum(tokens.ranks, dp) / 2"), "after": "sum"}, {"drop": "t"}]
    assert verdicts(other_way) == ["mismatch"]
    del other_way["batch"]["tokens"]["main"]
    assert "tokens" not in show(other_way, "--resolved")["batch"]
    # What parameters with uses of their own take is "main" all the same.
    other = scenario([backward(), SUM, step("none", "scale", by="1 / sum(tokens.main, dp, micro_batch)")], [parameter("w", [4], uses=["other"])],
                     {"dp": 2}, {"micro_batches": 1, "loss": "sum", "tokens": {"main": [[[[3]], [[5]]]]}})
    other["schedule"]["edits"] = [{"drop": "none"}]
    assert verdicts(other, show(other, "--resolved")) == ["match", "match"]


def test_a_piece_of_0_tokens_has_no_contribution_but_counts_in_the_means():
    batch = {"micro_batches": 2, "tokens": [[[[0]], [[2]]], [[[4]], [[1]]]]}
    # by would divide by 0 there, but is not evaluated.
    report = check(
        scenario(
            [backward(by="1/tokens"), SUM, step("mean", "scale", by="1/4")],
            layout={"dp": 2},
            batch={**batch, "loss": "local_mean"},
        )
    )
    assert report["verdict"] == "match"
    assert_held(report, "w", {0: "1/4: g0.1 g1 g1.1", 1: "1/4: g0.1 g1 g1.1"})
    # Both micro-batches and both dp coordinates count in the mean over (micro-batch, dp): 4, not 3.
    assert verdicts(
        scenario([backward(by="1/(4*tokens)"), SUM], layout={"dp": 2}, batch={**batch, "loss": "micro_batch_mean"}),
        scenario([backward(by="1/(3*tokens)"), SUM], layout={"dp": 2}, batch={**batch, "loss": "micro_batch_mean"}),
    ) == ["match", "mismatch"]


def test_all_tokens_0_is_an_error():
    assert messages(scenario([backward()], layout={"dp": 2}, batch={"tokens": [[[[0]], [[0]]]]}))


# Tokens [micro-batch][dp][cp]; no two divisions agree.
PIECES = [[[3, 5], [2, 10]], [[1, 7], [4, 6]]]
TOKENS = [[[[cp] for cp in dp] for dp in micro_batch] for micro_batch in PIECES]


def with_loss(loss, by):
    return scenario(
        [backward(by=by), SUM], layout={"dp": 2, "cp": 2}, batch={"micro_batches": 2, "tokens": TOKENS, "loss": loss}
    )


def only_right(loss, right):
    """The schedule that multiplies each piece's summed loss by `right` is right; the others are not."""
    factors = {
        "token_mean": "1/38",
        "micro_batch_mean": "1/(4 * sum(tokens, cp))",
        "local_mean": "1/(8 * tokens)",
        "sum": "1",
        "weight": "(rank.cp + 2) / (micro_batch + 3)",
    }
    names = list(factors)
    assert verdicts(*[with_loss(loss, factors[name]) for name in names]) == [
        "match" if name == right else "mismatch" for name in names
    ]


def test_loss_is_what_one_device_minimizes_and_so_what_is_right():
    scaled = with_loss("sum", "1/38")
    report = check(scaled)
    assert report["verdict"] == "mismatch"
    assert {piece["ratio"] for entry in named(report, "w")["ranks"] for piece in entry["pieces"]} == {"1/38"}
    assert '"token_mean"' in message(with_loss("token_maen", "1"))


def test_token_mean_is_the_default():
    only_right("token_mean", "token_mean")  # 3+5+2+10 + 1+7+4+6 = 38 tokens
    default = with_loss(None, "1/38")
    del default["batch"]["loss"]
    assert verdicts(default) == ["match"]


def test_micro_batch_mean_takes_the_cp_and_sp_pieces_together():
    only_right("micro_batch_mean", "micro_batch_mean")
    along_sp = scenario(
        [backward(by="1/(2 * sum(tokens, sp))"), SUM],
        layout={"dp": 2, "sp": 2},
        batch={"tokens": [[[[3, 5]], [[2, 10]]]], "loss": "micro_batch_mean"},
    )
    assert verdicts(along_sp) == ["match"]


def test_local_mean_is_the_mean_over_all_pieces():
    only_right("local_mean", "local_mean")
    along_sp = scenario(
        [backward(by="1/(4 * tokens)"), SUM],
        layout={"dp": 2, "sp": 2},
        batch={"tokens": [[[[3, 5]], [[2, 10]]]], "loss": "local_mean"},
    )
    assert verdicts(along_sp) == ["match"]


def test_the_older_name_of_local_mean_is_read_and_the_name_of_today_written():
    only_right("piece_mean", "local_mean")
    old = with_loss("piece_mean", "1/(8 * tokens)")
    by_use = with_loss({"main": "piece_mean"}, "1/(8 * tokens)")
    assert verdicts(old, by_use) == ["match", "match"]
    for content in (old, by_use):
        file = write(content)
        assert "loss local_mean over" in run("check", file).stdout
        shown = run("show", "--resolved", file).stdout
        assert '"local_mean"' in shown and "piece_mean" not in shown
    assert 'expected "token_mean", "micro_batch_mean", "local_mean" or "sum"' in message(with_loss("piece_maen", "1"))


def test_sum_is_the_sum_over_all_tokens():
    only_right("sum", "sum")


def test_a_weight_is_evaluated_as_inside_each_on_the_rank_whose_tokens_they_are():
    only_right({"weight": "(rank.cp + 2) / (micro_batch + 3)"}, "weight")
    # As the other losses, written out.
    assert verdicts(
        with_loss({"weight": "1 / sum(tokens, dp, cp, sp, micro_batch)"}, "1/38"),
        with_loss({"weight": "1/(8*tokens)"}, "1/(8*tokens)"),
    ) == ["match", "match"]


def test_a_weight_that_cannot_be_evaluated_is_a_mistake_of_the_file():
    # rank 1 has no tokens of main, but those of aux, whose weight divides by main's.
    report = check(
        scenario(
            [backward()],
            [parameter("w", [4], uses=["main", "aux"])],
            {"dp": 2},
            {"tokens": {"main": [[[[1]], [[0]]]], "aux": "even"}, "loss": {"weight": "1/tokens"}},
        )
    )
    assert report["verdict"] == "error"
    assert [(error["pointer"], error["message"]) for error in report["errors"]] == [
        (
            "/batch/loss/weight",
            'division by zero: "tokens" is 0 here (in "weight" of the loss, on rank 1, micro-batch 0)',
        )
    ]


def test_losses_and_weights_may_be_given_per_use_and_a_use_without_its_own_takes_that_of_main():
    w = [parameter("w", [4], uses=["main", "aux", "mtp"])]
    batch = {
        "tokens": [[[[3]], [[5]]]],
        "loss": {"main": "token_mean", "aux": "micro_batch_mean"},
        "weight": {"aux": "1/100"},
    }

    def steps(aux, mtp):
        return [
            {
                "name": "micro_batches",
                "op": "each",
                "steps": [
                    step("main", "backward", by="1/8", uses=["main"]),
                    step("aux", "backward", by=aux, uses=["aux"]),
                    step("mtp", "backward", by=mtp, uses=["mtp"]),
                ],
            },
            SUM,
        ]

    assert verdicts(
        scenario(steps("1/(200*tokens)", "1/8"), w, {"dp": 2}, batch),
        scenario(steps("1/(2*tokens)", "1/8"), w, {"dp": 2}, batch),
        scenario(steps("1/800", "1/8"), w, {"dp": 2}, batch),
        scenario(steps("1/(200*tokens)", "1/(2*tokens)"), w, {"dp": 2}, batch),
    ) == ["match", "mismatch", "mismatch", "mismatch"]
    # A weight of main holds for the others too where they have none of their own.
    batch = {**batch, "loss": "token_mean", "weight": {"main": "2", "aux": "1/100"}}
    everything = scenario(
        [
            {
                "name": "micro_batches",
                "op": "each",
                "steps": [
                    step("main", "backward", by="2/8", uses=["main"]),
                    step("aux", "backward", by="1/800", uses=["aux"]),
                    step("mtp", "backward", by="2/8", uses=["mtp"]),
                ],
            },
            SUM,
        ],
        w,
        {"dp": 2},
        batch,
    )
    report = check(everything)
    assert report["verdict"] == "match", reference(report)


def test_a_framework_file_sets_the_default_loss():
    # Megatron: every piece's own mean; with its per-token loss, the mean over all tokens.
    for option, loss in ((False, "local_mean"), (True, "token_mean")):
        content = scenario([], [W], {"dp": 2, "cp": 2}, {"micro_batches": 2, "tokens": TOKENS})
        content["schedule"] = {"framework": "megatron", "options": {"calculate_per_token_loss": option}}
        assert verdicts(
            content,
            {**content, "batch": {**content["batch"], "loss": loss}},
            {**content, "batch": {**content["batch"], "loss": "sum"}},
        ) == ["match", "match", "mismatch"]
    plain = with_loss(None, "1/38")
    del plain["batch"]["loss"]
    assert verdicts(plain) == ["match"]


def test_with_several_optimizer_steps_the_reference_is_that_of_each():
    # 3 tokens in step 0, 8 + 1 in step 1.
    batch = {"micro_batches": [1, 2], "steps": 2, "tokens": [[[[3]]], [[[8]]], [[[1]]]]}
    mean = step("mean", "scale", by="1/sum(tokens, micro_batch)")
    report = check(scenario([step("zero", "zero"), backward(), mean], batch=batch))
    assert report["verdict"] == "match"
    assert_held(report, "w", {0: "1/9: g0.1 g0.2"})
    # What is left over from step 0 is wrong in step 1.
    report = check(scenario([backward(), mean], batch=batch))
    assert (report["verdict"], report["step"]) == ("mismatch", 1)
    assert_held(report, "w", {0: "1/27: g0; 1/9: g0.1 g0.2"})
