# SPDX-License-Identifier: Apache-2.0
"""For the tests of the capture: ranks on a Python that has torch, the files that they leave, and a small least-squares solver."""

import atexit
import functools
import json
import math
import os
import select
import signal
import struct
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PROGRAM = os.environ.get("LOCKSTEP_BINARY", "lockstep")


# Where a framework takes long to load, few of its cases run with every change: all of them with tools/nightly, or where a file of tests is
# asked for by its name.
IS_NIGHTLY = "LOCKSTEP_NIGHTLY" in os.environ
nightly = pytest.mark.skipif(not IS_NIGHTLY, reason="takes long: tools/nightly runs it, and tools/test --only with the name of its file")


def nightly_but(cases, short):
    """Parameters of a test: all cases, of which those that are not in `short` are skipped, visibly, but in tools/nightly."""
    return [case if case in short else pytest.param(case, marks=nightly) for case in cases]


@functools.lru_cache(None)
def torch_python():
    """A Python with torch: LOCKSTEP_TORCH_PYTHON, this one, or that of tools/install-torch; None where there is none."""
    installed = HERE.parents[1] / "build" / "torch" / "bin" / "python"
    candidates = [os.environ.get("LOCKSTEP_TORCH_PYTHON"), sys.executable, installed if installed.exists() else None]
    for candidate in filter(None, candidates):
        look = [candidate, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"]
        if subprocess.run(look, capture_output=True, check=False).returncode == 0:
            return str(candidate)
    return None


def python(*arguments):
    """What a program of ours prints on the Python that has torch."""
    done = subprocess.run([torch_python(), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env=clean_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def LOCKSTEP(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clean_environment():
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH", "MASTER_", "RANK", "WORLD_SIZE"))}
    return dict(kept, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", GLOO_SOCKET_IFNAME="lo")


class Forked:
    """A worker that is loaded once, of which each rank is a fork (forked.py)."""

    def __init__(self, program):
        self.process = subprocess.Popen([torch_python(), HERE / "forked.py", Path(program).stem], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=clean_environment(), start_new_session=True)

    def run(self, folder, world, cases, limit):
        """The exit statuses of the ranks, and what they said."""
        ranks = [[str(folder), str(rank), str(world), *cases] for rank in range(world)]
        self.process.stdin.write(json.dumps(ranks) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], limit)[0]:
            self.end()
            raise AssertionError("it took longer than %d s" % limit)
        answer = self.process.stdout.readline()
        assert answer, "the process that loads %s has ended" % self.process.args[-1]
        return tuple(zip(*json.loads(answer)))

    def end(self):
        """With all ranks."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


LOADED = {}


def forked(program):
    """One for all tests of a file; it ends with them, or with a run that took too long."""
    if program not in LOADED or LOADED[program].process.poll() is not None:
        LOADED[program] = Forked(program)
        atexit.register(LOADED[program].end)
    return LOADED[program]


def ran(folder, world, cases, program="worker.py", limit=300):
    """Runs worker.py with these cases on `world` ranks."""
    statuses, said = forked(program).run(folder, world, cases, limit)
    assert not any(statuses), "\n".join(["exit statuses %s" % list(statuses), *said])


def rows_of(content):
    """The rows of a file of sketches, as docs/capture.md has it."""
    length, = struct.unpack("<Q", content[:8])
    tensors = json.loads(content[8:8 + length])
    found = {name: struct.unpack("<%d%s" % ((one["data_offsets"][1] - one["data_offsets"][0]) // (8 if one["dtype"] == "F64" else 4),
                                            {"F64": "d", "I32": "i"}[one["dtype"]]),
                                 content[8 + length + one["data_offsets"][0]:8 + length + one["data_offsets"][1]])
             for name, one in tensors.items()}
    rows, sums = tensors["sketches"]["shape"]
    scales = [2.0**exponent for exponent in found["exponents"]] if "exponents" in found else [1.0] * rows
    return [tuple(value * scales[row] for value in found["sketches"][row * sums:(row + 1) * sums]) for row in range(rows)]


def read_run(folder):
    """What each rank recorded: its first line, its events by kind, and the rows of each step's sketches."""
    ranks = []
    for path in sorted(folder.glob("rank-*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        events = defaultdict(list)
        for line in lines[1:]:
            events[line["event"]].append(line)
        sketches = {}
        for file in folder.glob(path.stem + ".step-*.safetensors"):
            sketches[int(file.stem.split("-")[-1])] = rows_of(file.read_bytes())
        ranks.append(dict(lines[0], events=events, sketches=sketches))
    assert ranks and [rank["rank"] for rank in ranks] == list(range(ranks[0]["world"]))
    return ranks


def norm(vector):
    return math.sqrt(sum(value * value for value in vector))


def dot(one, other):
    return sum(a * b for a, b in zip(one, other))


def least_squares(columns, target):
    """Coefficients for which the sum of the columns comes nearest to the target (Gram and Schmidt, twice), and how far it stays away,
    relative to the target; None where a column is made of the others."""
    basis, triangle = [], []
    for column in columns:
        left, row = list(column), [0.0] * len(basis)
        for _ in range(2):
            for number, vector in enumerate(basis):
                part = dot(left, vector)
                row[number] += part
                left = [a - part * b for a, b in zip(left, vector)]
        length = norm(left)
        if length <= 1e-4 * norm(column):
            return None
        basis.append([a / length for a in left])
        triangle.append(row + [length])
    left, parts = list(target), []
    for vector in basis:
        parts.append(dot(left, vector))
        left = [a - parts[-1] * b for a, b in zip(left, vector)]
    coefficients = [0.0] * len(columns)
    for number in reversed(range(len(columns))):
        above = sum(triangle[later][number] * coefficients[later] for later in range(number + 1, len(columns)))
        coefficients[number] = (parts[number] - above) / triangle[number][number]
    return coefficients, norm(left) / (norm(target) or 1)


class Formula:
    """A result and the contributions that it may be made of."""

    def __init__(self, columns, target):
        self.columns, self.target = columns, target
        self.solved = least_squares(list(columns.values()), target)

    def is_sum_of(self, expected):
        """Whether it is this sum of {column: coefficient}, and, where the contributions can be told apart, no other."""
        assert expected.keys() <= self.columns.keys()
        made = [sum(factor * self.columns[column][place] for column, factor in expected.items()) for place in range(len(self.target))]
        fits = norm([a - b for a, b in zip(made, self.target)]) <= 1e-5 * norm(self.target)
        if self.solved is None:
            return fits
        coefficients = dict(zip(self.columns, self.solved[0]))
        return fits and all(abs(value - expected.get(column, 0)) < 1e-3 for column, value in coefficients.items())


def recovered(ranks, step, before=False):
    """{(rank, parameter, piece): Formula} of every result of a step, in columns (rank, micro-batch). Equal contributions of several ranks
    are one, that of the lowest; with `before`, those of the step before are (rank, micro-batch, "before")."""
    columns = defaultdict(dict)
    for number, rank in enumerate(ranks):
        for line in rank["events"]["contribution"]:
            if line["step"] in ((step - 1, step) if before else (step,)):
                column = (number, line["micro_batch"]) + (("before",) if line["step"] < step else ())
                known = columns[line["parameter"], line["piece"]]
                row = rank["sketches"][line["step"]][line["row"]]
                if column in known:  # another backward pass of the micro-batch
                    known[column] = (known[column][0] + line["hash"], [sum(values) for values in zip(known[column][1], row)])
                elif line["hash"] not in {other for other, _ in known.values()}:
                    known[column] = (line["hash"], row)
    shares, own = defaultdict(dict), {}
    for number, rank in enumerate(ranks):
        for line in rank["events"]["result"]:
            if line["step"] == step and line["row"] is not None:
                row = rank["sketches"][step][line["row"]]
                if line.get("partial"):
                    shares[line["parameter"], line["piece"]][number] = row
                else:
                    own[number, line["parameter"], line["piece"]] = row
    for (parameter, piece), rows in shares.items():  # all ranks are one group here
        own[0, parameter, piece] = [sum(values) for values in zip(*rows.values())]
    return {place: Formula({column: sketch for column, (_, sketch) in columns[place[1:]].items()}, row) for place, row in own.items()}
