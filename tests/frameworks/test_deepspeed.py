# SPDX-License-Identifier: Apache-2.0
"""frameworks/deepspeed.jsonc against what DeepSpeed computed when it was run (docs/frameworks/deepspeed.md)."""

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
from deepspeed_program import (
    NEEDS_PROGRAM, PARAMETERS, replay_all, counted, held, on, owned, parameter, refusal, verdicts,
)

pytestmark = NEEDS_PROGRAM

MEASURED = json.loads((Path(__file__).parent / "data" / "deepspeed.json").read_text(encoding="utf-8"))
SIZES = MEASURED["sizes"]
LAYOUTS = [{"dp": 2}, {"dp": 3}, {"dp": 4}, {"sp": 2}, {"dp": 2, "sp": 2}, {"sp": 4}]

# Coefficient of each contributor's local-mean gradient, times the micro-batches: that is what the report's coefficients
# are, which leave out the factor `by` of backward, 1 / (tokens * micro_batches). n = dp * sp.
COEFFICIENTS = [
    # ZeRO stages, options, coefficient of (n, sp)
    ([0], {}, lambda n, sp: Fraction(sp, n)),
    ([0], {"prescale_gradients": True}, lambda n, sp: Fraction(sp, n)),
    ([0], {"gradient_predivide_factor": 8}, lambda n, sp: Fraction(sp, n)),
    ([0], {"gradient_predivide_factor": "n"}, lambda n, sp: Fraction(sp, n)),
    ([1, 2], {}, lambda n, sp: Fraction(sp, n)),
    ([1], {"prescale_gradients": True}, lambda n, sp: Fraction(sp, n)),
    ([1], {"gradient_predivide_factor": 8}, lambda n, sp: Fraction(sp, n)),
    ([1], {"gradient_predivide_factor": "n"}, lambda n, sp: Fraction(sp, n)),
    ([1, 2], {"reduce_scatter": False}, lambda n, sp: Fraction(sp, n)),
    ([1, 2], {"reduce_scatter": False, "prescale_gradients": True}, lambda n, sp: Fraction(sp, n)),
    ([1, 2], {"reduce_scatter": False, "prescale_gradients": True, "gradient_predivide_factor": "n"},
     lambda n, sp: Fraction(sp, n)),
    ([1, 2], {"reduce_scatter": False, "gradient_predivide_factor": 8}, lambda n, sp: Fraction(sp, n)),
    ([1, 2], {"reduce_scatter": False, "gradient_predivide_factor": "n"}, lambda n, sp: Fraction(1, n)),
    ([1, 2], {"reduce_scatter": False, "contiguous_gradients": False, "gradient_predivide_factor": "n"}, lambda n, sp: Fraction(sp, n)),
    ([3], {}, lambda n, sp: Fraction(1, n)),
    ([3], {"reduce_scatter": False}, lambda n, sp: Fraction(sp, n)),
    ([3], {"reduce_scatter": False, "prescale_gradients": True}, lambda n, sp: Fraction(sp, n)),
    ([3], {"reduce_scatter": False, "gradient_predivide_factor": 8}, lambda n, sp: Fraction(sp, n)),
    ([3], {"reduce_scatter": False, "gradient_predivide_factor": "n"}, lambda n, sp: Fraction(sp, n * n)),
    ([3], {"reduce_scatter": False, "contiguous_gradients": False, "gradient_predivide_factor": "n"}, lambda n, sp: Fraction(1, n * n)),
    ([0, 1, 2], {"gradient_allreduce_op": "sum"}, lambda n, sp: Fraction(1)),
    ([1, 2], {"gradient_allreduce_op": "sum", "reduce_scatter": False}, lambda n, sp: Fraction(1)),
]  # fmt: skip
WITHOUT_INFLUENCE = [{}, {"overlap_comm": True}, {"bf16": True}]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_every_contribution_enters_with_the_measured_coefficient_on_every_rank(layout, micro_batches):
    sp = layout.get("sp", 1)
    n = layout.get("dp", 1) * sp
    contents, expected = [], []
    for (stages, options, coefficient), extra in itertools.product(COEFFICIENTS, WITHOUT_INFLUENCE):
        chosen = {key: n if value == "n" else value for key, value in options.items()}
        for stage in stages:
            contents.append(
                on("deepspeed", layout, {"zero_stage": stage, "ulysses_loss": "local_mean", **chosen, **extra},
                   batch={"micro_batches": micro_batches})
            )  # fmt: skip
            expected.append(coefficient(n, sp))
    for content, value, report in zip(contents, expected, replay_all(contents)):
        assert not report["errors"], report["errors"]
        for name in ("b", "w", "c"):
            everything = {
                (rank, micro_batch, name): value for rank in range(n) for micro_batch in range(micro_batches)
            }
            found = held(report, name)
            assert all(form == everything for form in found.values()), (content["schedule"], name, found)
            # Without ZeRO every rank has all elements, with it each element is one rank's.
            copies = n if content["schedule"]["options"]["zero_stage"] == 0 else 1
            places = itertools.chain(*owned(report, name).values())
            elements = itertools.chain(*(range(begin, end) for begin, end in places))
            assert sorted(elements) == [element for element in range(SIZES[name]) for _ in range(copies)]


# Factor on the true mean: ZeRO 0 to 2 and ZeRO 3 without reduce_scatter; ZeRO 3 with it.
LOSSES = {
    "local_mean": (lambda sp: Fraction(sp), lambda sp: Fraction(1)),
    "gathered": (lambda sp: Fraction(sp), lambda sp: Fraction(1)),
    "local_mean_over_sp": (lambda sp: Fraction(1), lambda sp: Fraction(1, sp)),
    "gathered_own_slice": (lambda sp: Fraction(1), lambda sp: Fraction(1, sp)),
}


@pytest.mark.parametrize("dp, sp", [(1, 2), (2, 2), (1, 4), (2, 4)])
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_each_convention_for_the_ulysses_loss_is_off_by_the_measured_factor(loss, dp, sp):
    settings = [(stage, scatter) for stage in (0, 1, 2, 3) for scatter in (True, False)]
    # Uneven tokens where the total is gathered: the weights of the pieces come out right too.
    tokens = "uneven" if loss.startswith("gathered") else "even"
    reports = replay_all(
        on("deepspeed", {"dp": dp, "sp": sp},
           {"zero_stage": stage, "reduce_scatter": scatter, "ulysses_loss": loss},
           batch={"micro_batches": 2, "tokens": tokens})
        for stage, scatter in settings
    )  # fmt: skip
    for (stage, scatter), report in zip(settings, reports):
        factor = LOSSES[loss][1 if stage == 3 and scatter else 0](sp)
        assert report["verdict"] == ("match" if factor == 1 else "mismatch")
        ratios = {
            piece["ratio"]
            for entry in report["parameters"]
            for item in entry["ranks"]
            for piece in item["pieces"]
        }
        assert ratios == {str(factor)}, (stage, scatter, ratios)


def test_no_convention_is_right_for_zero_2_and_zero_3_alike():
    for loss in LOSSES:
        both = verdicts(
            on("deepspeed", {"dp": 2, "sp": 2}, {"zero_stage": stage, "ulysses_loss": loss}) for stage in (2, 3)
        )
        assert sorted(both) == ["match", "mismatch"]


def scenario_of(case):
    """What was run, as a scenario."""
    layout, ep, pp = case["layout"], case["layout"].get("ep", 1), case["layout"].get("pp", 1)
    if pp > 1:
        flag = {} if case["flagged"] else {"tags": ["replicated"]}
        inner = [
            parameter(f"{layer}.weight", [13], stage=layer // 2, **flag) for layer in range(1, 2 * pp - 1)
        ]
        parameters = [
            parameter("embed", [13], stage=0, tied="embed"), *inner, parameter("head", [13], stage=-1, tied="embed"),
        ]  # fmt: skip
    else:
        parameters = list(PARAMETERS)
    if ep > 1:
        # In the run, tokens stay where they are.
        parameters.append(parameter("x", [13 * ep], shard={"ep": 0}, tags=["expert"]))
    options = {"gradient_clipping": 1 if case["norm"] else 0, "ulysses_loss": "local_mean", **case["options"]}
    return on("deepspeed", layout, options, parameters, {"micro_batches": case["micro_batches"]})


def name_of(case):
    return " ".join(f"{key}={value}" for part in ("layout", "options") for key, value in case[part].items())


PLAIN = [case for case in MEASURED["cases"] if "ranks" in case and "pp" not in case["layout"]]
PIPELINE = [case for case in MEASURED["cases"] if "ranks" in case and "pp" in case["layout"]]
REFUSED = [case for case in MEASURED["cases"] if "error" in case]


def test_the_data_is_whole():
    assert MEASURED["deepspeed"] == "0.19.8"
    assert len(PLAIN) >= 450 and len(PIPELINE) >= 100 and len(REFUSED) >= 30
    assert {entry["optimizer"] for case in PLAIN + PIPELINE for entry in case["ranks"]} >= {
        "SGD", "DeepSpeedZeroOptimizer", "DeepSpeedZeroOptimizer_Stage3", "BF16_Optimizer",
    }  # fmt: skip


@pytest.mark.parametrize("layout", sorted({json.dumps(case["layout"]) for case in PLAIN}))
def test_each_run_is_replayed_number_for_number_on_every_rank(layout):
    cases = [case for case in PLAIN if json.dumps(case["layout"]) == layout]
    for case, report in zip(cases, replay_all(map(scenario_of, cases))):
        assert not report["errors"], (name_of(case), report["errors"])
        micro_batches = case["micro_batches"]
        for rank, found in enumerate(case["ranks"]):
            for name, values in found["coefficients"].items():
                forms = held(report, name)
                # After the step all ranks have the weights that the owners computed; of experts only their own.
                for form in [forms[rank]] if name == "x" else forms.values():
                    replayed = [
                        str(form.get((*divmod(index, micro_batches), name), Fraction()) / micro_batches)
                        for index in range(len(values))
                    ]
                    assert replayed == values, (name_of(case), rank, name)
            if found["owned"] and "ep" not in case["layout"]:
                mine = {name: owned(report, name).get(rank) for name in ("b", "w", "c")}
                assert {name: places[0] for name, places in mine.items() if places} == found["owned"], name_of(case)


@pytest.mark.parametrize("layout", sorted({json.dumps(case["layout"]) for case in PIPELINE}))
def test_each_run_of_the_pipeline_adds_tied_weights_and_counts_them_as_measured(layout):
    cases = [case for case in PIPELINE if json.dumps(case["layout"]) == layout]
    for case, report in zip(cases, replay_all(map(scenario_of, cases))):
        dp, pp, micro_batches = case["layout"].get("dp", 1), case["layout"]["pp"], case["micro_batches"]
        # What one layer adds for each element that is picked of its weight.
        factor = {"embed": 1, "head": 5}
        for rank, found in enumerate(case["ranks"]):
            for name, values in found["coefficients"].items():
                local = "head" if name == "embed" and rank // dp == pp - 1 else name
                for form in held(report, local).values():
                    replayed = [
                        sum(
                            value * factor.get(use, 2) / micro_batches
                            for (source, micro_batch, use), value in form.items()
                            if (source % dp, micro_batch) == divmod(index, micro_batches)
                        )
                        for index in range(len(values))
                    ]
                    assert list(map(str, replayed)) == values, (name_of(case), rank, name)
        if not case["norm"]:
            continue
        # A tied weight without `model_parallel` is counted by the first stage alone; the file counts it on every stage.
        counts = counted(report)
        squares = 0
        for name, square in squares_of(case).items():
            count = set(counts.get(name, {0: "1"}).values())
            assert len(count) == 1
            squares += square * (1 if name == "embed" and not case["flagged"] else Fraction(count.pop()))
        for found in case["ranks"]:
            # bfloat16 rounds the weights off which the norm was read.
            tolerance = 5e-3 if "bf16" in case["options"] else 1e-4
            assert math.isclose(found["norm"], math.sqrt(squares), rel_tol=tolerance), (name_of(case), counts)


def squares_of(case):
    """{parameter: the square of its gradient's norm}, from the measured gradients."""
    gradients = {}
    for found in case["ranks"]:
        gradients.update(found["coefficients"])
    return {name: sum(Fraction(value) ** 2 for value in values) for name, values in gradients.items()}


def test_without_zero_fp32_and_a_pipeline_the_norm_misses_later_stages_and_counts_tied_weights_twice():
    (case,) = [
        case for case in PIPELINE
        if case["layout"] == {"dp": 2, "pp": 2} and case["options"] == {"zero_stage": 0} and not case["flagged"]
        and case["micro_batches"] == 2
    ]  # fmt: skip
    plain, fp16, zero_1 = replay_all(
        scenario_of({**case, "options": options}) for options in ({"zero_stage": 0}, {"fp16": True}, {"zero_stage": 1})
    )
    counts = {name: set(ranks.values()) for name, ranks in counted(plain).items()}
    assert counts == {"2.weight": {"0"}, "embed": {"2"}, "head": {"2"}}
    assert (fp16["verdict"], zero_1["verdict"]) == ("match", "match")


@pytest.mark.parametrize("case", [case for case in PLAIN if case["norm"]], ids=name_of)
def test_norms_count_what_the_run_counted(case):
    (report,) = replay_all([scenario_of(case)])
    ep, world = case["layout"].get("ep", 1), len(case["ranks"])
    squares = squares_of({"ranks": [{"coefficients": {"w": case["ranks"][0]["coefficients"]["w"]}}]})["w"]
    experts = []
    if ep > 1:
        coefficients = [case["ranks"][rank]["coefficients"]["x"] for rank in range(ep)]
        experts = [sum(Fraction(value) ** 2 for value in values) for values in coefficients]
    counts = counted(report)
    if counts:
        # Every rank takes the norm of all that it holds, and they are averaged.
        assert set(counts) == {"x"} and set(counts["x"].values()) == {"mean_of_norms"}
        expected = sum(math.sqrt(squares + experts[rank % ep]) for rank in range(world)) / world
    else:
        expected = math.sqrt(squares + sum(experts))
    assert bool(counts) == (ep > 1 and case["options"]["zero_stage"] == 0)
    for found in case["ranks"]:
        assert math.isclose(found["norm"], expected, rel_tol=1e-4), name_of(case)


@pytest.mark.parametrize("case", REFUSED, ids=name_of)
def test_what_deepspeed_refuses_is_refused_with_its_reason(case):
    reason = case["error"].partition(": ")[2].rstrip(".")
    assert reason in refusal(scenario_of(case))


def test_more_that_is_refused():
    for layout, options, words in (  # fmt: skip
        ({"dp": 2}, {"fp16": True, "bf16": True}, "cannot be simultaneously enabled"),
        ({"dp": 2}, {"bf16": True, "grad_accum_dtype": "fp32"}, "unsupported mix"),
        ({"dp": 2, "sp": 2}, {"zero_stage": 1, "bf16": True, "grad_accum_dtype": "fp32"}, "BF16_Optimizer"),
        ({"pp": 2, "sp": 2}, {}, "Ulysses"),
        ({"tp": 2, "sp": 2}, {}, "Ulysses"),
        ({"dp": 4}, {"zero_stage": 3, "mics_shard_size": 3}, "mics_shard_size = 3"),
        ({"dp_shard": 4, "dp_replicate": 2}, {"zero_stage": 3, "mics_shard_size": 2}, "dp_shard = 4"),
        ({"dp": 4, "ep": 2, "tp": 2, "etp": 1}, {}, "etp = 1 must be tp = 2"),
        ({"dp": 2, "cp": 2}, {}, "DeepSpeed has no axis cp"),
        ({"dp": 2, "pp": 2, "virtual_stages": 2}, {}, "no virtual stages"),
        ({"dp": 6}, {"zero_stage": 3, "mics_shard_size": 4}, "dp group size is not dividable by dp_shard_size"),
        ({"dp": 4, "ep": 2, "tp": 2}, {"use_data_before_expert_parallelism": True}, "but tp is 2"),
        ({"dp": 2}, {"gradient_predivide_factor": 0}, "must be positive"),
        ({"dp": 2}, {"zero_stag": 1}, '"zero_stage"'),
    ):
        assert words in refusal(on("deepspeed", layout, options)), (layout, options)


EXPERTS = [
    parameter("w", [14], shard={"tp": 0}),
    parameter("router", [4], tags=["router"]),
    parameter("x", [8, 4], shard={"ep": 0, "etp": 1}, dispatch=["ep"], tags=["expert"]),
]


@pytest.mark.parametrize(
    "layout", [{"dp": 2, "ep": 2}, {"dp": 4, "ep": 2}, {"dp": 4, "ep": 4}, {"dp": 4, "tp": 2, "ep": 2}]
)
def test_experts_sum_over_their_data_parallel_group_and_divide_by_dp(layout):
    choices = [{"zero_stage": 0, "fp16": True}, {"zero_stage": 1}, {"zero_stage": 2}]
    choices += [{"zero_stage": 2, "overlap_comm": True}, {"zero_stage": 1, "bf16": True, "grad_accum_dtype": "fp32"}]
    batch = {"micro_batches": 2, "tokens": "uneven"}
    contents = [on("deepspeed", layout, options, EXPERTS, batch) for options in choices]
    assert verdicts(contents) == ["match"] * len(choices)
    # Divided by edp, as before PR 5259, they would be ep times too large.
    wrong = on("deepspeed", layout, choices[0], EXPERTS, batch, [{"set": "expert_dp_scale", "by": "1 / edp"}])
    (report,) = replay_all([wrong])
    ratios = {piece["ratio"] for entry in report["parameters"] for item in entry["ranks"] for piece in item["pieces"]}
    assert ratios == {"1", str(layout["ep"])}


def test_experts_under_ulysses_are_divided_by_the_world_without_zero_and_not_with_it():
    layout = {"dp": 2, "sp": 2, "ep": 2}
    reports = replay_all(
        on("deepspeed", layout, {"zero_stage": stage, "ulysses_loss": "gathered_own_slice", "fp16": True}, EXPERTS)
        for stage in (0, 1, 2)
    )
    ratios = [
        {piece["ratio"] for entry in report["parameters"] if entry["name"] == "x"
         for item in entry["ranks"] for piece in item["pieces"]}
        for report in reports
    ]  # fmt: skip
    assert ratios == [{"1/2"}, {"1"}, {"1"}]


@pytest.mark.parametrize("scatter", [True, False])
def test_mics_reduces_within_its_blocks_in_every_micro_batch_and_between_them_at_the_end(scatter):
    options = {"zero_stage": 3, "mics_shard_size": 2, "reduce_scatter": scatter}
    content = on("deepspeed", {"dp": 6}, options, batch={"micro_batches": 2, "tokens": "uneven"})
    without = {**content, "schedule": {**content["schedule"], "edits": [{"drop": "replica_all_reduce"}]}}
    right, wrong = replay_all([content, without])
    assert right["verdict"] == "match"
    assert right["layout"]["dp_replicate"] == 3
    # Chunks of ceil(numel / 2) elements, on the even ranks and on the odd ones.
    assert owned(right, "w") == {rank: [[0, 7]] if rank % 2 == 0 else [[7, 13]] for rank in range(6)}
    assert wrong["verdict"] == "mismatch"
    block = itertools.product((2, 3), (0, 1))
    assert held(wrong, "w")[3] == {(rank, micro_batch, "w"): Fraction(1, 6) for rank, micro_batch in block}


@pytest.mark.parametrize("stage, scatter", itertools.product((1, 2, 3), (True, False)))
def test_a_reduction_on_a_stream_of_its_own_must_be_waited_for(stage, scatter):
    options = {"zero_stage": stage, "reduce_scatter": scatter, "overlap_comm": True}
    right, wrong = (on("deepspeed", {"dp": 2}, options, edits=edits) for edits in ([], [{"drop": "dp_wait"}]))
    assert verdicts([right, wrong]) == ["match", "race"]
    # The pipeline engine switches it off.
    assert verdicts([on("deepspeed", {"dp": 2, "pp": 2}, {**options, "zero_stage": 1})]) == ["match"]
