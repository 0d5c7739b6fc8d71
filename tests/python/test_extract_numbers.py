# SPDX-License-Identifier: Apache-2.0
"""Numbers of Python's that a script makes of what other ranks have sent, where that is not known (`lockstep extract`)."""

import json
import sys

import pytest

from test_extract import of_script
from torch_ranks import nightly_but, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

# What becomes a number of Python's of what is not known, and no number at all: how the gradients are multiplied by it.
NOT_KNOWN = {
    "a sum of floats": "n = torch.tensor([0.5 * R + 1.25]); dist.all_reduce(n)\nfor p in model.parameters(): p.grad *= (0.5 * R + 1.25) / n.item()",
    "what was gathered": "l = [torch.zeros(1) for _ in range(4)]; dist.all_gather(l, torch.tensor([1.0 + R]))\nfor p in model.parameters(): p.grad *= 1 / sum(map(float, l))",
    "many whole numbers": "n = torch.full((5000,), R + 1); dist.all_reduce(n)\nfor p in model.parameters(): p.grad *= 1 / n[0].item()",
    "a branch on equal floats": "n = torch.tensor([0.5 * R + 1.25]); dist.all_reduce(n)\nif n.item() == 4 * (0.5 * R + 1.25): [p.grad.mul_(2) for p in model.parameters()]",
    "a branch on the size of a loss": "n = torch.tensor(0.3 + R % 2); n *= 1.5; before = n.item(); dist.all_reduce(n)\n"
                                      "if n.item() / 4 > 0.9 * before: [p.grad.mul_(2) for p in model.parameters()]",
    "what ends with an error where the sum is another": "n = torch.tensor([0.3]); dist.all_reduce(n)\nassert abs(n.item() / 4 - 0.3) < 0.01",
}


@pytest.mark.parametrize("what", nightly_but(list(NOT_KNOWN), list(NOT_KNOWN)[2:4]))
def test_numbers_of_python_that_are_made_of_what_is_not_known_are_not_known(tmp_path, what):
    text = "R = dist.get_rank()\n" + NOT_KNOWN[what] + "\nfor p in model.parameters(): reduced(p.grad)\noptimizer.step()\n"
    report = of_script(tmp_path, text)
    assert report["verdict"] == "undecided" and "or of what other ranks have sent" in json.dumps(report)


def test_what_is_told_of_a_loss_changes_no_gradient(tmp_path):
    text = "loss = torch.tensor(0.3 + dist.get_rank()); dist.all_reduce(loss); print(loss.item() / 4)\n"
    assert of_script(tmp_path, text + "for p in model.parameters(): reduced(p.grad)\noptimizer.step()\n")["verdict"] == "match"


def test_objects_that_ranks_gather_are_what_each_of_them_has_sent_however_long(tmp_path):
    text = ("there = [None] * 4\ndist.all_gather_object(there, {dist.get_rank(): 'x' * 50 * dist.get_rank()})\nn = len({rank: 0 for one in there for rank in one})\n"
            "for p in model.parameters():\n  dist.all_reduce(p.grad)\n  p.grad /= n\noptimizer.step()\n")
    assert of_script(tmp_path, text)["verdict"] == "match"
    assert "g0+g1+g2+g3)/8" in json.dumps(of_script(tmp_path, text.replace("p.grad /= n", "p.grad /= 2 * n")))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
