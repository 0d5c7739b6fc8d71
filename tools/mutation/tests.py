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

MEMORY_LIMIT = 6 << 30
# These run the program and ask what it computes; others ask about options, documents and the repository.
PROCESS_FOLDERS = ("contract", "oracle", "scenarios")
# Seconds. A program that hangs is ended by the processor time it takes, which a busy machine does not change; one that
# waits without taking any, by the time on the clock.
LEAST_PROCESSOR_LIMIT = 10
CLOCK_LIMIT = 240


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def limited(command, environment, processor_limit, folder=None):
    """How the process ended, or None where it took too long; the limit holds for each process that it starts as well."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
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
    """One test program or file. `run` says whether it found nothing wrong."""

    def __init__(self, name, folder=None):
        self.name = name
        self.folder = folder  # to run in
        self.seconds = 0.0  # of processor time
        self.reaches = set()

    def command(self):
        raise NotImplementedError

    def run(self, id, environment, reached=None):
        """None: passed; else how it was caught."""
        environment = dict(environment, LOCKSTEP_MUTANT=str(id))
        if reached:
            environment["LOCKSTEP_MUTANT_REACHED"] = str(reached)
        done = limited(self.command(), environment, self.processor_limit(reached), self.folder)
        if not done:
            return "took too long"
        if done.returncode == 0:
            return None
        return f"signal {-done.returncode}" if done.returncode < 0 else "failed"

    def processor_limit(self, measuring):
        return CLOCK_LIMIT if measuring else max(LEAST_PROCESSOR_LIMIT, round(4 * self.seconds))


class UnitTest(Test):
    def __init__(self, program, build):
        super().__init__(program.name, build)  # names of sources in it may be relative to where they were compiled
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
    def __init__(self, root, build, out, oracle_count, python):
        self.environment = dict(os.environ, LOCKSTEP_BINARY=str(out / "bin" / "lockstep"), PYTHONDONTWRITEBYTECODE="1")
        self.out = out
        programs = sorted((build / "bin").glob("test_*"))
        self.targets = [program.name for program in programs] + ["lockstep_cli"]
        self.unit = [UnitTest(out / "bin" / program.name, build) for program in programs]
        self.oracle = Oracle(root, out, oracle_count, 1)
        files = [file for folder in PROCESS_FOLDERS for file in sorted((root / "tests" / folder).glob("test_*.py"))]
        self.process = [PythonTest(python, root, file) for file in files]
        self.left_out = []

    def measure(self):
        """Runs everything without a mutant: how long it takes, and which places each test reaches. False where a unit
        test fails, since then nothing can be learned."""
        for test in [*self.unit, self.oracle, *self.process]:
            if test is self.oracle and self.left_out:
                return False
            with tempfile.TemporaryDirectory() as folder:
                reached = Path(folder) / "reached"
                before = processor_seconds()
                failed = test.run(0, self.environment, reached)
                test.seconds = processor_seconds() - before
                if failed:
                    self.left_out.append(test)  # it would catch everything
                elif reached.exists():
                    test.reaches = {int(line) for line in reached.read_text().split()}
        return True

    def order(self, mutant):
        """The tests that reach its place: its own folder's unit tests, then the cheapest."""
        own = f"test_{mutant.file.split('/')[1]}"
        tests = [test for test in [*self.unit, self.oracle, *self.process]
                 if mutant.id in test.reaches and test not in self.left_out]
        return sorted(tests, key=lambda test: (test.name != own, test.seconds))

    def catch(self, mutant):
        """(test, how), or (None, "") if it survives, or (None, "never reached")."""
        tests = self.order(mutant)
        for test in tests:
            how = test.run(mutant.id, self.environment)
            if how:
                return test.name, how
        return None, "" if tests else "never reached"
