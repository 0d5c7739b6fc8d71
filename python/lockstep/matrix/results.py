# SPDX-License-Identifier: Apache-2.0
"""What an extraction and its check come to: formulas, what is wrong, and which calls carry gradients."""

import os
import re

MATCH, MISMATCH, UNDECIDED, ERROR, UNAVAILABLE = "match", "mismatch", "undecided", "error", "not installed"


def formulas(report):
    """Each formula once, with what is right and for which parameters: pieces of one parameter, of which releases own others, are one."""
    found = {}
    for result in report["results"]:
        # Where nothing is known there is no formula but a reason.
        key = result["formula"] or "?", result["expected"], result["verdict"]
        found.setdefault(key, set()).add(result["parameter"])
    return [{"formula": formula, "expected": expected, "verdict": verdict, "parameters": sorted(names)}
            for (formula, expected, verdict), names in sorted(found.items(), key=lambda one: (sorted(one[1]), str(one[0])))]


def shortened(text, folders=()):
    """A sentence or a place without the folders in which releases and packages lie: "torch/distributed/fsdp/x.py:12 in f"."""
    for folder in folders:
        text = text.replace(folder + os.sep, "")
    return re.sub(r"/[^\s()\"']*/(?:site-packages|dist-packages|lib/python\d[.\d]*)/", "", text)


def calls(extraction, folders):
    """Where gradients go into collectives: operation, reduction and place, each once, in their order."""
    found = []
    shared = extraction.get("events", [])
    for program in extraction["programs"]:
        for event in program["events"]:
            event = shared[event] if isinstance(event, int) else event
            if event["event"] == "collective" and event.get("input"):
                one = " ".join(filter(None, [event["op"], event.get("reduce"), "at " + shortened(str(event.get("call", "")), folders)]))
                if one not in found:
                    found.append(one)
    return found


def outcome(report, extraction, folders):
    findings = [one["what"] for one in report["findings"]]
    undecided = [one["why"] for one in report["results"] if one["verdict"] == "undecided" and one["why"]]
    told = report["collectives"] + report["gaps"]
    return {"outcome": report["verdict"], "formulas": formulas(report), "findings": findings,
            "why": list(dict.fromkeys(told + undecided)) if report["verdict"] == UNDECIDED else told,
            "blame": report["blame"], "repair": report["repair"], "not_blamed": report["not_blamed"],
            "calls": calls(extraction, folders), "versions": report["versions"], "mesh": report["mesh"]}


def said(result):
    """By parameter its formulas; None where nothing ran."""
    if result["outcome"] in (ERROR, UNAVAILABLE):
        return None
    found = {}
    for one in result["formulas"]:
        for name in one["parameters"]:
            found.setdefault(name, []).append((one["formula"], one["expected"], one["verdict"]))
    return {name: sorted(own, key=str) for name, own in found.items()}


def without_lines(text):
    """Places by their file and function: lines move with each release."""
    return re.sub(r"(\.\w+):\d+", r"\1", text)


def compared(result):
    """What releases are compared by: the outcome, the formulas, and what is said of collectives and of what is not known. None where nothing ran."""
    formulas_of = said(result)
    return None if formulas_of is None else (result["outcome"], formulas_of, [without_lines(one) for one in result.get("why", ())])


def is_known(result):
    """Whether two releases that say this do the same: not where a formula could not be found out."""
    return all(formula != "?" for own in (said(result) or {}).values() for formula, _, _ in own)
