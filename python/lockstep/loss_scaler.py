# SPDX-License-Identifier: Apache-2.0
"""torch.amp.GradScaler: backward yields gradients times its scale, and the optimizer gets them without it, or skips the step."""

import inspect

import torch

from lockstep.optimizers import Replaced


def kinds():
    """torch's scaler, and those made of it, such as FSDP's; before torch 2.3 there was one for CUDA alone."""
    found = [getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler]
    for kind in found:
        found += [other for other in kind.__subclasses__() if other not in found]
    return found


class LossScaler:
    """What is known of the scaler that a script uses, between scaling a loss and the end of the optimizer step."""

    def __init__(self, run):
        self.run = run
        self.forget()

    def forget(self):
        self.scaler = self.scale = None
        self.stepping = None  # what a scaler lets step now
        self.unscaled, self.begun = set(), set()  # optimizers by id: whose gradients a scaler has unscaled, and which have begun their step

    def install(self):
        makers = {"scale": self.around_scale, "unscale_": self.around_unscale, "step": self.around_step}
        return [Replaced(kind, name, make) for kind in kinds() for name, make in makers.items() if name in vars(kind)]

    def around_scale(self, original):
        def scale(scaler, *arguments, **keys):
            result = original(scaler, *arguments, **keys)
            if self.run.active() and scaler.is_enabled():
                if self.run.taken:
                    self.run.finish_step()
                self.scaler, self.scale = scaler, float(scaler.get_scale())
            return result
        return scale

    def around_unscale(self, original):
        around = self.run.clipping.around_unscale(original)

        def unscale(scaler, optimizer, *arguments, **keys):
            result = around(scaler, optimizer, *arguments, **keys)
            if self.run.active() and scaler.is_enabled():
                self.unscaled.update(id(own) for own in self.own_of(optimizer))
            return result
        return unscale

    def own_of(self, optimizer):
        """The captured optimizers that a script gives its scaler, one that may be in a wrapper."""
        wrapped = {id(optimizer)}
        while getattr(optimizer, "optimizer", None) is not None and id(optimizer.optimizer) not in wrapped:
            optimizer = optimizer.optimizer
            wrapped.add(id(optimizer))
        return [own for own in self.run.adapter.optimizers if id(own) in wrapped]

    def around_step(self, original):
        def step(scaler, optimizer, *arguments, **keys):
            steps = self.run.steps if self.run.active() else None
            self.stepping = optimizer
            try:
                result = original(scaler, optimizer, *arguments, **keys)
            finally:
                self.stepping = None
            if steps is not None and self.run.active() and steps == self.run.steps and self.scaler is scaler:
                self.skipped_by(optimizer)
            return result
        return step

    def skipped_by(self, optimizer):
        """Whoever steps has told so before: this one may have been skipped."""
        for own in self.run.adapter.optimizers:
            if own in (optimizer, getattr(optimizer, "optimizer", None)) and id(own) not in self.run.stepped:
                self.run.before_step(own)

    def state(self, optimizer):
        """The scaler's own of an optimizer: whether its gradients were unscaled, and what was found in them."""
        states = getattr(self.scaler, "_per_optimizer_states", {})
        if id(optimizer) not in states and len(states) == 1 and len(self.run.adapter.optimizers) == 1:
            return next(iter(states.values()))  # the script has given it a wrapper
        return states.get(id(optimizer)) or {}

    def is_unscaled(self, optimizer):
        stage = getattr(self.state(optimizer).get("stage"), "name", None)
        return id(optimizer) in self.unscaled or stage in ("UNSCALED", "STEPPED")

    def of_results(self, optimizer):
        """The scale that is in the gradients of an optimizer now, and that something takes out of them: before its step a scaler is yet to do so, and in
        its step nobody but itself; None where there is none."""
        if id(optimizer) in self.begun:
            return self.taken_out_by(optimizer)
        return None if self.is_unscaled(optimizer) else self.scale

    def taken_out_by(self, optimizer):
        """The scale that an optimizer itself takes out of what it steps with now, as those that are fused do where a scaler tells them to."""
        if not getattr(optimizer, "_step_supports_amp_scaling", False):
            return None
        scale = getattr(optimizer, "grad_scale", None)
        if scale is not None:
            return float(scale)
        if self.stepping is None or optimizer not in self.own_of(self.stepping) or self.is_unscaled(optimizer):
            return None
        return self.scale if "grad_scaler" in inspect.signature(optimizer.step).parameters else None  # which gets the scaler

    def before_step(self, optimizer):
        """What was looked at with the scale in it, before it was clipped, has it still where nobody has taken it out."""
        self.begun.add(id(optimizer))
        scale = self.taken_out_by(optimizer)
        if self.is_unscaled(optimizer) or scale == self.scale:
            return
        own = {parameter.number for parameter in self.run.adapter.owned_by(optimizer)}
        for line, _ in self.run.clipping.lines().values():
            if line["parameter"] in own and not line.get("changed"):
                line.pop("loss_scale", None)
                if scale is not None:
                    line["loss_scale"] = scale

    def skips(self, optimizer):
        found = self.state(optimizer).get("found_inf_per_device", {})
        return any(float(one) > 0 for one in found.values())
