# SPDX-License-Identifier: Apache-2.0
"""What can catch a mutant, from fast to slow: the unit test programs, the oracle on random scenarios, the tests that run
the program."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MEMORY_LIMIT = 6 << 30
# These run the program as a process; the others test the repository.
PROCESS_FOLDERS = ("contract", "oracle", "scenarios", "cli")


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Test:
    """One test program or file. `run` says whether it found nothing wrong."""

    def __init__(self, name):
        self.name = name
        self.seconds = 0.0
        self.reaches = set()

    def command(self):
        raise NotImplementedError

    def run(self, id, environment, reached=None):
        """None: passed; else how it was caught."""
        environment = dict(environment, LOCKSTEP_MUTANT=str(id))
        if reached:
            environment["LOCKSTEP_MUTANT_REACHED"] = str(reached)
        limit = max(20.0, 8 * self.seconds) if not reached else 900
        try:
            done = subprocess.run(self.command(), env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, errors="replace", timeout=limit, preexec_fn=limit_memory)
        except subprocess.TimeoutExpired:
            return "took too long"
        if done.returncode == 0:
            return None
        return f"signal {-done.returncode}" if done.returncode < 0 else "failed"


class UnitTest(Test):
    def __init__(self, program):
        super().__init__(program.name)
        self.program = program

    def command(self):
        return [str(self.program), "--abort"]


class PythonTest(Test):
    def __init__(self, python, root, file):
        super().__init__(str(file.relative_to(root)))
        self.python = python
        self.file = file

    def command(self):
        return [self.python, "-m", "pytest", "-qx", "-p", "no:cacheprovider", str(self.file)]


class Oracle(Test):
    """tests/oracle/compare.py, whose answers are worked out once. It stops at the first difference."""

    BATCH = 25

    def __init__(self, root, out, count, seed):
        super().__init__(f"the oracle on {count} random scenarios")
        sys.path.insert(0, str(root / "tests" / "oracle"))
        import compare
        import oracle
        import random_scenario
        self.compare = compare
        folder = out / "scenarios"
        folder.mkdir(parents=True, exist_ok=True)
        self.binary = str(out / "bin" / "lockstep")
        self.cases = []
        for number in range(seed, seed + count):
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
            command = [self.binary, "check", "--all", "--format", "json", *(str(file) for file, _ in part)]
            try:
                done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace",
                                      timeout=max(20.0, self.seconds), preexec_fn=limit_memory)
                reports = json.loads(done.stdout)
            except subprocess.TimeoutExpired:
                return "took too long"
            except ValueError:
                return f"exit status {done.returncode}"
            if any(self.compare.safe_difference(report, expected) for report, (_, expected) in zip(reports, part)):
                return "failed"
        return None


class Tests:
    def __init__(self, root, build, out, oracle_count, python):
        self.environment = dict(os.environ, LOCKSTEP_BINARY=str(out / "bin" / "lockstep"), PYTHONDONTWRITEBYTECODE="1")
        self.out = out
        programs = sorted((build / "bin").glob("test_*"))
        self.targets = [program.name for program in programs] + ["lockstep_cli"]
        self.unit = [UnitTest(out / "bin" / program.name) for program in programs]
        self.oracle = Oracle(root, out, oracle_count, 1)
        files = [file for folder in PROCESS_FOLDERS for file in sorted((root / "tests" / folder).glob("test_*.py"))]
        self.process = [PythonTest(python, root, file) for file in files]
        self.left_out = []

    def measure(self):
        """Runs everything without a mutant: how long it takes, and which places each test reaches."""
        for test in [*self.unit, self.oracle, *self.process]:
            with tempfile.TemporaryDirectory() as folder:
                reached = Path(folder) / "reached"
                begin = time.monotonic()
                failed = test.run(0, self.environment, reached)
                test.seconds = time.monotonic() - begin
                if failed:
                    self.left_out.append(test)  # it would catch everything
                elif reached.exists():
                    test.reaches = {int(line) for line in reached.read_text().split()}

    def order(self, mutant):
        """The tests that reach its place, the most promising first."""
        folder = mutant.file.split("/")[1]
        unit = sorted(self.unit, key=lambda test: (test.name != f"test_{folder}", test.seconds))
        process = sorted(self.process, key=lambda test: test.seconds)
        return [test for test in [*unit, self.oracle, *process]
                if mutant.id in test.reaches and test not in self.left_out]

    def catch(self, mutant):
        """(test, how), or (None, "") if it survives, or (None, "never reached")."""
        tests = self.order(mutant)
        for test in tests:
            how = test.run(mutant.id, self.environment)
            if how:
                return test.name, how
        return None, "" if tests else "never reached"
