# SPDX-License-Identifier: Apache-2.0
"""docs/gpu.md's plan for several GPUs is what benchmarks/gpu/paper_plan.py prints, and that is right where it can be counted."""

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ.get("LOCKSTEP_BINARY", "lockstep"))
SPEC = importlib.util.spec_from_file_location("paper_plan", ROOT / "benchmarks" / "gpu" / "paper_plan.py")
paper_plan = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(paper_plan)


def test_the_document_has_the_tables_as_they_are_printed():
    text = paper_plan.DOCUMENT.read_text(encoding="utf-8")
    assert paper_plan.replaced(text, paper_plan.tables(PROGRAM)) == text, "benchmarks/gpu/paper_plan.py LOCKSTEP --write renews them"


def test_several_gpus_are_not_said_to_be_measured():
    measured = paper_plan.DOCUMENT.read_text(encoding="utf-8").split("## Measurements\n")[1].split("\n## ")[0]
    assert measured.lstrip().startswith("On one NVIDIA H200") and "Several GPUs were not at hand." in measured


@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_ring_sends_what_the_factors_say(n):
    """Piece by piece: what reaches a rank of a ring, and what each has to send for it."""
    sent = [0] * n
    held = [[{rank} for _ in range(n)] for rank in range(n)]  # whose share is in each piece, rank by rank

    def pass_on(piece_of, merge):
        pieces = [(rank, piece_of(rank), set(held[rank][piece_of(rank)])) for rank in range(n)]
        for rank, piece, content in pieces:
            sent[rank] += 1
            held[(rank + 1) % n][piece] = content | held[(rank + 1) % n][piece] if merge else content

    for turn in range(n - 1):
        pass_on(lambda rank, turn=turn: (rank - turn) % n, True)
    assert all(held[rank][(rank + 1) % n] == set(range(n)) for rank in range(n))
    assert [count / n for count in sent] == [paper_plan.factor("reduce_scatter", n)] * n
    for turn in range(n - 1):
        pass_on(lambda rank, turn=turn: (rank + 1 - turn) % n, False)
    assert all(piece == set(range(n)) for rank in range(n) for piece in held[rank])
    assert [count / n for count in sent] == [paper_plan.factor("all_reduce", n)] * n
    assert paper_plan.factor("all_reduce", n) == paper_plan.factor("reduce_scatter", n) + paper_plan.factor("all_gather", n)


def test_the_plan_of_a_small_layout_by_hand(tmp_path):
    """tp 2 × dp 2 and one matrix of 4 × 8 cut over tp, with a norm of 6: 22 elements a rank, in a bucket of 128 or 512 bytes."""
    file = tmp_path / "small.json"
    file.write_text(json.dumps({
        "lockstep": 1, "layout": {"tp": 2, "dp": 2, "sequence_parallel": True},
        "model": {"parameters": [{"name": "w", "shape": [4, 8], "shard": {"tp": 0}},
                                 {"name": "b", "shape": [6], "partial": ["tp"], "tags": ["norm", "replicated"]}]},
        "batch": {"micro_batches": 1},
        "schedule": {"steps": [{"name": "each", "op": "each", "steps": [{"name": "backward", "op": "backward"}]},
                               {"name": "scatter", "op": "reduce_scatter", "over": "dp", "geometry": {"kind": "bucket"}},
                               {"name": "norms", "op": "all_reduce", "over": "tp", "params": ["tag:norm", "tag:replicated"]}]}}))
    done = subprocess.run([PROGRAM, "show", "-f", "json", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    plan = paper_plan.Plan(json.loads(done.stdout))
    nvlink = paper_plan.NVLINK * paper_plan.REACHED
    assert plan.on(1) == (0, 0, 4 * 512)
    # Ranks 0 and 1 are tp 0 and 1 of dp 0: two reduce-scatters of half a bucket between two GPUs, and the norms stay inside.
    assert plan.on(2) == (2 * 256, pytest.approx(512 / nvlink), 2 * 512)
    assert plan.on(4) == (256 + 24, pytest.approx(280 / nvlink), 512)


def test_what_the_document_says_of_check_holds(tmp_path):
    for layout in paper_plan.SCENARIOS.values():
        file = tmp_path / "large.json"
        file.write_text(json.dumps({"lockstep": 1, "layout": {**layout, "sequence_parallel": True}, "model": {"preset": "llama3-405b"},
                                    "batch": {"micro_batches": paper_plan.MICRO_BATCHES},
                                    "schedule": {"framework": "megatron", "options": {"use_distributed_optimizer": True,
                                                                                      "overlap_grad_reduce": True}}}))
        done = subprocess.run([PROGRAM, "check", file], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.split()[0]) == (0, "match")
        assert "parametric match" in done.stdout
        done = subprocess.run([PROGRAM, "check", "--engine", "symbolic", file], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "this scenario is too large to be checked" in done.stdout and "more than 2 billion terms" in done.stdout
