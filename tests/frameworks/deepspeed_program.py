# SPDX-License-Identifier: Apache-2.0
"""What the tests of DeepSpeed and of GPT-NeoX share: scenarios on a framework, and what ranks hold."""

import os
import sys
from fractions import Fraction
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contract"))
from contract_program import parameter, rank_entries, replay_all  # noqa: E402

NEEDS_PROGRAM = pytest.mark.skipif(
    "LOCKSTEP_BINARY" not in os.environ, reason="LOCKSTEP_BINARY does not name the program"
)
# Rounded up to 2 and to 4 elements, their sum differs.
PARAMETERS = [parameter("b", [3], tags=["norm"]), parameter("w", [13]), parameter("c", [5])]


def on(framework, layout=None, options=None, parameters=PARAMETERS, batch=None, edits=()):
    return {
        "lockstep": 1,
        "layout": layout or {},
        "model": {"parameters": list(parameters)},
        "batch": {"tokens": "even", **(batch or {})},
        "schedule": {"framework": framework, "options": options or {}, "edits": list(edits)},
    }


def held(report, name):
    """{rank: {(rank, micro-batch, use): coefficient}} of what the optimizers get; the same in all pieces."""
    result = {}
    for rank, entry in rank_entries(report, name).items():
        if not entry["owned"]:
            continue
        pieces = [
            {(of["rank"], of["micro_batch"], of["use"]): Fraction(of["value"]) for of in piece["coefficients"]}
            for piece in entry["pieces"]
        ]
        assert all(piece == pieces[0] for piece in pieces), (name, rank, pieces)
        result[rank] = pieces[0]
    return result


def owned(report, name):
    return {rank: entry["owned"] for rank, entry in rank_entries(report, name).items() if entry["owned"]}


def counted(report):
    """{parameter: its wrong counts in the norm, by rank}"""
    result = {}
    for entry in report["norm"]:
        for rank in entry.get("ranks", [entry.get("rank")]):
            result.setdefault(entry["parameter"], {})[rank] = entry["counted"]
    return result


def verdicts(contents):
    reports = replay_all(contents)
    assert [report["errors"] for report in reports] == [[]] * len(reports)
    return [report["verdict"] for report in reports]


def refusal(content):
    """All messages with which a scenario is refused, as one text."""
    (report,) = replay_all([content])
    assert report["verdict"] == "error", report["verdict"]
    return "\n".join(error["message"] for error in report["errors"])
