# SPDX-License-Identifier: Apache-2.0
"""The sections of DeepSpeed's configuration in which it refuses what it does not know, as src/importers/deepspeed.jsonc has them, against the package."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest

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
}


@pytest.fixture(scope="module")
def package():
    found = importlib.util.find_spec("deepspeed")  # which does not import it
    if found is None or not found.submodule_search_locations:
        pytest.skip("DeepSpeed is not installed")
    return Path(found.submodule_search_locations[0])


def fields(path, name):
    """The annotated members of a class, and the class that it inherits from."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            members = [line.target.id for line in node.body if isinstance(line, ast.AnnAssign)]
            return [member for member in members if not member.startswith("_")], [base.id for base in node.bases]
    raise AssertionError(f"{path} has no class {name}")


def test_every_section_has_the_keys_that_deepspeed_knows_there(package):
    text = (ROOT / "src/importers/deepspeed.jsonc").read_text(encoding="utf-8")
    table = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))
    assert set(table["sections"]) == set(CLASSES)
    for section, (file, name) in CLASSES.items():
        known, bases = fields(package / file, name)
        assert bases == ["DeepSpeedConfigModel"], section
        assert table["sections"][section] == known, section


def test_what_deepspeed_does_not_know_there_it_refuses(package):
    assert 'extra="forbid"' in (package / "runtime/config_utils.py").read_text(encoding="utf-8")
