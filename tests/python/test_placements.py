# SPDX-License-Identifier: Apache-2.0
"""Whether ranks along an axis yield one gradient of a parameter or shares of one: as an extraction tells it from what they yield (lockstep.extracting.alike
and placements), and as a captured run tells it with --placements (runs). Megatron-core's own code with and without sequence parallelism, and mistakes
in it (megatron_extracted.py).
"""

import json
import sys

import pytest

import torch_ranks
from test_extract import Extraction, extract, judged, ran
from test_frameworks import python_with
from torch_ranks import HERE, nightly_but, torch_python

sys.path.insert(0, str(HERE.parents[1] / "python"))

from lockstep.extracting.merging import Mesh
from lockstep.extracting.placements import Conflict, Placements, Shared, pattern, same

MESH = {"axes": ["pp", "dp", "tp"], "sizes": [2, 1, 2], "ranks": [0, 1, 2, 3]}
A, B, ZEROS = ["a", [1.0, 2.0]], ["b", [2.0, -1.0]], ["0", None]
A_ROUNDED = ["c", [1.0, 2.0001]]


def left(prints, sent=(), inputs=("x",), other=()):
    return {"axes": ["tp"], "other": list(other), "sent": list(sent), "inputs": list(inputs), "yields": {"layers.%d.norm" % layer: own for layer, own in prints.items()}}


def programs():
    """Of two stages, each with a norm that both ranks along tp contribute to and a matrix that they have parts of."""
    for stage in range(2):
        events = [{"event": "parameter", "id": 0, "name": "layers.%d.norm" % stage, "pieces": [{"range": [0, 4]}]},
                  {"event": "parameter", "id": 1, "name": "layers.%d.up" % stage, "placed": ["tp"], "pieces": [{"range": [0, 4]}, {"range": [4, 8]}]},
                  {"event": "contribution", "step": 0, "micro_batch": 0, "parameter": 0, "piece": 0, "source": 0, "elements": 4},
                  {"event": "contribution", "step": 0, "micro_batch": 0, "parameter": 1, "piece": 0, "source": 1, "elements": 4}]
        yield {"ranks": [[2 * stage, 2 * stage + 2]], "played": [2 * stage], "events": events}


def told(ranks):
    """What is said of the norm of each stage, and what is not known, by the pattern of names."""
    placements, every = Placements(), list(programs())
    for rank, own in ranks.items():
        placements.add(rank, own)
    unsaid = placements.apply(every, Mesh(MESH), ["dp"])
    said = []
    for program in every:
        norm, up, own, _ = program["events"]
        assert up["placed"] == ["tp"] and "placed_by" not in up
        said.append(None if "placed" not in norm else "shares" if own.get("partial") == ["tp"] else "whole")
        assert said[-1] is None or norm["placed_by"] == {"tp": "the gradients of ranks %d and %d" % tuple(range(*program["ranks"][0]))}
    return said, list(placements.words(unsaid)), placements.head().get("placements")


def test_equal_gradients_are_one_and_different_ones_are_shares():
    said, unsaid, head = told({0: left({0: [A, B]}), 1: left({0: [A, B]}), 2: left({1: [A, ZEROS]}), 3: left({1: [B, ZEROS]})})
    assert said == ["whole", "shares"] and unsaid == []
    assert head == ["of parameters of which neither DTensors nor the framework say it, ranks along tp yield one gradient of 1 parameter (layers.*.norm), as the"
                    " gradients that played ranks yield say; shares of one of 1 parameter (layers.*.norm), as the gradients that played ranks yield say."]


def test_the_head_says_who_has_said_what_of_which_parameters():
    placements = Placements()
    for number in range(6):
        placements.used["tp", "whole", "the gradients of ranks %d and %d" % (number, number + 1)] = {"layers.%d.norm" % number}
    placements.used["tp", "whole", "run"] = {"kind%s.norm" % number for number in "abcdef"}
    placements.used["ep", "shares", "run"] = {"router"}
    assert placements.head()["placements"] == [
        "of parameters of which neither DTensors nor the framework say it, ranks along ep yield shares of one of 1 parameter (router), as run says.",
        "of parameters of which neither DTensors nor the framework say it, ranks along tp yield one gradient of 6 parameters (kinda.norm, kindb.norm, kindc.norm,"
        " kindd.norm and 2 more patterns of names), as run says; one gradient of 6 parameters (layers.*.norm), as the gradients that played ranks yield say."]


class Counting(list):
    """Events that count how often they are walked."""

    walks = 0

    def __iter__(self):
        Counting.walks += 1
        return super().__iter__()


def test_the_events_of_a_program_are_walked_as_often_for_many_parameters_as_for_few(monkeypatch):
    monkeypatch.setattr(Counting, "walks", 0)
    walks = []
    for count in (2, 40):
        names = range(count)
        events = Counting([{"event": "parameter", "id": number, "name": "norm%s" % number, "pieces": [{"range": [0, 4]}]} for number in names])
        events += [{"event": "contribution", "step": 0, "micro_batch": 0, "parameter": number, "piece": 0, "source": 0, "elements": 4} for number in names]
        shared = Shared([{"ranks": [[0, 2]], "events": events}], Mesh(MESH))
        assert all(shared.along("norm%d" % number, "tp") for number in names) and not shared.along("norm0", "pp")
        walks.append(Counting.walks)
        Counting.walks = 0
    assert walks[0] == walks[1]


@pytest.mark.parametrize("one, other", [([ZEROS], [ZEROS]), ([A], [A_ROUNDED]), ([A, A], [A, B]), ([A, A], [A]), ([], [])])
def test_what_gradients_do_not_tell_is_not_said(one, other):
    said, unsaid, _ = told({0: left({0: one}), 1: left({0: other}), 2: left({1: one}), 3: left({1: other})})
    assert said == [None, None]
    assert unsaid == ["whether ranks along tp yield one gradient of layers.*.norm, 2 parameters, or shares of one is not known: --placements RUN tells it"]


@pytest.mark.parametrize("one, other", [([A, A], [A]), ([A], [B])])
def test_pairs_of_ranks_that_say_different_things_say_nothing(one, other):
    said, unsaid, _ = told({0: left({0: one}), 1: left({0: other}), 2: left({0: [A]}), 3: left({0: [A]})})
    assert said == [None, None] and len(unsaid) == 1


@pytest.mark.parametrize("own, its, why", [
    ({"inputs": ["x"]}, {"inputs": ["y"]}, "ranks 0 and 1 call the model with different inputs"),
    ({"sent": [A]}, {"sent": [B]}, "what ranks 0 and 1 send to other stages is not the same"),
    ({"sent": [A], "other": ["tp"]}, {"sent": [A], "other": ["tp"]}, "what ranks 0 and 1 send to other stages is not known to be different"),
    ({"sent": [ZEROS]}, {"sent": [ZEROS]}, "what ranks 0 and 1 send to other stages is not the same"),
    ({"sent": [A]}, {"sent": []}, "ranks 0 and 1 do not send the same to other stages"),
])
def test_gradients_tell_nothing_where_what_they_are_compared_by_does_not_hold(own, its, why):
    said, unsaid, _ = told({0: left({0: [A]}, **own), 1: left({0: [A]}, **its), 2: left({1: [A]}, [A]), 3: left({1: [A]}, [A])})
    assert said == [None, None] and len(unsaid) == 1 and " is not known (%s): " % why in unsaid[0]


def test_what_stages_send_is_the_same_or_all_of_it_other():
    for sent, other in (([A], []), ([A], ["tp"])):
        its = [B] if other else sent
        ranks = {rank: left({rank // 2: [A]}, its if rank % 2 else sent, other=other) for rank in range(4)}
        assert told(ranks)[0] == ["whole", "whole"]


def test_a_print_tells_two_tensors_apart():
    assert [same(A, A), same(A, B), same(A, A_ROUNDED), same(ZEROS, ZEROS), same(A, ZEROS)] == [True, False, None, None, None]
    assert pattern("layers.12.up.weight") == "layers.*.up.weight"


def test_a_neighbour_that_was_not_played_is_asked_for():
    placements = Placements()
    placements.add(0, left({0: [A]}))
    assert placements.partners(Mesh(MESH)) == [1]
    placements.add(1, left({0: [A]}))
    assert placements.partners(Mesh(MESH)) == []


class Run:
    """In the place of runs.Told: says one thing of all."""

    def __init__(self, kind):
        self.kind = kind

    def said(self, names, axis):
        return self.kind, "run"

    def check_used(self, *_):
        pass


@pytest.mark.parametrize("own, kind", [([A], "shares"), ([A], "parts"), ([ZEROS], "parts")])
def test_two_that_say_different_things_are_a_mistake(own, kind):
    placements = Placements(Run(kind))
    for rank in range(4):
        placements.add(rank, left({rank // 2: own}))
    with pytest.raises(Conflict, match='of parameter "layers.0.norm"'):
        placements.apply(list(programs()), Mesh(MESH), ["dp"])


def test_a_run_tells_what_gradients_do_not():
    for kind in ("whole", "shares"):
        placements, every = Placements(Run(kind)), list(programs())
        assert placements.apply(every, Mesh(MESH), ["dp"]) == {}
        assert all(("partial" in program["events"][2]) == (kind == "shares") for program in every)
        assert every[0]["events"][0]["placed_by"] == {"tp": "run"}


torch = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")


def of_case(tmp_path, case, **settings):
    done = Extraction(tmp_path / "step.json", HERE / "extracted.py", case, loss="local_mean", **settings)
    return done, judged("check", tmp_path / "step.json") if done.status == 0 else None


@torch
def test_a_captured_run_tells_it(tmp_path):
    done, report = of_case(tmp_path, "tensor-parallel-other-data")
    assert report["verdict"] == "undecided" and "ranks 0 and 1 call the model with different inputs" in done.said, done.said
    assert done.said.count("lockstep extract: ") == len(done.said.splitlines()) == 2  # norm.weight and norm.bias
    ran(tmp_path, HERE / "extracted.py", "tensor-parallel")
    done, report = of_case(tmp_path, "tensor-parallel-other-data", placements=str(tmp_path / "run"))
    assert report["verdict"] == "match" and done.said == "", done.said
    assert any("as %s say" % (tmp_path / "run") in note for note in report["notes"])
    # What neighbours yield there says the same, and a run that says otherwise is refused.
    done, report = of_case(tmp_path, "tensor-parallel", placements=str(tmp_path / "run"))
    assert report["verdict"] == "match" and done.said == ""
    for rank in (1, 3):
        file = tmp_path / "run" / ("rank-%05d.jsonl" % rank)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        norms = {line["id"] for line in lines if line["event"] == "parameter" and line["name"] == "0.norm.weight"}
        for line in lines:
            if line["event"] == "contribution" and line["parameter"] in norms:
                line.update(hash="0" * len(line["hash"]), row=1 if line["row"] == 0 else 0)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done, _ = of_case(tmp_path, "tensor-parallel", placements=str(tmp_path / "run"))
    assert done.status == 2 and done.said.startswith('lockstep extract: ranks along tp yield one gradient of parameter "0.norm.weight", as the gradients'), done.said


@torch
def test_a_run_that_is_none_of_the_script_is_refused(tmp_path):
    done, _ = of_case(tmp_path, "tensor-parallel", placements=str(tmp_path / "none"))
    assert done.status == 2 and "no rank of a captured run has left a file there" in done.said
    ran(tmp_path, HERE / "extracted.py", "fsdp2", ranks=2)
    done, _ = of_case(tmp_path, "tensor-parallel", placements=str(tmp_path / "run"))
    assert done.status == 2 and "it has no axis of more than one rank along which this script's ranks see the same tokens; its mesh is dp 2" in done.said
    (tmp_path / "run" / "rank-00000.jsonl").write_text("{}\n")
    done, _ = of_case(tmp_path, "tensor-parallel", placements=str(tmp_path / "run"))
    assert done.status == 2 and "it is no captured run that can be read" in done.said


RIGHT = ["sequences", "whole", "queries", "experts"]
MISTAKES = ["nothing-summed", "norm-left-out", "bias-left-out", "norm-averaged", "embedding-summed", "norms-summed", "experts-as-dense", "experts-router"]


@pytest.mark.skipif(python_with("megatron") is None, reason="no Python with torch and megatron-core (LOCKSTEP_MEGATRON_PYTHON names one)")
@pytest.mark.parametrize("case", nightly_but(RIGHT + MISTAKES, ["norm-left-out"]))
def test_nothing_of_megatron_is_undecided(tmp_path, monkeypatch, case):
    monkeypatch.setattr(torch_ranks, "torch_python", lambda: python_with("megatron"))
    extract(tmp_path / "step.json", HERE / "megatron_extracted.py", "2", "2", case, ranks=8, loss="local_mean")
    report = judged("check", tmp_path / "step.json")
    verdicts = [one["verdict"] for one in report["results"]]
    assert report["verdict"] == ("match" if case in RIGHT else "mismatch") and "undecided" not in verdicts
    assert verdicts.count("wrong") == 0 if case in RIGHT else verdicts.count("right") > verdicts.count("wrong") > 0
