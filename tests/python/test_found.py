# SPDX-License-Identifier: Apache-2.0
"""Which ranks are played again with what others have left (lockstep.extracting.found)."""

import sys

from torch_ranks import HERE

sys.path.insert(0, str(HERE.parents[1] / "python"))

from lockstep.extracting.found import Found
from lockstep.extracting.merging import Mesh

LINE = Mesh({"axes": ["dp"], "sizes": [8], "ranks": list(range(8))})


def found(left):
    """Of ranks that have left this, in their order."""
    result = Found()
    for rank, own in enumerate(left):
        result.playing(rank)
        result.add(rank, 0, own)
    return result


def all_put_in(*numbers, op="all_reduce", members=None):
    return [{"numbers": {"call": [members or list(range(len(numbers))), op, None, own]}} for own in numbers]


def one_says(own, *others, op="broadcast"):
    return [{"numbers": {"call": [list(range(len(others) + 1)), op, 0, own]}}, *others]


def test_numbers_that_are_the_same_everywhere_are_not_told():
    known = found(all_put_in([[3]], [[3]]))
    assert known.again(LINE) == set() and known.told == {}


def test_numbers_that_differ_are_told_to_all_that_put_some_in_until_nothing_changes():
    known = found(all_put_in([[3]], [[4]], [[3]]))
    assert known.again(LINE) == {0, 1, 2} and known.told == {"call": [[[3]], [[4]], [[3]]]}
    for rank, left in enumerate(all_put_in([[3]], [[4]], [[5]])):
        known.playing(rank)
        known.add(rank, 0, left)
    assert known.again(LINE) == {0, 1, 2} and known.told["call"][2] == [[5]]
    for rank in range(3):
        known.playing(rank)
    assert known.again(LINE) == set()


def test_what_a_rank_that_was_not_played_puts_in_is_asked_for_or_not_known():
    known = found(all_put_in([[3]], [[4]], members=[0, 1, 7]))
    assert known.again(LINE) == {7} and known.told == {}
    known = found(all_put_in([[3]], [[4]], op="gather", members=[0, 1, 7]))
    assert known.again(LINE) == {0, 1} and known.told == {"call": []}


WIDE = Mesh({"axes": ["dp", "tp"], "sizes": [2, 32], "ranks": list(range(64))})


def settled(counts, mesh=WIDE):
    """What is told where the first, the second and the last rank were played, and whoever is asked for; and who was played."""
    known, playing = Found(), {0, 1, len(counts) - 1}
    while playing:
        for rank in playing:
            known.playing(rank)
            known.add(rank, 0, {"numbers": {"call": [list(range(len(counts))), "all_reduce", None, [[counts[rank]]]]}})
        playing = known.again(mesh) - known.said.keys() or known.stale
        known.stale = set()
        if known.told:
            return known.told["call"], known.said.keys(), known.counts
    return None, known.said.keys(), known.counts


def test_a_rank_that_was_not_played_has_put_in_what_others_have_at_its_coordinates():
    told, played, taken = settled([3 + (rank >= 32) for rank in range(64)])
    assert told == [[[3]]] * 32 + [[[4]]] * 32
    # The first and the last at each coordinate along dp, the second, and those of chance.
    assert {0, 1, 31, 32, 63} <= set(played) and len(played) <= 13 and taken == {"call": 64 - len(played)}


def test_counts_that_differ_along_two_axes_are_told_by_no_other_rank():
    for count in (lambda dp, tp: 1 + (tp == 31 and dp == 0), lambda dp, tp: 1 + (tp >= 16) * dp, lambda dp, tp: 1 + tp * dp % 3, lambda dp, tp: 1 + dp * (tp % 2 == 0)):
        counts = [count(rank // 32, rank % 32) for rank in range(64)]
        told, played, taken = settled(counts)
        assert told in (None, [[[one]] for one in counts]), counts
        assert told is None or (len(played) == 64 and taken.get("call", 0) == 0)


def test_what_is_no_whole_number_on_one_rank_is_not_known_on_others():
    known = found(all_put_in([[None, 3]], [[None, 4]], [[2, 5]]))
    assert known.again(LINE) == {0, 1, 2} and known.told["call"] == [[[None, 3]], [[None, 4]], [[None, 5]]]
    known = found(all_put_in([[None, 3]], [[2, 3]], [[None, 3]]))
    assert known.again(LINE) == {1} and known.told["call"] == [[[None, 3]]] * 3
    known.playing(1)
    known.add(1, 0, all_put_in([[2, 3]], members=[0, 1, 2])[0])
    assert known.again(LINE) == set()
    assert found(all_put_in([[None, 3]], [[None, 3]])).again(LINE) == set()


def test_what_one_rank_says_and_is_something_else_in_the_second_draw_is_not_known():
    known = found(one_says([[3]], {"asked": ["call"]}))
    assert known.again(LINE) == {1} and known.told["call"][0] == [[3]]
    known.playing(1)
    known.add(0, 1, one_says([[4]], {})[0])
    assert known.again(LINE) == {1} and known.told == {"call": []}
    known.playing(1)
    assert known.again(LINE) == set()


def test_what_one_rank_has_made_of_gradients_makes_the_numbers_of_all_unknown():
    known = found(all_put_in([[3]], None))
    assert known.again(LINE) == {0, 1} and known.told == {"call": []}


def test_objects_that_are_others_each_time_are_told_a_few_times():
    known = found(all_put_in(["00"], ["01"]))
    for time in range(2, 9):
        again = known.again(LINE)
        assert again == ({0, 1} if time < 5 else set()) and known.told["call"][1] == ["%02x" % (time - 1)]
        for rank, left in enumerate(all_put_in(["00"], ["%02x" % time])):
            known.playing(rank)
            known.add(rank, 0, left)


def test_what_one_rank_says_is_told_to_those_that_have_something_else():
    known = found(one_says([[3]], {"asked": ["call"]}, {"taken": {"call": [[3]]}}, {"taken": {"call": [[4]]}}))
    assert known.again(LINE) == {1, 3} and known.told == {"call": [[[3]], None, None, None]}
    known.playing(0)
    known.add(0, 0, one_says([[9]])[0] | {"numbers": {"call": [[0, 1, 2, 3], "broadcast", 0, [[9]]]}})
    for rank in (1, 3):
        known.playing(rank)
        known.add(rank, 0, {})
    assert known.again(LINE) == {1, 2, 3} and known.told["call"][0] == [[9]]


def test_of_a_scatter_each_rank_has_its_part():
    known = found(one_says([[3], [4], [5]], {"taken": {"call": [[4]]}}, {"taken": {"call": [[4]]}}, op="scatter"))
    assert known.again(LINE) == {2}


def test_a_rank_that_puts_no_gradients_into_a_call_into_which_others_put_some_is_played_again():
    assert found([{"carries": ["call"]}, {"silent": ["call", "other"]}, {"silent": ["other"]}]).again(LINE) == {1}


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
