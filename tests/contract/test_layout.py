# SPDX-License-Identifier: Apache-2.0
"""The section "layout" of the scenario format."""

from contract_program import (
    W,
    assert_held,
    backward,
    check,
    held,
    message,
    messages,
    owned,
    parameter,
    rank_entries,
    scenario,
    show,
    step,
    verdicts,
)


def layout_of(layout, **keys):
    return check(scenario([backward()], layout=layout, **keys))["layout"]


def groups(layout, over):
    steps = [backward(), step("meet", "all_to_all", over=over)]
    return show(scenario(steps, layout=layout))["groups"]["steps"]["meet"]


def test_axes_are_1_by_default_and_a_framework_file_may_say_otherwise():
    assert layout_of({}) == {
        "tp": 1,
        "cp": 1,
        "sp": 1,
        "dp": 1,
        "dp_shard": 1,
        "dp_replicate": 1,
        "pp": 1,
        "ep": 1,
        "etp": 1,
        "edp": 1,
        "world": 1,
    }
    found = layout_of({"tp": 2, "cp": 3, "sp": 5, "dp": 7, "pp": 2, "ep": 5, "etp": 3})
    assert [found[axis] for axis in ("tp", "cp", "sp", "dp", "pp", "ep", "etp")] == [2, 3, 5, 7, 2, 5, 3]
    # Megatron's file: etp is tp where it is not given.
    megatron = scenario([], [parameter("w", [4, 4], shard={"tp": 0})], {"tp": 2, "dp": 2})
    megatron["schedule"] = {"framework": "megatron"}
    assert check(megatron)["layout"]["etp"] == 2
    megatron["layout"]["etp"] = 1
    assert check(megatron)["layout"]["etp"] == 1


def test_the_world_is_the_product_of_the_dense_mesh_and_edp_the_rest_of_the_expert_mesh():
    found = layout_of({"tp": 2, "cp": 3, "sp": 2, "dp": 5, "pp": 2, "ep": 5, "etp": 3})
    assert found["world"] == 2 * 3 * 2 * 5 * 2
    assert found["edp"] == 120 // (3 * 5 * 2)
    text = message(scenario([backward()], layout={"dp": 3, "ep": 2}))
    assert "3" in text and "2" in text


def test_that_both_meshes_have_the_same_pipeline_groups_is_checked_where_the_expert_mesh_is_used():
    # Dense: pp has stride 2 (tp 2). Expert: etp 1, so that pp has stride 1.
    layout = {"tp": 2, "dp": 2, "pp": 2, "etp": 1, "order": "tp-pp-dp"}
    unused = scenario([backward(), step("mean", "all_reduce", over="dp", reduce="avg")], layout=layout)
    by_parameter = scenario([backward()], [parameter("w", [4], shard={"ep": 0})], layout=layout)
    by_step = scenario([backward(), step("sum", "all_reduce", over="edp")], layout=layout)
    assert verdicts(unused, by_parameter, by_step) == ["match", "error", "error"]
    for refused in (by_parameter, by_step):
        assert "pipeline" in message(refused)
    assert verdicts(
        scenario([backward(), step("meet", "all_to_all", over="edp")], layout={**layout, "order": "tp-dp-pp"})
    ) != ["error"]


def test_the_leftmost_axis_of_the_order_varies_fastest_and_the_default_ends_with_dp_and_pp():
    sizes = {"tp": 2, "dp": 3, "pp": 2}
    # Default: tp, then dp, then pp.
    assert groups(sizes, "tp") == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert groups(sizes, "dp") == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]
    assert groups(sizes, "pp") == [[rank, rank + 6] for rank in range(6)]
    other = {**sizes, "order": "pp-dp-tp"}
    assert groups(other, "pp") == [[2 * i, 2 * i + 1] for i in range(6)]
    assert groups(other, "dp") == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]
    assert groups(other, "tp") == [[rank, rank + 6] for rank in range(6)]
    # tp-cp-sp-ep-dp-pp: cp inside sp inside dp.
    assert groups({"cp": 2, "sp": 2, "dp": 2}, "sp") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups({"cp": 2, "sp": 2, "dp": 2}, "cp")[0] == [0, 1]


def test_the_expert_mesh_reads_tp_as_etp_and_dp_as_edp():
    # etp 2, ep 2, edp 2, pp 1 over 8 ranks; etp fastest, then ep, then edp.
    sizes = {"tp": 1, "dp": 8, "etp": 2, "ep": 2}
    assert groups(sizes, "etp") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert groups(sizes, "ep") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups(sizes, "edp") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    other = {**sizes, "order": "dp-ep-tp-pp"}
    assert groups(other, "edp") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert groups(other, "etp") == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_dp_replicate_cuts_edp_into_as_many_parts_with_edp_shard_fastest():
    # dp 8 in 2 replicas; etp 1, ep 2, edp 4.
    sizes = {"dp_shard": 4, "dp_replicate": 2, "ep": 2}
    assert groups(sizes, "edp_shard") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups(sizes, "edp_replicate") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert groups(sizes, "edp") == [[0, 2, 4, 6], [1, 3, 5, 7]]
    by_parts = scenario([backward(), step("sum", "all_reduce", over=["edp_shard", "edp_replicate"])], layout=sizes)
    assert show(by_parts)["groups"]["steps"]["sum"] == groups(sizes, "edp")
    one = step("sum", "all_reduce", over={"edp_shard": [0], "edp_replicate": "all"})
    assert show(scenario([backward(), one], layout=sizes))["groups"]["steps"]["sum"] == [[0, 4], [1, 5]]
    twice = scenario([backward(), step("sum", "all_reduce", over=["edp", "edp_shard"])], layout=sizes)
    assert '"edp_shard"' in message(twice)
    both = scenario([backward(), step("sum", "all_reduce", over=["edp_shard", "dp_replicate"])], layout=sizes)
    assert "different meshes" in message(both)


def test_the_parts_of_edp_are_refused_where_dp_replicate_does_not_divide_it():
    # edp is 1, dp_replicate 2.
    sizes = {"dp_shard": 1, "dp_replicate": 2, "ep": 2}
    for axis in ("edp_shard", "edp_replicate"):
        text = message(scenario([backward(), step("sum", "all_reduce", over=axis)], layout=sizes))
        assert axis in text and "edp is 1" in text and "dp_replicate 2" in text
    assert verdicts(scenario([backward(), step("sum", "all_reduce", over="dp", reduce="avg")], layout=sizes)) == [
        "match"
    ]


def test_expressions_know_whether_the_pipeline_groups_agree():
    def agree(layout):
        steps = [backward(), step("mark", "scale", by=2, when="not pipeline_groups_agree")]
        return held(check(scenario(steps, layout=layout)), "w", [0])[0] == {"g0": 1}

    sizes = {"tp": 2, "etp": 2, "pp": 2}
    # Dense: pp steps over tp * cp ranks. Expert: over etp * ep.
    assert [agree({**sizes, "cp": cp, "order": "tp-cp-ep-pp-dp"}) for cp in (1, 2)] == [True, False]
    assert agree({**sizes, "cp": 2, "ep": 2, "order": "tp-cp-ep-pp-dp"})
    assert agree({**sizes, "cp": 2, "order": "tp-cp-ep-dp-pp"})


def test_expressions_know_whether_the_groups_between_instances_agree():
    def agree(layout):
        steps = [backward(), step("mark", "scale", by=2, when="not instance_groups_agree")]
        return held(check(scenario(steps, layout=layout)), "w", [0])[0] == {"g0": 1}

    sizes = {"dp_shard": 2, "dp_replicate": 2}
    # Behind dp in the order: a rank's replicas are dp_shard apart, in the expert mesh edp_shard.
    orders = ("tp-cp-ep-dp-pp", "tp-cp-dp-ep-pp")
    assert [agree({**sizes, "ep": 2, "order": order}) for order in orders] == [True, False]
    assert [agree({**sizes, "order": order}) for order in orders] == [True, True]
    # A replica that is no row of neighbours: cp is slower than dp.
    assert not agree({**sizes, "cp": 2, "order": "tp-dp-cp-ep-pp"})
    # One replica has nobody to agree with.
    assert agree({"dp": 4, "ep": 2, "order": "tp-cp-dp-ep-pp"})


def test_an_axis_missing_in_the_order_must_have_size_1():
    text = message(scenario([backward()], layout={"tp": 2, "dp": 2, "order": "dp-pp"}))
    assert "tp" in text
    assert "cp" in message(scenario([backward()], layout={"cp": 2, "order": "tp-ep-dp-pp"}))
    assert check(scenario([backward()], layout={"pp": 2, "order": "dp-pp"}))["verdict"] == "match"


def test_dp_may_be_given_as_dp_shard_and_dp_replicate_with_shard_fastest():
    split = {"tp": 2, "dp_shard": 2, "dp_replicate": 2}
    found = layout_of(split)
    assert (found["dp"], found["dp_shard"], found["dp_replicate"], found["world"]) == (4, 2, 2, 8)
    assert groups(split, "dp_shard") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups(split, "dp_replicate") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert groups(split, "dp") == [[0, 2, 4, 6], [1, 3, 5, 7]]
    # Where dp is given whole, all of it is dp_shard.
    assert (layout_of({"dp": 4})["dp_shard"], layout_of({"dp": 4})["dp_replicate"]) == (4, 1)
    assert messages(scenario([backward()], layout={"dp": 3, "dp_shard": 2, "dp_replicate": 2}))
    # Hybrid: scattered over the shards, reduced over the replicas.
    steps = [
        backward(),
        step("scatter", "reduce_scatter", over="dp_shard", reduce="avg"),
        step("reduce", "all_reduce", over="dp_replicate", on="owned", reduce="avg"),
    ]
    report = check(scenario(steps, layout={"dp_shard": 2, "dp_replicate": 2}))
    assert report["verdict"] == "match"
    mean = "1/4: g0 g1 g2 g3"
    assert_held(report, "w", {0: mean, 1: mean, 2: mean, 3: mean})
    assert owned(report, "w") == {0: [[0, 2]], 1: [[2, 4]], 2: [[0, 2]], 3: [[2, 4]]}


def test_sequence_parallel_and_virtual_stages_are_parts_of_a_layout():
    two = [parameter("a", [4]), parameter("b", [4], chunk=1)]
    assert verdicts(scenario([backward()], two, {"virtual_stages": 2})) == ["match"]
    assert messages(scenario([backward()], two, {"virtual_stages": 1}))
    # As names in an expression.
    steps = [backward(), step("s", "scale", by="virtual_stages", when="sequence_parallel")]
    for on, factor in ((True, "2: g0"), (False, "1: g0")):
        report = check(scenario(steps, layout={"tp": 2, "sequence_parallel": on, "virtual_stages": 2}))
        assert_held(report, "w", {0: factor, 1: factor})


def test_what_does_not_divide_is_an_error_that_says_which_number_must_divide_which():
    text = message(scenario([backward()], layout={"dp": 6, "ep": 4}))
    assert "4" in text and "6" in text and "divi" in text
    text = message(scenario([backward()], [parameter("w", [5], shard={"tp": 0})], {"tp": 2}))
    assert "2" in text and "5" in text and "divi" in text
    assert list(rank_entries(check(scenario([backward()], [W], {"dp": 6, "ep": 3})), "w")) == [0, 1, 2, 3, 4, 5]


def test_an_axis_may_be_any():
    # The verdict is that of every size at once.
    report = check(scenario([backward(), step("mean", "all_reduce", over="dp", reduce="avg")], layout={"dp": "any"}))
    assert report["verdict"] == "match"
    assert "parametric" not in message(scenario([backward()], layout={"dp": "all"}))
