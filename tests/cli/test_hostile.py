# SPDX-License-Identifier: Apache-2.0
"""What the program must withstand: each input gives its sentence and its exit status, in little memory and no endless time."""

import json
import os
import pty
import signal
import subprocess
import time

import pytest

SECONDS = 120  # many times what any of these takes

BACKWARD = {"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward"}]}
STEPS = [
    BACKWARD,
    {"name": "dp_all_reduce", "op": "all_reduce", "over": "dp"},
    {"name": "mean", "op": "scale", "by": "1 / sum(tokens, dp, micro_batch)"},
]


def scenario(**parts):
    """A small right scenario with some of its parts replaced, as text."""
    whole = {
        "lockstep": 1,
        "layout": {"dp": 2},
        "model": {"parameters": [{"name": "weight", "shape": [8]}]},
        "batch": {"micro_batches": 1},
        "schedule": {"steps": STEPS},
    }
    whole.update(parts)
    return json.dumps(whole)


def with_step(**step):
    return scenario(schedule={"steps": [*STEPS, {"name": "last", **step}]})


def with_edits(*edits):
    return scenario(schedule={"framework": "megatron", "edits": list(edits)})


def with_parameter(**parameter):
    return scenario(model={"parameters": [{"name": "weight", "shape": [8], **parameter}]})


def with_geometry(**geometry):
    return with_step(op="reduce_scatter", over="dp", geometry=geometry)


def check(limited, tmp_path, content, name="case.json", options=()):
    """Checks a file with this content; the status and everything that was said."""
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    done = limited("check", *options, name)
    said = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    assert len(said) < 1_000_000
    return done.returncode, said


NO_JSON = {
    "empty": (b"", "case.json:1:1: error: the file is empty; expected a JSON object"),
    "white space": (b" \n\t\n", "the file is empty; expected a JSON object"),
    "comments alone": (b"// nothing\n", "the file holds nothing but comments; expected a JSON object"),
    "binary": (bytes(range(256)) * 100, "expected text, found a NUL byte; this is no JSON file"),
    "latin-1": (scenario().encode().replace(b"weight", b"w\xe9ight"), "expected text in UTF-8, found the byte 0xE9"),
    "byte order mark": (b"\xef\xbb\xbf" + scenario().encode(), "begins with a byte order mark; expected UTF-8 without one"),
    "UTF-16": (scenario().encode("utf-16"), "the file is written in UTF-16; expected UTF-8"),
    "zeros": (b"\0" * 1_000_000, "expected text, found a NUL byte; this is no JSON file"),
    "100 MB of numbers": (b'{"lockstep":1,"x":[' + b"1," * 50_000_000 + b"1]}", "it is larger than 64 MiB, which no scenario is"),
    "100 MB of spaces": (b" " * 100_000_000, "it is larger than 64 MiB, which no scenario is"),
    "60 MB of numbers": (b'{"lockstep":1,"x":[' + b"1," * 30_000_000 + b"1]}", "expected at most 2000000 values in a file, found more"),
    "60 MB of one string": (b'{"lockstep":1,"name":"' + b"x" * 60_000_000 + b'"}', 'missing key "model"'),
    "deep brackets": (b"[" * 1_000_000, "expected at most 200 levels of nesting, found more"),
    "deep objects": (b'{"a":' * 1_000_000, "expected at most 200 levels of nesting, found more"),
    "long keys": (b'{"' + b"k" * 5000 + b'": 1}', "the keys around this value are 5001 bytes long together"),
    "cut off": (scenario()[:90].encode(), "found the end of the file"),
    "a key twice": (b'{"lockstep": 1, "lockstep": 1}', 'the key "lockstep" is given twice, first in line 1; keep one of them'),
    "an array": (b"[]", "expected an object, found an array"),
    "a number": (b"3", "expected an object, found the number 3"),
    "null": (b"null", "expected an object, found null"),
    "a number beyond doubles": (b'{"lockstep": 1e400}', "this number is too large; expected one below 1e308"),
    "half an escape": (b'{"lockstep": "\\ud800"}', "error: "),
}


@pytest.mark.parametrize("name", NO_JSON)
def test_what_is_no_scenario_at_all(limited, tmp_path, name):
    content, sentence = NO_JSON[name]
    status, said = check(limited, tmp_path, content)
    assert status == 2
    assert sentence in said


WRONG_VALUES = {
    "unknown key": (scenario(layuot={}), 'unknown key "layuot" at the top level of the scenario; did you mean "layout"?'),
    "wrong types": (scenario(layout=[]), "expected an object, found an empty array [/layout]"),
    "number for an object": (scenario(model=3), "expected an object, found the number 3 [/model]"),
    "200,000 mistakes": (scenario(layout={f"k{i}": 1 for i in range(200_000)}), "199000 more mistakes are not shown"),
    "a long string": (scenario(layout={"order": "x" * 1_000_000}), '"order" names "xxx'),
    "control characters": (with_parameter(name="\x1b[2J"), "expected a string without control characters, found U+001B in it"),
    "control characters in a key": (scenario(layout={"\x1b[2J": 1}), 'unknown key "\\u001b[2J"'),
    "negative axis": (scenario(layout={"dp": -2}), 'expected an integer of at least 1 or "any", found the number -2'),
    "axis of size 0": (scenario(layout={"dp": 0}), 'expected an integer of at least 1 or "any", found the number 0'),
    "huge axis": (scenario(layout={"dp": 10**9}), 'axis "dp" has 1000000000 ranks, more than the 1048576 that a layout may have'),
    "huge world": (scenario(layout={"tp": 1 << 20, "dp": 2}), "the world size tp * cp * sp * dp * pp is above 1048576"),
    "axis beyond 64 bits": (scenario(layout={"dp": 10**30}), "found the number 1" + "0" * 30 + ", which is beyond 2^63"),
    "expert mesh": (scenario(layout={"dp": 2, "ep": 1 << 20, "etp": 1 << 20}), "is above 1048576, the most"),
    "negative extent": (with_parameter(shape=[-8]), "expected an integer of at least 1, found the number -8"),
    "extent 0": (with_parameter(shape=[0]), "expected an integer of at least 1, found the number 0"),
    "extent with a fraction": (with_parameter(shape=[1.5]), "expected an integer of at least 1, found the number 1.5"),
    "shape beyond 2^62": (with_parameter(shape=[1 << 40, 1 << 40]), 'the parameter "weight" has more than 2^62 elements'),
    "all ranks beyond 2^62": (with_parameter(shape=[1 << 62]), "have 9.22e+09 billion elements together, more than the 4.6e18"),
    "does not divide": (with_parameter(shape=[9], shard={"dp": 0}), "which dp = 2 does not divide; pad the dimension"),
    "dimension that is not there": (with_parameter(shard={"dp": 3}), "dimension 3 does not exist: the shape has 1 dimension"),
    "stage that is not there": (with_parameter(stage=7), 'stage 7 does not exist: "pp" is 1'),
    "300,000 uses": (with_parameter(uses=[f"u{i}" for i in range(300_000)]), "expected at most 1000 uses, found 300000"),
    "300,000 parameters": (
        scenario(model={"parameters": [{"name": f"w{i}", "shape": [1]} for i in range(300_000)]}),
        "the model has 300000 parameters; expected at most 250000",
    ),
    "10^9 micro-batches": (scenario(batch={"micro_batches": 10**9}), "expected at most 1048576 micro-batches in all optimizer steps together"),
    "half a micro-batch": (scenario(batch={"micro_batches": 0.5}), "found the number 0.5"),
    "10^9 steps": (scenario(batch={"steps": 10**9}), "expected at most 256 optimizer steps, found 1000000000"),
    "a million in a list": (scenario(batch={"micro_batches": [1] * 1_000_000}), '"micro_batches" has 1000000 counts, but "steps" is 1'),
    "negative tokens": (scenario(batch={"micro_batches": 1, "tokens": [[[[-1]], [[1]]]]}), "expected an integer from 0 to 1099511627776, found"),
    "huge tokens": (scenario(batch={"micro_batches": 1, "tokens": [[[[1 << 41]], [[1]]]]}), "expected an integer from 0 to 1099511627776"),
    "no token": (scenario(batch={"micro_batches": 1, "tokens": [[[[0]], [[0]]]]}), "all token counts are 0: expected at least one token"),
    "tokens of the wrong shape": (scenario(batch={"micro_batches": 1, "tokens": [1, 2]}), "tokens has 2 entries, expected 1: one for each micro-batch"),
    "10^9 layers": (scenario(model={"preset": "gpt2", "layers": 10**9}), "the model has more than 250000 parameters"),
    "10^20 layers": (scenario(model={"preset": "gpt2", "layers": 10**20}), '"layers": expected an integer, found the number 1'),
    "negative layers": (scenario(model={"preset": "gpt2", "layers": -1}), "error: "),
    "huge hidden size": (scenario(model={"preset": "gpt2", "hidden": 10**18}), "has more than 2^62 elements"),
    "selector that matches nothing": (with_step(op="zero", params="nothing*"), 'selector "nothing*" matches no parameter on any rank'),
    "hard glob": (with_step(op="zero", params="*a" * 3000 + "b"), "matches no parameter on any rank"),
    "axis that is not there": (with_step(op="all_reduce", over="xp"), 'expected an axis, found the string "xp"; did you mean "tp"?'),
    "rank that is not there": (
        scenario(expect={"verdict": "mismatch", "formula": {"weight": {"99999999999": "g0"}}}),
        "rank 99999999999 does not exist: the world size is 2",
    ),
    "ratio of 1/0": (scenario(expect={"verdict": "mismatch", "ratio": "1/0"}), 'found the string "1/0"'),
}


@pytest.mark.parametrize("name", WRONG_VALUES)
def test_values_that_are_wrong_or_too_large(limited, tmp_path, name):
    content, sentence = WRONG_VALUES[name]
    status, said = check(limited, tmp_path, content)
    assert sentence in said
    assert status == 2


EXPRESSIONS = {
    "division by zero": ("1/0", 'division by zero: "0" is 0 here'),
    "division by zero on one rank": ("1/rank.dp", 'division by zero: "rank.dp" is 0 here (in "by" of step "last", on rank 0)'),
    "a long sum": ("1" + "+1" * 100_000, "the expression has more than 1000 operators in a row"),
    "deep brackets": ("(" * 100_000 + "1" + ")" * 100_000, "the expression is nested deeper than 200 levels"),
    "many signs": ("-" * 100_000 + "1", "the expression is nested deeper than 200 levels"),
    "a large exponent": ("1e401", 'the number "1e401" is out of range'),
    "a million digits": ("9" * 1_000_000, "is out of range"),
    "a large product": ("*".join(["1e400"] * 200), "this value has more than 8192 binary digits"),
    "a power": ("2^(1/2)", "there is no power; the operators are + - * /"),
    "lcm of 0": ("lcm(0, 1)", '"lcm" takes positive whole numbers, but "0" is 0'),
    "a string": ("'dp'", "expected a number"),
    "an open bracket": ("(1 + 2", 'expected ")", but the expression ends'),
    "nothing": ("", "the expression is empty"),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions(limited, tmp_path, name):
    text, sentence = EXPRESSIONS[name]
    status, said = check(limited, tmp_path, with_step(op="scale", by=text))
    assert sentence in said
    assert status == 2


ALIGNMENTS = [0, -64, 0.5, 10**30, "1 / (n - 2)", "x"]


@pytest.mark.parametrize("value", ALIGNMENTS)
@pytest.mark.parametrize(
    "geometry", [("flat", "align"), ("bucket", "align_parameter"), ("bucket", "align_bucket"), ("bucket", "size")], ids=lambda pair: pair[1]
)
def test_alignments(limited, tmp_path, geometry, value):
    kind, key = geometry
    status, said = check(limited, tmp_path, with_geometry(kind=kind, **{key: value}))
    assert status == 2
    if value == "x":
        assert 'unknown name "x" in an expression' in said
    elif isinstance(value, str):
        assert 'division by zero: "n - 2" is 0 here' in said
    elif value > 1 << 62:
        assert f'expected at most {1 << 62} for "{key}"' in said
    else:
        assert f'expected a positive whole number for "{key}"' in said


@pytest.mark.parametrize("value", [1 << 62, (1 << 61) - 1, 1])
def test_the_largest_alignments_overflow_nothing(limited, tmp_path, value):
    for kind, key in [("flat", "align"), ("bucket", "align_parameter"), ("bucket", "align_bucket"), ("bucket", "size")]:
        status, said = check(limited, tmp_path, with_geometry(kind=kind, **{key: value}))
        assert status in (1, 2), said
        assert status == 1 or "cannot be cut into 2 equal slices" in said or "more than 2^62 elements" in said


EDITS = {
    "a step that is not there": ([{"drop": "nothing"}], 'no step is named "nothing"; the steps are "zero", "micro_batches"'),
    "dropped twice": ([{"drop": "backward"}] * 2, 'step "backward" is not in the schedule: an earlier edit dropped it'),
    "behind itself": ([{"move": "backward", "after": "backward"}], 'step "backward" cannot be moved relative to itself'),
    "into itself": ([{"move": "micro_batches", "after": "backward"}], 'step "backward" is inside "micro_batches" and moves with it'),
    "an iteration that is not there": ([{"drop": "backward[99999999999]"}], "iteration 99999999999 does not exist"),
    "no kind of edit": ([{"dorp": "backward"}], "error: "),
    "20,000 of them": ([{"duplicate": "backward"}] * 20_000, "expected at most 1000 edits, found 20000"),
}


@pytest.mark.parametrize("name", EDITS)
def test_edits(limited, tmp_path, name):
    edits, sentence = EDITS[name]
    status, said = check(limited, tmp_path, with_edits(*edits))
    assert sentence in said
    assert status == 2


def test_a_thousand_edits_are_worked_off(limited, tmp_path):
    status, _ = check(limited, tmp_path, with_edits(*[{"duplicate": "zero"}] * 1000))
    assert status == 0


def test_windows_line_ends_are_fine(limited, tmp_path):
    assert check(limited, tmp_path, scenario().replace("{", "{\r\n"))[0] == 0


FRAMEWORKS = {
    "broken": ("./broken.jsonc", 'broken.jsonc:1:28: error: expected a key in double quotes, found the word broken'),
    "the scenario itself": ("./case.json", '"case.json" is no framework file: it lacks the key "lockstep_framework"'),
    "not there": ("./none.jsonc", 'cannot read the framework file "none.jsonc": No such file or directory'),
    "a folder": ("./", "it is a folder"),
    "without an end": ("/dev/zero", "is a file of the system, which no scenario is made of"),
    "misspelt": ("megtaron", 'unknown framework "megtaron"; did you mean "megatron"?'),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_framework_files(limited, tmp_path, name):
    (tmp_path / "broken.jsonc").write_text('{ "lockstep_framework": 1, broken')
    framework, sentence = FRAMEWORKS[name]
    status, said = check(limited, tmp_path, scenario(schedule={"framework": framework}))
    assert sentence in said
    assert status == 2


def model_file(**parts):
    return json.dumps({"lockstep_model": 1, "name": "ours", "help": "", "sizes": {"k": {"default": 10**6, "help": ""}}, **parts})


MODELS = {
    "stands on itself": ({"base": "./ours.jsonc"}, "more than 8 model files stand on each other's \"base\""),
    "a loop that explodes": (
        {"parameters": [{"for": {"a": "k", "b": "k", "c": "k"}, "when": "a < 0", "parameters": [{"name": "w{a}", "shape": [1]}]}]},
        "the loops of the model run more than",
    ),
    "a loop of 10^12": (
        {"sizes": {"k": {"default": 10**12, "help": ""}}, "parameters": [{"for": {"a": "k"}, "parameters": []}]},
        "the loops of the model run more than",
    ),
    "loops in loops": (
        {"parameters": [{"for": {"a": "k"}, "parameters": [{"for": {"b": "k"}, "parameters": [{"name": "w", "shape": [1], "when": "a < 0"}]}]}]},
        "the loops of the model run more than",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_model_files(limited, tmp_path, name):
    parts, sentence = MODELS[name]
    (tmp_path / "ours.jsonc").write_text(model_file(**parts))
    status, said = check(limited, tmp_path, scenario(model={"preset": "./ours.jsonc"}))
    assert sentence in said
    assert status == 2


def test_a_scenario_that_this_machine_has_no_memory_for_says_so(limited, tmp_path):
    large = scenario(
        layout={"tp": 8, "pp": 16, "dp": 1024},
        model={"preset": "llama3-70b"},
        batch={"micro_batches": 32},
        schedule={"framework": "megatron", "options": {"use_distributed_optimizer": True}},
    )
    status, said = check(limited, tmp_path, large)
    assert (status, said.splitlines()[0]) == (0, "match  case.json  case"), said
    status, said = check(limited, tmp_path, large, options=["--engine", "symbolic"])
    assert status == 3, said
    assert "this scenario needs about" in said
    assert "GiB are free here: 131072 ranks hold" in said
    assert "halve dp, micro_batches or the layers until it fits" in said


def test_a_million_micro_batches_are_too_many_for_engines_that_replay_each(limited, tmp_path):
    many = scenario(batch={"micro_batches": 1 << 20})
    status, said = check(limited, tmp_path, many)
    assert (status, said.splitlines()[0]) == (0, "match  case.json  case"), said
    status, said = check(limited, tmp_path, many, options=["--engine", "symbolic"])
    assert status == 2
    assert "this scenario is too large to be checked: 2 ranks hold 2 gradient" in said


# Paths, streams, signals, environment.


@pytest.mark.parametrize("command", ["explain", "show"])
def test_a_folder_is_no_file(limited, tmp_path, command):
    (tmp_path / "folder.json").mkdir()
    done = limited(command, "folder.json")
    assert done.returncode == 2
    assert b"takes one scenario, and there is no *.json or *.jsonc file in the folder folder.json" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(limited, tmp_path):
    (tmp_path / "secret.json").write_text(scenario())
    (tmp_path / "secret.json").chmod(0)
    done = limited("check", "secret.json")
    assert done.returncode == 2
    assert b"cannot read the file: Permission denied" in done.stdout


def test_names_of_files(limited, tmp_path):
    for name in ["a" * 5000, "a/" * 2000, "", "*" * 5000, "*/" * 2000, "**/" * 1000 + "x", "[" * 100]:
        assert limited("check", "--", name).returncode == 2


def test_pipes_in_a_folder_are_not_waited_for(limited, tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "pipe.json")
    (tmp_path / "folder" / "loop").symlink_to(tmp_path / "folder")
    assert limited("check", "folder").returncode == 4


@pytest.mark.parametrize(
    "arguments, status, sentence",
    [
        (["-o", "folder"], 2, b"cannot write to folder: it is a folder"),
        (["-o", "none/report"], 2, b"cannot write to none/report: there is no folder none\n"),
        (["-o", "/dev/full"], 3, b"cannot write to /dev/full: No space left on device"),
        (["-o", "same", "--report", "json=same"], 2, b"two reports cannot be written to one file, same; give one"),
        (["--report", "json=same", "--report", "junit=./same"], 2, b"one file, same, which is ./same too; give one"),
        (["-o", "folder/../same", "--report", "json=same"], 2, b"one file, folder/../same, which is same too; give one"),
        (["--report", "json=none/report"], 2, b"cannot write to none/report: there is no folder none\n"),
    ],
)
def test_places_that_cannot_be_written_to(limited, tmp_path, arguments, status, sentence):
    (tmp_path / "folder").mkdir()
    (tmp_path / "case.json").write_text(scenario())
    done = limited("check", *arguments, "case.json")
    assert done.returncode == status
    assert sentence in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["case.json", "folder"]


def test_standard_output_that_is_full_closed_or_a_closed_pipe(limited, tmp_path, binary):
    (tmp_path / "case.json").write_text(scenario())
    with open("/dev/full", "wb") as full:
        done = limited("check", "case.json", stdout=full)
    assert (done.returncode, done.stderr) == (3, b"lockstep: cannot write to standard output: No space left on device\n")
    done = subprocess.run(["sh", "-c", '"$0" check case.json >&-', binary], cwd=tmp_path, capture_output=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (3, b"lockstep: cannot write to standard output: Bad file descriptor\n")
    reader, writer = os.pipe()
    os.close(reader)
    done = limited("check", "case.json", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "2>&1 >/dev/null | true"])
def test_standard_error_that_is_full_closed_or_a_closed_pipe_loses_nothing_else(binary, tmp_path, redirection):
    (tmp_path / "case.json").write_text(scenario())

    def status(arguments):
        command = f'set -o pipefail; "$0" {arguments} {redirection}; exit "${{PIPESTATUS[0]}}"'
        return subprocess.run(["bash", "-c", command, binary], cwd=tmp_path, capture_output=True, timeout=SECONDS, check=False).returncode

    assert status("check none.json") == 2
    assert status("chek") == 2
    assert status("init step.jsonc") == 0
    assert "lockstep" in (tmp_path / "step.jsonc").read_text()
    assert status("check -o report case.json") == 0
    assert (tmp_path / "report").read_text().startswith("match  case.json")


def test_ctrl_c_ends_it_and_leaves_no_half_written_file(tmp_path, binary):
    large = scenario(
        layout={"tp": 8, "pp": 8, "dp": 16},
        model={"preset": "llama3-70b"},
        batch={"micro_batches": 8},
        schedule={"framework": "megatron", "options": {"use_distributed_optimizer": True}},
    )
    (tmp_path / "case.json").write_text(large)
    process = subprocess.Popen([binary, "check", "--engine", "host", "-o", "report", "case.json"], cwd=tmp_path, stderr=subprocess.PIPE)
    give_up = time.monotonic() + SECONDS
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < give_up:
        time.sleep(0.01)  # until it has begun to write
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=SECONDS)
    assert (process.returncode, said) == (130, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["case.json"]


@pytest.mark.parametrize("environment", [{}, {"TERM": ""}, {"TERM": "no-such-terminal"}, {"COLUMNS": "1"}, {"COLUMNS": "-5"}, {"LC_ALL": "nowhere"}])
def test_environments(limited, tmp_path, environment):
    (tmp_path / "case.json").write_text(scenario(schedule={"steps": [BACKWARD]}))
    for command in ["check", "explain", "show"]:
        plain = limited(command, "case.json", env={"HOME": "/", "PATH": "/usr/bin:/bin", "TERM": "xterm"})
        done = limited(command, "case.json", env=environment)  # no HOME, no PATH
        assert (done.returncode, done.stdout, done.stderr) == (plain.returncode, plain.stdout, b"")


def test_a_narrow_terminal(binary, tmp_path):
    (tmp_path / "case.json").write_text(scenario(schedule={"steps": [BACKWARD]}))
    controller, terminal = pty.openpty()
    process = subprocess.Popen([binary, "explain", "case.json"], cwd=tmp_path, stdout=terminal, stderr=terminal, env={"COLUMNS": "3"})
    os.close(terminal)
    said = b""
    try:
        while chunk := os.read(controller, 65536):
            said += chunk
    except OSError:
        pass  # how Linux says that the terminal has no other end any more
    assert process.wait(timeout=SECONDS) == 0
    assert b"backward" in said


def test_standard_input_may_be_closed(binary, tmp_path):
    (tmp_path / "case.json").write_text(scenario())
    done = subprocess.run(["sh", "-c", '"$0" check case.json <&-', binary], cwd=tmp_path, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 0


def test_one_file_that_is_too_large_does_not_keep_the_others_from_being_checked(limited, tmp_path):
    (tmp_path / "a.json").write_text(scenario(batch={"micro_batches": 1 << 20}))
    (tmp_path / "b.json").write_text(scenario())
    done = limited("check", "-q", "--engine", "symbolic,host", "a.json", "b.json")
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1].startswith(b"match  b.json")
