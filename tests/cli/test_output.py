# SPDX-License-Identifier: Apache-2.0
"""Where output goes and what happens when it cannot go there."""

import json
import os
import pty
import signal
import subprocess
import time

import pytest


def test_output_appears_complete_and_alone(run, files):
    done = run("check", "-o", "out.txt", "wrong.json")
    assert done.returncode == 1
    assert done.stdout == ""
    assert (files / "out.txt").read_text() == run("check", "wrong.json").stdout
    assert not list(files.glob("*.tmp"))


def test_a_failed_run_leaves_the_old_file(run, files):
    (files / "out.txt").write_text("old")
    assert run("explain", "-o", "out.txt", "right.json", "--step", "no_such_step").returncode == 2
    assert (files / "out.txt").read_text() == "old"
    assert not list(files.glob("*.tmp"))


def test_a_link_stays_a_link(run, files):
    (files / "target.txt").write_text("old")
    (files / "link.txt").symlink_to("target.txt")
    run("check", "-q", "-o", "link.txt", "right.json")
    assert (files / "link.txt").is_symlink()
    assert (files / "target.txt").read_text().startswith("match")


def test_an_output_that_cannot_be_made_is_usage(run, files):
    done = run("check", "-o", "no/such/folder/out.txt", "right.json")
    assert done.returncode == 2
    assert "cannot write to no/such/folder/out.txt" in done.stderr
    assert run("check", "-o", ".", "right.json").returncode == 2


def test_a_full_disk_is_a_failure_of_the_environment(run, files):
    done = run("check", "-o", "/dev/full", "right.json")
    assert done.returncode == 3
    assert "cannot write" in done.stderr
    assert os.path.exists("/dev/full")


def test_a_closed_pipe_is_quiet(binary, files):
    for arguments in (["check", "wrong.json"], ["--help"], ["check", "--help"], ["reference"]):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([binary, *arguments], cwd=files, stdout=writer, stderr=subprocess.PIPE, check=False)
        os.close(writer)
        assert done.returncode == 141, arguments
        assert done.stderr == b""


def test_an_interrupt_leaves_no_half_file(binary, files):
    # So many files that the program is still busy.
    text = (files / "wrong.json").read_text()
    (files / "many").mkdir()
    for number in range(1000):
        (files / "many" / f"{number}.json").write_text(text)
    arguments = ["check", "-o", "out.txt", "many"]
    process = subprocess.Popen([binary, *arguments], cwd=files, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while process.poll() is None and not list(files.glob("out.txt.*.tmp")):
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130
    assert not list(files.glob("out.txt*"))


def test_a_report_does_not_replace_the_scenario_that_it_is_about(run, files):
    before = (files / "wrong.json").read_bytes()
    for arguments in (["-o", "wrong.json"], ["--report", "junit=./wrong.json"]):
        done = run("check", "right.json", "wrong.json", *arguments)
        assert done.returncode == 2
        assert "the report would replace wrong.json, which it is about; give it another name" in done.stderr
        assert (files / "wrong.json").read_bytes() == before
    assert not list(files.glob("*.tmp"))


def test_what_cannot_be_written_is_said_before_the_work(run, files):
    """A search for repairs or all mutants of a schedule may take minutes."""
    large = (files / "right.json").read_text().replace('"dp": 2', '"dp": 64').replace("8]", "4096]")
    (files / "large.json").write_text(large.replace('"micro_batches": 1', '"micro_batches": 64'))
    (files / "full").mkdir()
    (files / "full" / "file").touch()
    for arguments, sentence in [(["-o", "none/out"], "cannot write to none/out: there is no folder none"),
                                (["--write-mutants", "full"], "full is neither")]:
        begin = os.times().children_user
        done = run("mutate", "large.json", *arguments)
        assert done.returncode == 2 and sentence in done.stderr
        assert os.times().children_user - begin < 5  # of its own work, however much else the machine has to do
    assert not list(files.glob("*.tmp"))


def test_a_page_is_told_where_it_is_and_what_was_not_valid(binary, run, files):
    done = run("report", "right.json", "-o", "page.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "wrote page.html, a page of 1 scenario; a browser opens it\n")
    done = run("report", "right.json", "invalid.json", "-o", "page.html")
    assert done.returncode == 2 and done.stderr.startswith('invalid.json:4:3: error: unknown key "layuot"')
    assert done.stderr.endswith("wrote page.html, a page of 2 scenarios; a browser opens it\n")
    reader, writer = pty.openpty()
    done = subprocess.run([binary, "report", "right.json"], cwd=files, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    os.close(reader)
    assert done.returncode == 2 and "name a file for it, such as -o report.html" in done.stderr
    assert run("report", "right.json").stdout.startswith("<!DOCTYPE html>")


def test_a_name_in_other_bytes_costs_no_report(binary, files):
    name = os.fsencode(files) + b"/bad\xff.json"
    with open(name, "wb") as file:
        file.write((files / "wrong.json").read_bytes())
    done = subprocess.run([binary, "check", name, "--report", "html=h.html", "--report", "junit=j.xml", "--report", "json=o.json"],
                          cwd=files, capture_output=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "bad\ufffd.json" in (files / "o.json").read_text(encoding="utf-8")
    assert (files / "h.html").exists() and (files / "j.xml").exists()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_program_leaves_no_half_file_and_is_seen(binary, files, sent):
    """Nobody writes to the pipe, so that the program waits until it is ended. The tests themselves may run under nohup."""
    os.mkfifo(files / "pipe.json")
    process = subprocess.Popen([binary, "check", "-o", "out.txt", "pipe.json"], cwd=files, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(sent, signal.SIG_DFL))
    while process.poll() is None and not list(files.glob("out.txt.*.tmp")):
        time.sleep(0.001)
    process.send_signal(sent)
    process.communicate()
    assert process.returncode == -sent
    assert not list(files.glob("out.txt*"))


def test_a_program_that_is_to_outlive_its_terminal_does(binary, files):
    os.mkfifo(files / "pipe.json")
    process = subprocess.Popen(["nohup", binary, "check", "-q", "-o", "out.txt", "pipe.json"], cwd=files, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while process.poll() is None and not list(files.glob("out.txt.*.tmp")):
        time.sleep(0.001)
    process.send_signal(signal.SIGHUP)
    (files / "pipe.json").write_text((files / "right.json").read_text())
    process.communicate()
    assert process.returncode == 0 and (files / "out.txt").read_text().startswith("match  pipe.json")


STREAMS = {
    "/dev/stdout": ["-o", "/dev/stdout"],
    "/dev/fd/1": ["-o", "/dev/fd/1"],
    "/proc/self/fd/1": ["-o", "/proc/self/fd/1"],
    "/proc/thread-self/fd/1": ["-o", "/proc/thread-self/fd/1"],
    "a link to it": ["-o", "link"],
    "/dev/stderr": ["-o", "/dev/stderr"],
    "--report": ["-o", "own.txt", "--report", "text=/dev/stdout"],
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("mode", ["ab", "r+b"])
def test_a_stream_that_is_open_is_written_on_and_not_replaced(binary, run, files, name, mode):
    report = run("check", "wrong.json").stdout
    (files / "link").symlink_to("/dev/stdout")
    (files / "job.log").write_text("what the job said\n")
    with open(files / "job.log", mode) as log:
        log.seek(0, os.SEEK_END)
        # The step of a job before and after us writes to the same stream.
        subprocess.run([binary, "check", *STREAMS[name], "wrong.json"], cwd=files, stdout=log, stderr=log, check=False)
        subprocess.run(["echo", "what came after"], stdout=log, check=True)
        assert os.fstat(log.fileno()).st_ino == os.stat(files / "job.log").st_ino
    assert (files / "job.log").read_text() == f"what the job said\n{report}what came after\n"
    assert (files / "link").is_symlink() and not list(files.glob("*.tmp"))


def test_a_stream_of_another_process_is_written_on_too(run, files):
    report = run("check", "wrong.json").stdout
    (files / "job.log").write_text("what the job said\n")
    with open(files / "job.log", "ab") as log:
        assert run("check", "wrong.json", "-o", f"/proc/{os.getpid()}/fd/{log.fileno()}").returncode == 1
    assert (files / "job.log").read_text() == f"what the job said\n{report}"


def test_a_stream_that_cannot_be_written_to_is_usage(run, files):
    with open(files / "right.json", encoding="utf-8") as file:
        done = run("check", "wrong.json", "-o", "/dev/stdin", stdin=file)
    assert done.returncode == 2 and "/dev/stdin: it is open for reading alone" in done.stderr
    # The first free number is that of a file which the program itself opens.
    for number in range(3, 12):
        assert run("check", "wrong.json", "-o", "own.txt", "--report", f"json=/dev/fd/{number}").returncode == 2
    assert not (files / "own.txt").exists()


def test_one_device_takes_several_reports(run, files):
    done = run("check", "right.json", "-o", "/dev/null", "--report", "json=/dev/null", "--report", "text=/dev/null")
    assert done.returncode == 0 and done.stdout + done.stderr == ""
    assert not os.path.isfile("/dev/null")


def test_what_a_runner_would_take_as_a_command_is_escaped_as_the_format_has_it(run, files):
    scenario = json.loads((files / "right.json").read_text()) | {"name": "##[group]"}
    (files / "named.json").write_text(json.dumps(scenario))
    assert run("show", "named.json").stdout.startswith("##\\[group]\n")
    resolved = run("show", "--resolved", "named.json").stdout
    assert json.loads(resolved)["name"] == "##[group]" and "##[" not in resolved
