# SPDX-License-Identifier: Apache-2.0
"""--set KEY=VALUE: a scenario read as if that stood in it."""

import json

import pytest


def checked(run, *arguments):
    done = run("check", "-f", "json", *arguments)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def written(files):
    """The file with a change written into it, without its expectations."""

    def write(name, change):
        document = json.loads((files / name).read_text())
        document.pop("expect")
        change(document)
        (files / "written.json").write_text(json.dumps(document))
        return "written.json"

    return write


def without_names(report):
    return {key: value for key, value in report.items() if key not in ("file", "scenario", "notes", "expected", "places", "time")}


@pytest.mark.parametrize("key", ["dp", "layout.dp"])
def test_a_size_is_set_as_if_the_file_said_it(run, files, written, key):
    report = checked(run, "wrong.json", "--set", f"{key}=3")
    assert report["notes"][0] == f"The file is read with --set {key}=3."
    assert report["layout"]["dp"] == 3
    same = checked(run, written("wrong.json", lambda document: document["layout"].update(dp=3)))
    assert json.dumps(report["parameters"]) == json.dumps(same["parameters"])


def test_several_changes_are_all_made(run, files):
    report = checked(run, "right.json", "--set", "dp=4", "--set", "schedule.steps.1.reduce=sum")
    assert report["layout"]["dp"] == 4 and report["verdict"] == "mismatch"


def test_what_the_file_expects_is_left_aside(run, files):
    # It expects a mismatch, and with this it is right.
    assert checked(run, "wrong.json", "--set", "schedule.steps.1.reduce=avg")["expected"] is None
    assert "expect" not in run("check", "wrong.json", "--set", "schedule.steps.1.reduce=avg").stdout


def test_commands_that_are_printed_carry_it(run, files):
    done = run("check", "wrong.json", "--set", "dp=3")
    assert "`lockstep repair wrong.json --set dp=3` shows this" in done.stdout
    assert run("repair", "wrong.json", "--set", "dp=3").returncode == 0


@pytest.mark.parametrize("command", ["explain", "prove", "repair", "show", "report"])
def test_every_command_that_reads_a_scenario_as_written_has_it(run, files, command):
    arguments = ["-o", "page.html"] if command == "report" else []
    plain = run(command, "wrong.json", *arguments)
    before = (files / "page.html").read_text() if arguments else plain.stdout
    changed = run(command, "wrong.json", "--set", "dp=5", *arguments)
    assert changed.returncode == plain.returncode
    assert (files / "page.html").read_text() != before if arguments else changed.stdout != before


def test_a_proof_says_with_what_it_was_read(run, files):
    assert run("prove", "right.json", "--set", "dp=5").stdout.startswith("wrong   right.json with dp=5  right\n")
    assert run("prove", "-q", "right.json", "--set", "dp=5").stdout.startswith("wrong   right.json with dp=5  right only at ")
    assert json.loads(run("prove", "-f", "json", "right.json", "--set", "dp=5").stdout)["set"] == ["dp=5"]
    assert "set" not in json.loads(run("prove", "-f", "json", "right.json").stdout)


@pytest.mark.parametrize("command", ["check", "repair", "explain", "show"])
def test_the_first_line_says_what_is_set(run, files, command):
    said = run(command, "wrong.json", "--set", "dp=5", "--set", "micro_batches=3").stdout.splitlines()[0]
    assert (" with dp=5, micro_batches=3" in said) and "with" not in run(command, "wrong.json").stdout.splitlines()[0]


def test_a_mutant_is_not_said_to_be_at_sizes_of_the_file_that_are_not_in_it(run, files):
    assert "as in the file" in run("mutate", "right.json").stdout
    assert "as in the file" not in run("mutate", "right.json", "--set", "dp=3").stdout
    assert "`lockstep repair wrong.json --set dp=3`" in run("mutate", "wrong.json", "--set", "dp=3").stderr


@pytest.mark.parametrize("change, message", [
    ("expect.verdict=match", "error: \"expect.verdict=match\" cannot be set: what a file expects is left aside with --set\n"),
    ("dp=x", "--set dp=x:1:1: error: expected an integer of at least 1 or \"any\", found the string \"x\"\n    1 | x\n      | ^\n"),
    ("layout.ddp=2", "--set layout.ddp=2:1:1: error: unknown key \"ddp\" in \"layout\"; did you mean \"dp\"?\n    1 | 2\n      | ^\n"),
    ("dpp=2", "error: \"dpp=2\" cannot be set: \"dpp\" is neither an axis nor micro_batches, and the file names no framework whose option it could "
              "be; did you mean \"dp\"?\n"),
    ('layuot={"dp":4}', "did you mean \"layout\"?\n"),
    ("micro_batch=2", "did you mean \"micro_batches\"?\n"),
    ("dp", "error: a change is KEY=VALUE, such as use_distributed_optimizer=true, found \"dp\"\n"),
    ("lockstep.x=1", "error: \"lockstep.x=1\" cannot be set: \"lockstep\" is the number 1, which has no members\n"),
])
def test_mistakes(run, files, change, message):
    done = run("check", "right.json", "--set", change)
    assert done.returncode == 2 and message in done.stdout + done.stderr, done.stdout + done.stderr


def test_a_repaired_file_is_written_from_the_file_as_it_is(run, files):
    before = (files / "wrong.json").read_text()
    for option, arguments in (("--to", ["--to", "repaired.json"]), ("--write", ["--write"])):
        done = run("repair", "wrong.json", "--set", "dp=3", *arguments)
        assert done.returncode == 2 and done.stderr == f"error: {option} writes the file as it is, with its repair, and --set changes what is " \
            "repaired: write the change into the file first\n"
    assert (files / "wrong.json").read_text() == before and not (files / "repaired.json").exists()


def test_a_counterexample_has_the_change_in_it(run, files):
    run("prove", "right.json", "--set", "schedule.steps.1.reduce=sum", "--counterexample", "smallest.json")
    assert checked(run, "smallest.json")["verdict"] == "mismatch"


def test_an_extraction_is_no_scenario(run, files):
    (files / "step.json").write_text('{"lockstep_extract": 1}')
    done = run("check", "step.json", "--set", "dp=2")
    assert done.returncode == 2 and done.stderr == "error: --set changes scenarios, and step.json is what `lockstep extract` has written: " \
        "extract it once more, with what is to be otherwise\n"


def test_standard_input_is_changed_too(run, files):
    done = run("check", "-f", "json", "-", "--set", "dp=3", input=(files / "right.json").read_text())
    assert json.loads(done.stdout)["layout"]["dp"] == 3


def test_import_has_another_of_that_name(run, files):
    (files / "train.sh").write_text("torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers $L --hidden-size 8 --num-attention-heads 2\n")
    done = run("import", "megatron", "train.sh", "--set", "L=2", "-o", "made.json")
    assert "such as use_distributed_optimizer" not in done.stderr


def test_a_mistake_of_an_edit_stands_where_it_stands_without_it(run, files):
    """Each edit by itself is read, and the two make a step of which no rank is left."""
    document = json.loads((files / "right.json").read_text())
    document["schedule"]["edits"] = [{"set": "mean", "op": "broadcast"}, {"set": "mean", "root": {"dp": 0}}, {"set": "mean", "only": {"dp": [1]}}]
    (files / "edited.json").write_text(json.dumps(document))
    plain, changed = run("check", "edited.json"), run("check", "edited.json", "--set", "dp=2")
    assert plain.returncode == changed.returncode == 2
    assert "/schedule/edits" in plain.stdout and changed.stdout.replace(" with dp=2", "") == plain.stdout


def by_release(folder):
    """A framework with a text that looks like a number, and one that looks like true."""
    (folder / "ours.jsonc").write_text(json.dumps({
        "lockstep_framework": 1, "name": "ours",
        "options": {"core": {"type": "string", "default": "0.15", "allowed": ["0.15", "0.16"], "help": "The release."},
                    "mode": {"type": "string", "default": "auto", "help": "A word."},
                    "scale": {"type": "number", "default": 1, "help": "A number."}},
        "steps": [{"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward"}]},
                  {"name": "mean", "op": "all_reduce", "over": "dp", "reduce": {"if": "core == '0.16' or mode == 'true'", "then": "avg", "else": "sum"}}]}))
    (folder / "small.jsonc").write_text(json.dumps({
        "lockstep_model": 1, "name": "small", "sizes": {"kind": {"default": "1"}},
        "parameters": [{"name": "w", "shape": [8]}, {"name": "v", "shape": [8], "when": "kind == '2'"}]}))
    (folder / "based.jsonc").write_text(json.dumps({"lockstep_model": 1, "name": "based", "base": "./small.jsonc"}))
    (folder / "released.json").write_text(json.dumps({
        "lockstep": 1, "layout": {"dp": 2}, "model": {"preset": "./small.jsonc"}, "batch": {"micro_batches": 1, "loss": "local_mean", "tokens": "even"},
        "schedule": {"framework": "./ours.jsonc"}}))
    return "released.json"


@pytest.mark.parametrize("changes, verdict", [
    ([], "mismatch"), (["core=0.16"], "match"), (["schedule.options.core=0.16"], "match"), (['core="0.16"'], "match"), (["core=0.15"], "mismatch"),
    (["mode=true"], "match"), (["core=0.16", "framework=./ours.jsonc"], "match"), (["core=0.16", 'schedule={"framework": "./ours.jsonc"}'], "mismatch"),
    (["core=0.16", "core=0.15"], "mismatch"),
])
def test_a_text_that_looks_like_a_number_is_a_text(run, files, changes, verdict):
    arguments = [argument for change in changes for argument in ("--set", change)]
    assert checked(run, by_release(files), *arguments)["verdict"] == verdict


def test_a_text_of_a_model_and_a_name_that_look_like_numbers_are_texts(run, files):
    name = by_release(files)
    for changes, count in [([], "1 parameter"), (["model.kind=2"], "2 parameters"), (["model.kind=2", "model.preset=./based.jsonc"], "2 parameters")]:
        assert f"; {count}, " in run("check", name, *(argument for change in changes for argument in ("--set", change))).stdout
    assert checked(run, name, "--set", "name=2026")["scenario"] == "2026"
    assert checked(run, "right.json", "--set", "schedule.steps.1.name=7")["verdict"] == "match"
    # What is no text stays what it is.
    done = run("check", name, "--set", "scale=fast")
    assert done.returncode == 2 and '"scale": expected a number, found the string "fast"' in done.stdout
    assert run("check", name, "--set", "scale=2").returncode == 1


def test_what_is_written_from_a_file_that_was_read_so_has_the_text(run, files):
    """A counterexample of a wrong schedule: it is read again without --set."""
    run("prove", by_release(files), "--set", "core=0.15", "--counterexample", "smallest.json")
    assert json.loads((files / "smallest.json").read_text())["schedule"]["options"] == {"core": "0.15"}
    assert checked(run, "smallest.json")["verdict"] == "mismatch"


def test_the_two_sides_of_a_difference_have_it_too(run, files):
    name = by_release(files)
    assert run("diff", name, name, "--new", "core=0.16").stdout.startswith("other gradients")


@pytest.mark.parametrize("file", ["right.json", "released.json"])
def test_what_stands_at_the_top_of_a_file_is_set_whole(run, files, file):
    by_release(files)
    assert checked(run, file, "--set", 'layout={"dp": 4, "tp": 2}')["layout"]["world"] == 8
    assert checked(run, file, "--set", "name=another one")["scenario"] == "another one"
    for change, message in [('layout={"dpp": 4}', 'unknown key "dpp" in "layout"; did you mean "dp"?'),
                            ("layout=4", 'expected an object'), ("expect={}", "what a file expects is left aside with --set")]:
        done = run("check", file, "--set", change)
        assert done.returncode == 2 and (done.stdout + done.stderr).count("error: ") == 1 and message in done.stdout + done.stderr


def test_an_index_is_spelled_as_documents_count(run, files):
    for index, nearest in {"01": 1, "00": 0, "+1": 1, " 1": 1, "0x1": 3, "-1": 3, "1 ": 3, "99999999999999999999": 3}.items():
        done = run("check", "wrong.json", "--set", f"schedule.steps.{index}.name=other")
        count = len(json.loads((files / "wrong.json").read_text())["schedule"]["steps"])
        expected = f'"schedule.steps" has {count} elements, named by numbers from 0; the nearest is "schedule.steps.{min(nearest, count - 1)}"'
        assert done.returncode != 0 and expected in done.stdout + done.stderr, (index, done.stdout + done.stderr)
    assert run("check", "-q", "wrong.json", "--set", "schedule.steps.1.name=other").stdout.startswith("mismatch ")
