# SPDX-License-Identifier: Apache-2.0
"""The sections of DeepSpeed's configuration in which it refuses what it does not know, as src/importers/deepspeed.jsonc has them, against the package."""

import ast
import json
import re
import subprocess
from pathlib import Path

import pytest

from torch_ranks import torch_python

ROOT = Path(__file__).resolve().parents[2]
# Where a section's class stands, below the package.
CLASSES = {
    "fp16": ("runtime/precision_config.py", "DeepSpeedFP16Config"),
    "bf16": ("runtime/precision_config.py", "DeepSpeedBF16Config"),
    "bfloat16": ("runtime/precision_config.py", "DeepSpeedBF16Config"),
    "tensorboard": ("monitor/config.py", "TensorBoardConfig"),
    "wandb": ("monitor/config.py", "WandbConfig"),
    "csv_monitor": ("monitor/config.py", "CSVConfig"),
    "comet": ("monitor/config.py", "CometConfig"),
    "comms_logger": ("comm/config.py", "CommsLoggerConfig"),
    "hybrid_engine": ("runtime/config.py", "HybridEngineConfig"),
    "zero_optimization": ("runtime/zero/config.py", "DeepSpeedZeroConfig"),
    "zero_optimization.offload_param": ("runtime/zero/offload_config.py", "DeepSpeedZeroOffloadParamConfig"),
    "zero_optimization.offload_optimizer": ("runtime/zero/offload_config.py", "DeepSpeedZeroOffloadOptimizerConfig"),
    "zero_optimization.leaf_module": ("runtime/zero/leaf_module_config.py", "DeepSpeedZeroLeafModuleConfig"),
    "tensor_parallel": ("runtime/tensor_parallel/config.py", "TPTrainingConfig"),
    "tensor_parallel.tensor_parallel": ("runtime/tensor_parallel/config.py", "TPConfig"),
    "tensor_parallel.tp": ("runtime/tensor_parallel/config.py", "TPConfig"),
    "compile": ("compile/config.py", "CompileConfig"),
}


@pytest.fixture(scope="module")
def package():
    look = "import importlib.util as u; found = u.find_spec('deepspeed'); print(found.submodule_search_locations[0] if found else '')"  # which does not import it
    found = subprocess.run([torch_python(), "-c", look], capture_output=True, text=True, check=True).stdout.strip() if torch_python() else ""
    if not found:
        pytest.skip("no Python with DeepSpeed (LOCKSTEP_TORCH_PYTHON names one)")
    return Path(found)


@pytest.fixture(scope="module")
def table():
    return json.loads(re.sub(r"^\s*//.*$", "", (ROOT / "src/importers/deepspeed.jsonc").read_text(encoding="utf-8"), flags=re.M))


def fields(path, name):
    """The annotated members of a class, each with its second name, and the class that it inherits from."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            members = []
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and not line.target.id.startswith("_"):
                    more = line.value.keywords if isinstance(line.value, ast.Call) else []
                    members += [line.target.id, *(keyword.value.value for keyword in more if keyword.arg == "alias")]
            return members, [base.id for base in node.bases]
    raise AssertionError(f"{path} has no class {name}")


def test_every_section_has_the_keys_that_deepspeed_knows_there(package, table):
    assert set(table["sections"]) == set(CLASSES)
    for section, (file, name) in CLASSES.items():
        known, bases = fields(package / file, name)
        assert bases == ["DeepSpeedConfigModel"], section
        assert table["sections"][section] == known, section


def test_the_release_is_the_one_that_the_sections_were_read_from(package, table):
    assert table["release"] == "DeepSpeed " + (package / "git_version_info_installed.py").read_text(encoding="utf-8").split("'")[1]


def test_what_deepspeed_does_not_know_there_it_refuses(package):
    assert 'extra="forbid"' in (package / "runtime/config_utils.py").read_text(encoding="utf-8")
