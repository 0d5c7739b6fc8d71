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

# The script, the mesh, and the verdict.
CASES = {
    "a mesh that is not the wrapper's": (BEGIN + 'other = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))\n' + WRAP + STEP, {"dp": 4}, "match"),
    "nor is one of two": (BEGIN + 'init_device_mesh("cpu", (4,), mesh_dim_names=("cp",))\n' + MESH % ("dp", "tp") + WRAP + STEP, {"dp": 4}, "match"),
    "stages that the script runs itself": (BEGIN + MESH % ("pp", "dp") + "torch.manual_seed(1 + mesh.get_local_rank('pp'))\nmodel = torch.nn.Linear(3, 2)\n" + STEP
                                           + REDUCE % ", group=mesh.get_group('dp')", {"pp": 2, "dp": 2}, "match"),
    "such ones that begin with the same weights": (BEGIN + MESH % ("pp", "dp") + STEP + REDUCE % ", group=mesh.get_group('dp')", {"pp": 2, "dp": 2}, "undecided"),
    "one parameter on two stages": (BEGIN + MESH % ("pp", "dp") + STEP + REDUCE % ", group=mesh.get_group('dp')"
                                    + "for p in model.parameters(): dist.all_reduce(p.grad, group=mesh.get_group('pp'))\n", {"pp": 2, "dp": 2}, "match"),
    "all ranks see other tokens": (BEGIN + MESH % ("dp", "cp") + STEP + REDUCE % "", {"dp": 2, "cp": 2}, "match"),
    "those along one axis alone": (BEGIN + MESH % ("dp", "cp") + STEP + REDUCE % ", group=mesh.get_group('dp')", {"dp": 2, "cp": 2}, "mismatch"),
    "names that say nothing": (BEGIN + MESH % ("left", "right") + STEP + REDUCE % "", {"dp": 4}, "match"),
    "no mesh": (BEGIN + STEP + REDUCE % "", {"dp": 4}, "match"),
}


def extracted(tmp_path, text, **settings):
    return Extraction(tmp_path / "step.json", script(tmp_path, text + "\noptimizer.step()\n"), loss="local_mean", **settings)


@pytest.mark.parametrize("case", nightly_but(list(CASES), ["a mesh that is not the wrapper's", "those along one axis alone", "stages that the script runs itself"]))
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
