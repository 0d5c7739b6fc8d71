# SPDX-License-Identifier: Apache-2.0
"""Random scenarios: `python3 random_scenario.py --seed N --count K --out DIR` writes NNN.json as a user would write it,
with edits, and NNN.plain.json with the edits applied here; `--stats` prints what occurs how often."""

import argparse
import collections
import copy
import json
import pathlib
import random
from fractions import Fraction

import random_model
from layout import Batch, Mesh
from oracle import judge
from placement import Model
from random_edits import EditMaker, all_steps, apply, forget_iterations
from random_schedule import ScheduleMaker


def selectors_match(document, model):
    """A selector that matches nothing on any rank is an error, and so is a list that chooses nothing."""
    for step in all_steps(document["schedule"]["steps"]):
        for selectors in (step.get("params"), (step.get("geometry") or {}).get("separate") or None):
            if selectors is None:
                continue
            for part in [selectors] + [[item.lstrip("!")] for item in selectors]:
                if not any(model.selected(part, rank) for rank in range(model.mesh.world)):
                    return False
    return True


def attempt(rng):
    layout = random_model.random_layout(rng)
    mesh = Mesh(layout)
    batch, uses = random_model.random_batch(rng, mesh)
    counts = batch["micro_batches"]
    least = min(counts) if isinstance(counts, list) else counts
    parameters = random_model.random_parameters(rng, mesh, uses, least)
    model = Model(parameters, mesh)
    present = {"main"} | {use for p in parameters if not p.get("frozen") for use in p.get("uses", ["main"])}
    for key in ("tokens", "loss", "weight"):  # a use that no parameter has may not be named
        if isinstance(batch.get(key), dict) and "aux" not in present:
            batch[key].pop("aux", None)
    maker = ScheduleMaker(rng, mesh, model, Batch(batch, mesh), uses)
    schedule = maker.make()
    for _ in range(rng.choice((0, 0, 0, 1, 2, 3))):  # anything, anywhere
        for edit in EditMaker(rng, maker, schedule["steps"]).insert():
            apply(edit, schedule["steps"])
    forget_iterations(schedule["steps"])
    document = {
        "lockstep": 1,
        "name": "random",
        "layout": layout,
        "model": {"parameters": parameters},
        "batch": batch,
        "schedule": schedule,
    }
    plain = copy.deepcopy(document)
    edits = []
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 2, 3))):
        new = EditMaker(rng, maker, plain["schedule"]["steps"]).random_edit()
        for edit in new:
            apply(edit, plain["schedule"]["steps"])
        edits += new
    forget_iterations(plain["schedule"]["steps"])
    if edits:
        schedule["edits"] = edits
    if not selectors_match(plain, model) or not selectors_match(document, model):
        return None
    return document, plain


def generate(seed):
    """(as written, plain): the same scenario twice."""
    rng = random.Random(f"lockstep {seed}")
    for _ in range(200):
        pair = attempt(rng)
        if pair:
            for document in pair:
                document["name"] = f"random-{seed}"
            return pair
    raise RuntimeError(f"no scenario for seed {seed}")


def statistics(seeds):
    counts = collections.defaultdict(collections.Counter)
    for seed in seeds:
        written, plain = generate(seed)
        result = judge(plain)
        counts["verdict"][result["verdict"]] += 1
        edits = written["schedule"].get("edits", [])
        counts["verdict of those with edits" if edits else "verdict of those without"][result["verdict"]] += 1
        counts["norm"][bool(result.get("norm"))] += 1
        counts["unowned"][any(p["unowned"] for p in result.get("parameters", []))] += 1
        counts["foreign"]["foreign" in str(result.get("parameters"))] += 1
        counts["leftover"]["leftover" in str(result.get("parameters"))] += 1
        counts["replicas agree though wrong"][
            result["verdict"] == "mismatch" and all(p["replicas_agree"] for p in result["parameters"])
        ] += 1
        for edit in edits:
            counts["edits"][next(iter(edit))] += 1
        for step in all_steps(plain["schedule"]["steps"]):
            counts["ops"][step["op"]] += 1
            if "geometry" in step:
                counts["geometry"][step["geometry"].get("kind", "parameter")] += 1
            for key in ("on", "async", "buffer", "only", "when", "root", "combine"):
                counts["keys"][key] += key in step
        for parameter in plain["model"]["parameters"]:
            counts["parameters"]["any"] += 1
            for key in ("shard", "partial", "dispatch", "tied", "copy", "uses", "micro_batches", "only", "frozen", "chunk"):
                counts["parameters"][key] += key in parameter
        counts["errors"][result["errors"][0]["message"][:60] if result["verdict"] == "error" else "none"] += 1
    for what, counter in counts.items():
        print(f"{what}: " + ", ".join(f"{key} {count}" for key, count in counter.most_common()))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--out", type=pathlib.Path, help="folder for the files")
    parser.add_argument("--stats", action="store_true", help="print a histogram")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            written, plain = generate(seed)
            for document, ending in ((written, "json"), (plain, "plain.json")):
                text = json.dumps(
                    document, indent=1, default=lambda number: float(number) if isinstance(number, Fraction) else None
                )
                (arguments.out / f"{seed}.{ending}").write_text(text + "\n", encoding="utf-8")
    if arguments.stats:
        statistics(seeds)


if __name__ == "__main__":
    main()
