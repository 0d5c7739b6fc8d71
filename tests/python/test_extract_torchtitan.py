# SPDX-License-Identifier: Apache-2.0
"""`lockstep extract` of torchtitan's models, cut by its own parallelize functions (torchtitan_extracted.py): layouts that are right, and mistakes in a copy of
these functions. torchtitan takes long to load, so that all of it runs with tools/nightly.
"""

import json
import sys

import pytest

from test_extract import extract, judged
from test_extract_frameworks import there
from torch_ranks import HERE, nightly, torch_python

pytestmark = [nightly, pytest.mark.skipif(torch_python() is None or not there("torchtitan"), reason="no Python with torch and torchtitan")]

# The script's arguments, how many ranks, the mesh, and what `check` finds; "" of a right one.
CASES = {
    "llama3": (["llama3"], 4, {"fsdp": 4}, ""),
    "llama3, tensor parallel": (["llama3", "tp=2", "accumulate=2"], 8, {"fsdp": 4, "tp": 2}, ""),
    "llama3, replicas": (["llama3", "replicate=2", "tp=2"], 8, {"dp_replicate": 2, "fsdp": 2, "tp": 2}, ""),
    "deepseek_v3": (["deepseek_v3", "ep=2", "tp=2"], 8, {"fsdp": 4, "tp": 2}, ""),
    "deepseek_v3, replicas": (["deepseek_v3", "ep=2", "replicate=2"], 4, {"dp_replicate": 2, "fsdp": 2}, ""),
    "llama3 of which replicas are forgotten": (["llama3", "replicate=2", "replicas-forgotten"], 4, {"dp_replicate": 2, "fsdp": 2},
                                               "the shares of dp 2 and 3 are missing"),
    "llama3 that is divided": (["llama3", "divided"], 4, {"fsdp": 4}, "1/4 where 1 was expected"),
    "a layer that is not reduced": (["llama3", "last-layer-not-reduced"], 4, {"fsdp": 4}, "the optimizer gets no gradient, and backward yields one"),
    "experts of which replicas are forgotten": (["deepseek_v3", "ep=2", "replicate=2", "replicas-of-experts-forgotten"], 4, {"dp_replicate": 2, "fsdp": 2},
                                                " missing"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_layout_is_right_or_its_mistake_is_found(tmp_path, case):
    arguments, ranks, mesh, said = CASES[case]
    extract(tmp_path / "step.json", HERE / "torchtitan_extracted.py", *arguments, ranks=ranks, loss="sum")
    report = judged("check", tmp_path / "step.json")
    assert report["verdict"] == ("mismatch" if said else "match"), json.dumps(report)[:3000]
    assert {axis: size for axis, size in report["mesh"].items() if size > 1} == mesh and said in json.dumps(report)
    assert not said or any(piece["verdict"] == "wrong" for piece in report["results"])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
