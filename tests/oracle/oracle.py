# SPDX-License-Identifier: Apache-2.0
"""Judges a plain scenario (what `lockstep show FILE --resolved` prints) from the text of docs/scenario-format.md alone.

Slow and direct: every element of every buffer is a dict of exact fractions, and nothing is shared with the engines that
it checks. `python3 oracle.py FILE.json` prints a report in the shape of docs/report-format.md, as with --all, without
hashes.
"""

import json
import sys
from fractions import Fraction

from expressions import ScenarioError
from layout import Batch, Mesh
from placement import Model
from verdict import report
from walk import Walk


class ModelEdits(ValueError):
    """A scenario that says something about the model which placements and steps do not show."""


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file, parse_float=Fraction)


def walk_of(document):
    mesh = Mesh(document.get("layout", {}))
    batch = Batch(document.get("batch", {}), mesh)
    model = Model(document["model"]["parameters"], mesh)
    walk = Walk(mesh, model, batch, document["schedule"])
    walk.run()
    return walk


def judge(document):
    """The report on a plain scenario. Refused: edits of the model, of which the text of the format says nothing."""
    if document["model"].get("edits"):
        raise ModelEdits(f"{document.get('name', 'the scenario')} edits its model, which only a model can judge")
    try:
        result = report(walk_of(document))
    except ScenarioError as error:
        result = {"lockstep": 1, "verdict": "error", "errors": [{"message": str(error)}]}
    result["scenario"] = document.get("name", "")
    return result


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python3 oracle.py FILE.json")
    print(json.dumps(judge(read(sys.argv[1])), indent=1))
