# SPDX-License-Identifier: Apache-2.0
"""Completion, in the shells that are there, and the manual pages, with the programs that read them."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

COMMAND = re.compile(r"^  (\w+) +\S", re.MULTILINE)
FLAGS = re.compile(r"^  ((?:-\w, )?--[\w-]+)", re.MULTILINE)


def needs(*programs):
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed")


@pytest.fixture
def commands(run):
    return COMMAND.findall(run("--help").stdout)


def flags_in_help(run, command):
    text = run(command, "--help").stdout.split("\noptions\n")[1].split("\nexamples\n")[0]
    return sorted(flag for flags in FLAGS.findall(text) for flag in flags.split(", "))


@pytest.fixture
def folder(run, files):
    """Files to complete, and the three scripts."""
    for name in ("run.npy", "run one.jsonc", "notes.txt", "out.sarif"):
        (files / name).write_text("")
    (files / "results").mkdir()
    for shell in ("bash", "zsh", "fish"):
        (files / f"lockstep.{shell}").write_text(run("completion", shell).stdout)
    return files


@pytest.fixture
def bash(folder):
    def completed(line):
        """What bash would offer at the end of the line, broken into words as readline does."""
        words = re.findall(r"[=:]|[^=:\s]+", line) + ([""] if line.endswith(" ") else [])
        script = 'source ./lockstep.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lockstep; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "--norc", "-c", script, "bash", *words], cwd=folder, capture_output=True,
                              text=True, check=True)
        assert done.stderr == ""
        return sorted(line for line in done.stdout.split("\n") if line)

    return completed


def test_bash_knows_every_command_and_option(run, bash, commands):
    assert bash("lockstep ") == sorted([*commands, "help", "--help", "--version"])
    assert bash("lockstep help ") == sorted(commands)
    for command in commands:
        assert bash(f"lockstep {command} -") == flags_in_help(run, command), command


@pytest.mark.parametrize(
    "line, expected",
    [
        ("lockstep pro", ["prove"]),
        ("lockstep check --form", ["--format"]),
        ("lockstep completion ", ["bash", "fish", "zsh"]),
        ("lockstep list -f ", ["json", "markdown", "text"]),
        ("lockstep list --format m", ["markdown"]),
        ("lockstep list --format=m", ["markdown"]),
        ("lockstep list --format=", ["json", "markdown", "text"]),
        ("lockstep check --engine symbolic,h", ["symbolic,host"]),
        ("lockstep check --color=al", ["always"]),
        ("lockstep check --report js", ["json="]),
        ("lockstep check --report json=out", ["out.sarif"]),
        ("lockstep check --report=json=out", ["out.sarif"]),
        ("lockstep check ri", ["right.json"]),
        ("lockstep check -q --seed 3 ri", ["right.json"]),
        ("lockstep check right.json r", ["results", "right.json", "run one.jsonc"]),
        ("lockstep check --seed ", []),
        ("lockstep explain right.json ", []),
        ("lockstep explain -o ", None),
        ("lockstep hash r", ["results", "run.npy"]),
        ("lockstep import acc", ["accelerate"]),
        ("lockstep import accelerate no", ["notes.txt"]),
        ("lockstep import --world-size 4 accelerate no", ["notes.txt"]),
        ("lockstep show framework:meg", ["megatron"]),
        ("lockstep show frame", None),
        ("lockstep mutate --write-mutants r", ["results"]),
        ("lockstep nothing ", []),
    ],
)
def test_bash_offers_what_may_stand_there(bash, folder, line, expected):
    if line.endswith("-o "):
        expected = sorted(os.listdir(folder))
    if line.endswith(" frame"):
        assert "framework:megatron" in bash(line)
        return
    assert bash(line) == expected


class Terminal:
    """A shell on a terminal of its own, to type into."""

    def __init__(self, arguments, folder, binary):
        environment = {"PATH": f"{os.path.dirname(binary)}:{os.environ['PATH']}", "TERM": "xterm", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
        self.text = ""
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execvpe(arguments[0], arguments, environment)

    def read_until(self, expected, seconds=300):
        end = time.monotonic() + seconds
        while not re.search(expected, self.text):
            left = end - time.monotonic()
            assert left > 0 and select.select([self.terminal], [], [], left)[0], f"{expected!r} is not in {self.text!r}"
            self.text += os.read(self.terminal, 65536).decode(errors="replace")
        return self.text

    def type(self, text):
        self.text = ""
        os.write(self.terminal, text.encode())

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.process, 0)


@pytest.mark.parametrize(
    "shell",
    ["bash", pytest.param("zsh", marks=needs("zsh"))],
)
def test_a_shell_on_a_terminal_completes(folder, binary, shell):
    start = {"bash": (["bash", "--norc", "--noprofile", "-i"], "source ./lockstep.bash"),
             "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u -D; source ./lockstep.zsh")}[shell]
    terminal = Terminal(start[0], folder, binary)
    try:
        terminal.type(start[1] + "; PS1='ready'; echo sta''rted\n")
        terminal.read_until("started\r\n.*ready")
        for typed, expected in {
            "lockstep compl\tba\t| grep -c compl''ete\n": r"[\r\n][1-9]\r",
            "lockstep list --form\tjs\t rig\t| tr -d ' \\n' | head -c 20\n": r'\[\{"scenario":"right"',
            "lockstep list --format=mark\t wro\t\n": r"\| scenario \| verdict",
            "lockstep check -q stu\t\n": r"deadlock\S*  stuck\.json",
            "lockstep show framework:nanot\t| grep -c lockstep_framew''ork\n": r"[\r\n]1\r",
        }.items():
            terminal.type(typed)
            terminal.read_until(expected)
    finally:
        terminal.close()


@pytest.fixture
def fish(folder):
    def completed(line):
        done = subprocess.run(["fish", "--no-config", "-c", f'source ./lockstep.fish; complete -C"{line}"'], cwd=folder,
                              env={**os.environ, "HOME": str(folder)}, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return sorted({line.split("\t")[0] for line in done.stdout.splitlines()})

    return completed


@needs("fish")
def test_fish_knows_every_command_and_option(run, fish, commands):
    assert fish("lockstep ") == sorted([*commands, "help"])
    for command in commands:
        offered = fish(f"lockstep {command} -") + fish(f"lockstep {command} --")
        assert sorted(set(offered) - {"--version"}) == flags_in_help(run, command), command


@needs("fish")
@pytest.mark.parametrize(
    "line, expected",
    [
        ("lockstep pro", ["prove"]),
        ("lockstep completion ", ["bash", "fish", "zsh"]),
        ("lockstep list -f m", ["markdown"]),
        ("lockstep list --format=m", ["--format=markdown"]),
        ("lockstep check --engine symbolic,h", ["symbolic,host"]),
        ("lockstep check ri", ["right.json"]),
        ("lockstep check r", ["results/", "right.json", "run one.jsonc"]),
        ("lockstep hash r", ["results/", "run.npy"]),
        ("lockstep import acc", ["accelerate"]),
        ("lockstep import accelerate no", ["notes.txt"]),
        ("lockstep show framework:meg", ["framework:megatron"]),
        ("lockstep mutate --write-mutants r", ["results/"]),
    ],
)
def test_fish_offers_what_may_stand_there(fish, line, expected):
    assert fish(line) == expected


def test_every_option_is_in_the_script_of_every_shell(run, folder, commands):
    zsh, fish = ((folder / f"lockstep.{shell}").read_text() for shell in ("zsh", "fish"))
    for command in commands:
        part = zsh.split(f"\n    {command})\n")[1].split("\n      ;;\n")[0]
        for flag in flags_in_help(run, command):
            assert re.search(rf"[*){{,]{re.escape(flag)}[+=\[,}}]", part), f"{command} {flag}"
            short = f"-l {flag[2:]} " if flag.startswith("--") else f"-s {flag[1:]} "
            assert any(short in line for line in fish.splitlines() if f"_command {command}'" in line or " -l help " in line), flag


@needs("zsh")
def test_zsh_parses_its_script(folder):
    subprocess.run(["zsh", "-n", "lockstep.zsh"], cwd=folder, check=True)


@needs("shellcheck")
def test_the_script_for_bash_is_sound(folder):
    done = subprocess.run(["shellcheck", "-s", "bash", "lockstep.bash"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_wrong_shells_and_pages_are_told(run):
    done = run("completion", "bahs")
    assert done.returncode == 2 and 'SHELL takes one of bash, zsh, fish; found "bahs"; did you mean "bash"?' in done.stderr
    done = run("man", "chekc")
    assert done.returncode == 2 and done.stderr == 'error: there is no command "chekc"; did you mean "check"?\n'
    done = run("man", "check", "--folder", "pages")
    assert done.returncode == 2 and "leave out the command" in done.stderr


# Manual pages.


@pytest.fixture
def pages(run, tmp_path, commands):
    assert run("man", "--folder", "pages").stdout == ""
    folder = tmp_path / "pages"
    assert sorted(os.listdir(folder)) == sorted(["lockstep.1", *(f"lockstep-{command}.1" for command in commands)])
    assert (folder / "lockstep-check.1").read_text() == run("man", "check").stdout
    assert (folder / "lockstep.1").read_text() == run("man").stdout
    return folder


def plain(text):
    """Without what a terminal overstrikes, hyphens at line ends, and the widths of spaces."""
    return " ".join(re.sub(r"\u2010\n *", "", re.sub(".\b", "", text)).split())


def test_fish_is_offered_files_at_every_place_of_a_command_that_takes_many_and_at_the_first_of_others(run):
    lines = run("completion", "fish").stdout.splitlines()
    files = {command: [line for line in lines if f"'__lockstep_command {command}" in line and "__lockstep_files json jsonc" in line]
             for command in ("check", "explain")}
    assert len(files["check"]) == len(files["explain"]) == 1
    assert "__lockstep_before" not in files["check"][0] and "; and __lockstep_before 0'" in files["explain"][0]


def test_a_page_names_each_example_and_then_what_it_does(run):
    examples = run("check", "--help").stdout.split("\nexamples\n")[1].splitlines()
    assert examples[0] == "  lockstep check scenario.json"
    assert f".TP\n\\fBlockstep check scenario.json\\fR\n{examples[1].strip()}\n" in run("man", "check").stdout


@needs("mandoc")
def test_mandoc_finds_nothing_wrong_with_the_pages(pages):
    done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", *sorted(pages.iterdir())], capture_output=True, text=True)
    # The same sources give the same page, so there is no date in it.
    assert [line for line in done.stdout.splitlines() if 'missing date, using ""' not in line] == []


@needs("groff")
def test_groff_sets_every_page_with_all_that_the_help_says(run, pages, commands):
    for command in commands:
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-cbou", pages / f"lockstep-{command}.1"], capture_output=True,
                              text=True, check=True)
        assert done.stderr == "", command
        page = plain(done.stdout).replace("\u2019", "'").replace("\u00ad", "")
        for flag in flags_in_help(run, command):
            assert flag in page, f"{command} {flag}"
        helped = run(command, "--help").stdout
        for line in helped.split("\nexamples\n")[1].splitlines():
            if line.startswith("  lockstep "):
                assert "".join(line.split()) in page.replace(" ", ""), line
        assert plain(helped.split("\n\n")[1]).replace("`", "").replace(" ", "") in page.replace(" ", ""), command


@needs("man")
def test_man_shows_a_page(pages):
    done = subprocess.run(["man", "-l", pages / "lockstep.1"], capture_output=True, text=True, check=True, env={**os.environ, "MANWIDTH": "100"})
    text = plain(done.stdout)
    assert "lockstep - exact checker of gradient synchronization" in text and "lockstep-repair(1)" in text and "EXIT STATUS" in text
