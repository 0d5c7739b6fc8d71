# SPDX-License-Identifier: Apache-2.0
"""How the programs of played ranks become an extraction (lockstep.extracting.merging)."""

import itertools
import sys

import pytest

from torch_ranks import HERE

sys.path.insert(0, str(HERE.parents[1] / "python"))

from lockstep.extracting.merging import Different, Merged, Mesh, intervals

TWO = {"axes": ["dp", "tp"], "sizes": [4, 2], "ranks": list(range(8))}
TURNED = {"axes": ["dp", "tp"], "sizes": [2, 2], "ranks": [0, 2, 1, 3]}


def events(mesh=TWO, piece=0, call="a.py:1 in f", group=(0, 2, 4, 6), seconds=1.0, **run):
    return [{"event": "run", "adapter": "ddp", "versions": {}, "mesh": mesh, "data_axes": ["dp"], "loss": None, **run},
            {"event": "collective", "op": "all_reduce", "group": list(group), "call": call},
            {"event": "result", "step": 0, "parameter": 0, "piece": piece, "content": [], "clipped": "%032x" % int(seconds * 1e6)},
            {"event": "end", "steps": 1, "seconds": seconds, "overhead": seconds}]


def test_groups_are_told_by_axes_where_they_are_all_that_agree_in_the_others():
    mesh = Mesh(TWO)
    assert mesh.group([0, 2, 4, 6]) == {"axes": ["dp"]} == mesh.group([1, 3, 5, 7])
    assert mesh.group([4, 5]) == {"axes": ["tp"]} and mesh.group(range(8)) == {"axes": ["dp", "tp"]} and mesh.group([3]) == {"axes": []}
    for other in ([0, 2], [0, 3, 4, 7], [2, 0, 4, 6], [0, 1, 2, 3, 4, 5]):
        assert mesh.group(other) == other
    # In the order of the mesh, not of the ranks.
    assert Mesh(TURNED).group([0, 2]) == {"axes": ["tp"]} and Mesh(TURNED).group([0, 1]) == {"axes": ["dp"]}
    assert Mesh(TURNED).group([0, 1, 2, 3]) == [0, 1, 2, 3]


def test_every_group_by_axes_means_the_ranks_that_it_was_made_of():
    for sizes in ([2, 3], [3, 1, 2], [2, 2, 2]):
        count = 1
        for size in sizes:
            count *= size
        mesh = Mesh({"axes": ["a", "b", "c"][:len(sizes)], "sizes": sizes, "ranks": list(range(count))})
        for length in range(1, 4):
            for members in itertools.permutations(range(count), length):
                found = mesh.group(members)
                if isinstance(found, dict):
                    own = mesh.coordinates(members[0])
                    meant = [rank for rank in range(count) if all(mesh.axes[axis] in found["axes"] or mesh.coordinates(rank)[axis] == own[axis]
                                                                  for axis in range(len(sizes)))]
                    assert meant == list(members)


def test_a_peer_is_told_by_how_far_it_stands():
    assert Mesh(TWO).away(2, 4) == {"dp": 1} and Mesh(TWO).away(4, 2) == {"dp": -1} and Mesh(TWO).away(0, 7) == {"dp": 3, "tp": 1}


def test_ranks_that_did_the_same_have_one_program_and_times_do_not_count():
    merged = Merged()
    for rank in range(8):
        merged.add(rank, events(piece=rank // 2, group=range(rank % 2, 8, 2), seconds=rank))
    program, = merged.written(8)
    assert program["ranks"] == [[0, 8]] and program["played"] == list(range(8))
    assert [event.get("pieces") for event in program["events"]] == [None, [0, 0, 1, 1, 2, 2, 3, 3], None]
    assert "clipped" not in str(program) and "seconds" not in str(program)


def test_what_differs_is_a_program_of_its_own_and_a_rank_that_is_played_again_has_one():
    merged = Merged()
    for rank in range(8):
        merged.add(rank, events(call="a.py:%d in f" % (2 if rank == 5 else 1), group=range(rank % 2, 8, 2)))
    assert [program["ranks"] for program in merged.written(8)] == [[[0, 5], [6, 8]], [[5, 6]]]
    merged.add(5, events(group=(1, 3, 5, 7)))
    assert [program["ranks"] for program in merged.written(8)] == [[[0, 8]]]


def test_ranks_that_were_not_played_have_pieces_by_their_coordinates_or_are_to_be_played():
    merged = Merged()
    for rank in (0, 1, 2, 7):
        merged.add(rank, events(piece=rank // 2, group=range(rank % 2, 8, 2)))
    assert merged.one()
    program, = merged.written(8)
    assert program["events"][1]["pieces"] == [0, 0, 1, 1, 2, 2, 3, 3] and program["played"] == [0, 1, 2, 7] and program["ranks"] == [[0, 8]]
    merged.add(6, events(piece=0, group=(0, 2, 4, 6)))
    assert not merged.one()


def test_a_sample_that_does_not_tell_axes_apart_is_too_small():
    merged = Merged()
    for rank in (0, 7):  # along dp alone, or tp, nobody knows
        merged.add(rank, events(mesh={"axes": ["a", "b"], "sizes": [2, 2], "ranks": [0, 1, 2, 3]}, piece={0: 0, 7: 1}[rank], group=[0])) if rank == 0 else \
            merged.add(3, events(mesh={"axes": ["a", "b"], "sizes": [2, 2], "ranks": [0, 1, 2, 3]}, piece=1, group=[3]))
    assert not merged.one()


def test_two_draws_of_a_rank_that_differ_are_told_with_the_place():
    merged = Merged()
    merged.add(0, events())
    merged.add(0, events(), draw=1)
    assert not merged.depends
    merged.add(0, events(call="b.py:7 in g"), draw=1)
    merged.add(0, events())
    gap = merged.written(1)[0]["events"][-2]
    assert gap["event"] == "gap" and gap["step"] is None
    assert gap["why"] == ("what rank 0 does depends on the values of gradients or of what other ranks have sent, not only on where they go: with other values"
                          " it differs at a.py:1 in f")


def test_what_all_ranks_have_in_common_must_be_the_same():
    merged = Merged()
    merged.add(0, events())
    with pytest.raises(Different, match='ranks 0 and 1 have different loss: null and "local_mean"'):
        merged.add(1, events(loss="local_mean"))


def test_intervals():
    assert intervals([0, 1, 2, 5, 7, 8]) == [[0, 3], [5, 6], [7, 9]] and intervals([]) == []


def test_what_was_changed_after_clipping_is_not_known():
    own = events()
    own[2]["changed"] = True
    own.insert(3, {"event": "step", "step": 0, "micro_batches": 1, "tokens": [None]})
    merged = Merged()
    merged.add(0, own)
    told = merged.written(1)[0]["events"]
    assert [event["event"] for event in told] == ["collective", "result", "gap", "step", "end"]
    assert told[2]["parameters"] == [0] and "changed" not in told[1]
