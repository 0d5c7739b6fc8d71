# SPDX-License-Identifier: Apache-2.0
"""Ranks' results of earlier extractions (docs/extract.md). An entry is what a rank has left, and all on which that depends: its key, the files and folders
that it has looked at (inputs.py), and what it has looked for of what others have left (answers.py). It is taken where all of this is the same.

An entry is a compressed file, with a sum of what is in it. One that is broken, of another format or removed meanwhile is none.
"""

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
import zlib

from lockstep.extracting.environment import environment
from lockstep.extracting.inputs import Changed, Inputs
from lockstep.extracting.watching import is_of_the_caller

FORMAT = 2
MOST_BYTES = 1 << 30
MOST_TRIED = 16  # entries of one key
ABANDONED = 3600  # seconds, after which nobody is writing a file any more
TICK = 0.01  # seconds by which the clock of files may be behind
OF_A_PROCESSOR = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU implementer", "CPU part", "CPU variant")
SETTINGS = ("world", "local_world", "script", "module", "arguments", "steps", "mesh", "loss", "data_axes")


def machine():
    """What decides of a processor's numbers, and what scripts see of a machine: folders of users are often shared by several."""
    system, about = os.uname(), {}
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in OF_A_PROCESSOR:
                about.setdefault(name.strip(), set()).add(" ".join(sorted(value.split())))
    return [system.sysname, system.release, system.machine, os.cpu_count(), len(os.sched_getaffinity(0)), {name: sorted(own) for name, own in sorted(about.items())}]


class Cache:
    """In `folder`, which is made where the first entry is written."""

    def __init__(self, folder, settings):
        self.folder = os.path.abspath(folder)
        of_ranks = environment(0, 1, 1)
        variables = {name: value for name, value in os.environ.items() if name not in of_ranks}
        self.inputs = Inputs(variables, time.time() - TICK)
        try:
            where = os.getcwd()
        except OSError:
            where = None
        self.base = [FORMAT, machine(), {name: settings.get(name) for name in SETTINGS}, sys.executable, sys.version, list(sys.flags), where,
                     {name: value for name, value in variables.items() if not is_of_the_caller(name)}]
        self.checked = {}  # by the name of a file of inputs, whether they hold
        self.whole = set()  # of those that ranks have now, which are there
        self.why = {}  # by rank: why it was not kept
        self.wrote = False

    def key(self, rank, draw):
        return hashlib.sha256(json.dumps([self.base, rank, draw]).encode()).hexdigest()[:32]

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        """None where there is no such entry."""
        try:
            with open(self.path(name), "rb") as file:
                found = json.loads(zlib.decompress(file.read()))
        except (OSError, ValueError, zlib.error):
            return None
        return found if isinstance(found, dict) and found.get("format") == FORMAT else None

    def write(self, name, content):
        content = zlib.compress(json.dumps(dict(content, format=FORMAT)).encode(), 1)
        os.makedirs(self.folder, exist_ok=True)
        descriptor, part = tempfile.mkstemp(prefix="part-", dir=self.folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(part, self.path(name))
        except BaseException:
            os.remove(part)
            raise

    def used(self, name):
        with contextlib.suppress(OSError):
            os.utime(self.path(name))

    def hold(self, name):
        if name not in self.checked:
            inputs = self.read(name)
            self.checked[name] = inputs is not None and self.inputs.hold(inputs)
            if self.checked[name]:
                self.used(name)
        return self.checked[name]

    def find(self, rank, draw, known):
        """What this rank has left when it was played with what is `known` (answers.Known), or None."""
        begin = "rank-%s-" % self.key(rank, draw)
        with contextlib.suppress(OSError, KeyError, TypeError, AttributeError):
            names = [name for name in os.listdir(self.folder) if name.startswith(begin)]
            for name in sorted(names, key=self.age)[:MOST_TRIED]:
                entry = self.read(name)
                if entry is not None and self.hold(entry["inputs"]) and known.says(entry["asked"]):
                    self.used(name)
                    return entry["found"]
        return None

    def age(self, name):
        try:
            return -os.stat(self.path(name)).st_mtime
        except OSError:
            return 0

    def keep(self, rank, draw, found, asked, watched):
        """What a rank has left, where all on which it depends can be looked at again."""
        try:
            inputs = self.inputs.of(watched)
            name = "inputs-" + hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]
            if name not in self.whole:
                if self.read(name) is None:  # or it is broken
                    self.write(name, inputs)
                    self.checked.pop(name, None)
                self.whole.add(name)
            entry = {"inputs": name, "asked": asked, "found": found}
            self.write("rank-%s-%s" % (self.key(rank, draw), hashlib.sha256(json.dumps([name, asked]).encode()).hexdigest()[:16]), entry)
            self.wrote = True
        except Changed as changed:
            self.why.setdefault(rank, str(changed))
        except OSError as error:
            self.why.setdefault(rank, "%s: %s" % (self.folder, error.strerror))

    def close(self):
        """Removes what was used longest ago, where all are too large."""
        if not self.wrote:
            return
        entries = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.folder):
                with contextlib.suppress(OSError):
                    found = entry.stat()
                    if entry.name.startswith("part-") and found.st_mtime < time.time() - ABANDONED:
                        os.remove(entry.path)
                    elif entry.name.startswith(("rank-", "inputs-")):
                        entries.append((found.st_mtime, found.st_size, entry.path))
        size = sum(own for _, own, _ in entries)
        for _, own, path in sorted(entries):
            if size <= MOST_BYTES:
                break
            with contextlib.suppress(OSError):
                os.remove(path)
                size -= own
