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

POINTS = 8
MOST_TERMS = 128  # ranks times micro-batches of a replay
EVERY_SIZE = re.compile(r"^right for every size of ([a-z_]+(?:(?:, | and )[a-z_]+)*)(?: alone)?$")


def open_names(repair):
    """Sizes of which the report says that the repair is right for every one; nothing where it does not."""
    sentence = EVERY_SIZE.match(repair["proof"])
    return re.split(r", | and ", sentence[1]) if sentence else []


def alone(document, name, size):
    """The scenario with one size in the place of its own."""
    part = "batch" if name == "micro_batches" else "layout"
    return {**document, part: {**document.get(part, {}), name: size}}


def around(document):
    """{what differs: scenario}: one size after the other, each that the file has above 1 and the micro-batches, from 1 to 4."""
    layout = {name: size for name, size in document.get("layout", {}).items() if type(size) is int and size > 1 and name != "virtual_stages"}
    micro_batches = document.get("batch", {}).get("micro_batches", 2)
    now = {**layout, **({"micro_batches": micro_batches} if isinstance(micro_batches, int) else {})}
    return {f"{name} {size}": alone(document, name, size) for name in now for size in range(1, 5) if size != now[name]}


def points(repair, document, seed):
    """{sizes, in words: the scenario} at which this repair is said to be right, its own sizes aside."""
    if names := open_names(repair):
        drawn = attack.points(random.Random(seed), names, document, [json.dumps(document)], 4 * POINTS)
        found = {", ".join(f"{name} {number}" for name, number in size.items()): attack.at(document, size) for size in drawn}
    elif repair["reach"] == "the layouts tried" and repair["sizes"]["tried"] > 0:
        found = around(document)
    else:
        found = {}
    return dict([(at, scenario) for at, scenario in found.items() if attack.terms(scenario) <= MOST_TERMS][: POINTS if names else None])


def replay(found, repairs, files, folder):
    """Adds to a diagnosis how many replays there were, and which went wrong."""
    asked = {}
    for take, (repair, file) in enumerate(zip(repairs, files, strict=True), 1):
        document = read(file)
        document.pop("expect", None)
        own = {"the file's own sizes": document}
        for at, scenario in {**own, **points(repair, document, f"{found.file} {take}")}.items():
            name = f"at-{len(asked)}.json"
            (folder / name).write_text(json.dumps(scenario))
            asked[name] = (take, repair, at)
    broken = {}
    verdicts = program.check(folder, list(asked), "symbolic", broken)
    for name, (take, repair, at) in asked.items():
        (folder / name).unlink()
        verdict = broken.get(name) or verdicts.get(name, "no verdict")
        # Nothing is said of a size that the file does not allow. Where that comes out in the replay, the layout was not tried.
        if at != "the file's own sizes" and (verdict == "refused" or (verdict == "error" and not open_names(repair))):
            found.refused += 1
            continue
        found.replayed += 1
        if verdict != "match":
            found.wrong.append(f"repair {take} ({repair['reach']}; {repair['proof']}): {verdict} at {at}")
