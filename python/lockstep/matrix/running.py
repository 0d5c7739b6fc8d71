# SPDX-License-Identifier: Apache-2.0
"""One combination: its environment, `lockstep extract`, and `lockstep check`."""

import contextlib
import datetime
import json
import os
import signal
import subprocess
import tempfile
import threading
import time

from lockstep import program
from lockstep.matrix import results
from lockstep.matrix.plan import text
from lockstep.matrix.releases import Unavailable, last_line

TO_END = 10  # seconds that an extraction gets for ending its ranks
_running = set()
_ending = threading.Event()


class Ended(Exception):
    """The run as a whole is being ended: what this one has left is no result."""


def end_all():
    """What still runs, in whatever thread, is told to end, and leaves no result."""
    _ending.set()
    for process in list(_running):
        process.send_signal(signal.SIGTERM)


def command(combination, python, limit, jobs, output):
    """What a user would type."""
    options = ["--ranks", str(combination.ranks), "--loss", combination.loss, "--steps", str(combination.steps)]
    options += ["--mesh", combination.mesh] if combination.mesh else []
    options += ["--data-axes", combination.data_axes] if combination.data_axes else []
    return ["extract", *options, "--python", python, "--limit", str(limit), "--jobs", str(jobs), "--no-cache", "--quiet", "-o", output, "--",
            combination.script, *combination.arguments]


def run(words, environment, folder, limit):
    """(exit status, standard output, standard error); the status is None where it took too long."""
    with subprocess.Popen([program(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                          env=environment, cwd=folder) as process:
        _running.add(process)
        try:
            out, err = process.communicate(timeout=limit)
            if _ending.is_set():
                raise Ended()
            return process.returncode, out, err
        except BaseException as ended:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=TO_END)
            process.kill()
            if not isinstance(ended, subprocess.TimeoutExpired):
                raise
            return None, "", ""
        finally:
            _running.discard(process)


def reason(err):
    """What the extraction says first, and what a rank has ended with or was at, which stands in the next line: behind that stand the places."""
    lines = [line.strip() for line in err.splitlines()]
    for place, line in enumerate(lines):
        said = line.partition("lockstep extract: ")[2]
        if said.endswith("; the last lines that it wrote are"):
            return said.replace("lines that it wrote are", "line that it wrote is ") + last_line(err)
        if said:
            return " ".join([said, *(lines[place + 1:place + 2] if said.endswith(("ended with", "it was at")) else [])])
    return last_line(err)


def refused(out):
    """The first of the errors in a report of `check`; None where it is none."""
    try:
        return json.loads(out)["errors"][0]["message"]
    except (ValueError, LookupError, TypeError):
        return None


def played(combination, releases, limit, jobs):
    """The outcome, and what its keys are for (results.outcome)."""
    try:
        folders = releases.folders(combination)
    except Unavailable as unavailable:
        return {"outcome": results.UNAVAILABLE, "why": [str(unavailable)]}
    environment = dict(os.environ)
    environment.update({name: text(value) for name, value in combination.variables})
    if folders:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*folders, environment.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:  # a script writes where it runs
        output = os.path.join(folder, "step.json")
        status, _, err = run(command(combination, releases.python, limit, jobs, output), environment, folder, 2 * limit + TO_END)
        if status != 0:
            why = "no end within %d s" % (2 * limit + TO_END) if status is None else reason(err)
            return {"outcome": results.ERROR, "why": [results.shortened(why, folders)], "again": status is None or "did not end within" in why}
        status, out, err = run(["check", output, "--format", "json"], environment, folder, limit)
        if status not in (0, 1):
            why = "check: " + ("no end within %d s" % limit if status is None else refused(out) or last_line(err))
            return {"outcome": results.ERROR, "why": [why], "again": status is None}
        with open(output, encoding="utf-8") as file:
            extraction = json.load(file)
    return results.outcome(json.loads(out), extraction, folders)


def result(combination, releases, limit, jobs=1):
    began = time.monotonic()
    found = played(combination, releases, limit, jobs)
    shown = command(combination, "PYTHON", limit, jobs, "step.json")
    head = {"experiment": combination.experiment, "package": combination.package, "version": combination.version, "over": [name for name, _ in combination.over], "layout": dict(combination.layout),
            "options": dict(combination.options), "loss": combination.loss, "ranks": combination.ranks, "key": combination.key()}
    return {**head, **found, "command": ["lockstep", *shown], "variables": dict(combination.variables),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "seconds": round(time.monotonic() - began, 1)}


class Kept:
    """Results in a folder: a file each, written beside and renamed, so that what is there is whole."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, combination):
        return os.path.join(self.folder, "%s-%s-%s-%s.json" % (combination.experiment, combination.package, combination.version, combination.key()))

    def read(self, combination):
        """None where there is none."""
        try:
            with open(self.path(combination), encoding="utf-8") as file:
                return json.load(file)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None

    def has(self, combination):
        """Whether it need not be run: one that took too long may have had a busy machine."""
        found = self.read(combination)
        return found is not None and not found.get("again")

    def write(self, combination, content):
        path = self.path(combination)
        os.makedirs(self.folder, exist_ok=True)
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.write("\n")
        os.replace(path + ".part", path)
