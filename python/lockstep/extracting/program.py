# SPDX-License-Identifier: Apache-2.0
"""The capture that writes a rank's program: as any capture (lockstep/capturing.py), but of what a gradient is made of, in the place of its sketch."""

import contextlib
from fractions import Fraction

import torch
import torch.distributed as dist

from lockstep.adapters.plain import Plain
from lockstep.capturing import Run
from lockstep.errors import CaptureError
from lockstep.extracting.contents import FOREIGN, KNOWN, Content
from lockstep.extracting.local_form import is_unknown
from lockstep.extracting.norms import Norms
from lockstep.extracting.pipelining import name_by_stage
from lockstep.extracting.session import Noise
from lockstep.extracting.stepping import Stepping
from lockstep.extracting.weights import Weights
from lockstep.mesh import is_over_data
from lockstep.parameters import held_by, is_dtensor, local_of
from lockstep.pieces import range_of

# What may bring the new values of parameters to ranks whose optimizers do not have them.
BRINGS = ("all_gather", "broadcast", "scatter", "all_to_all")


class Stopped(BaseException):
    """The optimizer has stepped as often as was asked for."""


class Program:
    """What a Recorder is to a capture: keeps the events of this rank. `folder` and `size` are what a capture tells of its files."""

    folder, size, failed, closed = "", 0, False, False
    stopped = False  # the rank, behind the last optimizer step that is looked at: it would have gone on

    def __init__(self):
        self.events = []

    def event(self, kind, values):
        if not self.closed:
            self.events.append(dict({"event": kind}, **values, **({"stopped": True} if kind == "end" and self.stopped else {})))

    def flush(self):
        pass

    def sketches(self, step, rows, wide):
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
    """`session`: session.Session; `most`: so many optimizer steps are looked at, after which the script is stopped."""

    bits_tell = False

    def __init__(self, session, most, model, optimizer, **options):
        super().__init__(model, optimizer, out="-", collectives=False, report=False, **options)
        if name_by_stage(self, model):
            self.adapter.begin()
        self.adapter.parameters.first = True  # what a hook of the script makes of a gradient is followed as well
        self.adapter.parameters.unsharded = self.unsharded
        self.weights = Weights(self.adapter, session.following)
        self.session, self.following, self.most = session, session.following, most
        self.noise = Noise(self.rank, session.draw)
        self.norms = Norms(self)
        self.stepping = Stepping(self) if self.adapter.name == "deepspeed" else None
        self.yielded = False  # by a backward pass of this step
        self.computed = False  # a module, so that there may be one
        self.has_others = False  # of what the optimizers get in this step, what is neither zero nor wrong: what other ranks have yielded, or numbers that come from nowhere
        self.looked_at = {}  # by parameter: how many optimizer steps there had been when its gathered weights were looked at
        self.scales = {}  # by parameter: of the loss, when the result was looked at
        self.shares = {}  # by parameter and piece: what was there then of a gradient that is to be added up
        self.of_source = {}  # numbers of the parameters whose gradients it holds

    def start(self):
        with self.following.pause():
            self.norms.start()
            super().start()
            self.undo += self.stepping.install() if self.stepping else []
            self.session.record_with(self.issued)
            return self

    __enter__ = start

    def make_recorder(self):
        return Program()

    def not_followed(self):
        return self.following.pause()

    def contribute(self, parameter, gradient):
        """Noise in the place of what backward yields, so that each element of it is told from each other one."""
        if not self.active() or gradient is None:
            return None
        if gradient.layout != torch.strided:
            raise CaptureError("parameter %s has a sparse gradient, which an extraction does not follow" % parameter.name)
        with torch.no_grad(), self.following.pause():
            local = local_of(gradient)
            self.yielded = True
            self.look_for_reductions(parameter, local)
            self.look_at_weights(parameter, self.step)  # or they may be those of the step before
            self.session.alike.yielded(parameter, local)
            fresh = self.noise.like(local)
            if is_dtensor(gradient):
                from torch.distributed.tensor import DTensor

                fresh = DTensor.from_local(fresh, gradient.device_mesh, gradient.placements, run_check=False, shape=gradient.shape,
                                           stride=gradient.stride())
        super().contribute(parameter, fresh)
        return fresh

    def measured(self, event, values, pieces):
        if event == "result" and values.get("partial"):
            values, pieces = self.added_up(values, pieces)
        with self.following.pause():
            self.write(event, values, pieces)

    def write(self, event, values, pieces):
        if event == "contribution":
            self.contributed(values, pieces)
        else:
            self.resulted(values, pieces)

    def look_for_reductions(self, parameter, gradient):
        """What other data-parallel ranks have put into a collective within the backward pass is in what it yields: then that is not this rank's own."""
        memory = self.following.memory
        content = memory.of(gradient)
        if content is None:
            return
        for mark in torch.unique(content.marks[content.marks > KNOWN]).tolist():
            reason = memory.reasons[mark]
            if is_over_data(self.mesh, self.data_axes, self.session.members_of.get(reason, ())):
                self.gaps.gets_from_others(parameter, reason)
                return

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
        scale = Fraction(values.pop("loss_scale", None) or 1)  # what backward yields is so many times the gradient
        for region, elements in regions:
            source, content = memory.source(elements / float(scale))
            content = memory.scaled(content, scale) if scale != 1 else content
            memory.put(elements, content.map(lambda plane, elements=elements: plane.reshape(elements.shape)))
            self.of_source[source] = {values["parameter"]}
            self.pending.append(("contribution", dict(values, **region, source=source, elements=elements.numel()), None, None, None))

    def gathering_results(self):
        return contextlib.nullcontext()  # what the adapter makes of gradients, as a flat one of several, is followed as well

    def resulted(self, values, pieces):
        scale = Fraction(values.pop("loss_scale", None) or 1)
        self.scales[values["parameter"]] = scale
        for number, flat, _ in pieces:
            self.pending.append(("result", dict(values, piece=number, content=self.content_of(flat, scale)), None, None, None))

    def added_up(self, values, pieces):
        """What an optimizer gets of shares, a DTensor whose placement is Partial, which torch adds up within its step: done here, as it will be there, so
        that it is followed."""
        gradient = self.adapter.parameters.all[values["parameter"]].held.grad
        values, found = {key: value for key, value in values.items() if key != "partial"}, []
        for number, flat, places in pieces:
            with self.following.pause():
                self.shares[values["parameter"], number] = self.content_of(flat, Fraction(1))
            flat = flat.clone()
            for name, placement in zip(gradient.device_mesh.mesh_dim_names or (), gradient.placements):
                kind = getattr(placement, "reduce_op", None)
                if kind is not None:
                    dist.all_reduce(flat, op={"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG}.get(kind, dist.ReduceOp.PRODUCT),
                                    group=gradient.device_mesh.get_group(name))
            found.append((number, flat, places))
        return values, found

    def content_of(self, flat, scale):
        if self.following.memory.of(flat) is not None:
            segments = self.session.checked(flat)
        else:  # zeros, or what was not followed
            segments = [[0, flat.numel(), []]] if bool((flat == 0).all()) else self.unwritten(flat)
        told = sum(count for _, count, _ in segments)
        self.has_others = self.has_others or told < flat.numel() or any(terms and not isinstance(terms, dict) for _, _, terms in segments)
        if scale == 1:
            return segments
        return [[first, count, terms if is_unknown(terms) else [[str(Fraction(factor) / scale), *rest] for factor, *rest in terms]]
                for first, count, terms in segments]

    def unwritten(self, flat):
        """Segments of what nobody has written in what was not followed."""
        found = self.following.unwritten.of(flat)
        if found is None:
            return []
        memory = self.following.memory
        marks = torch.where(found[0], memory.reasons.number(found[1]), FOREIGN)
        return memory.segments(Content(marks, []))

    def is_as_looked_at(self, line):
        """A piece that was not clipped while others were: no hash was taken of it, and what is in it is followed."""
        parameter = next(one for one in self.adapter.parameters.all if one.number == line["parameter"])
        _, pieces, _ = self.adapter.result(parameter)
        flat = next((flat for number, flat, _ in pieces or () if number == line["piece"]), None)
        shares = self.shares.get((parameter.number, line["piece"]))
        if flat is not None and shares is not None:
            return self.content_of(flat, Fraction(1)) == shares
        return flat is not None and line.get("content") not in (None, []) \
            and self.content_of(flat, self.scales[parameter.number]) == line["content"]

    def issued(self, event):
        """A collective, as the session tells it."""
        if not self.active():
            return
        sources = {term[1] for _, _, terms in event.get("input", ()) if not is_unknown(terms) for term in terms}
        numbers = sorted(set().union(*(self.of_source.get(source, ()) for source in sources)))
        if event.get("output"):
            self.of_source[event["output"]["source"]] = set(numbers)
        if self.steps >= self.most:  # what optimizers have made of gradients, and passes that were begun
            if event["op"] not in BRINGS:
                self.gaps.collective(dict(event, parameters=numbers))
                return
            event = {key: value for key, value in event.items() if key not in ("input", "output")}
        self.collective(dict(event, parameters=numbers))

    def carries(self, tensor, parameter):
        pass

    def before_step(self, optimizer):
        self.session.look()
        with torch.no_grad(), self.following.pause():
            if self.session.draw == 0:
                self.weights.before_step()
            if self.stepping and self.session.draw == 0 and self.active():
                self.stepping.begin(self.step)
        super().before_step(optimizer)
        self.following.stepping = True

    def steps_within(self, optimizer):
        """One of torch's is about to step, which a framework may have wrapped."""
        if self.stepping and self.active():
            with torch.no_grad(), self.following.pause():
                self.stepping.steps(optimizer)
        self.weights.has_stepped = True

    def has_stepped_within(self, optimizer):
        if self.session.draw == 0:
            with torch.no_grad(), self.following.pause():
                self.weights.after_step(optimizer)
        if not (self.stepping and self.stepping.within):  # else it may do so again
            self.following.stepping = False

    def finish_step(self):
        """Where nothing was yielded, that optimizers get nothing is as it should be, and yet nobody trains."""
        numbers = [parameter.number for parameter in self.adapter.parameters.all if not parameter.frozen]
        if not self.yielded and numbers:
            # What comes of other ranks may be all that there is, and somebody may have computed gradients without autograd; or the step is to make an
            # optimizer's state and to change nothing, as torch's get_optimizer_state_dict takes one.
            changes = any(group.get("lr", 1) for optimizer in self.adapter.optimizers for group in getattr(optimizer, "param_groups", [{}]))
            self.say_wrong("no backward pass has yielded a gradient", numbers, self.step, self.computed and changes and not self.has_others)
        self.yielded = self.computed = self.has_others = False
        super().finish_step()

    def unsharded(self, parameter, shards, before, tensor):
        """FSDP2 has gathered a parameter."""
        self.weights.gathered[parameter.number] = shards, before, tensor
        with torch.no_grad(), self.following.pause():
            self.look_at_weights(parameter, self.step + bool(self.taken))

    def computes(self, module):
        """With what was gathered before the optimizer has stepped, where nothing has been gathered since."""
        known = self.adapter.parameters.by_place
        for name in module._parameters:
            parameter = known.get((id(module), name))
            if parameter is not None and parameter.number in self.weights.gathered and self.looked_at.get(parameter.number) != self.steps:
                with torch.no_grad(), self.following.pause():
                    self.look_at_weights(parameter, self.step + bool(self.taken))

    def look_at_weights(self, parameter, step):
        """In the first draw, in which other ranks are taken to have put in the same (weights.py)."""
        self.looked_at[parameter.number] = self.steps
        found = self.weights.wrong(parameter.number, self.session.alike) if self.session.draw == 0 else None
        if found is not None:
            self.say_wrong(found[0], [parameter.number], step, found[1])

    def say_wrong(self, why, numbers, step, is_certain):
        """What is not judged, or is known to be wrong."""
        line = {"step": step, "parameters": numbers, "why": why}
        self.gaps.write(dict(line, wrong=True) if is_certain else line)

    def begin_backward(self, within=False):
        """What follows an optimizer's step, as a gathering of the new parameters, belongs to it: the script is stopped at the next backward pass."""
        self.following.stepping = False  # a step that a scaler skipped ends without a word
        if self.taken:
            self.finish_step()
        self.stop_if_done()
        super().begin_backward(within)

    def stop_if_done(self):
        if self.steps >= self.most:
            raise Stopped()
