# SPDX-License-Identifier: Apache-2.0
"""What stands where a command takes files: standard input, folders, globs that no shell has expanded."""

import json
import os
import shutil

import pytest

WRONG_EVERYWHERE = {"check": 1, "test": 0, "prove": 1, "explain": 0, "repair": 0, "show": 0, "list": 0}


@pytest.fixture
def tree(files):
    """Files at several depths; a framework, a hidden folder and a name with a bracket among them."""
    for path in ("a/right.json", "a/b/right.jsonc", "a/b/c/wrong.json", ".hidden/right.json", "a/.hidden.json", "[x].json"):
        (files / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(files / ("wrong.json" if "wrong" in path else "right.json"), files / path)
    (files / "a" / "loop.jsonc").write_text('{ "lockstep_framework": 1, "steps": [] }')
    (files / "a" / "link").symlink_to(files / "a" / "b" / "c")
    return files


def found(run, *arguments, status=1):
    done = run("check", "-q", *arguments)
    assert done.returncode == status, done.stdout + done.stderr
    return [line.split("  ")[1] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("command, status", WRONG_EVERYWHERE.items())
def test_commands_read_a_scenario_from_standard_input(run, files, command, status):
    text = (files / "wrong.json").read_text()
    done = run(command, "-", input=text)
    assert done.returncode == status and done.stderr == "", done.stdout + done.stderr
    # Nothing differs from what is said of the file but its name.
    assert done.stdout.replace("`lockstep repair -`", "`lockstep repair wrong.json`").replace("<stdin>", "wrong.json").split() \
        == run(command, "wrong.json").stdout.split()
    assert done.stdout != run(command, "-", input=(files / "right.json").read_text()).stdout


def test_placements_and_mutate_read_standard_input(run, files):
    scenario = run("init", "-").stdout
    (files / "step.json").write_text(scenario)
    assert run("mutate", "-f", "json", "-", input=scenario).stdout.count('"<stdin>"') == 1
    folder = files / "mutants"
    run("mutate", "--write-mutants", "mutants", "-", input=scenario)
    assert folder.is_dir() and all(name.startswith("stdin-") for name in os.listdir(folder))
    wrong = run("mutate", "-", input=(files / "wrong.json").read_text())
    assert wrong.returncode == 2 and "`lockstep check -` shows what is wrong, `lockstep repair -`" in wrong.stderr
    model = '{ "lockstep": 1, "name": "m", "layout": { "tp": 2 }, "schedule": { "framework": "megatron" }, "model": { "preset": ' \
            '"gpt2", "layers": 2, "hidden": 16, "heads": 2, "vocab": 32 } }'
    (files / "model.json").write_text(model)
    done = run("placements", "-", input=model)
    assert done.stdout.replace("<stdin>", "model.json") == run("placements", "model.json").stdout and "wte" in done.stdout or \
        "embedding" in done.stdout, done.stderr


def test_one_side_of_a_comparison_may_be_standard_input(run, files):
    done = run("diff", "right.json", "-", input=(files / "wrong.json").read_text())
    assert done.returncode == 1
    assert done.stdout.replace("<stdin>", "wrong.json").split() == run("diff", "right.json", "wrong.json").stdout.split()


def test_a_mistake_on_standard_input_has_its_place_and_may_be_expected(run, files):
    text = (files / "invalid.json").read_text()
    done = run("check", "-", input=text)
    assert done.returncode == 2 and '<stdin>:4:3: error: unknown key "layuot"' in done.stdout
    assert run("test", "-", input=text.replace('"match"', '"error"')).returncode == 0  # it is read twice
    report = json.loads(run("check", "-f", "json", "-", input=text).stdout)
    assert report["file"] == "<stdin>"


def test_files_that_standard_input_names_are_beside_the_current_folder(run, files):
    shown = run("show", "framework:megatron").stdout
    (files / "mine.jsonc").write_text(shown)
    text = '{ "lockstep": 1, "name": "m", "layout": { "dp": 2 }, "model": { "preset": "gpt2", "layers": 2, "hidden": 16, "heads": 2 }, ' \
           '"schedule": { "framework": "./mine.jsonc" } }'
    assert run("check", "-q", "-", input=text).stdout == "match  <stdin>  m\n"


def test_standard_input_that_cannot_be_read_or_written_is_told(run, files):
    assert "<stdin>:1:1: error" in run("check", "-", input="").stdout
    descriptor = os.open(files, os.O_RDONLY)
    done = run("check", "-", stdin=descriptor)
    os.close(descriptor)
    assert done.returncode == 2 and "<stdin>:1:1: error: cannot read the file: Is a directory" in done.stdout
    done = run("repair", "--write", "-", input=(files / "wrong.json").read_text())
    assert done.returncode == 2 and "standard input cannot be written to" in done.stderr
    assert run("repair", "--to", "mended.json", "-", input=(files / "wrong.json").read_text()).returncode == 0
    assert found(run, "mended.json", status=0) == ["mended.json"]


def test_a_file_that_is_called_like_standard_input_is_itself(run, files):
    shutil.copy(files / "wrong.json", files / "<stdin>")
    done = run("check", "-q", "<stdin>", "-", input=(files / "right.json").read_text())
    assert [line.split("  ")[:2] for line in done.stdout.splitlines()] == [["mismatch", "./<stdin>"], ["match", "<stdin>"]]
    shutil.copy(files / "right.json", files / "-")
    assert run("check", "-q", "-", input=(files / "wrong.json").read_text()).returncode == 1
    assert run("check", "-q", "./-").returncode == 0


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("*.json", ["[x].json", "right.json", "stuck.json", "wrong.json", "invalid.json"]),
        ("[rw]*.json", ["right.json", "wrong.json"]),
        ("a/*", ["a/b/right.jsonc", "a/b/c/wrong.json", "a/link/wrong.json", "a/right.json"]),
        ("a/**/*.json", ["a/b/c/wrong.json", "a/right.json"]),
        ("**/wrong.json", ["a/b/c/wrong.json", "wrong.json"]),
        ("a/b/**", ["a/b/c/wrong.json", "a/b/right.jsonc"]),
        ("./a/?/*.jsonc", ["./a/b/right.jsonc"]),
        (".hid*/*", [".hidden/right.json"]),
        ("[x].json", ["[x].json"]),
        ("a/b/c/wrong.jso[a-z]", ["a/b/c/wrong.json"]),
    ],
)
def test_globs_that_no_shell_has_expanded(run, tree, pattern, expected):
    done = run("check", "-q", pattern)
    lines = [line.split("  ") for line in done.stdout.splitlines()]
    files = [line[1] for line in lines if line[0] in ("match", "mismatch", "deadlock", "error")]
    assert sorted(files) == sorted(expected), done.stdout + done.stderr


def test_globs_folders_and_files_are_taken_once_and_in_order(run, tree):
    assert found(run, "wrong.json", "a/b/*", "a/b/c/wrong.json", "right.json", "a/b") == [
        "wrong.json", "a/b/c/wrong.json", "a/b/right.jsonc", "right.json"]
    # In whatever spelling; the first is kept.
    assert found(run, "./wrong.json", "wrong.json", ".//right.json", "./right.json") == ["./wrong.json", ".//right.json"]
    assert len(found(run, "./wrong.json", "wrong.json", "a/../wrong.json")) == 2  # `a` may be a link
    absolute = str(tree / "a" / "b" / "**" / "*.json")
    assert found(run, absolute) == [str(tree / "a/b/c/wrong.json")]


@pytest.mark.parametrize(
    "pattern, sentence",
    [
        ("*.jsn", "no file or folder fits the glob *.jsn"),
        ("c/*.json", "no file fits the glob c/*.json: there is no folder c"),
        ("a/bb/**/*.json", 'no file fits the glob a/bb/**/*.json: there is no folder a/bb; did you mean "b"?'),
        ("a/loop*", "the glob a/loop* fits 1 file or folder, and none of them is or holds a scenario"),
        ("a/[", "no file or folder fits the glob a/["),
    ],
)
def test_a_glob_that_nothing_fits_is_told(run, tree, pattern, sentence):
    done = run("check", pattern, "nothing.json")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"error: {sentence}\nerror: there is no file or folder nothing.json\n"


def test_a_command_for_one_scenario_takes_what_stands_for_one(run, tree):
    for command in ("explain", "show", "repair"):
        assert run(command, "a/b/c").stdout == run(command, "a/b/c/wr*").stdout == run(command, "a/b/c/wrong.json").stdout != ""
        done = run(command, "a/b")
        assert done.returncode == 2
        assert f"{command} takes one scenario, and a/b stands for 2: a/b/c/wrong.json and others; name one of them" in done.stderr
    assert run("diff", "a/b/c", "right.j*").stdout == run("diff", "a/b/c/wrong.json", "right.json").stdout != ""


def test_other_files_may_be_globs_too(run, files):
    (files / "ds").mkdir()
    (files / "ds" / "config.json").write_text('{ "train_batch_size": 8, "zero_optimization": { "stage": 1 } }')
    options = ("--world-size", "4", "-q", "--model", "gpt2")
    assert run("import", "deepspeed", "ds/*.json", *options).stdout == run("import", "deepspeed", "ds/config.json", *options).stdout != ""
    done = run("import", "deepspeed", "ds/*.yaml", *options)
    assert done.returncode == 2 and "no file or folder fits the glob ds/*.yaml" in done.stderr


def test_any_number_of_jobs_gives_the_same_in_the_same_order(run, tree):
    for number in range(30):
        shutil.copy(tree / ("wrong.json" if number % 3 else "right.json"), tree / "a" / f"{number:02}.json")
    whole = run("check", "-j", "1", "a")
    assert whole.stdout.count("at fault") == 21
    for jobs in ("2", "7", "64"):
        assert run("check", "--jobs", jobs, "a").stdout == whole.stdout
    assert run("test", "-j3", "a").stdout == run("test", "a").stdout
    for wrong in ("0", "-1", "many", "100000"):
        done = run("check", f"--jobs={wrong}", "a")
        assert done.returncode == 2 and "--jobs takes a whole number from 1 to 1024" in done.stderr


def test_files_of_other_programs_are_passed_over_and_counted(run, files):
    """`check .` in a project: what has nothing of a scenario is none, and a file that cannot be read may be one."""
    (files / "cases").mkdir()
    shutil.copy(files / "right.json", files / "cases" / "right.json")
    (files / "cases" / "package.json").write_text('{"name": "x", "scripts": {}}')
    one = run("check", "-q", "cases")
    assert one.returncode == 0 and one.stdout.count("\n") == 1
    assert one.stderr == "lockstep: passed over 1 JSON file that is no scenario: cases/package.json\n"
    (files / "cases" / "list.json").write_text("[1, 2]")
    assert run("check", "-q", "cases/*").stderr == "lockstep: passed over 2 JSON files that are no scenarios: cases/list.json and another\n"
    # Named, it is what was meant.
    assert run("check", "-q", "cases/package.json").returncode == 2
    # What has a mistake in it, or a word of a scenario, is not passed over.
    for text in ('{"name": ', "", '{"layout": 3}', '{"lockstp": 1, "schedule": {}}', "null", '{"lockstep": 1}'):
        (files / "cases" / "broken.json").write_text(text)
        assert run("check", "-q", "cases").returncode == 2, text
    # Words of a scenario elsewhere, as a schema has them.
    for text in ('{"panels": [{"layout": "x", "lockstep": 2}]}', '{"properties": {"lockstep": {}, "layout": {}, "schedule": {}}}'):
        (files / "cases" / "broken.json").write_text(text)
        assert run("check", "-q", "cases").returncode == 0, text
    (files / "cases" / "broken.json").unlink()
    (files / "cases" / "right.json").unlink()
    nothing = run("check", "cases")
    assert nothing.returncode == 4 and nothing.stderr.endswith("nothing was checked: there is no scenario, in a *.json or *.jsonc file, in cases\n")
