# SPDX-License-Identifier: Apache-2.0
"""Dumps that torch's own Flight Recorder has written, under gloo, and the tool that makes JSON of their pickles."""

import json
import os
import pickle
import re
import subprocess
import sys

import pytest

from torch_ranks import HERE, PROGRAM, ran, torch_python

with_torch = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")


def converted(*arguments):
    environment = dict(os.environ, PYTHONPATH=str(HERE.parents[1] / "python"))
    return subprocess.run([sys.executable, "-m", "lockstep.flight_recorder", *map(str, arguments)], capture_output=True, text=True, env=environment)


def compared(folder):
    done = subprocess.run([PROGRAM, "import", "flight-recorder", str(folder), "-f", "json"], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumps")
    for case, world in (("crossed", 2), ("left_out", 2), ("ring", 2), ("groups", 3)):
        ran(folder, world, [case], "flight_worker.py")
    return folder


def both(dumps, case):
    """What the program says of a case, of torch's own JSON and of that made from the pickles, which has call sites in addition."""
    pickles = sorted(path for path in (dumps / case).iterdir() if re.fullmatch(r"trace_\d", path.name))
    done = converted(*pickles, "-o", dumps / case / "made")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == len(pickles), done.stderr
    return compared(dumps / case / "json"), compared(dumps / case / "made")


@with_torch
def test_collectives_that_cross_are_named(dumps):
    own, made = both(dumps, "crossed")
    assert own["verdict"] == made["verdict"] == "mismatch"
    assert own["collectives"] == ["collective 5 of ranks 0 and 1 (default_pg): rank 0 calls broadcast of 5 float32 elements, "
                                  "and rank 1 all_reduce of 1 float32 element."]
    assert re.fullmatch(r".*broadcast of 5 float32 elements at flight_worker\.py:\d+ in main, and rank 1 all_reduce of 1 float32 element "
                        r"at flight_worker\.py:\d+ in main\.", made["collectives"][0])
    assert own["waiting"][0].startswith("rank 0 waits in collective 5 of ranks 0 and 1 (default_pg), broadcast of 5 float32 elements")


@with_torch
def test_a_rank_that_never_issues_a_collective_is_named(dumps):
    own, _ = both(dumps, "left_out")
    assert own["collectives"] == ["collective 5 of ranks 0 and 1 (default_pg): rank 0 calls barrier, and rank 1 nothing."]


@with_torch
def test_a_run_that_is_right_matches_though_the_ring_lost_its_start(dumps):
    own, made = both(dumps, "ring")
    assert own["verdict"] == made["verdict"] == "match"
    assert own["groups"][0]["first"] == 3 and own["groups"][0]["last"] == 4


@with_torch
def test_groups_are_told_apart(dumps):
    own, _ = both(dumps, "groups")
    assert own["verdict"] == "match"
    assert {group["description"]: group["ranks"] for group in own["groups"]} == {"default_pg": [0, 1, 2], "mesh_tp": [0, 1]}


class Loud:
    def __reduce__(self):
        return os.system, ("touch executed",)


@pytest.mark.parametrize("content, message", [
    (pickle.dumps({"version": "2.10", "entries": [Loud()]}), "posix.system, and a dump holds nothing that would be loaded or called"),
    (pickle.dumps({"version": "2.10", "entries": [{"frames": 3}]}), "its entries are not those of a dump of version 2"),
    (pickle.dumps({"version": "2.10", "entries": [{"a": b"bytes"}]}), "it holds what is no JSON"),
    (pickle.dumps([1]), "it holds no dump of the Flight Recorder"),
    (pickle.dumps({"version": "2.10"})[:-4], "it is no whole pickle"),
    (b"", "it is no whole pickle"),
    (b'{"version": "2.10"}', "it is JSON already"),
    (b"\x80\x02cbuiltins\neval\n.", "builtins.eval"),
])
def test_a_pickle_that_is_no_plain_dump_is_refused_and_nothing_runs(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace_0").write_bytes(content)
    done = converted(tmp_path / "trace_0")
    assert done.returncode == 2 and message in done.stderr and done.stderr.startswith("error: "), done.stderr
    assert os.listdir(tmp_path) == ["trace_0"]


def test_a_pickle_within_itself_is_refused(tmp_path):
    dump = {"version": "2.10", "entries": []}
    dump["self"] = dump
    (tmp_path / "trace_0").write_bytes(pickle.dumps(dump))
    assert "it holds what is no JSON" in converted(tmp_path / "trace_0").stderr


@pytest.mark.parametrize("shared, levels", [([], 9), ({"x" * 200000: 0}, 4)])
def test_a_pickle_whose_lists_are_shared_is_refused_before_they_are_written(tmp_path, shared, levels):
    for _ in range(levels):
        shared = [shared] * 10
    (tmp_path / "trace_0").write_bytes(pickle.dumps({"version": "2.10", "entries": [], "more": shared}))
    done = converted(tmp_path / "trace_0")
    assert done.returncode == 2 and "it holds what is no JSON of less than 16777216 values" in done.stderr
    assert os.listdir(tmp_path) == ["trace_0"]
