# SPDX-License-Identifier: Apache-2.0
"""Whether `lockstep extract` sees that the optimizer that a framework has wrapped steps with something else than the framework has, or not at all, that modules compute
with weights that it has not made, and that a loss is multiplied: of a small engine that does what DeepSpeed's ZeRO 1 does, with its names. That of DeepSpeed itself is
looked at by tests/python/code_mutants.json."""

import json
import sys

import pytest

from test_extract import extract, judged
from torch_ranks import nightly, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

SCRIPT = """
import sys, types
import torch, torch.distributed as dist
sys.modules["deepspeed"] = types.ModuleType("deepspeed")
sys.modules["deepspeed"].__version__ = "0"
dist.init_process_group("gloo")
torch.manual_seed(3)
class Around(torch.optim.Optimizer):
    def __init__(self, tensors, lr):
        self.inner = torch.optim.SGD(tensors, lr=lr)
        self.defaults = self.inner.defaults
    param_groups = property(lambda self: self.inner.param_groups)
    def step(self, closure=None):
        self.inner.step()
class Others(torch.optim.SGD):
    def step(self, closure=None):
        torch.optim.SGD([torch.zeros(3)], lr=0.1).step()
class DeepSpeedZeroOptimizer:
    overflow, loss_scale = False, 1.0
    def __init__(self, model):
        self.real_dp_process_group, self.bit16_groups, self.averaged_gradients = [dist.group.WORLD], [list(model.parameters())], {}
        flat = torch.cat([one.detach().reshape(-1) for one in model.parameters()])
        self.bit16_groups_flat, begin = [flat], 0
        for one in model.parameters():
            one.data = flat[begin:begin + one.numel()].view_as(one)
            begin += one.numel()
        self.size = flat.numel() // dist.get_world_size()
        self.part = flat[self.size * dist.get_rank():][:self.size]
        self.single_partition_of_fp32_groups = [self.part.clone()]
        self.optimizer = MAKES(self.single_partition_of_fp32_groups, lr=LEARNS)
    def reduce(self):
        own = torch.empty(self.size)
        dist.reduce_scatter_tensor(own, torch.cat([one.grad.reshape(-1) for one in self.bit16_groups[0]]))
        self.averaged_gradients[0] = [own / dist.get_world_size()]
        REDUCED
        for one in self.bit16_groups[0]:
            one.grad = None
    def step(self):
        main, = self.single_partition_of_fp32_groups
        main.grad = self.averaged_gradients.pop(0)[0]
        GIVE
        STEP
        COPY
        GATHER
class FP16_Optimizer:
    overflow, loss_scale = False, 1.0
    def __init__(self, model):
        self.fp16_groups = [list(model.parameters())]
        self.fp32_groups_flat = [torch.cat([one.detach().reshape(-1) for one in model.parameters()])]
        self.optimizer = torch.optim.SGD(self.fp32_groups_flat, lr=0.1)
    def reduce(self):
        for one in self.fp16_groups[0]:
            dist.all_reduce(one.grad)
            one.grad.div_(dist.get_world_size())
    def step(self):
        main, = self.fp32_groups_flat
        main.grad = torch.cat([one.grad.reshape(-1) for one in self.fp16_groups[0]])
        GIVE
        STEP
        begin = 0
        for one in self.fp16_groups[0]:
            one.data.copy_(main[begin:begin + one.numel()].view_as(one))
            one.grad, begin = None, begin + one.numel()
class DeepSpeedEngine(torch.nn.Module):
    __module__ = "deepspeed.engine"
    def __init__(self, model):
        super().__init__()
        self.module, self.optimizer, self.micro = model, ZERO(model), 0
    zero_optimization_stage = lambda self: STAGE
    gradient_accumulation_steps = lambda self: 2
    gradient_clipping = lambda self: CLIPS
    mpu = UNIT
    def forward(self, inputs):
        return self.module(inputs)
    def backward(self, loss, retain_graph=False, scale_wrt_gas=True):
        loss = DIVIDED
        loss.backward()
    def _take_model_step(self):
        self.optimizer.step()
    def step(self):
        self.micro += 1
        if self.micro % 2 == 0:
            self.optimizer.reduce()
            self._take_model_step()
engine = DeepSpeedEngine(torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 8)))
saved = [one.detach().clone() for one in engine.module.parameters()]
for micro_batch in range(6):
    engine.backward(engine(torch.randn(4, 8)).square().mean())
    engine.step()
    AFTER
"""
RIGHT = {"GIVE": "pass", "STEP": "self.optimizer.step()", "COPY": "self.part.copy_(main)", "GATHER": "dist.all_gather_into_tensor(self.bit16_groups_flat[0], self.part.clone())",
         "ZERO": "DeepSpeedZeroOptimizer", "STAGE": "1", "CLIPS": "0.0", "REDUCED": "pass", "AFTER": "pass", "MAKES": "torch.optim.SGD", "LEARNS": "0.1", "UNIT": "None", "DIVIDED": "loss / self.gradient_accumulation_steps() if scale_wrt_gas else loss"}
SCALED = "loss * self.optimizer.loss_scale / self.gradient_accumulation_steps()"
ROLLS_BACK = """
    with torch.no_grad():
        for one, value in zip(engine.module.parameters(), saved):
            one.copy_(value)
        RELOADS"""
WITHOUT_ZERO = {"ZERO": "FP16_Optimizer", "STAGE": "0"}
# By name: what is there in the place of that, and what is found.
CASES = {
    "right": ({}, ""),
    "right, clipped": ({"GIVE": "main.grad.div_(2 * main.grad.norm())", "CLIPS": "1.0"}, ""),
    "right, with a norm that is not clipped": ({"CLIPS": "1000.0"}, ""),
    "right, of a unit, whose first rank counts the norm": ({"CLIPS": "0.001", "UNIT": "object()"}, ""),
    "right, of a type with fewer digits": ({"GIVE": "main.grad = main.grad.bfloat16().float()"}, ""),
    "right, of zeros and behind another optimizer": ({"GIVE": "main.zero_()", "STEP": "torch.optim.SGD([torch.zeros(3)], lr=0.1).step(); self.optimizer.step()"}, ""),
    "right, gathered in a type with fewer digits": ({"GATHER": "whole = self.bit16_groups_flat[0].bfloat16(); dist.all_gather_into_tensor(whole, self.part.bfloat16());"
                                                               " self.bit16_groups_flat[0].copy_(whole)"}, ""),
    "right, waited for": ({"GATHER": "dist.all_gather_into_tensor(self.bit16_groups_flat[0], self.part.clone(), async_op=True).wait()"}, ""),
    "right, with a scale that grows behind it": ({"DIVIDED": SCALED, "GIVE": "main.grad.div_(self.loss_scale); self.loss_scale *= 2"}, ""),
    "right, without ZeRO, with a scale": (dict(WITHOUT_ZERO, DIVIDED=SCALED, GIVE="main.grad.div_(self.loss_scale); self.loss_scale *= 2"), ""),
    "with the scale of the next step": ({"DIVIDED": SCALED, "GIVE": "self.loss_scale *= 2; main.grad.div_(self.loss_scale)"}, "steps with another multiple"),
    "with the scale of the next step, without ZeRO": (dict(WITHOUT_ZERO, DIVIDED=SCALED, GIVE="self.loss_scale *= 2; main.grad.div_(self.loss_scale)"), "steps with another multiple"),
    "a loss without its scale, without ZeRO": (dict(WITHOUT_ZERO, GIVE="self.loss_scale = 2.0; main.grad.div_(2)"), "steps with another multiple"),
    "never, without ZeRO": (dict(WITHOUT_ZERO, STEP="pass"), "does not step with the gradients"),
    "right, by an optimizer within one that nobody watches": ({"MAKES": "Around"}, ""),
    "right, that learns nothing": ({"LEARNS": "0.0"}, ""),
    "right, rolled back": ({"AFTER": ROLLS_BACK.replace("RELOADS", "engine.optimizer.single_partition_of_fp32_groups[0].copy_(engine.optimizer.part)")}, ""),
    "rolled back, but for what the optimizer has": ({"AFTER": ROLLS_BACK.replace("RELOADS", "pass")}, "a module computes with the weights of before the last optimizer step"),
    "never": ({"STEP": "pass"}, "does not step with the gradients"),
    "with another tensor": ({"GIVE": "self.optimizer.param_groups[0]['params'] = [torch.zeros(3)]"}, "does not step with the gradients"),
    "without a gradient": ({"GIVE": "main.grad = None"}, "does not step with the gradients"),
    "with zeros": ({"GIVE": "main.grad.zero_()"}, "does not step with the gradients"),
    "with other gradients": ({"GIVE": "main.grad = main.grad.roll(1)"}, "steps with other gradients"),
    "with a multiple": ({"GIVE": "main.grad.mul_(2)"}, "steps with another multiple"),
    "with a larger norm than is allowed": ({"GIVE": "main.grad.div_(main.grad.norm() / 3)", "CLIPS": "1.0"}, "to no norm that the engine allows"),
    "with a multiple, where it clips": ({"GIVE": "main.grad.mul_(2)", "CLIPS": "1000.0"}, "to no norm that the engine allows"),
    "with the scale of the next step, where it clips": (
        {"DIVIDED": SCALED, "CLIPS": "1000.0", "GIVE": "self._global_grad_norm = float(main.grad.norm()) / self.loss_scale; self.loss_scale *= 2; main.grad.div_(self.loss_scale)"},
        "to no norm that the engine allows"),
    "by another optimizer, with other tensors": ({"MAKES": "Others"}, "does not step with the gradients"),
    "not, as after an overflow": ({"GIVE": "self.overflow = True; return"}, "none of its gradients has overflowed"),
    "weights that nobody gathers": ({"GATHER": "pass"}, "a module computes with the weights of before the last optimizer step"),
    "weights that nobody copies": ({"COPY": "pass"}, "a module computes with the weights of before the last optimizer step"),
    "weights that nobody waits for": ({"GATHER": "dist.all_gather_into_tensor(self.bit16_groups_flat[0], self.part.clone(), async_op=True)"},
                                      "a module computes with weights that an asynchronous collective brings"),
    "a loss that is multiplied": ({"DIVIDED": "loss * self.gradient_accumulation_steps()"}, "the engine calls backward on another multiple of the loss"),
}
WITH_EVERY_CHANGE = ("never", "weights that nobody copies")


def checked(folder, changes):
    text = SCRIPT
    for place, line in dict(RIGHT, **changes).items():
        text = text.replace(place, line)
    (folder / "script.py").write_text(text)
    extract(folder / "step.json", folder / "script.py", loss="local_mean", steps=2)
    return judged("check", folder / "step.json")


@pytest.mark.parametrize("name", [one if one in WITH_EVERY_CHANGE else pytest.param(one, marks=nightly) for one in CASES])
def test_an_optimizer_that_is_wrapped_steps_with_what_the_engine_has(tmp_path, name):
    changes, why = CASES[name]
    report = checked(tmp_path, changes)
    assert report["verdict"] == ("mismatch" if why else "match"), json.dumps(report)[:2000]
    assert why in json.dumps(report)
    wrong = {one["step"] for one in report["results"] if one["verdict"] != "right"}
    assert wrong == (set() if not why else {1} if "weights" in why else {0, 1})


@nightly
@pytest.mark.parametrize("changes", [{"AFTER": "if not micro_batch: engine.optimizer.optimizer.register_step_pre_hook(lambda *_: [one.grad.mul_(0.5) for one in engine.optimizer.single_partition_of_fp32_groups][1:] or None)"},
                                     {"MAKES": "type('Waits', (torch.optim.SGD,), {'step': lambda self, closure=None: None})"}])
def test_what_a_script_may_mean_of_its_optimizer_is_undecided(tmp_path, changes):
    assert checked(tmp_path, changes)["verdict"] == "undecided"


@nightly
@pytest.mark.parametrize("ranks", ["0, 1", "1"])
def test_a_step_that_is_skipped_for_an_overflow_is_not_wrong_on_any_rank(tmp_path, ranks):
    report = checked(tmp_path, {"REDUCED": "self.averaged_gradients[0][0][:3] *= float('inf') if dist.get_rank() in (%s,) else 1.0" % ranks, "GIVE": """
        found = (~main.grad.isfinite().all()).byte()
        dist.all_reduce(found, dist.ReduceOp.MAX)
        self.overflow = bool(found)
        if self.overflow: return"""})
    assert report["verdict"] == "undecided", json.dumps(report)[:2000]
    assert "a gradient of the engine has overflowed, and it skips its step" in json.dumps(report)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
