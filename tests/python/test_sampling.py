# SPDX-License-Identifier: Apache-2.0
"""A capture that looks at a part of the elements (lockstep.sampling): the part that docs/capture.md names, whatever the pieces are."""

import pytest

from torch_ranks import HERE, IS_NIGHTLY, python, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")


def test_pieces_of_a_sample_add_up_to_the_sample_of_the_document():
    rounds = 60 if IS_NIGHTLY else 15
    name, count = python(HERE / "sampling.py", str(rounds)).split(": ")
    assert name == "compared" and int(count) > rounds / 2
