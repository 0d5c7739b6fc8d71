# SPDX-License-Identifier: Apache-2.0
"""What is counted as the steps that a fix changes, and as the same plain steps."""

import copy

import fix

PARAMETERS = [
    {"name": "layer.weight", "shape": [4, 4], "shard": {"tp": 0}},
    {"name": "layer.norm", "shape": [4], "tags": ["norm"], "partial": ["tp"]},
]  # fmt: skip


def document(*after, inside=()):
    steps = [
        {"name": "zero", "op": "zero"},
        {"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward", "by": "1 / tokens"}, *copy.deepcopy(inside)]},
        *copy.deepcopy(after),
    ]
    return {"lockstep": 1, "layout": {"dp": 2, "tp": 2}, "model": {"parameters": PARAMETERS}, "schedule": {"steps": steps}}


SCALE = {"name": "dp_scale", "op": "scale", "by": "1 / dp"}
REDUCE = {"name": "dp_all_reduce", "op": "all_reduce", "over": "dp"}
NORMS = {"name": "norm_all_reduce", "op": "all_reduce", "over": "tp", "params": ["tag:norm"]}


def ways(wrong, fixed):
    return fix.Fix(wrong, fixed).ways()


def test_a_step_too_many_a_missing_one_and_a_changed_one_are_changed():
    assert ways(document(SCALE, REDUCE), document(REDUCE)) == {frozenset({"dp_scale"})}
    assert ways(document(REDUCE), document(SCALE, REDUCE)) == {frozenset({"dp_scale"})}
    assert ways(document(SCALE, REDUCE), document({**SCALE, "by": "1"}, REDUCE)) == {frozenset({"dp_scale"})}
    assert ways(document(SCALE), document({**SCALE, "by": "1"}, REDUCE)) == {frozenset({"dp_scale", "dp_all_reduce"})}


def test_of_two_neighbours_that_change_places_either_moved():
    assert ways(document(SCALE, REDUCE), document(REDUCE, SCALE)) == {frozenset({"dp_scale"}), frozenset({"dp_all_reduce"})}


def test_as_many_steps_as_possible_stay():
    assert ways(document(REDUCE, SCALE, NORMS), document(SCALE, NORMS, REDUCE)) == {frozenset({"dp_all_reduce"})}


def test_a_step_that_leaves_the_loop_moved_and_the_loop_did_not():
    assert ways(document(inside=[REDUCE]), document(REDUCE)) == {frozenset({"dp_all_reduce"})}
    assert ways(document(inside=[SCALE, REDUCE]), document(SCALE, REDUCE)) == {frozenset({"dp_scale", "dp_all_reduce"})}


def test_a_changed_step_holds_no_other_in_its_place():
    assert ways(document(SCALE, REDUCE), document(REDUCE, {**SCALE, "by": "2"})) == {frozenset({"dp_scale"})}


def test_a_missing_wait_may_be_said_by_the_step_that_is_in_flight():
    flying = {**REDUCE, "async": True}
    fixed = document(flying, {"op": "wait", "for": "dp_all_reduce"}, SCALE)
    assert ways(document(flying, SCALE), fixed) == {frozenset({"wait for dp_all_reduce"}), frozenset({"dp_all_reduce"})}


def test_a_missing_step_is_named_by_what_it_does():
    change = fix.Fix(document(REDUCE), document(NORMS, REDUCE))
    invented = {"insert": {"name": "tp_all_reduce", "op": "all_reduce", "over": ["tp"]}, "after": "micro_batches"}
    assert change.named("tp_all_reduce", [invented]) == "norm_all_reduce"
    assert change.named("tp_all_reduce", []) == "tp_all_reduce"
    other = {"insert": {"name": "tp_all_reduce", "op": "all_reduce", "over": "dp"}, "after": "micro_batches"}
    assert change.named("tp_all_reduce", [other]) == "tp_all_reduce"
    assert change.named("dp_all_reduce", [invented]) == "dp_all_reduce"


def test_a_missing_step_is_said_by_the_step_that_needs_it_beside_it():
    change = fix.Fix(document(REDUCE, NORMS), document(REDUCE, SCALE, NORMS))
    invented = {"name": "dp_all_reduce_scale", "op": "scale", "by": "1/2"}
    assert change.named("dp_all_reduce", [{"insert": invented, "after": "dp_all_reduce"}]) == "dp_scale"
    assert change.named("norm_all_reduce", [{"insert": invented, "before": "norm_all_reduce"}]) == "dp_scale"
    assert change.named("norm_all_reduce", [{"insert": invented, "after": "norm_all_reduce"}]) == "norm_all_reduce"
    assert change.named("dp_all_reduce", [{"insert": {**invented, "op": "zero"}, "after": "dp_all_reduce"}]) == "dp_all_reduce"
    # Behind the last step of a loop is not behind the loop.
    change = fix.Fix(document(REDUCE), document(SCALE, REDUCE))
    assert change.named("micro_batches", [{"insert": invented, "after": "micro_batches"}]) == "dp_scale"
    assert change.named("backward", [{"insert": invented, "after": "backward"}]) == "backward"


def test_plain_steps_are_the_same_whatever_their_names_and_selectors():
    other = {**NORMS, "name": "tp_all_reduce", "over": ["tp"], "params": ["partial:tp"], "reduce": "sum"}
    assert fix.plain(document(NORMS, REDUCE)) == fix.plain(document(other, REDUCE))


def test_plain_steps_differ_in_order_factor_and_what_is_selected():
    steps = fix.plain(document(NORMS, REDUCE))
    for others in ([REDUCE, NORMS], [NORMS, {**REDUCE, "reduce": "avg"}], [{**NORMS, "params": ["*"]}, REDUCE], [NORMS]):
        assert fix.plain(document(*others)) != steps
    assert fix.plain(document(REDUCE, inside=[NORMS])) != steps
    two = [{**REDUCE, "async": True}, {**NORMS, "async": True}]
    waits = [fix.plain(document(*two, {"op": "wait", "for": name})) for name in ("dp_all_reduce", "norm_all_reduce")]
    assert waits[0] != waits[1]


def test_selectors_without_a_wanted_one_start_from_all_and_ties_go_together():
    assert fix.selected(["!tag:norm"], PARAMETERS) == ["layer.weight"]
    tied = [{"name": "a", "shape": [2], "tied": "t"}, {"name": "b", "shape": [2], "tied": "t"}]
    assert fix.selected(["a"], tied) == fix.selected(None, tied) == ["a", "b"]


def test_a_factor_of_sizes_is_the_number_that_it_comes_to_and_no_other_factor_of_sizes():
    def same(ours, theirs):
        wanted = fix.plain(document({**SCALE, "by": theirs}))
        return fix.with_factors_of(fix.plain(document({**SCALE, "by": ours})), wanted, {"dp": 2, "tp": 2}) == wanted

    assert same("1 * sp / (dp * sp)", "1/2") and same("0.5", "1/dp")
    assert same("1 / dp", "1 / 2") and same("2 * dp", "4")
    assert same("1 * sp / (dp * sp)", "1 * sp / 2") and not same("1 * sp / (dp * sp)", "1 * sp / 3")
    assert not same("1 / dp", "1 / 3") and not same("1 / dp", "1 / tp") and not same("1 / tokens", "1 / 2")
    inner = fix.plain(document(inside=[{**SCALE, "by": "1 / dp"}]))
    assert fix.with_factors_of(inner, fix.plain(document(inside=[{**SCALE, "by": "1/2"}])), {"dp": 2, "tp": 2}) == fix.plain(document(inside=[{**SCALE, "by": "1/2"}]))


def test_what_plain_steps_say_of_axes_of_one_rank_does_not_count():
    for over, tokens in ((["dp", "cp"], "sum(tokens, dp, cp)"), ("dp_shard", "sum(tokens, dp)"), ("edp", "sum(tokens, sp, dp)")):
        one, other = ({**REDUCE, "over": over}, {**SCALE, "by": f"1 / {tokens}"})
        wanted = fix.plain(document(REDUCE, {**SCALE, "by": "1 / sum(tokens, dp)"}))
        steps = fix.with_factors_of(fix.plain(document(one, other)), wanted, {"dp": 2, "tp": 2})
        # etp is 1 here, so that edp goes through all four ranks.
        assert (steps == wanted) == (over != "edp") and steps[-1] == wanted[-1]
    assert fix.Sizes({"dp": 2, "tp": 2}).same("world / (tp * sum(tokens, dp))", "dp / sum(tokens, dp)")
    assert not fix.Sizes({"dp": 2, "tp": 2}).same("world / sum(tokens, dp)", "dp / sum(tokens, dp)")
    assert not fix.Sizes({"dp": 2, "tp": 2}).same("1 / sum(tokens, dp)", "1 / sum(tokens, tp)")
    assert fix.Sizes({"dp": 2, "ep": 2}).same("1 / ep", "edp / (dp * cp)")
    assert not fix.Sizes({"dp": 2, "ep": 2, "etp": 1, "tp": 2}).same("1 / ep", "edp / (dp * cp)")
    assert fix.Sizes({"dp_shard": 2}).same("1 / dp", "1 / dp_shard")
    assert not fix.Sizes({"dp": 2}).same("1 / max(sum(tokens, dp), 1)", "1 / sum(tokens, dp)")


def test_a_missing_mean_is_said_in_one_step_or_in_two():
    change = fix.Fix(document(), document({**REDUCE, "over": ["dp", "cp"]}, SCALE))
    mean = {"insert": {"name": "dp_all_reduce", "op": "all_reduce", "over": "dp", "reduce": "avg"}, "after": "micro_batches"}
    assert change.completes("dp_all_reduce", [mean]) == {"dp_scale"}
    total = {**mean, "insert": {key: value for key, value in mean["insert"].items() if key != "reduce"}}
    over_tp = {**mean, "insert": {**mean["insert"], "over": "tp"}}
    assert not change.completes("dp_all_reduce", [total]) and not change.completes("dp_all_reduce", [over_tp])
    third = fix.Fix(document(), document(REDUCE, {**SCALE, "by": "1/3"}))
    assert not third.completes("dp_all_reduce", [mean])
    # A scale that was there is no part of what is missing.
    there = fix.Fix(document(SCALE), document(REDUCE, SCALE))
    assert not there.completes("dp_all_reduce", [mean])
