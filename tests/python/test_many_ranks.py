# SPDX-License-Identifier: Apache-2.0
"""Extractions of many ranks: what is done for all at once is what each of them would have done, and with --all-ranks one that does something else is found."""

import json

import pytest

from test_extract import extract, judged
from torch_ranks import HERE, nightly, python, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

# Rank 66 of 69 is none of those that are played where all do the same.
ONE_DIFFERS = """
import sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(1)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
differs = dist.get_rank() == 66
for micro in range(2):
    loss = model(torch.ones(1, 2)).sum() / 2
    if micro == 0 or not (differs and sys.argv[1] == "leaves out a backward"):
        loss.backward()
for parameter in model.parameters():
    dist.all_reduce(parameter.grad)
    parameter.grad /= dist.get_world_size() * (2 if differs and sys.argv[1] == "divides twice" else 1)
optimizer.step()
"""


def test_what_is_done_for_all_ranks_at_once_is_what_it_is_for_each():
    told = python(HERE / "many_ranks.py").split()
    assert told[0] == "compared:" and int(told[1]) > 100 and int(told[6]) >= 7


@nightly
@pytest.mark.parametrize("what, verdict, said", [("leaves out a backward", "undecided", "rank 66 yields gradients of 1 micro-batch, and rank 68 of 2"),
                                                 ("divides twice", "mismatch", "66")])
def test_one_rank_that_does_something_else_is_found_where_all_are_played(tmp_path, what, verdict, said):
    script = tmp_path / "train.py"
    script.write_text(ONE_DIFFERS)
    extract(tmp_path / "step.json", script, what, ranks=69, loss="local_mean", every=True, limit=600)
    programs = json.loads((tmp_path / "step.json").read_text())["programs"]
    assert sorted(len(program["played"]) for program in programs) == [1, 68]
    assert next(program["ranks"] for program in programs if len(program["played"]) == 1) == [[66, 67]]
    report = judged("check", tmp_path / "step.json")
    assert report["verdict"] == verdict and said in json.dumps(report), report
