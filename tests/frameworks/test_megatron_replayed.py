# SPDX-License-Identifier: Apache-2.0
"""The Megatron schedule against data/megatron.json, which tools/measure_megatron.py read off Megatron-core.

Every case is replayed: the same layout, options, tokens and parameters, and every element of every parameter on every
rank must have the coefficients that were measured, those that the rank's optimizer does not own as well.
"""

import functools
import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
from megatron_program import NEEDS_PROGRAM, evaluate, rank_entries
from contract_program import replay_all, run, write

pytestmark = NEEDS_PROGRAM

MEASURED = json.loads((Path(__file__).parent / "data" / "megatron.json").read_text(encoding="utf-8"))
MODELS, PIECES = MEASURED["models"], MEASURED["pieces"]
for item in MEASURED["cases"]:
    # What many cases have in common stands in the file once.
    item["model"] = MODELS[item["model"]]
    for entry in [entry for found in item.get("ranks", []) for entry in found["parameters"].values()]:
        entry["pieces"] = PIECES[entry["pieces"]]
CASES = [case for case in MEASURED["cases"] if "ranks" in case]
REFUSED = [case for case in MEASURED["cases"] if "error" in case]
# At the end: every rank hands over all that it holds, so that the report has stale elements too.
REVEAL = {"insert": {"name": "reveal", "op": "own", "over": []}, "after": "last"}


# There are a hundred or so, and each stands in thousands of elements.
fraction = functools.lru_cache(None)(Fraction)


def tokens_of(case):
    return case.get("tokens") or [[[[1]] * case["layout"].get("cp", 1)] * case["layout"].get("dp", 1)] * case["micro_batches"]


def scenario_of(case, edits=(), clip_grad=0):
    parameters = [{key: value for key, value in entry.items() if key != "second_use"} for entry in case["model"]]
    options = {"core": "0.16", "clip_grad": clip_grad, **case["options"]}
    return {
        "lockstep": 1,
        "layout": case["layout"],
        "model": {"parameters": parameters},
        "batch": {"micro_batches": case["micro_batches"], "tokens": tokens_of(case)},
        "schedule": {"framework": "megatron", "options": options, "edits": list(edits)},
    }


def with_reveal(case):
    """The case's scenario with a last step that makes every rank hand over what it holds."""
    process = run("show", "--resolved", write(scenario_of(case)))
    assert process.returncode == 0, process.stderr
    steps = json.loads(process.stdout)["schedule"]["steps"]
    return steps, scenario_of(case, [{**REVEAL, "after": named_last(steps)}])


def named_last(steps):
    return [step["name"] for step in steps if "name" in step][-1]


def axes_of(case, rank, steps_order):
    sizes = {axis: case["layout"].get(axis, 1) for axis in ("tp", "cp", "dp", "pp")}
    found = {}
    for axis in steps_order:
        rank, found[axis] = divmod(rank, sizes[axis])
    return found


def by_of(case, steps, rank, micro_batch):
    """What backward multiplied a contribution of this rank and micro-batch with."""
    (backward,) = [inner for step in steps for inner in step.get("steps", []) if inner["name"] == "backward"]
    order = ("tp", "cp", "pp", "dp") if case["options"].get("use_tp_pp_dp_mapping") else ("tp", "cp", "dp", "pp")
    at = axes_of(case, rank, order)
    pieces = tokens_of(case)[micro_batch][at["dp"]]
    names = {"tokens": pieces[at["cp"]][0], "micro_batches": case["micro_batches"], "cp": case["layout"].get("cp", 1)}
    text = str(backward.get("by", 1)).replace("sum(tokens, cp)", str(sum(piece[0] for piece in pieces)))
    return evaluate(text, names)


def name_of(case):
    return " ".join(f"{key}={value}" for part in ("layout", "options") for key, value in case[part].items())


def one_parameter_with(case):
    """Names of what is the same parameter as another one: the second use of a tied one, where there is one stage."""
    return {entry["name"] for entry in case["model"] if entry.get("second_use")} if case["layout"].get("pp", 1) == 1 else set()


def terms_of(case):
    """[(rank, micro-batch, whether it is the second use of a tied parameter)]: element e belongs to the e mod n-th."""
    second = any(entry.get("second_use") for entry in case["model"]) and case["layout"].get("pp", 1) == 1
    return list(itertools.product(range(len(case["ranks"])), range(case["micro_batches"]), (False, True) if second else (False,)))


def measured_elements(found, terms):
    """[(term, coefficient)] of each element, with the term that alone fed it."""
    elements = []
    for begin, end, values in found["pieces"]:
        made = {}
        for place in (element % len(terms) for element in range(begin, end)):
            if place not in made:
                rank, micro_batch, second = terms[place]
                made[place] = terms[place], fraction(values[f"{rank}.{micro_batch}" + ("@second" if second else "")])
            elements.append(made[place])
    return elements


def replayed_elements(report, name, rank, by, case, terms):
    """The same out of a report."""
    elements = []
    seconds = {entry["name"] for entry in case["model"] if entry.get("second_use")}
    for piece in rank_entries(report, name)[rank]["pieces"]:
        found = {}
        for of in piece["coefficients"]:
            second = terms[-1][2] and of["use"] in seconds
            found[of["rank"], of["micro_batch"], second] = fraction(of["value"]) * by(of["rank"], of["micro_batch"])
        begin, end = piece["elements"]
        assert begin == len(elements)
        elements += [(terms[element % len(terms)], found.get(terms[element % len(terms)], 0)) for element in range(begin, end)]
    return elements


def test_the_data_is_whole():
    assert MEASURED["megatron_core"].startswith("0.16")
    assert len(CASES) >= 700


LAYOUTS = sorted({json.dumps(case["layout"]) for case in CASES})


@pytest.fixture(scope="module", params=LAYOUTS)
def replayed(request):
    """The cases of a layout, and the report of each."""
    cases = [case for case in CASES if json.dumps(case["layout"]) == request.param]
    return cases, replay_all([scenario_of(case) for case in cases])


def test_every_element_on_every_rank_has_the_measured_coefficients(replayed):
    cases, owned = replayed
    revealed = [with_reveal(case) for case in cases]
    for case, (steps, _), report, all_of_it in zip(cases, revealed, owned, replay_all([content for _, content in revealed])):
        assert not report["errors"], (name_of(case), report["errors"])

        @functools.lru_cache(None)
        def by(rank, micro_batch, case=case, steps=steps):
            return by_of(case, steps, rank, micro_batch)

        terms = terms_of(case)
        for rank, found in enumerate(case["ranks"]):
            for name, measured in found["parameters"].items():
                if name in one_parameter_with(case):
                    continue
                where = (name_of(case), rank, name)
                assert replayed_elements(all_of_it, name, rank, by, case, terms) == measured_elements(measured, terms), where
                begin, end = measured["owned"] or [0, 0]
                assert rank_entries(report, name)[rank]["owned"] == ([[begin, end]] if begin < end else []), where


def test_the_gradient_norm_counts_every_parameter_as_often_as_it_was_counted(replayed):
    cases, values = replayed
    for case, plain, report in zip(cases, values, replay_all([scenario_of(case, clip_grad=1) for case in cases])):
        # Without a norm only values can be wrong, and of such a gradient the norm is not its own.
        wrong = {entry["name"] for entry in plain["parameters"] if entry["verdict"] == "mismatch"}
        counts = {entry["parameter"]: Fraction(entry["counted"]) for entry in report["norm"] or []}
        for entry in case["model"]:
            if entry["name"] in wrong or entry.get("second_use"):
                continue
            names = {other["name"] for other in case["model"] if other is entry or entry.get("tied") and other.get("tied")}
            if case["layout"].get("pp", 1) == 1:
                names = {entry["name"]}
            value = sum_of(case, entry)
            once = math.prod(entry["shape"]) * value**2
            count = counts.get(entry["name"], 1)
            for found in case["ranks"]:
                measured = sum(found["norm"][name] ** 2 for name in names)
                assert math.isclose(measured, once * count, rel_tol=1e-4, abs_tol=1e-12), (name_of(case), entry["name"], count)


def sum_of(case, entry):
    """What an element comes to when every contribution is 1: the sum of its coefficients, the same in all elements."""
    terms, by_rank = terms_of(case), []
    for ranks in case["ranks"]:
        found = ranks["parameters"].get(entry["name"], {"owned": None})
        if found["owned"]:
            begin, end = found["owned"]
            by_rank.append(dict(measured_elements(found, terms)[begin:end]))
    # A rank that owns fewer elements than there are contributions has not met them all; together ranks have.
    whole = [values for values in by_rank if len(values) == len(terms)] or [dict(pair for values in by_rank for pair in values.items())]
    sums = {sum(values.values()) for values in whole}
    assert len(sums) == 1 and len(whole[0]) == len(terms), (name_of(case), entry, by_rank)
    return float(sums.pop())


@pytest.mark.parametrize("case", REFUSED, ids=name_of)
def test_what_megatron_refuses_is_refused_with_its_words(case):
    (report,) = replay_all([scenario_of(case)])
    assert report["verdict"] == "error"
    reason = case["error"].partition(": ")[2]
    assert any(reason in error["message"] for error in report["errors"]), report["errors"]
