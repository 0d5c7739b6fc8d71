# SPDX-License-Identifier: Apache-2.0
"""Checks a proof that `lockstep prove --proof -f json` printed (docs/proof.md), by the definitions of the operations alone.

It shares no code with lockstep. A function says what every rank holds, for all sizes at once: it depends on nothing but
which of an axis's named coordinates (the rank, the contributor, owners, the first stage ...) are equal. A point is one
such way for each axis. At every point each step's values are derived from those before it, and compared with those that
the proof claims; at the end of an optimizer step so are the differences from one device, who answers for what, and norms.
"""

import itertools

from functions import ONE, ZERO, Function, WrongProof, axis, constant, demand, inverse, parse, plus, times


class ClassCheck:
    def __init__(self, entry):
        self.entry = entry
        self.axes = {one["axis"]: axis(tuple(one["names"]), one["size"], one.get("most")) for one in entry["axes"]}
        self.nothing, self.everywhere = self.read([]), self.read([{"value": "1"}])
        self.held = {}  # by buffer and contribution
        self.owned = self.everywhere
        self.flights, self.norms, self.scattered = [], [], []
        self.wrong = False
        self.points = 0

    def read(self, rows):
        return Function(self.axes, rows)

    def all_points(self, functions, axes=()):
        names = set(axes).union(*(function.axes for function in functions))
        demand(names <= self.axes.keys(), "there are no axes", names - self.axes.keys())
        for ways in itertools.product(*(self.axes[name].ways for name in names)):
            self.points += 1
            yield dict(zip(names, ways))

    def same(self, what, claimed, derived, functions, axes=()):
        for point in self.all_points([claimed, *functions], axes):
            found, right = claimed.at(point), derived(point)
            demand(found == right, what, "at", point, "is", right, "and not", found)

    def group(self, step):
        """The step's group: axes, and picked coordinates by axis."""
        return step.get("over", []), step.get("picks", {})

    def members(self, point, group):
        """The ranks of the rank's group: how many of each kind, and the point that each is at."""
        axes, picks = group
        kinds = [(ONE, dict(point))]
        for name in axes:
            kinds = [(times(count, more), {**at, name: way}) for count, at in kinds
                     for more, way in self.axes[name].coordinates(at[name])]
        for name, chosen in picks.items():
            kinds = [(count, {**at, name: self.axes[name].moved(at[name], one)}) for count, at in kinds for one in chosen]
        return kinds

    def summed(self, function, point, group):
        total = ZERO
        for count, member in self.members(point, group):
            total = plus(total, times(count, function.at(member)))
        return total

    def size(self, group):
        size = constant(1)
        for name in group[0]:
            size = times(size, self.axes[name].size)
        for chosen in group[1].values():
            size = times(size, constant(len(chosen)))
        return size

    def among(self, point, where):
        """Whether the rank is at these coordinates."""
        return all(point[name][0] == point[name][self.axes[name].number[one]] for name, one in where.items())

    def check_group(self, step, on, group):
        """All members of a group run a step, or none."""
        axes = [*group[0], *group[1]]
        for point in self.all_points([on], axes):
            if on.at(point):
                demand(on.at(point) == ONE, "a condition is 0 or 1")
                demand(all(on.at(member) == ONE for _, member in self.members(point, group)),
                       step["step"], "is not run by a whole group at", point)
                demand(any(member == point for _, member in self.members(point, group)),
                       step["step"], "is run by a rank that its group lacks at", point)

    def step(self, step):
        if step["op"] == "reduce_scatter_v":  # whose slice an element lies in is said by the cuts, whatever their lengths
            step = {**step, "op": "reduce_scatter"}
        on, group = self.read(step["on"]), self.group(step)
        op = step["op"]
        if op == "wait":
            return self.wait(step, on)
        self.check_races(step, on)
        if self.entry.get("ended_by_race") and step.get("races"):
            return None  # nothing is said of what comes after it
        if op not in ("backward", "scale", "zero", "copy", "accumulate", "leftover"):
            self.check_group(step, on, group)
        if op == "norm":
            return self.norm(step, on, group)
        seen = self.owned if step.get("owned") else self.everywhere
        cuts = [(cut["owner"], self.read(cut["on"]), self.read(cut["elements"])) for cut in step.get("cuts", [])]
        self.check_cuts(step, on, group, seen, cuts)
        adds = [(add["contribution"], self.read(add["on"]), parse(add["by"])) for add in step.get("adds", [])]
        for name, where, _ in adds:
            self.same(f"{step['step']}: where it adds {name}", where,
                      lambda point: times(times(where.at(point), on.at(point)), seen.at(point)), [on, seen])
        after = {(buffer, name): self.read(rows) for buffer, all_of in step["after"].items() for name, rows in all_of.items()}
        touched = {key for key in [*self.held, *after] if key[0] == step.get("buffer")}
        touched |= {(step["buffer"], name) for buffer, name in self.held if buffer == step.get("from")}
        demand(touched.issuperset(after), step["step"], "changes a buffer that is none of its own")
        for key in touched:
            old = self.held.get(key, self.nothing)
            self.same(f"{step['step']}: {key}", after.get(key, old),
                      self.value(step, key, old, on, seen, group, cuts, adds),
                      [old, on, seen, self.held.get((step.get("from"), key[1]), self.nothing),
                       *(one for cut in cuts for one in cut[1:]), *(where for _, where, _ in adds)],
                      [*group[0], *group[1]])
        new_owned = self.read(step["owns"]) if "owns" in step else self.owned
        self.same(f"{step['step']}: what is owned", new_owned, self.owners_after(step, on, seen, group, cuts),
                  [self.owned, on, seen, *(one for cut in cuts for one in cut[1:])], [*group[0], *group[1]])
        self.held.update(after)
        self.owned = new_owned

    def check_cuts(self, step, on, group, seen, cuts):
        if step["op"] not in ("reduce_scatter", "own", "all_gather") or not group[0]:
            return
        for owner, where, elements in cuts:
            self.check_group(step, where, group)
            if step["op"] == "all_gather":
                known = [one for one in self.scattered if one[0] == owner] + [(owner, self.everywhere)]
                demand(any(one.tables == elements.tables for _, one in known), step["step"], "gathers what nobody cut")
            else:
                self.same(f"{step['step']}: what is cut", elements, seen.at, [seen])
            if step["op"] == "reduce_scatter":
                self.scattered.append((owner, elements))

        def together(point):
            total = ZERO
            for _, where, _ in cuts:
                total = plus(total, where.at(point))
            return total

        self.same(f"{step['step']}: where it cuts", on, together, [where for _, where, _ in cuts])

    def value(self, step, key, old, on, seen, group, cuts, adds):
        op = step["op"]

        def reduced(point):
            total = self.summed(old, point, group)
            return total if step["reduce"] == "sum" else times(total, inverse(self.size(group)))

        def moved(point, where):
            return {**point, **{name: self.axes[name].moved(point[name], one) for name, one in where.items()}}

        def derived(point):
            held = old.at(point)
            if op in ("backward", "leftover"):
                for name, where, by in adds:
                    if name == key[1]:
                        held = plus(held, times(where.at(point), by))
                return held
            if not on.at(point):
                return held
            if op in ("reduce_scatter", "all_gather"):
                for owner, where, elements in cuts:
                    if owner is None or not where.at(point) or not elements.at(point):
                        continue
                    slice_of = {name: f"owner {owner}" for name in group[0]}
                    if op == "all_gather":
                        return old.at(moved(point, slice_of))
                    if self.among(point, slice_of):
                        return reduced(point)
                return held
            if not seen.at(point) or op in ("own", "all_to_all"):
                return held
            if op == "scale":
                return times(held, parse(step["by"]))
            if op == "zero":
                return ZERO
            if op in ("copy", "accumulate"):
                source = self.held.get((step["from"], key[1]), self.nothing).at(point)
                return source if op == "copy" else plus(held, source)
            if op == "all_reduce":
                return reduced(point)
            if op == "broadcast":
                return old.at(moved(point, step.get("root", {})))
            if op == "reduce":
                return reduced(point) if self.among(point, step.get("root", {})) else held
            raise WrongProof(f"unknown operation {op}")

        return derived

    def owners_after(self, step, on, seen, group, cuts):
        op = step["op"]

        def derived(point):
            owned = self.owned.at(point)
            if op == "reduce" and on.at(point) and (group[0] or group[1]):
                return owned if self.among(point, step.get("root", {})) else ZERO
            for owner, where, elements in cuts if op in ("reduce_scatter", "own", "all_gather") else []:
                if not where.at(point):
                    continue
                if op == "all_gather":
                    return ONE if elements.at(point) else owned
                if owner is None:
                    return owned if op == "reduce_scatter" else seen.at(point)
                mine = self.among(point, {name: f"owner {owner}" for name in group[0]})
                kept = times(owned, elements.at(point)) if op == "reduce_scatter" else elements.at(point)
                return kept if mine else ZERO
            return owned

        return derived

    # Asynchronous steps.

    def wait(self, step, on):
        demand(not step["after"] and "owns" not in step, "a wait changes nothing")
        self.flights = [(name, op, buffers, self.and_not(where, on) if name == step["for"] else where)
                        for name, op, buffers, where in self.flights]

    def and_not(self, a, b):
        result = Function(self.axes, [])
        names = sorted(a.axes | b.axes)
        for point in self.all_points([a, b]):
            if a.at(point) and not b.at(point):
                result.tables.setdefault(tuple(names), {})[tuple(point[name] for name in names)] = ONE
        result.axes = set(names)
        return result

    def check_races(self, step, on):
        touches = step["op"] not in ("own", "all_to_all")
        buffers = {step.get("buffer"), step.get("from")} - {None}
        where = self.read(step["counts"]) if step["op"] == "norm" else on
        # A step that is still in flight is not called again, not even by a rank on which it has no buffer.
        flying = [(flight, on if name == step["step"] else where) for name, op, others, flight in self.flights
                  if name == step["step"] or (touches and op not in ("own", "all_to_all") and buffers & others)]
        races = self.read(step.get("races", []))
        self.same(f"{step['step']}: races", races,
                  lambda point: ONE if any(flight.at(point) and ranks.at(point) for flight, ranks in flying) else ZERO,
                  [on, where, *(flight for flight, _ in flying)])
        self.wrong = self.wrong or bool(races.tables)
        if step.get("async"):
            self.flights.append((step["step"], step["op"], buffers, on))

    # Norms and the end of an optimizer step.

    def piece(self, point):
        """Whether the rank holds the piece that the contributor's name stands for."""
        return self.among(point, {name: "contributor" for name in self.entry["cut_along"]})

    def counted(self, counts, owned, point, group):
        total = ZERO
        for count, member in self.members(point, group):
            if self.piece(member):
                total = plus(total, times(count, times(counts.at(member), owned.at(member))))
        return total

    def norm(self, step, on, group):
        demand(not step["after"] and "owns" not in step, "a norm changes nothing")
        counts, norm, owned = self.read(step["counts"]), self.read(step["norm"]), self.owned
        axes = [*group[0], *group[1], *self.entry["cut_along"]]
        self.same(f"{step['step']}: what it counts", norm,
                  lambda point: self.counted(counts, owned, point, group), [counts, owned], axes)
        held = {name: function for (buffer, name), function in self.held.items() if buffer == step["buffer"]}
        mean = bool(step.get("mean_of_norms")) and bool(group[0] or group[1])
        self.norms.append((on, norm, counts, owned, held, mean))

    def end(self, entry):
        result = {name: function for (buffer, name), function in self.held.items() if buffer == self.entry["optimized"]}
        here = self.read(self.entry["held_by"])
        in_flight = self.read(entry.get("in_flight", []))
        flying = [where for _, _, _, where in self.flights]
        self.same("what is not waited for", in_flight,
                  lambda point: ONE if any(one.at(point) for one in flying) else ZERO, flying)
        self.wrong = self.wrong or bool(in_flight.tables)
        if self.entry.get("ended_by_race") and in_flight.tables:
            return
        expected = {name: self.read(rows) for name, rows in entry["expected"].items()}
        differs = {name: self.read(rows) for name, rows in entry["differs"].items()}
        for name in {*result, *expected, *differs}:
            held, one = result.get(name, self.nothing), expected.get(name, self.nothing)
            self.same(f"the difference of {name} from one device", differs.get(name, self.nothing),
                      lambda point: times(times(self.owned.at(point), here.at(point)), plus(held.at(point), one.at(point), -1)),
                      [self.owned, here, held, one])
        self.wrong = self.wrong or any(function.tables for function in differs.values())
        self.end_answers(entry, here)
        self.end_norms(entry, result)
        self.owned, self.norms, self.scattered = self.everywhere, [], []

    def end_answers(self, entry, here):
        families = [(self.read(family["on"]), family["over"], self.read(family["owners"])) for family in entry["answers"]]
        covered = [where for where, _, _ in families] if families else [self.owned]
        self.same("who answers for elements", here,
                  lambda point: ONE if here.at(point) and any(one.at(point) for one in covered) else ZERO, covered)
        for where, axes, owners in families:
            self.same("how many answer for an element", owners,
                      lambda point: self.summed(self.owned, point, (axes, {})), [self.owned], axes)
            for point in self.all_points([where, owners]):
                count = owners.at(point)
                self.wrong = self.wrong or bool(where.at(point)) and not (count and min(count.values()) > 0)

    def end_norms(self, entry, result):
        if not self.norms:
            demand("norm" not in entry, "there is no norm")
            return
        total = self.read(entry["norm"])

        def all_calls(point):
            value = ZERO
            for on, norm, *_ in self.norms:
                value = plus(value, times(on.at(point), norm.at(point)))
            return value

        self.same("how often the norm counts an element", total, all_calls,
                  [function for on, norm, *_ in self.norms for function in (on, norm)])
        demand(len(entry["norm_too_early"]) == len(self.norms), "not every norm is judged")
        for (_, _, counts, owned, held, mean), rows in zip(self.norms, entry["norm_too_early"]):
            early = self.read(rows)
            pairs = [(held.get(name, self.nothing), result.get(name, self.nothing)) for name in {*held, *result}]

            def is_early(point):
                if not counts.at(point) or not owned.at(point):
                    return ZERO
                changed = not self.owned.at(point) or mean or any(a.at(point) != b.at(point) for a, b in pairs)
                return ONE if changed else ZERO

            self.same("what a norm counts that is not final", early, is_early,
                      [counts, owned, self.owned, *(one for pair in pairs for one in pair)])
            self.wrong = self.wrong or bool(early.tables)
        for point in self.all_points([total]):
            self.wrong = self.wrong or total.at(point) != ONE

    def run(self):
        ends = {end.get("optimizer_step", 0): end for end in self.entry["ends"]}
        at = 0
        for step in self.entry["steps"]:
            while step.get("optimizer_step", 0) != at:
                self.end(ends.pop(at))
                at += 1
            self.step(step)
        while at in ends:
            self.end(ends.pop(at))
            at += 1
        demand(not ends, "an optimizer step ends that did not begin")
        demand(self.entry["right"] == (not self.wrong), "the proof calls right what is wrong, or wrong what is right")
        return self.points


def check_class(entry):
    """Raises WrongProof where a value does not follow. Returns the number of points that were looked at."""
    return ClassCheck(entry).run()


def check_proof(report):
    """The same for a whole report: the numbers of classes, of steps and of points."""
    classes = [entry for case in report["proof"] for entry in case["classes"]]
    points = sum(check_class(entry) for entry in classes)
    demand(report["verdict"] != "right" or all(entry["right"] for entry in classes), "it calls right what is wrong")
    return len(classes), sum(len(entry["steps"]) for entry in classes), points
