# SPDX-License-Identifier: Apache-2.0
"""Whether `lockstep extract` sees that modules compute with other weights than those that the optimizers have (FSDP2), and mistakes in the code of frameworks."""

import json
import os
import subprocess
import sys

import pytest

from test_extract import extract, judged
from test_extract_frameworks import there
from torch_ranks import HERE, PROGRAM, clean_environment, nightly, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

ROOT = HERE.parents[1]
SCRIPT = """
import sys
import torch, torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_param_group as groups
from torch.distributed.tensor import Shard
original, count = groups.foreach_all_gather_copy_out, 0
def copy_out(result, parameters, group):
    global count
    original(result, parameters, group)
    count += 1
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(tuple(parameters[0].all_gather_outputs)):
        BREAK
groups.foreach_all_gather_copy_out = copy_out
dist.init_process_group("gloo")
torch.manual_seed(3)
model = fully_shard(torch.nn.Linear(8, ROWS, bias=False), OPTIONS)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    model(torch.randn(5, 8)).float().square().mean().backward()
    optimizer.step()
"""
# By name: what is done with what was gathered, how the model is sharded, and of which steps it is seen.
BROKEN = {
    "right, in unequal parts": ("pass", "", []),
    "right, in another type": ("pass", "mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)", []),
    "right, in the second dimension": ("pass", "shard_placement_fn=lambda parameter: Shard(1)", []),
    "right, in other groups for the backward pass": ("pass", "reshard_after_forward=2", []),
    "right, in other groups and equal parts": ("pass", "reshard_after_forward=2", []),
    "nothing is copied": ("parameters[0].all_gather_outputs[0].fill_(7)", "", [0, 1]),
    "others' parts are not there": ("parameters[0].all_gather_outputs[0].view(-1)[24 * ((dist.get_rank() + 1) % 3):][:9].zero_()", "", [0, 1]),
    "of the step before": ("groups.FSDPParamGroup.reshard = groups.FSDPParamGroup._to_sharded = lambda group: None", "", [1]),
    "of the step before, in other groups and equal parts": ("groups.FSDPParamGroup._to_sharded = lambda group: None", "reshard_after_forward=2", [1]),
    "of the step before, in the forward pass alone": ("model.set_reshard_after_backward(False)", "reshard_after_forward=True", [1]),
    "of memory that nobody has written": ("t = parameters[0].all_gather_outputs[0]; t.copy_(torch.empty_like(t))", "", [0, 1]),
    "of other elements": ("t = parameters[0].all_gather_outputs[0]; t.copy_(t.roll(1))", "", [0, 1]),
    "of numbers that a script has rounded to others that are there":
        ("t = parameters[0].all_gather_outputs[0][:64]; s = 127 / t.abs().max(); t.copy_((t.float() * s).round() / s)",
         "mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)", [0, 1]),
    "in the second step": ("parameters[0].all_gather_outputs[0].mul_(2 if count > 1 else 1)", "", [1]),
}
# What nobody can mean.
CERTAIN = {
    "of memory that nobody has written": "a module computes with weights in memory that nobody has written",
    "of other elements": "a module computes with weights of other elements",
    "of the step before": "a module computes with the weights of before the last optimizer step",
    "of the step before, in the forward pass alone": "a module computes with the weights of before the last optimizer step",
    "of the step before, in other groups and equal parts": "a module computes with the weights of before the last optimizer step",
}


@pytest.mark.parametrize("name", BROKEN)
def test_weights_that_no_optimizer_has_are_seen(tmp_path, name):
    broken, options, steps = BROKEN[name]
    script = tmp_path / "script.py"
    rows = "8000" if "rounded" in name else "12" if "equal parts" in name and "unequal" not in name else "10"
    script.write_text(SCRIPT.replace("BREAK", broken).replace("OPTIONS", options).replace("ROWS", rows))
    extract(tmp_path / "step.json", script, loss="local_mean", steps=2)
    report = judged("check", tmp_path / "step.json")
    assert report["verdict"] == ("match" if not steps else "mismatch" if name in CERTAIN else "undecided")
    assert (CERTAIN.get(name, "a module computes with other weights than those that the optimizers have") in json.dumps(report)) == bool(steps)
    assert sorted({one["step"] for one in report["results"] if one["verdict"] != "right"}) == steps


def test_ranks_that_get_no_gradient_for_parts_of_other_sizes_have_programs_of_their_own(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("BREAK", "pass").replace("OPTIONS", "").replace("ROWS", "10").replace("    optimizer.step()", "    optimizer.zero_grad()\n    optimizer.step()"))
    extract(tmp_path / "step.json", script, loss="local_mean", steps=1)
    assert judged("check", tmp_path / "step.json")["verdict"] == "mismatch"


SMALL = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.LayerNorm(6), torch.nn.Linear(6, 6))
for module in model:
    fully_shard(module)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.randn(5, 6)).square().mean()
own, every = [p.detach().to_local().reshape(-1)[:FIRST] for p in model[0].parameters()], []
own = FACTOR * torch.nn.functional.pad(torch.cat(own), (0, 7))[:7]
every = [torch.zeros(7) for _ in range(dist.get_world_size())]
dist.all_gather(every, own)
(loss * sum(one.sum() for one in every)).backward()
optimizer.step()
"""


@pytest.mark.parametrize("first, factor, verdict", [(9, 1, "match"), (9, 2, "undecided"), pytest.param(5, 1, "undecided", marks=nightly)],
                         ids=["shards", "what is made of shards", "parts of shards"])
def test_shards_of_few_elements_that_are_gathered_are_weights_and_nothing_else_is(tmp_path, first, factor, verdict):
    """Of eight ranks six have a row of each matrix, and two have nothing."""
    script = tmp_path / "script.py"
    script.write_text(SMALL.replace("FIRST", str(first)).replace("FACTOR", str(factor)))
    extract(tmp_path / "step.json", script, loss="local_mean", steps=1, ranks=8)
    report = judged("check", tmp_path / "step.json")
    assert report["verdict"] == verdict
    assert ("its gradient gets what other ranks have put in at script.py" in json.dumps(report)) == (verdict == "undecided")


@nightly
def test_mistakes_in_the_code_of_frameworks_have_the_outcome_that_is_known(tmp_path):
    """tools/code-mutants draws such ones; ranks that really run have told of these whether they change a gradient (docs/code-mutants.md)."""
    rows = json.loads((HERE / "code_mutants.json").read_text())
    packages = {package for package in {row["file"].split("/")[0] for row in rows} if there(package)}
    known = [row for row in rows if row["file"].split("/")[0] in packages]
    (tmp_path / "known.json").write_text(json.dumps(known))
    done = subprocess.run([torch_python(), ROOT / "tools" / "code_mutants", "--known", tmp_path / "known.json"], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, env=dict(clean_environment(), LOCKSTEP_BINARY=os.path.abspath(PROGRAM)), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("as known") == len(known)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
