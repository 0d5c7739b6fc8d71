# SPDX-License-Identifier: Apache-2.0
"""Wrong schedules that are drawn, and what repair offers for them. Half are schedules of an adversary (tests/attack), half are
fixed files of the corpus after one or two edits that break them. Each repair is replayed at sizes for which it is said to be
right, and where it is said to be wrong; each value of an option at the file's own sizes."""

import collections
import json
import os
import random
import re
import subprocess
import tempfile
from pathlib import Path

import attack
import pairs
import program
import sizes
from diagnose import BEST, Diagnosis, written
from draw import Draw
from jsonc import read

MUTANTS_OF_A_FILE = 6  # drawn one after the other, so that each file is broken once


def call(folder, *arguments):
    return subprocess.run([os.path.abspath(os.environ["LOCKSTEP_BINARY"]), *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False)


class Mutants:
    """Files of the corpus that are right, with edits that are known to break them."""

    def __init__(self):
        self.files = [fixed for _, fixed in pairs.pairs() if "edits" not in read(pairs.ROOT / fixed).get("model", {})]
        self.known = None, []

    def files_of(self, seed):
        path = random.Random(f"broken file {seed // MUTANTS_OF_A_FILE}").choice(self.files)
        if self.known[0] != path:
            answer = call(pairs.ROOT, "mutate", "-v", "-f", "json", path).stdout
            found = json.loads(answer)["files"][0]["mutants"] if answer.strip() else []
            self.known = path, [one["edit"] for one in found if one["fate"] == "killed"]
        rng, edits = random.Random(f"broken {seed}"), self.known[1]
        if len(edits) < 2:
            return {}
        document = {key: value for key, value in read(pairs.ROOT / path).items() if key not in ("expect", "$schema")}
        document["schedule"]["edits"] = document["schedule"].get("edits", []) + rng.sample(edits, rng.choice((1, 2, 2)))
        return {f"m{seed}.json": document}


class Drawn:
    def __init__(self):
        self.counts, self.wrong, self.mutants = collections.Counter(), [], Mutants()

    def text(self):
        counts = self.counts
        return (f"{counts['wrong']} wrong schedules, {counts['repaired']} with a repair; {counts['repairs']} repairs, {counts['replays']} replays where they are said to be right, "
                f"{counts['refused']} sizes refused, {counts['where wrong']} where they are said to be wrong, {counts['options']} values of options; {len(self.wrong)} not as said")  # fmt: skip

    def run(self, seed, count):
        """Until there were so many wrong schedules; the seed behind the last."""
        while self.counts["wrong"] < count:
            files = Draw(seed).files() if seed % 2 else self.mutants.files_of(seed)
            seed += 1
            if files:
                with tempfile.TemporaryDirectory(prefix="lockstep-drawn-") as name:
                    self.judge(files, Path(name))
        return seed

    def contradiction(self, name, sentence):
        self.wrong.append(f"{name}: {sentence}")

    def judge(self, files, folder):
        for name, document in files.items():
            (folder / name).write_text(json.dumps(document))
        name, first = next(iter(files)), folder / "repaired-1.json"
        done = call(folder, "repair", "-f", "json", "--most", BEST, "--to", first.name, name)
        if done.returncode == 2:
            self.counts["not valid"] += 1
            return
        if done.returncode not in (0, 1):
            self.contradiction(name, f"status {done.returncode}: {done.stderr[-300:]}")
            return
        said = json.loads(done.stdout)
        if said["verdict"] == "match":
            return
        self.counts["wrong"] += 1
        if said["repairs"]:
            self.counts["repaired"] += 1
            self.counts["repairs"] += len(said["repairs"])
            self.repairs(name, said["repairs"], written(said["repairs"], first, folder), folder)
        self.options(name, said.get("options", []), folder)

    def repairs(self, name, repairs, files, folder):
        if attack.asks_for_any(read(folder / name)):  # there are no sizes of its own
            verdicts = program.check(folder, [file.name for file in files], None, {})
            for repair, file in zip(repairs, files, strict=True):
                self.counts["replays"] += 1
                verdict = verdicts.get(file.name)
                if verdict != "match" and (verdict != "limit" or repair["reach"] == "every size"):
                    self.contradiction(name, f"{repair['edits']} ({repair['reach']}): {verdict}")
            return
        found = Diagnosis(name, False)
        sizes.replay(found, repairs, files, folder)
        self.counts.update(replays=found.replayed, refused=found.refused)
        for sentence in found.wrong:
            self.contradiction(name, sentence)
        for repair, file in zip(repairs, files, strict=True):
            if at := repair["sizes"]["wrong_at"]:
                self.where_wrong(name, repair, read(file), at, folder)

    def where_wrong(self, name, repair, document, at, folder):
        document.pop("expect", None)
        layout, batch = document.setdefault("layout", {}), document.setdefault("batch", {})
        for size, number in re.findall(r"([a-z_-]+) (\d+)", at):
            if size == "micro-batches":
                batch["micro_batches"] = int(number)
            else:
                layout[size] = int(number)
        (folder / "where-wrong.json").write_text(json.dumps(document))
        self.counts["where wrong"] += 1
        if program.check(folder, ["where-wrong.json"], "symbolic", {}).get("where-wrong.json") == "match":
            self.contradiction(name, f"{repair['edits']} is said to be wrong at {at}, and matches")

    def options(self, name, options, folder):
        for option in options:
            for value in option["right"]:
                change = f"{option['option']}={json.dumps(value)}"
                self.counts["options"] += 1
                done = call(folder, "check", "-q", "--no-blame", "--engine", "symbolic", "--set", change, name)
                if done.returncode != 0 and not attack.asks_for_any(read(folder / name)):
                    self.contradiction(name, f"{change} is said to be right: {done.stdout[:200]}")
