# SPDX-License-Identifier: Apache-2.0
"""The mpi engine in real processes: against the host engine, started and ended in every way."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ.get("LOCKSTEP_BINARY", "lockstep"))
TIME_LIMIT_S = 600
ROUNDS = int(os.environ.get("LOCKSTEP_TEST_ROUNDS", "1"))


def why_not():
    if "LOCKSTEP_BINARY" not in os.environ:
        return "LOCKSTEP_BINARY does not name the program"
    if not json.loads(subprocess.run([PROGRAM, "version", "-f", "json"], capture_output=True, text=True).stdout)["engines"]["mpi"]:
        return "lockstep was built without MPI"
    return None if shutil.which("mpirun") else "there is no mpirun"


needs_mpi = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

# Open MPI unloads its plugins before leaks are looked for, so that its own cannot be told from ours.
ENVIRONMENT = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "OMPI_MCA_mpi_yield_when_idle": "1",
               "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
ENVIRONMENT.pop("FORCE_COLOR", None)
ENVIRONMENT.pop("CLICOLOR_FORCE", None)


def lockstep(*arguments, cwd=ROOT, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)], cwd=cwd, env=options.pop("env", ENVIRONMENT), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=TIME_LIMIT_S, **options)


def under_mpirun(processes, *arguments, cwd=ROOT, before=()):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command = ["mpirun", "-n", str(processes), "--oversubscribe", "--bind-to", "none", *root, *before, PROGRAM, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIME_LIMIT_S)


def scenario(dp=4, shape=(8,), steps=None, **layout):
    steps = steps or [{"name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg"}]
    each = {"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward"}]}
    return json.dumps({"lockstep": 1, "name": "made", "layout": {"dp": dp, **layout},
                       "model": {"parameters": [{"name": "weight", "shape": list(shape)}]},
                       "batch": {"micro_batches": 1, "tokens": "even"}, "schedule": {"steps": [each, *steps]}})


def reports_of(done):
    """The reports on standard output, none of which may have a disagreement."""
    assert done.returncode in (0, 1, 2), done.stdout[-2000:] + done.stderr
    reports = json.loads(done.stdout)
    reports = reports if isinstance(reports, list) else [reports]
    for report in reports:
        assert "disagreement" not in report, report
    return reports


# The corpus. lockstep itself compares the hashes of every buffer of every rank, and of the reference, of host and mpi
# (src/diagnosis/agreement.cpp), and both with the formulas.

def small_corpus(part, parts):
    """Files whose replay is quick: those that give their own small shapes; a part of every seventh, in tools/nightly all."""
    files = []
    for path in sorted((ROOT / "scenarios").rglob("*.json")):
        text = path.read_text(encoding="utf-8")
        if '"parameters"' in text and '"preset"' not in text and "scale" not in path.parts:
            files.append(str(path.relative_to(ROOT)))
    return files if ROUNDS > 1 else files[7 * part::7 * parts]


@needs_mpi
@pytest.mark.parametrize("processes", PROCESSES := [1, 2, 3, 8])
def test_the_corpus_has_the_hashes_of_the_host_engine(processes):
    files = small_corpus(PROCESSES.index(processes), len(PROCESSES))
    assert len(files) >= 10
    reports = reports_of(under_mpirun(processes, "check", "-f", "json", "--no-blame", "--engine", "symbolic,host,mpi", *files))
    assert [report["file"] for report in reports] == files
    verdicts = set()
    for report in reports:
        if report["verdict"] == "error":
            continue
        assert set(report["engines"]) == {"symbolic", "host", "mpi"}
        assert report["engines"]["mpi"] == report["engines"]["host"]
        verdicts.add(report["verdict"])
    assert {"match", "mismatch"} <= verdicts


@needs_mpi
@pytest.mark.parametrize("processes", [2, 3, 8])
def test_random_schedules_have_the_hashes_of_the_host_engine(processes, tmp_path):
    made = subprocess.run([sys.executable, ROOT / "tests" / "oracle" / "random_scenario.py", "--seed", str(processes), "--count", str(20 * ROUNDS),
                           "--out", tmp_path], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    files = sorted(path.name for path in tmp_path.glob("*.plain.json"))
    assert len(files) == 20 * ROUNDS
    reports = reports_of(under_mpirun(processes, "check", "-f", "json", "--no-blame", "--engine", "symbolic,host,mpi", *files, cwd=tmp_path))
    compared = [report for report in reports if "mpi" in report.get("engines", {})]
    assert len(compared) >= 12 * ROUNDS
    assert all(report["engines"]["mpi"] == report["engines"]["host"] for report in compared)


# How it is started, and what it says.

@needs_mpi
def test_it_starts_mpirun_itself_and_reports_as_ever(tmp_path):
    (tmp_path / "right.json").write_text(scenario())
    (tmp_path / "wrong.json").write_text(scenario(steps=[{"name": "sum", "op": "all_reduce", "over": "dp"}]))
    (tmp_path / "stuck.json").write_text(scenario(steps=[{"name": "sum", "op": "all_reduce", "over": "dp", "when": "rank.dp == 0"}]))
    (tmp_path / "invalid.json").write_text(scenario().replace('"layout"', '"layuot"'))
    done = lockstep("check", "--engine", "mpi", "--ranks", 4, "right.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mpi match in 4 processes" in done.stdout and "\x1b" not in done.stdout
    done = lockstep("check", "--engine", "host,mpi", "--ranks", "2", "-f", "json", "--all", "right.json", "wrong.json", "stuck.json",
                    "invalid.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    right, wrong, stuck, invalid = json.loads(done.stdout)
    assert right["engines"] == {"host": "match", "mpi": "match"}
    assert wrong["engines"] == {"host": "mismatch", "mpi": "mismatch"}
    assert stuck["verdict"] == "deadlock" and invalid["verdict"] == "error"
    # Without the host engine the hashes are those of the mpi engine, and the same.
    alone = json.loads(lockstep("check", "--engine", "mpi", "--ranks", "3", "-f", "json", "--all", "wrong.json", cwd=tmp_path).stdout)
    assert alone["engines"] == {"mpi": "mismatch"}
    assert alone["parameters"][0]["ranks"] == wrong["parameters"][0]["ranks"]
    assert alone["parameters"][0]["ranks"][0]["hash"] is not None
    assert alone["parameters"][0]["reference"]["hash"] == right["parameters"][0]["reference"]["hash"]
    (tmp_path / "expects.json").write_text(scenario()[:-1] + ', "expect": { "verdict": "match" } }')
    tested = lockstep("test", "--engine", "mpi", "--ranks", "2", "expects.json", cwd=tmp_path)
    assert (tested.returncode, tested.stderr) == (0, "") and "1 passed" in tested.stdout


@needs_mpi
def test_under_mpirun_one_process_speaks_and_a_report_is_written_once(tmp_path):
    (tmp_path / "right.json").write_text(scenario(dp=2))
    done = under_mpirun(3, "check", "--engine", "mpi", "-o", "report.txt", "--report", "json=report.json", "right.json", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "report.txt").read_text().count("mpi match in 3 processes, 1 of them without a rank") == 1
    assert json.loads((tmp_path / "report.json").read_text())["engines"] == {"mpi": "match"}
    done = under_mpirun(3, "check", "--engine", "mpi", "right.json", cwd=tmp_path)
    assert done.stdout.count("right.json") == 1 and "\x1b" not in done.stdout
    done = under_mpirun(3, "check", "--engine", "mpi", "missing.json", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("there is no file or folder missing.json") == 1
    done = under_mpirun(3, "check", "--engine", "mpi", "--ranks", "2", "right.json", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("--ranks 2 was given, and 3 processes were started") == 1


@needs_mpi
@pytest.mark.parametrize("slow, fast", [("0", "missing.json"), ("1", "missing.json"), ("0", "--bogus")])
def test_under_mpirun_a_mistake_is_said_once_whoever_is_first(slow, fast, tmp_path):
    # mpirun ends all as soon as one ends: processes that are quicker than process 0 must not end before it has spoken.
    delay = ["sh", "-c", f'[ "$OMPI_COMM_WORLD_RANK" != {slow} ] || sleep 2; exec "$@"', "sh"]
    done = under_mpirun(3, "check", "--engine", "mpi", fast, cwd=tmp_path, before=delay)
    assert done.returncode == 2
    assert done.stderr.count("there is no") == 1, done.stderr


@needs_mpi
def test_under_mpirun_a_mistake_of_another_process_is_said(tmp_path):
    (tmp_path / "right.json").write_text(scenario(dp=3))
    elsewhere = ["sh", "-c", '[ "$OMPI_COMM_WORLD_RANK" != 1 ] || cd /; exec "$@"', "sh"]
    done = under_mpirun(3, "check", "--engine", "mpi", "right.json", cwd=tmp_path, before=elsewhere)
    assert done.returncode == 2
    assert done.stderr.count("there is no file or folder right.json") == 1, done.stderr


@needs_mpi
@pytest.mark.parametrize("ranks", ["0", "-1", "two", "2.5", "2x", "99999999999"])
def test_a_number_of_processes_that_is_none_is_refused(ranks, tmp_path):
    (tmp_path / "right.json").write_text(scenario())
    done = lockstep("check", "--engine", "mpi", f"--ranks={ranks}", "right.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "--ranks" in done.stderr


@needs_mpi
def test_what_else_is_refused(tmp_path):
    (tmp_path / "right.json").write_text(scenario(dp=2))
    done = lockstep("check", "--engine", "mpi", "--ranks", "3", "right.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "the layout has 2 ranks, fewer than the 3 processes of --ranks; give at most 2" in done.stdout + done.stderr
    done = lockstep("check", "--ranks", "2", "right.json", cwd=tmp_path)
    assert done.returncode == 2 and "--ranks is for --engine mpi" in done.stderr
    done = lockstep("check", "--engine", "mpj", "right.json", cwd=tmp_path)
    assert done.returncode == 2 and "did you mean \"mpi\"" in done.stderr
    done = lockstep("check", "--engine", "mpi", "/dev/stdin", cwd=tmp_path)
    assert done.returncode == 2 and "/dev/stdin is no regular file" in done.stderr
    done = lockstep("check", "--engine", "mpi", "-o", "no/folder/report", "right.json", cwd=tmp_path)
    assert done.returncode == 2 and "cannot write to no/folder/report" in done.stderr


@needs_mpi
def test_without_mpirun_it_says_what_is_missing(tmp_path):
    (tmp_path / "right.json").write_text(scenario())
    done = lockstep("check", "--engine", "mpi", "--ranks", "2", "right.json", cwd=tmp_path, env={**ENVIRONMENT, "PATH": str(tmp_path)})
    assert done.returncode == 3
    assert "needs mpirun" in done.stderr and "openmpi-bin" in done.stderr


@pytest.mark.skipif("LOCKSTEP_BINARY" not in os.environ, reason="LOCKSTEP_BINARY does not name the program")
def test_the_version_says_whether_it_was_built():
    built = json.loads(lockstep("version", "-f", "json").stdout)["engines"]["mpi"]
    text = lockstep("version").stdout
    assert ("mpi" in text.split("engines: ")[1].split("\n")[0]) == built


# How it ends.

def processes_with(marker):
    """Process ids whose command line has the marker, by the name of the program."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(marker in word for word in words):
            found[int(folder.name)] = Path(words[0]).name
    return found


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    return condition()


@pytest.fixture
def long_run(tmp_path):
    """A run in 3 processes that would take minutes: (launcher, mpirun, replaying processes, marker)."""
    path = tmp_path / "long.json"
    path.write_text(scenario(dp=3, shape=(200_000, 100_000)))
    launcher = subprocess.Popen([PROGRAM, "check", "--engine", "host,mpi", "--ranks", "3", str(path)], cwd=tmp_path, env=ENVIRONMENT,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def begun():
        found = processes_with(str(path))
        replaying = [pid for pid, name in found.items() if name != "mpirun" and pid != launcher.pid]
        return found if len(replaying) == 3 else None

    found = wait_for(begun, TIME_LIMIT_S)
    assert found, processes_with(str(path))
    mpirun = next(pid for pid, name in found.items() if name == "mpirun")
    replaying = sorted(pid for pid in found if pid not in (mpirun, launcher.pid))
    time.sleep(1)  # mostly past MPI_Init; whatever is being done, the end must be the same
    yield launcher, mpirun, replaying, str(path)
    launcher.kill()
    launcher.communicate()
    for pid in processes_with(str(path)):
        os.kill(pid, signal.SIGKILL)


def none_is_left(marker):
    return wait_for(lambda: not processes_with(marker), TIME_LIMIT_S)


@needs_mpi
@pytest.mark.parametrize("victim", [0, 2])
def test_a_process_that_dies_ends_the_run(long_run, victim):
    launcher, _, replaying, marker = long_run
    os.kill(replaying[victim], signal.SIGKILL)
    _, errors = launcher.communicate(timeout=TIME_LIMIT_S)
    assert launcher.returncode == 3
    assert "lockstep: the run under mpirun failed: a process was ended by signal 9" in errors
    assert none_is_left(marker), processes_with(marker)


@needs_mpi
def test_no_orphan_stays_when_the_launcher_is_killed(long_run):
    launcher, _, _, marker = long_run
    launcher.kill()
    launcher.communicate(timeout=TIME_LIMIT_S)
    assert none_is_left(marker), processes_with(marker)


@needs_mpi
def test_no_orphan_stays_when_mpirun_is_killed(long_run):
    launcher, mpirun, _, marker = long_run
    os.kill(mpirun, signal.SIGKILL)
    _, errors = launcher.communicate(timeout=TIME_LIMIT_S)
    assert launcher.returncode == 3
    assert "mpirun was ended by signal 9" in errors
    assert none_is_left(marker), processes_with(marker)


@needs_mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_every_process(long_run, number):
    launcher, _, _, marker = long_run
    launcher.send_signal(number)
    launcher.communicate(timeout=TIME_LIMIT_S)
    assert launcher.returncode == 128 + number
    assert none_is_left(marker), processes_with(marker)


@needs_mpi
def test_a_job_that_is_ended_leaves_no_half_report(tmp_path):
    # Minutes long: mpirun gives its processes a second before it hands the signal on, and a short job is done by then.
    (tmp_path / "large.json").write_text(scenario(dp=2, shape=(200_000, 100_000)))
    process = subprocess.Popen([PROGRAM, "check", "--engine", "host,mpi", "--ranks", "2", "-o", "out.txt", "large.json"], cwd=tmp_path,
                               env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # The launcher tries whether it could write there, too: ended so early, it ends by the signal, as any program without mpirun.
    own = f"out.txt.{process.pid}.tmp"
    while process.poll() is None and not any(path.name != own for path in tmp_path.glob("out.txt.*.tmp")):
        time.sleep(0.001)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["large.json"]


@needs_mpi
def test_a_number_that_no_process_of_a_job_has_is_no_place_in_one(tmp_path):
    (tmp_path / "right.json").write_text(scenario())
    words = [lockstep("check", "--engine", "mpi", "--ranks", "2", "right.json", cwd=tmp_path, env={**ENVIRONMENT, **job}).stdout
             for job in ({}, {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "2"})]
    assert "mpi match in 2 processes" in words[0] and "mpi match in 2 processes" in words[1]
