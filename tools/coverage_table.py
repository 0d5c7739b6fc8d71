#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what gcovr's JSON says (tools/coverage calls this): lines and branches per folder, and the files with the least."""

import json
import sys
from collections import Counter
from pathlib import Path

LEAST = 15
FEWEST_BRANCHES = 10  # of a file that is listed as one of the least


def percent(part, whole):
    return f"{100 * part / whole:5.1f} %" if whole else "    -  "


def count(lines):
    """Lines and branches of a file, and how many of them ran; uncovered lines as ranges."""
    result = Counter()
    missing = []
    for line in lines:
        if line.get("gcovr/noncode"):
            continue
        result["lines"] += 1
        result["lines ran"] += line["count"] > 0
        result["branches"] += len(line["branches"])
        result["branches ran"] += sum(branch["count"] > 0 for branch in line["branches"])
        if line["count"] == 0:
            missing.append(line["line_number"])
    return result, missing


def ranges(numbers):
    """[1, 2, 3, 7] as "1-3, 7"."""
    found = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{a}-{b}" if a != b else str(a) for a, b in found)


def print_rows(rows):
    print(f"{'':<40} {'lines':>15} {'branches':>18}")
    for name, counts in rows:
        lines = f"{percent(counts['lines ran'], counts['lines'])} of {counts['lines']}"
        branches = f"{percent(counts['branches ran'], counts['branches'])} of {counts['branches']}"
        print(f"{name:<40} {lines:>15} {branches:>18}")


def main():
    report = Path(sys.argv[1])
    folders, files, missing = {}, {}, {}
    for file in json.loads(report.read_text(encoding="utf-8"))["files"]:
        name = file["file"]
        files[name], missing[name] = count(file["lines"])
        folders.setdefault(str(Path(name).parent), Counter()).update(files[name])
    total = sum(folders.values(), Counter())
    print_rows([*sorted(folders.items()), ("all", total)])

    def least(name):
        counts = files[name]
        return (counts["lines ran"] + counts["branches ran"]) / (counts["lines"] + counts["branches"])

    worst = sorted((name for name in files if files[name]["branches"] >= FEWEST_BRANCHES), key=least)[:LEAST]
    print("\nThe files with the least")
    print_rows([(name, files[name]) for name in worst])
    listing = report.with_suffix(".missing.txt")
    listing.write_text("".join(f"{name}: {ranges(missing[name])}\n" for name in sorted(files) if missing[name]),
                       encoding="utf-8")
    print(f"\nLines that never ran: {listing}\nBranches as well: {report.with_suffix('.txt')}")


if __name__ == "__main__":
    main()
