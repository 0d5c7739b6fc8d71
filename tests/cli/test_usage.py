# SPDX-License-Identifier: Apache-2.0
"""Help, misspelt words, and the table that both come from."""

import json
import os
import re
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2])
COMMANDS = ["check", "test", "explain", "show", "hash", "schema", "init", "version", "reference"]


def test_the_bare_program_lists_its_commands(run):
    done = run()
    assert done.returncode == 0
    for command in COMMANDS:
        assert f"  {command} " in done.stdout
    assert run("--help").stdout == run("help").stdout == done.stdout


def test_the_document_of_all_commands_is_what_the_program_prints(run):
    """`lockstep reference -o docs/commands.md` renews it."""
    assert run("reference").stdout == (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_call_the_command(run, command):
    done = run(command, "--help")
    assert done.returncode == 0
    examples = done.stdout.split("\nexamples\n")[1]
    assert len(re.findall(rf"^  lockstep {command}", examples, re.MULTILINE)) in (2, 3, 4)
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert run("help", command).stdout == done.stdout


def test_a_misspelt_command_is_answered_with_the_nearest(run):
    done = run("chekc")
    assert done.returncode == 2
    assert 'there is no command "chekc"; did you mean "check"?' in done.stderr
    assert done.stdout == ""


def test_a_misspelt_option_is_answered_with_the_nearest(run, files):
    done = run("check", "--formt", "json", "right.json")
    assert done.returncode == 2
    assert 'there is no option --formt; did you mean "--format"?' in done.stderr
    assert run("check", "-z", "right.json").returncode == 2
    assert run("--vresion").returncode == 2


def test_a_wrong_value_is_usage(run, files):
    done = run("check", "-f", "jsno", "right.json")
    assert done.returncode == 2
    assert '--format takes one of text, json, concise, junit, sarif, github, gitlab, markdown, html; found "jsno"; did you mean "json"?' in done.stderr
    assert run("check", "--seed", "many", "right.json").returncode == 2
    (files / "train.py").write_text("")
    for given, said in (("--mesh", "dp="), ("--mesh", "dp=2,"), ("--data-axes", "dp,"), ("--data-axes", ",")):
        done = run("extract", "--ranks", "2", given, said, "--", "train.py")
        assert done.returncode == 2 and f"{given} {said}: expected" in done.stderr, done.stderr
    done = run("check", "--format")
    assert done.returncode == 2
    assert done.stderr.startswith("lockstep check: --format needs a value, KIND\n")
    done = run("check", "--quiet=3", "right.json")
    assert done.returncode == 2
    assert done.stderr.startswith('lockstep check: --quiet takes no value; found "3"\n')
    assert run("check").returncode == 2
    for empty in (["--format", ""], ["--format="], ["-f", ""]):
        done = run("check", *empty, "right.json")
        assert done.returncode == 2
        assert done.stderr.startswith(f'lockstep check: {empty[0].rstrip("=")} needs a value, KIND; found ""\n')
    assert run("check", "").stderr.startswith('lockstep check: found "", an empty argument\n')
    assert run("explain", "right.json", "wrong.json").returncode == 2


def test_version_lists_the_engines(run):
    assert "engines: symbolic, parametric, host" in run("version").stdout
    version = json.loads(run("version", "-f", "json").stdout)
    assert version["engines"]["host"] is True
    assert version["engines"]["parametric"] is True  # `lockstep prove`
    text = run("version").stdout
    for head, is_built in (("engines", True), ("not built yet", False)):
        named = re.search(rf"^{head}: (.*)$", text, re.MULTILINE)
        assert (named[1].split(", ") if named else []) == [name for name, built in version["engines"].items()
                                                           if built == is_built]
    assert run("--version").stdout == run("version").stdout


def test_the_reference_holds_every_command_and_option(run):
    reference = run("reference").stdout
    for command in COMMANDS:
        assert f"## lockstep {command}\n" in reference
    assert "`-f, --format KIND`" in reference
