# SPDX-License-Identifier: Apache-2.0
"""The corpus: every file in scenarios/ is valid for an independent validator, and comes out as it says."""

import json
import os
import subprocess
from pathlib import Path

import jsonschema
import pytest

from jsonc import read

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ["LOCKSTEP_BINARY"]
SCHEMA = ROOT / "schema" / "scenario.schema.json"
# Made once: to understand the schema takes longer than to hold a scenario against it.
VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
SCENARIOS = sorted(path for path in (ROOT / "scenarios").rglob("*") if path.suffix in (".json", ".jsonc"))

def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT)


def test_the_schema_is_what_the_program_prints():
    printed = run("schema")
    assert printed.returncode == 0, printed.stderr
    hint = "write it anew: tools/lockstep schema -o schema/scenario.schema.json"
    assert SCHEMA.read_text(encoding="utf-8") == printed.stdout, hint


def test_the_schema_is_a_schema_and_refuses_nonsense():
    jsonschema.Draft202012Validator.check_schema(VALIDATOR.schema)
    good = read(SCENARIOS[0])
    VALIDATOR.validate(good)
    assert not VALIDATOR.is_valid({**good, "layuot": {}})
    assert not VALIDATOR.is_valid({**good, "layout": {"dp": "two"}})


def test_there_are_scenarios():
    assert len(SCENARIOS) >= 20


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: str(path.relative_to(ROOT)))
def test_scenario_is_valid_for_an_independent_validator(path):
    VALIDATOR.validate(read(path))


def test_every_scenario_comes_out_as_expected():
    result = run("test", "scenarios/")
    assert result.returncode == 0, result.stdout + result.stderr
