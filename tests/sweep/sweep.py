# SPDX-License-Identifier: Apache-2.0
"""Every layout of a framework with options drawn so that every pair of values occurs, replayed; what is not right and no
known deviation of the real framework is a false alarm."""

import ast
import json
import os
import random
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import settings

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
FILES_PER_CALL = 400
# How often a refused choice is changed at what the refusing rule mentions, before it is taken for impossible.
CHANGES = 40


def run(*arguments):
    program = os.path.abspath(os.environ["LOCKSTEP_BINARY"])
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)


def show(what):
    process = run("show", what)
    assert process.returncode == 0, process.stderr
    return process.stdout


def check(contents, engine):
    """The report of each scenario, in order, from one call of the program."""
    with tempfile.TemporaryDirectory(prefix="lockstep-sweep-") as folder:
        paths = [Path(folder) / f"{number}.json" for number in range(len(contents))]
        for path, content in zip(paths, contents):
            path.write_text(json.dumps(content), encoding="utf-8")
        process = run("check", "--no-blame", "--format", "json", "--engine", engine, *paths)
    assert process.returncode in (0, 1, 2), process.stderr
    reports = json.loads(process.stdout)
    return reports if isinstance(reports, list) else [reports]


class Condition:
    """A Python expression over the names of a choice (settings.named)."""

    def __init__(self, text):
        self.text = text
        self.names = {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}
        self.code = compile(text, text, "eval")

    def value(self, names):
        return eval(self.code, {"__builtins__": {}, "min": min, "max": max}, names)  # noqa: S307 (our own file)


@dataclass
class Deviation:
    """Choices with which the real framework is known to be wrong: all that the condition holds for, and no others."""

    when: Condition
    wrong: str  # "gradient" or "norm"
    scenario: str
    because: str
    always: bool = True  # false: the condition is necessary and not sufficient, `because` says what else it takes
    seen: int = 0


def known():
    """What deviations.jsonc says: {framework: {key: value}}."""
    return json.loads(settings.strip_comments((HERE / "deviations.jsonc").read_text(encoding="utf-8")))


@dataclass
class Outcome:
    """What a sweep over one framework found."""

    framework: str
    layouts: int = 0  # with an accepted choice
    refused_layouts: int = 0
    schedules: int = 0
    matches: int = 0
    deviating: int = 0
    pairs: int = 0
    refused_pairs: int = 0
    alarms: list = field(default_factory=list)  # (scenario, report, what should have come out)
    deviations: list = field(default_factory=list)


class Sweep:
    def __init__(self, framework, seed=1, engine="symbolic", progress=lambda outcome: None):
        told = known().get(framework, {})
        self.framework = settings.Framework(framework, show, told)
        self.sizes = {size: Condition(text) for size, text in told.get("sizes", {}).items()}
        self.lets = {name: Condition(text) for name, text in told.get("let", {}).items()}
        self.random = random.Random(f"{framework} {seed}")
        self.engine = engine
        self.progress = progress
        self.outcome = Outcome(framework, deviations=[
            Deviation(**{**entry, "when": Condition(entry["when"])}) for entry in told.get("deviations", [])
        ])
        self.covered, self.refused_pairs, self.accepted, self.done = set(), set(), [], set()
        self.pool = []

    def content(self, choice):
        names = settings.named(choice)
        keys = {size: condition.value(names) for size, condition in self.sizes.items()}
        return settings.scenario(self.framework, choice, keys)

    def names(self, choice, layout=None):
        """What a condition may use; axes as the program has worked them out, where it has replayed the choice."""
        names = settings.named(choice) | {axis: size for axis, size in (layout or {}).items() if axis != "world"}
        names["data"] = names["dp"] * names["cp"] * names["sp"]
        names |= {size: condition.value(names) for size, condition in self.sizes.items()}
        for name, condition in self.lets.items():
            names[name] = condition.value(names)
        return names

    def any_choice(self, layout, **fixed):
        """A choice for the layout: drawn, or an accepted one in which some factors are drawn anew."""
        drawn = {name: self.random.choice(values) for name, values in self.framework.factors.items()}
        if len(self.pool) > 20 and self.random.random() < 0.8:
            base = self.random.choice(self.pool)
            drawn = {name: value if self.random.random() < 0.2 else base[name] for name, value in drawn.items()}
        return {"layout": layout, **drawn, **fixed}

    def changed(self, choice, fixed, report):
        """The choice with another value for something that the refusing rule mentions; None if there is nothing."""
        mentioned = [self.framework.refused_by(error["message"]) for error in report["errors"]]
        if None in mentioned:
            self.outcome.alarms.append((self.content(choice), report, "accepted, or refused by a rule"))
            return None
        free = [sorted(name for name in names - set(fixed) if len(self.framework.factors[name]) > 1) for names in mentioned]
        if not all(free):
            return None
        name = self.random.choice(self.random.choice(free))
        values = [value for value in self.framework.factors[name] if value != choice[name]]
        default = self.framework.defaults()[name]
        return {**choice, name: default if default in values and self.random.random() < 0.5 else self.random.choice(values)}

    def settle(self, wanted):
        """Replays choices until each is accepted or seems impossible: whether, for each (choice, fixed factors)."""
        accepted = [False] * len(wanted)
        left = list(enumerate(wanted))
        for _ in range(CHANGES):
            again = []
            for begin in range(0, len(left), FILES_PER_CALL):
                batch = left[begin:begin + FILES_PER_CALL]
                contents = [self.content(choice) for _, (choice, _) in batch]
                for (number, (choice, fixed)), content, report in zip(batch, contents, check(contents, self.engine)):
                    if report["verdict"] != "error":
                        accepted[number] = True
                        self.judge(choice, content, report)
                        continue
                    other = self.changed(choice, fixed, report)
                    if other:
                        again.append((number, (other, fixed)))
                self.progress(self.outcome)
            left = again
            if not left:
                break
        return accepted

    def judge(self, choice, content, report):
        """Counts an accepted choice, and compares its verdict with the known deviations."""
        key = json.dumps(content)
        if key in self.done:
            return
        self.done.add(key)
        outcome = self.outcome
        outcome.schedules += 1
        self.pool.append(choice)
        self.covered.update(settings.pairs(choice, self.framework.factors))
        names = self.names(choice, report["layout"])
        found = set()
        if any(item["pieces"] for entry in report["parameters"] for item in entry["ranks"]) or any(
                entry["unowned"] for entry in report["parameters"]):
            found.add("gradient")
        if report["norm"]:
            found.add("norm")
        if report["verdict"] not in ("match", "mismatch"):
            found.add(report["verdict"])
        expected, possible = set(), set()
        for deviation in outcome.deviations:
            if deviation.when.value(names):
                deviation.seen += deviation.wrong in found
                (expected if deviation.always else possible).add(deviation.wrong)
        # Whether the norm of a wrong gradient is counted right is not asked.
        allowed = expected | possible | ({"norm"} if "gradient" in expected | possible else set())
        if not expected <= found <= allowed:
            outcome.alarms.append((content, report, " and ".join(sorted(expected)) or "match"))
        elif found:
            outcome.deviating += 1
        else:
            outcome.matches += 1

    def axes(self):
        """The axes that can be larger than 1."""
        wanted, axes = [], []
        for axis in (*settings.AXES, "ep"):
            fixed = {"model": "moe"} if axis == "ep" else {}
            layout = {"dp_shard": 4, "ep": 2, "etp": 1} if axis == "ep" else {axis: 2}
            wanted += [(self.any_choice(layout, **fixed), tuple(fixed)) for _ in range(40)]
            axes += [axis] * 40
        found = {axis for axis, accepted in zip(axes, self.settle(wanted)) if accepted}
        if "ep" in found and "models" not in self.framework.known:
            self.framework.factors["model"] = list(settings.MODELS)
        return found

    def layouts(self, count=None):
        """Every layout, or so many drawn from them, each with a choice that is accepted."""
        every = list(settings.layouts(self.axes()))
        if count is not None and count < len(every):
            every = self.random.sample(every, count)
        self.random.shuffle(every)
        for begin in range(0, len(every), FILES_PER_CALL):
            batch = every[begin:begin + FILES_PER_CALL]
            accepted = self.settle([(self.any_choice(layout), ()) for layout in batch])
            self.outcome.layouts += sum(accepted)
            self.outcome.refused_layouts += len(batch) - sum(accepted)
            self.accepted += [layout for layout, right in zip(batch, accepted) if right]

    def provoke(self):
        """Each known deviation that has not occurred yet: choices for which its condition holds."""
        for deviation in self.outcome.deviations:
            if deviation.seen:
                continue
            rows = []
            for _ in range(20000):
                choice = self.any_choice(self.random.choice(self.accepted))
                if deviation.when.value(self.names(choice)):
                    rows.append((choice, tuple(self.framework.factors)))
                    if len(rows) == 40:
                        break
            self.settle(rows)

    def pairs(self):
        """What the layouts' choices have left out: each pair of values, until accepted or impossible."""
        by_class = {}
        for layout in self.accepted:
            for axis, size in layout.items():
                by_class.setdefault((axis, settings.size_class(size)), []).append(layout)
        factors = self.framework.factors
        single = [(name, value) for name, values in factors.items() for value in values]
        wanted = []
        for number, first in enumerate(single):
            wanted += [(first, second) for second in single[number + 1:] if second[0] != first[0]]
            wanted += [(first, second) for second in by_class]
        missing = [pair for pair in wanted if pair not in self.covered]
        self.random.shuffle(missing)
        for attempt in range(4):
            missing = [pair for pair in missing if pair not in self.covered]
            for begin in range(0, len(missing), FILES_PER_CALL):
                rows = []
                for first, second in missing[begin:begin + FILES_PER_CALL]:
                    if (first, second) in self.covered:
                        continue
                    fixed = dict([first] + ([second] if second[0] in factors else []))
                    layout = self.random.choice(self.accepted if second[0] in factors else by_class[second])
                    base = self.framework.defaults() if attempt == 1 else {}
                    rows.append(({**self.any_choice(layout), **base, **fixed}, tuple(fixed)))
                self.settle(rows)
        self.outcome.pairs = sum(pair in self.covered for pair in wanted)
        self.outcome.refused_pairs = len(wanted) - self.outcome.pairs
        self.impossible = [pair for pair in wanted if pair not in self.covered]


def frameworks():
    """Every built-in framework: a file in frameworks/."""
    return sorted(path.stem for path in (ROOT / "frameworks").glob("*.jsonc"))


def sweep(framework, layouts=None, seed=1, engine="symbolic", progress=lambda outcome: None):
    """The outcome for one framework; with `layouts`, of so many, and without every pair of values."""
    found = Sweep(framework, seed, engine, progress)
    found.layouts(layouts)
    if layouts is None:
        found.pairs()
    found.provoke()
    return found.outcome
