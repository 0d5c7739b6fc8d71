# SPDX-License-Identifier: Apache-2.0
"""What the tests of the PyTorch frameworks share: scenarios on a framework, and coefficients as text."""

import json
import os
import sys
from fractions import Fraction
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contract"))
from contract_program import messages, named, parameter, rank_entries, replay_all, show  # noqa: E402

DATA = Path(__file__).parent / "data"
NEEDS_PROGRAM = pytest.mark.skipif("LOCKSTEP_BINARY" not in os.environ, reason="LOCKSTEP_BINARY does not name the program")

# Two parameters whose rows do not divide evenly: 5 rows, and 3 elements.
PAIR = [parameter("w", [5, 2]), parameter("norm", [3], tags=["norm"])]
# Small models of the presets, with everything that a transformer has.
GPT2 = {"preset": "gpt2", "layers": 4, "hidden": 8, "heads": 4, "vocab": 16, "positions": 8}
LLAMA = {"preset": "llama", "layers": 4, "hidden": 8, "heads": 4, "query_groups": 4, "ffn": 16, "vocab": 16}
MIXTRAL = {"preset": "mixtral-8x7b", "layers": 2, "hidden": 8, "heads": 4, "query_groups": 4, "ffn": 16, "vocab": 16}


def on(framework, layout=None, options=None, model=PAIR, batch=None, edits=()):
    """A scenario on the framework."""
    return {
        "lockstep": 1,
        "layout": layout or {},
        "model": {"parameters": model} if isinstance(model, list) else model,
        "batch": batch or {},
        "schedule": {"framework": framework, "options": options or {}, "edits": list(edits)},
    }


def verdicts(contents):
    reports = replay_all(contents)
    assert [report["errors"] for report in reports] == [[]] * len(reports)
    return [report["verdict"] for report in reports]


def refusal(framework, layout=None, options=None, **keys):
    """The only message with which the framework refuses this."""
    found = messages(on(framework, layout, options, **keys))
    assert len(found) == 1, found
    return found[0]


def coefficients(report, name, rank):
    """{(rank, micro-batch): coefficient} of what the rank hands to its optimizer; the same in all of its elements."""
    pieces = rank_entries(report, name)[rank]["pieces"]
    found = [
        {(item["rank"], item["micro_batch"]): item["value"] for item in piece["coefficients"]} for piece in pieces
    ]
    assert all(piece == found[0] for piece in found), found
    return found[0] if found else None


def owners(report, name):
    """The ranks that own something of the parameter."""
    return [rank for rank, entry in sorted(rank_entries(report, name).items()) if entry["owned"]]


def everywhere(report, expected):
    """Asserts that on every rank, in every parameter, every owned element has exactly these coefficients."""
    for item in report["parameters"]:
        for rank in owners(report, item["name"]):
            assert coefficients(report, item["name"], rank) == expected, (item["name"], rank)


def all_equal(value, ranks, micro_batches=2):
    """Coefficients that are all one: of so many ranks and micro-batches."""
    return {(rank, m): str(Fraction(value)) for rank in range(ranks) for m in range(micro_batches)}


def load(name):
    return json.loads((DATA / name).read_text(encoding="utf-8"))


__all__ = [
    "GPT2", "LLAMA", "MIXTRAL", "NEEDS_PROGRAM", "PAIR", "all_equal", "coefficients", "everywhere", "load",
    "messages", "named", "on", "owners", "parameter", "rank_entries", "refusal", "replay_all", "show", "verdicts",
]
