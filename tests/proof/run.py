#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the printed proofs of all scenarios, or of those that are named, with the second checker. tools/proofs calls this.

Exit status 1 if a proof does not follow.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from checker import check_proof
from functions import WrongProof

ROOT = Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog="tools/proofs")
    parser.add_argument("files", nargs="*", type=Path, help="scenarios; default: all of the corpus that fit one host")
    arguments = parser.parse_args()
    files = arguments.files or sorted(path for path in ROOT.glob("scenarios/*/*.json") if path.parent.name != "scale")
    wrong, totals = [], [0, 0, 0, 0]
    for number, path in enumerate(files):
        if sys.stderr.isatty():
            print(f"\r\033[K{number + 1} of {len(files)}: {path.name}", end="", file=sys.stderr, flush=True)
        done = subprocess.run([os.environ["LOCKSTEP_BINARY"], "prove", "-f", "json", "--proof", str(path)],
                              capture_output=True, text=True, check=False)
        if not done.stdout:
            continue  # it is no valid scenario, as some of the corpus are meant not to be
        try:
            totals = [total + more for total, more in zip(totals, (1, *check_proof(json.loads(done.stdout))))]
        except WrongProof as error:
            wrong.append(f"{path}: {error}")
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print("\n".join([*wrong, "{} proofs follow: {} classes, {} steps, {} points".format(*totals)]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
