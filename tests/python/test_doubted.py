# SPDX-License-Identifier: Apache-2.0
"""Scripts of which `lockstep extract` or `lockstep check` once said something false, and what is to be said of them."""

import json
import sys

import pytest

from test_extract import extract, judged
from torch_ranks import nightly_but, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

HEAD = """
import contextlib, torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
R, W = dist.get_rank(), dist.get_world_size()
torch.manual_seed(R + 7)
def sgd(*modules): return torch.optim.SGD([p for m in modules for p in m.parameters()], lr=0.1)
def loss(model): return model(torch.randn(3, 4)).square().mean()
def reduced(*modules):
    for m in modules:
        for p in m.parameters(): dist.all_reduce(p.grad); p.grad /= W
"""
BY_HAND = "model = nn.Linear(4, 4); optimizer = sgd(model)\n%sloss(model).backward()\nreduced(model); optimizer.step()\n"
STAGES = """
class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        if R == 0: self.first = nn.Linear(4, 8)
        else: self.last = nn.Linear(8, 4)
    def forward(self, x): return self.first(x) if R == 0 else self.last(x)
stage = Stage(); optimizer = sgd(stage)
if R == 0:
    h = stage(torch.randn(3, 4)); dist.send(h.detach(), 1); g = torch.empty(3, 8); dist.recv(g, 1); h.backward(g)
else:
    h = torch.empty(3, 8); dist.recv(h, 0); h.requires_grad_(); stage(h).square().mean().backward(); dist.send(h.grad, 0)
%soptimizer.step()
"""
PIPELINE = {"ranks": 2, "mesh": {"axes": ["pp"], "sizes": [2], "ranks": [0, 1]}, "data_axes": []}
ROWS = """
class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(context, own, x):
        whole = torch.empty(W, 4); dist.all_gather_into_tensor(whole, own.detach()); context.save_for_backward(x); return x @ whole.t()
    @staticmethod
    def backward(context, g):
        x, = context.saved_tensors; out = torch.empty(1, 4); dist.reduce_scatter_tensor(out, (g.t() @ x).contiguous()); return out / W, None
class Model(nn.Module):
    def __init__(self): super().__init__(); self.own = nn.Parameter(torch.randn(1, 4))
    def forward(self, x): return Gathered.apply(self.own, x)
model = Model(); optimizer = sgd(model); loss(model).backward(); optimizer.step()
"""
SHARES = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
class Model(nn.Module):
    def __init__(self): super().__init__(); self.weight = nn.Parameter(distribute_tensor(torch.ones(4), mesh, [Replicate()]))
    def forward(self, x): return DTensor.from_local(x, mesh, [Shard(0)]) * self.weight
model = Model(); optimizer = sgd(model); model(torch.randn(3, 4)).to_local().square().mean().backward()
assert model.weight.grad.placements[0].is_partial()
%soptimizer.step()
"""
ONE_BY_ONE = """
import lockstep
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
class Summed(torch.autograd.Function):
    @staticmethod
    def forward(context, x): x = x.clone(); dist.all_reduce(x); return x
    @staticmethod
    def backward(context, g): return g
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4); self.down = nn.Parameter(distribute_tensor(torch.randn(4, 4), mesh, [Shard(1)])); self.bias = nn.Parameter(torch.zeros(4))
    def forward(self, x): return self.norm(x)
model = Model(); optimizer = sgd(model); torch.manual_seed(5); x = torch.randn(3, 4)
with lockstep.capture(model, optimizer, mesh=mesh):
    h = %s; out = Summed.apply(h[:, R:R + 1].detach() @ model.down.to_local().t()) + model.bias
    (out.square().mean() + h.square().mean()).backward(); optimizer.step()
"""
EXPERTS = """
class Model(nn.Module):
    def __init__(self): super().__init__(); self.dense = nn.Linear(4, 4); self.add_module("expert%d" % R, nn.Linear(4, 4))
    def forward(self, x): return getattr(self, "expert%d" % R)(self.dense(x))
model = Model(); optimizer = sgd(model); loss(model).backward(); reduced(model.dense)
expert = getattr(model, "expert%d" % R)
for p in expert.parameters(): p.grad /= W
clip_grad_norm_(model.dense.parameters(), 1.0); clip_grad_norm_(expert.parameters(), 1.0)
optimizer.step()
"""
SCALED = """
model = DDP(nn.Linear(4, 4).cuda()); optimizer = sgd(model); scaler = torch.amp.GradScaler("cuda")
scaler.scale(model(torch.randn(3, 4).cuda()).square().mean()).backward()
%s
scaler.step(optimizer); scaler.update()
"""
UNKNOWN_NORM = "nothing says whether one device would clip both by one norm"
ONCE = "counts each element of 2 parameters once"
# The script, how it is extracted, the verdict, and what is said.
CASES = {
    # Calls before the model's first forward pass.
    "a barrier of one rank alone": (BY_HAND % "if R == 1: dist.barrier()\n", {}, "mismatch", "and rank 1 barrier at script.py:"),
    "weights broadcast in another order": (BY_HAND % "for p in list(model.parameters())[::-1 if R == 1 else 1]: dist.broadcast(p.data, 0)\n", {}, "mismatch",
                                           "collective 1 of ranks 0 to 3"),
    "a forward pass of one rank before weights are broadcast":
        (BY_HAND % "if R == 0:\n    with torch.no_grad(): model(torch.zeros(1, 4))\nfor p in model.parameters(): dist.broadcast(p.data, 0)\n", {}, "match", ""),
    "a reduction of one rank alone, as large as the first gradient": (BY_HAND % "if R == 1: t = torch.zeros(16); dist.all_reduce(t)\n", {}, "mismatch",
                                                                      "the share of dp 1 is missing"),
    "a reduction of one rank alone": (BY_HAND % "if R == 1: t = torch.rand(20); dist.all_reduce(t)\n", {}, "mismatch", "all_reduce of 20 float32 elements"),
    "a reduction of all": (BY_HAND % "t = torch.rand(20); dist.all_reduce(t)\n", {}, "match", ""),
    "two stages, of which one receives before it computes": (STAGES % "", PIPELINE, "match", ""),
    "values that come before the first forward pass alone":
        ("model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)); own = list(model.parameters())\nl = [torch.zeros(20) for _ in range(W)]\n"
         "dist.all_gather(l, torch.rand(20))\noptimizer = torch.optim.SGD([own[R]], lr=0.1)\nloss(model).backward(); reduced(model); optimizer.step()\n", {},
         "undecided", "nothing that was recorded brings it the new values"),
    # Clippings.
    "each parameter by itself, in another order on some ranks":
        ("model = DDP(nn.Linear(4, 4)); optimizer = sgd(model); loss(model).backward()\n"
         "for p in list(model.parameters())[::-1 if R % 2 else 1]: clip_grad_norm_([p], 1.0)\noptimizer.step()\n", {}, "match",
         "counts each element of 1 parameter once"),
    "each rank's expert by itself": (EXPERTS, {}, "undecided", UNKNOWN_NORM),
    "each module of a stage by itself": (STAGES % "for child in stage.children(): clip_grad_norm_(child.parameters(), 1.0)\n", PIPELINE, "undecided", UNKNOWN_NORM),
    "together on one rank, one by one on others":
        ("model = DDP(nn.Linear(4, 4)); optimizer = sgd(model); loss(model).backward()\nP = list(model.parameters())\n"
         "for own in ([P] if R == 0 else [[p] for p in P]): clip_grad_norm_(own, 1.0)\noptimizer.step()\n", {}, "mismatch", "leaves out elements"),
    "to infinity, before gradients are reduced":
        (BY_HAND.replace("reduced(model)", "clip_grad_norm_(model.parameters(), float('inf')); reduced(model)") % "", {}, "match", ""),
    "with a loss scaler's scale": (SCALED % "clip_grad_norm_(model.parameters(), 1.0)", {}, "mismatch", "is 65536 times that of the gradients"),
    "past its loss scaler": (SCALED.replace("scaler.step(optimizer); scaler.update()", "optimizer.step()") % "", {}, "mismatch",
                             "every contribution came with 16384 where 1/4 was expected"),
    "without the scale": (SCALED % "scaler.unscale_(optimizer); clip_grad_norm_(model.parameters(), 1.0)", {}, "match", ONCE),
    "to a value, with a loss scaler's scale": (SCALED % "torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)", {}, "undecided", "scale, 65536, is in them"),
    "of shards, of which some ranks have none":
        ("model = nn.Linear(4, 2); fully_shard(model); optimizer = sgd(model); loss(model).backward()\nclip_grad_norm_(model.parameters(), 1.0); optimizer.step()\n",
         {}, "match", ONCE),
    # What ranks yield.
    "a reduction within the backward pass": (ROWS, {}, "undecided", "within the backward pass its gradient gets what other ranks have put in at script.py:"),
    "a micro-batch less on one rank":
        ("model = nn.Linear(4, 4); optimizer = sgd(model)\nfor _ in range(2 if R < 3 else 1): (loss(model) / 2).backward()\nreduced(model); optimizer.step()\n", {},
         "undecided", "rank 3 yields gradients of 1 micro-batch, and rank 2 of 2"),
    "shares that the optimizer adds up": (SHARES % "", {}, "match", ""),
    "shares that are added up before as well": (SHARES % "dist.all_reduce(model.weight.grad._local_tensor)\n", {}, "mismatch", "4*(g0+g1+g2+g3)"),
    "layers that the script calls one by one": (ONE_BY_ONE % "model.norm(x)", {}, "undecided", "nothing says whether it is one gradient or shares of one"),
    "what the script makes of the model's output": (ONE_BY_ONE % "model(x)", {}, "match", ""),
    # Optimizers that step later.
    "hooks that torch refuses without a GPU, or has in C++":
        ("from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook as local\n"
         "model = nn.Sequential(*[DDP(nn.Linear(4, 4)) for _ in range(3)]); optimizer = sgd(model)\n"
         "model[0].register_comm_hook(None, default_hooks.bf16_compress_hook); model[1]._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)\n"
         "model[2].register_comm_hook(local.PostLocalSGDState(None, dist.new_subgroups()[0], 0), local.post_localSGD_hook)\n"
         "dist.monitored_barrier(); loss(model).backward(); optimizer.step()\n", {}, "match", ""),
    "of two critics one is reduced":
        ("a, b = DDP(nn.Linear(4, 4)), nn.Linear(4, 5); x, y = sgd(a), sgd(b)\nfor _ in range(3):\n    (loss(a) + loss(b)).backward(); x.step(); y.step()\n", {},
         "undecided", "in optimizer step 0, an optimizer that was not captured gets gradients of 2 parameters"),
    "of two models one is reduced":
        ("a, b = DDP(nn.Linear(4, 4)), nn.Linear(4, 5); x, y = sgd(a), sgd(b)\nloss(a).backward(); x.step(); loss(b).backward(); y.step()\n", {},
         "undecided", "optimizers of 2 parameters that the captured model has not had not stepped when the script was stopped: --steps 2 looks further"),
    "of two layers one is reduced, and the other steps later":
        ("model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)); x, y = map(sgd, model)\nfor step in range(4):\n    loss(model).backward(); reduced(model[0]); x.step()\n"
         "    if step % 2: y.step()\n", {}, "undecided", "no optimizer that has 1.weight or 1 other stepped in the optimizer steps that were looked at"),
}
SHORT = ["a barrier of one rank alone", "a reduction of one rank alone, as large as the first gradient", "values that come before the first forward pass alone",
         "each parameter by itself, in another order on some ranks", "each rank's expert by itself", "to infinity, before gradients are reduced",
         "with a loss scaler's scale", "of shards, of which some ranks have none", "a reduction within the backward pass", "a micro-batch less on one rank",
         "shares that are added up before as well", "layers that the script calls one by one",
         "hooks that torch refuses without a GPU, or has in C++",
         "of two models one is reduced", "of two layers one is reduced, and the other steps later"]


@pytest.mark.parametrize("case", nightly_but(list(CASES), SHORT))
def test_what_doubting_readers_found(tmp_path, case):
    text, settings, verdict, said = CASES[case]
    (tmp_path / "script.py").write_text(HEAD + text)
    extract(tmp_path / "step.json", tmp_path / "script.py", **{"loss": "local_mean", **settings})
    report = judged("check", tmp_path / "step.json")
    assert report["verdict"] == verdict and said in json.dumps(report), json.dumps(report)[:3000]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
