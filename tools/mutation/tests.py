# SPDX-License-Identifier: Apache-2.0
"""What can catch a mutant: the unit test programs, the oracle on random scenarios, the tests that run the program."""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from folders import DECIDE, folder_of, library_of

MEMORY_LIMIT = 6 << 30
# Folders of tests/ that run the program. INNER ask what it computes, and every mutant meets those files that reach it; of tests/scenarios,
# ScenarioTest is the part that runs the engines. Others ask about options, reports and captured runs; a mutant of what decides is reached by
# all of them and would take minutes to survive, so these are for the other folders: OUTER for those that have no goal. Few of INNER look
# at captured runs, extractions and the engine of real transformers, and hardly one at configurations and reports. Nothing meets
# tests/launcher, which builds the program anew where it finds it.
INNER = ("contract", "oracle", "proof")
OUTER = ("cli",)
OUTER_OF = dict.fromkeys(DECIDE, ()) | dict.fromkeys(("transformer", "live", "report"), ("cli",)) | {"importers": ("cli", "frameworks")}
EVERY_OUTER = sorted({*OUTER, *(folder for of_folder in OUTER_OF.values() for folder in of_folder)})
# Seconds. A program that hangs is ended by the processor time it takes, which a busy machine does not change; one that
# waits without taking any, by the time on the clock.
LEAST_PROCESSOR_LIMIT = 10
EXPENSIVE = 1.0
LONGEST = 30  # a file of Python tests that takes longer is left out
STAGES = 3
CLOCK_LIMIT = 240


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def limited(command, environment, processor_limit, folder=None):
    """How the process ended, or None where it took too long; the limit holds for each process that it starts as well. Programs that hold
    mutants limit their own memory (mutant.cpp): a browser, which tests of the page start, asks for more than it uses."""
    def limit():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (processor_limit, processor_limit + 1))

    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, errors="replace", preexec_fn=limit,
                               start_new_session=True, cwd=folder)
    try:
        output, _ = process.communicate(timeout=CLOCK_LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return None
    return subprocess.CompletedProcess(command, process.returncode, output)


class Test:
    """A command, and whether it found something wrong."""

    def __init__(self, name, command, folder=None):
        self.name = name
        self.command = command
        self.folder = folder  # to run in
        self.seconds = 0.0  # of processor time
        self.reaches = set()

    def run(self, id, environment, reached=None):
        """None: passed; else how it was caught."""
        environment = dict(environment, LOCKSTEP_MUTANT=str(id))
        if reached:
            environment["LOCKSTEP_MUTANT_REACHED"] = str(reached)
        done = limited(self.command, environment, self.processor_limit(reached), self.folder)
        if not done:
            return "took too long"
        if done.returncode == 0:
            return None
        return f"signal {-done.returncode}" if done.returncode < 0 else "failed"

    def processor_limit(self, measuring):
        return CLOCK_LIMIT if measuring else max(LEAST_PROCESSOR_LIMIT, round(4 * self.seconds))

    def parts(self):
        """What to run instead where a mutant reaches only some of it, or nothing."""
        return []

    def joined(self, parts):
        """Those of its parts, when they are measured, that are tests of their own, and one for all that are cheap together."""
        return parts

    def of_measured(self, parts):
        self.seconds = sum(part.seconds for part in parts)
        self.reaches = set().union(*(part.reaches for part in parts))
        return self


class UnitTest(Test):
    def __init__(self, program, build):
        # Names of sources in it may be relative to where they were compiled.
        super().__init__(program.name, [str(program), "--abort"], build)

    def parts(self):
        listed = subprocess.run([self.command[0], "--list-test-names-only"], capture_output=True, text=True).stdout
        parts = []
        for name in filter(None, map(str.strip, listed.splitlines())):
            pattern = '"' + name.replace("\\", "\\\\").replace(",", "\\,").replace("[", "\\[") + '"'
            parts.append(Test(f"{self.name}: {name}", [*self.command, pattern], self.folder))
        return parts

    def joined(self, parts):
        return [self.of_measured(parts)] if sum(part.seconds for part in parts) <= EXPENSIVE else parts


class PythonTest(Test):
    def __init__(self, python, files, root):
        super().__init__(", ".join(str(file.relative_to(root)) for file in files),
                         [python, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *map(str, files)])
        self.python, self.files, self.root = python, files, root


class ScenarioTest(Test):
    """What tests/scenarios asks of the program: whether each file comes out as it says."""

    def __init__(self, binary, files, root):
        names = [str(file.relative_to(root)) for file in files]
        super().__init__("tests/scenarios/test_scenarios.py" + (f": {names[0]}" if len(names) == 1 else ""),
                         [binary, "test", *names], root)
        self.binary, self.files, self.root = binary, files, root

    def parts(self):
        return [ScenarioTest(self.binary, [file], self.root) for file in self.files]

    def joined(self, parts):
        """Those that are expensive replay millions of elements in the same way as the others, and are left out."""
        cheap = [part for part in parts if part.seconds <= EXPENSIVE]
        return [ScenarioTest(self.binary, [file for part in cheap for file in part.files], self.root).of_measured(cheap)]


class Oracle(Test):
    """tests/oracle/compare.py, whose answers are worked out once. It stops at the first difference."""

    BATCH = 25
    COUNT = 200

    def __init__(self, root, out):
        super().__init__(f"the oracle on {self.COUNT} random scenarios", [])
        sys.path.insert(0, str(root / "tests" / "oracle"))
        import compare
        import oracle
        import random_scenario
        self.compare = compare
        folder = out / "scenarios"
        folder.mkdir(parents=True, exist_ok=True)
        self.binary = str(out / "bin" / "lockstep")
        self.cases = []
        for number in range(1, 1 + self.COUNT):
            written, plain = random_scenario.generate(number)
            file = folder / f"{number}.json"
            file.write_text(json.dumps(written, default=float))
            self.cases.append((file, oracle.judge(plain)))

    def run(self, id, environment, reached=None):
        environment = dict(environment, LOCKSTEP_MUTANT=str(id))
        if reached:
            environment["LOCKSTEP_MUTANT_REACHED"] = str(reached)
        for i in range(0, len(self.cases), self.BATCH):
            part = self.cases[i:i + self.BATCH]
            command = [self.binary, "check", "--no-blame", "--all", "--format", "json", *(str(file) for file, _ in part)]
            done = limited(command, environment, self.processor_limit(reached))
            if not done:
                return "took too long"
            try:
                reports = json.loads(done.stdout)
            except ValueError:
                return f"exit status {done.returncode}"
            if any(self.compare.safe_difference(report, expected) for report, (_, expected) in zip(reports, part)):
                return "failed"
        return None


class Tests:
    def __init__(self, root, build, out, python, chosen, link, names):
        """`link` makes the programs that it is asked for and returns those that hold mutants. Tests without one of `names`, where there are
        any, are not looked at."""
        binary = out / "bin" / "lockstep"
        # As many random cases as with every change, and the same ones, also where tools/nightly asks for more.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_TEST_", "LOCKSTEP_NIGHTLY"))}
        self.environment = dict(kept, LOCKSTEP_BINARY=str(binary), PYTHONDONTWRITEBYTECODE="1",
                                LOCKSTEP_MUTANT_MEMORY=str(MEMORY_LIMIT))
        self.out, self.root, self.python = out, root, python
        # The program is without completion and manual pages, which are written where it was built.
        programs = link([program.name for program in sorted((build / "bin").glob("test_*"))] + ["lockstep_cli"])
        self.unit = [UnitTest(out / "bin" / name, build) for name in programs if name != "lockstep_cli"]
        self.outer_of = {mutant.id: OUTER_OF.get(folder_of(mutant.file), OUTER) for mutant in chosen}
        outer = [folder for folder in EVERY_OUTER if any(folder in of_mutant for of_mutant in self.outer_of.values())]
        files = [file for folder in (*INNER, *outer) for file in sorted((root / "tests" / folder).glob("test_*.py"))]
        scenarios = [file for file in sorted((root / "scenarios").rglob("*")) if file.suffix in (".json", ".jsonc")]
        self.all = [*self.unit, Oracle(root, out), ScenarioTest(str(binary), scenarios, root),
                    *(PythonTest(python, [file], root) for file in files)]
        self.all = [test for test in self.all if not names or any(name in test.name for name in names)]
        self.left_out = []

    def measure(self):
        """Runs everything without a mutant, in its parts: how long they take, and which places each reaches. False where a unit test
        fails, since then nothing can be learned."""
        waiting, self.all = self.all, []
        for test in waiting:
            parts = []
            for part in test.parts() or [test]:
                why = self.measure_one(part)
                if not why:
                    parts.append(part)
                    continue
                self.left_out.append((part, why))
                if isinstance(test, UnitTest):
                    return False
            self.all += test.joined(parts)
        self.all.sort(key=lambda test: test.seconds)
        return True

    def measure_one(self, test):
        """Why the test is left out, if it is."""
        with tempfile.TemporaryDirectory() as folder:
            reached = Path(folder) / "reached"
            before = processor_seconds()
            failed = test.run(0, self.environment, reached)
            test.seconds = processor_seconds() - before
            if failed:
                return "fails without any mutant"  # it would catch everything
            if isinstance(test, PythonTest) and test.seconds > LONGEST:
                return f"takes {test.seconds:.0f} s"
            if reached.exists():
                test.reaches = {int(line) for line in reached.read_text().split()}
            if isinstance(test, PythonTest) and (folder := test.files[0].parent.name) in EVERY_OUTER:
                test.reaches = {id for id in test.reaches if folder in self.outer_of.get(id, ())}  # not those that are spare
        return None

    def stages(self, mutant):
        """The tests that reach its place, the cheapest first, in three lists: quick ones, of which its own folder's come first, those that
        start Python, the expensive ones. Most of what a small Python test costs is the start of Python, so that these are one call."""
        tests = [test for test in self.all if mutant.id in test.reaches]
        own = f"test_{library_of(folder_of(mutant.file))}"
        quick = sorted((test for test in tests if test.seconds <= EXPENSIVE), key=lambda test: test.name.split(":")[0] != own)
        small = [test for test in tests if EXPENSIVE < test.seconds <= 2 * EXPENSIVE]
        expensive = [test for test in tests if test.seconds > 2 * EXPENSIVE]
        python = [test for test in small if isinstance(test, PythonTest)]
        if python:
            joined = PythonTest(self.python, [file for test in python for file in test.files], self.root)
            joined.name = "tests/" + " or tests/".join(sorted({file.parent.name for file in joined.files}))
            joined.seconds = sum(test.seconds for test in python)
            small = [*(test for test in small if test not in python), joined]
        return quick, small, expensive

    def catch(self, mutant, stage):
        """(test, how), or (None, "") if it survives this stage, or (None, "never reached")."""
        stages = self.stages(mutant)
        for test in stages[stage]:
            how = test.run(mutant.id, self.environment)
            if how:
                return test.name, how
        return None, "" if any(stages) else "never reached"
