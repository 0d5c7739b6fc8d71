# SPDX-License-Identifier: Apache-2.0
"""The list: a file of programs/ for each program, in TOML.

project, revision: of a repository. folder: where in it the script is started, the whole where it is missing; needs: the folders and files that are unpacked, [folder].
script: a file there; own: a file of programs/ in its place, which uses the project's code. arguments. ranks. limit: seconds for one run.
missing: modules that the script imports and does not need here. before: Python that each rank runs first, such as data in place of what would be downloaded.
edits: file (the script where it is missing), old, new: what is changed for a run on CPUs and for the capture; old occurs in the file, and each of it is replaced.
words: what is changed, for the table. verdict: match or undecided, and says: words of it in the latter case.
mistakes: name, words, edits as above, upon the edited files; verdict; formula of a result that is not right; says: words of a finding or a gap;
place: words of the step at fault or its repair, or FILE.py: of the line that verify names. instead: the same of a step that verify names though the mistake is in
another, such as DDP's sum in the place of its average times two. Neither, where no step can be named.
"""

import os
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "programs")


class Wrong(Exception):
    """An entry of the list that cannot be carried out; the message is a sentence."""


class Entry:
    """A table of the list, with its keys as attributes."""

    keys = {}  # the default of each, or the type of what must be there

    def __init__(self, table, where):
        self.where = where
        for key, default in self.keys.items():
            if isinstance(default, type) and key not in table:
                raise Wrong("%s: there is no key %s" % (where, key))
            setattr(self, key, table.get(key, default))
        unknown = set(table) - set(self.keys)
        if unknown:
            raise Wrong("%s: unknown key %s" % (where, sorted(unknown)[0]))


class Mistake(Entry):
    keys = {"name": str, "words": str, "edits": list, "verdict": "mismatch", "formula": None, "says": None, "place": None, "instead": None}


class Program(Entry):
    keys = {"project": str, "revision": str, "folder": "", "needs": None, "script": None, "own": None, "arguments": [], "ranks": 2, "limit": 100,
            "missing": [], "before": "", "edits": [], "words": "", "verdict": "match", "says": None, "mistakes": list}

    def __init__(self, table, name):
        super().__init__(table, name)
        self.name = name
        if (self.script is None) == (self.own is None):
            raise Wrong("%s: expected script or own" % name)
        self.needs = [self.folder] if self.needs is None and self.folder else self.needs or []
        self.mistakes = [Mistake(one, "%s, mistake %d" % (name, place)) for place, one in enumerate(self.mistakes)]

    def started(self):
        """The file that is run, from the folder."""
        return self.script if self.own is None else self.own

    def edited(self, folder, mistake=None):
        """Makes the edits in an unpacked project, those of a mistake last."""
        if self.own is not None:
            with open(os.path.join(FOLDER, self.own), encoding="utf-8") as file:
                content = file.read()
            with open(os.path.join(folder, self.folder, self.own), "w", encoding="utf-8") as file:
                file.write(content)
        for edit in self.edits + (mistake.edits if mistake else []):
            path = os.path.join(folder, self.folder, edit.get("file", self.started()))
            with open(path, encoding="utf-8") as file:
                content = file.read()
            if edit["old"] not in content:
                raise Wrong("%s: %s has no %r" % (mistake.where if mistake and edit in mistake.edits else self.name, os.path.basename(path), edit["old"]))
            with open(path, "w", encoding="utf-8") as file:
                file.write(content.replace(edit["old"], edit["new"]))


def listed():
    """All programs, by name."""
    found = {}
    for file in sorted(os.listdir(FOLDER)):
        if file.endswith(".toml"):
            with open(os.path.join(FOLDER, file), "rb") as opened:
                found[file[:-5]] = Program(tomllib.load(opened), file[:-5])
    return found
