# SPDX-License-Identifier: Apache-2.0
"""The norms by which scripts clip gradients, as `lockstep extract` and `lockstep check` tell them: lockstep.extracting.squares and norms."""

import sys

import pytest

from test_extract import Extraction, judged, script
from torch_ranks import HERE, nightly, nightly_but, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

NORM = "the norm by which gradients are clipped at %s.py:"
DDP = """
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 3)).sum().backward()
for p in model.parameters():
    dist.all_reduce(p.grad)
    p.grad /= dist.get_world_size()
P, grads = list(model.parameters()), [p.grad for p in model.parameters()]
from torch.nn.utils import clip_grad_norm_, clip_grads_with_norm_, get_total_norm
"""
STAGES = """
class Stage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        setattr(self, "stage%d" % dist.get_rank(), torch.nn.Linear(3, 2))
    def forward(self, inputs):
        return next(self.children())(inputs)
model = Stage()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 3)).sum().backward()
P, grads = list(model.parameters()), [p.grad for p in model.parameters()]
from torch.nn.utils import clip_grad_norm_, clip_grads_with_norm_, get_total_norm
"""
TENSOR_PARALLEL = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4, bias=False))
parallelize_module(model, mesh, {"1": ColwiseParallel(), "3": RowwiseParallel()})
distribute_module(model[0], mesh, None, lambda m, inputs, _: DTensor.from_local(inputs[0], mesh, [Replicate()]), lambda m, output, _: output.to_local())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 4)).square().sum().backward()
P = list(model.parameters())
cut, whole = ([p.grad.to_local() for p in P if p.grad.placements[0].is_shard() == is_cut] for is_cut in (True, False))
clip = lambda n: clip_grads_with_norm_(P, 0.1, DTensor.from_local(n.sqrt(), mesh, [Replicate()]))
from torch.nn.utils import clip_grad_norm_, clip_grads_with_norm_, get_total_norm
n = get_total_norm(cut) ** 2
"""
SUM = "dist.all_reduce(n); "
# What stands before the optimizer's step: the script, what follows, and what is said of the norm.
BY_STAGES = "nothing says whether one device would clip both by one norm"
RIGHT, TWICE, LEFT_OUT = "counts each element of", "counts elements 2 times instead of once", "leaves out elements"
CASES = {
    "torch's own": (DDP, "clip_grad_norm_(P, 0.1)", RIGHT),
    "torch's own, one by one": (DDP, "clip_grad_norm_(P, 0.1, foreach=False)", RIGHT),
    "of other tensors than the optimizer's": (DDP.replace("    p.grad /= dist.get_world_size()", "    p.grad.mul_(1)"),
                                              "n = get_total_norm(grads)\nfor p in P: p.grad = p.grad / dist.get_world_size()\nclip_grads_with_norm_(P, 0.1, n)",
                                              "is not known: a gradient was changed between its norm and the clipping, or is another tensor now"),
    "summed over replicas": (DDP, "n = get_total_norm(grads) ** 2; %sclip_grads_with_norm_(P, 0.1, n.sqrt())" % SUM, TWICE),
    "averaged over replicas": (DDP, "n = get_total_norm(grads) ** 2; dist.all_reduce(n); n = n / 2; clip_grads_with_norm_(P, 0.1, n.sqrt())", RIGHT),
    "half of it": (DDP, "clip_grads_with_norm_(P, 0.1, get_total_norm(grads) / 2)", "counts elements 1/4 times instead of once"),
    "by hand, and not by torch": (DDP, "n = get_total_norm(grads) / 3; [g.mul_(torch.clamp(0.1 / (n + 1e-6), max=1.0)) for g in grads]", "undecided"),
    "of one parameter alone": (DDP, "clip_grads_with_norm_(P, 0.1, get_total_norm(grads[:1]))", LEFT_OUT),
    "by hand, as frameworks do it": (DDP, "n = sum(torch.norm(g) ** 2 for g in grads); clip_grads_with_norm_(P, 0.1, n ** 0.5)", RIGHT),
    "the largest element": (DDP, "clip_grad_norm_(P, 0.1, norm_type=float('inf'))", None),
    "changed between": (DDP, "[g.mul_(2) for g in grads]; n = get_total_norm(grads); [g.div_(2) for g in grads]; clip_grads_with_norm_(P, 0.1, n)", "a gradient was changed between"),
    "of something else": (DDP, "clip_grads_with_norm_(P, 0.1, get_total_norm([2 * g for g in grads]))", None),
    "times something": (DDP, "n = get_total_norm(grads); clip_grads_with_norm_(P, 0.1, (n ** 2 + n ** 2).sqrt())", TWICE),
    "what is made of one by an operation that is not known": (DDP, "clip_grads_with_norm_(P, 0.1, get_total_norm(grads).exp())", None),
    "the largest of all ranks": (DDP, "n = get_total_norm(grads) ** 2; dist.all_reduce(n, dist.ReduceOp.MAX); clip_grads_with_norm_(P, 0.1, n.sqrt())", None),
    "read in flight": (DDP, "n = get_total_norm(grads) ** 2; dist.all_reduce(n, async_op=True); clip_grads_with_norm_(P, 0.1, n.sqrt())", None),
    "of one stage alone": (STAGES, "clip_grad_norm_(P, 0.1)", BY_STAGES),
    "of all stages": (STAGES, "n = get_total_norm(grads) ** 2; %sclip_grads_with_norm_(P, 0.1, n.sqrt())" % SUM, RIGHT),
    "of all stages, asynchronously": (STAGES, "n = get_total_norm(grads) ** 2; dist.all_reduce(n, async_op=True).wait(); clip_grads_with_norm_(P, 0.1, n.sqrt())", RIGHT),
    "torch's own, of DTensors": (TENSOR_PARALLEL, "clip_grad_norm_(P, 0.1)", RIGHT),
    "of cut parameters once, of replicas once":
        (TENSOR_PARALLEL, "%sclip(n + get_total_norm(whole) ** 2)" % SUM, RIGHT),
    "of replicas along tp twice":
        (TENSOR_PARALLEL, "n = n + get_total_norm(whole) ** 2; %sclip(n)" % SUM, TWICE),
    "of cut parameters alone": (TENSOR_PARALLEL, "%sclip(n)" % SUM, LEFT_OUT),
}
SHORT = ["torch's own", "summed over replicas", "changed between", "read in flight", "of one stage alone", "of all stages", "of replicas along tp twice",
         "of cut parameters once, of replicas once"]


def report_of(tmp_path, text, **settings):
    done = Extraction(tmp_path / "step.json", script(tmp_path, text), ranks=2, loss="local_mean", **settings)
    assert done.status == 0, done.said
    return judged("check", tmp_path / "step.json")


@pytest.mark.parametrize("case", nightly_but(list(CASES), SHORT))
def test_what_a_norm_counts(tmp_path, case):
    text, clip, expected = CASES[case]
    settings = {"mesh": {"axes": ["pp"], "sizes": [2], "ranks": [0, 1]}, "data_axes": []} if text is STAGES else {}
    report = report_of(tmp_path, text + clip + "\noptimizer.step()\n", **settings)
    notes = [note for note in report["notes"] if "the norm by which" in note]
    wrong = [one for one in report["findings"] if one["what"].startswith(NORM % "script")]
    if expected == "undecided":
        assert report["verdict"] == "undecided" and notes == [] and not wrong
        return
    assert {one["verdict"] for one in report["results"]} == {"right"} and not [one for one in report["findings"] if one not in wrong]
    if expected == BY_STAGES:  # as a device may clip two modules, each by itself
        assert report["verdict"] == "undecided" and notes == [] and not wrong and expected in report["gaps"][0]
        return
    if expected is not None and ("instead" in expected or expected == LEFT_OUT):
        assert report["verdict"] == "mismatch" and notes == [] and [one["what"].endswith(" " + expected) for one in wrong] == [True]
        assert wrong[0]["ranks"] == [0, 1]
        if case == "of replicas along tp twice":
            assert wrong[0]["parameters"] == ["0.weight", "0.bias"]
        return
    assert report["verdict"] == "match" and not wrong
    if expected is None:
        assert all(" is not known: " in note for note in notes)
    else:
        assert len(notes) == 1 and expected in notes[0]


@pytest.mark.parametrize("case, ranks", [("ddp", 4), ("fsdp2", 8), pytest.param("fsdp2", 4, marks=nightly), pytest.param("hsdp", 4, marks=nightly)])
def test_the_norm_of_torchs_wrappers_counts_each_element_once(tmp_path, case, ranks):
    """Of eight ranks some have nothing of a parameter with twelve rows."""
    done = Extraction(tmp_path / "step.json", HERE / "extracted.py", case, ranks=ranks, loss="local_mean", steps=1 if ranks > 4 else 2)
    assert done.status == 0, done.said
    report = judged("check", tmp_path / "step.json")
    assert report["verdict"] == "match" and any(note.startswith(NORM % "extracted") and note.endswith(" counts each element of 12 parameters once.") for note in report["notes"])


PARTS = """
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
weight, bias = model.parameters()
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).sum().backward()
    for p in (weight, bias):
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    torch.nn.utils.clip_grad_norm_([weight], 0.1)
    if step == 1:
        torch.nn.utils.clip_grad_norm_([bias], 0.1)
    if step == 2:
        bias.grad.mul_(2)
    if step == 3 and dist.get_rank() == 0:
        torch.nn.utils.clip_grad_norm_([bias], 0.1)
    optimizer.step()
"""


def test_what_is_not_clipped_while_others_are_is_judged_and_what_is_changed_there_is_not(tmp_path):
    report = report_of(tmp_path, PARTS, steps=4)
    verdicts = {(one["step"], one["parameter"]): one["verdict"] for one in report["results"]}
    assert verdicts == {(0, "weight"): "right", (0, "bias"): "right", (1, "weight"): "right", (1, "bias"): "right", (2, "weight"): "right",
                        (2, "bias"): "undecided", (3, "weight"): "right", (3, "bias"): "undecided"}
    assert "rank 0 clips it by a norm, and rank 1, which steps with it too, does not" in str(report["findings"])
    assert report["verdict"] == "undecided" and "gradients were changed between clipping and the optimizer's step" in str(report["findings"])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
