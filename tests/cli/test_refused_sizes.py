# SPDX-License-Identifier: Apache-2.0
"""Which sizes of an axis `prove` calls refused, against `check` at each size up to 70; and none is refused silently."""

import json
from pathlib import Path

import pytest

BACKWARD = {"name": "m", "op": "each", "steps": [{"name": "b", "op": "backward"}]}
REDUCE = {"name": "r", "op": "all_reduce", "over": "dp"}
GPT2 = {"preset": "gpt2", "layers": 6, "hidden": 16, "heads": 4, "vocab": 50, "positions": 8, "make_vocab_size_divisible_by": 8}


def scenario(steps=(), edits=(), model=None, layout=None):
    return {
        "lockstep": 1,
        "layout": layout or {"dp": 2},
        "model": model or {"parameters": [{"name": "w", "shape": [4]}]},
        "batch": {"micro_batches": 1, "tokens": "even", "loss": "sum"},
        "schedule": {"steps": [BACKWARD, REDUCE, *steps], "edits": list(edits)},
    }


def cut(extent, **keys):
    return {"name": "w", "shape": [extent], "shard": {"tp": 0}, **keys}


@pytest.fixture
def proof(run, files):
    def ask(document):
        (files / "a.json").write_text(json.dumps(document))
        return json.loads(run("prove", "--open", "all", "-f", "json", "a.json").stdout)

    return ask


@pytest.fixture
def refused_by_check(run, files):
    """The sizes of an axis up to 70 that `check` refuses, beside the file's own of the others."""

    def ask(document, axis):
        names = []
        for size in range(1, 71):
            name = f"{axis}{size}.json"
            (files / name).write_text(json.dumps({**document, "layout": {**document["layout"], axis: size}}))
            names.append(name)
        lines = run("check", "-q", "--no-blame", "--engine", "symbolic", *names).stdout.splitlines()
        verdicts = {line.split()[1]: line.split()[0] for line in lines if line.split()[1:] and line.split()[1] in names}
        assert verdicts.keys() == set(names)
        return [size for size in range(1, 71) if verdicts[f"{axis}{size}.json"] == "error"]

    return ask


def listed(proof, axis):
    [refused] = [one for one in proof["refused"] if one["axis"] == axis] or [{"sizes": []}]
    return [size for size in range(1, 71) if size in refused["sizes"] or size >= refused.get("from", 71)]


def once(coordinate, **keys):
    return {"name": "s", "op": "scale", "by": "1", "only": {"dp": [coordinate]}, **keys}


@pytest.mark.parametrize(
    "document, axis",
    [
        (scenario([once(4)], layout={"dp": 8}), "dp"),
        (scenario(model={"parameters": [cut(24)]}, layout={"tp": 2, "dp": 2}), "tp"),
        (scenario(model={"parameters": [cut(64), {"name": "v", "shape": [48], "shard": {"tp": 0}}]}, layout={"tp": 2, "dp": 2}), "tp"),
        # What edits take away refuses nothing.
        (scenario([once(4)], [{"drop": "s"}]), "dp"),
        (scenario([once(4)], [{"set": "s", "only": None}]), "dp"),
        (scenario([once(4, only={})], [{"set": "s", "only": {"dp": [4]}}, {"set": "s", "only": None}]), "dp"),
        (scenario([], [{"insert": once(4), "after": "r"}, {"drop": "s"}]), "dp"),
        (scenario([], [{"insert": once(4), "after": "r"}], layout={"dp": 8}), "dp"),
        (scenario([{"name": "g", "op": "each", "steps": [once(1)]}], [{"set": "s", "only": {"dp": [4]}}, {"drop": "g"}]), "dp"),
        (scenario([{"name": "g", "op": "each", "steps": [once(1)]}], [{"insert": {**once(4), "name": "t"}, "after": "s"}, {"drop": "g"}]), "dp"),
        (scenario([{"name": "g", "op": "each", "steps": [once(1)]}],
                  [{"insert": {**once(4), "name": "t"}, "after": "s"}, {"set": "g", "steps": [once(0, only={})]}]), "dp"),
        (scenario(edits=[{"parameter": "w", "stage": 3}, {"parameter": "w", "stage": 0}], layout={"dp": 2, "pp": 1}), "pp"),
        (scenario(edits=[{"parameter": "w", "shard": None}], model={"parameters": [cut(7)]}, layout={"tp": 2, "dp": 2}), "tp"),
    ],
)
def test_the_sizes_that_are_refused_alone_are_those_that_check_refuses(proof, refused_by_check, document, axis):
    assert listed(proof(document), axis) == refused_by_check(document, axis)


@pytest.mark.parametrize(
    "layout, refused",
    [
        ({"dp": 6, "ep": 6}, [size for size in range(1, 65) if size % 6]),
        ({"dp": 4, "ep": 2, "etp": 2, "order": "pp-tp-ep-dp"}, [size for size in range(1, 65) if size % 4]),
        ({"dp_shard": 3, "dp_replicate": 2, "ep": 3}, [{"dp_shard": 1, "dp_replicate": 1}]),
    ],
)
def test_a_size_of_the_expert_mesh_that_no_parameter_uses_has_to_divide_the_ranks(proof, refused_by_check, layout, refused):
    """These were refused without a word: only the layout says so, and no rule of a file."""
    document = scenario(layout=layout)
    document["schedule"]["steps"][1]["over"] = ["dp"]
    said = proof(document)
    if "dp" in layout:
        assert listed(said, "dp")[: len(refused)] == refused == [size for size in refused_by_check(document, "dp") if size < 65]
    else:
        assert [one["sizes"] for one in said["refused_together"]] == refused
    assert "the expert mesh needs etp * ep * pp = " in (said["refused"] + said["refused_together"])[0]["why"]


def test_a_layer_for_each_stage(run, files):
    """pp 7 was listed, and pp 8 was not: it was taken for a size that is allowed, and right."""
    document = {"lockstep": 1, "layout": {"pp": 3}, "model": GPT2, "batch": {"micro_batches": 2}, "schedule": {"framework": "megatron"}}
    (files / "a.json").write_text(json.dumps(document))
    said = run("prove", "--open", "all", "a.json").stdout
    assert "  tp 3 and tp ≥ 5 are refused: tp 3: " in said
    assert "  pp ≥ 7 is refused: pp 7: 6 layers cannot fill pp * virtual_stages = 7 * 1 stages: some would be empty.\n" in said


def test_what_the_shapes_of_a_model_file_refuse_is_told(run, files, proof):
    parameters = [{"name": "w", "shape": ["8"], "shard": {"tp": 0}}]
    (files / "m.jsonc").write_text(json.dumps({"lockstep_model": 1, "name": "m", "sizes": {}, "parameters": parameters}))
    document = scenario(model={"preset": "./m.jsonc"}, layout={"tp": 2, "dp": 2})
    [beside] = proof(document)["refused_beside"]
    assert (beside["axis"], beside["sizes"], beside["tried"]) == ("tp", [3, 5, 6, 7], 8)
    assert "  tp 3, 5-7 are refused beside the other sizes that were tried, and larger ones may be: tp 3: " in run("prove", "--open", "all", "a.json").stdout
    # All that were tried are allowed, and others need not be.
    parameters[0]["shape"] = ["840"]
    (files / "m.jsonc").write_text(json.dumps({"lockstep_model": 1, "name": "m", "sizes": {}, "parameters": parameters}))
    [beside] = proof(document)["refused_beside"]
    assert (beside["axis"], beside["sizes"]) == ("tp", [])
    assert f'  sizes of tp above {beside["tried"]} may be refused: the model file cuts "w" over it\n' in run("prove", "--open", "all", "a.json").stdout
    parameters[0]["shard"] = {}
    (files / "m.jsonc").write_text(json.dumps({"lockstep_model": 1, "name": "m", "sizes": {}, "parameters": parameters}))
    assert proof(document)["refused_beside"] == []


def test_a_rule_that_cannot_hold_beside_experts_is_not_told(run):
    file = Path(__file__).resolve().parents[2] / "scenarios/megatron/5916-experts-not-marked-tensor-parallel-fixed.json"
    told = run("prove", file).stdout
    assert told.startswith("proved") and "ep, edp" in told and "dp_replicate" not in told
