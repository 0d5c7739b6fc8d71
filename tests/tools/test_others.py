# SPDX-License-Identifier: Apache-2.0
"""tools/others: its list can be read, the table of docs/pytest.md is the list's, edits that find nothing and verdicts that differ are said."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "other_programs"), str(ROOT / "python")]

import checkouts
import document
import programs
import running


def test_the_table_is_that_of_the_list():
    text = (ROOT / "docs" / "pytest.md").read_text(encoding="utf-8")
    assert document.renewed(text, programs.listed()) == text, "tools/others --write renews it"


def test_every_program_has_a_revision_and_mistakes_with_names_of_their_own():
    for name, program in programs.listed().items():
        assert len(program.revision) == 40 and int(program.revision, 16), name
        names = [mistake.name for mistake in program.mistakes]
        assert len(names) >= 2 and len(set(names)) == len(names), name
        assert program.verdict == "match" or program.says, name


PROGRAM = {"project": "somebody/trains", "folder": "one", "script": "train.py", "edits": [{"old": "cuda", "new": "cpu"}],
           "mistakes": [{"name": "twice", "words": "stepped twice", "edits": [{"old": "step()", "new": "step(); step()"}], "formula": "2*g0"}]}


@pytest.fixture
def program(tmp_path):
    """A program of a repository that is made here, and its checkouts."""
    folder = tmp_path / "somebody+trains"
    (folder / "one").mkdir(parents=True)
    (folder / "one" / "train.py").write_text("to('cuda'); step()\n")
    (folder / "other.py").write_text("not needed\n")
    git = ["git", "-C", str(folder), "-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    for arguments in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "one"]):
        subprocess.run(git + arguments, check=True)
    revision = subprocess.run(git + ["rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    return programs.Program(dict(PROGRAM, revision=revision), "trains"), checkouts.Checkouts(str(tmp_path / "{owner}+{name}" / ".git"), str(tmp_path / "kept"))


def test_what_a_program_needs_is_unpacked_and_edited(program, tmp_path):
    program, found = program
    for mistake, expected in ((None, "to('cpu'); step()\n"), (program.mistakes[0], "to('cpu'); step(); step()\n")):
        folder = tmp_path / ("wrong" if mistake else "right")
        folder.mkdir()
        found.unpacked(program, folder)
        program.edited(folder, mistake)
        assert (folder / "one" / "train.py").read_text() == expected
        assert not (folder / "other.py").exists()
    with pytest.raises(programs.Wrong, match="trains: train.py has no 'cuda'"):
        program.edited(folder)


def test_a_revision_that_is_not_there_is_said(program, tmp_path):
    program, found = program
    program.revision = "0" * 40
    with pytest.raises(checkouts.Missing, match="git could not archive: "):
        found.unpacked(program, tmp_path)


def test_keys_that_nobody_reads_are_refused():
    with pytest.raises(programs.Wrong, match="trains, mistake 0: unknown key worsd"):
        programs.Program(dict(PROGRAM, revision="0" * 40, mistakes=[dict(PROGRAM["mistakes"][0], worsd="")]), "trains")
    with pytest.raises(programs.Wrong, match="trains: there is no key revision"):
        programs.Program(PROGRAM, "trains")


def report(verdict, formula, step):
    return {"verdict": verdict, "findings": [{"what": "every contribution came with 2"}], "gaps": [], "collectives": [], "not_blamed": None, "repair": [],
            "results": [{"verdict": "wrong", "formula": formula, "why": None}], "blame": [{"step": step, "why": "is a step too many"}]}


def test_what_is_not_as_expected_is_said(program):
    expected = program[0].mistakes[0]
    expected.place, expected.says = "scale", "came with 2"
    assert running.differences(expected, running.Outcome(report=report("mismatch", "2*g0", "scale"))) == []
    assert running.differences(expected, running.Outcome(report=report("match", "g0", "zero"))) == [
        "the verdict is match: expected mismatch", "no result is 2*g0: there are g0", "no place is scale: there are zero: is a step too many"]
    expected.place = "came with"  # what is wrong is no place
    assert running.differences(expected, running.Outcome(report=report("mismatch", "2*g0", "scale"))) == ["no place is came with: there are scale: is a step too many"]
    expected.place, expected.instead = None, "scale"
    assert running.differences(expected, running.Outcome(report=report("mismatch", "2*g0", "scale"))) == []
    expected.instead = None
    assert running.differences(expected, running.Outcome(report=report("mismatch", "2*g0", "scale"))) == [
        "a place is named, and none is expected: scale: is a step too many"]
    assert running.differences(program[0], running.Outcome(failed="rank 0 failed")) == ["the run failed: rank 0 failed"]
