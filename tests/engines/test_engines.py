# SPDX-License-Identifier: Apache-2.0
"""symbolic = host = mpi, and = transformer where the model is one of its own: a part of the corpus and random schedules.

Here a short version; tools/nightly has all of the corpus and thousands of schedules. What disagrees is kept by
`engines.py --keep FOLDER`, and becomes a test of its own."""

import json
import os
import shutil

import pytest

import engines

ROUNDS = int(os.environ.get("LOCKSTEP_TEST_ROUNDS", "1"))
PROGRAM = shutil.which(os.environ.get("LOCKSTEP_BINARY", ""))

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="LOCKSTEP_BINARY does not name the program")


def test_engines_agree_on_the_corpus(counted):
    counts = engines.Counts()
    engines.compare_corpus(engines.Engines(os.path.abspath(PROGRAM), 2), 12, counts)
    counted.append(counts.text("files of the corpus"))
    assert not counts.disagreements, counts.disagreements[0]
    assert counts.files >= 40 and counts.transformer >= 2
    assert counts.verdicts["match"] >= 15 and counts.verdicts["mismatch"] >= 15


def test_engines_agree_on_random_schedules(counted, tmp_path):
    counts = engines.Counts()
    engines.compare_random(engines.Engines(os.path.abspath(PROGRAM), 2), 60 * ROUNDS, 60 * ROUNDS, 1, tmp_path, counts)
    counted.append(counts.text("random schedules"))
    assert not counts.disagreements, counts.disagreements[0]
    assert counts.files >= 60 * ROUNDS and counts.transformer >= 15 * ROUNDS
    assert counts.verdicts["match"] >= 10 * ROUNDS and counts.verdicts["mismatch"] >= 15 * ROUNDS


def test_a_disagreement_is_counted_and_the_file_kept(tmp_path, capsys):
    counts = engines.Counts()
    file = tmp_path / "case.json"
    file.write_text(json.dumps({"lockstep": 1}), encoding="utf-8")
    counts.add({"file": str(file), "verdict": "mismatch", "engines": {"symbolic": "mismatch", "host": "match"},
                "disagreement": "w on rank 0 is wrong for symbolic and right for host"})
    counts.add({"file": "right.json", "verdict": "match", "engines": {"symbolic": "match", "host": "match", "mpi": "match",
                                                                       "transformer": "match"}})
    counts.add({"file": "invalid.json", "verdict": "error", "errors": [{"message": "no"}]})
    assert counts.text("files") == ("2 files: symbolic = host = mpi (1 of them without mpi), 1 of them = transformer "
                                    "(error 1, match 1, mismatch 1)")
    engines.keep(counts, tmp_path / "kept")
    assert (tmp_path / "kept" / "case.json").exists()
    assert "w on rank 0 is wrong for symbolic" in capsys.readouterr().out
