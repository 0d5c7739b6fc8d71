# SPDX-License-Identifier: Apache-2.0
"""Which ranks of many are played, and what is said of the others (lockstep.extracting.classes): programs of many ranks written by hand, as played ranks
leave them, and with LOCKSTEP_NIGHTLY Megatron-core on 64 ranks, each of which is played as well.
"""

import copy
import json
import subprocess
import sys

import pytest

from torch_ranks import HERE, PROGRAM, clean_environment, nightly, torch_python

sys.path.insert(0, str(HERE.parents[1] / "python"))

from lockstep.extracting import __main__ as extracting, classes
from lockstep.extracting.classes import Classes, Uneven
from lockstep.extracting.found import Found
from lockstep.extracting.local_form import Memory, in_one_order, joined, local, placed
from lockstep.extracting.merging import Merged, Mesh, normal
from lockstep.extracting.ranks import Player

SIZES = {"pp": 3, "dp": 5, "tp": 4}
MESH = {"axes": list(SIZES), "sizes": list(SIZES.values()), "ranks": list(range(60))}
WHOLE = 8  # elements of a rank's part of "up"; "norm" has as many, and all ranks along tp have the same
BUFFER = 20  # both, with a rest that is nobody's: four elements for each rank along dp


def collective(op, group, elements, **more):
    return {"event": "collective", "step": 0, "micro_batch": None, "op": op, "group": group, "elements": elements, "dtype": "float32", "reduce": "sum",
            "async": True, "call": "train.py:3 in main", **more}


def played(rank, mesh=MESH):
    """A distributed optimizer's step: gradients of a stage are laid into one buffer, scattered over dp; then those of the norm are summed over tp in
    place, and on the first and the last stage something else. Stages pass on what they compute. Two backwards."""
    place = Mesh(mesh).coordinates(rank)
    stage, data, tensor = place
    near = lambda **to: Mesh(mesh).at([own + to.get(axis, 0) for axis, own in zip(SIZES, place)])  # noqa: E731
    group = lambda axis: [Mesh(mesh).at([one if name == axis else own for name, own in zip(SIZES, place)]) for one in range(SIZES[axis])]  # noqa: E731
    borders = sorted({0, WHOLE, *range(-WHOLE % 4, WHOLE, 4)})
    cut = [{"range": [tensor * WHOLE + one, tensor * WHOLE + two]} for tensor in range(4) for one, two in zip(borders, borders[1:])]
    events = [{"event": "run", "adapter": "by hand", "versions": {}, "mesh": mesh, "data_axes": ["dp"], "loss": "local_mean"},
              {"event": "parameter", "id": 0, "name": "layers.%d.norm" % stage, "shape": [WHOLE], "dtype": "float32", "frozen": False,
               "pieces": [{"range": [one, two]} for one, two in zip(borders, borders[1:])]},
              {"event": "parameter", "id": 1, "name": "layers.%d.up" % stage, "shape": [4 * WHOLE], "dtype": "float32", "frozen": False, "placed": ["tp"],
               "pieces": cut}]
    for micro in range(2):
        if stage + 1 < SIZES["pp"]:
            events.append(collective("recv", group("pp"), 6, peer=near(pp=1)))
        for parameter, first in ((0, 0), (1, tensor * WHOLE)):
            events.append({"event": "contribution", "step": 0, "micro_batch": micro, "parameter": parameter, "range": [first, first + WHOLE],
                           "source": 2 * micro + parameter, "elements": WHOLE, **({} if parameter else {"partial": ["tp"]})})
        if stage:
            events.append(collective("send", group("pp"), 6, peer=near(pp=-1)))
    mean = lambda source, offset=0: [["1/5", source, offset], ["1/5", source + 2, offset]]  # noqa: E731
    begin, end = 4 * data, 4 * data + 4
    events.append(collective("reduce_scatter", group("dp"), BUFFER, input=[[0, WHOLE, mean(1)], [WHOLE, WHOLE, mean(0)], [2 * WHOLE, 4, []]],
                             output={"source": 4, "elements": 4}, parameters=[0, 1]))
    # What this rank got lies in the buffer; the rest is as it was.
    norm = [[first - WHOLE, 1, [["1", 4, first - begin]] if begin <= first < end else mean(0, first - WHOLE)] for first in range(WHOLE, 2 * WHOLE)]
    parts = {term[1] for _, _, terms in norm for term in terms}
    events.append(collective("all_reduce", group("tp"), WHOLE, input=joined(norm), output={"source": 5, "elements": WHOLE},
                             parameters=[0, 1] if 4 in parts else [0]))
    if stage != 1:
        events.append(collective("all_reduce", [near(pp=-stage), near(pp=2 - stage)], 1, parameters=[]))
    for parameter, source in ((1, 4), (0, 5)):
        low, high = max(begin, (1 - parameter) * WHOLE), min(end, (2 - parameter) * WHOLE)
        if low < high:
            piece = borders.index(low - (1 - parameter) * WHOLE) + (tensor * (len(borders) - 1) if parameter else 0)
            events.append({"event": "result", "step": 0, "parameter": parameter, "piece": piece,
                           "content": [[0, high - low, [["1", source, low - begin if parameter else low - WHOLE]]]]})
    events.append({"event": "step", "step": 0, "micro_batches": 2, "tokens": [None, None]})
    return events + [collective("all_gather", group("dp"), 4, step=1, reduce=None, parameters=[]), {"event": "end", "steps": 1}]


class Ranks:
    """Of which some do something else: `other(rank, events)` changes these."""

    def __init__(self, other=lambda rank, events: None):
        self.other, self.merged, self.asked = other, Merged(), []
        self.play([0, 1, 59])
        self.classes = Classes(self.merged, self.play)

    def events(self, rank):
        events = copy.deepcopy(played(rank))
        self.other(rank, events)
        return events

    def play(self, ranks):
        self.asked += ranks
        for rank in ranks:
            self.merged.add(rank, self.events(rank))

    def told_wrongly(self):
        """Ranks of which something else is said than what they do."""
        mesh = self.merged.mesh
        return [rank for rank in range(60) if in_one_order(*self.merged.program_of(rank)) != in_one_order(*normal(rank, self.events(rank), mesh))]


def test_what_is_told_of_ranks_that_were_not_played_is_what_they_do():
    ranks = Ranks()
    ranks.classes.extend()
    assert ranks.told_wrongly() == [] and len(set(ranks.asked)) == len(ranks.asked) <= 30
    told = ranks.classes.chosen()["extended"]
    assert told["complete"] == ["pp"] and told["even"] == ["dp", "tp"] and len(told["compared"]) == classes.COMPARED
    programs = ranks.merged.written(60)
    assert sorted(rank for program in programs for first, end in program["ranks"] for rank in range(first, end)) == list(range(60))
    assert {rank for program in programs for rank in program["played"]} == set(ranks.asked)
    assert any(not program["played"] for program in programs)


def test_all_stages_are_played_and_of_the_others_the_first_two_and_the_last():
    ranks = Ranks()
    ranks.classes.extend()
    places = {tuple(ranks.merged.mesh.coordinates(rank)) for rank in set(ranks.asked) - set(ranks.classes.compared)}
    for stage in range(3):
        assert {(stage, 0, 0), (stage, 1, 0), (stage, 0, 1), (stage, 4, 3)} <= places


def test_ranks_that_chance_has_chosen_before_are_compared_as_well():
    ranks = Ranks()
    ranks.play([2, 37])
    ranks.classes = Classes(ranks.merged, ranks.play, drawn=[2, 37])
    ranks.classes.extend()
    assert 37 in ranks.classes.compared and 2 not in ranks.classes.compared and len(ranks.classes.compared) == classes.COMPARED


def changed(event_of, change):
    def other(rank, events):
        for event in events:
            if event_of(event):
                change(rank, event)
    return other


def half(rank, event):
    event["input"][0][2] = [["1/10", *term[1:]] for term in event["input"][0][2]]


SCATTERS = lambda event: event.get("op") == "reduce_scatter"  # noqa: E731
RESULTS = lambda event: event["event"] == "result"  # noqa: E731


def test_a_rank_that_was_compared_and_does_something_else_ends_it():
    usual = Ranks()
    usual.classes.extend()
    for odd in usual.classes.compared:
        ranks = Ranks(changed(SCATTERS, lambda rank, event, odd=odd: rank == odd and half(rank, event)))
        with pytest.raises(Uneven, match="rank %d does not do what the ranks at its coordinates do" % odd):
            ranks.classes.extend()
        assert not ranks.merged.predicted


@pytest.mark.parametrize("call, complete", [(lambda rank: "train.py:%d in main" % ((rank % 4) ** 2), ["pp", "tp"]),
                                            (lambda rank: "%s.py:3 in main" % ("even", "odd")[rank // 4 % 5 % 2], ["pp", "dp"])])
def test_what_does_not_grow_evenly_along_an_axis_is_played_at_each_coordinate(monkeypatch, call, complete):
    monkeypatch.setattr(classes, "MOST_PLAYED", 1)
    ranks = Ranks(changed(SCATTERS, lambda rank, event: event.update(call=call(rank))))
    ranks.classes.extend()
    assert ranks.classes.chosen()["extended"]["complete"] == complete and ranks.told_wrongly() == []


def test_where_most_would_have_to_be_played_all_are():
    ranks = Ranks(changed(SCATTERS, lambda rank, event: event.update(call="train.py:%d in main" % (rank * rank))))
    with pytest.raises(Uneven, match="more than half of the ranks"):
        ranks.classes.extend()


OF_NORM = lambda event: event.get("op") == "all_reduce" and "input" in event  # noqa: E731
# What all ranks do otherwise, and whether the others' programs can be told of it.
OTHERWISE = {
    "all read half": (changed(RESULTS, lambda rank, event: event.update(content=[[0, 4, [["1/2", *event["content"][0][2][0][1:]]]]])), False),  # whoever reads none does not say so
    "what is read is not known": (changed(RESULTS, lambda rank, event: event.update(content=[[0, 4, "it is not known"]])), False),
    "the norm is not read": (lambda rank, events: events.__setitem__(slice(None), [one for one in events if not (RESULTS(one) and one["parameter"] == 0)]),
                             False),
    "another part is read than the rank got": (changed(RESULTS, lambda rank, event: event.update(piece=0)), False),
    "a micro-batch is lost": (changed(SCATTERS, lambda rank, event: event["input"].__setitem__(0, [0, WHOLE, [["1/5", 1, 0]]])), True),
    "what was there before is summed over tp": (changed(OF_NORM, lambda rank, event: event.update(input=[[0, WHOLE, [["1/5", 0, 0], ["1/5", 2, 0]]]])), False),
    "something else is summed over tp": (changed(OF_NORM, lambda rank, event: event.update(input=[[0, WHOLE, [["1", 0, 0], ["1", 2, 0]]]], parameters=[0])), True),
    "a call names other parameters": (changed(OF_NORM, lambda rank, event: event.update(parameters=[1])), True),
    "ranks take turns along dp": (changed(SCATTERS, lambda rank, event: event.update(call=("odd.py:3 in f", "even.py:3 in f")[rank // 4 % 2])), False),
    "pieces may be read in two ways": (lambda rank, events: events[1]["pieces"].append({"range": [0, WHOLE]}) or events[2]["pieces"].append(
        events[2]["pieces"][0]), False),
}


@pytest.mark.parametrize("otherwise", OTHERWISE)
def test_whatever_all_ranks_do_nothing_else_is_told_of_them(otherwise):
    other, can_be_told = OTHERWISE[otherwise]
    ranks = Ranks(other)
    if can_be_told:
        ranks.classes.extend()
        assert ranks.told_wrongly() == [] and ranks.merged.played() == set(ranks.asked)
        assert ranks.classes.chosen()["extended"]["complete"] == ["pp"]
    else:
        with pytest.raises(Uneven):
            ranks.classes.extend()
        assert not ranks.merged.predicted


def test_a_rank_that_is_played_again_is_told_anew():
    ranks = Ranks()
    before = ranks.classes.text([0, 0, 0])
    assert ranks.classes.text([0, 0, 0]) is before
    ranks.merged.add(0, [dict(event, elements=16) if SCATTERS(event) else event for event in ranks.events(0)])
    assert ranks.classes.text([0, 0, 0]).numbers != before.numbers


def test_a_form_that_is_not_the_ranks_own_is_not_used(monkeypatch):
    for found in (None, ([], [])):
        monkeypatch.setattr(classes, "placed", lambda *_, found=found: found)
        with pytest.raises(Uneven, match="what rank 0 does cannot be told without its number"):
            Ranks().classes.extend()


def test_what_is_made_of_several_elements_is_none_of_them():
    memory = Memory(Mesh(MESH), 0)
    for source in range(2):
        memory.contributed({"step": 0, "parameter": source, "range": [0, 4], "source": source, "elements": 4})
    assert memory.elements([[0, 2, [["1", 0, 1]]], [2, 1, [["1", 0, 0], ["1", 1, 0]]]]).all == [(0, 2, 0, 1)]


def test_check_says_which_ranks_ran_and_no_more_of_the_others(tmp_path):
    ranks, every = Ranks(), Ranks()
    ranks.classes.extend()
    every.play(sorted(set(range(60)) - {0, 1, 59}))
    reports = []
    for merged, more in ((ranks.merged, ranks.classes.chosen()), (every.merged, {})):
        path = tmp_path / "step.json"
        path.write_text(json.dumps({"lockstep_extract": 1, "world": 60, "mesh": {key: MESH[key] for key in ("axes", "sizes")}, "data_axes": ["dp"],
                                    "loss": "local_mean", **more, "programs": merged.written(60)}))
        done = subprocess.run([PROGRAM, "check", str(path), "-f", "json"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        reports.append(json.loads(done.stdout))
    some, all_ranks = reports
    assert some["verdict"] == all_ranks["verdict"] == "match" and some["results"] == all_ranks["results"]
    assert all_ranks["notes"] == [] and some["played"] == sorted(ranks.asked)
    told, = some["notes"]
    assert told.startswith("ran %d of 60 ranks (" % len(ranks.asked))
    assert ": each along pp, there the first two and the last along dp and tp; 8 that chance chose (" in told
    assert told.endswith(") did what was predicted of them. The others are taken to do the same at their coordinates.")


def test_events_of_many_programs_are_kept_and_written_once(tmp_path, monkeypatch):
    ranks = Ranks()
    ranks.classes.extend()
    every = [event for program in ranks.merged.written(60) for event in program["events"]]
    once = {json.dumps(event, sort_keys=True) for event in every}
    assert len({id(event) for event in every}) == len(once) < len(every) / 4
    reports, sizes = [], []
    for few in (classes.COMPARED, 1000):  # with more programs than that, and with fewer
        monkeypatch.setattr(extracting, "FEW", few)
        path = tmp_path / "step.json"
        path.write_text("".join(extracting.written({
            "lockstep_extract": 1, "world": 60, "mesh": {key: MESH[key] for key in ("axes", "sizes")}, "data_axes": ["dp"], "loss": "local_mean",
            **ranks.classes.chosen(), "programs": ranks.merged.written(60)})))
        there, sizes = json.loads(path.read_text()), sizes + [path.stat().st_size]
        shared = there.get("events", [])
        found = [shared[event] if isinstance(event, int) else event for program in there["programs"] for event in program["events"]]
        assert found == every and bool(shared) == (few < 1000)
        done = subprocess.run([PROGRAM, "check", str(path), "-f", "json"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        reports.append(json.loads(done.stdout))
    assert reports[0] == reports[1] and 3 * sizes[0] < sizes[1]


def test_who_is_played_later_is_told_what_nobody_can_know_and_is_not_played_again():
    def left(*own):
        return {"numbers": {"call": [[0, 1, 2, 3], "all_reduce", None, [list(own)]]}}
    mesh = Mesh(MESH)
    known = Found()
    known.add(0, 0, left(None, None))
    known.tell_what_nobody_knows()
    assert known.told["call"] == [[[None, None]]] * 4 and known.again(mesh) == set()
    known.add(1, 0, left(0, 0))
    assert known.again(mesh) == set()
    for rank in range(2):  # they know it now
        known.add(rank, 0, left(7, 7))
    assert known.again(mesh) == {0, 1} and known.told["call"] == [[[7, 7]]] * 4
    known = Found()
    known.add(0, 0, left(None, 3))  # of which others may have put in more
    known.tell_what_nobody_knows()
    assert known.told == {} and known.again(mesh) == set()


def test_counts_of_ranks_that_were_not_played_are_those_at_the_same_coordinates():
    known, mesh = Found(), Mesh(MESH)
    stage = lambda rank: [[rank // 20]]  # noqa: E731
    own = {rank: stage(rank) for rank in (0, 1, 4, 59)}
    everybody, missing = known.everybody(list(range(60)), own, mesh)
    assert {19, 20, 39, 40} <= missing and everybody[:20] == [[[0]]] * 20 and everybody[40:] == [[[2]]] * 20 and everybody[20] is None
    known.numbers["call"] = list(range(60)), "all_reduce", None, own
    assert known.again(mesh) == missing and known.told == {} and len(missing) <= 4 + 8
    own.update((rank, stage(rank)) for rank in missing)
    assert known.again(mesh) == set(own) and known.told["call"] == [stage(rank) for rank in range(60)]
    known.stale.clear()
    assert known.again(mesh) == set()
    own[24] = [[7]]  # one that was compared: along dp it differs as well, and along tp
    again = known.again(mesh)
    assert {8, 28} <= again and not again & own.keys() and known.told["call"][24] == [[1]]
    for rank in range(60):
        own[rank] = [[7]] if rank == 24 else stage(rank)
    known.again(mesh)
    assert known.told["call"] == [[[7]] if rank == 24 else stage(rank) for rank in range(60)]


def test_who_waits_for_a_key_has_those_of_its_smallest_group_played():
    player = Player({}, "", 1, 1, None)
    player.asked.update((0, 1))
    groups = [[0, 1], [0, 40], [0, 20, 40]]
    assert player.partners([{"groups": groups}]) == {40}
    player.asked.add(40)
    assert player.partners([{"groups": groups}]) == {20}
    player.asked.add(20)
    assert player.partners([{"groups": groups}]) == set()


# Every rank of 64 is played as well, and does what was told of it.
BOTH = """
import json, sys
from lockstep.extracting import ranks
ranks.EVERY = 8
settings = {"world": 64, "local_world": 8, "script": sys.argv[1], "module": False, "arguments": ["4", "2"], "steps": 1, "loss": "local_mean"}
print(json.dumps([ranks.extract(dict(settings), every)[0] for every in (False, True)]))
"""


@nightly
@pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")
def test_megatron_ranks_do_what_is_told_of_them():
    environment = dict(clean_environment(), PYTHONPATH=str(HERE.parents[1] / "python"))
    done = subprocess.run([torch_python(), "-c", BOTH, str(HERE / "megatron_extracted.py")], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env=environment)
    assert done.returncode == 0, done.stderr
    some, every = json.loads(done.stdout.splitlines()[-1])
    assert sum(len(program["played"]) for program in some["programs"]) <= 32 and some["extended"]["complete"] == ["pp"]
    assert "extended" not in every and by_rank(some) == by_rank(every)


def by_rank(extraction):
    """Of each rank its events, in one order."""
    found = {}
    for program in extraction["programs"]:
        ranks = [rank for first, end in program["ranks"] for rank in range(first, end)]
        for place, rank in enumerate(ranks):
            pieces = [event["pieces"][place] if "pieces" in event else event["piece"] for event in program["events"] if event["event"] == "result"]
            events = [{key: value for key, value in event.items() if key not in ("piece", "pieces") or event["event"] != "result"}
                      for event in program["events"]]
            found[rank] = in_one_order(events, pieces)
    return found


def test_a_form_is_that_of_the_rank_and_the_same_for_ranks_that_do_the_same():
    mesh = Mesh(MESH)
    forms = {}
    for rank in range(60):
        events, pieces = normal(rank, played(rank), mesh)
        forms[rank] = local(events, pieces, mesh, rank)
        assert in_one_order(*placed(forms[rank], mesh, rank)) == in_one_order(events, pieces)
        assert forms[rank] == forms[rank - rank % 20 + rank % 4]  # whatever its coordinate along dp
        assert sum(event["event"] == "own" for event in forms[rank]) == 1 and "result" not in str(forms[rank])


def test_what_differs_between_draws_is_not_known_of_ranks_that_were_not_played():
    ranks = Ranks()
    ranks.merged.add(0, ranks.events(0), draw=1)
    ranks.merged.add(1, [dict(event, call="other.py:1 in f") if SCATTERS(event) else event for event in ranks.events(1)], draw=1)
    ranks.classes.extend()
    for program in ranks.merged.written(60):
        gaps = [event for event in program["events"] if event["event"] == "gap"]
        known = len(program["played"]) == sum(end - first for first, end in program["ranks"])
        assert bool(gaps) == (not known or 1 in program["played"])
