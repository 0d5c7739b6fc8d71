# SPDX-License-Identifier: Apache-2.0
"""What an extraction knows of memory (lockstep.extracting): random programs of torch operations, run twice with other gradients."""

import pytest

from torch_ranks import HERE, IS_NIGHTLY, python, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")


def test_a_number_is_the_fraction_that_was_meant():
    numbers = {"1 / 3": "1/3", "1 / 46": "1/46", "0.1": "1/10", "2.0 ** -40": "1/%d" % 2 ** 40, "3 * 2.0 ** -30": "3/%d" % 2 ** 30, "171 / 512": "171/512", "True": "1",
               "tensor(1 / 3)": "1/3", "tensor(1 / 3).item()": "1/3", "tensor(2.0 ** -32)": "1/%d" % 2 ** 32, "tensor(1000.0)": "1000",
               "tensor(1 / 3, dtype=torch.bfloat16)": "1/3", "tensor(1000.0, dtype=torch.bfloat16)": "1000", "tensor(0.75, dtype=torch.bfloat16)": "3/4",
               "tensor(1 / 3, dtype=torch.float16)": "1/3", "tensor([0.1, 0.1])": "1/10", "tensor(7)": "7"}
    told = python("-c", "import sys\nsys.path.insert(0, %r)\nimport torch\nfrom torch import tensor\nfrom lockstep.extracting.contents import fraction_of\n"
                  "from lockstep.extracting.rules import scalar\nfor number in (%s,): print(fraction_of(*scalar(number)))"
                  % (str(HERE.parents[1] / "python"), ", ".join(numbers)))
    assert dict(zip(numbers, told.split())) == numbers


def test_a_factor_is_read_at_the_precision_in_which_torch_applies_it():
    numbers = {"1 / 49 * 49 / 4, torch.float32": "1/4", "0.1 * 3 / 0.3 / 4, torch.bfloat16": "1/4", "0.1 * 3 / 0.3 / 4, torch.float16": "1/4",
               "1 / 3, torch.float32": "1/3", "1 / 3, torch.float64": "1/3", "1 / 49 * 49 / 4, torch.float64": "1501199875790166/6004799503160665",
               "2 ** 40 + 1, torch.float32": str(2 ** 40 + 1), "tensor(1 / 3, dtype=torch.bfloat16), torch.float32": "1/3"}
    told = python("-c", "import sys\nsys.path.insert(0, %r)\nimport torch\nfrom torch import tensor\nfrom lockstep.extracting.contents import fraction_of\n"
                  "from lockstep.extracting.rules import as_applied\nfor one in (%s,): print(fraction_of(*as_applied(*one)))"
                  % (str(HERE.parents[1] / "python"), ", ".join("(%s)" % number for number in numbers)))
    assert dict(zip(numbers, told.split())) == numbers


def test_nothing_false_is_said_of_what_memory_holds():
    told = python(HERE / "following.py", "1", "20000" if IS_NIGHTLY else "200").split()
    counts = {" ".join(told[place:place + 1]): int(told[place + 1]) for place in range(0, 4, 2)}
    assert counts["foreign"] > 1000 and counts["known"] > 1000
