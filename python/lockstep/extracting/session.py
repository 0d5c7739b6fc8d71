# SPDX-License-Identifier: Apache-2.0
"""What comes out of the collectives of a rank whose peers are played.

A collective ends at once. Where what this rank puts in holds gradients, what comes out is a new source: noise, whose part in everything that follows
is found out. Of few whole numbers, as counts, sizes and objects are, ranks get what the others have put in (numbers.py), as ranks that were played
before have found. Anything else, as parameters and activations, comes out as if every other rank had put in what this one has, and it is not known; while
a model computes, along an axis such as tp, as alike.py has it. In the second draw it comes out changed, so that what a script makes of it by way of
Python's numbers, a coefficient or a branch, differs.
"""

import hashlib

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future

from lockstep.extracting import numbers
from lockstep.extracting.answers import Asked
from lockstep.extracting.contents import KNOWN
from lockstep.extracting.flights import Flight, Waiting, is_async
from lockstep.extracting.layout import in_memory_order, is_dense
from lockstep.extracting.numbers import FEW, FROM_ONE, REDUCTIONS
from lockstep.extracting.weights import are_weights

MOST_TOLD = 4096
MOST_BYTES = 1 << 18
GATHERED = 64  # times as many come out of what all ranks gather
MOST_TAPED = 1 << 16  # elements of a tensor


def done(result):
    future = Future()
    future.set_result(result)
    return _create_work_from_future(future)


def together(works, result):
    """One for all."""
    return works[0] if len(works) == 1 else Waiting(result, lambda: [work.wait() for work in works], lambda: [work.doubt() for work in works if isinstance(work, Waiting)])


def count_of(tensors):
    return sum(tensor.numel() for tensor in tensors)


HALF = torch.finfo(torch.float16).eps
SMALLEST_HALF = 2.0 ** -24  # of float16; the other types' is never near the noise


class Noise:
    """Numbers in the place of gradients. Those of the second draw are others: 1,000 times smaller, and of each tensor the sum has the other sign, so that
    branches on the size or the sign of a gradient go another way."""

    def __init__(self, seed, draw):
        self.draw = draw
        # torch's generator takes the lower 32 bits of a seed alone.
        self.generators = [torch.Generator().manual_seed((seed + 0x9E3779B9 * one) % (1 << 32)) for one in range(draw + 1)]

    def like(self, tensor):
        *before, values = [torch.randn(tensor.shape, generator=generator, dtype=torch.float64) for generator in self.generators]
        if before and bool((values.sum() > 0) == (before[0].sum() > 0)):
            values = -values
        return values.mul_(2.0 ** (-10 * self.draw)).to(tensor.dtype)


class Session:
    """What the groups of this process tell their collectives to: `following` (following.Following) and `record`, a function of an event. Those that come
    before anybody records them are kept, for calls meet by their order."""

    def __init__(self, following, sites, draw=0):
        self.following, self.sites, self.draw = following, sites, draw
        self.early = []
        self.record = self.early.append
        self.noise = Noise(0x10C457E9, draw)
        self.tape = Asked()  # by call, what a rank that was played before has sent to all
        self.sent = {}  # the same of this rank
        self.alike = None  # alike.Alike
        self.parameters = ()  # of the model
        self.members_of = {}  # by the reason for which it is not known: ranks whose numbers are in it
        self.calls = {}
        self.flights = following.flights
        # As ranks that were played before have found: calls into which others put gradients, and whole numbers that all ranks have put into calls.
        self.rank, self.carrying, self.told = 0, Asked(), Asked()
        self.carries, self.silent = set(), set()  # calls of this rank, with gradients in them and without
        # Whole numbers: those that this rank puts in, those that it took from the tape, and calls of which it has got none.
        self.numbers, self.taken, self.asked = {}, {}, []

    def record_with(self, record):
        """From now on, and what came before, with the key `before`."""
        for event in self.early:
            record(dict(event, before=True))
        self.early, self.record = [], record

    def issue(self, group, op, inputs, outputs, play, reduce=None, **more):
        """A collective: `inputs` are the tensors that this rank puts in, in their order, and `outputs` those that it gets. `play` writes the outputs
        as if all ranks had put in the same."""
        inputs, outputs = [tensor.detach() for tensor in inputs], [tensor.detach() for tensor in outputs]
        following, memory = self.following, self.following.memory
        for tensor in inputs + outputs:
            if tensor.numel() and not is_dense(tensor):
                raise ValueError("Tensors must be contiguous: NCCL refuses a tensor of the strides %s in %s, and gloo reduces other memory than its own"
                                 % (tuple(tensor.stride()), op))
        # In the order of memory, as backends send them.
        inputs, outputs = [in_memory_order(tensor) for tensor in inputs], [in_memory_order(tensor) for tensor in outputs]
        with following.pause(), torch.no_grad():
            self.take_copies(inputs)
            contents = [memory.of(tensor) for tensor in inputs]
            call = self.call(group, op, more.get("peer"))
            speaker = self.speaker(group, op, more)
            carries = any(content is not None and (bool((content.marks == KNOWN).any()) or memory.is_spoiled(content)) for content in contents)
            carries = carries or bool(self.carrying.get(call))
            # A buffer for gradients to which no backward pass has added any is one.
            if self.alike is not None and op in REDUCTIONS and count_of(inputs) > FEW and not any(content is not None for content in contents):
                carries = carries or following.unwritten.are_untouched(inputs)
            if any(tensor.is_floating_point() for tensor in inputs + outputs):
                (self.carries if carries else self.silent).add(call)
            told = inputs or outputs
            event = {"op": op, "group": group.members(), "elements": count_of(told),
                     "dtype": str(told[0].dtype).replace("torch.", "") if told else None, "reduce": reduce, "async": is_async(), **more}
            if group.twin() and op not in ("send", "recv"):
                event["communicator"] = group.twin()
            if carries:
                event["input"] = self.written(inputs, contents)
                if reduce == "premul_sum" and "factor" not in more:
                    event["input"] = [[0, event["elements"], "a factor that is no one number, at %s" % self.place()]]
            unknown = None if carries else next((str(memory.reasons[int(one.marks[one.marks > KNOWN][0])]) for one in contents if one is not None), None)
            own = self.put_in(op, inputs, unknown) if not carries else None  # before it is written over
            squares = following.rules.squares.sum_of(op, reduce, inputs) if unknown is not None else None
            gathered = following.unwritten.of_all(inputs) if op == "all_gather" else None
            for tensor in outputs:
                self.flights.write(tensor)
                memory.put(tensor, None)
            play()
            if gathered is not None:
                self.following.unwritten.mark_all(outputs, gathered)
            taped = self.from_tape(call, group, inputs, outputs, speaker, unknown) if op in ("broadcast", "scatter") else None
            if self.alike is not None and not carries:
                self.alike.passes(call, op, event["group"], inputs, outputs, more.get("peer"))
            if carries:
                left = self.leave(outputs)
                event.update({"output": left} if left else {})
            elif speaker == self.rank:  # it alone says what comes out
                if own is not None:
                    self.numbers[call] = event["group"], op, speaker, own
                elif unknown is not None:
                    self.forget(outputs, unknown)
            elif speaker is None and unknown is not None:  # what comes of what is not known, as of a norm, is not known
                if self.are_told(op, inputs):
                    self.numbers[call] = event["group"], op, None, own
                self.change(call, op, event["group"], outputs)
                if squares is not None:
                    event.update(input=squares, output={"source": following.rules.squares.brought(outputs[0], op, squares), "elements": count_of(outputs)})
                elif op in REDUCTIONS and torch._C._current_graph_task_id() != -1:  # within a backward pass: it may be in what that yields
                    self.forget(outputs, self.put_in_by(event["group"]))
                else:
                    self.forget(outputs, unknown)
            elif len(event["group"]) > 1:
                self.exchange(call, op, event["group"], own, inputs, outputs, reduce, speaker, taped)
            if op == "reduce" and more["root"] != self.rank:  # gloo leaves sums of some ranks there, and NCCL what was there
                self.forget(inputs, "what a reduce to another rank has left at %s" % self.place())
            event["call"] = self.sites.innermost()
            few = 0 < count_of(outputs or inputs) <= MOST_TOLD  # which may be coefficients
            if event["async"] and (carries or few):
                work = self.in_flight(group, op, call, inputs, outputs, event.get("input"))
            elif op == "barrier" and event["async"]:
                work = Waiting(outputs, lambda: self.at_barrier(group))
            else:
                work = done(outputs)
            if not event["async"]:
                self.flights.ended(group)
        self.record(event)
        if op == "barrier" and not event["async"]:
            self.at_barrier(group)
        return work

    def in_flight(self, group, op, call, inputs, outputs, written):
        """A collective that has not ended. `written`: what it is told to have sent; None where that is no gradient."""
        def told(reason):
            if written is None:
                self.unsay(call, op, group, reason)
            elif written or inputs:
                written[:] = [[0, count_of(inputs), reason]]

        shown = ()
        if written is None and self.draw:  # who reads it before it is there reads something else than in the first draw
            shown = [tensor.clone() for tensor in outputs if tensor.numel()]
            self.change(call, op, group.members(), outputs, zeros=True)
        flight = Flight(self.following.memory, op, group, self.place(), inputs, outputs, told, shown)
        self.flights.begin(flight)
        return Waiting(outputs, lambda: self.arrive(flight), flight.doubt)

    def unsay(self, call, op, group, reason):
        """What this rank has put into a call in the place of gradients is not known."""
        if call in self.numbers:
            members, _, speaker, _ = self.numbers.pop(call)
            if speaker is None:
                self.numbers[call] = members, op, None, None
        if call in self.sent:
            self.sent[call] = reason, []

    def arrive(self, *flights):
        """These have ended, or all."""
        with self.following.pause(), torch.no_grad():
            if not flights:
                self.flights.arrive()
            for flight in flights:
                self.flights.end(flight)

    def look(self):
        """At what is in flight, as if it were waited for now."""
        with self.following.pause(), torch.no_grad():
            self.flights.look()

    def at_barrier(self, group):
        with self.following.pause(), torch.no_grad():
            self.flights.arrive(group)

    def take_copies(self, inputs):
        """What a functional collective was given, the copies of it hold as well."""
        memory = self.following.memory
        if len(self.following.given) != len(inputs):
            return
        for given, tensor in zip(self.following.given, inputs):
            content = memory.of(given)
            if content is not None and memory.of(tensor) is None and given.numel() == tensor.numel() and given.dtype == tensor.dtype:
                memory.put(tensor, content.map(lambda plane, tensor=tensor: plane.reshape(tensor.shape)))

    def place(self):
        return self.sites.innermost() or "an unknown place"

    def speaker(self, group, op, more):
        """The rank whose numbers alone come out of it; None: those of all."""
        if op in ("broadcast", "scatter"):
            return more["root"]
        return {"send": group.members()[group.own], "recv": more.get("peer")}.get(op)

    def forget(self, tensors, reason):
        for tensor in tensors:
            self.following.memory.put(tensor, self.following.memory.unknown(tensor, reason))

    def from_tape(self, call, group, inputs, outputs, root, why):
        """What the root of a broadcast or of a scatter has sent, if it was played before: "", or why it is not known; None: it is not there. The root
        itself leaves it."""
        if root == self.rank:
            self.sent[call] = why or "", [numbers.text_of(tensor) if tensor.numel() <= MOST_TAPED else None for tensor in inputs]
            return None
        why, values = self.tape.get(call) or (None, ())
        if len(values) != len(outputs):  # of a scatter: what is for this rank
            values = values[group.own:group.own + 1]
        if len(values) != len(outputs) or any(value is None for value in values):
            return None
        values = [numbers.tensor_of(value) for value in values]
        if any(value.numel() != output.numel() for value, output in zip(values, outputs)):
            return None
        for output, value in zip(outputs, values):
            output.copy_(value.reshape(output.shape))
        return why

    @staticmethod
    def are_told(op, tensors, gathered=1):
        """Whether they are few whole numbers, or an object as bytes, or may be counts in floating point. Of what all have put in there may be `gathered` times
        as many."""
        if any(not numbers.is_whole(tensor) for tensor in tensors):
            counts = op in REDUCTIONS or op in FROM_ONE
            return counts and all(tensor.is_floating_point() for tensor in tensors) and count_of(tensors) <= FEW
        most = MOST_BYTES if all(tensor.dtype == torch.uint8 for tensor in tensors) else MOST_TOLD
        return count_of(tensors) <= most * gathered

    def put_in(self, op, inputs, unknown):
        """The numbers that this rank puts in, as they are told; None where they are not."""
        if not self.are_told(op, inputs):
            return None
        if all(map(numbers.is_whole, inputs)):
            return numbers.listed(inputs) if unknown is None else None
        own = numbers.listed(inputs) if unknown is None else [[None] * tensor.numel() for tensor in inputs]
        return None if op in FROM_ONE and any(None in values for values in own) else own

    def exchange(self, call, op, members, own, inputs, outputs, reduce, speaker, taped):
        """Numbers that are no gradients, but may be counts that gradients are divided by. Few whole ones (`own`, which this rank puts in) are told to the
        parent, who says what the others have where that is something else."""
        reason = "what other ranks have sent at %s" % self.place()
        if op in REDUCTIONS or (op == "all_gather" and count_of(inputs) <= FEW and not are_weights(inputs, self.parameters)):
            reason = self.put_in_by(members)
        if self.are_told(op, inputs) and self.are_told(op, outputs, GATHERED if op == "all_gather" else 1) and op != "all_to_all":
            everybody, number = self.told.get(call), members.index(self.rank)
            in_whole_numbers = all(map(numbers.is_whole, inputs + outputs))
            if speaker is None:
                self.numbers[call] = members, op, None, own
                if everybody is None:  # as far as it is known, all have the same
                    if in_whole_numbers:
                        return
                    everybody = [own] * len(members)
            if everybody and speaker is None:
                if not in_whole_numbers:
                    everybody = everybody[:number] + [numbers.agreed(everybody[number], own)] + everybody[number + 1:]
                elif all(isinstance(values, str) for values in own):  # an object may be another one each time
                    everybody = [numbers.padded(one, own) for one in everybody]
                    everybody[number] = own
            if everybody and (speaker is not None or not in_whole_numbers or everybody[number] == own):
                root = None if speaker is None else members.index(speaker)
                values = numbers.result(op, reduce, everybody, number, root)
                if values is not None and not in_whole_numbers:
                    values = numbers.exact(values, outputs)
                has_gaps = isinstance(values, list) and None in values
                if has_gaps:
                    self.change(call, op, members, outputs, zeros=True)
                if numbers.write(values, outputs):
                    if has_gaps:
                        self.forget_some(outputs, [value is None for value in values], reason)
                    return
            elif taped == "" and everybody is None:
                self.taken[call] = numbers.listed(outputs)
                return
            elif speaker is not None:
                self.asked.append(call)
        elif taped == "":
            return
        self.change(call, op, members, outputs, op in REDUCTIONS)
        self.forget(outputs, taped or reason)

    def put_in_by(self, members):
        """Why it is not known what comes of numbers of all of them."""
        reason = "what other ranks have put in at %s" % self.place()
        self.members_of.setdefault(reason, set()).update(members)
        return reason

    def forget_some(self, tensors, which, reason):
        """Of their elements one after another, those."""
        first = 0
        for tensor in tensors:
            own = torch.tensor(which[first:first + tensor.numel()], dtype=torch.bool).reshape(tensor.shape)
            first += tensor.numel()
            if bool(own.any()):
                content = self.following.memory.unknown(tensor, reason)
                content.marks = torch.where(own, content.marks, torch.zeros_like(content.marks))
                self.following.memory.put(tensor, content)

    def change(self, call, op, members, outputs, zeros=False):
        """What is not known is something else in the second draw."""
        if self.draw and len(members) > 1:
            numbers.change(call, op, members, self.rank, outputs, zeros)

    def call(self, group, op, peer):
        """The same for all ranks that meet in it: the members and how many calls they had before; of a send and its receive, the two and how many
        such there were."""
        members = group.members()
        twin = group.twin()
        if op in ("send", "recv"):
            own = members[group.own]
            key = "%d>%d" % ((own, peer) if op == "send" else (peer, own))
        else:
            key = "%s/%d" % (",".join(map(str, members)), twin)
        self.calls[key] = self.calls.get(key, -1) + 1
        return "%s#%d" % (hashlib.sha1(key.encode()).hexdigest()[:16], self.calls[key])

    def written(self, tensors, contents):
        """The contents of the tensors one after another, each held against the numbers that are there."""
        result, first = [], 0
        for tensor, content in zip(tensors, contents):
            if tensor.is_floating_point():
                segments = self.checked(tensor)
            else:
                segments = [[0, tensor.numel(), "gradients as whole numbers at %s" % self.place()]] if content is not None else []
            result += [[first + begin, *rest] for begin, *rest in segments]
            first += tensor.numel()
        return result

    def checked(self, tensor):
        """Segments of a tensor's content; what the numbers in it contradict is not known."""
        memory = self.following.memory
        content = self.following.rules.content(tensor)
        expected, size = memory.value(content)
        there = tensor.to(torch.float64)
        # Each term was rounded a few times on its way, in the coarsest type at worst.
        error = content.roundoff * size + (SMALLEST_HALF if content.roundoff == HALF else 0.0)
        wrong = (content.marks == KNOWN) & ~((there - expected).abs() <= 4 * (len(content.terms) + 1) * error)
        if bool(wrong.any()):
            reason = memory.reasons.number("what is there at %s is not what the operations that were seen have left" % self.place())
            content.marks = torch.where(wrong, torch.full_like(content.marks, reason), content.marks)
        return memory.segments(content)

    def leave(self, outputs):
        """New sources, of noise, in the outputs. Of whole numbers there are none."""
        memory = self.following.memory
        if any(not tensor.is_floating_point() for tensor in outputs):
            self.forget(outputs, "gradients as whole numbers at %s" % self.place())
            return None
        values = [self.noise.like(tensor) for tensor in outputs]
        for tensor, value in zip(outputs, values):
            tensor.copy_(value)
        if not outputs:
            return None
        number, content = memory.source(torch.cat([value.reshape(-1).to(torch.float64) for value in values]))
        first = 0
        for tensor in outputs:
            end = first + tensor.numel()
            memory.put(tensor, content.map(lambda plane, first=first, end=end, tensor=tensor: plane[first:end].reshape(tensor.shape)))
            first = end
        return {"source": number, "elements": count_of(outputs)}
