# SPDX-License-Identifier: Apache-2.0
"""docs/sketch.md: its Python gives its test vectors, which tests/numeric/sketch_test.cpp holds against the C++."""

import pathlib
import re

import pytest

TEXT = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "sketch.md").read_text(encoding="utf-8")
PROGRAM = {}
exec(re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)[1], PROGRAM)
sketch = PROGRAM["sketch"]

VALUES = {
    "a": [i * i % 17 - 8 for i in range(1000)],
    "b": [0.1 * i for i in range(300)],
    "c": [1e300, 1e-300, 5e-324] * 50,
}


def test_the_vectors_are_those_of_the_program():
    rows = re.findall(r"^\| ([abc]) \| (\d+) \| (\d+) \| (\d+) \| (\S+) \| (\S+) \| (\S+) \|$", TEXT, re.MULTILINE)
    assert len(rows) == 4
    for name, first, sums, seed, *wanted in rows:
        found = sketch(VALUES[name], int(first), int(sums), int(seed))
        assert [found[0], found[1], found[63]] == [float.fromhex(each) for each in wanted]
    assert {i: value for i, value in enumerate(sketch([1.0])) if value} == {172: -1.0}


def test_sketches_are_linear_and_least_squares_recovers_coefficients():
    np = pytest.importorskip("numpy")
    random = np.random.default_rng(7)
    contributions = random.integers(-1000, 1000, (4, 3000))
    wanted = [0.5, 0.0, 1.0, -3.0]
    columns = [sketch(map(int, each), 50) for each in contributions]
    total = sketch([float(each) for each in wanted @ contributions], 50)
    assert total == [float(sum(w * c for w, c in zip(wanted, row))) for row in zip(*columns)]
    found = np.linalg.lstsq(np.array(columns).T, np.array(total), rcond=None)[0]
    assert np.allclose(found, wanted, rtol=0, atol=1e-9)


def test_a_numpy_version_of_the_whole_gives_the_same_sums():
    """Whole numbers, whose float64 sums are exact in any order."""
    np = pytest.importorskip("numpy")
    values, first, sums = np.arange(-500, 1500) ** 2 % 1001, 2**40 + 17, 192
    key = PROGRAM["splitmix"](5, 2048)
    index = first + np.arange(len(values), dtype=np.uint64)
    block, place = index // 64, index % 64
    where = np.array([PROGRAM["splitmix"](key, 2 * int(b)) for b in block], dtype=np.uint64)
    signs = np.array([PROGRAM["splitmix"](key, 2 * int(b) + 1) for b in block], dtype=np.uint64)
    chosen = 64 * ((where >> np.uint64(32)) * np.uint64(sums // 64) >> np.uint64(32)) + (where + place) % 64
    signed = np.where(signs >> place & np.uint64(1), -values, values)
    wanted = np.bincount(chosen.astype(np.int64), weights=signed, minlength=sums)
    assert sketch(map(int, values), first, sums, 5) == wanted.tolist()
