# SPDX-License-Identifier: Apache-2.0
"""Options, refusals, buckets, the gradient norm and the presets of the Megatron schedule (docs/frameworks/megatron.md)."""

import itertools
import random
from fractions import Fraction

import pytest
from megatron_program import (
    NEEDS_PROGRAM, check, coefficients, equal, everywhere, messages, on, owned, parameter, resolved, steps_of,
)
from contract_program import replay_all, show

pytestmark = NEEDS_PROGRAM

DISTRIBUTED = {"use_distributed_optimizer": True}
GPT = {
    "preset": "gpt", "layers": 4, "hidden": 16, "heads": 4, "vocab": 37, "positions": 5,
    "make_vocab_size_divisible_by": 8,
}
MOE = {**GPT, "linear_bias": False, "experts": 4, "moe_ffn": 16, "position_embedding": "rope"}


def wrong(report):
    return {entry["name"] for entry in report["parameters"] if entry["verdict"] == "mismatch"}


def counted(report):
    return {entry["parameter"]: entry["counted"] for entry in report["norm"]}


# Refused combinations.


@pytest.mark.parametrize(
    "options, layout, words",
    [
        ({"calculate_per_token_loss": True, "ddp_average_in_collective": True}, {}, "Cannot average in collective"),
        ({"calculate_per_token_loss": True, "loss_func": "local_mean"}, {}, "number of tokens"),
        ({"num_distributed_optimizer_instances": 2}, {"dp": 4}, "Partial DistOpt cannot be used without DistOpt"),
        ({"num_distributed_optimizer_instances": 2, **DISTRIBUTED}, {"dp": 4, "dp_replicate": 4}, "same number"),
        ({"num_distributed_optimizer_instances": 2, **DISTRIBUTED}, {"dp": 2, "ep": 2}, "partial DistOpt shard factor"),
        ({"ddp_num_buckets": 2, "ddp_bucket_size": 10}, {}, "Cannot specify both num_buckets and bucket_size"),
        ({"ddp_num_buckets": 2}, {}, "ddp_bucket_size"),
        ({"overlap_param_gather": True}, {}, "only supported with distributed optimizer"),
        ({"overlap_param_gather": True, **DISTRIBUTED}, {}, "Must use --overlap-param-gather with"),
        ({"use_megatron_fsdp": True}, {}, "FSDP"),
        ({"use_torch_fsdp2": True}, {}, "FSDP"),
        ({}, {"sp": 2}, "axis sp"),
        ({}, {"virtual_stages": 2}, "pp > 1"),
        ({"use_tp_pp_dp_mapping": True}, {"tp": 2, "cp": 2, "pp": 2, "dp": 4}, "When not using pp-last rank ordering"),
        ({"grad_buffer_layout": "2024-01", "overlap_grad_reduce": True}, {}, "2024-01"),
    ],
    ids=str,
)
def test_what_megatron_refuses_is_refused_with_its_words(options, layout, words):
    assert any(words in text for text in messages(on(layout, options)))


def test_an_unknown_option_is_an_error_that_names_the_nearest():
    (text,) = messages(on({}, {"use_distributed_optimiser": True}))
    assert '"use_distributed_optimizer"' in text


# Ranks, instances and groups.


def test_use_tp_pp_dp_mapping_puts_pp_before_dp():
    shown = show(on({"tp": 2, "pp": 2, "dp": 2}, {"use_tp_pp_dp_mapping": True}))
    assert shown["groups"]["axes"]["pp"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert shown["groups"]["axes"]["dp"] == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize("average", [False, True])
def test_instances_of_the_optimizer_reduce_inside_and_then_between_experts_too(average):
    options = {**DISTRIBUTED, "num_distributed_optimizer_instances": 2, "ddp_average_in_collective": average}
    model = [
        parameter("dense", [512]),
        parameter("expert", [2, 512], shard={"ep": 0}, dispatch=["ep"], tags=["expert"]),
    ]
    content = on({"dp": 8, "ep": 2}, options, model)
    groups = show(content)["groups"]["steps"]
    assert groups["dp_reduce_scatter"] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert groups["instance_all_reduce"] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert groups["expert_dp_reduce_scatter"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups["expert_instance_all_reduce"] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    everywhere(content, "dense", range(8), equal(Fraction(1, 8), *[f"g{rank}" for rank in range(8)]))
    everywhere(content, "expert", range(8), equal(Fraction(1, 8), *[f"g{rank}" for rank in range(8)]))
    # Each instance owns everything once.
    assert owned(check(content), "expert")[0] == [[0, 256]] and owned(check(content), "expert")[4] == [[0, 256]]


@pytest.mark.parametrize(
    "layout, agree",
    [
        # Megatron's own orders.
        ({"dp": 4, "ep": 2, "tp": 2, "cp": 2}, True),
        ({"dp": 4, "ep": 2, "pp": 2, "order": "tp-cp-ep-pp-dp", "cp": 2}, True),
        # ep is slower than dp: the expert grid steps over edp / 2 ranks where the dense one steps over dp / 2.
        ({"dp": 8, "ep": 2, "order": "tp-cp-dp-ep-pp"}, False),
        ({"dp": 8, "ep": 2, "pp": 2, "order": "tp-cp-dp-ep-pp"}, False),
        ({"dp": 8, "order": "tp-cp-dp-ep-pp"}, True),
        # tp behind dp: right where etp * ep is tp.
        ({"dp": 4, "tp": 2, "etp": 1, "ep": 2, "order": "cp-dp-tp-ep-pp"}, True),
        ({"dp": 4, "tp": 2, "etp": 1, "order": "cp-dp-tp-ep-pp"}, False),
        # Instances that cut cp.
        ({"dp": 4, "cp": 2, "order": "tp-dp-cp-ep-pp"}, False),
    ],
    ids=str,
)
def test_instances_are_refused_where_megatron_groups_other_ranks_than_those_with_the_same_slices(layout, agree):
    options = {**DISTRIBUTED, "num_distributed_optimizer_instances": 2}
    if agree:
        assert check(on(layout, options))["verdict"] == "match"
    else:
        (told,) = messages(on(layout, options))
        assert "from its grid of experts" in told
    # One instance needs no groups between instances.
    assert check(on(layout, DISTRIBUTED))["verdict"] == "match"


def test_norms_of_heads_are_summed_by_their_names_with_qk_layernorm_alone():
    model = [parameter("self_attention.q_layernorm.weight", [4], partial=["tp"], tags=["norm", "replicated"]),
             parameter("w", [4])]
    assert check(on({"tp": 2}, {}, model))["verdict"] == "match"
    assert wrong(check(on({"tp": 2}, {"qk_layernorm": False}, model))) == {"self_attention.q_layernorm.weight"}
    # Flagged, they are summed as every norm is.
    assert check(on({"tp": 2, "sequence_parallel": True}, {"qk_layernorm": False}, model))["verdict"] == "match"


# Buckets.


def bucket_ends(content):
    return {
        (found["step"], tuple(found["groups"][0])): [bucket["end"] for bucket in found["buckets"]]
        for found in show(content)["geometry"]
    }


def chunks(tags=(), **keys):
    """Three parameters of 128 elements on each of two chunks of each of two stages."""
    return [
        parameter(f"{stage}.{chunk}.{i}", [128], stage=stage, chunk=chunk, tags=list(tags), **keys)
        for stage, chunk, i in itertools.product(range(2), range(2), range(3))
    ]


def test_only_the_first_chunk_of_the_first_stage_has_buckets_of_limited_size():
    layout = {"pp": 2, "dp": 2, "virtual_stages": 2}
    options = {**DISTRIBUTED, "overlap_grad_reduce": True, "ddp_bucket_size": 128}
    content = on(layout, options, chunks())
    assert bucket_ends(content) == {
        ("dp_reduce_scatter", (0, 1)): [128, 256, 384],
        ("dp_reduce_scatter_later_chunks", (0, 1)): [384],
        ("dp_reduce_scatter_later_stages", (2, 3)): [384, 384],
    }
    assert check(content)["verdict"] == "match"
    # Without overlap there is one bucket for each chunk.
    assert bucket_ends(on(layout, {**options, "overlap_grad_reduce": False}, chunks())) == {
        ("dp_reduce_scatter", (0, 1)): [384, 384],
        ("dp_reduce_scatter", (2, 3)): [384, 384],
    }


def test_expert_buffers_have_buckets_by_the_same_rule():
    layout = {"pp": 2, "dp": 4, "ep": 2, "virtual_stages": 2}
    options = {**DISTRIBUTED, "overlap_grad_reduce": True, "ddp_bucket_size": 128}
    experts = [{**entry, "shape": [2, 128], "shard": {"ep": 0}, "dispatch": ["ep"]} for entry in chunks(tags=["expert"])]
    content = on(layout, options, [*experts, parameter("dense", [4])])
    found = {step: ends for (step, _), ends in bucket_ends(content).items() if step.startswith("expert")}
    assert found == {
        "expert_dp_reduce_scatter": [128, 256, 384],
        "expert_dp_reduce_scatter_later_chunks": [384],
        "expert_dp_reduce_scatter_later_stages": [384, 384],
    }
    assert check(content)["verdict"] == "match"


def test_the_bucket_size_is_megatrons_own_unless_it_is_given():
    def size(options, layout):
        return steps_of(on(layout, {**DISTRIBUTED, **options}))["dp_reduce_scatter"]["geometry"].get("size")

    overlap = {"overlap_grad_reduce": True}
    assert size({}, {"dp": 2}) is None
    assert size(overlap, {"dp": 2}) == 40_000_000
    assert size(overlap, {"dp": 32, "cp": 2}) == 64_000_000
    assert size({**overlap, "ddp_bucket_size": 5}, {"dp": 2}) == 5


def test_overlap_leaves_gradients_in_flight_until_their_wait():
    options = {**DISTRIBUTED, "overlap_grad_reduce": True}
    late = {"insert": {"name": "late", "op": "scale", "by": 1}, "after": "dp_reduce_scatter"}
    report = check(on({"dp": 2}, options, edits=[late]))
    assert report["verdict"] == "race" and {entry["in_flight"] for entry in report["stuck"]} == {"dp_reduce_scatter"}
    assert check(on({"dp": 2}, DISTRIBUTED, edits=[late]))["verdict"] == "match"


# The order of finalize_model_grads.


def test_steps_come_in_the_order_of_finalize_model_grads():
    model = {**MOE, "position_embedding": "learned", "conditional_embedder": 8}
    options = {"calculate_per_token_loss": True, "has_cond_embedder": True, "clip_grad": 1}
    layout = {"tp": 2, "pp": 2, "dp": 2, "ep": 2, "sequence_parallel": True}
    assert list(steps_of(on(layout, options, model))) == [
        "zero", "micro_batches", "backward", "dp_all_reduce", "expert_dp_all_reduce",
        "conditional_embedding_all_reduce", "norm_all_reduce", "embedding_all_reduce", "position_embedding_all_reduce",
        "token_count_scale", "grad_norm", "grad_norm_replicated", "grad_norm_shared_embedding", "grad_norm_experts",
    ]


# Multi-token prediction.

PREDICTION = {**GPT, "position_embedding": "rope", "mtp_num_layers": 2}
TOKENS = {"main": [[[[4]], [[6]]]], "mtp": [[[[3]], [[3]]]]}


@pytest.mark.parametrize("tied, pp, options", itertools.product([True, False], [1, 2], [{}, DISTRIBUTED]), ids=str)
def test_multi_token_prediction_is_right_where_the_counts_are_those_of_the_main_loss(tied, pp, options):
    content = on({"dp": 2, "pp": pp}, {"mtp_num_layers": 2, "clip_grad": 1, **options}, {**PREDICTION, "tied_embeddings": tied})
    assert check(content)["verdict"] == "match"
    names = [entry["name"] for entry in show(content)["parameters"]]
    assert "mtp.layers.1.eh_proj.weight" in names and "mtp.layers.0.mtp_model_layer.mlp.linear_fc1.weight" in names
    # With a pipeline the last stage has an embedding of its own, and a tied head's weight lies idle.
    assert ("output_layer.weight.unused" in names) == (tied and pp == 2)


def test_the_loss_of_multi_token_prediction_is_divided_by_its_own_tokens():
    layer = [parameter("w", [4], uses=["main", "mtp"])]
    content = on({"dp": 2}, {"mtp_num_layers": 2}, layer, {"micro_batches": 1, "tokens": TOKENS})
    steps = steps_of(content)
    assert steps["backward"]["uses"] == ["main"] and steps["backward_mtp"]["uses"] == ["mtp"]
    assert check(content)["verdict"] == "match"
    per_token = {"mtp_num_layers": 2, "calculate_per_token_loss": True}
    # Today: rescaled by the rank's own counts, right only where they are in proportion. 0.16: not at all.
    found = {}
    for core, by in (("main", "1/20 * tokens / max(tokens.mtp, 1)"), ("0.16", "1/20")):
        content = on({"dp": 2}, {**per_token, "core": core}, layer, {"micro_batches": 1, "tokens": TOKENS})
        assert str(steps_of(content)["backward_mtp"]["by"]).replace(" ", "") == by.replace(" ", "")
        assert check(content)["verdict"] == "mismatch"
        same = {"main": TOKENS["main"], "mtp": [[[[2]], [[3]]]]}
        found[core] = check(on({"dp": 2}, {**per_token, "core": core}, layer, {"micro_batches": 1, "tokens": same}))["verdict"]
    assert found == {"main": "match", "0.16": "mismatch"}


def test_learned_positions_with_multi_token_prediction_drift_apart_over_the_pipeline():
    # The last stage's copy is in no group (read in d98e8a64, which allows it; 0.16 refuses it).
    content = on({"pp": 2}, {"mtp_num_layers": 2}, {**PREDICTION, "position_embedding": "learned"})
    assert wrong(check(content)) == {
        "embedding.position_embeddings.weight", "mtp.embedding.position_embeddings.weight",
    }
    alone = on({}, {"mtp_num_layers": 2}, {**PREDICTION, "position_embedding": "learned"})
    assert check(alone)["verdict"] == "match"


# Embedders that every stage holds.


@pytest.mark.parametrize("virtual_stages", [1, 2])
def test_conditional_embedders_are_summed_over_the_pipeline(virtual_stages):
    model = {**GPT, "conditional_embedder": 24}
    layout = {"pp": 2, "dp": 2, "virtual_stages": virtual_stages}
    content = on(layout, {"has_cond_embedder": True}, model)
    assert check(content)["verdict"] == "match"
    assert wrong(check(on(layout, {}, model))) == {"t_embedder.weight"}
    # With the distributed optimizer the stages cut it differently, and nothing gives it a bucket of its own: #844 again.
    report = check(on(layout, {"has_cond_embedder": True, **DISTRIBUTED}, model))
    assert wrong(report) == {"t_embedder.weight"}
    # And nothing marks its copies for the norm.
    assert counted(check(on(layout, {"has_cond_embedder": True, "clip_grad": 1}, model))) == {"t_embedder.weight": "2"}


# The gradient norm.

MASKS = {
    "grad_norm_shared_embedding": ("rank.pp == 0", {"embedding.word_embeddings.weight": "2", "output_layer.weight": "2"}),
    "grad_norm_replicated": ("rank.tp == 0", {"decoder.final_layernorm.weight": "2"}),
}


@pytest.mark.parametrize("options", [{}, DISTRIBUTED], ids=str)
@pytest.mark.parametrize("step", MASKS)
def test_each_ownership_mask_is_needed(step, options):
    mask, twice = MASKS[step]
    layout = {"tp": 2, "pp": 2, "dp": 2, "cp": 2, "sequence_parallel": True}
    content = on(layout, {**options, "clip_grad": 1}, GPT)
    assert steps_of(content)[step]["count"] == mask
    assert check(content)["verdict"] == "match"
    content["schedule"]["edits"] = [{"set": step, "count": None}]
    found = counted(check(content))
    assert found.items() >= twice.items() and set(found.values()) == {"2"}


@pytest.mark.parametrize("options", [{}, DISTRIBUTED], ids=str)
def test_what_tp_does_not_cut_is_counted_by_the_first_rank_whatever_its_tags(options):
    # `tensor_model_parallel` is set where a layer cuts a parameter, nowhere else.
    model = [parameter("whole", [64]), parameter("norm", [64], tags=["norm"]), parameter("column", [64], shard={"tp": 0})]
    content = on({"tp": 2, "dp": 2}, {**options, "clip_grad": 1}, model)
    assert check(content)["verdict"] == "match"
    content["schedule"]["edits"] = [{"set": "grad_norm_replicated", "count": None}]
    assert counted(check(content)) == {"whole": "2", "norm": "2"}


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("options", [{}, DISTRIBUTED], ids=str)
def test_experts_are_counted_over_their_own_mesh(options, instances):
    if instances > 1 and not options:
        return
    layout = {"tp": 2, "pp": 2, "dp": 4, "ep": 2, "sequence_parallel": True}
    options = {**options, "num_distributed_optimizer_instances": instances, "clip_grad": 1}
    content = on(layout, options, MOE)
    assert check(content)["verdict"] == "match"
    # Left out of the norm, each expert is counted 0 times.
    content["schedule"]["edits"] = [{"drop": "grad_norm_experts"}]
    found = counted(check(content))
    assert set(found.values()) == {"0"} and all("experts" in name for name in found)
    # Counted over the dense model-parallel group alone: the experts of other ep ranks are missing.
    content["schedule"]["edits"] = [{"set": "grad_norm_experts", "over": ["etp", "pp"]}]
    assert set(counted(check(content)).values()) == {"0"}


def test_a_distributed_norm_over_the_model_parallel_group_misses_the_other_slices():
    content = on({"tp": 2, "dp": 2}, {**DISTRIBUTED, "clip_grad": 1}, GPT)
    content["schedule"]["edits"] = [{"set": "grad_norm", "over": ["tp"]}]
    assert "0" in counted(check(content)).values()


def test_without_clipping_there_is_no_norm():
    assert not [name for name in steps_of(on({"tp": 2}, {"clip_grad": 0}, GPT)) if name.startswith("grad_norm")]


# The preset's placements, against the local gradients of a small GPT that was run with tp 2.


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_local_gradients_are_partial_over_tp_where_they_were_measured_to_be(sequence_parallel):
    model = {**GPT, "qk_layernorm": True}
    content = on({"tp": 2, "sequence_parallel": sequence_parallel}, {}, model)
    partial, cut, whole = set(), set(), set()
    for entry in resolved(content)["model"]["parameters"]:
        name = entry["name"].split("layers.0.")[-1]
        (partial if "partial" in entry else cut if "shard" in entry else whole).add(name)
    norms = {f"self_attention.{which}_layernorm.{part}" for which in "qk" for part in ("weight", "bias")}
    expected = set(norms)
    if sequence_parallel:
        expected |= {f"{name}.{part}" for name in ("input_layernorm", "pre_mlp_layernorm") for part in ("weight", "bias")}
        expected |= {"self_attention.linear_proj.bias", "mlp.linear_fc2.bias"}
        expected |= {"decoder.final_layernorm.weight", "decoder.final_layernorm.bias"}
    first = {name for name in partial if not name.startswith("decoder.layers")}
    assert first == expected
    assert {"embedding.word_embeddings.weight", "mlp.linear_fc1.weight", "mlp.linear_fc1.bias", "mlp.linear_fc2.weight",
            "self_attention.linear_qkv.weight", "self_attention.linear_proj.weight"} <= cut
    assert "embedding.position_embeddings.weight" in whole


def test_the_vocabulary_is_padded_to_a_multiple_of_tp_times_the_divisor():
    def rows(tp, divisor):
        shown = show(on({"tp": tp}, {}, {**GPT, "make_vocab_size_divisible_by": divisor}))["parameters"]
        return next(entry["shape"][0] for entry in shown if entry["name"] == "embedding.word_embeddings.weight")

    assert [rows(1, 8), rows(2, 8), rows(4, 8), rows(2, 128)] == [40, 48, 64, 256]


def test_frozen_parameters_are_in_no_buffer_and_no_norm():
    content = on({"dp": 2, "pp": 2}, {**DISTRIBUTED, "clip_grad": 1}, GPT)
    content["schedule"]["edits"] = [{"parameter": ["embedding.*", "output_layer.*"], "frozen": True}]
    assert check(content)["verdict"] == "match"
    shown = show(content)["geometry"]
    assert shown and not [p for found in shown for p in found["parameters"] if "embedding" in p["name"]]


# Right things stay right: combinations drawn at random, the same ones every time.


def random_combination(rng):
    while True:
        tp, cp, dp, pp = (rng.choice([1, 1, 2, 4]) for _ in range(4))
        experts = rng.random() < 0.5
        ep, etp = (rng.choice([1, 2, 4]), rng.choice([tp, 1, 2])) if experts else (1, tp)
        order = rng.choice(["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"])
        if tp * cp * dp * pp > 16 or tp * cp * dp % (ep * etp):
            continue
        # Megatron refuses it otherwise.
        if order.endswith("pp") or pp == 1 or tp * cp == ep * etp:
            break
    edp = tp * cp * dp // (ep * etp)
    distributed, per_token, depths = rng.random() < 0.6, rng.random() < 0.4, rng.choice([0, 0, 1, 2])
    instances = rng.choice([1, 2]) if distributed and dp % 2 == 0 and edp % 2 == 0 else 1
    layout = {"tp": tp, "cp": cp, "dp": dp, "pp": pp, "ep": ep, "etp": etp, "order": order,
              "virtual_stages": rng.choice([1, 2]) if pp > 1 else 1,
              "sequence_parallel": (experts and tp > 1) or rng.random() < 0.5}
    model = {**(MOE if experts else GPT), "layers": 8, "heads": 8, "tied_embeddings": rng.random() < 0.6,
             "position_embedding": "rope" if depths else rng.choice(["rope", "learned"]),
             "normalization": rng.choice(["LayerNorm", "RMSNorm"]), "qk_layernorm": rng.random() < 0.5,
             "swiglu": rng.random() < 0.5, "mtp_num_layers": depths, "first_dense_layers": rng.choice([0, 1]),
             "shared_expert_ffn": 16 if experts and rng.random() < 0.4 else 0,
             "make_vocab_size_divisible_by": rng.choice([8, 128])}
    options = {"use_distributed_optimizer": distributed, "num_distributed_optimizer_instances": instances,
               "overlap_grad_reduce": rng.random() < 0.6, "ddp_bucket_size": rng.choice([0, 200, 1000, 5000]),
               "ddp_pad_buckets_for_high_nccl_busbw": rng.random() < 0.2, "calculate_per_token_loss": per_token,
               "ddp_average_in_collective": not per_token and rng.random() < 0.4, "clip_grad": rng.choice([0, 1]),
               "mtp_num_layers": depths, "force_all_reduce": instances == 1 and rng.random() < 0.2,
               "core": rng.choice(["main", "0.16"]),
               "loss_func": "sum_and_tokens" if per_token or depths else rng.choice(["sum_and_tokens", "mean_over_cp"])}
    return on(layout, options, model, {"micro_batches": rng.choice([1, 2, 3])})


def test_random_combinations_of_options_and_layouts_are_right():
    rng = random.Random(7)
    contents = [random_combination(rng) for _ in range(150)]
    for content, report in zip(contents, replay_all(contents)):
        assert report["verdict"] == "match", (report["errors"], content)
