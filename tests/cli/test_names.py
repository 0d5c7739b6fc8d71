# SPDX-License-Identifier: Apache-2.0
"""What a text says of a file with an odd name stays on its line and begins none with "::": in the log of a GitHub job a line
that does, behind blanks or not, is a command."""

import os
import shlex
import subprocess

import pytest

# "@" stands for one of them.
PREFIXES = {"a line": "\n::error::", "the begin of a line": "::error::", "behind blanks": "  ::error::"}
COMMANDS = {
    "check": ["check", "@wrong.json"],
    "check -q": ["check", "-q", "@right.json", "@wrong.json", "@invalid.json"],
    "check -f concise": ["check", "-f", "concise", "@wrong.json", "@invalid.json"],
    "check -f junit": ["check", "-f", "junit", "@wrong.json", "@invalid.json"],
    "an invalid file": ["check", "@invalid.json"],
    "a file that is missing": ["check", "@missing.json"],
    "an empty folder": ["check", "@empty"],
    "a report to nowhere": ["check", "@right.json", "-o", "@none/out"],
    "an option": ["check", "--@option", "@right.json"],
    "a command": ["@command"],
    "a file for a command": ["@right.json"],
    "test": ["test", "@right.json", "@surprise.json", "@invalid.json"],
    "prove": ["prove", "@right.json", "@wrong.json", "@invalid.json"],
    "prove -q": ["prove", "-q", "@right.json"],
    "prove --counterexample": ["prove", "@right.json", "--counterexample", "@other"],
    "repair": ["repair", "@wrong.json"],
    "repair --to": ["repair", "@wrong.json", "--to", "@to"],
    "repair --write": ["repair", "@wrong.json", "--write"],
    "explain": ["explain", "@wrong.json"],
    "show": ["show", "@nameless.json"],
    "list": ["list", "@right.json", "@invalid.json"],
    "list -f markdown": ["list", "@nameless.json", "@invalid.json", "-f", "markdown"],
    "diff": ["diff", "@right.json", "@wrong.json"],
    "diff of a deadlock": ["diff", "@right.json", "@stuck.json"],
    "mutate": ["mutate", "@right.json"],
    "mutate -v": ["mutate", "@right.json", "-v"],
    "mutate --write-mutants": ["mutate", "@right.json", "--write-mutants", "@mutants"],
    "mutate of what is wrong": ["mutate", "@wrong.json"],
    "report": ["report", "@invalid.json", "-o", "page.html"],
    "placements": ["placements", "@right.json"],
    "init": ["init", "@new"],
    "import": ["import", "deepspeed", "@deepspeed.json", "--world-size", "4", "--check"],
}


@pytest.fixture(params=PREFIXES)
def odd(request, files):
    prefix = PREFIXES[request.param]
    texts = {name: (files / f"{name}.json").read_text() for name in ("right", "wrong", "stuck", "invalid")}
    texts["surprise"] = texts["right"].replace('"match"', '"mismatch"')
    texts["nameless"] = texts["right"].replace('"name": "right",', "")
    texts["deepspeed"] = '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}'
    for name, text in texts.items():
        (files / f"{prefix}{name}.json").write_text(text)
    (files / f"{prefix}empty").mkdir()
    return prefix


def commands_in(text):
    return [line for line in text.splitlines() if line.strip().startswith("::")]


@pytest.mark.parametrize("name", COMMANDS)
def test_an_odd_name_begins_no_line(run, odd, name):
    done = run(*(word.replace("@", odd) for word in COMMANDS[name]))
    text = done.stdout + done.stderr
    assert "error::" in text or name in ("explain", "show", "placements"), text
    assert commands_in(text) == [], text


def test_a_watched_file_with_an_odd_name(binary, files, odd):
    with subprocess.Popen([binary, "watch", f"{odd}wrong.json"], cwd=files, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        process.kill()
    assert "::error::wrong.json" in line and commands_in(line) == []


@pytest.mark.parametrize("name", ["a b.json", "it's.json", "$HOME`x`.json", "a\nb\\'c.json", "\x85\udcff.json", "-x.json", "plain-1_é.json"])
def test_the_command_that_is_suggested_is_one(binary, files, name):
    os.rename(files / "wrong.json", os.path.join(files, name))
    done = subprocess.run([binary, "check", "--", name], cwd=files, capture_output=True, check=False)
    suggested = done.stdout.split(b"`lockstep repair ")[1].split(b"` shows this")[0]
    assert suggested.isascii() or name.startswith("plain")
    # As a shell reads it.
    told = subprocess.run(["bash", "-c", b"printf %s " + suggested], capture_output=True, check=True, env={"LC_ALL": "C"}).stdout
    assert os.path.normpath(told) == os.fsencode(name)
    assert name != "a b.json" or suggested.decode() == shlex.quote(name)
