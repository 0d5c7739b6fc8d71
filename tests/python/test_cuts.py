# SPDX-License-Identifier: Apache-2.0
"""Pieces of parameters that tensor and expert parallelism and owners cut (lockstep.cuts)."""

import pytest

from torch_ranks import HERE, python, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")


def test_each_piece_is_the_elements_that_it_says_and_all_are_the_whole():
    assert python(HERE / "cuts.py").startswith("counted: ")
