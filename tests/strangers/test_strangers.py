# SPDX-License-Identifier: Apache-2.0
"""A few files as strangers could write them, with every change (tools/strangers runs thousands); and that what does not end well is seen."""

import os
import stat
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import strangers  # noqa: E402


def test_files_of_strangers_end_well(tmp_path):
    verdicts, findings = strangers.campaign(25, int(os.environ.get("LOCKSTEP_TEST_SEED", "7")), 1, tmp_path / "kept")
    assert findings == []
    assert {"match", "mismatch", "not valid"} <= set(verdicts)


@pytest.mark.parametrize("kept", sorted((Path(__file__).resolve().parent / "kept").glob("*.json")), ids=lambda path: path.stem)
def test_what_did_not_end_well_once_does(kept, tmp_path):
    file = tmp_path / kept.name
    file.write_bytes(kept.read_bytes())
    assert strangers.One(file, file).findings == []


@pytest.mark.parametrize("program, said", [
    ('case "$*" in *-q*) echo "match  x";; esac; exit 3', "status 3"),
    ('kill -SEGV $$', "status -11"),
    ('exit 2', "status 2 without a word"),
    ('case "$*" in *-q*resolved*) echo "mismatch  x"; exit 1;; *-q*) echo "match  x";; esac', "resolved: 0 'match' is 1 'mismatch'"),
    ('[ "$1" = prove ] && exec python3 -c "x = bytearray(1100 << 20)"; [ "$1" = check ] && echo "match  x"; exit 0', "prove: "),
    ('[ "$1" = diff ] && exec python3 -c "import time; all(iter(lambda: time.process_time() < 0.5, False))"; exit 0', "diff: "),
])
def test_what_does_not_end_well_is_seen(tmp_path, monkeypatch, program, said):
    double = tmp_path / "double"
    double.write_text(f"#!/bin/bash\n{program}\n")
    double.chmod(double.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("LOCKSTEP_BINARY", str(double))
    monkeypatch.setattr(strangers, "SECONDS", 0.4)
    file = tmp_path / "one.json"
    file.write_text("{}")
    assert any(said in finding for finding in strangers.One(file, file).findings)
