# SPDX-License-Identifier: Apache-2.0
"""The capture that writes a rank's program: as any capture (lockstep/capturing.py), but of what a gradient is made of, in the place of its sketch."""

import contextlib

import torch

from lockstep.adapters.plain import Plain
from lockstep.capturing import Run
from lockstep.errors import CaptureError
from lockstep.parameters import held_by, is_dtensor, local_of
from lockstep.pieces import range_of


class Stopped(BaseException):
    """The optimizer has stepped as often as was asked for."""


class Program:
    """What a Recorder is to a capture: keeps the events of this rank. `folder` and `size` are what a capture tells of its files."""

    folder, size, failed, closed = "", 0, False, False

    def __init__(self):
        self.events = []

    def event(self, kind, values):
        if not self.closed:
            self.events.append(dict({"event": kind}, **values))

    def flush(self):
        pass

    def sketches(self, step, rows):
        pass

    def close(self):
        self.closed = True


def joined(parameter, pieces):
    """What a backward yields, as (region of the parameter, its elements): pieces that follow each other in it and in memory are one."""
    found = []
    for number, flat, places in pieces:
        if flat.numel() == 0:
            continue
        if not hasattr(places, "head"):  # elements that do not follow each other
            found.append(({"box": [list(part) for part in parameter.pieces[number].box]}, flat))
            continue
        if found and "range" in found[-1][0]:
            region, before = found[-1]
            if (region["range"][1] == places.first and before.untyped_storage()._cdata == flat.untyped_storage()._cdata and before.is_contiguous()
                    and flat.is_contiguous() and before.storage_offset() + before.numel() == flat.storage_offset()):
                region["range"][1] += flat.numel()
                found[-1] = (region, before.as_strided((before.numel() + flat.numel(),), (1,), before.storage_offset()))
                continue
        found.append(({"range": [places.first, places.first + flat.numel()]}, flat))
    return found


class ProgramRun(Run):
    """`session`: peers.Session; `most`: so many optimizer steps are looked at, after which the script is stopped."""

    bits_tell = False

    def __init__(self, session, most, model, optimizer, **options):
        super().__init__(model, optimizer, out="-", collectives=False, report=False, **options)
        self.adapter.parameters.first = True  # what a hook of the script makes of a gradient is followed as well
        self.session, self.following, self.most = session, session.following, most
        self.noise = torch.Generator().manual_seed((session.draw << 32) + self.rank)
        self.of_source = {}  # numbers of the parameters whose gradients it holds

    def start(self):
        with self.following.pause():
            return super().start()

    __enter__ = start

    def make_recorder(self):
        return Program()

    def not_followed(self):
        return self.following.pause()

    def contribute(self, parameter, gradient):
        """Noise in the place of what backward yields, so that each element of it is told from each other one."""
        if not self.active() or gradient is None:
            return None
        with torch.no_grad(), self.following.pause():
            local = local_of(gradient)
            fresh = torch.randn(local.shape, generator=self.noise, dtype=torch.float64).to(local.dtype)
            if is_dtensor(gradient):
                from torch.distributed.tensor import DTensor

                fresh = DTensor.from_local(fresh, gradient.device_mesh, gradient.placements, run_check=False, shape=gradient.shape,
                                           stride=gradient.stride())
        super().contribute(parameter, fresh)
        return fresh

    def measured(self, event, values, pieces):
        with self.following.pause():
            self.write(event, values, pieces)

    def write(self, event, values, pieces):
        if event == "contribution":
            self.contributed(values, pieces)
        else:
            self.resulted(values, pieces)

    def contribution(self, parameter, gradient):
        """Regions of the parameter, and their elements: one, where the adapter takes gradients as torch yields them."""
        if getattr(self.adapter, "fused", False):
            raise CaptureError("with gradient_accumulation_fusion a kernel adds gradients within backward, which an extraction does not follow yet:"
                               " turn it off")
        if type(self.adapter).contribution is not Plain.contribution or not isinstance(parameter.held, torch.Tensor) or self.is_cut(parameter):
            pieces, partial = self.adapter.contribution(parameter, gradient)
            return joined(parameter, pieces), partial
        box, partial = held_by(gradient)
        if box is None:
            return [], []
        whole = range_of(parameter.shape, box)
        return [({"range": list(whole)} if whole else {"box": [list(part) for part in box]}, local_of(gradient))], partial

    def is_cut(self, parameter):
        """Whether the tensor that the model has is no part of the logical one's dimensions (DeepSpeed's ZeRO 3)."""
        return list(parameter.held.shape) != parameter.shape

    def contributed(self, values, regions):
        memory = self.following.memory
        for region, elements in regions:
            source, content = memory.source(elements)
            memory.put(elements, content.map(lambda plane, elements=elements: plane.reshape(elements.shape)))
            self.of_source[source] = {values["parameter"]}
            self.pending.append(("contribution", dict(values, **region, source=source, elements=elements.numel()), None, None, None))

    def gathering_results(self):
        return contextlib.nullcontext()  # what the adapter makes of gradients, as a flat one of several, is followed as well

    def resulted(self, values, pieces):
        for number, flat, places in pieces:
            content = self.following.memory.of(flat)
            if content is not None:
                segments = self.session.checked(flat, content)
            else:  # zeros, or what was not followed
                segments = [[0, flat.numel(), []]] if bool((flat == 0).all()) else []
            self.pending.append(("result", dict(values, piece=number, content=segments), None, None, None))

    def issued(self, event):
        """A collective, as the session tells it."""
        if not self.active():
            return
        if self.steps >= self.most:  # what optimizers have made of gradients, and passes that were begun
            if event["op"] in ("send", "recv"):
                return
            event = {key: value for key, value in event.items() if key not in ("input", "output")}
        sources = {term[1] for _, _, terms in event.get("input", ()) if not isinstance(terms, str) for term in terms}
        numbers = sorted(set().union(*(self.of_source.get(source, ()) for source in sources)))
        if event.get("output"):
            self.of_source[event["output"]["source"]] = set(numbers)
        self.collective(dict(event, parameters=numbers))

    def carries(self, tensor, parameter):
        pass

    def begin_backward(self, within=False):
        """What follows an optimizer's step, as a gathering of the new parameters, belongs to it: the script is stopped at the next backward pass."""
        if self.taken:
            self.finish_step()
        self.stop_if_done()
        super().begin_backward(within)

    def stop_if_done(self):
        if self.steps >= self.most:
            raise Stopped()
