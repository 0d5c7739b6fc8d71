# SPDX-License-Identifier: Apache-2.0
"""Which mesh `lockstep extract` takes where the model's parameters do not say it: that of a wrapper's process group, or the one that the script has made."""

import pytest

from test_extract import Extraction, judged, script
from torch_ranks import nightly_but, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

BEGIN = """
from torch.distributed.device_mesh import init_device_mesh
torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
"""
# As torch's documents write it.
KEYWORD = 'from torch.distributed.device_mesh import DeviceMesh\nother = DeviceMesh(device_type="cpu", mesh=[0, 1, 2, 3], mesh_dim_names=("tp",))\n'
MESH = 'mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("%s", "%s"))\n'
STEP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 3)).sum().backward()
"""
REDUCE = """
for p in model.parameters():
    dist.all_reduce(p.grad, op=dist.ReduceOp.AVG%s)
"""
WRAP = "model = torch.nn.parallel.DistributedDataParallel(model)\n"
# An expert of which ranks along ep have parts, beside a layer of all, each sharded over a mesh of its own.
EXPERT = BEGIN + """
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
dense, sparse = init_device_mesh("cpu", (4,), mesh_dim_names=("fsdp",)), init_device_mesh("cpu", (2, 2), mesh_dim_names=("efsdp", "ep"))
class Expert(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(distribute_tensor(torch.randn(8, 2), sparse["ep"], [Shard(0)]))
    def forward(self, x):
        return x @ self.weight.to_local().t()
model = torch.nn.Sequential(model, fully_shard(Expert(), mesh=sparse["efsdp"]))
model[1].set_gradient_divide_factor(%d)
fully_shard(model, mesh=dense)
"""
# Meshes as torchtitan makes them, all of one without a name that says anything, and a layer that is sharded over a part of the ranks.
UNFLATTENED = BEGIN + """
from torch.distributed.fsdp import fully_shard
whole = init_device_mesh("cpu", (4,), mesh_dim_names=("world",))
batch, dense = whole._unflatten(0, (4, 1), ("batch", "tp")), whole._unflatten(0, (2, 2), ("dp_replicate", "fsdp"))
fully_shard(model, mesh=dense%s)
"""

# The script, the mesh, and the verdict.
CASES = {
    "a mesh that is not the wrapper's": (BEGIN + KEYWORD + WRAP + STEP, {"dp": 4}, "match"),
    "nor is one of two": (BEGIN + 'init_device_mesh("cpu", (4,), mesh_dim_names=("cp",))\n' + MESH % ("dp", "tp") + WRAP + STEP, {"dp": 4}, "match"),
    "stages that the script runs itself": (BEGIN + MESH % ("pp", "dp") + "torch.manual_seed(1 + mesh.get_local_rank('pp'))\nmodel = torch.nn.Linear(3, 2)\n" + STEP
                                           + REDUCE % ", group=mesh.get_group('dp')", {"pp": 2, "dp": 2}, "match"),
    "such ones that begin with the same weights": (BEGIN + MESH % ("pp", "dp") + STEP + REDUCE % ", group=mesh.get_group('dp')", {"pp": 2, "dp": 2}, "undecided"),
    "one parameter on two stages": (BEGIN + MESH % ("pp", "dp") + STEP + REDUCE % ", group=mesh.get_group('dp')"
                                    + "for p in model.parameters(): dist.all_reduce(p.grad, group=mesh.get_group('pp'))\n", {"pp": 2, "dp": 2}, "match"),
    "all ranks see other tokens": (BEGIN + MESH % ("dp", "cp") + STEP + REDUCE % "", {"dp": 2, "cp": 2}, "match"),
    "those along one axis alone": (BEGIN + MESH % ("dp", "cp") + STEP + REDUCE % ", group=mesh.get_group('dp')", {"dp": 2, "cp": 2}, "mismatch"),
    "names that say nothing": (BEGIN + MESH % ("left", "right") + STEP + REDUCE % "", {"dp": 4}, "match"),
    "experts with a mesh of their own": (EXPERT % 4 + STEP, {"fsdp": 4}, "match"),
    "such ones that are averaged over it alone": (EXPERT % 2 + STEP, {"fsdp": 4}, "mismatch"),
    "cut from one without a name": (UNFLATTENED % "" + STEP, {"dp_replicate": 2, "fsdp": 2}, "match"),
    "cut from one without a name, and replicas are forgotten": (UNFLATTENED % '["fsdp"]' + STEP, {"dp_replicate": 2, "fsdp": 2}, "mismatch"),
    "no mesh": (BEGIN + STEP + REDUCE % "", {"dp": 4}, "match"),
}


def extracted(tmp_path, text, **settings):
    return Extraction(tmp_path / "step.json", script(tmp_path, text + "\noptimizer.step()\n"), loss="local_mean", **settings)


@pytest.mark.parametrize("case", nightly_but(list(CASES), ["a mesh that is not the wrapper's", "experts with a mesh of their own",
                                                     "cut from one without a name, and replicas are forgotten", "those along one axis alone", "stages that the script runs itself"]))
def test_the_mesh_is_that_of_the_wrapper_or_of_the_script(tmp_path, case):
    text, mesh, verdict = CASES[case]
    done = extracted(tmp_path, text)
    assert done.status == 0, done.said
    report = judged("check", tmp_path / "step.json")
    assert report["mesh"] == mesh and report["verdict"] == verdict


def test_two_meshes_of_which_nobody_says_which_it_is_are_refused(tmp_path):
    text = BEGIN + 'other = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))\n' + MESH % ("dp", "tp") + STEP + REDUCE % ""
    done = extracted(tmp_path, text)
    assert done.status == 2 and "meshes of all ranks with different axes (dp and dp, tp)" in done.said and "give --mesh" in done.said
    assert extracted(tmp_path, text, mesh={"dp": 4}).status == 0
