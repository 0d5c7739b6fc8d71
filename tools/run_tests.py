#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the test programs and the Python tests of a build (tools/test calls this) and counts their test cases.

Every Catch2 program and every tests/**/test_*.py is one process; as many run at once as there are processors, and beside them one of
those that mostly wait. What a failed test has to say is printed in full, of the others one line with their numbers. Before the last line,
which is the sum, stand those that took longest.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# More where more random cases are asked for (tests/cases.h).
TIME_LIMIT_S = 900 * max(1, int(os.environ.get("LOCKSTEP_TEST_ROUNDS", "1")) // 4)
# These test the sources, the data and the tools, not the program, or replay the corpus or models at full size, start the
# program thousands of times on small files, need to limit its memory, or run in several processes of MPI, which sanitizers
# do not bear: once, in the release build, is enough. Folders and files below tests/.
RELEASE_ONLY = {
    "attack", "contract", "diagnoses", "engines", "frameworks", "launcher", "mutation", "oracle", "package", "proof", "python", "repository",
    "scenarios", "strangers", "sweep", "tools", "device/test_mpi_transport.py",
    *(f"cli/test_{name}.py" for name in ("budgets", "check_large", "commands", "completion", "diff", "docs", "draw_idea", "equations", "extraction", "files", "formats", "hostile", "import", "import_script", "let_chains", "list",
                                         "mpi", "mutate", "names", "never_right_where_attacked", "never_right_where_chosen", "never_right_where_doubted",
                                         "never_right_where_empty", "never_right_where_far", "never_right_where_refused", "never_right_where_uncountable", "never_right_where_unnamed", "never_right_where_wrong", "open_axes", "page", "page_media", "prove", "refused_sizes", "repair", "rules",
                                         "schema", "set", "strangers", "verify", "watch", "widths")),
}
# Those that take longest, or folders of them, begin first, so that no processor is left to the last of them alone.
LONGEST = {
    "mutation", "oracle", "proof", "python", "scenarios", "sweep", "frameworks/test_megatron_replayed.py", "tools/test_test_gpu.py",
    *(f"cli/test_{name}.py" for name in ("budgets", "docs", "hostile", "page", "page_media", "widths")), "tools/test_bundle.py",
}
# Those that mostly wait for a process that sleeps, is started or ends: one of them at a time runs beside the others.
WAITING = {"engines", "cli/test_nccl.py", "cli/test_watch.py", "python/test_pytest_plugin.py", "tools/test_measure_build.py"}
SLOWEST_SHOWN = 10


@dataclass
class Result:
    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0
    cpu_seconds: float = 0  # of its processes that had ended, on all processors: what does not depend on what else runs
    text: list = field(default_factory=list)


def run_process(command, result, environment=None):
    """Output and exit status; a process that hangs is a failed test."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=ROOT)
        limit = threading.Timer(TIME_LIMIT_S, process.kill)
        limit.start()
        _, status, usage = os.wait4(process.pid, 0)
        is_late = not limit.is_alive()
        limit.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        result.cpu_seconds = usage.ru_utime + usage.ru_stime
        output.seek(0)
        text = output.read().decode(errors="replace")
    if is_late:
        result.failed += 1
        result.text.append(f"{result.name} was ended after {TIME_LIMIT_S} s")
        return text, None
    return text, process.returncode


def describe(case):
    """What a failed Catch2 test case reports, as lines that an editor can jump to."""
    lines = [f"FAILED: {case.get('name')}"]
    for item in case.iter():
        place = f"{item.get('filename')}:{item.get('line')}"
        if item.tag == "Expression" and item.get("success") != "true":
            original, expanded = (" ".join((item.findtext(tag) or "").split()) for tag in ("Original", "Expanded"))
            lines += [f"  {place}: {item.get('type')}( {original} )", f"    with expansion: {expanded}"]
        if item.tag in ("Exception", "FatalErrorCondition", "Failure") and (item.text or "").strip():
            where = f"{place}: " if item.get("filename") else "  "
            lines.append(f"  {where}{item.tag.lower()}: {item.text.strip()}")
        if item.tag == "Info" and (item.text or "").strip():
            lines.append(f"    info: {item.text.strip()}")
    return lines


def run_catch(program, only, temporary):
    """The XML reporter's elements used here are the same in Catch2 2 and 3."""
    result = Result(program.name)
    report = temporary / f"{program.name}.xml"
    command = [str(program), "--reporter", "xml", "--out", str(report)]
    if only and only not in program.name:
        command.append(f'"*{only}*"')
    output, status = run_process(command, result)
    running = program.name
    try:
        for event, case in ElementTree.iterparse(report, events=("start", "end")):
            if case.tag != "TestCase":
                continue
            if event == "start":
                running = case.get("name")
                continue
            running = None
            overall = case.find("OverallResult")
            if overall is None or overall.get("success") != "true":
                result.failed += 1
                result.text += describe(case)
            elif int(overall.get("skips", "0")) > 0:
                result.skipped += 1
                result.text.append(f"skipped: {case.get('name')}")
            else:
                result.passed += 1
    except (ElementTree.ParseError, FileNotFoundError):
        pass  # the program died: `running` is the test case in which it did
    if status is not None and (running or (status != 0 and not result.failed)) and not (only and status == 0):
        result.failed += 1
        result.text.append(f"FAILED: {running or program.name}: {program.name} ended with status {status}")
    if result.failed:
        result.text.append(output.rstrip())
    return result


def run_pytest(file, only, temporary, environment):
    result = Result(str(file.relative_to(ROOT)))
    report = temporary / (result.name.replace("/", ".") + ".xml")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "--tb=short", "-p", "no:cacheprovider",
               f"--junitxml={report}", str(file)]
    if only and only not in result.name:
        command += ["-k", only]
    output, status = run_process(command, result, environment)
    try:
        for suite in ElementTree.parse(report).iter("testsuite"):
            failed = int(suite.get("failures")) + int(suite.get("errors"))
            skipped = int(suite.get("skipped"))
            result.failed += failed
            result.skipped += skipped
            result.passed += max(0, int(suite.get("tests")) - failed - skipped)
    except (ElementTree.ParseError, FileNotFoundError):
        pass
    nothing_selected = 5
    if status not in (0, nothing_selected) and not result.failed:
        result.failed += 1
    if result.failed or result.skipped:
        result.text.append(output.rstrip())
    else:
        # What a test wants to be seen: how much it has tried.
        result.text += [line for line in output.splitlines() if line.startswith("counted: ")]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, help="the build folder")
    parser.add_argument("--preset", default="release", help="which preset it was built with")
    parser.add_argument("--only", help="run only what contains this")
    options = parser.parse_args()

    options.build = options.build.resolve()  # tests have working directories of their own
    program = options.build / "bin" / "lockstep"
    environment = dict(os.environ, LOCKSTEP_BINARY=str(program), PYTHONDONTWRITEBYTECODE="1")
    # What pytest finds, without what belongs to the person who runs it.
    environment.pop("PYTEST_ADDOPTS", None)
    # What takes long runs nightly, or where its file is asked for.
    if options.only and any(options.only in path.name for path in (ROOT / "tests").glob("**/test_*.py")):
        environment["LOCKSTEP_NIGHTLY"] = "1"
    # It compiles the program once more: nightly, or where it is asked for.
    if options.only and options.only in "package/test_wheel.py":
        environment["LOCKSTEP_TEST_WHEEL"] = "1"
    programs = sorted(path for path in (options.build / "bin").glob("test_*") if os.access(path, os.X_OK))
    programs = [path for path in programs if any((ROOT / "tests" / path.name[len("test_"):]).glob("*.cpp"))]
    files = sorted((ROOT / "tests").glob("**/test_*.py"))

    def is_in(names, file):
        below = file.relative_to(ROOT / "tests")
        return not names.isdisjoint({below.parts[0], below.as_posix()})

    if options.preset != "release":
        files = [file for file in files if not is_in(RELEASE_ONLY, file)]
    waiting = [file for file in files if is_in(WAITING, file)]
    longest = [file for file in files if is_in(LONGEST, file) and file not in waiting]

    def timed(run, *arguments):
        begin = time.monotonic()
        result = run(*arguments)
        result.seconds = time.monotonic() - begin
        return result

    total, took = Result("all"), []
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(os.cpu_count()) as pool, ThreadPoolExecutor(1) as beside:
        def pytests(files, pool=pool):
            return [pool.submit(timed, run_pytest, path, options.only, Path(temporary), environment) for path in files]

        runs = pytests(waiting, beside) + pytests(longest)
        runs += [pool.submit(timed, run_catch, path, options.only, Path(temporary)) for path in programs]
        runs += pytests([file for file in files if file not in longest + waiting])
        for run in runs:
            result = run.result()
            if options.only and not result.passed + result.failed + result.skipped:
                continue
            print(f"{result.name}: {result.passed} passed, {result.failed} failed, {result.skipped} skipped"
                  f" ({result.seconds:.1f} s, {result.cpu_seconds:.1f} of CPU)", flush=True)
            if result.text:
                print("\n".join(line for line in result.text if line), flush=True)
            total.passed += result.passed
            total.failed += result.failed
            total.skipped += result.skipped
            took.append((result.seconds, result.name))
    if len(took) > SLOWEST_SHOWN:
        print("the slowest: " + ", ".join(f"{name} {seconds:.0f} s" for seconds, name in sorted(took, reverse=True)[:SLOWEST_SHOWN]), flush=True)
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    if not total.passed + total.failed + total.skipped:
        which = f" that matches '{options.only}'" if options.only else ""
        print(f"lockstep: no test was found{which}", file=sys.stderr)
        return 4
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
