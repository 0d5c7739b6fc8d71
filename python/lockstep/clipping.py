# SPDX-License-Identifier: Apache-2.0
"""Between torch's clipping and the optimizer's step: what was clipped is what the optimizer steps with, or the line of the result says that it is not."""

import torch

from lockstep import hashing
from lockstep.measuring import lanes_of


class Clipping:
    """Of one capture, `run`, in the step that it is in."""

    def __init__(self, run):
        self.run = run
        self.forget()

    def forget(self):
        self.left = {}  # by parameter and piece: the hash's lanes after the last clipping, None without a gradient

    def lines(self):
        """By parameter and piece: the line of the result, and the hash's lanes that it was looked at with; of optimizers that are yet to step."""
        adapter = self.run.adapter
        over = {parameter.number for optimizer in adapter.optimizers if id(optimizer) in self.run.stepped for parameter in adapter.owned_by(optimizer)}
        return {(line["parameter"], line["piece"]): (line, None if numbers is None else numbers[:2])
                for event, line, _, _, numbers in self.run.pending
                if event == "result" and line["step"] == self.run.step and line["parameter"] not in over}

    def lanes(self, parameters):
        """By parameter and piece, of the gradients that are there now."""
        found = {}
        for parameter in parameters:
            _, pieces, _ = self.run.adapter.result(parameter)
            for number, flat, places in pieces or ():
                found[parameter.number, number] = lanes_of(flat, places)
        return found

    def compare(self, parameters):
        """Tells of gradients that are no more what the last clipping, or the look at them, has left; all others as they are now."""
        with torch.no_grad(), self.run.not_followed():
            own = {parameter.number for parameter in parameters}
            lines = {key: one for key, one in self.lines().items() if key[0] in own}
            known = {number for number, _ in lines}
            now = self.lanes([parameter for parameter in parameters if parameter.number in known])
            pairs = {}
            for key, (line, first) in lines.items():
                before, after = self.left.get(key, first), now.get(key)
                if before is None or after is None or before.device != after.device:
                    self.tell(line, before is None and (after is None or self.run.is_as_looked_at(line)), None)
                else:
                    pairs.setdefault(after.device, []).append((line, key in self.left, torch.cat([before, after])))
            for found in pairs.values():
                for (line, clipped, _), (*before, first, second) in zip(found, torch.stack([lanes for _, _, lanes in found]).tolist()):
                    self.tell(line, before == [first, second], hashing.written((first, second)) if clipped else None)

    def tell(self, line, same, clipped):
        if not same:
            line["changed"] = True
        elif clipped is not None:
            line["clipped"] = clipped

    def before(self, parameters, value=None):
        """`value`: to which each element is clipped; None: by their norm."""
        if self.left:
            self.compare(parameters)

    def after(self, parameters):
        with torch.no_grad(), self.run.not_followed():
            known = self.lines()
            self.left.update((key, lanes) for key, lanes in self.lanes(parameters).items() if key in known)

    def before_step(self, optimizer):
        if self.left:
            self.compare(self.run.adapter.owned_by(optimizer))

    def around_unscale(self, original):
        """A loss scaler may take its scale out of what was clipped with it."""
        def unscale(*arguments, **keys):
            parameters = self.run.adapter.parameters.all if self.run.active() and self.left else []
            if parameters:
                self.compare(parameters)
            result = original(*arguments, **keys)
            if parameters:
                self.after(parameters)
            return result
        return unscale
