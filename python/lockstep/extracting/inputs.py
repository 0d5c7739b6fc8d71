# SPDX-License-Identifier: Apache-2.0
"""What files, folders and variables are that a rank has looked at (watching.py), and whether they still are."""

import hashlib
import importlib.machinery
import os
import stat

MOST_READ = 1 << 24  # bytes; a larger file is told by its size and time, as shared objects are


class Changed(Exception):
    """Something is no more what the rank has seen, or nobody can say; a reason."""


class Inputs:
    """Looks at each path once. `variables`: of the environment in which lockstep was started; `begin`: when, on the clock of files."""

    def __init__(self, variables, begin):
        self.variables, self.begin = variables, begin
        self.known = {"read": {}, "mapped": {}, "listed": {}, "folders": {}}
        self.times = {}
        self.make = {"read": self.content, "mapped": self.size_and_time, "listed": self.names, "folders": self.importable}

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
        for kind in ("read", "mapped", "listed"):
            for path in watched[kind]:
                if path not in own and self.has_changed(path):
                    raise Changed("%s was changed meanwhile" % path)
        found = {kind: {path: self.now(kind, path) for path in watched[kind] if path not in own} for kind in self.make}
        # What it has written and left there, as others may read it.
        for path in watched["written"]:
            self.known["read"].pop(path, None)
            content = self.now("read", path)
            if content is not None:
                found["read"][path] = content
        return dict(found, there={path: there for path, there in watched["there"].items() if path not in own}, variables=watched["variables"])

    def hold(self, found):
        return all(self.now(kind, path) == value for kind in self.make for path, value in found[kind].items()) \
            and all(os.path.exists(path) == there for path, there in found["there"].items()) \
            and all(self.variables.get(name) == value for name, value in found["variables"].items())
