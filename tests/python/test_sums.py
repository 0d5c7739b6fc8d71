# SPDX-License-Identifier: Apache-2.0
"""Hash and sketch in torch operations: the values of docs/hash.md and docs/sketch.md, of the Python written there, and of `lockstep hash`."""

import json
import math
import re
from fractions import Fraction
from pathlib import Path

import pytest

from torch_ranks import HERE, LOCKSTEP, python, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")
DOCS = Path(__file__).resolve().parents[2] / "docs"


def definition(name):
    """The functions that a document defines in Python."""
    names = {}
    exec(re.search(r"```python\n(import .*?)```", (DOCS / name).read_text(), re.DOTALL)[1], names)
    return names


def table(name, columns):
    """Rows of the table of test vectors."""
    text = (DOCS / name).read_text().split("## Test vectors")[1]
    rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows[2:] if len(row) == columns]


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """What the Python with torch makes of the vectors of the documents and of tensors that it draws."""
    folder = tmp_path_factory.mktemp("sums")
    hashes = [[dtype, first, [] if elements == "(none)" else elements.split()] for dtype, first, elements, _ in table("hash.md", 4)
              if dtype != "prime61"]
    (folder / "vectors.json").write_text(json.dumps(hashes))
    return folder, json.loads(python(HERE / "sums.py", folder))


def test_hashes_are_those_of_the_document(computed):
    expected = [row[3] for row in table("hash.md", 4) if row[0] != "prime61"]
    assert computed[1]["hashes"] == expected and len(expected) > 20


def test_sketches_are_those_of_the_document(computed):
    expected = [[float.fromhex(cell) for cell in row[4:]] for row in table("sketch.md", 7)]
    assert [[row[0], row[1], row[63]] for row in computed[1]["vectors"]] == expected and len(expected) == 4


def test_sketches_of_every_dtype_and_any_bits_are_exact(computed):
    sketch = definition("sketch.md")["sketch"]
    for drawn in computed[1]["drawn"]:
        values = [float.fromhex(value) for value in drawn["values"]]
        expected = [value.hex() for value in sketch(values, drawn["first"], drawn["sums"], drawn["seed"])]
        assert drawn["sketch"] == expected, drawn["dtype"]
        assert drawn["nonfinite"] == sum(not math.isfinite(value) for value in values)
    assert {drawn["dtype"] for drawn in computed[1]["drawn"]} == {"float32", "float64", "bfloat16", "float16"}


def test_a_file_keeps_thirty_bits_of_the_largest_sum_or_all_of_every_sum(computed):
    for name, (size, *rows) in computed[1]["kept"].items():
        before, after = ([[float.fromhex(value) for value in row] for row in one] for one in rows)
        assert (size < 3 * 64 * 4 + 200) == (name in ("drawn", "sparse")), name
        if name == "drawn":
            assert before != after
            for row, kept in zip(before, after):
                unit = 2.0**(math.frexp(max(map(abs, row)))[1] - 30)
                assert all(abs(value - other) <= unit / 2 and other % unit == 0 for value, other in zip(row, kept))
        else:
            assert before == after, name


def test_sums_are_rounded_to_the_nearest_and_to_even_in_the_middle(computed):
    for digits, found in computed[1]["rounded"]:
        exact = sum(Fraction(digit) * 2**(32 * place) for place, digit in enumerate(digits)) / 2**1074
        try:
            expected = float(exact)
        except OverflowError:
            expected = math.inf if exact > 0 else -math.inf
        assert float.fromhex(found) == expected, digits


def test_lockstep_hash_gives_the_same_hashes_of_the_same_files(computed):
    folder, sums = computed
    lines = LOCKSTEP("hash", folder / "drawn.safetensors").splitlines()[1:]
    assert {line.split()[0]: line.split()[-1] for line in lines} == sums["files"] and len(lines) == 16
    for name, shard, expected in sums["shards"]:
        options = [part for dim in shard for part in ("--shard", dim)]
        line, = LOCKSTEP("hash", folder / (name + ".safetensors"), *options).splitlines()[1:]
        assert line.split()[-1] == expected, (name, shard)
