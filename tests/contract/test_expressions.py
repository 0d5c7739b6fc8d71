# SPDX-License-Identifier: Apache-2.0
"""Expressions, as the section "schedule" of the scenario format describes them.

The factor of a `scale` is the coefficient that the report shows.
"""

from fractions import Fraction

from contract_program import (
    FOLDER,
    W,
    assert_held,
    backward,
    check,
    check_all,
    each,
    held,
    message,
    messages,
    parameter,
    scenario,
    step,
    verdicts,
    write,
)

LAYOUT = {"tp": 2, "cp": 1, "sp": 1, "dp": 3, "pp": 1, "etp": 1, "ep": 2}


def values(expressions, layout=None, rank=0, **keys):
    """What each expression is worth on a rank, outside `each`."""
    contents = [
        scenario([backward(), step("x", "scale", by=expression)], layout=layout, **keys) for expression in expressions
    ]
    result = []
    for expression, report in zip(expressions, check_all(contents, "--no-blame")):
        assert report["verdict"] in ("match", "mismatch"), (expression, report["errors"])
        found = held(report, "w")[rank]
        result.append(next(iter(found.values())) if found else Fraction(0))
    return result


def truths(expressions, **keys):
    """Of conditions."""
    contents = [
        scenario([backward(), step("x", "scale", by="2", when=expression)], **keys) for expression in expressions
    ]
    return [next(iter(held(report, "w")[0].values())) == 2 for report in check_all(contents)]


def test_numbers_are_exact_rationals_as_written():
    third = Fraction(1, 3)
    assert values(
        ["0.1", "1/3", "0.1 + 0.2", "1e-3", "12345678901234567890 / 12345678901234567889", "1/3 + 1/3 + 1/3"]
    ) == [
        Fraction(1, 10),
        third,
        Fraction(3, 10),
        Fraction(1, 1000),
        Fraction(12345678901234567890, 12345678901234567889),
        1,
    ]


def test_a_number_in_json_is_an_expression_as_written():
    content = scenario([backward(), step("x", "scale", by=0.1)])
    assert_held(check(content), "w", {0: "1/10: g0"})
    assert_held(check(scenario([backward(), step("x", "scale", by=3)])), "w", {0: "3: g0"})


def test_plus_minus_times_divide_unary_minus_and_brackets():
    assert values(
        ["1 + 2 * 3", "(1 + 2) * 3", "10 - 4 - 3", "12 / 4 / 3", "-2 + 5", "2 * -3", "-(1 + 2)", "- -4", "6 / (1 + 2)"]
    ) == [7, 9, 3, 1, 3, -6, -3, 4, 2]


def test_one_comparison_and_or_not():
    assert truths(["1 < 2", "2 <= 2", "3 > 4", "3 >= 4", "1 == 1", "1 != 1", "0.1 == 1/10"]) == [
        True,
        True,
        False,
        False,
        True,
        False,
        True,
    ]
    assert truths(
        [
            "true and false",
            "true or false",
            "not false",
            "not (1 == 1 and 2 == 3)",
            "not 1 == 2",
            "true or false and false",
        ]
    ) == [False, True, True, True, True, True]
    assert messages(scenario([backward(), step("x", "scale", by="2", when="1 < 2 < 3")]))


def test_lcm_min_and_max():
    assert values(
        ["lcm(4, 6)", "lcm(2, 3, 5)", "min(3, 1/2, 2)", "max(3, 1/2, 2)", "min(7)", "max(dp, 2)"], {"dp": 1}
    ) == [12, 30, Fraction(1, 2), 3, 7, 2]


def test_axis_sizes_world_micro_batches_and_steps():
    names = [
        "tp",
        "cp",
        "sp",
        "dp",
        "pp",
        "ep",
        "etp",
        "edp",
        "world",
        "dp_shard",
        "dp_replicate",
        "edp_shard",
        "edp_replicate",
        "micro_batches",
        "steps",
    ]
    assert values(
        names,
        {"tp": 2, "cp": 3, "sp": 2, "dp_shard": 5, "dp_replicate": 2, "ep": 5, "etp": 3},
        batch={"micro_batches": 1, "steps": 1},
    ) == [2, 3, 2, 10, 1, 5, 3, 8, 120, 5, 2, 4, 2, 1, 1]
    # micro_batches is the count of this optimizer step.
    steps = [step("zero", "zero"), backward(), step("x", "scale", by="1/micro_batches")]
    assert verdicts(scenario(steps, batch={"micro_batches": [1, 3], "steps": 2})) == ["match"]
    assert messages(scenario([backward(), step("x", "scale", by="dq")]))


def test_options_are_names_and_strings_are_compared():
    write(
        """{ "lockstep_framework": 1, "name": "ours",
      "options": { "factor": { "type": "number", "default": 3, "help": "" }, "mode": { "type": "string", "default": "slow", "allowed": ["slow", "fast"], "help": "" },
                   "on": { "type": "boolean", "default": true, "help": "" } },
      "steps": [ { "name": "m", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
                 { "name": "a", "op": "scale", "by": "factor" },
                 { "name": "b", "op": "scale", "by": 5, "when": "mode == 'fast'" },
                 { "name": "c", "op": "scale", "by": 7, "when": "not on" } ] }""",
        "options.jsonc",
        FOLDER,
    )
    for options, expected in (
        ({}, 3),
        ({"factor": 2, "mode": "fast"}, 10),
        ({"factor": 0.5, "on": False}, Fraction(7, 2)),
    ):
        content = scenario([], batch={"loss": "sum"})
        content["schedule"] = {"framework": "./options.jsonc", "options": options}
        assert_held(check(content), "w", {0: f"{expected}: g0"})
        # The scenario's own steps know them as well.
        content["schedule"]["edits"] = [
            {"insert": step("d", "scale", by="factor", when="mode == 'slow'"), "after": "a"}
        ]
        again = expected * Fraction(options.get("factor", 3)) if options.get("mode") != "fast" else expected
        assert_held(check(content), "w", {0: f"{again}: g0"})


def test_rank_axis_is_the_coordinate_of_the_rank():
    layout = {"tp": 2, "dp_shard": 2, "dp_replicate": 2, "pp": 2}  # rank = tp + 2 shard + 4 replicate + 8 pp
    everywhere = [parameter("w", [4], stage="all", partial=["tp"])]
    by = "1 + rank.tp + 10 * rank.dp_shard + 100 * rank.dp_replicate + 1000 * rank.pp + 10000 * rank.dp"
    report = check(scenario([backward(), step("x", "scale", by=by)], everywhere, layout))
    expected = {}
    for rank in range(16):
        tp, shard, replicate, pp = rank % 2, rank // 2 % 2, rank // 4 % 2, rank // 8
        expected[rank] = (
            f"{1 + tp + 10 * shard + 100 * replicate + 1000 * pp + 10000 * (shard + 2 * replicate)}: g{rank}"
        )
    assert_held(report, "w", expected)
    # On the expert mesh: etp 1, ep 2, edp 2.
    report = check(
        scenario([backward(), step("x", "scale", by="1 + rank.ep + 10 * rank.edp")], layout={"dp": 4, "ep": 2})
    )
    assert_held(report, "w", {0: "1: g0", 1: "2: g1", 2: "11: g2", 3: "12: g3"})


def inside(by, batch, parameters=(W,), layout=None):
    return check(
        scenario(
            [each(step("backward", "backward"), step("note", "leftover", what="n", by=by))], parameters, layout, batch
        )
    )


def test_inside_each_micro_batch_and_tokens_are_this_ranks_and_this_micro_batchs():
    batch = {"micro_batches": 2, "tokens": [[[[3]], [[5]]], [[[7]], [[11]]]]}
    report = inside("tokens", batch, layout={"dp": 2})
    assert_held(report, "w", {0: "1: g0 g0.1; 10: n", 1: "1: g1 g1.1; 16: n"})
    report = inside("10 + micro_batch", batch, layout={"dp": 2})
    assert_held(report, "w", {0: "1: g0 g0.1; 21: n", 1: "1: g1 g1.1; 21: n"})
    for name in ("tokens", "micro_batch"):
        assert name in message(scenario([backward(), step("x", "scale", by=name)]))


def test_tokens_of_a_use():
    two = [parameter("w", [4], uses=["main", "mtp"])]
    batch = {"tokens": {"main": [[[[3]]]], "mtp": [[[[7]]]]}}
    assert_held(inside("100 * tokens + tokens.mtp", batch, two), "w", {0: "1: g0 g0@mtp; 307: n"})
    assert_held(inside("tokens.main", batch, two), "w", {0: "1: g0 g0@mtp; 3: n"})


def test_step_is_the_optimizer_step():
    report = check(
        scenario(
            [step("zero", "zero"), backward(), step("x", "scale", by="1 + step * (step - 1)")],
            batch={"steps": 3, "loss": "sum"},
        )
    )
    # 1, 1, 3.
    assert (report["verdict"], report["step"]) == ("mismatch", 2)
    assert_held(report, "w", {0: "3: g0.2"})


def test_sum_of_tokens_runs_along_the_axes_named_and_over_micro_batches_of_this_optimizer_step():
    layout = {"cp": 2, "dp": 2}  # rank = cp + 2 dp
    tokens = [[[[1], [2]], [[4], [8]]], [[[16], [32]], [[64], [128]]], [[[256], [512]], [[1024], [2048]]]]
    batch = {"micro_batches": [1, 2], "steps": 2, "tokens": tokens}

    def last_step(by, in_each):
        note = step("note", "leftover", what="n", by=by, when="step == 1")
        steps = [
            step("zero", "zero"),
            each(step("backward", "backward"), *([note] if in_each else [])),
            *([] if in_each else [note]),
            step("sum", "all_reduce", over=["dp", "cp"], when="step == 0"),
            step("right", "scale", by="1/sum(tokens, dp, cp, micro_batch)", when="step == 0"),
        ]
        report = check(scenario(steps, layout=layout, batch=batch))
        assert report["step"] == 1
        return [held(report, "w")[rank].get("n") for rank in range(4)]

    assert last_step("sum(tokens, cp)", True) == [16 + 32 + 256 + 512] * 2 + [64 + 128 + 1024 + 2048] * 2
    assert last_step("sum(tokens, dp)", True) == [16 + 64 + 256 + 1024, 32 + 128 + 512 + 2048] * 2
    assert last_step("sum(tokens, dp, cp)", True) == [sum(2**n for n in range(4, 12))] * 4
    assert last_step("sum(tokens, micro_batch)", False) == [16 + 256, 32 + 512, 64 + 1024, 128 + 2048]
    assert last_step("sum(tokens, dp, micro_batch)", False) == [16 + 64 + 256 + 1024, 32 + 128 + 512 + 2048] * 2
    # Inside each, with micro_batch: the same in both iterations.
    assert last_step("sum(tokens, micro_batch)", True) == [
        2 * (16 + 256),
        2 * (32 + 512),
        2 * (64 + 1024),
        2 * (128 + 2048),
    ]


def test_outside_each_sum_needs_micro_batch():
    assert "micro_batch" in message(scenario([backward(), step("x", "scale", by="sum(tokens, dp)")], layout={"dp": 2}))
    assert verdicts(
        scenario(
            [
                backward(),
                step("x", "scale", by="sum(tokens, dp, micro_batch)/2"),
                step("sum", "all_reduce", over="dp", reduce="avg"),
            ],
            layout={"dp": 2},
        )
    ) == ["match"]


def test_sum_over_the_tokens_of_a_use():
    two = [parameter("w", [4], uses=["main", "mtp"])]
    batch = {"tokens": {"main": [[[[3]], [[5]]]], "mtp": [[[[7]], [[11]]]]}}
    report = inside("sum(tokens.mtp, dp)", batch, two, {"dp": 2})
    assert held(report, "w")[0]["n"] == 18


def test_first_and_last_are_the_ends_of_what_they_are_compared_with():
    # rank = dp + 2 pp
    everywhere = [parameter("w", [4], stage="all")]
    layout = {"pp": 3, "dp": 2}
    report = check(
        scenario(
            [
                backward(),
                step("a", "scale", by="2", when="rank.pp == first"),
                step("b", "scale", by="3", when="rank.pp == last"),
                step("c", "scale", by="5", when="rank.dp == last"),
                step("d", "scale", by="7", when="rank.pp != last and rank.pp != first"),
            ],
            everywhere,
            layout,
        )
    )
    assert_held(report, "w", {0: "2: g0", 1: "10: g1", 2: "7: g2", 3: "35: g3", 4: "3: g4", 5: "15: g5"})
    body = [
        step("backward", "backward"),
        step("a", "leftover", what="a", when="micro_batch == first"),
        step("b", "leftover", what="b", by="micro_batch", when="micro_batch == last"),
    ]
    report = check(scenario([each(*body)], batch={"micro_batches": 3}))
    assert_held(report, "w", {0: "1: g0 g0.1 g0.2 a; 2: b"})
    report = check(scenario([backward(), step("x", "scale", by="2", when="step == last")], batch={"steps": 1}))
    assert_held(report, "w", {0: "2: g0"})
    # Ends of an axis of one: both.
    assert truths(["rank.pp == first", "rank.pp == last"]) == [True, True]
    assert messages(scenario([backward(), step("x", "scale", by="first")]))


def test_division_by_0_on_any_rank_that_evaluates_it_is_an_error_at_the_expression():
    content = scenario([backward(), step("x", "scale", by="1 / (1 - rank.dp)")], layout={"dp": 2})
    report = check(content)
    assert report["verdict"] == "error"
    assert "rank 1" in report["errors"][0]["message"] and report["errors"][0]["pointer"] == "/schedule/steps/1/by"
    # Who does not evaluate it does not mind.
    left_out = scenario(
        [
            backward(),
            step("x", "scale", by="1 / (1 - rank.dp)", only={"dp": [0]}),
            step("mean", "all_reduce", over="dp", reduce="avg"),
        ],
        layout={"dp": 2},
    )
    assert verdicts(left_out) == ["match"]
    assert messages(scenario([backward(), step("x", "scale", by="1/0")]))
    assert messages(scenario([backward(), step("x", "scale", by="2", when="1/(dp - 2) == 1")], layout={"dp": 2}))


def test_micro_batch_counts_from_0_in_each_optimizer_step():
    steps = [
        step("zero", "zero"),
        each(step("backward", "backward"), step("n", "leftover", what="n", by="10 + micro_batch", when="step == 1")),
    ]
    report = check(scenario(steps, batch={"micro_batches": [2, 3], "steps": 2, "loss": "sum"}))
    # 10 + 11 + 12, although these are the third to fifth of all.
    assert_held(report, "w", {0: "1: g0.2 g0.3 g0.4; 33: n"})
