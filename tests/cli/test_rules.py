# SPDX-License-Identifier: Apache-2.0
"""docs/rules: a page for each rule and a rule for each page, which says what the program says of it, and whose scenario
is found by that rule. That the pages' other scenarios match is tested with all documents (test_docs.py)."""

import json
import os
import re
import resource
import subprocess
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2])
PAGES = {page.stem: page for page in sorted((ROOT / "docs" / "rules").glob("LS*.md"))}
SCENARIO = re.compile(r"^```json\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ tools/lockstep (check|test) -f concise(.*) scenario\.json$", re.MULTILINE)


def table(run):
    """The rules as the program has them: what SARIF lists."""
    log = json.loads(run("check", "-f", "sarif", "right.json").stdout)
    return {rule["id"]: rule for rule in log["runs"][0]["tool"]["driver"]["rules"]}


def plain(text):
    return re.sub(r"\s+", " ", text)


def test_every_rule_has_a_page_and_every_page_a_rule(run, files):
    rules = table(run)
    assert set(rules) == set(PAGES)
    index = (ROOT / "docs" / "rules" / "README.md").read_text(encoding="utf-8")
    for name, rule in rules.items():
        assert f"| [{name}]({name}.md) | {rule['name']} | {rule['shortDescription']['text']} |" in index


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_the_program_says(run, files, name):
    rule = table(run)[name]
    text = PAGES[name].read_text(encoding="utf-8")
    assert text.startswith(f"# {name} {rule['name']}\n")
    for sentence in (rule["shortDescription"]["text"], rule["fullDescription"]["text"], rule["help"]["text"]):
        assert plain(sentence) in plain(text), sentence
    assert f"\n## {'A run' if name == 'LS017' else 'A scenario'}\n" in text and "\n## What mends it\n" in text


@pytest.mark.parametrize("name", [name for name in PAGES if name not in ("LS016", "LS017")])
def test_the_scenario_of_a_page_is_found_by_its_rule_alone(run, tmp_path, name):
    text = PAGES[name].read_text(encoding="utf-8")
    (tmp_path / "scenario.json").write_text(SCENARIO.findall(text)[0], encoding="utf-8")
    command = COMMAND.search(text)
    done = run(command[1], "-f", "concise", *command[2].split(), "scenario.json")
    found = re.findall(r"^scenario\.json:\d+:\d+: (LS\d{3}) ", done.stdout, re.MULTILINE)
    assert found == [name], done.stdout
    assert done.returncode == (2 if name == "LS014" else 1)


def test_the_run_of_a_page_is_found_by_its_rule_alone(run):
    folder = re.search(r"^\$ tools/lockstep verify -f concise (.*)$", PAGES["LS017"].read_text(encoding="utf-8"), re.MULTILINE)[1]
    done = run("verify", "-f", "concise", str(ROOT / folder))
    assert set(re.findall(r": (LS\d{3}) ", done.stdout)) == {"LS017"} and done.returncode == 1


def test_what_this_machine_cannot_check_is_found_by_its_rule(binary, tmp_path):
    (tmp_path / "scenario.json").write_text(SCENARIO.findall(PAGES["LS016"].read_text(encoding="utf-8"))[0], encoding="utf-8")
    gibibyte = 1 << 30
    done = subprocess.run(
        [binary, "check", "-f", "concise", "--exit-zero", "--engine", "symbolic", "scenario.json"], cwd=tmp_path, capture_output=True,
        text=True, timeout=300, check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 * gibibyte, 4 * gibibyte)))
    assert done.returncode == 3
    assert re.match(r"scenario\.json:\d+:\d+: LS016 this scenario needs about ", done.stdout), done.stdout + done.stderr
