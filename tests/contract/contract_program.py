# SPDX-License-Identifier: Apache-2.0
"""Small scenarios, and the program run on them as a process.

Forms are written "COEFFICIENT: TERMS; …", as in "1/2: g0 g1; 1: g3": a term is `g` with the rank of a contribution,
`.1` for a micro-batch other than 0, `@USE` where the report's use is not the parameter itself, `!NAME` where it is
foreign, of NAME, and for a leftover its `what`, with `@rank` where it differs by rank. Without a coefficient it is 1.
"""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from fractions import Fraction
from pathlib import Path

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR", Path(__file__).resolve().parents[2]))
FOLDER = Path(tempfile.mkdtemp(prefix="lockstep-contract-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def run(*arguments, folder=FOLDER):
    environment = {key: value for key, value in os.environ.items() if key not in ("CLICOLOR_FORCE", "FORCE_COLOR")}
    return subprocess.run(
        [os.path.abspath(os.environ["LOCKSTEP_BINARY"]), *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,  # a machine may have other work
        check=False,
    )


def parameter(name, shape, **keys):
    return {"name": name, "shape": shape, **keys}


W = parameter("w", [4])


def step(name, op, **keys):
    return {"name": name, "op": op, **keys}


def each(*steps, **keys):
    return {"name": "micro_batches", "op": "each", "steps": list(steps), **keys}


def backward(**keys):
    return each(step("backward", "backward", **keys))


def scenario(steps, parameters=(W,), layout=None, batch=None, edits=(), result=None, **keys):
    """One micro-batch with a token on each piece, where `batch` does not say otherwise."""
    schedule = {"steps": list(steps)}
    if edits:
        schedule["edits"] = list(edits)
    if result:
        schedule["result"] = result
    return {
        "lockstep": 1,
        "layout": layout or {},
        "model": {"parameters": list(parameters)},
        "batch": {"micro_batches": 1, "tokens": "even", **(batch or {})},
        "schedule": schedule,
        **keys,
    }


def write(content, name="scenario.json", folder=FOLDER):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def check_all(contents, *options):
    """The report of each, from one call of the program."""
    paths = [write(content, f"scenario-{number}.json") for number, content in enumerate(contents)]
    process = run("check", "--all", "--format", "json", *options, *paths)
    assert process.stdout, process.stderr
    reports = json.loads(process.stdout)
    reports = reports if isinstance(reports, list) else [reports]
    for report in reports:
        assert "disagreement" not in report, report["disagreement"]
        if "--engine" not in options and report["verdict"] in ("match", "mismatch"):
            assert set(report["engines"]) == {"symbolic", "host"}
    return reports


def check(content, *options):
    return check_all([content], *options)[0]


def replay_all(contents):
    """The same without the search for the step at fault, which may take longer than all the rest."""
    return check_all(contents, "--no-blame")


def verdicts(*contents):
    return [report["verdict"] for report in replay_all(contents)]


def messages(content):
    """Of a scenario that is refused."""
    report = check(content)
    assert report["verdict"] == "error", report["verdict"]
    return [error["message"] for error in report["errors"]]


def message(content):
    found = messages(content)
    assert len(found) == 1, found
    return found[0]


def show(content, *options):
    process = run("show", "--format", "json", *options, write(content))
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def expectation_holds(content, **expect):
    """Whether `lockstep test` is content with `expect`."""
    process = run("test", write({**content, "expect": expect}, "expectation.json"))
    assert process.returncode in (0, 1), process.stderr
    return process.returncode == 0


def form(text):
    """The form that a text in this file's notation means: {term: coefficient}."""
    terms = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        coefficient, _, names = part.rpartition(": ")
        for name in names.split():
            assert name not in terms
            terms[name] = Fraction(coefficient or 1)
    return terms


def term(entry, name):
    if "leftover" in entry:
        return entry["leftover"] + (f"@{entry['of_rank']}" if "of_rank" in entry else "")
    text = f"g{entry['rank']}" + (f".{entry['micro_batch']}" if entry["micro_batch"] else "")
    if entry.get("foreign"):
        text += "!" + entry["of"]
    elif entry["use"] != name:
        text += "@" + entry["use"].removeprefix(name + ":")
    return text


def named(report, name):
    found = [entry for entry in report["parameters"] if entry["name"] == name]
    assert len(found) == 1, [entry["name"] for entry in report["parameters"]]
    return found[0]


def rank_entries(report, name):
    """{rank: its entry} for the ranks listed under the name."""
    entries = {}
    for entry in named(report, name)["ranks"]:
        for rank in entry.get("ranks", [entry.get("rank")]):
            assert rank not in entries
            entries[rank] = entry
    return entries


def owned(report, name):
    """{rank: [[begin, end], …]} for the ranks that own something of the parameter."""
    return {rank: entry["owned"] for rank, entry in rank_entries(report, name).items() if entry["owned"]}


def held(report, name, ranks=None):
    """{rank: {"[begin,end)": form}} of everything owned (by these ranks); {rank: form} where it is one piece."""
    result = {}
    for rank, entry in rank_entries(report, name).items():
        if not entry["owned"] or (ranks is not None and rank not in ranks):
            continue
        pieces = {}
        for piece in entry["pieces"]:
            coefficients = {term(item, name): Fraction(item["value"]) for item in piece["coefficients"]}
            assert len(coefficients) == len(piece["coefficients"])
            pieces["[{},{})".format(*piece["elements"])] = coefficients
        whole = [list(map(int, key[1:-1].split(","))) for key in pieces]
        result[rank] = next(iter(pieces.values())) if len(pieces) == 1 and whole == entry["owned"] else pieces
    return result


def forms(expected):
    """What `held` returns where it is as expected, written with texts."""
    return {
        rank: form(value) if isinstance(value, str) else {key: form(text) for key, text in value.items()}
        for rank, value in expected.items()
    }


def assert_held(report, name, expected):
    """Exactly these ranks own something of the parameter, and hold exactly this."""
    assert held(report, name) == forms(expected)
