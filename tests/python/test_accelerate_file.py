# SPDX-License-Identifier: Apache-2.0
"""What accelerate takes at the top of its file, as src/importers/accelerate.jsonc has it, against the package."""

import ast
import json
import re
import subprocess
from pathlib import Path

import pytest

from torch_ranks import torch_python

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def source():
    look = "import importlib.util as u; found = u.find_spec('accelerate'); print(found.submodule_search_locations[0] if found else '')"  # which does not import it
    found = subprocess.run([torch_python(), "-c", look], capture_output=True, text=True, check=True).stdout.strip() if torch_python() else ""
    if not found:
        pytest.skip("no Python with accelerate (LOCKSTEP_TORCH_PYTHON names one)")
    return (Path(found) / "commands/config/config_args.py").read_text(encoding="utf-8")


def test_the_keys_at_the_top_are_those_of_the_package(source):
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    fields = [line.target.id for name in ("BaseConfig", "ClusterConfig") for line in classes[name].body if isinstance(line, ast.AnnAssign)]
    fields += [one or other for one, other in re.findall(r'del config_dict\["(\w+)"\]|config_dict\.pop\("(\w+)"\)', source)]
    table = json.loads(re.sub(r"^\s*//.*$", "", (ROOT / "src/importers/accelerate.jsonc").read_text(encoding="utf-8"), flags=re.M))
    assert sorted(table["top"]) == sorted(fields)


def test_other_keys_are_refused(source):
    assert source.count("extra_keys = sorted(set(config_dict.keys()) - set(cls.__dataclass_fields__.keys()))") == 2
    assert source.count("had unknown keys") == 2
