# SPDX-License-Identifier: Apache-2.0
"""The section "model" of the scenario format."""

import json

from contract_program import (
    W,
    assert_held,
    backward,
    check,
    check_all,
    each,
    form,
    held,
    message,
    messages,
    named,
    owned,
    parameter,
    rank_entries,
    run,
    scenario,
    show,
    step,
    verdicts,
    write,
)

NOTHING = {"steps": [backward()]}


def with_model(model, layout=None):
    return {"lockstep": 1, "layout": layout or {}, "model": model, "batch": {"micro_batches": 1}, "schedule": NOTHING}


def test_a_model_is_a_preset_with_its_sizes_or_at_least_one_parameter_with_unique_names():
    for preset in ("gpt2", "llama", "moe", "llama3-405b"):
        assert len(show(with_model({"preset": preset}))["parameters"]) > 10
    embedding = {"name": "embedding.word_embeddings.weight"}
    small = show(with_model({"preset": "gpt2", "layers": 2, "hidden": 64, "vocab": 100}))["parameters"]
    assert [entry["shape"] for entry in small if entry["name"] == embedding["name"]] == [[100, 64]]
    assert len(small) < len(show(with_model({"preset": "gpt2", "layers": 3, "hidden": 64, "vocab": 100}))["parameters"])
    assert '"llama"' in message(with_model({"preset": "lama"}))
    assert '"layers"' in message(with_model({"preset": "gpt2", "layrs": 2}))
    assert messages(with_model({"parameters": []}))
    assert messages(with_model({}))
    assert '"w"' in message(scenario([backward()], [W, W]))


def test_a_parameter_has_a_name_a_logical_shape_and_a_gradient_dtype_float32_by_default():
    shown = show(
        scenario(
            [backward()],
            [W, parameter("m", [2, 6], dtype="bfloat16", shard={"tp": 1}), parameter("s", [], dtype="float64")],
            {"tp": 2},
        )
    )["parameters"]
    assert [(entry["name"], entry["shape"], entry["dtype"]) for entry in shown] == [
        ("w", [4], "float32"),
        ("m", [2, 6], "bfloat16"),
        ("s", [], "float64"),
    ]
    for key in ("name", "shape"):
        assert f'"{key}"' in message(scenario([backward()], [{k: v for k, v in W.items() if k != key}]))


def test_a_stage_is_an_index_negative_from_the_end_or_all_and_0_by_default():
    stages = {"default": None, "one": 1, "last": -1, "before": -2, "all": "all"}
    parameters = [parameter(name, [4], **({} if stage is None else {"stage": stage})) for name, stage in stages.items()]
    report = check(scenario([backward(), step("sum", "all_reduce", over="pp", params=["all"])], parameters, {"pp": 3}))
    holders = {name: sorted(rank_entries(report, name)) for name in stages}
    assert holders == {"default": [0], "one": [1], "last": [2], "before": [1], "all": [0, 1, 2]}
    for stage in (3, -4):
        assert messages(scenario([backward()], [parameter("w", [4], stage=stage)], {"pp": 3}))


def test_a_chunk_is_a_virtual_stage_on_its_rank_and_0_by_default():
    parameters = [parameter("a", [3]), parameter("b", [3], chunk=1), parameter("c", [3], chunk=0)]
    steps = [backward(), step("scatter", "reduce_scatter", over="dp", reduce="avg", geometry={"kind": "flat"})]
    shown = show(scenario(steps, parameters, {"dp": 2, "virtual_stages": 2}))
    assert [entry["chunk"] for entry in shown["parameters"]] == [0, 1, 0]
    # Chunks are laid out apart: a and c together are 6, b alone is 3, rounded up to 4.
    assert sorted((bucket["chunk"], bucket["end"] - bucket["begin"]) for bucket in shown["geometry"][0]["buckets"]) == [
        (0, 6),
        (1, 4),
    ]


def test_shard_cuts_a_dimension_over_an_axis():
    m = [parameter("m", [4, 6], shard={"tp": 1})]
    report = check(scenario([backward()], m, {"tp": 2}))
    assert owned(report, "m") == {0: [[0, 12]], 1: [[0, 12]]}
    assert_held(report, "m", {0: "g0", 1: "g1"})
    assert report["verdict"] == "match"
    assert messages(scenario([backward()], [parameter("m", [4, 6], shard={"tp": 2})], {"tp": 2}))


def test_each_rank_holds_its_piece():
    # Summing pieces adds elements that have nothing to do with each other.
    m = [parameter("m", [4], shard={"tp": 0})]
    report = check(scenario([backward(), step("wrong", "all_reduce", over="tp")], m, {"tp": 2}))
    assert report["verdict"] == "mismatch"
    assert_held(report, "m", {0: "g0 g1!m", 1: "g0!m g1"})
    # Along dimension 1 as well as along dimension 0.
    m = [parameter("m", [2, 2], shard={"tp": 1})]
    report = check(scenario([backward(), step("wrong", "all_reduce", over="tp")], m, {"tp": 2}))
    assert_held(report, "m", {0: "g0 g1!m", 1: "g0!m g1"})


def test_a_dimension_that_does_not_divide_is_an_error_or_cut_as_torch_chunk_does():
    assert messages(scenario([backward()], [parameter("m", [5], shard={"tp": 0})], {"tp": 4}))
    assert messages(scenario([backward()], [parameter("m", [5], shard={"tp": {"dim": 0}})], {"tp": 4}))
    uneven = {"tp": {"dim": 0, "uneven": True}}
    # torch.chunk: pieces of ceil(5/4) = 2 rows, so 2, 2, 1 and nothing.
    report = check(scenario([backward()], [parameter("m", [5, 3], shard=uneven)], {"tp": 4}))
    assert owned(report, "m") == {0: [[0, 6]], 1: [[0, 6]], 2: [[0, 3]]}
    assert_held(report, "m", {0: "g0", 1: "g1", 2: "g2"})
    assert report["verdict"] == "match"
    # Fewer rows than ranks: one each, then nothing.
    report = check(scenario([backward()], [parameter("m", [2], shard=uneven)], {"tp": 4}))
    assert owned(report, "m") == {0: [[0, 1]], 1: [[0, 1]]}
    # Where it divides, both ways are the same.
    report = check(scenario([backward()], [parameter("m", [8], shard=uneven)], {"tp": 4}))
    assert owned(report, "m") == {rank: [[0, 2]] for rank in range(4)}


def test_where_two_axes_cut_one_dimension_the_first_written_cuts_first():
    # 7 over tp 2: 4 and 3; these over cp 3: 2, 2, 0 and 1, 1, 1. 7 over cp 3: 3, 3, 1; these over tp 2: 2+1, 2+1, 1+0.
    tp, cp = {"tp": {"dim": 0, "uneven": True}}, {"cp": {"dim": 0, "uneven": True}}
    sizes = []
    for shard in ({**tp, **cp}, {**cp, **tp}):
        report = check(scenario([backward()], [parameter("m", [7], shard=shard)], {"tp": 2, "cp": 3}))
        sizes.append([sum(end - begin for begin, end in owned(report, "m").get(rank, [])) for rank in range(6)])
    # Rank = tp + 2 * cp.
    assert sizes == [[2, 1, 2, 1, 0, 1], [2, 1, 2, 1, 1, 0]]


def test_partial_means_that_each_rank_yields_its_own_share_to_be_summed():
    norm = [parameter("n", [4], partial=["tp"])]
    alone, summed, averaged = check_all(
        [
            scenario([backward()], norm, {"tp": 2}),
            scenario([backward(), step("sum", "all_reduce", over="tp")], norm, {"tp": 2}),
            scenario([backward(), step("mean", "all_reduce", over="tp", reduce="avg")], norm, {"tp": 2}),
        ]
    )
    assert [report["verdict"] for report in (alone, summed, averaged)] == ["mismatch", "match", "mismatch"]
    assert_held(alone, "n", {0: "g0", 1: "g1"})
    assert_held(summed, "n", {0: "g0 g1", 1: "g0 g1"})
    assert_held(averaged, "n", {0: "1/2: g0 g1", 1: "1/2: g0 g1"})
    assert [piece["ratio"] for piece in rank_entries(averaged, "n")[0]["pieces"]] == ["1/2"]


def test_no_axis_is_in_both_shard_and_partial():
    text = message(scenario([backward()], [parameter("n", [4], shard={"tp": 0}, partial=["tp"])], {"tp": 2}))
    assert "tp" in text
    # Different axes are: each rank has a share (sp) of its piece (tp).
    report = check(
        scenario(
            [backward(), step("sum", "all_reduce", over="sp")],
            [parameter("n", [4], shard={"tp": 0}, partial=["sp"])],
            {"tp": 2, "sp": 2},
            {"loss": "sum"},
        )
    )
    assert report["verdict"] == "match"
    assert_held(report, "n", {0: "g0 g2", 1: "g1 g3", 2: "g0 g2", 3: "g1 g3"})


EXPERT = parameter("expert", [4, 2], shard={"ep": 0}, dispatch=["ep"], tags=["expert"])


def test_dispatch_sums_the_local_gradient_over_the_tokens_of_the_groups_ranks():
    # ep 2 inside dp 4: groups {0,1} and {2,3}. edp groups {0,2} and {1,3} hold the same experts.
    report = check(scenario([backward()], [EXPERT], {"dp": 4, "ep": 2}))
    assert_held(report, "expert", {0: "g0 g1", 1: "g0 g1", 2: "g2 g3", 3: "g2 g3"})
    right = scenario(
        [backward(), step("sum", "all_reduce", over="edp"), step("mean", "scale", by="1/dp")],
        [EXPERT],
        {"dp": 4, "ep": 2},
    )
    report = check(right)
    assert report["verdict"] == "match"
    assert_held(report, "expert", {rank: "1/4: g0 g1 g2 g3" for rank in range(4)})
    assert messages(scenario([backward()], [parameter("w", [4], dispatch=["tp"])], {"dp": 2}))


def test_tied_parameters_are_one_logical_parameter_with_several_uses_of_equal_shape_and_placement():
    ends = [parameter("word", [4], tied="embedding"), parameter("head", [4], tied="embedding", stage=-1)]
    report = check(scenario([backward(), step("sum", "all_reduce", over={"pp": ["first", "last"]})], ends, {"pp": 2}))
    assert report["verdict"] == "match"
    assert_held(report, "word", {0: "g0 g1@head"})
    assert_held(report, "head", {1: "g0@word g1"})
    assert verdicts(scenario([backward()], ends, {"pp": 2})) == ["mismatch"]
    for change in ({"shape": [5]}, {"shard": {"tp": 0}}, {"partial": ["tp"]}):
        assert messages(scenario([backward()], [ends[0], {**ends[1], **change}], {"pp": 2, "tp": 2}))


def test_uses_name_the_contributions_and_there_is_one_by_default_main():
    two = [parameter("w", [4], uses=["main", "aux"])]
    report = check(scenario([backward()], two))
    assert report["verdict"] == "match"
    assert_held(report, "w", {0: "g0 g0@aux"})
    report = check(scenario([backward()], [parameter("w", [4], uses=["mtp"])]))
    assert_held(report, "w", {0: "g0@mtp"})
    report = check(scenario([backward(uses=["main"])], [W]))
    assert_held(report, "w", {0: "g0"})


def test_micro_batches_and_only_say_in_which_micro_batches_and_on_which_ranks_it_takes_part():
    parameters = [
        parameter("all", [4]),
        parameter("second", [4], micro_batches=[1]),
        parameter("here", [4], only={"dp": [0]}),
        parameter("both", [4], micro_batches=[0], only={"dp": [1]}),
        parameter("never", [4], micro_batches=[]),
    ]
    steps = [backward(), step("sum", "all_reduce", over="dp")]
    report = check(scenario(steps, parameters, {"dp": 2}, {"micro_batches": 2, "loss": "sum"}))
    assert report["verdict"] == "match"
    for name, expected in {
        "all": "g0 g0.1 g1 g1.1",
        "second": "g0.1 g1.1",
        "here": "g0 g0.1",
        "both": "g1",
        "never": "",
    }.items():
        assert_held(report, name, {0: expected, 1: expected})
    # Its gradient is 0 on one device too: anything else there is wrong.
    report = check(
        scenario(
            [backward(), step("noise", "leftover", what="weights", params=["never"])],
            parameters,
            {"dp": 2},
            {"micro_batches": 2, "loss": "sum"},
        )
    )
    assert named(report, "never")["reference"]["formula"] == "0"
    assert named(report, "never")["verdict"] == "mismatch"


def test_micro_batches_are_counted_from_0_in_each_optimizer_step():
    steps = [step("zero", "zero"), backward()]
    report = check(
        scenario(steps, [parameter("w", [4], micro_batches=[1])], batch={"micro_batches": 2, "steps": 2, "loss": "sum"})
    )
    # The second micro-batch of the second step is the fourth of all.
    assert (report["verdict"], report["step"]) == ("match", 1)
    assert_held(report, "w", {0: "g0.3"})


def test_frozen_parameters_have_no_contribution_no_buffer_and_no_norm():
    parameters = [parameter("a", [3]), parameter("ice", [5], frozen=True), parameter("b", [3])]
    steps = [
        backward(),
        step("scatter", "reduce_scatter", over="dp", reduce="avg", geometry={"kind": "flat"}),
        step("norm", "norm", over="dp"),
    ]
    content = scenario(steps, parameters, {"dp": 2})
    report = check(content)
    assert report["verdict"] == "match"
    assert all(not entry["owned"] for entry in rank_entries(report, "ice").values())
    assert held(report, "ice") == {}
    # Not in the flat buffer: 3 + 3 elements cut at 3.
    geometry = show(content)["geometry"][0]
    assert [entry["name"] for entry in geometry["parameters"]] == ["a", "b"]
    assert owned(report, "a") == {0: [[0, 3]]} and owned(report, "b") == {1: [[0, 3]]}


def test_tags_are_words_for_selectors():
    tags = ["norm", "bias", "embedding", "head", "router", "expert", "position", "our_own"]
    parameters = [parameter(f"p{number}", [4], tags=[tag]) for number, tag in enumerate(tags)] + [W]
    for number, tag in enumerate(tags):
        report = check(scenario([backward(), step("twice", "scale", by="2", params=["tag:" + tag])], parameters))
        wrong = [entry["name"] for entry in report["parameters"] if entry["verdict"] == "mismatch"]
        assert wrong == [f"p{number}"]


def test_the_tokens_are_split_by_dp_cp_and_sp():
    report = check(
        scenario(
            [backward(), step("mean", "all_reduce", over=["dp", "cp", "sp"], reduce="avg")],
            layout={"dp": 2, "cp": 2, "sp": 2},
        )
    )
    assert report["verdict"] == "match"
    assert held(report, "w", [5])[5] == form("1/8: g0 g1 g2 g3 g4 g5 g6 g7")
    for axis in ("dp", "cp", "sp"):
        report = check(scenario([backward()], layout={axis: 2}))
        assert report["verdict"] == "mismatch"
        assert_held(report, "w", {0: "g0", 1: "g1"})


def test_on_another_axis_a_parameter_is_replicate_with_one_contribution_named_by_the_lowest_rank():
    report = check(scenario([backward()], layout={"tp": 3}))
    assert report["verdict"] == "match"
    assert_held(report, "w", {0: "g0", 1: "g0", 2: "g0"})
    # Ranks 3 to 5 are the second dp coordinate; the lowest of them is 3.
    report = check(
        scenario([backward(), step("mean", "all_reduce", over="dp", reduce="avg")], layout={"tp": 3, "dp": 2})
    )
    assert report["verdict"] == "match"
    assert_held(report, "w", {rank: "1/2: g0 g3" for rank in range(6)})
    # With tp outside dp the lowest ranks are 0 and 1.
    report = check(
        scenario(
            [backward(), step("mean", "all_reduce", over="dp", reduce="avg")],
            layout={"tp": 2, "dp": 2, "order": "dp-tp-pp"},
        )
    )
    assert_held(report, "w", {rank: "1/2: g0 g1" for rank in range(4)})
    # An all-reduce over it counts the one contribution several times.
    report = check(scenario([backward(), step("sum", "all_reduce", over="tp")], layout={"tp": 3}))
    assert_held(report, "w", {rank: "3: g0" for rank in range(3)})


def test_pp_never_replicates():
    everywhere = [parameter("w", [4], stage="all")]
    alone, summed = check_all(
        [
            scenario([backward()], everywhere, {"pp": 2}),
            scenario([backward(), step("sum", "all_reduce", over="pp")], everywhere, {"pp": 2}),
        ]
    )
    assert [alone["verdict"], summed["verdict"]] == ["mismatch", "match"]
    assert_held(alone, "w", {0: "g0", 1: "g1"})
    assert_held(summed, "w", {0: "g0 g1", 1: "g0 g1"})


def test_with_dispatch_a_contribution_is_named_by_its_source_and_by_is_evaluated_there():
    # Ranks 0 and 1 have 3 and 5 tokens. by = 1/tokens on the rank whose tokens they are: one device wants
    # (3 * g0 + 5 * g1) / 8 of what backward added.
    batch = {"tokens": [[[[3]], [[5]]]]}
    report = check(scenario([backward(by="1/tokens")], [EXPERT], {"dp": 2, "ep": 2}, batch))
    assert report["verdict"] == "mismatch"
    assert_held(report, "expert", {0: "g0 g1", 1: "g0 g1"})
    assert named(report, "expert")["reference"]["formula"] == "(3*g0 + 5*g1)/8"
    # Right where the factor of each source undoes that.
    report = check(
        scenario([backward(by="rank.dp + 1")], [EXPERT], {"dp": 2, "ep": 2}, {"loss": {"weight": "rank.dp + 1"}})
    )
    assert report["verdict"] == "match"
    # Every source rank counts: those that differ in tp only as well (etp 1, ep 2 over tp 2).
    report = check(scenario([backward()], [EXPERT], {"tp": 2, "etp": 1, "ep": 2}, {"loss": "sum"}))
    assert_held(report, "expert", {0: "g0 g1", 1: "g0 g1"})


def test_tied_parameters_on_one_rank_share_one_buffer_in_the_place_of_the_first():
    parameters = [parameter("word", [4], tied="t"), parameter("layer", [4]), parameter("head", [4], tied="t")]
    steps = [backward(), step("scatter", "reduce_scatter", over="dp", reduce="avg", geometry={"kind": "flat"})]
    content = scenario(steps, parameters, {"dp": 2})
    report = check(content)
    assert report["verdict"] == "match"
    # The buffer is word (4), then layer (4): 8, cut at 4.
    assert owned(report, "word") == {0: [[0, 4]]} and owned(report, "layer") == {1: [[0, 4]]}
    assert_held(report, "word", {0: "1/2: g0 g1 g0@head g1@head"})
    assert [entry["name"] for entry in show(content)["geometry"][0]["parameters"]] == ["word", "layer"]


LOST = [parameter("word", [4], tied="t"), parameter("layer", [4]), parameter("head", [4], tied="t", copy="head")]


def wrong(report):
    return [entry["name"] for entry in report["parameters"] if entry["verdict"] == "mismatch"]


def test_copies_of_a_tied_parameter_are_buffers_of_their_own_and_each_must_come_to_the_whole():
    report = check(scenario([backward()], LOST))
    assert report["verdict"] == "mismatch"
    assert wrong(report) == ["word", "head"]
    assert_held(report, "word", {0: "g0"})
    assert_held(report, "head", {0: "g0"})
    assert named(report, "word")["reference"]["formula"] == named(report, "head")["reference"]["formula"] == "g0"
    assert not named(report, "word")["replicas_agree"] and not named(report, "head")["replicas_agree"]
    # Each is cut, owned and gathered by itself.
    scatter = step("scatter", "reduce_scatter", over="dp", geometry={"kind": "flat"})
    report = check(scenario([backward(), scatter], LOST, {"dp": 2}))
    assert [owned(report, name) for name in ("word", "layer", "head")] == [
        {0: [[0, 4]]},
        {0: [[0, 2]], 1: [[2, 4]]},
        {1: [[0, 4]]},
    ]


def test_copies_of_one_name_and_those_without_share_a_buffer_on_a_rank():
    names = ("a", "b", "c", "d")
    parameters = [parameter(name, [4], tied="t") for name in names]
    for each in parameters[2:]:
        each["copy"] = "second"
    report = check(scenario([backward()], parameters))
    assert wrong(report) == ["a", "c"]
    assert_held(report, "a", {0: "g0 g0@b"})
    assert_held(report, "c", {0: "g0 g0@d"})
    for each in parameters:
        each["copy"] = "second"
    assert verdicts(scenario([backward()], parameters)) == ["match"]


def test_copies_on_different_ranks_are_summed_like_any_tied_ones():
    ends = [parameter("word", [4], tied="t"), parameter("head", [4], tied="t", copy="head", stage=-1)]
    report = check(scenario([backward(), step("sum", "all_reduce", over={"pp": ["first", "last"]})], ends, {"pp": 2}))
    assert report["verdict"] == "match"
    assert_held(report, "word", {0: "g0 g1@head"})
    assert_held(report, "head", {1: "g0@word g1"})
    # Nor is what another copy's buffer brings foreign on the same ranks.
    both = [
        step("there", "all_reduce", over="dp", params=["word"], only={"dp": 0}),
        step("here", "all_reduce", over="dp", params=["head"], only={"dp": 1}),
    ]
    report = check(scenario([backward(), *both], [LOST[0], LOST[2]], {"dp": 2}))
    assert_held(report, "word", {0: "g0 g1@head", 1: "g1"})
    assert_held(report, "head", {0: "g0", 1: "g0@word g1"})


def test_a_copy_is_one_of_a_tied_group_of_at_most_100():
    assert messages(scenario([backward()], [parameter("w", [4], copy="head")]))
    many = [parameter(f"p{number}", [1], tied="t", copy=str(number)) for number in range(101)]
    assert messages(scenario([backward()], many))
    assert verdicts(scenario([backward()], many[:100])) == ["mismatch"]


def test_neither_prove_nor_the_transformer_engine_follows_copies():
    content = scenario([backward(), step("mean", "all_reduce", over="dp")], LOST, {"dp": "any"})
    process = run("prove", write(content))
    # At one size it is replayed, and no proof follows.
    assert process.returncode == 1 and process.stdout.startswith("wrong"), process.stdout
    assert "wrong at dp = 1; no proof for every size" in process.stdout and "several copies" in process.stdout
    preset = {"preset": "gpt2", "layers": 1, "hidden": 8, "heads": 2, "vocab": 16, "positions": 8, "edits": []}
    content = with_model(preset)
    content["schedule"] = {**NOTHING, "edits": [{"parameter": "output_layer.weight", "copy": "head"}]}
    assert "several copies" in message(content)


def test_what_ties_copies_again_is_said_with_what_comes_of_it():
    report = check(scenario([backward()], LOST))
    note = next(note for note in report["notes"] if "copies" in note)
    assert "t (word, head)" in note and '{ "parameter": "head", "copy": null }' in note
    assert note.endswith("they are one again, and the schedule is right.")
    # It may not be all that is wrong.
    report = check(scenario([backward()], LOST, {"dp": 2}))
    assert next(note for note in report["notes"] if "copies" in note).endswith("is not right either.")
    # What is wrong with others is not theirs.
    more = [*LOST[:2], parameter("head", [4], tied="t", copy="head", stage=-1)]
    steps = [backward(), step("sum", "all_reduce", over="pp", params=["tied:t"]), step("half", "scale", by="1/2", params=["layer"])]
    report = check(scenario(steps, more, {"pp": 2}))
    assert wrong(report) == ["layer"] and not any("copies" in note for note in report.get("notes", []))
    process = run("repair", "--format", "json", write(scenario([backward()], LOST)))
    assert process.returncode == 1 and "they are one again" in json.loads(process.stdout)["lost_ties"]
    # A pattern in a name selects no other parameter.
    named = [dict(one, name="head[0]") if one["name"] == "head" else one for one in LOST]
    note = next(note for note in check(scenario([backward()], named))["notes"] if "copies" in note)
    assert '{ "parameter": "head[[]0]", "copy": null }' in note and note.endswith("the schedule is right.")


def test_copies_on_different_stages_are_no_lost_tie():
    both = [parameter("word", [4], tied="t", copy="word", stage=0), parameter("head", [4], tied="t", copy="head", stage=-1)]
    report = check(scenario([backward(), step("half", "scale", by="1/2")], both, {"pp": 2}))
    assert report["verdict"] == "mismatch" and not any("copies" in note for note in report.get("notes", []))
