# SPDX-License-Identifier: Apache-2.0
"""Checks a whole report of `lockstep prove --proof -f json` against the scenario that it is about, and takes nothing from it:

every value follows from those before it (checker.py), every step is the Program's (derived.py), the classes are all
parameters (classes.py) and the cases all sizes (coverage.py). What could not be derived is counted.
"""

import random
import re


from classes import key_of
from conditions import EVERYWHERE, NOWHERE, Moment, Reader, Underivable

from coverage import Sizes, guards_of, holds
from derived import DerivedClass, Taken
from functions import axis, demand
from program import Refused, expressions, same_shape

ScenarioError = expressions.ScenarioError


class Counts:
    """What a check has looked at, and what it took from the proof."""

    def __init__(self):
        self.proofs = self.whole = self.cases = self.classes = self.steps = self.points = self.sizes = self.refused = self.written_for_sizes = self.conditions = 0
        self.taken = Taken()

    def __str__(self):
        return (f"{self.proofs} proofs follow, {self.whole} of them checked whole: {self.cases} cases, {self.classes} classes, "
                f"{self.steps} steps, {self.points} points, {self.sizes} further sizes, {self.refused} refused sizes, {self.conditions} conditions, "
                f"{self.written_for_sizes} schedules with factors of sizes; "
                f"taken from the proof: {self.taken.count()}")


def at_its_sizes(program):
    """Reads expressions where all sizes are numbers."""
    names = ("rank", "contributor", "first", "last")
    axes = {str(number): axis(names, level.size) for number, level in enumerate(program.levels)}
    return Reader(program, axes, dict(program.sizes), {}, {})


def check_conditions(case, program, least, most, counts):
    """What decided about the steps when a framework was expanded comes out alike at all sizes of the case."""
    axes = {}
    for number, level in enumerate(program.levels):
        size = next((name for name in sorted(level.axes) if name in least), level.size)
        axes[str(number)] = axis(("rank", "contributor"), size)
    reader = Reader(program, axes, {}, least, most, case.get("let"))
    for condition in case["conditions"]:
        counts.conditions += 1
        try:
            demand(reader.condition(condition, Moment(0)) in (EVERYWHERE, NOWHERE), condition, "tells ranks apart")
        except (Underivable, ScenarioError) as why:
            counts.taken.add("a condition of the framework", f"{condition}: {why}")


def follow_program(case, program, counts):
    """From here on the Program is the case's, with expressions of sizes, once it is seen to be the one at the layout."""
    claimed = case["program"]
    reader = at_its_sizes(program)

    def same(left, right):
        try:
            return reader.number(left, Moment(0, 0)) == reader.number(right, Moment(0, 0))
        except (Underivable, ScenarioError):
            return False

    demand(same_shape(claimed["schedule"], program.schedule, same), "the schedule has other steps at", program.layout)
    batch = {**claimed.get("batch", {})}
    for counted in ("micro_batches",):
        if counted in program.batch:
            batch[counted] = program.batch[counted]
    demand(same_shape(batch, program.batch, same), "the batch is another one at", program.layout)
    counts.written_for_sizes += claimed["schedule"] != program.schedule
    program.read_schedule(claimed["schedule"], batch)


def check_case(case, scenario, sizes, counts, draws):
    guards = exactly, least, most = guards_of(case)
    demand(case["layouts"] or "undecided" in case, "a case that is not undecided was read at no layout")
    if "undecided" in case:
        demand(not case["classes"], "an undecided case has classes")
        return
    programs = []
    for layout in case["layouts"]:
        demand(holds(guards, layout), "the case does not have the sizes", layout)
        try:
            programs.append(scenario.at(layout))
        except Refused as why:
            demand(False, "the scenario refuses", layout, ":", why)
        follow_program(case, programs[-1], counts)
    check_conditions(case, programs[0], least, most, counts)
    keys = set()
    for entry in case["classes"]:
        demand(0 <= entry["layout"] < len(programs), "there is no layout", entry["layout"])
        program = programs[entry["layout"]]
        counts.points += DerivedClass(entry, program, exactly, least, most, counts.taken).run()
        counts.classes += 1
        counts.steps += len(entry["steps"])
        of_class = {key_of(program, program.by_name[name]) for name in entry["parameters"] if name in program.by_name}
        demand(len(of_class) == 1, "parameters of one class go through it differently:", entry["parameters"])
        keys |= of_class
    further = sizes.drawn(case, draws)
    counts.sizes += len(further)
    for program in further:
        follow_program(case, program, counts)
    for program in programs + further:
        for logical in program.held():
            demand(key_of(program, logical) in keys, "no class has the parameter", program.name(logical), "at", program.layout)
    check_members(case, programs)
    counts.cases += 1


def check_members(case, programs):
    """Every parameter of the first layout is named, by one class."""
    named = [name for entry in case["classes"] for name in entry["parameters"] if entry["layout"] == 0]
    held = [programs[0].name(logical) for logical in programs[0].held()]
    demand(sorted(named) == sorted(held), "the classes name", sorted(set(named) ^ set(held)), "and should not, or not twice")


def check_whole(report, scenario, counts, chance=None, draws=1, most_cases=None):
    """Raises WrongProof where the report does not follow from the scenario. `most_cases`: looks at so many, drawn by `chance`."""
    chance = chance or random.Random(1)
    before = counts.taken.count()
    undecided = report["undecided"] or any("undecided" in case for case in report["proof"])
    demand(report["verdict"] != "right" or not undecided, "it is called right, and something is undecided")
    demand(report["cases"] == len(report["proof"]), "it says another number of cases")
    sizes = Sizes(report, scenario, chance)
    sizes.check()
    cases = report["proof"]
    if most_cases is not None and len(cases) > most_cases:
        cases = chance.sample(cases, most_cases)
    for case in cases:
        check_case(case, scenario, sizes, counts, draws)
    every_class = [entry["right"] for case in report["proof"] for entry in case["classes"]]
    demand(report["verdict"] != "right" or all(every_class), "it calls right what is wrong")
    by_replay = undecided and re.match("wrong at [^;]*; ", report["statement"])
    demand(report["verdict"] != "wrong" or by_replay or not all(every_class), "it calls wrong what is right")
    counts.refused += sizes.refused
    counts.proofs += 1
    counts.whole += counts.taken.count() == before
