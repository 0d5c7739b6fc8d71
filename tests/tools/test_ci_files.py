# SPDX-License-Identifier: Apache-2.0
"""action.yml, .pre-commit-hooks.yaml and the workflows in docs/ci.md: parsed, and run as far as a machine without GitHub
can: each step of the action in bash, the hooks on files, and the commands of the workflows."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import zipfile
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
        text = re.sub(r"\$\{\{ steps\.program\.outputs\.program \|\| .* \}\}", lambda match: values["lockstep"], text)
        environment[name] = re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: values[match[1]], text)
    (workplace / "output").unlink(missing_ok=True)
    done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=workplace, env=environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    outputs = (workplace / "output").read_text() if (workplace / "output").exists() else ""
    return done, outputs


def test_the_action_has_what_github_asks_for():
    assert ACTION["runs"]["using"] == "composite" and ACTION["name"] and ACTION["description"]
    for step in ACTION["runs"]["steps"]:
        assert step["name"] and (step.get("shell") == "bash" or re.fullmatch(r"actions/cache@v\d+", step["uses"]))
    for name, about in ACTION["inputs"].items():
        assert about["description"] and isinstance(about["default"], str), name
        assert f"| `{name}` |" in CI, f"docs/ci.md does not tell of the input {name}"
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text()))
    assert used == set(ACTION["inputs"])
    for output in ACTION["outputs"].values():
        assert re.fullmatch(r"\$\{\{ steps\.check\.outputs\.(status|reports) \}\}", output["value"])


def step_named(name):
    (step,) = [step for step in ACTION["runs"]["steps"] if step["name"] == name]
    return step


def test_the_action_builds_the_program_of_its_repository_once(tmp_path):
    """A cached program that runs is taken; one that does not, as on another kind of machine, is built anew."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "build" / "release" / "bin").mkdir(parents=True)
    (tmp_path / "build" / "release" / "bin" / "lockstep").write_text('#!/bin/sh\necho "cached: $*"\n')
    (tmp_path / "tools" / "lockstep").write_text('#!/bin/sh\necho "built with $LOCKSTEP_CMAKE_OPTIONS: $*"\n')
    for program in (tmp_path / "tools" / "lockstep", tmp_path / "build" / "release" / "bin" / "lockstep"):
        program.chmod(0o755)
    step = step_named("Build lockstep")
    assert step["if"] == step_named("Cached lockstep")["if"] == "steps.program.outputs.program == ''"
    assert step_named("Cached lockstep")["with"]["path"].endswith("/build/action") and "steps.program.outputs.key" in step_named("Cached lockstep")["with"]["key"]

    def build():
        return subprocess.run(["bash", "-eo", "pipefail", "-c", step["run"]], env={**os.environ, **step["env"], "GITHUB_ACTION_PATH": str(tmp_path)},
                              capture_output=True, text=True, check=True).stdout

    assert build() == "built with -DBUILD_TESTING=OFF -DLOCKSTEP_CUDA=OFF: version\n"
    assert build() == "cached: version\n"
    (tmp_path / "build" / "action" / "lockstep").write_text("no program")
    assert build() == "built with -DBUILD_TESTING=OFF -DLOCKSTEP_CUDA=OFF: version\n"


@pytest.fixture
def release(tmp_path):
    """A copy of the action, and a release of it beside a server of files: a function that runs the first step, by a tag."""
    action, files = tmp_path / "action", tmp_path / "o" / "lockstep" / "releases" / "download" / "v0.1.0"
    (action / "tools").mkdir(parents=True)
    (action / "src").mkdir()
    (action / "src" / "a.cpp").write_text("int main() {}\n")
    shutil.copy(ROOT / "tools" / "action-program", action / "tools")
    files.mkdir(parents=True)
    with zipfile.ZipFile(files / "lockstep-0.1.0-py3-none-any.whl", "w") as wheel:
        program = zipfile.ZipInfo("lockstep-0.1.0.data/scripts/lockstep")
        program.external_attr = 0o100755 << 16
        wheel.writestr(program, '#!/bin/sh\necho "of the wheel: $*"\n')
        about = {"METADATA": "Metadata-Version: 2.1\nName: lockstep\nVersion: 0.1.0\n", "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
        for name, text in {**about, "RECORD": ""}.items():
            wheel.writestr(f"lockstep-0.1.0.dist-info/{name}", text)
    digest = hashlib.sha256((files / "lockstep-0.1.0-py3-none-any.whl").read_bytes()).hexdigest()
    (files / "SHA256SUMS").write_text(f"{'0' * 64}  NOTES.md\n{digest}  lockstep-0.1.0-py3-none-any.whl\n")

    def first_step(ref="v0.1.0", program=""):
        output = tmp_path / "output"
        output.unlink(missing_ok=True)
        environment = {**os.environ, "GITHUB_ACTION_PATH": str(action), "GITHUB_OUTPUT": str(output), "LOCKSTEP_PROGRAM": program, "ACTION_REF": ref,
                       "ACTION_REPOSITORY": "o/lockstep", "ACTION_SERVER": f"file://{tmp_path}"}
        subprocess.run(["bash", "-eo", "pipefail", "-c", step_named("Find lockstep")["run"]], env=environment, capture_output=True, text=True, check=True)
        key, _, value = output.read_text().strip().partition("=")
        return key, value

    first_step.files, first_step.action = files, action
    return first_step


def test_the_action_takes_the_wheel_of_its_release(release):
    key, program = release()
    assert key == "program"
    assert subprocess.run([program, "check"], capture_output=True, text=True, check=True).stdout == "of the wheel: check\n"
    assert release(program="/usr/bin/mine") == ("program", "/usr/bin/mine")


def test_the_action_builds_where_there_is_no_wheel_that_it_can_trust(release):
    first, key = release(ref="main")
    assert first == "key" and re.fullmatch("[0-9a-f]{64}", key)
    assert release(ref="v9.9.9") == ("key", key)
    sums = release.files / "SHA256SUMS"
    sums.write_text(re.sub(r"[0-9a-f]{64}(?=  lockstep)", "1" * 64, sums.read_text()))
    assert release() == ("key", key)
    (release.action / "src" / "a.cpp").write_text("int main() { return 1; }\n")
    assert release()[1] != key


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
