# SPDX-License-Identifier: Apache-2.0
"""What a program needs of its project: a revision of a public repository, fetched once, unpacked for each run."""

import os
import subprocess


WHAT = ("archive", "fetch", "init", "cat-file")


class Missing(Exception):
    """A revision that cannot be had; the message is a sentence."""


def git(*arguments, **more):
    done = subprocess.run(["git", *arguments], capture_output=True, check=False, **more)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Missing("git could not %s: %s" % (next(one for one in arguments if one in WHAT), said[-1] if said else "status %d" % done.returncode))
    return done.stdout


class Checkouts:
    """Repositories by the names of their projects.

    source: where they are, with {owner} and {name} in it: an address, or folders with git directories, which are read where they are.
    kept: a folder for what is fetched.
    """

    def __init__(self, source, kept):
        self.source, self.kept = source, kept

    def repository(self, project, revision):
        """A git directory that has this revision."""
        owner, name = project.split("/")
        place = self.source.format(owner=owner, name=name)
        if os.path.isdir(place):
            return place
        folder = os.path.join(self.kept, owner + "+" + name)
        if not os.path.isdir(folder):
            git("init", "--quiet", "--bare", folder)
        try:
            git("--git-dir", folder, "cat-file", "-e", revision + "^{commit}")
        except Missing:
            git("--git-dir", folder, "fetch", "--quiet", "--depth", "1", place, revision)
        return folder

    def unpacked(self, program, folder):
        """Writes the program's part of its project into the folder."""
        repository = self.repository(program.project, program.revision)
        packed = git("--git-dir", repository, "-c", "safe.directory=*", "archive", program.revision, *program.needs)
        subprocess.run(["tar", "-x", "-C", os.fspath(folder)], input=packed, check=True)
