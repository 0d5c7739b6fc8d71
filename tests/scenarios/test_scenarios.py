# SPDX-License-Identifier: Apache-2.0
"""The corpus: every file in scenarios/ is valid for an independent validator, and comes out as it says."""

import json
import os
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ["LOCKSTEP_BINARY"]
SCHEMA = ROOT / "schema" / "scenario.schema.json"
SCENARIOS = sorted(path for path in (ROOT / "scenarios").rglob("*") if path.suffix in (".json", ".jsonc"))

STRING_OR_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
STRING_OR_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[\]}])', re.DOTALL)


def read(path):
    text = STRING_OR_COMMENT.sub(lambda match: match.group(1) or " ", path.read_text(encoding="utf-8"))
    return json.loads(STRING_OR_TRAILING_COMMA.sub(lambda match: match.group(1) or "", text))


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT)


def test_the_schema_is_what_the_program_prints():
    printed = run("schema")
    assert printed.returncode == 0, printed.stderr
    hint = "write it anew: tools/lockstep schema -o schema/scenario.schema.json"
    assert SCHEMA.read_text(encoding="utf-8") == printed.stdout, hint


def test_the_schema_is_a_schema_and_refuses_nonsense():
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    good = read(SCENARIOS[0])
    validator.validate(good)
    assert not validator.is_valid({**good, "layuot": {}})
    assert not validator.is_valid({**good, "layout": {"dp": "two"}})


def test_there_are_scenarios():
    assert len(SCENARIOS) >= 20


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: str(path.relative_to(ROOT)))
def test_scenario_is_valid_for_an_independent_validator(path):
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(read(path))


def test_every_scenario_comes_out_as_expected():
    result = run("test", "scenarios/")
    assert result.returncode == 0, result.stdout + result.stderr
