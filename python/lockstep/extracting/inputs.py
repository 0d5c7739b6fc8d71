# SPDX-License-Identifier: Apache-2.0
"""What files, folders and variables are that a rank has looked at (watching.py), and whether they still are."""

import hashlib
import importlib.machinery
import os
import stat

from lockstep.extracting.watching import NAME_OF_THE_MACHINE, OF_LINK, detail_of, is_of_the_caller, kind_of

MOST_READ = 1 << 24  # bytes; a larger file is told by its size and time, as shared objects are


class Changed(Exception):
    """Something is no more what the rank has seen, or nobody can say; a reason."""


def told_of(path, make):
    """What is there; of a link itself where the path is said to be one's."""
    try:
        return make(os.lstat(path[len(OF_LINK):]) if path.startswith(OF_LINK) else os.stat(path))
    except OSError:
        return make(None)


class Inputs:
    """Looks at each path once. `variables`: of the environment in which lockstep was started; `begin`: when, on the clock of files."""

    looked_for = ("read", "mapped", "listed", "scanned")

    def __init__(self, variables, begin):
        self.variables, self.begin = variables, begin
        self.make = {"read": self.content, "mapped": self.size_and_time, "listed": self.names, "scanned": self.entries, "folders": self.importable,
                     "there": self.kind, "details": self.detail, "accessible": self.accessible, "links": os.readlink}
        self.known = {kind: {} for kind in self.make}
        self.times = {}

    def now(self, kind, path):
        known = self.known[kind]
        if path not in known:
            try:
                known[path] = self.make[kind](path)
            except OSError:
                known[path] = None
        return known[path]

    def content(self, path):
        if os.path.isdir(path):
            return "folder"
        if path.endswith(".so") or ".so." in os.path.basename(path) or os.path.getsize(path) > MOST_READ:
            return self.size_and_time(path)
        if not stat.S_ISREG(os.stat(path).st_mode):
            return "no file"
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:32]

    @staticmethod
    def size_and_time(path):
        found = os.stat(path)
        return "%d bytes of %d" % (found.st_size, found.st_mtime_ns)

    @staticmethod
    def kind(path):
        return told_of(path, kind_of)

    @staticmethod
    def detail(path):
        return told_of(path, detail_of)

    @staticmethod
    def accessible(asked):
        mode, path = asked.split(" ", 1)
        return os.access(path, int(mode))

    @staticmethod
    def entries(path):
        """Their names, and which of them are folders or links."""
        with os.scandir(path) as entries:
            kinds = sorted("%s\0%d%d" % (entry.name, entry.is_dir(), entry.is_symlink()) for entry in entries if entry.name != "__pycache__")
        return hashlib.sha256("\0".join(kinds).encode("utf-8", "replace")).hexdigest()[:32]

    @staticmethod
    def names(path):
        return hashlib.sha256("\0".join(sorted(name for name in os.listdir(path) if name != "__pycache__")).encode("utf-8", "replace")).hexdigest()[:32]

    @staticmethod
    def importable(path):
        """What an import may find in it: another module of the same name, in a folder that comes before, is taken."""
        suffixes, names = tuple(importlib.machinery.all_suffixes()), []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.endswith(suffixes) or (entry.is_dir() and os.path.exists(os.path.join(entry.path, "__init__.py"))):
                    names.append(entry.name)
        return hashlib.sha256("\0".join(sorted(names)).encode("utf-8", "replace")).hexdigest()[:32]

    def has_changed(self, path):
        """Since lockstep was started: what was read of it may be something else than what is there. A file that is no more counts as well."""
        try:
            found = os.stat(path)
        except OSError:
            return path in self.times
        self.times[path] = found.st_ctime_ns
        return max(found.st_mtime_ns, found.st_ctime_ns) >= self.begin * 1e9

    def of(self, watched):
        """Of what a rank tells (Watch.end); raises Changed where it cannot be held against what will be there."""
        if watched["why"]:
            raise Changed(watched["why"])
        own = set(watched["written"])
        own.update(path for path in watched["read"] if "/__pycache__/" in path)
        for kind in self.looked_for:
            for path in watched[kind]:
                if path not in own and not (kind == "read" and path in watched["absent"]) and self.has_changed(path):
                    raise Changed("%s was changed meanwhile" % path)
        found = {kind: {path: self.now(kind, path) for path in watched[kind] if path not in own} for kind in (*self.looked_for, "folders")}
        for path, content in found["read"].items():
            if path in watched["absent"]:
                found["read"][path] = None
            elif content is None:
                raise Changed("%s was removed meanwhile" % path)
        # These are what the rank was told when it asked, whatever is there now.
        found.update((kind, watched[kind]) for kind in ("there", "details", "accessible", "links"))
        # What it has written and left there, as others may read it.
        for path in watched["written"]:
            self.known["read"].pop(path, None)
            content = self.now("read", path)
            if content is not None:
                found["read"][path] = content
        return dict(found, variables=watched["variables"])

    def variable(self, name):
        return sorted(filter(is_of_the_caller, self.variables)) if name == "" else os.uname().nodename if name == NAME_OF_THE_MACHINE else self.variables.get(name)

    def hold(self, found):
        return all(self.now(kind, path) == value for kind in self.make for path, value in found[kind].items()) \
            and all(self.variable(name) == value for name, value in found["variables"].items())
