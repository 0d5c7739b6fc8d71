# SPDX-License-Identifier: Apache-2.0
"""Which gradients a tensor has (lockstep.carrying)."""

import pytest

from torch_ranks import HERE, python, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")


def test_gradients_are_followed_in_memory():
    assert python(HERE / "carrying.py").startswith("counted: ")
