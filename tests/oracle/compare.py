# SPDX-License-Identifier: Apache-2.0
"""Compares the program with the oracle on random scenarios and on the small files of scenarios/.

    LOCKSTEP_BINARY=build/release/bin/lockstep python3 compare.py --count 300 --seed 1
    python3 compare.py --files ../../scenarios

A difference prints the seed, the file and the first thing that differs; the file can be fed back to both.
Exit status 0: no difference, 1: differences, 2: the program could not be run.
"""

import argparse
import json
import math
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from fractions import Fraction

from oracle import ModelEdits, judge
from random_scenario import generate

BATCH = 50
SMALL = 40000  # elements times ranks that the oracle can walk in about a second


def check_files(binary, files):
    """One report per file. Where a call prints no JSON the files go one by one, so that a crash names its file."""
    command = [binary, "check", "--no-blame", "--all", "--format", "json", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        if len(files) > 1:
            return [report for file in files for report in check_files(binary, [file])]
        said = " ".join(done.stderr.split())[:300]
        return [{"verdict": f"exit status {done.returncode}", "errors": [{"message": said}]}]
    return result if isinstance(result, list) else [result]


def coefficient_key(entry):
    """A contribution and its coefficient, comparable as it is."""
    if "leftover" in entry:
        who = (entry["leftover"], entry.get("of_rank", -1), -1, "")
    else:
        who = ("", entry["rank"], entry["micro_batch"], entry["use"])
    foreign = (entry["of"], entry["offset"]) if entry.get("foreign") else ("", 0)
    return who + foreign + (str(Fraction(entry["value"])), tuple(entry.get("clips", [])))


def ranks_of(entry):
    return entry["ranks"] if "ranks" in entry else [entry["rank"]]


def by_rank(report):
    return [entry for parameter in report["parameters"] for entry in parameter.get("ranks", [])]


def by_element(report):
    """{(parameter, rank): {element: (verdict, ratio, coefficients)}} of the owned elements."""
    result = {}
    for parameter in report["parameters"]:
        for entry in parameter.get("ranks", []):
            for rank in ranks_of(entry):
                elements = result.setdefault((parameter["name"], rank), {})
                for piece in entry["pieces"]:
                    content = tuple(sorted(coefficient_key(c) for c in piece["coefficients"]))
                    for element in range(*piece["elements"]):
                        if element in elements:
                            raise ValueError(f"{parameter['name']} rank {rank} element {element} stands in two pieces")
                        elements[element] = (piece["verdict"], piece.get("ratio"), content)
                owned = {e for r in entry["owned"] for e in range(*r)}
                if owned != set(elements):
                    raise ValueError(f"{parameter['name']} rank {rank}: `owned` and `pieces` differ")
    return {key: value for key, value in result.items() if value}


def unowned(report):
    return sorted(
        (parameter["name"], rank, e)
        for parameter in report["parameters"]
        for entry in parameter["ranks"]
        for rank in ranks_of(entry)
        for r in entry.get("unowned", [])
        for e in range(*r)
    )


def agreement(report):
    return {p["name"]: p["replicas_agree"] for p in report["parameters"] if p.get("ranks")}


def verdicts(report):
    return {p["name"]: p["verdict"] for p in report["parameters"] if p.get("ranks")}


def norm(report):
    return sorted((entry["parameter"], entry["rank"], entry["counted"]) for entry in report.get("norm", []))


def stuck(report):
    """The lists of structural failures, without what is only said in words. Of the buffers of a race one is named."""
    if report["verdict"] == "deadlock":
        return sorted((entry["rank"], entry["waits_in"], tuple(entry["for"])) for entry in report["stuck"])
    if report["verdict"] == "invalid_collective":
        return sorted((entry["rank"], entry["calls"]) for entry in report["stuck"])
    if report["verdict"] == "race":
        return sorted({(entry["rank"], entry["step"], entry["in_flight"]) for entry in report["stuck"]})
    return []


def unknown_races(program, oracle):
    """Buffers that the program names in a race and the oracle does not."""
    if program["verdict"] != "race":
        return []
    found = {(entry["rank"], entry["touches"]) for entry in oracle["stuck"]}
    return [
        entry["touches"]
        for entry in program["stuck"]
        if not {(entry["rank"], entry["touches"]), (entry["rank"], "")} & found
    ]


def first_difference(program, oracle):
    """A sentence on the first item that differs, or None."""
    if program["verdict"] != oracle["verdict"]:
        said = [error["message"] for error in (program.get("errors") or []) + (oracle.get("errors") or [])][:2]
        return f"verdict: the program says {program['verdict']}, the oracle {oracle['verdict']} {' | '.join(said)}"
    if program["verdict"] == "error":
        return None
    wrong_values = any(not p["right_unclipped"] for entry in by_rank(oracle) for p in entry["pieces"])
    for engine, value in program.get("engines", {}).items():
        said = value["verdict"] if isinstance(value, dict) else value
        if engine == "host" and program["verdict"] == "mismatch" != said and not wrong_values:
            continue  # the host engine compares values, and neither norms nor clipping nor what nobody owns
        if said != program["verdict"]:
            return f"engine {engine} says {said}, the program {program['verdict']}"
    for what, of in (("step", lambda report: report["step"]), ("stuck", stuck)):
        if of(program) != of(oracle):
            return f"{what}: the program says {of(program)}, the oracle {of(oracle)}"
    if unknown_races(program, oracle):
        return f"touches: the oracle knows no race on {unknown_races(program, oracle)}"
    if program["verdict"] not in ("match", "mismatch"):
        return None
    for what, of in (("unowned", unowned), ("norm", norm), ("replicas_agree", agreement), ("parameters", verdicts)):
        if of(program) != of(oracle):
            return f"{what}: the program says {of(program)}, the oracle {of(oracle)}"
    mine, theirs = by_element(program), by_element(oracle)
    if mine.keys() != theirs.keys():
        return f"owners: only one of them lists {sorted(map(str, mine.keys() ^ theirs.keys()))}"
    for (name, rank), elements in theirs.items():
        got, where = mine[(name, rank)], f"{name} on rank {rank}"
        if elements.keys() != got.keys():
            return f"{where}: the program says owned are {sorted(got)}, the oracle {sorted(elements)}"
        for element, expected in elements.items():
            if got[element] != expected:
                return f"{where}, element {element}: the program says {got[element]}, the oracle {expected}"
    return None


def safe_difference(program, oracle):
    try:
        return first_difference(program, oracle)
    except (KeyError, ValueError, TypeError) as error:
        return f"the program's report cannot be read: {type(error).__name__} {error}"


def compare_seeds(task):
    """(differences, verdicts, scenarios) of some seeds; runs in a process of its own."""
    binary, seeds, folder = task
    files, expected = [], []
    for seed in seeds:
        written, plain = generate(seed)
        files.append(folder / f"{seed}.json")
        files[-1].write_text(json.dumps(written, indent=1, default=float) + "\n", encoding="utf-8")
        expected.append(judge(plain))
    differences = []
    for seed, file, program, oracle in zip(seeds, files, check_files(binary, files), expected, strict=True):
        difference = safe_difference(program, oracle)
        if difference:
            differences.append((f"seed {seed}", file, difference))
        else:
            file.unlink()
    return differences, [report["verdict"] for report in expected]


def compare_random(binary, first, count, folder, processes=2):
    seeds = range(first, first + count)
    tasks = [(binary, seeds[i : i + BATCH], folder) for i in range(0, count, BATCH)]
    differences, found = [], []
    with multiprocessing.Pool(processes) as pool:
        for some, verdicts_found in pool.imap(compare_seeds, tasks):
            differences += some
            found += verdicts_found
    return differences, found


def size_of(document):
    layout = document["layout"]
    dp = layout.get("dp", layout.get("dp_shard", 1) * layout.get("dp_replicate", 1))
    world = math.prod([layout.get(axis, 1) for axis in ("tp", "cp", "sp", "pp")]) * dp
    return world * sum(math.prod(parameter["shape"]) for parameter in document["model"]["parameters"])


def compare_file(binary, file):
    """(difference or None, "compared" or why not)."""
    shown = subprocess.run([binary, "show", str(file), "--resolved"], capture_output=True, text=True, check=False)
    if shown.returncode:
        return f"`show --resolved` failed: {shown.stderr[:500]}", "compared"
    document = json.loads(shown.stdout, parse_float=Fraction)
    if size_of(document) > SMALL:
        return None, "too large"
    try:
        judged = judge(document)
    except ModelEdits:
        return None, "edits of the model"
    return safe_difference(check_files(binary, [file])[0], judged), "compared"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.environ.get("LOCKSTEP_BINARY"), help="default: $LOCKSTEP_BINARY")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--out", type=pathlib.Path, help="folder that keeps the files that differ")
    parser.add_argument("--files", type=pathlib.Path, nargs="*", help="compare these files and folders instead")
    arguments = parser.parse_args()
    if not arguments.binary:
        parser.error("--binary or LOCKSTEP_BINARY must name the program")
    if not shutil.which(arguments.binary):
        print(f"{arguments.binary} is no program", file=sys.stderr)
        return 2
    if arguments.files is not None:
        files = [
            file for path in arguments.files for file in (sorted(path.rglob("*.json*")) if path.is_dir() else [path])
        ]
        results = [(file, *compare_file(arguments.binary, file)) for file in files]
        differences = [("file", file, difference) for file, difference, _ in results if difference]
        whys = [why for _, _, why in results]
        for file, _, why in results:
            if why == "edits of the model":
                print(f"skipped, {why}: {file}")
        left_out = ", ".join(f"{whys.count(why)} {why}" for why in sorted(set(whys) - {"compared"}))
        text = f"{whys.count('compared')} of {len(files)} files compared; left out: {left_out or 'none'}"
    else:
        folder = arguments.out or pathlib.Path(tempfile.mkdtemp(prefix="lockstep-oracle-"))
        folder.mkdir(parents=True, exist_ok=True)
        differences, found = compare_random(arguments.binary, arguments.seed, arguments.count, folder)
        if not differences and not arguments.out:
            shutil.rmtree(folder)
        text = f"{len(found)} scenarios compared: " + ", ".join(f"{v} {found.count(v)}" for v in sorted(set(found)))
    for what, file, difference in differences:
        print(f"{what}: {file}: {difference}")
    print(f"{text}; {len(differences)} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
