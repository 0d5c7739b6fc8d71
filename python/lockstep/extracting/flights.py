# SPDX-License-Identifier: Apache-2.0
"""Asynchronous collectives, from their call until they were waited for. Until then a collective reads what it was given and writes what it was given for
its results, at a time that nobody knows: what is written there meanwhile makes unknown what it has sent or what it has left, and what it leaves is not
known before. One that nobody ever waits for is in flight until the rank ends.
"""

import sys

import torch
import torch.distributed as dist
from torch.futures import Future

from lockstep.carrying import memory_of
from lockstep.extracting.contents import Meaning
from lockstep.extracting.layout import is_changed, shares_memory
from lockstep.optimizers import Replaced

POINT_TO_POINT = ("send", "recv")
C10D = "torch/distributed/distributed_c10d.py"
# What torch's C++ code is given of a class of Python's it keeps without the part that is Python's, and a wait for it does not end: so in 2.4, not in 2.13.
FORGETS = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)
_kept = []  # then, as long as the rank runs


class Later(Future):
    """Of a collective that is asynchronous: it is waited for when somebody waits for this, not when somebody asks for it or for what it holds. `doubt()`: whether
    anybody waits cannot be seen any more."""

    def __init__(self, result, arrive, doubt=lambda: None):
        super().__init__()
        self.arrive, self.doubt, self.is_asked = arrive, doubt, False
        self.set_result(result)

    def wait(self):
        self.arrive()
        return super().wait()

    def done(self):
        """Not at once, so that a loop which asks until it is comes to its end, and a question alone is no wait."""
        if self.is_asked:
            self.arrive()
        self.is_asked, before = True, self.is_asked
        return before

    def then(self, callback):
        return Then(self, callback)

    def add_done_callback(self, callback):
        """It is called by another thread, and a script may wait for what it does there, as for an event of Python's."""
        self.doubt()
        callback(self)


def wait_for_futures():
    """torch's functions for several futures do not see that these are waited for."""
    def around_all(original):
        def collect_all(futures):
            futures = list(futures)
            if not any(isinstance(one, Later) for one in futures):
                return original(futures)
            return Later(futures, lambda: [one.wait() for one in futures], lambda: [one.doubt() for one in futures if isinstance(one, Later)])
        return collect_all

    def around_wait(original):
        def wait_all(futures):
            return [one.wait() for one in futures]
        return wait_all
    Replaced(torch.futures, "collect_all", around_all)
    Replaced(torch.futures, "wait_all", around_wait)


class Then(Later):
    """What a callback makes of one, when this is waited for."""

    def __init__(self, first, callback):
        self.first, self.callback, self.made = first, callback, None
        super().__init__(None, first.wait, first.doubt)

    def wait(self):
        if self.made is None:
            self.first.wait()
            self.made = [self.callback(self.first)]
        return self.made[0]

    def value(self):
        return self.wait()


class Waiting(dist.Work):
    """A collective that is asynchronous: what it leaves may be read when it was waited for, and is not known before."""

    def __init__(self, result, arrive, doubt=lambda: None):
        super().__init__()
        self.left, self.arrive, self.doubt, self.is_asked = result, arrive, doubt, False
        if FORGETS:
            _kept.append(self)

    def wait(self, timeout=None):
        self.arrive()
        return True

    def is_completed(self):
        """As Later.done()."""
        if self.is_asked:
            self.arrive()
        self.is_asked, before = True, self.is_asked
        return before

    def is_success(self):
        return True

    def synchronize(self):
        self.arrive()

    block_current_stream = synchronize

    def result(self):
        return self.left

    def get_future(self):
        """torch's own code waits for what a hook returns, at the end of a backward pass, and where it does we do not see."""
        if torch._C._current_graph_task_id() == -1:
            return Later(self.left, self.arrive, self.doubt)
        self.arrive()
        future = Future()
        future.set_result(self.left)
        return future


class Flight:
    """One of them. `told(reason)` is called when it is known that nobody knows what it has sent; `shown` by output: what it really holds, where the tensor
    shows something else until the collective was waited for."""

    def __init__(self, memory, op, group, place, inputs, outputs, told, shown=()):
        self.memory, self.op, self.group, self.place, self.told = memory, op, group, place, told
        self.inputs, self.outputs, self.shown = [one for one in inputs if one.numel()], [one for one in outputs if one.numel()], list(shown)
        self.reason_of_mark = Meaning("an asynchronous %s at %s, which nobody has waited for" % (op, place), "in_flight")
        self.mark = memory.reasons.number(self.reason_of_mark)
        self.coming = []
        for tensor in self.outputs:
            content = memory.of(tensor)
            self.coming.append(content.map(torch.clone) if content is not None else None)
        for tensor in self.outputs:
            memory.put(tensor, memory.unknown(tensor, self.reason_of_mark))
        # What is written past torch's dispatcher, its bytes tell.
        self.read = [(tensor, tensor.clone()) for tensor in self.inputs if not any(shares_memory(tensor, output) for output in self.outputs)]
        self.written = set()  # numbers of outputs
        self.is_told = False

    def spans(self):
        """(storage, first, end, number of the output or None) of all memory that it reads and writes."""
        for number, tensor in [*((None, tensor) for tensor in self.inputs), *enumerate(self.outputs)]:
            storage, first, end = memory_of(tensor)
            yield storage._cdata, first, end, number

    def reason(self):
        return "it was changed while the %s at %s was in flight" % (self.op, self.place)

    def write(self, number):
        """An operation has written to the output of this number, or to an input."""
        if number is not None:
            self.written.add(number)
        elif not self.is_told:
            self.is_told = True
            self.told(self.reason())

    def doubt(self):
        """Somebody may have waited for it unseen."""
        self.reason_of_mark.no_sum = None

    def look(self):
        """Whether what it reads is still what it was."""
        if any(is_changed(tensor, before) for tensor, before in self.read):
            self.write(None)

    def arrive(self):
        self.look()
        for number, (tensor, content) in enumerate(zip(self.outputs, self.coming)):
            storage, _, end = memory_of(tensor)
            if storage.nbytes() < end:  # it was given back
                continue
            now = self.memory.of(tensor)
            if number in self.written or now is None or not bool((now.marks == self.mark).all()):
                self.memory.put(tensor, self.memory.unknown(tensor, self.reason()))
                continue
            if self.shown:
                tensor.copy_(self.shown[number])
            self.memory.put(tensor, content)


class Flights:
    """All of a rank that are in flight."""

    def __init__(self):
        self.all, self.over = [], {}  # over: by address of a storage, (first, end, flight, number) of what is read and written of it

    def begin(self, flight):
        self.all.append(flight)
        for address, *span, number in flight.spans():
            self.over.setdefault(address, []).append((*span, flight, number))

    def end(self, flight):
        if flight not in self.all:
            return
        for before in self.all[:self.all.index(flight)]:
            self.pass_by(before, flight.group)
        self.all.remove(flight)
        for address in {address for address, *_ in flight.spans()}:
            self.over[address] = [one for one in self.over[address] if one[2] is not flight]
            if not self.over[address]:
                del self.over[address]
        flight.arrive()

    def write(self, tensor):
        """An operation, or another collective, writes to this tensor."""
        memory = memory_of(tensor)
        for first, end, flight, number in self.over.get(memory[0]._cdata, ()) if memory is not None else ():
            if memory[1] < end and first < memory[2]:
                flight.write(number)

    def is_over(self, tensor):
        """Whether one that nobody has waited for writes to this tensor."""
        memory = memory_of(tensor)
        return any(number is not None and memory[1] < end and first < memory[2] and flight.reason_of_mark.no_sum is not None
                   for first, end, flight, number in (self.over.get(memory[0]._cdata, ()) if memory is not None else ()))

    @staticmethod
    def pass_by(flight, group):
        """A later collective of this group has ended: some backends have then ended those before it as well."""
        if flight.group is group:
            flight.doubt()

    def ended(self, group):
        """A collective that the rank has waited for in the call."""
        for flight in self.all:
            self.pass_by(flight, group)

    def look(self):
        """As if each were waited for now: where an optimizer steps, and when the rank ends."""
        for flight in self.all:
            flight.look()

    def arrive(self, group=None):
        """All have ended; of a group, its collectives, which its barrier comes behind. Sends have no place among these."""
        for flight in [one for one in self.all if group is None or (one.group is group and one.op not in POINT_TO_POINT)]:
            self.end(flight)


def is_async():
    """Whether the script goes on before the collective that it has just called has ended: what torch's function for it was given. What no function
    of torch was called for, as DDP's reducer calls it, goes on."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith(C10D):
            if code.co_name in ("isend", "irecv", "batch_isend_irecv"):
                return True
            if code.co_name in ("send", "recv", "monitored_barrier"):
                return False
            if "async_op" in frame.f_locals:
                return bool(frame.f_locals["async_op"])
        frame = frame.f_back
    return True
