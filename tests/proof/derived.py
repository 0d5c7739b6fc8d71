# SPDX-License-Identifier: Apache-2.0
"""Checks a class of a proof against the Program: nothing of what a step does, or of what one device has, is taken from
the proof. Which ranks run a step, with which factor, for which group and with which cut follows from the Program's steps
and parameters at the layout at which the class was read, for all sizes of the case.
"""

from checker import ClassCheck
from conditions import EVERYWHERE, NOWHERE, Moment, Reader, Underivable, either
from cuts import cut_signatures
from functions import ONE, ZERO, constant, demand, inverse, parse, times
from program import as_list

SCATTERS = ("reduce_scatter", "reduce_scatter_v")
COLLECTIVES = ("all_reduce", *SCATTERS, "all_gather", "broadcast", "reduce", "norm", "all_to_all", "own")
KEYS = {"step", "op", "optimizer_step", "micro_batch", "on", "buffer", "from", "over", "picks", "reduce", "root", "by", "owned",
        "async", "for", "cuts", "adds", "counts", "mean_of_norms", "after", "owns", "norm", "races"}  # fmt: skip


class Place:
    """A step of the Program in one iteration."""

    def __init__(self, step, each, optimizer_step, micro_batch):
        self.step, self.each, self.moment = step, each, Moment(optimizer_step, micro_batch)


class Taken(dict):
    """What was not derived but taken from a proof: how often, by kind."""

    def add(self, kind, why):
        self.setdefault(kind, {}).setdefault(why, 0)
        self[kind][why] += 1

    def count(self):
        return sum(sum(whys.values()) for whys in self.values())

    def lines(self):
        return [f"  taken: {kind}: {why}, {times} times" for kind, whys in sorted(self.items()) for why, times in sorted(whys.items())]


class DerivedClass(ClassCheck):
    def __init__(self, entry, program, exactly, least, most, taken):
        super().__init__(entry)
        self.program, self.exactly, self.least, self.most, self.taken = program, exactly, least, most, taken
        demand(len(self.axes) == len(program.levels), "there are other axes than", [sorted(one.axes) for one in program.levels])
        self.reader = Reader(program, self.axes, exactly, least, most)
        self.check_axes()
        name = entry["parameters"][0]
        demand(name in program.by_name, "there is no parameter", name)
        self.logical = program.by_name[name]
        self.sites = [program.parameters[site] for site in program.logicals[self.logical]]
        self.stages = program.stages_of(self.logical)
        self.held_by = self.on_stages(self.stages)
        self.matches("the ranks that hold it", self.read(entry["held_by"]), self.held_by)
        self.cut_along = {level for site in self.sites for axis in site.get("shard", {}) for level in program.levels_of(axis)}
        names = {self.reader.names[level] for level in self.cut_along}
        demand(set(entry["cut_along"]) == names, "the axes that cut it are", names, "and not", entry["cut_along"])
        demand(entry["optimized"] == program.result, "the optimizer reads", program.result)
        self.several = len(program.counts) > 1
        self.unrolled = any(isinstance(step.get("micro_batch"), int) for step in entry["steps"])
        self.places = list(self.all_places())
        self.owner_cuts, self.cut_before = {}, []
        self.expected_ends = 0

    # Where the proof speaks of the same layout.

    def check_axes(self):
        for number, entry in enumerate(self.entry["axes"]):
            level, axis = self.program.levels[number], self.axes[entry["axis"]]
            open_axes = sorted(level.axes & self.least.keys())
            if not open_axes:
                demand(entry["size"] == level.size, entry["axis"], "has the size", level.size)
                continue
            demand(len(open_axes) == 1 and entry["size"] == open_axes[0], "the size of", entry["axis"], "is", open_axes)
            demand(entry.get("least") == self.least[open_axes[0]], entry["axis"], "begins at", self.least[open_axes[0]])
            demand(entry.get("most") == self.most.get(open_axes[0]), entry["axis"], "ends at", self.most.get(open_axes[0]))
            fixed = [name for name in axis.names if name.isdigit()]
            demand(len({"first", "last", *fixed} & set(axis.names)) <= self.least[open_axes[0]],
                   entry["axis"], "has less coordinates than the proof has names")

    def on_stages(self, stages):
        if len(stages) == self.program.sizes["pp"]:
            return EVERYWHERE
        return either(self.reader.at_stage(stage) for stage in stages)

    def matches(self, what, claimed, where):
        self.same(what, claimed, lambda point: ONE if where.holds(point) else ZERO, [], where.axes)

    # The order of steps.

    def all_places(self):
        for optimizer_step, count in enumerate(self.program.counts):
            for step in self.program.steps:
                if step["op"] != "each":
                    yield Place(step, None, optimizer_step, None)
                    continue
                for micro_batch in range(count) if self.unrolled else ["any"]:
                    for inner in step["steps"]:
                        yield Place(inner, step, optimizer_step, micro_batch)

    def run(self):
        if self.unrolled:
            demand("micro_batches" not in self.least, "the number of micro-batches is open, and the proof counts them")
        points = super().run()
        if not self.entry.get("ended_by_race"):
            for place in self.places:
                demand(not self.is_run(place), place.step["name"], "is missing at the end")
            demand(len(self.entry["ends"]) == len(self.program.counts), "there are", len(self.program.counts), "optimizer steps")
        return points

    def is_run(self, place):
        """Whether a step at a place has an entry in the proof."""
        if place.step["op"] == "wait":
            return True
        try:
            where = self.runs(place)
        except Underivable:
            return False
        return any(where.holds(point) for point in self.all_points([], where.axes))

    def next_place(self, step):
        """The place of an entry: all that are left out before it are run by nobody."""
        while self.places:
            place = self.places.pop(0)
            moment, name = place.moment, place.step.get("name", "")
            same = (name, place.step["op"]) == (step["step"], step["op"])
            same = same and step.get("optimizer_step", 0) == moment.step and step.get("micro_batch") == moment.micro_batch
            if same or self.is_run(place):
                demand(same, name or place.step["op"], "is missing before", step["step"])
                return place
        demand(False, step["step"], "is no step of the schedule, or not there")

    # Who runs a step.

    def condition(self, step, moment):
        where = self.reader.among(step.get("only"))
        return where if where is NOWHERE or "when" not in step else where & self.reader.condition(step["when"], moment)

    def chosen(self, step):
        selectors = [*as_list(step.get("params", [])), *as_list(step.get("geometry", {}).get("separate", []))]
        if any(item.lstrip("!").startswith("numel") for item in selectors):
            axes = {axis for site in self.program.parameters for axis in site.get("shard", {})}
            if any(self.axes[self.reader.names[level]].open for axis in axes for level in self.program.levels_of(axis)):
                raise Underivable("a number of elements that depends on a size")
        stages = [stage for stage in self.stages if self.program.chooses(step, stage, self.logical)]
        return self.held_by if stages == self.stages else self.on_stages(stages)

    def runs(self, place):
        step, op = place.step, place.step["op"]
        holds = EVERYWHERE if op in ("wait", "norm") else self.chosen(step)
        if holds is NOWHERE:
            return NOWHERE
        where = self.condition(step, place.moment)
        if place.each:
            where = where & self.condition(place.each, Moment(place.moment.step))
        where = where & holds
        return where & self.member(step) if op in COLLECTIVES else where

    def picks(self, step):
        over = step.get("over", [])
        return {axis: as_list(pick) for axis, pick in over.items() if pick != "all"} if isinstance(over, dict) else {}

    def member(self, step):
        return self.reader.among(self.picks(step))

    def derived_group(self, step):
        """Names of the axes that a step goes along, and of the coordinates that it picks on others."""
        program, names = self.program, self.reader.names
        along, picked = set(), {}
        for axis in as_list(step.get("over", [])) if not isinstance(step.get("over"), dict) else step["over"]:
            levels = program.levels_of(axis)
            if axis not in self.picks(step):
                along |= set(levels)
                continue
            chosen = {program.coordinate(axis, one): one for one in self.picks(step)[axis]}
            if levels and len(chosen) > 1:
                if len(levels) > 1:
                    raise Underivable(f"coordinates of {axis}")
                picked[names[levels[0]]] = {"last" if one in ("last", -1) else self.reader.named(levels[0], coordinate)
                                            for coordinate, one in chosen.items()}
        return [names[level] for level in sorted(along)], picked

    def derived_root(self, step):
        program, names, root = self.program, self.reader.names, step.get("root")
        along, picked = self.derived_group(step)
        if not along and not picked:
            return {}
        if root in (0, "first"):
            return {**{name: "first" for name in along}, **{name: self.first_of(name, chosen) for name, chosen in picked.items()}}
        if isinstance(root, dict):
            found = {}
            for axis, written in root.items():
                coordinate = program.coordinate(axis, written)
                for level in reversed(program.levels_of(axis)):
                    size = program.levels[level].size
                    found[names[level]] = "last" if written in ("last", -1) else self.reader.named(level, coordinate % size)
                    coordinate //= size
            return found
        if len(along) == 1 and not picked:
            return {along[0]: self.reader.named(names.index(along[0]), root)}
        raise Underivable("a root by its position")

    @staticmethod
    def first_of(_, chosen):
        return "first" if "first" in chosen else min(chosen - {"last"}, key=int, default="last")

    # One step.

    def step(self, step):
        demand(step.keys() <= KEYS, "unknown keys", step.keys() - KEYS)
        place = self.next_place(step)
        checks = [("who runs a step", self.check_on), ("a step", self.check_step), ("a factor", self.check_factor),
                  ("a cut", self.check_owners), ("what backward adds", self.check_adds)]  # fmt: skip
        if self.entry.get("ended_by_race") and step.get("races"):
            checks = [("who runs a step", self.check_on), ("a step", self.check_buffers)]  # nothing is said of what it did
        for what, check in checks:
            try:
                check(place, step)
            except Underivable as why:
                self.taken.add(what, str(why))
        return super().step(step)

    def check_on(self, place, step):
        self.matches(f"{step['step']}: the ranks that run it", self.read(step["on"]), self.runs(place))
        if step["op"] == "norm":
            counts = self.runs(place) & self.chosen(place.step) & self.held_by
            if "count" in place.step:
                counts = counts & self.reader.condition(place.step["count"], place.moment)
            self.matches(f"{step['step']}: the ranks that count", self.read(step["counts"]), counts)

    def check_step(self, place, claimed):
        step, op = place.step, place.step["op"]
        if place.moment.micro_batch == "any":
            demand(op in ("backward", "all_to_all", "wait"), claimed["step"], "acts in every micro-batch on what earlier ones left")
            demand(not step.get("async"), claimed["step"], "is in flight from one micro-batch to the next")
        self.check_buffers(place, claimed)
        reduces = op in ("all_reduce", *SCATTERS, "reduce")
        self.has(claimed, {"mean_of_norms": step.get("combine") == "mean_of_norms", "reduce": step.get("reduce", "sum") if reduces else None})
        if op not in COLLECTIVES:
            demand("over" not in claimed and "picks" not in claimed, claimed["step"], "brings nobody together")
            return
        along, picked = self.derived_group(step)
        demand(claimed.get("over", []) == along, claimed["step"], "goes along", along, "and not", claimed.get("over"))
        found = {name: set(chosen) for name, chosen in claimed.get("picks", {}).items()}
        demand(found == picked, claimed["step"], "picks", picked, "and not", found)
        root = self.derived_root(step) if op in ("broadcast", "reduce") else {}
        demand(claimed.get("root", {}) == root, claimed["step"], "has the root", root, "and not", claimed.get("root"))

    def check_buffers(self, place, claimed):
        step, op = place.step, place.step["op"]
        wanted = {"owned": step.get("on") == "owned", "async": bool(step.get("async")), "from": step.get("from"), "for": step.get("for")}
        if op not in ("wait", "own", "all_to_all"):
            wanted["buffer"] = step.get("to" if op in ("copy", "accumulate") else "buffer", "grad")
        self.has(claimed, wanted)

    @staticmethod
    def has(claimed, wanted):
        for key, value in wanted.items():
            demand((claimed.get(key) or None) == (value or None), claimed["step"], key, "is", value, "and not", claimed.get(key))

    def check_factor(self, place, claimed):
        if place.step["op"] != "scale":
            demand("by" not in claimed, claimed["step"], "has no factor")
            return
        by = self.reader.number(place.step.get("by", 1), place.moment)
        demand(parse(claimed["by"]) == by, claimed["step"], "multiplies by", by, "and not", claimed["by"])
        axes = sorted({axis for powers in by for name, _ in powers for axis in self.reader.pieces_differ_on(name)})
        if axes:  # the contributor's tokens stand for the rank's
            on, seen = self.read(claimed["on"]), self.owned if claimed.get("owned") else self.everywhere
            own = self.reader.rank_is_contributor([self.reader.names.index(axis) for axis in axes])
            for (buffer, name), held in self.held.items():
                if buffer != claimed["buffer"]:
                    continue
                for point in self.all_points([on, seen, held], axes):
                    demand(own.holds(point) or not (on.at(point) and seen.at(point) and held.at(point)), claimed["step"],
                           "multiplies what was summed over ranks by a factor that differs between them:", name)

    # Cuts.

    def check_owners(self, place, claimed):
        """Owners that are one are those of one cut, and a gather takes that of the last reduce-scatter."""
        op = place.step["op"]
        if op not in (*SCATTERS, "own", "all_gather"):
            demand("cuts" not in claimed, claimed["step"], "cuts nothing")
            return
        along, _ = self.derived_group(place.step)
        for cut in claimed.get("cuts", []):
            where = self.read(cut["on"])
            demand((cut["owner"] is None) == (not along), claimed["step"], "cuts for ranks that it does not bring together")
            if op == "all_gather" and self.gathers_scattered(cut, where, along, claimed):
                continue
            for stage in self.stages_in(where) if along else []:
                signature = self.cut_on(place, stage, claimed)
                known = self.owner_cuts.setdefault(cut["owner"], signature)
                demand(known == signature, claimed["step"], "cuts otherwise than the owner", cut["owner"], "that it is said to have")
            if op in SCATTERS:
                self.cut_before = [(owner, self.and_not(before, where), group) for owner, before, group in self.cut_before]
                self.cut_before.append((cut["owner"], where, along))

    def gathers_scattered(self, cut, where, along, claimed):
        """Whether a reduce-scatter took apart what is gathered; then by that cut, over that group."""
        scattered = False
        for owner, before, group in self.cut_before:
            for point in self.all_points([before, where]):
                if before.at(point) and where.at(point):
                    demand(owner == cut["owner"] and group == along, claimed["step"], "gathers by another cut than the last reduce_scatter")
                    scattered = True
        return scattered

    def stages_in(self, where):
        """Stages that hold the parameter and on which a condition holds for some rank."""
        found = []
        for stage in self.stages:
            here = self.reader.at_stage(stage, or_unnamed=True)
            if any(here.holds(point) and where.at(point) for point in self.all_points([where], here.axes)):
                found.append(stage)
        return found

    def cut_on(self, place, stage, claimed):
        signature = cut_signatures(self.program, place.step, stage).get(self.logical)
        if claimed.get("owned"):  # parts of buffers are cut by what the others own too
            return signature, claimed["step"], stage
        return signature

    # What backward adds, and what one device has.

    def contribution(self, site, use, moment):
        name = f"{site['name']}.{use}"
        if self.several:
            name += f", step {moment.step}"
        return name + (f", micro-batch {moment.micro_batch}" if isinstance(moment.micro_batch, int) else "")

    def contributor_levels(self, site):
        program = self.program
        if site.get("dispatch"):
            found = set(range(len(program.levels)))
        else:
            axes = ["dp", "cp", "sp", *site.get("shard", {}), *site.get("partial", [])]
            found = {level for axis in axes for level in program.levels_of(axis)}
        pipeline = set(program.levels_of("pp"))
        return found | pipeline if site.get("stage") == "all" else found - pipeline

    def takes_part(self, site, moment):
        when = site.get("micro_batches")
        if when is None:
            return True
        demand(moment.micro_batch != "any", site["name"], "takes part in some micro-batches, and the proof speaks of any")
        return moment.micro_batch in when

    def check_adds(self, place, claimed):
        step, op = place.step, place.step["op"]
        found = {one["contribution"]: one for one in claimed.get("adds", [])}
        if op not in ("backward", "leftover"):
            demand(not found, claimed["step"], "adds nothing")
            return
        shares = dict(self.shares(place) if op == "backward" else self.leftover(place))
        demand(len(found) == len(claimed.get("adds", [])), claimed["step"], "adds a contribution twice")
        demand(found.keys() == shares.keys(), claimed["step"], "adds", sorted(shares), "and not", sorted(found))
        owned = self.owned if claimed.get("owned") else self.everywhere
        for name, (where, by) in shares.items():
            self.same(f"{claimed['step']}: the ranks that add {name}", self.read(found[name]["on"]),
                      lambda point, where=where: owned.at(point) if where.holds(point) else ZERO, [owned], where.axes)
            if self.read(found[name]["on"]).tables:
                number = self.reader.number(by, place.moment)
                demand(parse(found[name]["by"]) == number, claimed["step"], "adds", number, "times", name, "and not", found[name]["by"])

    def shares(self, place):
        step, reader, runs = place.step, self.reader, self.runs(place)
        for site in self.sites:
            if site.get("frozen") or not self.takes_part(site, place.moment):
                continue
            dispatched = {level for axis in site.get("dispatch", []) for level in self.program.levels_of(axis)}
            mask = runs & reader.rank_is_contributor(sorted(self.contributor_levels(site) - dispatched)) & reader.among(site.get("only"))
            if site.get("stage") != "all":
                mask = mask & reader.at_stage(self.program.coordinate("pp", site.get("stage", 0)))
            for use in site.get("uses", ["main"]):
                if use in as_list(step.get("uses", site.get("uses", ["main"]))):
                    yield self.contribution(site, use, place.moment), (mask, step.get("by", 1))

    def leftover(self, place):
        step, per_rank = place.step, place.step.get("per") == "rank"
        # One unknown for each element: where axes cut the parameter, those of another piece are others.
        cut = {level for site in self.sites for axis in site.get("shard", {}) for level in self.program.levels_of(axis)}
        where = self.runs(place) & self.reader.rank_is_contributor(range(len(self.program.levels)) if per_rank else sorted(cut))
        yield step["what"] + (" of each rank" if per_rank else ""), (where, step.get("by", 1))

    def end(self, entry):
        demand(entry.get("optimizer_step", 0) == self.expected_ends, "an optimizer step ends out of order")
        if not self.entry.get("ended_by_race"):
            while self.places and self.places[0].moment.step == self.expected_ends:
                place = self.places.pop(0)
                demand(not self.is_run(place), place.step.get("name", place.step["op"]), "is missing")
        self.cut_before = []
        if not (self.entry.get("ended_by_race") and entry.get("in_flight")):  # a race, of which nothing more is said
            self.check_one_device(entry)
        self.expected_ends += 1
        super().end(entry)

    def check_one_device(self, entry):
        try:
            wanted = dict(self.one_device(self.expected_ends))
            demand(entry["expected"].keys() <= wanted.keys(), "one device has", sorted(wanted), "and not", sorted(entry["expected"]))
            for name, (where, weight) in wanted.items():
                self.same(f"what one device has of {name}", self.read(entry["expected"].get(name, [])),
                          lambda point, where=where, weight=weight: weight if where.holds(point) else ZERO, [], where.axes)
        except Underivable as why:
            self.taken.add("what one device has", str(why))

    def one_device(self, step):
        micro_batches = range(self.program.counts[step]) if self.unrolled else ["any"]
        for site in self.sites:
            for use in site.get("uses", ["main"]):
                for micro_batch in micro_batches:
                    moment = Moment(step, micro_batch)
                    if site.get("frozen") or not self.takes_part(site, moment):
                        continue
                    # Where micro-batches need not be told apart a proof may name the contribution either way.
                    yield self.contribution(site, use, moment), (self.expected_where(site), self.weight(use, moment))

    def expected_where(self, site):
        program, reader = self.program, self.reader
        dispatched = {level for axis in site.get("dispatch", []) for level in program.levels_of(axis)}
        sharded = {level for axis in site.get("shard", {}) for level in program.levels_of(axis)}
        where, own = reader.rank_is_contributor(sorted(sharded - dispatched)), self.contributor_levels(site)
        if site.get("only") and dispatched:
            raise Underivable("only and dispatch")
        for axis, values in site.get("only", {}).items():
            values = as_list(values)
            if axis == "pp" and site.get("stage") != "all":
                here = program.coordinate("pp", site.get("stage", 0))
                where = where if here in [program.coordinate("pp", one) for one in values] else NOWHERE
            elif own.isdisjoint(program.levels_of(axis)):  # all of these ranks compute the same
                where = where if values else NOWHERE
            else:
                where = where & reader.among({axis: values}, "contributor")
        return where

    def weight(self, use, moment):
        """What one device's loss multiplies the summed loss of the contributor's tokens with."""
        batch, reader = self.program.batch, self.reader

        def of_use(value, default, single):
            by_use = isinstance(value, dict) and set(value) != single
            return value.get(use, value.get("main", default)) if by_use else value

        loss = of_use(batch.get("loss", "token_mean"), "token_mean", {"weight"})
        factor = reader.number(of_use(batch.get("weight", 1), 1, set()), Moment(moment.step))
        averaged = times(reader.micro_batches(moment.step), reader.size("dp"))
        if loss == "sum":
            return factor
        if isinstance(loss, dict):
            return times(factor, reader.number(loss["weight"], moment))
        if loss == "token_mean":
            return times(factor, self.over(reader.tokens(use, {"dp", "cp", "sp", "micro_batch"}, moment)))
        if loss == "micro_batch_mean":
            return times(factor, self.over(times(averaged, reader.tokens(use, {"cp", "sp"}, moment))))
        demand(loss == "local_mean", "there is no loss", loss)
        pieces = times(averaged, times(reader.size("cp"), reader.size("sp")))
        return times(factor, self.over(times(pieces, reader.tokens(use, set(), moment))))

    @staticmethod
    def over(divisor):
        return inverse(divisor) if divisor else constant(0)
