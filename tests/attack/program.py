# SPDX-License-Identifier: Apache-2.0
"""Runs lockstep on many files at once, within the limits that it promises: 10 s and 1 GB for a small file."""

import json
import os
import re
import resource
import signal
import subprocess

MEMORY = 2 << 30  # of addresses, of which the program and its libraries take some
SECONDS = 10
LINE = re.compile(r"^(match|mismatch|deadlock|invalid_collective|race|error) {2,}(\S+\.json)(?: {2}(.*))?$", re.MULTILINE)
LIMITS = re.compile(r"would take more than|this scenario needs about|does not follow it|elements together, more than|it is too much|is not decided")


def run(folder, arguments, seconds):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))  # of the processor's time: the machine may be busy

    return subprocess.run([os.path.abspath(os.environ["LOCKSTEP_BINARY"]), *arguments], cwd=folder, capture_output=True, text=True,
                          check=False, preexec_fn=limit)  # fmt: skip


def batched(folder, arguments, files, read, broken):
    """{file: what `read` makes of the answers}. Files that end the program go to `broken`, with what it said."""
    if not files:
        return {}
    done = run(folder, [*arguments, *files], SECONDS + len(files) // 2)
    if done.returncode in (0, 1, 2) or (done.returncode == 3 and LIMITS.search(done.stdout + done.stderr)):
        return read(done.stdout, done.stderr)
    if len(files) == 1:
        too_long = done.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
        broken[files[0]] = f"{arguments[0]}: " + (f"takes more than {SECONDS} s" if too_long else f"status {done.returncode}: {done.stderr[-300:]}")
        return {}
    half = len(files) // 2
    return {**batched(folder, arguments, files[:half], read, broken), **batched(folder, arguments, files[half:], read, broken)}


def read_proofs(text, _):
    answers = json.loads(text) if text.strip() else []
    return {answer["file"]: answer for answer in (answers if isinstance(answers, list) else [answers])}


def prove(folder, files, broken, opened=""):
    """Answers of `lockstep prove -f json`, by file; files that are no valid scenario have none. `opened`: of --open."""
    return batched(folder, ["prove", "-f", "json", *(["--open", opened] if opened else [])], files, read_proofs, broken)


def read_verdicts(text, errors):
    said = {}
    for file, message in re.findall(r"^(\S+?\.jsonc?):\d+:\d+: error: (.*)$", text + "\n" + errors, re.MULTILINE):
        said.setdefault(file, message)
    found = {}
    for verdict, file, scenario in LINE.findall(text):
        if verdict == "error":
            # A file that is refused has no scenario; one that fails on its way has.
            message = said.get(file, text + errors if len(text) < 4000 else "")
            verdict = "refused" if not scenario else "limit" if LIMITS.search(message) else "error"
        found[file] = verdict
    return found


def check(folder, files, engine, broken):
    """Verdicts by file: those of docs/scenario-format.md, "refused" where the file itself is, "limit" beyond a budget."""
    engines = ["--engine", engine] if engine else []
    return batched(folder, ["check", "-q", "-j", "1", "--no-blame", *engines], files, read_verdicts, broken)
