# SPDX-License-Identifier: Apache-2.0
"""Repairs replayed at sizes for which they are said to be right: what a proof says of every size at sizes that are drawn,
what was right at the layouts tried at each size from 1 to 4, and each at the file's own."""

import json
import random
import re

import attack
import pairs  # noqa: F401 (finds the folders)
import program
from jsonc import read

POINTS = 6
MOST_TERMS = 128  # ranks times micro-batches of a replay
EVERY_SIZE = re.compile(r"^right for every size of ([a-z_]+(?:(?:, | and )[a-z_]+)*)(?: alone)?$")


def open_names(repair):
    """Sizes of which the report says that the repair is right for every one; nothing where it does not."""
    sentence = EVERY_SIZE.match(repair["proof"])
    return re.split(r", | and ", sentence[1]) if sentence else []


def each_alone(document):
    """One size after the other, each that the file has above 1 and the micro-batches, from 1 to 4."""
    layout = {name: size for name, size in document.get("layout", {}).items() if isinstance(size, int) and not isinstance(size, bool) and size > 1}
    layout.pop("virtual_stages", None)
    micro_batches = document.get("batch", {}).get("micro_batches", 2)
    now = {**layout, **({"micro_batches": micro_batches} if isinstance(micro_batches, int) else {})}
    return [{name: size} for name in now for size in range(1, 5) if size != now[name]]


def points(repair, document, seed):
    """Sizes at which this repair is said to be right; {} is the file's own."""
    if names := open_names(repair):
        drawn = attack.points(random.Random(seed), names, document, [json.dumps(document)], 4 * POINTS)
        return [{}, *[size for size in drawn if attack.terms(attack.at(document, size)) <= MOST_TERMS][:POINTS]]
    if repair["reach"] == "the layouts tried":
        return [{}, *[size for size in each_alone(document) if attack.terms(attack.at(document, size)) <= MOST_TERMS]]
    return [{}]


def replay(found, report, files, folder):
    """Adds to a diagnosis how many replays there were, and which went wrong."""
    asked = {}
    for take, (repair, file) in enumerate(zip(report["repairs"], files, strict=True), 1):
        document = read(file)
        document.pop("expect", None)
        for number, size in enumerate(points(repair, document, f"{found.file} {take}")):
            name = f"at-{take}-{number}.json"
            (folder / name).write_text(json.dumps(attack.at(document, size)))
            asked[name] = (take, repair, size)
    broken = {}
    verdicts = program.check(folder, list(asked), "symbolic", broken)
    for name, (take, repair, size) in asked.items():
        (folder / name).unlink()
        verdict = broken.get(name) or verdicts.get(name, "no verdict")
        # A size that the file does not allow is none of which anything is said.
        if size and verdict == "refused":
            found.refused += 1
            continue
        found.replayed += 1
        if verdict != "match":
            at = ", ".join(f"{axis} {number}" for axis, number in size.items()) or "the file's own sizes"
            found.wrong.append(f"repair {take} ({repair['reach']}; {repair['proof']}): {verdict} at {at}")
