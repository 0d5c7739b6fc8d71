# SPDX-License-Identifier: Apache-2.0
"""What stands around a release: the Python with all its packages, and lockstep. A result is of these as well."""

import hashlib
import json
import pathlib
import re
import subprocess

from lockstep import program
from lockstep.matrix.plan import INSTALLED, PlanError, digest

# In the Python that runs scripts. What lies before its own packages (PYTHONPATH) comes first there, too.
QUESTION = """
import importlib.metadata, json, sys
found = {}
for one in importlib.metadata.distributions():
    found.setdefault(str(one.metadata["Name"]), one.version)
print(json.dumps([sys.version, sorted(found.items())]))
"""


def plain(name):
    """A package's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lockstep():
    """Of the program and of what extracts: another one may say something else."""
    folder = pathlib.Path(__file__).resolve().parents[1]
    return [digest(path) for path in (program(), *sorted(folder.rglob("*.py")))]


class Had:
    """Asked once."""

    def __init__(self, python):
        try:
            done = subprocess.run([python, "-c", QUESTION], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise PlanError("%s: %s" % (python, error.strerror)) from error
        if done.returncode:
            raise PlanError("%s does not say which packages it has: %s" % (python, (done.stderr.strip().splitlines() or ["it said nothing"])[-1]))
        self.python, packages = json.loads(done.stdout.splitlines()[-1])
        self.packages = {plain(name): version for name, version in packages}
        self.digest = hashlib.sha256(json.dumps([self.python, packages, lockstep()]).encode()).hexdigest()[:16]

    def version(self, package):
        """The one that "installed" stands for; the word itself where the package is none that says its version."""
        return self.packages.get(plain(package), INSTALLED)
