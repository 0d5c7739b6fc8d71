# SPDX-License-Identifier: Apache-2.0
"""Which scenarios of a folder are left out by its .gitignore files: those that git itself leaves out."""

import json
import os
import random
import shutil
import subprocess

import pytest

NAMES = ["a", "b", "ab", "out", "x.y", "case 1", "[a]", "a\\b", "#a", "!a", "é"]
PATTERNS = [
    "a", "/a", "a/", "/a/", "*/a", "a/*", "a/**", "**/a", "**/a/**", "a/**/b", "**", "*", "*.json", "*.jsonc", "/*.json", "?.json",
    "[ab].json", "[!a]*", "[a-b].json", "[[:alpha:]].json", "[]a].json", "\\[a\\].json", "[a", "a\\ ", "case 1", "case 1  ", "\\#a",
    "\\!a", "#a", "a**b.json", "out/*.json", "out/", "*a*b*", "", "   ", "/", "//a", "a//b", "**/", "/**/a", "x.*", "***/a", "***", "a/***", "[a*", "!a[b*", "a\\\\b", "é*", "a/b/../a",
]


def git(folder, *arguments):
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "none")}
    done = subprocess.run(["git", "-c", "core.quotePath=false", *arguments], cwd=folder, env=os.environ | settings, capture_output=True, text=True, check=True)
    return done.stdout


def checked(run, *what):
    done = run("check", "-f", "json", *what)
    results = json.loads(done.stdout or "[]")
    return sorted(result["file"] for result in (results if isinstance(results, list) else [results])), done.stderr


@pytest.mark.parametrize("seed", range(40))
def test_the_files_are_those_that_git_would_add(run, files, seed):
    draw = random.Random(seed)
    git(files, "init", "-q")
    folders = [files]
    for _ in range(5):
        folder = draw.choice(folders) / draw.choice(NAMES)
        folder.mkdir(exist_ok=True)
        folders.append(folder)
    for _ in range(14):
        shutil.copy(files / "right.json", draw.choice(folders) / (draw.choice(NAMES) + draw.choice([".json", ".jsonc"])))
    for folder in {files, *draw.sample(folders, 2)}:
        lines = [draw.choice(["", "", "!"]) + draw.choice(PATTERNS) for _ in range(draw.randint(1, 4))]
        (folder / ".gitignore").write_text(draw.choice(["", "", "\ufeff"]) + draw.choice(["\n", "\n", "\r\n"]).join(lines) + draw.choice(["", "\n"]))
    inner = draw.choice(folders)
    if seed % 4 == 0 and inner != files:  # a repository within, at whose files git does not look: they have rules of their own
        git(inner, "init", "-q")
        within = str(inner.relative_to(files)) + "/"
    else:
        within = "/"
    wanted = [path for path in git(files, "ls-files", "-z", "--others", "--exclude-standard").split("\0") if path.endswith((".json", ".jsonc"))]
    got, told = checked(run, ".")
    rules = {str(path): path.read_text() for path in files.rglob(".gitignore")}
    assert [path for path in got if not path.startswith(within)] == sorted(wanted), (rules, told)
    assert ("what .gitignore names" in told) >= (
        len(wanted) < sum(not str(path.relative_to(files)).startswith(within) for path in files.rglob("*.json*")))


def test_what_is_named_is_taken_and_what_is_left_out_is_told(run, files):
    shutil.copytree(files, files / "out", ignore=lambda *_: ["out"])
    (files / ".gitignore").write_text("/out/\nstuck.json\n")
    here = ["invalid.json", "right.json", "wrong.json"]
    assert checked(run, ".") == (here, "lockstep: passed over what .gitignore names: out/ and another\n")
    assert checked(run, "out") == (sorted(f"out/{name}" for name in [*here, "stuck.json"]), "")  # no repository: rules of out/ alone
    (files / ".git").mkdir()
    assert checked(run, "out") == (sorted(f"out/{name}" for name in here), "lockstep: passed over what .gitignore names: out/stuck.json\n")
    assert checked(run, "stuck.json", "out/stuck.json", "*.json") == (sorted([*here, "stuck.json", "out/stuck.json"]), "")
    (files / ".gitignore").write_text("*\n")
    nothing = run("check", ".")
    assert nothing.returncode == 4
    assert nothing.stderr == ("lockstep: passed over what .gitignore names: invalid.json and others\n"
                              "lockstep: nothing was checked: there is no scenario, in a *.json or *.jsonc file, in .\n")


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "large"])
def test_a_gitignore_that_is_no_small_file_has_no_rules(run, files, kind):
    rules = files / ".gitignore"
    (files / "rules").write_text("*\n")
    if kind == "link":
        rules.symlink_to("rules")
    elif kind == "folder":
        rules.mkdir()
    elif kind == "pipe":
        os.mkfifo(rules)
    else:
        rules.write_text("*\n" * (128 << 10) + "*\n")
    assert checked(run, ".") == (["invalid.json", "right.json", "stuck.json", "wrong.json"], "")


def test_patterns_of_strangers_take_no_time(run, files):
    """Each star could take any part of the name, and each `**` any folders: tried one after the other that has no end."""
    deep = files.joinpath(*["a" * 200] * 8)
    deep.mkdir(parents=True)
    shutil.copy(files / "right.json", deep / ("a" * 240 + ".json"))
    (files / ".gitignore").write_text("a*" * 100 + "b\n" + "**/a*/" * 100 + "b\n" + "[" * 1000 + "\n" + "**/" * 1000 + "b\n")
    assert len(checked(run, ".")[0]) == 5
