# SPDX-License-Identifier: Apache-2.0
"""What optimizers get that is certainly no sum of gradients, and what may be one: memory that nobody has written, maxima, collectives that nobody waits for,
buffers to which no backward pass has added, and steps without one.
"""

import json
import sys

import pytest

from test_doubted import HEAD
from test_extract import extract, judged
from torch_ranks import nightly_but, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

# `g` is a gradient of 24 elements of each rank, and what CASES leave in `g` is what the optimizer gets.
STEP = """
model = nn.Linear(4, 6, bias=False); optimizer = sgd(model); one = dist.new_group([R]) if W == 1 else None
loss(model).backward(); g = model.weight.grad
def mean(t): dist.all_reduce(t); t /= W; return t
%s
model.weight.grad = g; optimizer.step()
"""
TWICE = """
model = nn.Linear(4, 6, bias=False); optimizer = sgd(model); held = torch.zeros(6, 4)
for _ in range(2):
    (loss(model) / 2).backward(); g = model.weight.grad; model.weight.grad = None
    %s
model.weight.grad = held; optimizer.step()
"""
# Stage 0 does with the gradient of its output what is put in.
STAGES = """
model = nn.Sequential(nn.Linear(4, 4, bias=False)) if R == 0 else nn.Sequential(nn.Identity(), nn.Linear(4, 4, bias=False))
optimizer = sgd(model)
if R == 0:
    y = model(torch.randn(3, 4)); dist.send(y.detach(), 1)
    %s
else:
    x = torch.empty(3, 4); dist.recv(x, 0); x.requires_grad_()
    model(x).square().mean().backward(); dist.send(x.grad, 0)
optimizer.step()
"""
PIPELINE = {"mesh": {"axes": ["pp"], "sizes": [2], "ranks": [0, 1]}, "data_axes": [], "ranks": 2}
TWO_BY_TWO = {"axes": ["dp", "tp"], "sizes": [2, 2], "ranks": [0, 1, 2, 3]}
NOBODY = "memory that nobody has written"
CASES = {
    # Memory that nobody has written.
    "reduced before it was written": (STEP % "t = torch.empty(6, 4); mean(t); g = t", {}, "mismatch", NOBODY + ", made at script.py:"),
    "never written, on each rank": (STEP % "g = torch.empty_like(g)", {}, "mismatch", NOBODY),
    "added to": (STEP % "t = torch.empty(6, 4); t += g; g = mean(t)", {}, "mismatch", NOBODY),
    "copied, scaled and put together": (STEP % "t = torch.empty(48); t.div_(2); u = t[:12].clone(); g = mean(torch.cat([g.view(-1)[:12], u]).view(6, 4))", {}, "mismatch", NOBODY),
    "half of it written": (STEP % "t = torch.empty(6, 4); t[:3] = g[:3]; g = mean(t)", {}, "mismatch", NOBODY),
    "grown and not written": (STEP % "t = torch.empty(6, 4); s = t.untyped_storage(); s.resize_(0); s.resize_(96); g = mean(t)", {}, "mismatch", NOBODY),
    "grown, in float64": (STEP % "t = torch.empty(6, 4, dtype=torch.float64); s = t.untyped_storage(); s.resize_(0); s.resize_(192); mean(t); g = t.float()", {}, "mismatch", NOBODY),
    "grown, in float16": (STEP % "t = torch.empty(6, 4, dtype=torch.float16); s = t.untyped_storage(); s.resize_(0); s.resize_(48); mean(t); g = t.float()", {}, "mismatch", NOBODY),
    "grown, in float64, and written":
        (STEP % "t = torch.empty(6, 4, dtype=torch.float64); s = t.untyped_storage(); s.resize_(0); s.resize_(192); t.copy_(g); mean(t); g = t.float()", {}, "match", ""),
    "of one rank alone": (STEP % "t = torch.empty(6, 4)\nif R != 2: t.copy_(g)\ng = mean(t)", {}, "mismatch", NOBODY),
    "cut off": (STEP % "t = torch.empty(30); t[:24] = g.view(-1); mean(t); g = t[:24].view(6, 4)", {}, "match", ""),
    "written afterwards": (STEP % "t = torch.empty(6, 4); torch.add(g, 0, out=t); g = mean(t)", {}, "match", ""),
    "set to zero and added to": (STEP % "t = torch.empty(6, 4).zero_(); t += g; g = mean(t)", {}, "match", ""),
    "times zero": (STEP % "t = torch.empty(6, 4); t.mul_(0); g = mean(g + t)", {}, "match", ""),
    "without itself": (STEP % "t = torch.empty(6, 4); g = mean((g + t) - t)", {}, "undecided", ""),
    "written by numpy": (STEP % "t = torch.empty(6, 4); t.numpy()[:] = g.numpy(); g = mean(t)", {}, "undecided", ""),
    "written by numpy and divided": (STEP % "dist.all_reduce(g); t = torch.empty(6, 4); t.numpy()[:] = g.numpy(); t /= W; assert t.equal(g / W); g = t", {}, "undecided", "was not followed"),
    "half of it written by numpy, divided":
        (STEP % "dist.all_reduce(g); t = torch.empty(6, 4); t.numpy()[3:] = g[3:].numpy(); torch._foreach_div_([t], W); assert t[3:].equal(g[3:] / W); g = t", {}, "mismatch", NOBODY),
    "used in nothing": (STEP % "mean(g); t = torch.empty(8); t.numpy()[:] = 4; t /= 2; assert t[0] == 2", {}, "match", ""),
    # Reductions that are no sums.
    "the maximum of ranks": (STEP % "dist.all_reduce(g, op=dist.ReduceOp.MAX)", {}, "mismatch", "is no sum"),
    "the maximum of scaled ones, reduced to one and sent to all":
        (STEP % "g /= W; dist.reduce(g, 0, op=dist.ReduceOp.MAX); dist.broadcast(g, 0)", {}, "mismatch", "is no sum"),
    "the maxima of two micro-batches": (TWICE % "dist.all_reduce(g, op=dist.ReduceOp.MAX); held += g", {}, "mismatch", "is no sum"),
    "a maximum less a minimum": (STEP % "t = g.clone(); dist.all_reduce(g, op=dist.ReduceOp.MAX); dist.all_reduce(t, op=dist.ReduceOp.MIN); g = g - t", {}, "mismatch", "is no sum"),
    "a maximum and a minimum": (STEP % "t = g.clone(); dist.all_reduce(g, op=dist.ReduceOp.MAX); dist.all_reduce(t, op=dist.ReduceOp.MIN); g = g + t", {"ranks": 2}, "undecided", ""),
    "the maximum of one": (STEP % "mean(g); dist.all_reduce(g, op=dist.ReduceOp.MAX)", {}, "match", ""),
    "the maximum along an axis of the same data":
        (STEP % "t = [dist.new_group(r) for r in ([0, 1], [2, 3])][R // 2]; d = [dist.new_group(r) for r in ([0, 2], [1, 3])][R % 2]\n"
         "dist.all_reduce(g, op=dist.ReduceOp.MAX, group=t); dist.all_reduce(g, group=d); g /= 2", {"mesh": TWO_BY_TWO, "data_axes": ["dp"]}, "undecided", ""),
    "the maximum along an axis of other data":
        (STEP % "d = [dist.new_group(r) for r in ([0, 2], [1, 3])][R % 2]\ndist.all_reduce(g, op=dist.ReduceOp.MAX, group=d)",
         {"mesh": TWO_BY_TWO, "data_axes": ["dp"]}, "mismatch", "is no sum"),
    # Collectives that nobody has waited for.
    "reduced and not waited for": (STEP % "g /= W; dist.all_reduce(g, async_op=True)", {}, "mismatch", "which nobody has waited for"),
    "not waited for, and copied": (STEP % "g /= W; h = dist.all_reduce(g, async_op=True); g = g.clone()", {}, "mismatch", "which nobody has waited for"),
    "not waited for by one rank": (STEP % "g /= W; h = dist.all_reduce(g, async_op=True)\nif R: h.wait()", {}, "mismatch", "which nobody has waited for"),
    "not waited for before a later one of the group": (STEP % "g /= W; dist.all_reduce(g, async_op=True); dist.all_reduce(torch.zeros(1))", {}, "undecided", ""),
    "ended with the device": (STEP % "g /= W; dist.all_reduce(g, async_op=True); torch.cuda.synchronize()", {}, "match", ""),
    # Buffers to which no backward pass has added, and steps without one.
    "a buffer of zeros that is reduced": (STEP % "t = torch.zeros(6, 4); g = mean(t)", {}, "mismatch", "nothing arrived"),
    "a buffer of zeros that one rank forgets to fill": (STEP % "t = torch.zeros(6, 4)\nif R: t += g\ng = mean(t)", {}, "mismatch", "the share of dp 0 is missing"),
    "a step that makes an optimizer's state and changes nothing": (
        "from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict\nmodel = DDP(nn.Linear(4, 4)); optimizer = sgd(model)\nloss(model)\n"
        "get_optimizer_state_dict(model, optimizer)\nloss(model).backward(); optimizer.step()\n", {"steps": 2}, "undecided", "no backward pass has yielded a gradient"),
    "no backward pass": ("model = DDP(nn.Linear(4, 4)); optimizer = sgd(model)\nloss(model); optimizer.step()\n", {}, "mismatch", "no backward pass has yielded a gradient"),
    "no backward pass in the second step":
        ("model = DDP(nn.Linear(4, 4)); optimizer = sgd(model)\nfor step in range(2):\n    optimizer.zero_grad(); l = loss(model)\n    if not step: l.backward()\n    optimizer.step()\n",
         {"steps": 2}, "mismatch", "no backward pass has yielded a gradient"),
    "a step without a loss": ("model = DDP(nn.Linear(4, 4)); optimizer = sgd(model)\nwith torch.no_grad(): loss(model)\noptimizer.step()\n", {}, "undecided",
                              "no backward pass has yielded a gradient"),
    "a rank without data":
        ("model = nn.Linear(4, 4); optimizer = sgd(model); l = loss(model)\nif R: l.backward()\nfor p in model.parameters():\n    p.grad = torch.zeros_like(p) if p.grad is None else p.grad\n"
         "reduced(model); optimizer.step()\n", {}, "undecided", "no backward pass has yielded a gradient"),
    "one stage of two forgets its backward pass": (STAGES % "s = torch.empty(3, 4); dist.recv(s, 1)", PIPELINE, "mismatch", "no backward pass has yielded a gradient"),
    "no stage of two forgets its backward pass": (STAGES % "s = torch.empty(3, 4); dist.recv(s, 1); y.backward(s)", PIPELINE, "match", ""),
    "a gradient by hand": ("model = nn.Linear(4, 4); optimizer = sgd(model); loss(model)\nfor p in model.parameters(): p.grad = torch.rand_like(p)\noptimizer.step()\n", {},
                           "undecided", "no backward pass has yielded a gradient"),
}
SHORT = ["reduced before it was written", "half of it written by numpy, divided", "used in nothing", "grown, in float64", "copied, scaled and put together", "cut off", "times zero", "without itself", "the maxima of two micro-batches",
         "a maximum and a minimum", "the maximum of one", "the maximum along an axis of the same data", "reduced and not waited for", "ended with the device",
         "not waited for before a later one of the group", "a buffer of zeros that is reduced", "no backward pass in the second step", "a gradient by hand"]


@pytest.mark.parametrize("case", nightly_but(list(CASES), SHORT))
def test_what_is_no_sum_of_gradients_is_wrong_and_what_may_be_one_is_not(tmp_path, case):
    text, settings, verdict, said = CASES[case]
    (tmp_path / "script.py").write_text(HEAD + text)
    extract(tmp_path / "step.json", tmp_path / "script.py", **{"loss": "local_mean", **settings})
    report = judged("check", tmp_path / "step.json")
    assert report["verdict"] == verdict and said in json.dumps(report), json.dumps(report)[:3000]
    if case == "one stage of two forgets its backward pass":
        assert [(one["parameter"], one["ranks"], one["verdict"]) for one in report["results"]] == [("0.weight", [0], "wrong"), ("1.weight", [1], "right")]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
