# SPDX-License-Identifier: Apache-2.0
"""torch.amp.GradScaler: backward yields gradients times its scale, and the optimizer gets them without it, or skips the step."""

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

    def install(self):
        makers = {"scale": self.around_scale, "unscale_": self.run.clipping.around_unscale, "step": self.around_step}
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

    def around_step(self, original):
        def step(scaler, optimizer, *arguments, **keys):
            steps = self.run.steps if self.run.active() else None
            result = original(scaler, optimizer, *arguments, **keys)
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

    def of_results(self, optimizer):
        """The scale that is in the gradients of an optimizer now; None where there is none."""
        stage = getattr(self.state(optimizer).get("stage"), "name", None)
        return None if stage in ("UNSCALED", "STEPPED") else self.scale

    def skips(self, optimizer):
        found = self.state(optimizer).get("found_inf_per_device", {})
        return any(float(one) > 0 for one in found.values())
