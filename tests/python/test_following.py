# SPDX-License-Identifier: Apache-2.0
"""What an extraction knows of memory (lockstep.extracting): random programs of torch operations, run twice with other gradients."""

import pytest

from torch_ranks import HERE, IS_NIGHTLY, python, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")


def test_nothing_false_is_said_of_what_memory_holds():
    told = python(HERE / "following.py", "1", "20000" if IS_NIGHTLY else "800").split()
    counts = {" ".join(told[place:place + 1]): int(told[place + 1]) for place in range(0, 4, 2)}
    assert counts["foreign"] > 1000 and counts["known"] > 1000
