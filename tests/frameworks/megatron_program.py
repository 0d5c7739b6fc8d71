# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Megatron schedule share: scenarios on it, and coefficients on every rank.

Coefficients of a report are relative to what `backward` added; here they are times its `by`, so that they are those of
the gradient of a rank's summed loss, as they were read off the running code.
"""

import ast
import json
import operator
import os
import sys
from fractions import Fraction
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "contract"))
from contract_program import messages, owned, parameter, rank_entries, replay_all, run, term, write  # noqa: E402

NEEDS_PROGRAM = pytest.mark.skipif("LOCKSTEP_BINARY" not in os.environ, reason="LOCKSTEP_BINARY does not name the program")
# At the end of a list: every rank hands over all that it holds, so that the report lists stale elements too.
REVEAL = {"insert": {"name": "reveal", "op": "own", "over": []}}

OPERATIONS = {ast.Div: operator.truediv, ast.Mult: operator.mul, ast.Add: operator.add, ast.Sub: operator.sub}


def on(layout=None, options=None, model=None, batch=None, edits=()):
    """A scenario on the schedule; no norm unless the options ask for one."""
    model = model or [parameter("w", [4])]
    return {
        "lockstep": 1,
        "layout": layout or {},
        "model": {"parameters": model} if isinstance(model, list) else model,
        "batch": {"micro_batches": 1, **(batch or {})},
        "schedule": {"framework": "megatron", "options": {"clip_grad": 0, **(options or {})}, "edits": list(edits)},
    }


def resolved(content):
    process = run("show", "--resolved", write(content))
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def steps_of(content):
    """{name: step} of the plain steps, those in an `each` too."""
    found = {}
    for step in resolved(content)["schedule"]["steps"]:
        found[step.get("name", f"wait {step.get('for')}")] = step
        found.update({inner["name"]: inner for inner in step.get("steps", [])})
    return found


def evaluate(text, names):
    def value(node):
        if isinstance(node, ast.BinOp):
            return OPERATIONS[type(node.op)](value(node.left), value(node.right))
        return Fraction(node.value) if isinstance(node, ast.Constant) else Fraction(names[node.id])

    return value(ast.parse(str(text), mode="eval").body)


def reveal_after(last):
    return {**REVEAL, "after": last}


def check(content):
    """The report, without the search for the step at fault."""
    return replay_all([content])[0]


def coefficients(content, name, rank, tokens=None, report=None):
    """{"[begin,end)": {term: coefficient}} of what `rank` owns, times the `by` of backward.

    `tokens` is [rank][micro-batch]; without it every piece has one token.
    """
    batch = content["batch"]
    by = steps_of(content)["backward"].get("by", 1)
    result = {}
    for piece in rank_entries(report or check(content), name)[rank]["pieces"]:
        found = {}
        for item in piece["coefficients"]:
            own = tokens[item["rank"]][item["micro_batch"]] if tokens else 1
            names = {"tokens": own, "micro_batches": batch["micro_batches"], "cp": content["layout"].get("cp", 1)}
            found[term(item, name)] = Fraction(item["value"]) * evaluate(by, names)
        result["[{},{})".format(*piece["elements"])] = found
    return result


def everywhere(content, name, ranks, expected, tokens=None):
    """Whether every one of the ranks owns elements of the parameter, each of them with exactly these coefficients."""
    report = check(content)
    for rank in ranks:
        pieces = coefficients(content, name, rank, tokens, report)
        assert pieces, (name, rank)
        for elements, found in pieces.items():
            assert found == expected, (name, rank, elements)


def equal(value, *terms):
    return dict.fromkeys(terms, Fraction(value))


__all__ = [
    "NEEDS_PROGRAM", "check", "coefficients", "equal", "evaluate", "everywhere", "messages", "on", "owned", "parameter",
    "resolved", "reveal_after", "steps_of",
]
