# SPDX-License-Identifier: Apache-2.0
"""The capture of training runs (python/lockstep, docs/capture.md) under torch's own wrappers, with gloo: from the files alone the coefficients
are recovered with which every rank's and micro-batch's gradient entered what the optimizer got."""

import functools
import json
import re
import signal
import socket
import struct
import subprocess
from math import prod

import pytest

from torch_ranks import HERE, LOCKSTEP, clean_environment, ran, read_run, recovered, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

RUNS = {2: ["ddp_no_sync", "ddp_every", "two_optimizers", "fsdp2", "tensor_parallel", "by_hand", "bad_numbers", "died",
            "compiled_ddp", "compiled_fsdp2", "wrapped_within"],
        4: ["fsdp2_last", "hsdp", "fsdp2_tensor_parallel"]}
SAME_BITS = {2: ["bits_ddp", "bits_fsdp2", "bits_tensor_parallel"], 4: ["bits_hsdp", "bits_fsdp2_tensor_parallel"]}


@functools.lru_cache(None)
def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All runs are made at once: a process takes long to load torch."""
    folder = tmp_path_factory.mktemp("runs")
    for world, names in RUNS.items():
        ran(folder, world, names + SAME_BITS[world])
    return folder


def run(folder, name):
    for error in sorted(folder.glob(f"{name}.error-*")):
        pytest.fail(error.read_text())
    return read_run(folder / name)


@pytest.mark.parametrize("name", [name for names in SAME_BITS.values() for name in names])
def test_the_training_has_the_same_bits_with_and_without_a_capture(folder, name):
    """Weights, optimizer states and losses of three steps, with dropout and clip_grad_norm_; each rank has compared its own (worker.py)."""
    whole = run(folder, name)
    assert all(len(rank["events"]["step"]) == 3 and len(rank["sketches"]) == 3 and rank["events"]["collective"] for rank in whole)


@pytest.mark.parametrize("name, axes, sizes, data", [
    ("fsdp2", ["dp"], [2], ["dp"]), ("fsdp2_last", ["dp"], [4], ["dp"]), ("hsdp", ["dp_replicate", "dp_shard"], [2, 2], ["dp_replicate", "dp_shard"]),
    ("tensor_parallel", ["tp"], [2], []), ("fsdp2_tensor_parallel", ["dp", "tp"], [2, 2], ["dp"])])
def test_the_mesh_is_that_of_the_dtensors(folder, name, axes, sizes, data):
    for rank in run(folder, name):
        assert rank["mesh"] == {"axes": axes, "sizes": sizes, "ranks": list(range(len(run(folder, name))))} and rank["data_axes"] == data


def average(formulas, data_ranks, micro_batches=2):
    """Every result of a step is the average over the data ranks of all contributions, in each parameter."""
    assert any(formula.solved for formula in formulas.values())
    for place, formula in formulas.items():
        expected = {(rank, micro): 1 / len(data_ranks) for rank in data_ranks for micro in range(micro_batches)}
        assert formula.columns.keys() == expected.keys()
        assert formula.is_sum_of(expected), (place, formula.solved)


@pytest.mark.parametrize("name", ["ddp_no_sync", "fsdp2", "fsdp2_last", "hsdp"])
def test_an_average_over_all_ranks_is_recovered(folder, name):
    whole = run(folder, name)
    for step in (0, 1):
        average(recovered(whole, step), range(len(whole)))
    assert [rank["adapter"] for rank in whole] == [name.split("_")[0].replace("hsdp", "fsdp2")] * len(whole)


@pytest.mark.parametrize("name, op", [("compiled_ddp", "all_reduce"), ("compiled_fsdp2", "reduce_scatter")])
def test_what_is_compiled_stays_so_and_is_captured(folder, name, op):
    whole = run(folder, name)
    for step in (0, 1):
        average(recovered(whole, step), range(2))
    for rank in whole:
        reduced = {number for line in rank["events"]["collective"] if line["op"] == op for number in line["parameters"]}
        assert reduced == {line["id"] for line in rank["events"]["parameter"]}


def test_names_are_those_of_the_model_wherever_it_is_wrapped(folder):
    assert not list(folder.glob("wrapped_within.error-*")), run(folder, "wrapped_within")


def test_reducing_after_each_micro_batch_is_the_same_average_with_tokens_as_told(folder):
    whole = run(folder, "ddp_every")
    average(recovered(whole, 0), range(2))
    assert all(rank["events"]["step"][0]["tokens"] == [10, 10] for rank in whole)
    assert all(rank["sums"] == 192 and rank["seed"] == 5 for rank in whole)


def test_several_optimizers_make_one_step_and_several_backward_passes_one_micro_batch(folder):
    whole = run(folder, "two_optimizers")
    names = {line["id"]: line["name"] for line in whole[0]["events"]["parameter"]}
    for step in (0, 1):
        formulas = recovered(whole, step)
        average(formulas, range(2), 1)
        assert {names[number] for _, number, _ in formulas} == {"embedding.weight", "hidden.weight", "back.weight"}
    for rank in whole:
        assert [line["tokens"] for line in rank["events"]["step"]] == [[10], [10]]
        assert {line["micro_batch"] for line in rank["events"]["contribution"]} == {0}


@pytest.mark.parametrize("name", ["ddp_no_sync", "fsdp2", "hsdp"])
def test_every_piece_is_owned_and_every_shape_is_covered(folder, name):
    whole = run(folder, name)
    for parameter in whole[0]["events"]["parameter"]:
        pieces = [piece["range"] for piece in parameter["pieces"]]
        assert pieces[0][0] == 0 and pieces[-1][1] == prod(parameter["shape"])
        assert all(one[1] == other[0] for one, other in zip(pieces, pieces[1:]))
        owned = {line["piece"] for rank in whole for line in rank["events"]["result"] if line["parameter"] == parameter["id"]}
        assert owned == (set() if parameter["frozen"] else set(range(len(pieces)))), parameter["name"]
    declared = [[{key: value for key, value in line.items() if key not in ("start", "constant")} for line in rank["events"]["parameter"]] for rank in whole]
    assert all(one == declared[0] for one in declared)
    tied, = (line for line in whole[0]["events"]["parameter"] if line.get("aliases"))
    assert (tied["name"], tied["aliases"], tied["shape"]) == ("embedding.weight", ["head.weight"], [7, 6])


@pytest.mark.parametrize("name", ["ddp_no_sync", "fsdp2"])
def test_a_parameter_without_a_gradient_contributes_nothing(folder, name):
    whole = run(folder, name)
    unused, = (line["id"] for line in whole[0]["events"]["parameter"] if line["name"] == "unused")
    for rank in whole:
        assert not [line for line in rank["events"]["contribution"] if line["parameter"] == unused]
        results = [line for line in rank["events"]["result"] if line["parameter"] == unused]
        assert results and all(line["row"] is None and "hash" not in line for line in results)


def test_tensor_parallel_gradients_are_placed_in_the_whole_and_shares_are_said_to_be_shares(folder):
    whole = run(folder, "tensor_parallel")
    names = {line["id"]: line for line in whole[0]["events"]["parameter"]}
    for (rank, number, piece), formula in recovered(whole, 0).items():
        # The norm sees a part of the sequence on each rank; its gradient is the sum of both, which torch's optimizer takes.
        shared = names[number]["name"].startswith("norm")
        owners = [0, 1] if shared else [piece] if len(names[number]["pieces"]) == 2 else [0]
        expected = {(owner, micro): 1 for owner in owners for micro in (0, 1)}
        assert formula.columns.keys() == expected.keys() and formula.is_sum_of(expected), names[number]["name"]
    partial = {names[line["parameter"]]["name"] for line in whole[0]["events"]["contribution"] if line.get("partial") == ["tp"]}
    assert partial == {"norm.weight", "norm.bias"}
    columns, = (line for line in names.values() if line["name"] == "down.weight")
    assert columns["pieces"] == [{"box": [[0, 8], [0, 6]]}, {"box": [[0, 8], [6, 12]]}]


def test_fsdp_over_tensor_parallel_is_cut_along_both(folder):
    whole = run(folder, "fsdp2_tensor_parallel")
    names = {line["id"]: line for line in whole[0]["events"]["parameter"]}
    pieces = {line["name"]: len(line["pieces"]) for line in names.values()}
    assert pieces == {"norm.weight": 2, "norm.bias": 2, "up.weight": 4, "up.bias": 4, "down.weight": 4, "down.bias": 2}
    for (rank, number, piece), formula in recovered(whole, 0).items():
        assert formula.is_sum_of({column: 0.5 for column in formula.columns}), names[number]["name"]
        # Ranks 0 and 1, and 2 and 3, are tensor parallel.
        assert len(formula.columns) == (8 if names[number]["name"].startswith("norm") else 4)


def test_the_formulas_of_a_script_are_recovered_mistakes_and_all(folder):
    whole = run(folder, "by_hand")
    names = {line["id"]: line["name"] for line in whole[0]["events"]["parameter"]}
    for step in (0, 1):
        # The gradients of step 0 were not zeroed: reduced already, they count for what this rank had then and what it got.
        for (rank, number, _), formula in recovered(whole, step, before=step).items():
            both = {"embedding.weight": 1, "hidden.weight": 0.5, "back.weight": 0.5}.get(names[number])
            if both is None:
                expected = {(rank, micro): 1 for micro in (0, 1)}
                if step:
                    expected.update({(rank, micro, "before"): 1 for micro in (0, 1)})
            else:
                expected = {(other, micro): both for other in (0, 1) for micro in (0, 1)}
                if step:
                    expected.update({(other, micro, "before"): both * 2 * both for other in (0, 1) for micro in (0, 1)})
            assert formula.is_sum_of(expected), (names[number], step)
    assert [rank["events"]["step"][0]["tokens"] for rank in whole] == [[3, 4], [7, 8]]


def test_infinities_and_nans_are_counted_in_every_dtype(folder):
    whole = run(folder, "bad_numbers")
    for rank, bad in ((whole[0], 0), (whole[1], 3)):
        lines = rank["events"]["contribution"] + rank["events"]["result"]
        assert {line["dtype"] for line in lines} == {"bfloat16", "float16", "float64"} and len(lines) == 6
        assert all(line["nonfinite"] == bad for line in lines)
        assert all(abs(value) < float("inf") for row in rank["sketches"][0] for value in row)


def test_a_rank_that_dies_leaves_what_it_had(folder):
    whole = run(folder, "died")
    assert ["end" in rank["events"] for rank in whole] == [True, False]
    assert [len(rank["events"]["step"]) for rank in whole] == [2, 1]
    assert {line["step"] for line in whole[1]["events"]["contribution"]} == {0}
    assert not list((folder / "died").glob("*.part"))


def test_collectives_have_their_groups_sizes_and_callers(folder):
    def seen(name, rank):
        return [(line["op"], line["group"], line["elements"], line["reduce"], line["micro_batch"])
                for line in run(folder, name)[rank]["events"]["collective"] if line["step"] == 0]

    # DDP's reducer is C++: one bucket of all that has a gradient to be had (unused ones too), and which were used.
    reduced = [entry for entry in seen("ddp_no_sync", 1) if entry[2] > 10]
    assert reduced == [("all_reduce", [0, 1], 42 + 30 + 5 + 30 + 1 + 3, "sum", 1)]
    assert len([entry for entry in seen("ddp_every", 0) if entry[2] > 10]) == 2
    shards, replicas = [2, 3], [1, 3]
    hsdp = seen("hsdp", 3)
    assert {tuple(entry[1]) for entry in hsdp if entry[0] == "reduce_scatter"} == {tuple(shards)}
    assert tuple(replicas) in {tuple(entry[1]) for entry in hsdp if entry[0] == "all_reduce"}
    calls = {line["call"].split(":")[0] for line in run(folder, "by_hand")[0]["events"]["collective"]}
    assert calls == {"worker.py"}
    calls = {line["call"] for line in run(folder, "fsdp2")[0]["events"]["collective"] if line["op"] == "reduce_scatter"}
    assert all(call.startswith("torch/distributed/fsdp/") and call.endswith(" in foreach_reduce") for call in calls)
    by_hand = seen("by_hand", 0)
    assert [entry[3] for entry in by_hand] == ["sum", "sum", "avg"] and all(entry[4] is None for entry in by_hand)


def test_collectives_say_whose_gradients_they_carry(folder):
    def carried(name, rank=1):
        """(op, names of parameters) of the calls that carry gradients, in the first step, and how many carry none."""
        whole = run(folder, name)[rank]
        names = {line["id"]: line["name"] for line in whole["events"]["parameter"]}
        calls = [(line["op"], [names[number] for number in line["parameters"]]) for line in whole["events"]["collective"] if line["step"] == 0]
        return [call for call in calls if call[1]], len([call for call in calls if not call[1]])

    everything = {"embedding.weight", "hidden.weight", "hidden.bias", "back.weight", "scale"}  # what no pass uses has no gradient
    buckets, others = carried("ddp_no_sync")
    assert [(op, set(names)) for op, names in buckets] == [("all_reduce", everything)] and others >= 1  # others: which were used
    by_hand, others = carried("by_hand")
    assert by_hand == [("all_reduce", [name]) for name in ("embedding.weight", "hidden.weight", "back.weight")] and others == 0
    # Gathered parameters and the norm that clips carry none; shards that replicas reduce do, after the reduce-scatter.
    for name, ops in (("fsdp2", {"reduce_scatter"}), ("hsdp", {"reduce_scatter", "all_reduce"})):
        calls, others = carried(name)
        assert {op for op, _ in calls} == ops and others > 0
        for op in ops:
            assert {each for kind, names in calls if kind == op for each in names} == everything
    # Nor do activations; DTensor adds up the norm's shares before FSDP2 cuts them.
    calls, others = carried("fsdp2_tensor_parallel")
    assert others > 0 and calls[:2] == [("all_reduce", ["norm.weight"]), ("all_reduce", ["norm.bias"])]
    assert calls[2][0] == "reduce_scatter" and len(calls[2][1]) == 6 and len(calls) == 6


def test_nothing_of_the_machine_is_in_the_files(folder):
    for file in folder.glob("*/rank-*"):
        content = file.read_bytes()
        assert str(folder).encode() not in content and b"site-packages" not in content


def test_a_piece_takes_less_than_half_a_kilobyte(folder):
    whole = run(folder, "ddp_no_sync")
    lines = whole[0]["events"]["contribution"] + [line for line in whole[0]["events"]["result"] if line["row"] is not None]
    size = sum(file.stat().st_size for file in (folder / "ddp_no_sync").glob("rank-00000.step-*"))
    size += sum(len(json.dumps(line, separators=(",", ":"))) + 1 for line in lines)
    assert 256 < size / len(lines) < 500, size / len(lines)


def test_rows_are_safetensors_and_each_belongs_to_one_line(folder):
    for name in ("ddp_no_sync", "fsdp2_tensor_parallel"):
        for rank in run(folder, name):
            for step, rows in rank["sketches"].items():
                lines = [line for kind in ("contribution", "result") for line in rank["events"][kind]
                         if line["step"] == step and line["row"] is not None]
                assert sorted(line["row"] for line in lines) == list(range(len(rows)))
    file = next((folder / "ddp_no_sync").glob("*.safetensors"))
    length, = struct.unpack("<Q", file.read_bytes()[:8])
    assert length % 8 == 0 and {name: one["dtype"] for name, one in json.loads(file.read_bytes()[8:8 + length]).items()} == {"sketches": "I32", "exponents": "I32"}


def trained_as_written(script, folder):
    """What two ranks of a script that torchrun would start print to standard error."""
    (folder / "train.py").write_text(script + "\nimport sys\n\nprint('the script has ended', file=sys.stderr, flush=True)\n")
    processes = []
    for rank in (0, 1):
        environment = dict(clean_environment(), RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                           PYTHONPATH=str(HERE.parents[1] / "python"))
        processes.append(subprocess.Popen([torch_python(), "train.py"], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True))
    said = [process.communicate(timeout=600)[1] for process in processes]
    for process, text in zip(processes, said):
        # Gloo's threads may be destroyed at the end of a process as they run, though the script has ended its process group
        # (https://github.com/pytorch/pytorch/issues/190489): torch ends by a signal then, after all that is looked at here.
        by_torch = process.returncode == -signal.SIGABRT and text.endswith("\nterminate called without an active exception\n")
        assert process.returncode == 0 or by_torch, said
        assert "the script has ended\n" in text, said
    return said


TRAINING = """import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 4, bias=False))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
batches = torch.randn(5, 16, 8)


def train(batch):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


%s
assert step == 4
dist.destroy_process_group()
"""


def test_the_lines_of_the_readme_capture_three_steps_of_five(tmp_path):
    text = (HERE.parents[1] / "README.md").read_text()
    lines, = re.findall(r"```python\n(import lockstep\n.*?)```", text, re.DOTALL)
    trained_as_written(TRAINING % lines, tmp_path)
    whole = read_run(tmp_path / "run")
    for rank in whole:
        assert [line["step"] for line in rank["events"]["step"]] == [0, 1, 2] and rank["events"]["end"][0]["steps"] == 3
    for step in (0, 1, 2):
        average(recovered(whole, step), range(2), 1)
    said = LOCKSTEP("verify", tmp_path / "run")
    assert said.startswith("match") and "3 optimizer steps, 1 micro-batch, loss local_mean, ddp" in said, said


def test_the_example_of_the_document_leaves_what_it_says(tmp_path):
    text = (HERE.parents[1] / "docs" / "capture.md").read_text()
    script, = re.findall(r"```python\n(import os, torch.*?)```", text, re.DOTALL)
    lines = [json.loads(line) for line in re.search(r"```jsonl\n(.*?)```", text, re.DOTALL)[1].splitlines()]
    said = trained_as_written(script, tmp_path)
    assert "lockstep: captured in run: optimizer steps 1, parameters 1, 2 KB for this rank" in said[0] and "lockstep:" not in said[1]
    whole = read_run(tmp_path / "run")
    found = [json.loads(line) for line in (tmp_path / "run" / "rank-00001.jsonl").read_text().splitlines()]
    for line in (found[0], lines[0]):
        assert line.pop("versions").keys() == {"lockstep", "torch"}
    assert all(re.fullmatch("[0-9a-f]{32}", line.pop("start")) for line in (found[1], lines[1]))  # the weights are drawn anew
    for line in (found[-1], lines[-1]):
        assert 0 <= line.pop("overhead") <= line.pop("seconds")
    assert found == lines
    assert [{place: value for place, value in enumerate(row) if value} for row in whole[1]["sketches"][0]] == [
        {44: -2.0, 45: 4.0}, {44: -1.5, 45: 4.0}]
    assert {place: value for place, value in enumerate(whole[0]["sketches"][0][0]) if value} == {44: -1.0, 45: 4.0}
