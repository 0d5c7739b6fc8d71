# SPDX-License-Identifier: Apache-2.0
"""The engines against each other: the corpus, and random schedules with and without a model.

    LOCKSTEP_BINARY=build/release/bin/lockstep python3 engines.py --plain 3000 --models 1500 --seed 1

lockstep itself compares: the symbolic, host and mpi engine buffer by buffer, host and mpi bit by bit, and the transformer
by verdict of each buffer and by the coefficients that least squares finds (src/diagnosis/agreement.cpp). This counts what
was compared, and keeps the files on which engines disagree. Exit status 0: none do, 1: some do, 2: it could not be run.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "oracle"))
sys.path.insert(0, str(HERE))

import random_scenario  # noqa: E402
from model_schedules import Maker, without_comments  # noqa: E402

BATCH = 60
REFUSES = re.compile(r"transformer engine|the pieces have up to|the model has .* parameters")
ENVIRONMENT = {**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


class Counts:
    """What was compared, by kind of file."""

    def __init__(self):
        self.files, self.transformer, self.without_mpi = 0, 0, 0
        self.verdicts, self.refused, self.invalid = collections.Counter(), collections.Counter(), collections.Counter()
        self.disagreements = []

    def add(self, report):
        self.verdicts[report["verdict"]] += 1
        if report["verdict"] == "error":
            self.invalid[re.sub('"[^"]*"', "…", report["errors"][0]["message"])[:100]] += 1
            return
        self.files += 1
        engines = set(report["engines"])
        self.transformer += "transformer" in engines
        self.without_mpi += "mpi" not in engines
        if "disagreement" in report:
            self.disagreements.append((report["file"], report["disagreement"]))
        elif report["engines"].get("transformer") == "mismatch" and report["engines"]["symbolic"] == "match":
            # `check` believes the model before the claims about it, and so a mistake in it would pass for a wrong claim.
            # Here all claims are those of built-in models, and only a file that edits its model may say so.
            document = without_comments(pathlib.Path(report["file"]).read_text(encoding="utf-8"))
            if not document["model"].get("edits"):
                self.disagreements.append((report["file"], "mismatch for transformer, match for symbolic, without an edit of the model"))

    def text(self, what):
        verdicts = ", ".join(f"{name} {count}" for name, count in sorted(self.verdicts.items()))
        mpi = f" ({self.without_mpi} of them without mpi)" if self.without_mpi else ""
        return f"{self.files} {what}: symbolic = host = mpi{mpi}, {self.transformer} of them = transformer ({verdicts})"


class Engines:
    def __init__(self, program, processes=3):
        self.program = program
        built = json.loads(subprocess.run([program, "version", "-f", "json"], capture_output=True, text=True,
                                          check=True).stdout)["engines"]
        self.processes = processes if built["mpi"] and shutil.which("mpirun") else 0

    def reports(self, files, engines):
        """One report per file; a batch that dies is done again file by file, so that the file is known."""
        names = ",".join(engines + (["mpi"] if self.processes else []))
        command = [self.program, "check", "--no-blame", "-f", "json", "--engine", names]
        if self.processes:
            # Under mpirun, and not with --ranks: there a layout with fewer ranks than processes is an error.
            root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
            command = ["mpirun", "-n", str(self.processes), "--oversubscribe", "--bind-to", "none", *root, *command]
        result = []
        for begin in range(0, len(files), BATCH):
            some = [str(file) for file in files[begin:begin + BATCH]]
            done = subprocess.run(command + some, capture_output=True, text=True, check=False, env=ENVIRONMENT)
            try:
                found = json.loads(done.stdout)
            except ValueError:
                if len(some) > 1:
                    for file in some:
                        result += self.reports([file], engines)
                    continue
                found = {"file": some[0], "verdict": "died", "engines": {},
                         "disagreement": f"exit status {done.returncode}: {done.stderr[-300:]}"}
            result += found if isinstance(found, list) else [found]
        return result

    def default_reports(self, files):
        """As `check` does by itself: a sample on the host where all of it would take minutes, and one process."""
        if not files:
            return []
        done = subprocess.run([self.program, "check", "--no-blame", "-f", "json", *map(str, files)], capture_output=True, text=True, check=False)
        found = json.loads(done.stdout)
        return found if isinstance(found, list) else [found]

    def compare(self, files, counts, transformer):
        """Adds what the engines say of the files. Those that the transformer engine cannot run are done without it."""
        engines = ["symbolic", "host"] + (["transformer"] if transformer else [])
        again = []
        for file, report in zip(files, self.reports(files, engines), strict=True):
            messages = [error["message"] for error in report.get("errors") or []]
            if transformer and report["verdict"] == "error" and any(REFUSES.search(message) for message in messages):
                counts.refused[re.sub(r"\d[\d.e+]*", "N", messages[0]).split(";")[0][:110]] += 1
                again.append(file)
            else:
                counts.add(report)
        if again:
            self.compare(again, counts, False)


def is_small(path):
    """(whether a replay of every element takes little, whether the transformer engine can have it)."""
    document = without_comments(path.read_text(encoding="utf-8"))
    model = document.get("model", {})
    if "any" in document.get("layout", {}).values() or "scale" in path.parts:
        return False, False
    if "preset" not in model:
        return True, False
    return model.get("hidden", 4096) <= 64 and model.get("vocab", 50257) <= 1024, not model["preset"].startswith(".")


def corpus(every):
    files = sorted(path for path in (ROOT / "scenarios").rglob("*.json*"))[::every]
    kinds = {"plain": [], "models": [], "large": []}
    for path in files:
        small, model = is_small(path)
        kinds["large" if not small else "models" if model else "plain"].append(path)
    return kinds


def compare_corpus(engines, every, counts):
    kinds = corpus(every)
    engines.compare(kinds["plain"], counts, False)
    engines.compare(kinds["models"], counts, True)
    for report in engines.default_reports(kinds["large"]):
        counts.add(report)


def compare_random(engines, plain, models, seed, folder, counts):
    files = []
    for number in range(seed, seed + plain):
        files.append(folder / f"plain-{number}.json")
        files[-1].write_text(json.dumps(random_scenario.generate(number)[0], indent=1, default=float) + "\n", encoding="utf-8")
    engines.compare(files, counts, False)
    maker = Maker(engines.program, random.Random(seed))
    engines.compare(maker.make(models, folder), counts, True)


def keep(counts, folder):
    for file, sentence in counts.disagreements:
        print(f"{file}: {sentence}")
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, folder / pathlib.Path(file).name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.environ.get("LOCKSTEP_BINARY"), help="default: $LOCKSTEP_BINARY")
    parser.add_argument("--plain", type=int, default=300, help="random schedules on random parameters")
    parser.add_argument("--models", type=int, default=150, help="random schedules of small models")
    parser.add_argument("--every", type=int, default=1, help="every n-th file of the corpus; 0: none")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--ranks", type=int, default=3, help="processes of the mpi engine; 0: leave it out")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the files on which engines disagree")
    arguments = parser.parse_args()
    if not arguments.binary or not shutil.which(arguments.binary):
        print("--binary or LOCKSTEP_BINARY must name the program", file=sys.stderr)
        return 2
    engines = Engines(os.path.abspath(shutil.which(arguments.binary)), arguments.ranks)
    files, schedules = Counts(), Counts()
    if arguments.every:
        compare_corpus(engines, arguments.every, files)
        print(files.text("files"), flush=True)
    with tempfile.TemporaryDirectory(prefix="lockstep-engines-") as folder:
        compare_random(engines, arguments.plain, arguments.models, arguments.seed, pathlib.Path(folder), schedules)
        print(schedules.text("random schedules"))
        for counts in (files, schedules):
            for reason, count in counts.refused.most_common():
                print(f"  the transformer engine refused {count}: {reason}")
            for reason, count in counts.invalid.most_common(8):
                print(f"  not valid {count}: {reason}")
            keep(counts, arguments.keep)
    found = len(files.disagreements) + len(schedules.disagreements)
    print(f"{found} disagreements")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
