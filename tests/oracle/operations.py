# SPDX-License-Identifier: Apache-2.0
"""What each step does to the buffers, written out element by element."""

from collections import Counter
from fractions import Fraction

from expressions import Context, ScenarioError
from geometry import cut
from reference import reference

ZERO = {}


def added(a, b):
    if not a or not b:
        return a or b
    result = dict(a)
    for atom, value in b.items():
        value += result.get(atom, 0)
        if value:
            result[atom] = value
        else:
            del result[atom]
    return result


def times(form, factor):
    if factor == 1:
        return form
    return {atom: value * factor for atom, value in form.items()} if factor else ZERO


def clipped(form, factor):
    """Atoms say by which factors they are clipped: sorted names behind what they are."""
    return {
        (*atom[:6], tuple(sorted([*(atom[6] if len(atom) > 6 else ()), factor]))): value for atom, value in form.items()
    }


def unclipped(form):
    """With 1 for every clipping factor."""
    result = ZERO
    for atom, value in form.items():
        result = added(result, {atom[:6]: value})
    return result


def counted_together(counted):
    """What a norm counts: every value of every element, and how often. A value of 0 adds nothing."""
    return frozenset(Counter((key, frozenset(form.items())) for key, form in counted if form).items())


class Operations:
    """Half of Walk: local steps get one Call, collectives the Calls of all members in ascending order of ranks."""

    def read(self, rank, name, index):
        """The forms of a buffer; one that was never written is 0."""
        key = (name, index)
        if key not in self.values[rank]:
            self.values[rank][key] = [ZERO] * self.model.buffers[rank][index].numel
        return self.values[rank][key]

    def each_element(self, call):
        """(forms of the buffer, local element, buffer index) for all that a local step acts on."""
        for index, elements in zip(call.buffers, call.acts_on):
            forms = self.read(call.rank, call.step.get("buffer", "grad"), index)
            for element in elements:
                yield forms, element, index

    # What a rank works out when it calls.

    def prepare(self, call):
        step, rank, n = call.step, call.rank, len(call.group)
        if call.op == "reduce_scatter" and (step.get("geometry") or {}).get("kind") == "counts":
            raise ScenarioError("a reduce_scatter gives every member a slice of one length")
        if call.op in ("reduce_scatter", "reduce_scatter_v", "own"):
            call.slices = self.cut(call)
        elif call.op == "all_gather":
            own_cut = None
            call.slices = []
            for at, index in enumerate(call.buffers):
                last = self.scattered[rank].get(index)
                if last is None:
                    own_cut = own_cut or self.cut(call)
                    call.slices.append(own_cut[at])
                    continue
                group, elements, slices = last
                if group != call.group:
                    raise ScenarioError("all_gather over another group than the last reduce_scatter of the parameter")
                call.acts_on[at] = elements
                call.slices.append(slices)
        elif call.op in ("broadcast", "reduce"):
            call.root = self.root(step["root"], call.group, n)

    def cut(self, call):
        items = []
        for index, elements in zip(call.buffers, call.acts_on):
            buffer = self.model.buffers[call.rank][index]
            items.append(
                {
                    "numel": len(elements),
                    "row_length": buffer.numel // max(buffer.rows, 1),
                    "chunk": buffer.chunk,
                    "dtype": buffer.dtype,
                }
            )
        geometry = call.step.get("geometry") or {}
        separate = geometry.get("separate") or []
        context = Context(self.mesh, self.batch, call.rank, call.optimizer_step, call.micro_batch)
        held = self.model.buffers[call.rank]
        return cut(
            geometry,
            items,
            len(call.group),
            context,
            lambda at: bool(separate) and self.model.chooses(separate, held[call.buffers[at]]),
        )

    def root(self, root, group, n):
        if not isinstance(root, dict):
            if not -n <= root < n:
                raise ScenarioError("the root is not in the group")
            return root % n
        found = [i for i, member in enumerate(group) if self.mesh.allowed(root, member)]
        if len(found) != 1:
            raise ScenarioError("the root must be one member of the group")
        return found[0]

    # Steps of one rank alone.

    def backward(self, call):
        step, rank = call.step, call.rank
        by = {}
        for index, elements in zip(call.buffers, call.acts_on):
            buffer = self.model.buffers[rank][index]
            forms = self.read(rank, step.get("buffer", "grad"), index)
            through = self.batch.first_micro_batch(call.optimizer_step) + call.micro_batch
            for site, use, source, evaluated_on in self.model.contributions(
                rank, buffer, self.batch, call.optimizer_step, call.micro_batch, step.get("uses")
            ):
                if evaluated_on not in by:
                    by[evaluated_on] = self.by(call, evaluated_on)
                    if by[evaluated_on] == 0:
                        raise ScenarioError("`by` of a backward is 0")
                for element in elements:
                    atom = (buffer.logical, buffer.elements[element], site, use, source, through)
                    forms[element] = added(forms[element], {atom: by[evaluated_on]})
                    self.last_by[atom] = by[evaluated_on]

    def scale(self, call):
        by = self.by(call, call.rank)
        for forms, element, _ in self.each_element(call):
            forms[element] = times(forms[element], by)

    def clip(self, call):
        factor = self.clip_factor(call)
        self.clipped_steps.add(call.optimizer_step)
        for forms, element, _ in self.each_element(call):
            forms[element] = clipped(forms[element], factor)

    def clip_factor(self, call):
        """The name of the rank's norm: (-1, optimizer step) of a right one, else (rank, number) of who clips by it first."""
        sums, means = [], []
        for is_mean, members in self.norm_calls[call.optimizer_step][call.rank]:
            if is_mean:
                means.append(frozenset(Counter(map(counted_together, members)).items()))
            else:
                sums += [one for member in members for one in member]
        norm = (counted_together(sums), frozenset(Counter(means).items()))
        if not self.factors:
            for step in range(self.batch.steps):
                right = reference(self.model, self.batch, step).items()
                self.factors.setdefault((counted_together(right), frozenset()), (-1, step))
        if norm not in self.factors:
            number = sum(1 for rank, _ in self.factors.values() if rank == call.rank)
            self.factors[norm] = (call.rank, number)
        return self.factors[norm]

    def zero(self, call):
        for forms, element, _ in self.each_element(call):
            forms[element] = ZERO

    def leftover(self, call):
        by = self.by(call, call.rank)
        rank = call.rank if call.step.get("per") == "rank" else None
        for forms, element, index in self.each_element(call):
            buffer = self.model.buffers[call.rank][index]
            atom = (buffer.logical, buffer.elements[element], "leftover", call.step["what"], rank, None)
            forms[element] = added(forms[element], times({atom: Fraction(1)}, by))

    def copy(self, call, accumulate=False):
        for index, elements in zip(call.buffers, call.acts_on):
            source = self.read(call.rank, call.step["from"], index)
            target = self.read(call.rank, call.step.get("to", "grad"), index)
            for element in elements:
                target[element] = added(target[element], source[element]) if accumulate else source[element]

    def accumulate(self, call):
        self.copy(call, accumulate=True)

    def own(self, call):
        me = call.group.index(call.rank)
        for at, index in enumerate(call.buffers):
            begin, end = call.slices[at][me]
            self.owned[call.rank][index] = set(call.acts_on[at][begin:end])
            buffer = self.model.buffers[call.rank][index]
            key = call.step["name"], call.group, buffer.logical, buffer.copy
            callers = self.own_callers[call.optimizer_step].setdefault(key, [])
            callers.append((call.rank, index))

    # Collectives.

    def members(self, calls, position):
        """(rank, forms, elements acted on) of each member at this position of the parameter list."""
        result = []
        for call in calls:
            forms = self.read(call.rank, call.step.get("buffer", "grad"), call.buffers[position])
            result.append((call.rank, forms, call.acts_on[position]))
        return result

    def reduced(self, calls, members, i):
        total = ZERO
        for _, forms, elements in members:
            total = added(total, forms[elements[i]])
        return times(total, Fraction(1, len(calls))) if calls[0].step.get("reduce") == "avg" else total

    def all_reduce(self, calls):
        for position in range(len(calls[0].buffers)):
            members = self.members(calls, position)
            for i in range(len(calls[0].acts_on[position])):
                total = self.reduced(calls, members, i)
                for _, forms, elements in members:
                    forms[elements[i]] = total

    def reduce_scatter(self, calls):
        for position in range(len(calls[0].buffers)):
            members = self.members(calls, position)
            for me, (call, (rank, forms, elements)) in enumerate(zip(calls, members)):
                begin, end = call.slices[position][me]
                for i in range(begin, end):  # slices of members do not meet, so nobody reads what was written here
                    forms[elements[i]] = self.reduced(calls, members, i)
                index = call.buffers[position]
                self.owned[rank][index] = self.owned[rank][index] & set(elements[begin:end])
                self.scattered[rank][index] = (call.group, elements, call.slices[position])
            self.join(calls, position)

    def reduce_scatter_v(self, calls):
        """The same for slices of any lengths; only the calls that meet must be of one op."""
        self.reduce_scatter(calls)

    def all_gather(self, calls):
        for position in range(len(calls[0].buffers)):
            members = self.members(calls, position)
            for (_, source, theirs), (begin, end) in zip(members, calls[0].slices[position]):
                for i in range(begin, end):
                    for _, forms, elements in members:
                        forms[elements[i]] = source[theirs[i]]
            if len(calls) == 1:
                continue  # a group of one is the identity, in what is owned as well
            for call, (rank, _, elements) in zip(calls, members):
                self.owned[rank][call.buffers[position]] = {
                    elements[i] for r in call.slices[position] for i in range(*r)
                }

    def broadcast(self, calls):
        for position in range(len(calls[0].buffers)):
            members = self.members(calls, position)
            _, source, theirs = members[calls[0].root]
            for _, forms, elements in members:
                for mine, their in zip(elements, theirs):
                    forms[mine] = source[their]

    def reduce(self, calls):
        root = calls[0].root
        for position in range(len(calls[0].buffers)):
            members = self.members(calls, position)
            for i, element in enumerate(members[root][2]):
                members[root][1][element] = self.reduced(calls, members, i)
            for i, call in enumerate(calls):
                if i != root:
                    self.owned[call.rank][call.buffers[position]] = set()
            self.join(calls, position)

    def join(self, calls, position):
        for step in {call.optimizer_step for call in calls}:
            self.joined[step].append(
                [(call.rank, call.buffers[position]) for call in calls if call.optimizer_step == step]
            )

    def norm(self, calls):
        counted, members, mean = [], [], calls[0].step.get("combine") == "mean_of_norms" and len(calls) > 1
        for call in calls:
            members.append([])
            if not call.counts:
                continue
            for index, acts_on in zip(call.buffers, call.acts_on):
                buffer = self.model.buffers[call.rank][index]
                forms = self.read(call.rank, call.step.get("buffer", "grad"), index)
                owned = [element for element in acts_on if element in self.owned[call.rank][index]]
                counted += [(call.rank, index, element, forms[element], mean) for element in owned]
                members[-1] += [((buffer.logical, buffer.elements[element]), forms[element]) for element in owned]
        for call in calls:
            self.norm_calls[call.optimizer_step][call.rank].append((mean, members))
            self.counted[call.optimizer_step][call.rank] += counted
            self.norm_called[call.optimizer_step] = True

    def all_to_all(self, calls):
        """Moves no gradient."""
