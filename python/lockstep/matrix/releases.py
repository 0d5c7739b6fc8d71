# SPDX-License-Identifier: Apache-2.0
"""Releases of a package: which there are, and each in a folder of its own. Everything goes through the Python's own pip, so that it is had from where this
is told to look (pip.conf, PIP_INDEX_URL, PIP_FIND_LINKS)."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from lockstep.matrix.plan import INSTALLED, WORD

# What a package wants to hear while it is built: no compiled parts, which need CUDA.
WHILE_BUILDING = {"deepspeed": {"DS_BUILD_OPS": "0"}}
# In this order, until one succeeds: what is built already; with what the Python has, which builds know torch that import it; in an environment of its own.
WAYS = (["--only-binary", ":all:"], ["--no-build-isolation"], [])


class Unavailable(Exception):
    """Why a release cannot be had, as a sentence."""


def last_line(text):
    """What a program says at its end; pip's own hints and warnings say nothing."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not re.match(r"(\[?notice\b|WARNING: |note: |hint: )", line)]
    return re.sub(r"^ERROR: ", "", lines[-1])[:300] if lines else "it said nothing"


def pip(python, arguments, package=""):
    environment = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1", **WHILE_BUILDING.get(package, {}))
    # What was installed for a release is nothing that pip should see; pip itself is the Python's.
    environment.pop("PYTHONPATH", None)
    try:
        return subprocess.run([python, "-m", "pip", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
                              env=environment)
    except OSError as error:
        raise Unavailable("%s: %s" % (python, error.strerror)) from error


def listed(package, python):
    """All versions that pip can have, the oldest first."""
    done = pip(python, ["index", "versions", package])
    found = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if done.returncode or not found:
        raise Unavailable("pip knows no versions of %s: %s" % (package, last_line(done.stderr)))
    # pip says them in their order, the newest first.
    return [one.strip() for one in found[1].split(",")][::-1]


def between(package, first, last, python):
    """Those from the first to the last one, both with it."""
    versions = listed(package, python)
    for end in (first, last):
        if end not in versions:
            raise Unavailable("there is no %s %s: pip knows %s to %s" % (package, end, versions[0], versions[-1]))
    if versions.index(first) > versions.index(last):
        raise Unavailable("%s %s is newer than %s: the older one goes first" % (package, first, last))
    return versions[versions.index(first):versions.index(last) + 1]


class Releases:
    """In `folder`, each in one of its own, with the name of the Python. What could not be installed is tried once in a run."""

    def __init__(self, folder, python=sys.executable):
        self.folder, self.python, self.failed = os.path.abspath(folder), python, {}
        self.tag = "py%d.%d" % sys.version_info[:2]

    def path(self, package, version, together):
        if version == INSTALLED and not together:
            return None
        more = "-" + hashlib.sha256("\n".join(together).encode()).hexdigest()[:8] if together else ""
        return os.path.join(self.folder, "%s-%s-%s%s" % (package, version, self.tag, more))

    def get(self, package, version, together=()):
        """The folder of the release, None for what the Python has; raises Unavailable."""
        path = self.path(package, version, together)
        if path is None or os.path.isdir(path):
            return path
        if path not in self.failed:
            self.failed[path] = self.install(path, package, ([] if version == INSTALLED else ["%s==%s" % (package, version)]) + list(together))
        if self.failed[path]:
            raise Unavailable(self.failed[path])
        return path

    def layer(self, wanted):
        """The folder of what several releases stand before; raises Unavailable. One release by itself is the same wherever it stands."""
        package, _, version = wanted[0].partition("==")
        if len(wanted) == 1 and re.fullmatch(WORD, package) and re.fullmatch(WORD, version):
            return self.get(package, version)
        path = os.path.join(self.folder, "layer-%s-%s" % (hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:8], self.tag))
        if not os.path.isdir(path):
            if path not in self.failed:
                self.failed[path] = self.install(path, "", list(wanted))
            if self.failed[path]:
                raise Unavailable(self.failed[path])
        return path

    def folders(self, combination):
        """Of the release and of what it stands before, as they are to be looked through; raises Unavailable."""
        release = self.get(combination.package, combination.wanted, combination.together)
        return [*filter(None, [release]), *(self.layer(wanted) for _, wanted in combination.over)]

    def install(self, path, package, wanted):
        """None, or why it cannot be installed."""
        os.makedirs(self.folder, exist_ok=True)
        part = tempfile.mkdtemp(prefix="part-", dir=self.folder)
        try:
            for way in WAYS:
                done = pip(self.python, ["install", "--quiet", "--no-deps", "--no-compile", "--target", part, *way, *wanted], package)
                if done.returncode == 0:
                    if not os.path.isdir(path):  # or another run was faster
                        os.rename(part, path)
                    return None
            return last_line(done.stderr)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def clean(self):
        """Parts of runs that were ended while they installed."""
        if os.path.isdir(self.folder):
            for name in os.listdir(self.folder):
                path = os.path.join(self.folder, name)
                if name.startswith("part-") and os.stat(path).st_mtime < time.time() - 86400:
                    shutil.rmtree(path, ignore_errors=True)
