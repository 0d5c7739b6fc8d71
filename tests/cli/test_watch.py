# SPDX-License-Identifier: Apache-2.0
"""`lockstep watch` as a process: what it prints when files are saved, in the ways in which editors save them."""

import os
import pty
import re
import select
import signal
import subprocess
import termios
import time

import pytest


class Watch:
    def __init__(self, binary, folder, *arguments, terminal=False):
        environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
        self.reader, writer = pty.openpty() if terminal else os.pipe()
        self.settings = termios.tcgetattr(self.reader) if terminal else None
        self.process = subprocess.Popen([binary, "watch", *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=writer,
                                        stderr=subprocess.STDOUT, env=environment)
        self.writer = writer if terminal else None
        if not terminal:
            os.close(writer)
        self.text = ""

    def expect(self, pattern, seconds=300):
        """The text since the last call, up to what fits."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text, re.DOTALL)):
            left = end - time.monotonic()
            assert left > 0 and select.select([self.reader], [], [], left)[0], f"{pattern!r} is not in {self.text!r}"
            more = os.read(self.reader, 65536).decode()
            assert more, f"it has ended with {self.process.wait()}: {self.text!r}"
            self.text += more
        text, self.text = self.text[: found.end()], self.text[found.end():]
        return text

    def is_quiet(self, seconds):
        return not self.text and not select.select([self.reader], [], [], seconds)[0]


@pytest.fixture
def watch(binary, files):
    started = []

    def start(*arguments, **options):
        started.append(Watch(binary, files, *arguments, **options))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        os.close(one.reader)
        if one.writer is not None:
            os.close(one.writer)


# Each yields where the file is as it was or as it will be, and how long it may be anything else: watch takes what rests for 40 ms for written, and
# what is gone for 1.5 s for gone.
SHORT, GONE = 0.03, 1.2


def save_over(path, text):
    path.write_text(text)
    yield SHORT


def save_by_rename(path, text):
    beside = path.with_name(f".{path.name}.swp")
    beside.write_text(text)
    yield float("inf")
    os.replace(beside, path)


def save_after_removal(path, text):
    path.unlink()
    time.sleep(0.4)
    yield GONE
    path.write_text(text)
    yield SHORT


def save_in_pieces(path, text):
    with open(path, "w") as file:
        for begin in range(0, len(text), 60):
            file.write(text[begin:begin + 60])
            file.flush()
            yield SHORT
            time.sleep(0.01)


def put(path, text):
    """Nobody sees a half."""
    assert all(save_by_rename(path, text))


def is_saved_at_once(save, path, text):
    """Saves; whether this machine was quick enough that nobody may take a half for the whole."""
    quick, begin = True, time.monotonic()
    for limit in save(path, text):
        now = time.monotonic()
        quick, begin = quick and now - begin < limit, now
    return quick


@pytest.mark.parametrize("save", [save_over, save_by_rename, save_after_removal, save_in_pieces])
def test_what_is_saved_is_checked_again(watch, files, save):
    right, wrong, path = (files / "right.json").read_text(), (files / "wrong.json").read_text(), files / "step.json"
    path.write_text(right)
    watching = watch("step.json")
    assert watching.expect("\n\n") == "match  step.json  right\n\n"
    for _ in range(2):
        quick = is_saved_at_once(save, path, wrong)
        text = watching.expect("at fault.*?\n\n")
        assert "at fault: mean" in text and (text.startswith("mismatch  step.json  wrong\n") or not quick), text
        assert not quick or ("error" not in text and "no scenario" not in text)
        quick = is_saved_at_once(save, path, right)
        text = watching.expect("(^|\n)match  step.json  right\n\n")
        assert text == "match  step.json  right\n\n" or not quick, text
    quick = is_saved_at_once(save, path, right.replace('"layout"', '"layuot"'))
    text = watching.expect("layuot.*\n\n")
    assert 'step.json:4:3: error: unknown key "layuot"' in text and "^~~~" in text and (text.startswith("error  step.json\n") or not quick)


def test_nothing_is_printed_where_nothing_changes_and_a_touched_file_is_checked(watch, files):
    watching = watch("right.json")
    watching.expect("match.*\n\n")
    assert watching.is_quiet(1)
    # The same size in the same tick of the clock.
    text = (files / "right.json").read_text()
    put(files / "right.json", text.replace('"name": "right"', '"name": "wight"'))
    assert "wight" in watching.expect("\n\n")


def test_framework_files_that_a_scenario_names_count_too(run, watch, files):
    framework = run("show", "framework:megatron").stdout
    (files / "mine.jsonc").write_text(framework)
    (files / "m.json").write_text(
        '{ "lockstep": 1, "name": "m", "layout": { "dp": 2 }, "model": { "preset": "gpt2", "layers": 2, "hidden": 16, "heads": 2 }, '
        '"schedule": { "framework": "./mine.jsonc" } }')
    watching = watch("m.json")
    watching.expect("match  m.json.*\n\n")
    put(files / "mine.jsonc", '{ "lockstep_framework": 1')
    assert "mine.jsonc:1" in watching.expect("error  m.json.*\n\n")
    put(files / "mine.jsonc", framework)
    watching.expect("match  m.json.*\n\n")


def test_several_files_come_and_go(watch, files):
    (files / "cases").mkdir()
    (files / "cases" / "b.json").write_text((files / "right.json").read_text())
    watching = watch("cases", "wrong.json")
    assert watching.expect("at fault.*?\n\n").startswith("match  cases/b.json  right\nmismatch  wrong.json")
    put(files / "cases" / "a.json", (files / "stuck.json").read_text())
    assert watching.expect("at fault.*at fault.*?\n\n").startswith("deadlock  cases/a.json  stuck\n")
    (files / "cases" / "a.json").unlink()
    assert watching.expect("at fault.*?\n\n").startswith("match  cases/b.json  right\nmismatch  wrong.json")
    (files / "cases" / "b.json").unlink()
    (files / "wrong.json").unlink()
    watching.expect("there is no scenario now; waiting for one\n\n")
    put(files / "wrong.json", (files / "right.json").read_text())
    assert watching.expect("\n\n") == "match  wrong.json  right\n\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_an_interrupt_ends_it_and_leaves_the_terminal_as_it_was(watch, terminal):
    watching = watch("right.json", terminal=terminal)
    text = watching.expect("Ctrl-C ends it\r\n" if terminal else "\n\n")
    # The screen is cleared on a terminal alone.
    assert text.startswith("\x1b[H\x1b[2J\x1b[3Jmatch  right.json") if terminal else text == "match  right.json  right\n\n"
    watching.process.send_signal(signal.SIGINT)
    assert watching.process.wait(timeout=300) == 0
    if terminal:
        assert watching.expect("\n") == "\r\n" and termios.tcgetattr(watching.reader) == watching.settings


def test_whoever_reads_a_pipe_may_go_away(watch, files):
    watching = watch("right.json")
    watching.expect("\n\n")
    os.close(watching.reader)
    watching.reader = os.open(os.devnull, os.O_RDONLY)
    put(files / "right.json", (files / "wrong.json").read_text())
    assert watching.process.wait(timeout=300) == 141


def test_mistakes(run, files):
    (files / "empty").mkdir()
    for arguments, status, sentence in [(("nothing.json",), 2, "there is no file or folder nothing.json"), (("empty",), 4, "nothing was checked"),
                                        (("-",), 2, "standard input can be read once"), (("x*",), 2, "fits the glob x*")]:
        done = run("watch", *arguments)
        assert done.returncode == status and sentence in done.stderr


def test_what_can_be_read_once_is_not_watched(run, files):
    os.mkfifo(files / "pipe.json")
    for name in ("pipe.json", "/dev/stdin", "/dev/fd/0", "/dev/null"):
        done = run("watch", name, stdin=subprocess.PIPE)
        assert done.returncode == 2 and f"{name} is a pipe or a device, which can be read once" in done.stderr, name
    # Found by a glob it is passed over, as in a folder.
    assert run("watch", "pipe*").returncode == 2
    assert run("check", "-q", "pipe*", "right.json").stdout == ""


def test_a_pipe_that_takes_the_place_of_a_watched_file_is_not_waited_for(watch, files):
    watching = watch("right.json", "wrong.json")
    watching.expect("right.json")
    (files / "right.json").unlink()
    os.mkfifo(files / "right.json")
    put(files / "wrong.json", (files / "stuck.json").read_text())
    watching.expect("deadlock  wrong.json")
