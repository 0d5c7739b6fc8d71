# SPDX-License-Identifier: Apache-2.0
"""Captures in one process that are closed in another order, forked, clipped by parts, or filled by several threads."""

import pytest

from torch_ranks import HERE, python, read_run, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    python(HERE / "alone.py", folder)
    return folder


def events(folder, name, kind):
    return read_run(folder / name)[0]["events"][kind]


def test_a_capture_that_was_closed_is_no_part_of_the_training_any_more(folder):
    assert [events(folder, name, "end")[0]["steps"] for name in ("first", "second", "third")] == [0, 1, 2]


def test_a_micro_batch_that_is_told_after_the_end_is_none(folder):
    assert [line["tokens"] for line in events(folder, "told", "step")] == [[2], [2]]


def test_what_a_norm_known_before_clips_is_looked_at_before(folder):
    (result,), (contribution,) = (events(folder, "norm", kind) for kind in ("result", "contribution"))
    assert result["hash"] == contribution["hash"]


def test_a_step_of_the_base_class_within_a_step_is_none(folder):
    """The step in the middle raises before it has gradients, which are set to zero then."""
    assert [(line["micro_batches"], line.get("zeroed")) for line in events(folder, "derived", "step")] == [(1, None), (2, [1])]
    assert [line["step"] for line in events(folder, "derived", "result")] == [0, 1]


def test_clipping_the_gradients_of_one_optimizer_says_nothing_of_the_others(folder):
    lines = [(line["step"], line["parameter"], line["hash"]) for line in events(folder, "clipped", "result")]
    assert [line[:2] for line in lines] == [(0, 0), (1, 1), (2, 0), (3, 1)]
    contributions = events(folder, "clipped", "contribution")
    assert lines == [(line["step"], line["parameter"], line["hash"]) for line in contributions]  # before both clippings


def test_a_fork_leaves_the_files_to_its_parent(folder):
    rank, = read_run(folder / "forked")
    assert [len(rank["events"][kind]) for kind in ("contribution", "result", "step", "end")] == [1, 1, 1, 1]
    assert list(rank["sketches"]) == [0] and len(rank["sketches"][0]) == 2


def test_rows_are_those_of_their_lines_in_whichever_order_threads_came(folder):
    rank, = read_run(folder / "threads")
    contributions = rank["events"]["contribution"]
    assert sorted(line["row"] for line in contributions) == list(range(8))
    for line in contributions:
        # 64 times number elements of the value number, of which each of the 64 sums of their group has as many.
        assert {abs(value) % (1 + line["parameter"]) for value in rank["sketches"][0][line["row"]]} == {0}
        assert max(map(abs, rank["sketches"][0][line["row"]])) >= 1 + line["parameter"]


def test_a_name_that_is_no_text_leaves_readable_files(folder):
    assert [line["name"] for line in events(folder, "name", "parameter")] == ["caf\u00e9?"]


def test_an_optimizer_that_steps_with_a_closure_gets_what_the_closure_yields(folder):
    contributions, results = ({line["step"]: line["hash"] for line in events(folder, "closure", kind) if line["row"] is not None}
                              for kind in ("contribution", "result"))
    assert list(contributions) == [0, 1] and results == contributions


def test_autograd_grad_for_parameters_counts_as_a_backward_pass(folder):
    assert [line["micro_batches"] for line in events(folder, "grad", "step")] == [2]


def test_another_run_s_files_are_replaced_where_that_is_said_alone(folder):
    left = sorted(file.name for file in (folder / "replaced").iterdir())
    assert left == ["rank-00000.jsonl", "rank-00000.step-00000.safetensors", "rank-00001.txt"]
