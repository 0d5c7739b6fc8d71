# SPDX-License-Identifier: Apache-2.0
"""What an extraction and its check come to: formulas, what is wrong, and which calls carry gradients."""

import os

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


def shortened(call):
    """The place of a call without the folder in which a release lies: "torch/distributed/fsdp/x.py:12 in f"."""
    place = str(call)
    for mark in ("/site-packages/", "/lib/python"):
        place = place.rpartition(mark)[2]
    return place


def calls(extraction, release):
    """Where gradients go into collectives: operation, reduction and place, each once, in their order."""
    found = []
    shared = extraction.get("events", [])
    for program in extraction["programs"]:
        for event in program["events"]:
            event = shared[event] if isinstance(event, int) else event
            if event["event"] == "collective" and event.get("input"):
                call = str(event.get("call", ""))
                if release:
                    call = call.replace(release + os.sep, "")
                one = " ".join(filter(None, [event["op"], event.get("reduce"), "at " + shortened(call)]))
                if one not in found:
                    found.append(one)
    return found


def outcome(report, extraction, release):
    findings = [one["what"] for one in report["findings"]]
    undecided = [one["why"] for one in report["results"] if one["verdict"] == "undecided" and one["why"]]
    told = [one if isinstance(one, str) else one.get("why") or one.get("what") or one.get("message") or str(one)
            for key in ("collectives", "gaps") for one in report[key]]
    return {"outcome": report["verdict"], "formulas": formulas(report), "findings": findings,
            "why": list(dict.fromkeys(told + undecided)) if report["verdict"] == UNDECIDED else told,
            "blame": report["blame"], "repair": report["repair"], "not_blamed": report["not_blamed"],
            "calls": calls(extraction, release), "versions": report["versions"], "mesh": report["mesh"]}


def said(result):
    """What releases are compared by: by parameter its formulas; of what has none, why."""
    if result["outcome"] in (ERROR, UNAVAILABLE):
        return None
    found = {}
    for one in result["formulas"]:
        for name in one["parameters"]:
            found.setdefault(name, []).append((one["formula"], one["expected"], one["verdict"]))
    return {name: sorted(own, key=str) for name, own in found.items()}
