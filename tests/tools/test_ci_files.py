# SPDX-License-Identifier: Apache-2.0
"""action.yml, .pre-commit-hooks.yaml and the workflows in docs/ci.md: parsed, and run as far as a machine without GitHub
can: each step of the action in bash, the hooks on files, and the commands of the workflows."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_BINARY")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="LOCKSTEP_BINARY does not name the program")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
CI = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
WORKFLOWS = [yaml.safe_load(text) for text in re.findall(r"^```ya?ml\n(.*?)^```$", CI, re.DOTALL | re.MULTILINE)]

SCENARIO = """{ "lockstep": 1, "name": "%s", "layout": { "dp": 2 }, "batch": { "micro_batches": 1, "tokens": "even" },
  "model": { "parameters": [ { "name": "weight", "shape": [8] } ] },
  "schedule": { "steps": [
    { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
    { "name": "mean", "op": "all_reduce", "over": "dp"%s } ] },
  "expect": { "verdict": "match" } }"""


def knows(kind):
    said = subprocess.run([PROGRAM, "check", "--report", f"{kind}=/dev/null", "/nowhere"], capture_output=True, text=True).stderr
    return f'found "{kind}"' not in said and subprocess.run([PROGRAM, "check", "--help"], capture_output=True, text=True).stdout.find(kind) > 0


needs_formats = pytest.mark.skipif(bool(PROGRAM) and not knows("sarif"), reason="this program writes no format for CI")


@pytest.fixture
def workplace(tmp_path):
    folder = tmp_path / "scenarios" / "more cases"
    folder.mkdir(parents=True)
    (folder / "right.json").write_text(SCENARIO % ("right", ', "reduce": "avg"'))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "lockstep").symlink_to(PROGRAM)
    return tmp_path


def make_wrong(workplace):
    (workplace / "scenarios" / "wrong.json").write_text(SCENARIO % ("wrong", ""))


def check(workplace, **inputs):
    """The step that checks, as GitHub would run it: ${{ inputs.NAME }} is the input or its default."""
    step = ACTION["runs"]["steps"][-1]
    values = {name: about["default"] for name, about in ACTION["inputs"].items()}
    values.update({name.replace("_", "-"): value for name, value in inputs.items()})
    values.setdefault("lockstep", PROGRAM)
    values["lockstep"] = values["lockstep"] or PROGRAM
    environment = {**os.environ, "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_OUTPUT": str(workplace / "output"),
                   "GITHUB_STEP_SUMMARY": str(workplace / "summary.md")}
    for name, text in step["env"].items():
        environment[name] = re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: values[match[1]], text)
    (workplace / "output").unlink(missing_ok=True)
    done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=workplace, env=environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    outputs = (workplace / "output").read_text() if (workplace / "output").exists() else ""
    return done, outputs


def test_the_action_has_what_github_asks_for():
    assert ACTION["runs"]["using"] == "composite" and ACTION["name"] and ACTION["description"]
    for step in ACTION["runs"]["steps"]:
        assert step["shell"] == "bash" and step["name"]
    for name, about in ACTION["inputs"].items():
        assert about["description"] and isinstance(about["default"], str), name
        assert f"| `{name}` |" in CI, f"docs/ci.md does not tell of the input {name}"
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text()))
    assert used == set(ACTION["inputs"])
    for output in ACTION["outputs"].values():
        assert re.fullmatch(r"\$\{\{ steps\.check\.outputs\.(status|reports) \}\}", output["value"])


def test_the_first_step_of_the_action_runs_the_program_of_its_repository(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "lockstep").write_text('#!/bin/sh\necho "built with $LOCKSTEP_CMAKE_OPTIONS: $*"\n')
    (tmp_path / "tools" / "lockstep").chmod(0o755)
    step = ACTION["runs"]["steps"][0]
    assert step["if"] == "inputs.lockstep == ''"
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", step["run"]], env={**os.environ, **step["env"], "GITHUB_ACTION_PATH": str(tmp_path)},
                          capture_output=True, text=True, check=True)
    assert done.stdout == "built with -DBUILD_TESTING=OFF -DLOCKSTEP_CUDA=OFF: version\n"


def test_the_action_fails_where_something_is_wrong_and_not_where_all_is_right(workplace):
    done, outputs = check(workplace, formats="json text")
    assert done.returncode == 0, done.stdout + done.stderr
    assert outputs == "status=0\nreports<<END_OF_REPORTS\nlockstep.json\nEND_OF_REPORTS\n"
    assert '"verdict": "match"' in (workplace / "lockstep.json").read_text()
    make_wrong(workplace)
    for fail_on, status in {"wrong": 1, "error": 0, "never": 0}.items():
        done, outputs = check(workplace, formats="json=deep.json", fail_on=fail_on)
        assert done.returncode == status and outputs.startswith("status=1\n") and "\ndeep.json\n" in outputs
    (workplace / "scenarios" / "broken.json").write_text("{")
    for fail_on, status in {"wrong": 2, "error": 2, "never": 0}.items():
        assert check(workplace, formats="text", fail_on=fail_on)[0].returncode == status


def test_the_action_takes_globs_names_with_spaces_options_and_both_commands(workplace):
    make_wrong(workplace)
    done, _ = check(workplace, files="scenarios/**/right.json", formats="text")
    assert done.returncode == 0 and "1 passed" in done.stdout
    done, _ = check(workplace, files="scenarios/more cases/right.json\nscenarios/wrong.json\n", formats="", command="check",
                    arguments="--quiet --engine symbolic")
    assert done.returncode == 1 and done.stdout.split()[:2] == ["match", "scenarios/more"] and "mismatch" in done.stdout
    assert check(workplace, files="none/*.json", formats="")[0].returncode == 2


@pytest.mark.parametrize("inputs, sentence", [({"files": " "}, "the input files is empty"), ({"fail_on": "always"}, "fail-on takes wrong"),
                                              ({"command": "prove"}, "command takes test or check")])
def test_the_action_says_which_input_is_wrong(workplace, inputs, sentence):
    done, _ = check(workplace, **inputs)
    assert done.returncode == 2 and done.stdout.startswith("::error title=lockstep::") and sentence in done.stdout


@needs_formats
def test_the_action_annotates_and_writes_reports(workplace):
    make_wrong(workplace)
    done, outputs = check(workplace, formats="github markdown sarif junit gitlab concise")
    assert done.returncode == 1 and "::error file=scenarios/wrong.json,line=" in done.stdout
    assert "wrong.json" in (workplace / "summary.md").read_text()
    for name in ("lockstep.sarif", "lockstep.xml", "lockstep-codequality.json", "lockstep.txt"):
        assert f"\n{name}\n" in outputs and "wrong.json" in (workplace / name).read_text(), name


def test_hooks_have_what_pre_commit_asks_for_and_run(workplace):
    assert len({hook["id"] for hook in HOOKS}) == len(HOOKS) > 1
    for hook in HOOKS:
        assert hook["name"] and hook["language"] in ("python", "system") and f"| `{hook['id']}` |" in CI
        files = re.compile(hook["files"])
        assert all(files.search(path) for path in ("scenarios/a.json", "x/scenarios/b/c.jsonc"))
        assert not any(files.search(path) for path in ("scenarios/a.md", "myscenarios/a.json", "package.json"))
        words = shlex.split(hook["entry"])
        environment = {**os.environ, "PATH": f"{workplace / 'bin'}:{os.environ['PATH']}"}
        right, wrong = "scenarios/more cases/right.json", "scenarios/wrong.json"
        make_wrong(workplace)
        for given, status in (([right], 0), ([right, wrong], 1)):
            assert subprocess.run([*words, *given], cwd=workplace, env=environment, capture_output=True).returncode == status


def test_workflows_in_the_document_use_what_there_is():
    steps = [step for workflow in WORKFLOWS if "jobs" in workflow for job in workflow["jobs"].values() for step in job["steps"]]
    own = [step for step in steps if "OWNER/lockstep@" in step.get("uses", "")]
    assert own
    for step in own:
        assert set(step["with"]) <= set(ACTION["inputs"]), step
    for workflow in WORKFLOWS:
        if "jobs" in workflow:
            assert workflow["name"] and True in workflow  # `on` is a truth value in YAML 1.1
            for job in workflow["jobs"].values():
                assert job["runs-on"]
    hooks = [hook for workflow in WORKFLOWS for repo in workflow.get("repos", []) for hook in repo["hooks"]]
    assert hooks and all(hook["id"] in {known["id"] for known in HOOKS} for hook in hooks)


def commands_of_workflows():
    for workflow in WORKFLOWS:
        jobs = workflow["jobs"].values() if "jobs" in workflow else [job for job in workflow.values() if isinstance(job, dict)]
        for job in jobs:
            lines = list(job.get("script", []))
            for step in job.get("steps", []):
                lines += step.get("run", "").splitlines()
            yield from (line.strip() for line in lines if line.strip().startswith("lockstep "))


def test_commands_of_the_workflows_run(workplace):
    commands = list(commands_of_workflows())
    assert commands
    for command in commands:
        kinds = re.findall(r"(?:--report|-f|--format)[ =](\w+)", command)
        if not all(knows(kind) for kind in kinds):
            continue
        done = subprocess.run([PROGRAM, *shlex.split(command)[1:]], cwd=workplace, capture_output=True, text=True,
                              env={**os.environ, "GITHUB_STEP_SUMMARY": str(workplace / "summary.md")})
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
