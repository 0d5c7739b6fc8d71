# SPDX-License-Identifier: Apache-2.0
"""The capture of Megatron-core, whose own code runs in megatron_worker.py: right runs are recognized as right, and real bugs, put in by a line
or a flag, by their formulas. The table of docs/pytest.md is what comes out; where the corpus has a scenario for it, `lockstep check`
predicts the same.
`LOCKSTEP_BINARY=… python3 tests/python/test_megatron.py` writes the table's last columns anew. Needs megatron-core beside torch
(LOCKSTEP_MEGATRON_PYTHON may name another Python).
"""

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from math import prod
from pathlib import Path

import pytest

import torch_ranks
from torch_ranks import HERE, IS_NIGHTLY, PROGRAM, nightly, nightly_but, ran, read_run

sys.path.insert(0, str(HERE.parents[1] / "python"))

from lockstep import verify

from recorded_runs import predicts_what_was_measured, program
from test_bugs import SCENARIO, same
from test_frameworks import python_with

PYTHON = python_with("megatron")
pytestmark = pytest.mark.skipif(PYTHON is None, reason="no Python with torch and megatron-core (LOCKSTEP_MEGATRON_PYTHON names one)")

DOCUMENT = HERE.parents[1] / "docs" / "pytest.md"
# | case | what is wrong | parameter | rank | what its optimizer gets | what verify says |
ROW = re.compile(r"^\| `(?P<case>megatron-[\w-]+)` \| (?P<bug>.*?) \| `(?P<parameter>[\w.]+)` \| (?P<rank>\d) \| `(?P<formula>.*?)`"
                 r" \| (?P<said>.*?) \|$", re.MULTILINE)
ROWS = {row["case"]: row for row in ROW.finditer(DOCUMENT.read_text(encoding="utf-8"))}
CASE = re.compile(r'^case\("([\w-]+)", (\d)', re.MULTILINE)
WORLDS = {name: int(world) for name, world in CASE.findall((HERE / "megatron_worker.py").read_text())}


RECORDED = [
    "megatron-pp-right",
    "megatron-tied",
    "megatron-interleaved-right",
    "megatron-sp-gated-right",
    "megatron-right",
    "megatron-distributed-right",
    "megatron-overlap-right",
    "megatron-average-right",
    "megatron-bf16-right",
    "megatron-bf16-distributed-right",
    "megatron-fused-right",
    "megatron-recompute-right",
    "megatron-tokens-right",
    "megatron-never",
    "megatron-average",
    "megatron-zeroed",
    "megatron-early",
    "megatron-every",
    "megatron-tokens",
    "megatron-sp-right",
    "megatron-norm",
    "megatron-norm-average",
    "megatron-flag",
    "megatron-tp-dp-right",
    "megatron-pp-distributed-right",
    "megatron-844",
    "megatron-cp-right",
    "megatron-cp-tokens",
    "megatron-cp-scale",
    "megatron-ep-right",
    "megatron-ep-dp-right",
]


# What runs with every change.
SHORT = ["megatron-844", "megatron-tied", "megatron-pp-right", "megatron-norm", "megatron-tp-dp-right"]


def runs(folder, cases=WORLDS):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_ranks, "torch_python", lambda: PYTHON)
        for world in sorted({WORLDS[name] for name in cases}):
            ran(folder, world, [name for name in cases if WORLDS[name] == world] + ["refused"] * (world == 2), "megatron_worker.py")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return runs(tmp_path_factory.mktemp("megatron"), WORLDS if IS_NIGHTLY else SHORT)


def measured(folder, case, parameter, rank):
    """The verification; what the rank's optimizer gets of the parameter in the first step, of its pieces one that is not right; and the words."""
    for error in sorted(folder.glob(f"{case}.error-*")):
        pytest.fail(error.read_text())
    verification = verify(folder / case, program=PROGRAM)
    results = [one for one in verification.report["results"] if one["parameter"] == parameter and rank in one["ranks"] and one["step"] == 0]
    assert results, f"rank {rank} gets nothing of {parameter}"
    chosen = sorted(results, key=lambda one: one["verdict"] == "right")[0]
    found = [one for one in verification.findings if chosen["parameter"] in one["parameters"] and rank in one["ranks"]]
    return verification, chosen["formula"], found[0]["what"] if found else "match"


def test_the_table_has_every_case():
    assert ROWS.keys() == WORLDS.keys()
    assert sum(not case.endswith("right") for case in ROWS) >= 10


@pytest.mark.parametrize("case", nightly_but(ROWS, SHORT))
def test_the_run_is_recognized(folder, case):
    row = ROWS[case]
    verification, formula, said = measured(folder, case, row["parameter"], int(row["rank"]))
    assert same(formula, row["formula"]) and said == row["said"], (formula, said)
    assert verification.ok == case.endswith("right") and verification.verdict == ("match" if verification.ok else "mismatch")
    assert verification.report["complete"] and verification.report["counts"]["undecided"] == 0 and not verification.report["collectives"]


@pytest.mark.parametrize("case", nightly_but(["pp-right", "interleaved-right", "recompute-right", "fused-right", "tokens-right"], ["pp-right"]))
def test_each_pass_belongs_to_its_micro_batch(folder, case):
    """Under pipelines forward passes come before backward passes of earlier micro-batches; chunks, and what is computed again, have passes
    of their own."""
    for rank in read_run(folder / ("megatron-" + case)):
        steps = rank["events"]["step"]
        assert [step["micro_batches"] for step in steps] == [2, 2]
        passes = defaultdict(list)
        for line in rank["events"]["contribution"]:
            passes[line["step"], line["parameter"], line["piece"]].append(line["micro_batch"])
        assert passes and all(found == [0, 1] for found in passes.values())
    assert case != "tokens-right" or [step["tokens"] for step in steps] == [[2, 10], [2, 10]]


def test_pieces_cover_each_parameter_once_and_have_one_owner(folder):
    ranks = read_run(folder / "megatron-tp-dp-right")
    assert all(rank["mesh"] == {"axes": ["dp", "tp"], "sizes": [2, 2], "ranks": [0, 1, 2, 3]} for rank in ranks)
    replicated = {"layernorm", "position_embeddings", "linear_proj.bias", "linear_fc2.bias"}
    for parameter in ranks[0]["events"]["parameter"]:
        boxes = [piece.get("box") or piece["range"] for piece in parameter["pieces"]]
        sizes = [prod(end - first for first, end in box) if isinstance(box[0], list) else box[1] - box[0] for box in boxes]
        assert sum(sizes) == prod(parameter["shape"])
        owners = Counter(line["piece"] for rank in ranks for line in rank["events"]["result"]
                         if (line["step"], line["parameter"]) == (0, parameter["id"]))
        tp = 2 if any(name in parameter["name"] for name in replicated) else 1
        assert owners == {number: tp for number in range(len(sizes))}, parameter["name"]
    assert any("box" in piece for parameter in ranks[0]["events"]["parameter"] for piece in parameter["pieces"])


def test_what_cannot_be_captured_is_refused_in_a_sentence(folder):
    for error in sorted(folder.glob("refused.error-*")):
        pytest.fail(error.read_text())


@pytest.mark.parametrize("case", [case for case, row in ROWS.items() if SCENARIO.search(row["bug"])])
def test_check_predicts_what_was_measured(case):
    """The scenario of the corpus has the same layout and micro-batches."""
    row = ROWS[case]
    done = subprocess.run([PROGRAM, "check", "-f", "json", SCENARIO.search(row["bug"])[1]], cwd=HERE.parents[1], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)
    report = json.loads(done.stdout)
    if case.endswith("right"):
        assert report["verdict"] == "match"
        return
    pieces = [piece for parameter in report["parameters"] for held in parameter["ranks"] for piece in held["pieces"]
              if int(row["rank"]) in held.get("ranks", [held.get("rank")])]
    assert {piece["formula"] for piece in pieces if piece["verdict"] != "match"} == {row["formula"]}


@pytest.mark.parametrize("case", nightly_but(RECORDED, SHORT))
def test_check_predicts_the_same_for_the_recorded_schedule(folder, tmp_path, case):
    predicts_what_was_measured(folder / case, tmp_path, right=case.endswith("right"))


@nightly
def test_chunks_of_a_stage_are_virtual_stages(folder, tmp_path):
    scenario = json.loads(program("record", folder / "megatron-interleaved-right").stdout)
    assert scenario["layout"]["virtual_stages"] == 2
    chunks = {parameter["name"]: (parameter["stage"], parameter.get("chunk", 0)) for parameter in scenario["model"]["parameters"]}
    assert [chunks["decoder.layers.%d.mlp.linear_fc1.weight" % layer] for layer in range(4)] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert chunks["embedding.word_embeddings.weight"] == (0, 0) and chunks["output_layer.weight"] == (1, 1)


@pytest.mark.parametrize("case, step, repair", [
    ("megatron-tied", "pp_all_reduce", "tied:embedding.word_embeddings.weight"),
    pytest.param("megatron-cp-tokens", "token_count_scale", "1 / sum(tokens, cp, micro_batch)", marks=nightly),
    pytest.param("megatron-ep-factor", "edp_all_reduce/param_and_grad_buffer.py", "1 / ep", marks=nightly),
    pytest.param("megatron-ep-dense", "dp_all_reduce/param_and_grad_buffer.py", "!shard:ep", marks=nightly),
])
def test_verify_names_the_step_at_fault_and_a_repair(folder, case, step, repair):
    report = verify(folder / case, program=PROGRAM).report
    assert report["not_blamed"] is None and [blame["step"].split(":")[0] for blame in report["blame"]] == [step]
    assert repair in json.dumps(report["repair"])


OLDER = """
import sys, types
import torch
sys.path.insert(0, sys.argv[1])
from lockstep.adapters.megatron import Megatron, is_precision_aware

told = []
adapter = types.SimpleNamespace(has_computed_loss=lambda model, seen: told.append((model, [len(one) for one in seen])))


def original(forward_step_func, data_iterator, model, *arguments):  # as of 0.8, where it computes the loss as well
    output, loss = forward_step_func(data_iterator, model)
    return loss(output)[0] if arguments[0] else output


step = Megatron.around_forward(adapter, original)
assert step(lambda data, model: (3, lambda output: (output + 1, 8, {})), iter(()), "model", True) == 4
assert step(lambda data, model: (3, lambda output: (output + 1, 8, {})), iter(()), "model", False) == 3  # not the last stage
assert step(lambda data, model: (3, None), iter(()), "model", False) == 3
assert told == [("model", [3]), ("model", []), ("model", [])], told
assert not is_precision_aware(types.SimpleNamespace())  # 0.10
assert is_precision_aware(types.SimpleNamespace(use_precision_aware_optimizer=True))  # 0.12
assert not is_precision_aware(types.SimpleNamespace(use_precision_aware_optimizer=True, use_precision_aware_optimizer_no_fp8_or_ds_fp8=False))
"""


def test_the_loss_of_releases_before_0_14_is_seen_within_the_forward_step():
    done = subprocess.run([PYTHON, "-c", OLDER, str(HERE.parents[1] / "python")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def main():
    text = DOCUMENT.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        runs(Path(folder))
        for case, row in ROWS.items():
            _, formula, said = measured(Path(folder), case, row["parameter"], int(row["rank"]))
            text = text.replace(row[0], f"| `{case}` | {row['bug']} | `{row['parameter']}` | {row['rank']} | `{formula}` | {said} |")
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
