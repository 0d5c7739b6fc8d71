# SPDX-License-Identifier: Apache-2.0
"""`lockstep show --format json` against what Megatron-core builds (data/README.md)."""

import json
from pathlib import Path

import pytest

from contract_program import W, backward, check, message, messages, parameter, scenario, show, step, verdicts

DATA = Path(__file__).parent / "data"
GROUPS = json.loads((DATA / "megatron-groups.json").read_text())
GEOMETRY = json.loads((DATA / "megatron-geometry.json").read_text())

# Megatron's name of a group, and the `over` that means it.
OVER = {
    "DATA_PARALLEL_GROUP_WITH_CP": ["dp", "cp"],
    "DATA_PARALLEL_GROUP": "dp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "MODEL_PARALLEL_GROUP": ["tp", "pp"],
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "EMBEDDING_GROUP": {"pp": ["first", "last"]},
    "POSITION_EMBEDDING_GROUP": {"pp": ["first"]},
    "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": ["tp", "dp", "cp"],
    "TENSOR_AND_DATA_PARALLEL_GROUP": ["tp", "dp"],
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": ["tp", "cp"],
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_PARALLEL_GROUP": "etp",
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": ["etp", "ep"],
    "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP": ["etp", "ep", "pp"],
    "EXPERT_DATA_PARALLEL_GROUP": "edp",
    # Instances of the distributed optimizer are dp_replicate.
    "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP": ["dp_shard", "cp"],
    "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP": ["tp", "dp_shard", "cp", "pp"],
    "rank0: intra_dp_cp": ["dp_shard", "cp"],
    "rank0: inter_dist_opt_instance": "dp_replicate",
    "rank0: intra_dist_opt_instance": ["tp", "dp_shard", "cp", "pp"],
}
AXES = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "DATA_PARALLEL_GROUP": "dp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_PARALLEL_GROUP": "etp",
    "EXPERT_DATA_PARALLEL_GROUP": "edp",
}


def layout_of(measured):
    """The scenario's layout; etp is tp in Megatron where it is not given."""
    layout = {key: measured[key] for key in ("tp", "cp", "pp", "ep", "order") if key in measured}
    layout["dp"] = measured["world"] // (measured.get("tp", 1) * measured.get("cp", 1) * measured.get("pp", 1))
    layout["etp"] = measured.get("etp", measured.get("tp", 1))
    if "instances" in measured:
        layout["dp_replicate"] = measured["instances"]
    if "vpp" in measured:
        layout["virtual_stages"] = measured["vpp"]
    return layout


def pieces_of(measured):
    """{group: the steps whose groups together are it} for those that split an axis in two levels."""
    result = {}
    if "hierarchical_cp" in measured:
        inner, outer = measured["hierarchical_cp"]
        result["HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0"] = [
            {"cp": [inner * o + i for i in range(inner)]} for o in range(outer)
        ]
        result["HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L1"] = [
            {"cp": [inner * o + i for o in range(outer)]} for i in range(inner)
        ]
    if "instances" in measured:
        edp = measured["world"] // (measured.get("etp", 1) * measured.get("ep", 1) * measured.get("pp", 1))
        outer, inner = measured["instances"], edp // measured["instances"]
        result["HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L0"] = [
            {"edp": [inner * o + i for i in range(inner)]} for o in range(outer)
        ]
        result["HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L1"] = [
            {"edp": [inner * o + i for o in range(outer)]} for i in range(inner)
        ]
        result["rank0: intra_expert_dp"] = result["HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L0"][:1]
    return result


def name_of(entry):
    return " ".join(f"{key}={value}" for key, value in entry["layout"].items())


@pytest.mark.parametrize("entry", [entry for entry in GROUPS if "error" not in entry], ids=name_of)
def test_every_process_group_is_that_of_megatron(entry):
    measured = entry["layout"]
    split = pieces_of(measured)
    steps, of = [backward()], {}
    for number, name in enumerate(entry["groups"]):
        of[name] = []
        for piece, over in enumerate(split.get(name) or [OVER[name]]):
            of[name].append(f"group_{number}_{piece}")
            steps.append(step(of[name][-1], "all_to_all", over=over))
    shown = show(scenario(steps, layout=layout_of(measured)))
    assert shown["layout"]["world"] == measured["world"]
    for name, expected in entry["groups"].items():
        found = [group for part in of[name] for group in shown["groups"]["steps"][part]]
        if name.startswith("rank0"):
            found = [group for group in found if 0 in group]
        assert sorted(found) == sorted(map(sorted, expected)), name
        if name in AXES:
            assert sorted(shown["groups"]["axes"][AXES[name]]) == sorted(expected), name


REFUSED = {name_of(entry): entry for entry in GROUPS if "error" in entry}


def test_every_layout_that_megatron_refuses_is_refused():
    assert sorted(REFUSED) == sorted(
        [
            "world=32 tp=2 pp=2 cp=2 order=tp-cp-ep-pp-dp",
            "world=16 tp=2 cp=2 order=tp-dp-pp",
            "world=8 pp=1 vpp=2",
            "world=16 tp=2 pp=2 instances=3",
        ]
    )
    layouts = {name: layout_of(entry["layout"]) for name, entry in REFUSED.items()}
    # Both meshes need the same pipeline groups: where the expert mesh is used.
    meshes = layouts["world=32 tp=2 pp=2 cp=2 order=tp-cp-ep-pp-dp"]
    assert "pipeline" in message(scenario([backward(), step("experts", "all_reduce", over="edp")], layout=meshes))
    # The order leaves out an axis of size 2.
    assert "cp" in message(scenario([backward()], layout=layouts["world=16 tp=2 cp=2 order=tp-dp-pp"]))
    # Virtual stages without a pipeline: Megatron's own rule.
    interleaved = scenario([], layout=layouts["world=8 pp=1 vpp=2"])
    interleaved["schedule"] = {"framework": "megatron"}
    assert "pp" in message(interleaved)
    # 4 dp ranks in 3 instances.
    text = message(scenario([backward()], [W], layouts["world=16 tp=2 pp=2 instances=3"]))
    assert "4" in text and "3" in text


def geometry_of(entry):
    distributed = entry["distributed_optimizer"]
    geometry = {
        "kind": "bucket",
        "align_parameter": 64 if distributed else 1,
        "align_bucket": "lcm(n, 128)" if distributed else 1,
        "separate": entry["shared"] if distributed else [],
    }
    if entry["pad_buckets_for_high_nccl_busbw"]:
        geometry["align_bucket"] = "lcm(n, 128, 65536)"
    if entry["bucket_size"] is not None:
        geometry["size"] = entry["bucket_size"]
    return geometry


def assert_geometry(shown, entry):
    (found,) = shown
    parameters = {item["name"]: item for item in found["parameters"]}
    assert {name: [item["begin"], item["end"], item["bucket"]] for name, item in parameters.items()} == entry["params"]
    assert [[bucket["begin"], bucket["end"]] for bucket in found["buckets"]] == [
        [bucket["begin"], bucket["end"]] for bucket in entry["buckets"]
    ]
    assert found["buckets"][-1]["end"] == entry["numel"]
    for number, bucket in enumerate(entry["buckets"]):
        inside = [item for item in found["parameters"] if item["bucket"] == number]
        assert {
            item["name"]: [item["begin"] - bucket["begin"], item["end"] - bucket["begin"]] for item in inside
        } == bucket["param_to_index"]
    if "ranks" not in entry:
        return
    for rank, buckets in enumerate(entry["ranks"]):
        expected = {name: place["param"] for bucket in buckets for name, place in bucket.items()}
        mine = {
            name: item["slices"][rank]
            for name, item in parameters.items()
            if item["slices"][rank][0] < item["slices"][rank][1]
        }
        assert mine == expected, rank


def case_of(entry):
    return (
        "-".join(str(entry[key]) for key in ("list", "dp", "bucket_size"))
        + ("-do" if entry["distributed_optimizer"] else "")
        + ("-high" if entry["pad_buckets_for_high_nccl_busbw"] else "")
    )


@pytest.mark.parametrize("entry", GEOMETRY, ids=case_of)
def test_every_buffer_is_laid_out_and_cut_as_by_megatron(entry):
    parameters = [parameter(name, [size]) for name, size in entry["sizes"]]
    content = scenario(
        [backward(), step("scatter", "reduce_scatter", over="dp", reduce="avg", geometry=geometry_of(entry))],
        parameters,
        {"dp": entry["dp"]},
    )
    assert_geometry(show(content)["geometry"], entry)


@pytest.mark.parametrize("entry", [entry for entry in GEOMETRY if entry["distributed_optimizer"]], ids=case_of)
def test_the_schedule_of_megatron_cuts_so_with_megatrons_options(entry):
    # A shared embedding has a bucket of its own where there is a pipeline; its first stage is the one measured.
    layout = {"dp": entry["dp"], "pp": 2 if entry["shared"] else 1}
    parameters = [
        parameter(name, [size], **({"tied": "word_embeddings"} if name in entry["shared"] else {}))
        for name, size in entry["sizes"]
    ]
    content = scenario([], parameters, layout)
    content["schedule"] = {
        "framework": "megatron",
        "options": {
            "use_distributed_optimizer": True,
            "clip_grad": 0,
            "overlap_grad_reduce": entry["bucket_size"] is not None,
            "ddp_bucket_size": entry["bucket_size"] or 0,
            "ddp_pad_buckets_for_high_nccl_busbw": entry["pad_buckets_for_high_nccl_busbw"],
        },
    }
    assert_geometry([found for found in show(content)["geometry"] if found["step"] == "dp_reduce_scatter"], entry)


def test_what_is_shown_is_what_the_engine_cuts():
    entry = next(entry for entry in GEOMETRY if case_of(entry) == "first_stage-3-100-do")
    parameters = [parameter(name, [size]) for name, size in entry["sizes"]]
    content = scenario(
        [backward(), step("scatter", "reduce_scatter", over="dp", reduce="avg", geometry=geometry_of(entry))],
        parameters,
        {"dp": 3},
    )
    report = check(content)
    assert report["verdict"] == "match"
    found = {
        (listed["name"], rank): item["owned"]
        for listed in report["parameters"]
        for item in listed["ranks"]
        for rank in item.get("ranks", [item.get("rank")])
        if item["owned"]
    }
    assert found == {
        (name, rank): [place["param"]]
        for rank, buckets in enumerate(entry["ranks"])
        for bucket in buckets
        for name, place in bucket.items()
    }


def test_the_data_is_whole():
    assert (len(GROUPS), len(GEOMETRY)) == (15, 60)
    assert sum(len(entry.get("groups") or {}) for entry in GROUPS) == 17 * 8 + 19 + 24 * 2
    assert verdicts(scenario([backward()])) == ["match"] and messages(scenario([backward()], layout={"dp": 0}))
