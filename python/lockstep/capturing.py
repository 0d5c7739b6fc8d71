# SPDX-License-Identifier: Apache-2.0
"""A capture of a training run: what each backward yields, what the optimizer gets, and the collectives between (docs/capture.md)."""

import atexit
import contextlib
import os
import struct
import sys
import time
import weakref
from multiprocessing import util

import torch
import torch.distributed as dist

from lockstep import collectives, hashing, mesh as meshes, sketching
from lockstep.adapters import adapter_for, mesh_of
from lockstep.clipping import Clipping
from lockstep.errors import CaptureError, checked_loss, checked_path, shown
from lockstep.gaps import Gaps
from lockstep.loss_scaler import LossScaler
from lockstep.losses import Told
from lockstep.measuring import measure, unseen
from lockstep.micro_batch import MicroBatch
from lockstep.optimizers import Replaced
from lockstep.parameters import local_of
from lockstep.pipelines import Pipelines
from lockstep.recorder import Recorder
from lockstep.roots import Roots
from lockstep.sampling import one_of, Sample
from lockstep.scaling import Scaling
from lockstep.shards import shards_of
from lockstep.versions import version


def sums_for(world):
    """How many sums a sketch has where nobody says it: many times the ranks, for each of their micro-batches is an unknown. With 64 for 4 ranks and 4
    micro-batches, a factor on what one rank contributes in bfloat16 is found from 1/32 on, with 128 from 1/64 on. One rank has as many as most, for it may
    be a reference."""
    return 64 if world == 2 else 128


class Run:
    """A capture: `with` it, or start() and close(). See lockstep.capture."""

    bits_tell = True  # replicas are known by their gradients' bits

    def __init__(self, model, optimizer=None, mesh=None, out="run", loss=None, data_axes=None, sums=None, seed=0, collectives=True,
                 report=True, overwrite=False, sample=None, shards=None):
        if sums is not None and (not isinstance(sums, int) or sums < 64 or sums % 64):
            raise CaptureError("sums is %r: expected a multiple of 64, such as 128 or 256" % (sums,))
        if not isinstance(seed, int) or not 0 <= seed < 2**64:
            raise CaptureError("seed is %r: expected a number from 0 to 2^64 - 1" % (seed,))
        distributed = dist.is_available() and dist.is_initialized()
        if not distributed and os.environ.get("WORLD_SIZE", "1") not in ("", "1"):
            raise CaptureError("WORLD_SIZE is %s, and torch.distributed has no process group yet: begin the capture after init_process_group, or unset"
                               " WORLD_SIZE where each process trains by itself" % os.environ["WORLD_SIZE"])
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
        sums = sums_for(self.world) if sums is None else sums
        self.mesh = meshes.described(mesh_of(model) if mesh is None else mesh, self.world)
        self.data_axes = meshes.data_axes(self.mesh["axes"], data_axes)
        self.out, self.loss = checked_path(out, "out", CaptureError), checked_loss(loss, CaptureError)
        self.sums, self.seed, self.report, self.overwrite = sums, seed, report, overwrite
        self.with_collectives = collectives and distributed
        self.scaler, self.clipping, self.pipelines = LossScaler(self), Clipping(self), Pipelines(self)
        self.roots = Roots(self)
        self.adapter = adapter_for(model, optimizer, self)
        told = self.adapter.told_loss() if self.bits_tell else None
        self.loss_note = None
        if self.loss is None:
            self.loss = told
        elif told is not None and told != self.loss and not isinstance(self.loss, Told):
            self.loss_note = 'loss="%s" was given, and %s, which is "%s": what was given counts.' % (self.loss, told.source, told)
        if shards is not None and not self.adapter.holds_plain:
            raise CaptureError("shards is for plain tensors that a script has cut, and %s says how its ranks hold them" % self.adapter.name)
        shards_of(self.adapter.parameters.all, shards, self.mesh, self.rank)
        self.one_of = one_of(sample)
        if self.one_of > 1:
            Sample(self.one_of, seed).begin(self.adapter.parameters.all)
        self.recorder = self.mode = None
        self.undo, self.installed, self.started = [], False, False

    # The life of a capture.

    def start(self):
        if self.recorder is not None:
            raise CaptureError("this capture was started already: each run needs one of its own")
        self.began, self.own, self.process = time.perf_counter(), 0.0, os.getpid()
        try:
            self.recorder = self.make_recorder()
        except (OSError, ValueError) as error:
            raise CaptureError('the folder "%s" cannot be written (%s): choose another with out=' % (self.out, getattr(error, "strerror", error))) \
                from error
        header = {
            "lockstep_capture": 2, "rank": self.rank, "world": self.world, "adapter": self.adapter.name,
            "versions": dict({"lockstep": version(), "torch": torch.__version__}, **self.adapter.versions()),
            "sums": self.sums, "seed": self.seed, "mesh": self.mesh, "data_axes": self.data_axes, "loss": self.loss,
            "collectives": self.with_collectives}
        if self.one_of > 1:
            header["one_of"] = self.one_of
        if isinstance(self.loss, Told):
            header["loss_from"] = self.loss.source
        self.recorder.event("run", header)
        if self.bits_tell and self.adapter.holds_plain:
            self.adapter.begin()
        for parameter in self.adapter.parameters.all:
            self.recorder.event("parameter", parameter.described())
        if self.loss_note:
            self.recorder.event("note", {"text": self.loss_note})
        self.recorder.flush()
        self.step = self.steps = 0
        self.gaps = Gaps(self)
        self.new_step()
        self.depth, self.loose = 0, None
        self.pending = []
        self.undo = [Replaced(torch.autograd, "backward", self.around_backward), Replaced(torch.autograd, "grad", self.gaps.around_grad)] + self.adapter.install()
        if self.bits_tell:
            self.undo += self.adapter.watch_calls(self.roots)
        self.adapter.parameters.hook()
        if self.with_collectives:
            self.per_operation = collectives.cost_of_an_operation()
            self.mode = collectives.Collectives(self.collective, Scaling(self), self.gradient_of if self.adapter.in_grad else None)
            self.mode.__enter__()
        reference = weakref.ref(self)
        self.at_exit = lambda: reference() and reference().abandon()
        atexit.register(self.at_exit)
        self.finalizer = util.Finalize(None, self.at_exit, exitpriority=10)  # children of multiprocessing run no atexit
        self.installed = self.started = True
        self.own += time.perf_counter() - self.began
        return self

    __enter__ = start

    def is_as_looked_at(self, line):
        """Whether a piece of which nothing was measured has what it had then: never, where a capture measures all that is there."""
        return False

    def make_recorder(self):
        return Recorder(self.out, self.rank, self.world, self.sums, self.overwrite)

    def __exit__(self, kind, error, _):
        self.close(died=kind is not None and not (issubclass(kind, SystemExit) and getattr(error, "code", None) in (None, 0)))
        return False

    def abandon(self):
        """The process ends, with or without an exception, and nobody has closed the capture."""
        self.close(died=getattr(sys, "last_value", None) is not None or sys.exc_info()[0] is not None)

    def active(self):
        """Whether it was started, can be written and was not closed, by this process: the files of a fork's parent are its parent's."""
        return self.recorder is not None and not self.recorder.closed and os.getpid() == self.process

    def leave_collectives(self):
        """From another thread, where this rank waits without end: writes what it has issued since the last flush."""
        pending = self.pending
        self.pending = [entry for entry in pending if entry[0] != "collective"]  # should the other thread come back, they are written
        for event, line, _, _, _ in pending:
            if event == "collective":
                self.recorder.event(event, line)
        self.recorder.flush()

    def uninstall(self):
        atexit.unregister(self.at_exit)
        self.finalizer.cancel()
        if self.mode is not None:
            self.mode.leave()
        self.adapter.parameters.unhook()
        for replaced in reversed(self.undo):
            replaced.remove()
        self.installed = False

    def uninstall_failed(self):
        """Where the files could not be written any more, nothing is looked at any more."""
        if self.recorder is not None and self.recorder.failed and self.installed and os.getpid() == self.process:
            self.uninstall()

    def close(self, died=False):
        """Ends the capture; again, it does nothing. A step whose gradients the optimizer did not get stays without its event."""
        if not self.active():
            self.uninstall_failed()
            return
        begin = time.perf_counter()
        self.uninstall()
        if self.taken:
            self.finish_step()
        self.gaps.at_end()
        self.settle()
        if self.rows:
            self.recorder.sketches(self.step, self.rows, self.wide)
        end = time.perf_counter()
        self.own += end - begin
        if self.mode is not None:
            self.own = min(end - self.began, self.own + self.mode.seconds + self.mode.operations * self.per_operation)
        if not died:
            self.say_losses()
            self.recorder.event("end", {"steps": self.steps, "seconds": round(end - self.began, 3), "overhead": round(self.own, 3)})
        self.recorder.close()
        if self.report and self.rank == 0 and not self.recorder.failed:
            print("lockstep: captured in %s: optimizer steps %d, parameters %d, %.0f KB for this rank; the capture took %.2f of %.2f s"
                  % (self.recorder.folder, self.steps, len(self.adapter.parameters.all), self.recorder.size / 1024, self.own,
                     end - self.began), file=sys.stderr)

    def say_losses(self):
        """What was seen of the losses of all steps."""
        seen = self.roots.loss() if self.loss is None and self.bits_tell else None
        if seen is not None:
            self.recorder.event("loss", {"loss": seen, "loss_from": seen.source})
        if self.bits_tell and self.roots.unknown_division():
            self.recorder.event("note", {"text": "whether something divides the losses of the micro-batches by their number is not known: autograd's graph does"
                                                 " not show it, and local_mean takes it for granted."})

    # Micro-batches and steps.

    def new_step(self):
        self.micro, self.tokens, self.told = -1, [], False
        self.taken, self.stepped, self.skipped = set(), set(), set()
        self.rows, self.wide = [], False

    def micro_batch(self, tokens=None):
        """A micro-batch begins: call it before the forward pass, or write it with `with` around the pass. `tokens` that this rank's
        loss counts, where they differ. Where nobody calls it, each backward pass is a micro-batch. After the capture it does nothing."""
        if self.recorder is None:
            raise CaptureError("micro_batch was called outside of the capture: start it first")
        if not self.active():
            return MicroBatch()
        try:
            count = None if tokens is None else int(tokens)
            known = not isinstance(tokens, bool) and (tokens is None or (count == tokens and count >= 0))
        except (TypeError, ValueError, OverflowError, RuntimeError):  # as tensors raise it
            known = False
        if not known:
            raise CaptureError("tokens is %s: expected a number of tokens" % shown(tokens))
        if self.taken:
            self.finish_step()
        self.gaps.look_for_zeroed(self.micro + 1)
        self.told = True
        self.next_micro_batch(count)
        return MicroBatch()

    def next_micro_batch(self, tokens=None):
        self.micro += 1
        self.tokens.append(tokens)

    def begin_backward(self, within=False):
        if self.taken:
            self.finish_step()
        self.gaps.before_pass(within)
        if not self.told:
            self.next_micro_batch()

    def around_backward(self, original):
        def backward(*arguments, **keys):
            if not self.active():  # whoever wrapped it after us calls us after our end as well
                if self.depth == 0:
                    self.uninstall_failed()
                return original(*arguments, **keys)
            if self.depth == 0:
                self.begin_backward()
                self.roots.add(arguments[0] if arguments else keys.get("tensors", ()),
                               arguments[1] if len(arguments) > 1 else keys.get("grad_tensors"))
            self.depth += 1
            try:
                return original(*arguments, **keys)
            finally:
                self.depth -= 1
                if self.depth == 0 and self.active():
                    self.settle()
                    self.gaps.after_pass()
        return backward

    def in_backward(self):
        return self.depth > 0 or torch._C._current_graph_task_id() != -1

    # What is recorded.

    def measured(self, event, values, pieces):
        """Adds an event for each (number of the piece, its elements, their places); hash and sketch follow in settle()."""
        for number, flat, places in pieces:
            with unseen(flat):
                form, digits, numbers = measure(flat, places, self.sums, self.seed)
            # The row is counted when it is written: autograd has a thread for each device.
            line = dict(values, piece=number, row=None, hash=None, dtype=form.name, nonfinite=None)
            self.pending.append((event, line, form, digits, numbers))

    @contextlib.contextmanager
    def not_followed(self):
        """Our own operations on gradients: no collective gets what they make."""
        if self.mode is not None:
            self.mode.carried.paused = True
        try:
            yield
        finally:
            if self.mode is not None:
                self.mode.carried.paused = False

    def contribution(self, parameter, gradient):
        """What measured() is called with, and the axes that are to be added up."""
        return self.adapter.contribution(parameter, gradient)

    def gathering_results(self):
        """While the adapter puts together what the optimizer gets."""
        return self.not_followed()

    def contribute(self, parameter, gradient):
        """Called by autograd with what a backward pass yields for a parameter, before anything is added to it."""
        if gradient is None or not self.active() or self.gaps.within_pass(parameter):  # none: a function's own backward has returned none
            return
        begin = time.perf_counter()
        if self.depth == 0:  # a framework that calls autograd's engine by itself
            task = torch._C._current_graph_task_id()
            if task != self.loose:
                self.begin_backward(within=True)
                self.loose = task
        self.gaps.contributes(parameter)
        with torch.no_grad():
            pieces, partial = self.contribution(parameter, gradient)
            values = {"step": self.step, "micro_batch": self.micro, "parameter": parameter.number}
            if partial:
                values["partial"] = partial
            scale = (self.scaler.scale or 1.0) * (self.pipelines.divisor or 1)
            if self.scaler.scale is not None or scale != 1:
                values["loss_scale"] = scale
            with self.not_followed():
                self.measured("contribution", values, pieces)
        self.gaps.look_for_reductions(parameter, local_of(gradient))
        self.carries(local_of(gradient), parameter)
        self.own += time.perf_counter() - begin

    def gradient_of(self, number):
        """The tensor that a parameter has in .grad, as far as this rank holds it."""
        gradient = self.adapter.parameters.all[number].held.grad
        return getattr(gradient, "_local_tensor", gradient)

    def carries(self, tensor, parameter):
        """The tensor has a gradient of this parameter now: collectives that get it, or what is made of it, carry that."""
        if self.mode is not None:
            self.mode.carried.put(tensor, [parameter.number])

    def collective(self, found):
        if not self.active():
            return
        self.gaps.collective(found)
        self.roots.meet(found.get("call"))
        backward = self.in_backward() and self.micro >= 0
        values = dict({"step": self.step, "micro_batch": self.micro if backward else None}, **found)
        self.pending.append(("collective", values, None, None, None))

    def take_results(self, optimizers=None):
        """The gradients are what these optimizers (or all) get, if that was not seen before."""
        if not self.active():
            return
        begin = time.perf_counter()
        with torch.no_grad(), self.gathering_results():
            for number, optimizer in enumerate(self.adapter.optimizers):
                if number in self.taken or (optimizers is not None and optimizer not in optimizers):
                    continue
                self.taken.add(number)
                self.gaps.before_results(optimizer)
                scale = self.scaler.of_results(optimizer)
                for parameter, pieces, partial in self.adapter.results(optimizer):
                    values = {"step": self.step, "parameter": parameter.number}
                    if pieces is None:
                        for piece in self.adapter.owned(parameter):
                            self.pending.append(("result", dict(values, piece=piece, row=None), None, None, None))
                        continue
                    if partial:
                        values["partial"] = partial
                        self.gaps.partial.add(parameter.number)
                    if scale is not None:
                        values["loss_scale"] = scale
                    self.measured("result", values, pieces)
        self.own += time.perf_counter() - begin

    def before_step(self, optimizer):
        """An optimizer is about to step, unless its loss scaler has found infinite gradients."""
        if not self.active():
            return
        self.take_results([optimizer])
        self.stepped.add(id(optimizer))
        if self.scaler.skips(optimizer):
            self.skipped.add(id(optimizer))
        if len(self.stepped) == len(self.adapter.optimizers):
            self.finish_step()

    def settle(self):
        """Brings what was measured to the host, all at once, and writes it."""
        begin = time.perf_counter()
        pending, self.pending = self.pending, []
        groups = {}
        for entry in pending:
            if entry[2] is not None:
                groups.setdefault((entry[2], entry[3].device), []).append(entry)
        for (form, _), entries in groups.items():
            with unseen(entries[0][3]):
                digits = torch.stack([entry[3] for entry in entries])
                rows = sketching.rounded(digits.view(-1, form.digits), form.smallest).view(len(entries), self.sums)
                numbers = torch.stack([entry[4] for entry in entries]).tolist()
            for entry, row, (first, second, nonfinite) in zip(entries, rows.tolist(), numbers):
                entry[1].update(hash=hashing.written((first, second)), nonfinite=nonfinite)
                entry[1]["content"] = row
        for event, line, form, _, _ in pending:
            if form is not None:
                line["row"] = len(self.rows)
                self.wide = self.wide or form.width == 64
                self.rows.append(struct.pack("<%dd" % self.sums, *line.pop("content")))
            self.recorder.event(event, line)
        self.recorder.flush()
        self.own += time.perf_counter() - begin

    def finish_step(self):
        self.settle()
        for why, numbers in ((self.roots.not_divided() if self.bits_tell else None, []), (self.pipelines.not_divided(), None)):
            if why:
                self.gaps.say(why, numbers)
        self.roots.end_step()
        optimizers = self.adapter.optimizers
        idle = [optimizer for optimizer in optimizers if id(optimizer) not in self.stepped]
        zeroed = self.gaps.zeroed
        self.gaps.finish_step(idle, [optimizers[number] for number in self.taken])
        self.recorder.sketches(self.step, self.rows, self.wide)  # first: a step that has its line has its sketches
        step = {"step": self.step, "micro_batches": len(self.tokens), "tokens": self.tokens}
        if self.skipped and len(self.skipped) == len(self.adapter.optimizers):
            step["skipped"] = True
        if zeroed:
            step["zeroed"] = zeroed
        if idle and self.stepped:
            step["waiting"] = sorted({parameter.number for optimizer in idle for parameter in self.adapter.owned_by(optimizer)})
        self.recorder.event("step", step)
        self.recorder.flush()
        if self.mode is not None and self.gaps.stepping is None:
            self.mode.carried.clear()
        self.step += 1
        self.steps += 1
        self.loose = None
        self.scaler.forget()
        self.clipping.forget()
        self.new_step()
