# SPDX-License-Identifier: Apache-2.0
"""docs/code-mutants.md: its tables and lists, out of the figures and the reasons that somebody has written."""

import json
import re
from collections import Counter
from pathlib import Path

from mutants import Mutant

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / "docs" / "code-mutants.md"
FIGURES = HERE / "figures.jsonl"
REASONS = HERE / "reasons.json"  # by file, line of the source and what is there in its place: why a mutant is a survivor, or no false alarm
BEGIN = "<!-- Written by tools/code-mutants --write: -->\n"
MOST_RUN = 8  # ranks really run
SAYS = ("mismatch", "error", "undecided", "match")


def key_of(mutant):
    return mutant.file, mutant.begin, mutant.end, mutant.new


def place_of(row):
    return *key_of(Mutant(**row["mutant"])), row["case"], row["ranks"]


def read(path):
    """One row for each mutant, script and number of ranks, the last."""
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return list({place_of(row): row for row in rows}.values())


def short(row):
    """What is kept of it: nothing of the machine."""
    said, why = (re.sub(r"(?<![\w.])/[\w./+-]*/", "", row[key].split("\n")[0])[:160] for key in ("said", "why"))
    return dict({key: value for key, value in row.items() if key != "seconds"}, said=said, why=why)


def group(row):
    """What ranks that really run make of it."""
    if row["runs"] == "other":
        return "other gradients" if row.get("reduces") == "other" else "gradients of other weights" if row.get("reduces") in ("same", "rounded") else "other gradients"
    return {"dies": "an error", "hangs": "an error", "rounded": "other rounding", "same": "the same"}[row["runs"]]


GROUPS = ("other gradients", "gradients of other weights", "an error", "other rounding", "the same")


def table(rows):
    """Of few ranks; and in a sentence of more."""
    large = [row for row in rows if row["ranks"] > MOST_RUN]
    rows = [row for row in rows if row["ranks"] <= MOST_RUN]
    lines = ["| file | ranks that run get | mutants | " + " | ".join(SAYS) + " |", "|---|---|--:|" + "--:|" * len(SAYS)]
    for file in sorted({row["mutant"]["file"] for row in rows}):
        own = [row for row in rows if row["mutant"]["file"] == file]
        for name in GROUPS:
            those = [row for row in own if group(row) == name]
            if those:
                counts = Counter(row["extracted"] for row in those)
                lines.append("| `%s` | %s | %d | %s |" % (file.split("/")[-1], name, len(those), " | ".join(str(counts[says]) for says in SAYS)))
    for name in GROUPS:
        those = [row for row in rows if group(row) == name]
        counts = Counter(row["extracted"] for row in those)
        lines.append("| all | %s | %d | %s |" % (name, len(those), " | ".join(str(counts[says]) for says in SAYS)))
    text = "\n".join(lines) + "\n"
    for ranks in sorted({row["ranks"] for row in large}):
        those = [row for row in large if row["ranks"] == ranks]
        counts = Counter(row["extracted"] for row in those)
        text += "\nOf those that change a gradient %d were extracted at %d ranks as well: %s.\n" % (
            len(those), ranks, ", ".join("%d %s" % (counts[says], says) for says in SAYS if counts[says]))
    return text


def key(row):
    mutant = Mutant(**row["mutant"])
    return "%s:%d %s" % (mutant.file.split("/")[-1], mutant.line, mutant.said())


def is_survivor(row):
    return row["extracted"] == "match" and group(row) not in ("the same", "other rounding")


def is_alarm(row):
    return row["extracted"] != "match" and group(row) in ("the same", "other rounding")


def listed(rows, reasons):
    lines = []
    for title, chosen in (("Survivors: `match`, and ranks that run get something else", is_survivor), ("Alarms: no `match`, and ranks that run get the same", is_alarm)):
        lines.append("## %s\n" % title)
        those = sorted(filter(chosen, rows), key=lambda row: (row["mutant"]["file"], row["mutant"]["line"]))
        for row in those:
            said = " (%s: %s)" % (row["extracted"], row["said"].split("\n")[0][:160]) if row["extracted"] != "match" else ""
            lines.append("- %s, with `%s`%s: %s" % (key(row), row["case"], said, reasons.get(key(row), "not explained yet.")))
        lines.append("" if those else "None.\n")
    return "\n".join(lines)


def reasons():
    return json.loads(REASONS.read_text(encoding="utf-8")) if REASONS.exists() else {}


def is_unexplained(row, known):
    return key(row) not in known and (is_alarm(row) or (row["extracted"] == "match" and group(row) == "other gradients"))


def write(rows):
    known = reasons()
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(text[:text.index(BEGIN) + len(BEGIN)] + "\n" + table(rows) + "\n" + listed(rows, known), encoding="utf-8")
