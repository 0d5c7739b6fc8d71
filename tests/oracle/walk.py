# SPDX-License-Identifier: Apache-2.0
"""Walks every rank through the schedule with a logical clock, element by element.

A step stands at its unrolled position in the list. Every rank executes position p at time p or, if it was blocked, as
soon as it is released; at equal times ranks go in ascending order. A form is a dict {atom: Fraction} that is never
changed in place; an atom is (logical, element, site, use, rank, micro-batch), or for what is no gradient (logical,
element, "leftover", what, rank, None). What is clipped has the names of the factors behind that, in a tuple.
"""

import heapq
from fractions import Fraction

from expressions import Context, number, truth
from operations import Operations

COLLECTIVES = ("all_reduce", "reduce_scatter", "reduce_scatter_v", "all_gather", "broadcast", "reduce", "norm", "all_to_all")


class Stop(Exception):
    """The run ends here: an invalid collective or a race."""

    def __init__(self, kind, optimizer_step, found):
        super().__init__(kind)
        self.kind, self.optimizer_step, self.found = kind, optimizer_step, found


class Position:
    """One place of the unrolled list. step None: the end of the list of this optimizer step."""

    def __init__(self, optimizer_step, micro_batch, step, inside=None):
        self.optimizer_step, self.micro_batch, self.step, self.inside = optimizer_step, micro_batch, step, inside


class Call:
    """What one rank brings to a step."""

    def __init__(self, rank, step, position, group):
        self.rank, self.step, self.op, self.group = rank, step, step["op"], group
        self.optimizer_step, self.micro_batch = position.optimizer_step, position.micro_batch
        self.buffers = []  # indices of the selected buffers
        self.acts_on = []  # by selected buffer: the local elements, ascending
        self.slices = None  # reduce_scatter, all_gather: by buffer and member, ranges of positions in acts_on
        self.root = None
        self.counts = True  # norm: whether `count` holds, so that anything is read
        self.meeting = None


class Meeting:
    def __init__(self, group):
        self.group, self.calls, self.waiters, self.done = group, {}, [], False


class Rank:
    def __init__(self):
        self.at = 0
        self.in_flight = {}  # step name -> Call
        self.called = {}  # group -> number of calls so far
        self.blocked = None  # (name of the step, Meeting)


def unroll(steps, batch):
    positions = []
    for optimizer_step in range(batch.steps):
        for step in steps:
            if step["op"] != "each":
                positions.append(Position(optimizer_step, None, step))
                continue
            for micro_batch in range(batch.micro_batches(optimizer_step)):
                positions += [Position(optimizer_step, micro_batch, inner, step) for inner in step["steps"]]
        positions.append(Position(optimizer_step, None, None))
    return positions


class Walk(Operations):
    def __init__(self, mesh, model, batch, schedule):
        self.mesh, self.model, self.batch = mesh, model, batch
        self.result = schedule.get("result", "grad")
        self.positions = unroll(schedule["steps"], batch)
        self.ranks = [Rank() for _ in range(mesh.world)]
        self.meetings = {}
        self.group_cache = {}
        self.values = [{} for _ in self.ranks]  # (buffer name, index) -> [form per local element]
        self.last_by = {}  # atom -> the last factor that backward added it with
        self.owned = [self.whole(rank) for rank in range(mesh.world)]
        self.scattered = [{} for _ in self.ranks]  # buffer -> (group, elements, slices) of the last reduce-scatter
        self.joined = [[] for _ in range(batch.steps)]  # lists of (rank, buffer) that answer together
        self.own_callers = [{} for _ in range(batch.steps)]
        # What norm steps counted: by optimizer step and rank a list of (member, buffer, element, value, mean?).
        self.counted = [[[] for _ in self.ranks] for _ in range(batch.steps)]
        self.norm_called = [False] * batch.steps
        self.norm_calls = [[[] for _ in self.ranks] for _ in range(batch.steps)]  # of them: mean?, by member what it counts
        self.factors = {}  # what a norm counts -> the name of its clipping factor
        self.clipped_steps = set()
        self.ends = [dict() for _ in range(batch.steps)]  # by optimizer step and rank: (owned, values of `result`)
        self.outcome, self.found, self.failed_step = "complete", [], None

    def whole(self, rank):
        return [set(range(buffer.numel)) for buffer in self.model.buffers[rank]]

    def context(self, rank, position):
        return Context(self.mesh, self.batch, rank, position.optimizer_step, position.micro_batch)

    def run(self):
        self.queue = [(0, rank) for rank in range(self.mesh.world)]
        while self.queue:
            time, rank = heapq.heappop(self.queue)
            if self.outcome != "complete" and time > self.time:
                return
            self.time = time
            position = self.positions[self.ranks[rank].at]
            try:
                if position.step is None:
                    self.end_of_list(rank, position)
                elif self.reaches(rank, position):
                    self.execute(rank, position)
                if self.ranks[rank].blocked is None:
                    self.go_on(rank)
            except Stop as stop:
                self.fail(stop)
        if self.outcome != "complete":
            return
        stuck = [(rank, state.blocked) for rank, state in enumerate(self.ranks) if state.blocked]
        if stuck:
            self.outcome = "deadlock"
            self.failed_step = min(self.positions[self.ranks[rank].at].optimizer_step for rank, _ in stuck)
            self.found = [
                {"rank": rank, "waits_in": name, "for": [r for r in meeting.group if r not in meeting.calls]}
                for rank, (name, meeting) in stuck
            ]

    def fail(self, stop):
        """The first failure ends the run, at one time a race before a wrong meeting; others of its kind are listed."""
        if self.outcome == "complete" or (self.outcome, stop.kind) == ("invalid_collective", "race"):
            self.outcome, self.failed_step, self.found = stop.kind, stop.optimizer_step, []
        if self.outcome == stop.kind:
            self.found += stop.found

    def go_on(self, rank):
        state = self.ranks[rank]
        state.at += 1
        if state.at < len(self.positions):
            heapq.heappush(self.queue, (max(self.time, state.at), rank))

    def reaches(self, rank, position):
        """`when` and `only` of the step and of the `each` around it, which holds for the whole body."""
        if position.inside:
            outer = Position(position.optimizer_step, None, position.inside)
            if not self.reaches(rank, outer):
                return False
        step = position.step
        if not self.mesh.allowed(step.get("only"), rank):
            return False
        return step.get("when") is None or truth(step["when"], self.context(rank, position))

    def group_of(self, over, rank):
        key = (repr(over), rank)
        if key not in self.group_cache:
            self.group_cache[key] = (rank,) if over is None else self.mesh.group(over, rank)
        return self.group_cache[key]

    def execute(self, rank, position):
        step, op = position.step, position.step["op"]
        if op == "wait":
            self.wait(rank, step["for"])
            return
        group = self.group_of(step.get("over"), rank)
        if group is None:
            return
        call = Call(rank, step, position, group)
        selected = self.model.selected(step.get("params"), rank)
        if not selected and op != "norm":
            return
        call.buffers = [] if op == "all_to_all" else selected
        if op == "norm":
            call.counts = truth(step.get("count", True), self.context(rank, position))
        self.check_race(rank, call)
        owned_alone = step.get("on", "all") == "owned"
        for index in call.buffers:
            numel = self.model.buffers[rank][index].numel
            call.acts_on.append(sorted(self.owned[rank][index]) if owned_alone else list(range(numel)))
        self.prepare(call)
        if op in COLLECTIVES:
            self.arrive(rank, call)
        else:
            getattr(self, op)(call)
        if step.get("async"):
            self.ranks[rank].in_flight[step["name"]] = call
        elif call.meeting is not None and not call.meeting.done:
            self.block(rank, step["name"], call.meeting)

    def touched(self, call):
        if call.op == "own" or not call.counts:
            return []
        names = [call.step.get("buffer", "grad")]
        if call.op in ("copy", "accumulate"):
            names = [call.step["from"], call.step.get("to", "grad")]
        return [(name, index) for name in names for index in call.buffers]

    def touched_names(self, call, common=None):
        """As a report says it: "grad of NAME"; one empty text where the call touches no buffer."""
        held = self.model.buffers[call.rank]
        return [
            f"{name} of {held[index].name}"
            for name, index in self.touched(call)
            if common is None or (name, index) in common
        ] or [""]

    def check_race(self, rank, call):
        found, mine = [], set(self.touched(call))
        for name, other in sorted(self.ranks[rank].in_flight.items()):
            reads_norm = (call.op, other.op) == ("clip", "norm")
            if name == call.step["name"] or reads_norm or mine & set(self.touched(other)):
                common = None if name == call.step["name"] or reads_norm else mine
                found += [
                    {"rank": rank, "step": call.step["name"], "in_flight": name, "touches": buffer}
                    for buffer in self.touched_names(other, common)
                ]
        if found:
            raise Stop("race", call.optimizer_step, found)

    def block(self, rank, name, meeting):
        self.ranks[rank].blocked = (name, meeting)
        meeting.waiters.append(rank)

    def wait(self, rank, name):
        call = self.ranks[rank].in_flight.pop(name, None)
        if call is not None and call.meeting is not None and not call.meeting.done:
            self.block(rank, name, call.meeting)

    def arrive(self, rank, call):
        """The k-th call of a group by each member is one meeting, whichever steps the calls stem from."""
        called = self.ranks[rank].called
        k = called.get(call.group, 0)
        called[call.group] = k + 1
        meeting = call.meeting = self.meetings.setdefault((call.group, k), Meeting(call.group))
        meeting.calls[rank] = call
        if len(meeting.calls) < len(call.group):
            return
        calls = [meeting.calls[member] for member in call.group]
        why = self.disagreement(calls)
        if why:
            raise Stop(
                "invalid_collective",
                min(c.optimizer_step for c in calls),
                [{"rank": c.rank, "calls": c.step["name"], "with": c.op, "why": why} for c in calls],
            )
        getattr(self, call.op)(calls)
        meeting.done = True
        for waiter in meeting.waiters:
            self.ranks[waiter].blocked = None
            self.go_on(waiter)

    def disagreement(self, calls):
        first = calls[0]
        for other in calls[1:]:
            if other.op != first.op:
                return "op"
            if first.op == "all_to_all":
                continue
            for what in ("combine",) if first.op == "norm" else ("sizes", "dtypes", "reduction", "root", "slices"):
                if self.brings(first, what) != self.brings(other, what):
                    return what
        return None

    def brings(self, call, what):
        if what == "sizes":
            return [len(elements) for elements in call.acts_on]
        if what == "dtypes":
            return [self.model.buffers[call.rank][index].dtype for index in call.buffers]
        if what == "reduction":
            reduces = call.op in ("all_reduce", "reduce_scatter", "reduce_scatter_v", "reduce")
            return call.step.get("reduce", "sum") if reduces else None
        if what == "combine":
            return call.step.get("combine", "sum")
        return getattr(call, what)

    def end_of_list(self, rank, position):
        state, s = self.ranks[rank], position.optimizer_step
        if state.in_flight:
            found = [
                {"rank": rank, "step": "", "in_flight": name, "touches": buffer}
                for name, call in sorted(state.in_flight.items())
                for buffer in self.touched_names(call)
            ]
            raise Stop("race", s, found)
        values = [self.read(rank, self.result, index) for index in range(len(self.model.buffers[rank]))]
        self.ends[s][rank] = (self.owned[rank], [list(forms) for forms in values])
        self.owned[rank] = self.whole(rank)
        self.scattered[rank] = {}

    def by(self, call, rank, default=Fraction(1)):
        value = call.step.get("by")
        return (
            default
            if value is None
            else number(value, Context(self.mesh, self.batch, rank, call.optimizer_step, call.micro_batch))
        )
