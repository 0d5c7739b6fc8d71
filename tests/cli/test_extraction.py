# SPDX-License-Identifier: Apache-2.0
"""lockstep check of extractions: what the code does, composed over all ranks, against one device."""

import json
import os
import resource
import subprocess
import threading

import pytest

import extraction
from extraction import Program, ddp


def checked(run, tmp_path, *programs, status=1, options=(), **more):
    """The JSON report of an extraction."""
    path = extraction.write(tmp_path / "step.json", *programs, **more)
    finished = run("check", path, "-f", "json", *options)
    assert finished.returncode == status, finished.stdout + finished.stderr
    return json.loads(finished.stdout)


def whats(report):
    return [finding["what"] for finding in report["findings"]]


def formulas(report):
    return {(one["parameter"], one["elements"], tuple(one["ranks"])): one["formula"] for one in report["results"]}


def test_a_right_step_is_a_match(run, tmp_path):
    report = checked(run, tmp_path, ddp((0, 2)), status=0)
    assert report["verdict"] == "match" and report["played"] == [0, 1] and "sums" not in report
    assert formulas(report) == {("bias", None, (0, 1)): "(g0+g1)/2", ("weight", None, (0, 1)): "(g0+g1)/2"}
    finished = run("check", "step.json")
    assert finished.returncode == 0 and finished.stdout.startswith("match  step.json\n")
    assert "2 parameters, 2 distinct results compared: 2 right" in finished.stdout
    assert "each rank's own loss and backward were not checked\n" in finished.stdout


def test_a_factor_too_many(run, tmp_path):
    report = checked(run, tmp_path, ddp((0, 2), factor="1/4"))
    assert whats(report) == [
        "every contribution came with 1/4 where 1/2 was expected: uniform factor 1/2, invisible to Adam"]
    assert {one["formula"] for one in report["results"]} == {"(g0+g1)/4"}
    finished = run("check", "step.json")
    assert "got       (g0+g1)/4   (half of the right gradient)\n    expected  (g0+g1)/2\n" in finished.stdout


def test_ranks_that_were_not_played_are_named(run, tmp_path):
    report = checked(run, tmp_path, ddp((0, 1024), factor="1/1024", played=[0, 1, 517, 1023]), status=0)
    assert report["played"] == [0, 1, 517, 1023] and report["world"] == 1024
    assert report["notes"] == [
        "ran 4 of 1024 ranks (0, 1, 517 and 1023); the others are taken to run the program of rank 0."]
    for count, times in ((1, "1 time"), (1020, "1020 times")):
        counted = checked(run, tmp_path, ddp((0, 1024), factor="1/1024", played=[0, 1, 517, 1023]), status=0, counts_taken=count)
        assert counted["notes"][0].endswith(
            "of rank 0. What others put into collectives as counts, %s, is taken from ranks at the same coordinates." % times)
    assert {one["formula"] for one in report["results"]} == {"sum(g, dp)/1024"}


def test_who_says_what_ranks_yield_is_a_note(run, tmp_path):
    said = "ranks along tp yield shares of one of 2 parameters, as the gradients that played ranks yield say."
    assert checked(run, tmp_path, ddp((0, 2)), status=0, placements=[said])["notes"] == ["the file says: " + said]
    assert "\n  the file says: %s\n" % said in run("check", "step.json").stdout
    extraction.write(tmp_path / "step.json", ddp((0, 2)), placements=[3])
    assert "expected a list of strings, found the number 3 [/placements/0]" in run("check", "step.json").stdout


def hybrid(rank, factor, last="all_reduce"):
    """Half of the elements on each of two ranks of dp_shard, then summed over dp_replicate."""
    program = Program((rank, rank + 1))
    part = rank % 2
    program.parameter("weight", 8, pieces=[{"range": [0, 8]}, {"range": [4 * part, 4 * part + 4]}])
    own = program.contribution("weight")
    shard = program.call("reduce_scatter", 8, [[0, 8, [["1", own, 0]]]], 4, reduce="sum", group={"axes": ["dp_shard"]})
    if last:
        shard = program.call(last, 4, [[0, 4, [["1", shard, 0]]]], 4, reduce="sum", group={"axes": ["dp_replicate"]})
    program.result("weight", [[0, 4, [[factor, shard, 0]]]], piece=1)
    program.call("all_gather", 4, group={"axes": ["dp_shard"]})
    return program.step().end()


HYBRID = {"axes": {"dp_replicate": 2, "dp_shard": 2}}


def test_hybrid_shards(run, tmp_path):
    report = checked(run, tmp_path, *[hybrid(rank, "1/4") for rank in range(4)], status=0, **HYBRID)
    assert formulas(report) == {("weight", "[0, 4)", (0, 2)): "(g0+g1+g2+g3)/4", ("weight", "[4, 8)", (1, 3)): "(g0+g1+g2+g3)/4"}
    report = checked(run, tmp_path, *[hybrid(rank, "1/4", None) for rank in range(4)], **HYBRID)
    assert formulas(report)["weight", "[0, 4)", (0,)] == "(g0+g1)/4"
    assert formulas(report)["weight", "[0, 4)", (2,)] == "(g2+g3)/4"
    assert set(whats(report)) == {"the share of dp_replicate 1 is missing", "the share of dp_replicate 0 is missing"}


def test_a_gather_brings_nothing_to_those_that_are_not_its_root(run, tmp_path):
    """The root adds up what it has gathered, and scatters the mean."""
    programs = []
    for rank in (0, 1):
        own = Program((rank, rank + 1)).parameter("weight", 4)
        part = own.contribution("weight")
        gathered = own.call("gather", 4, [[0, 4, [["1/2", part, 0]]]], 8 * rank, root=1)
        mean = [["1", gathered, 0], ["1", gathered, 4]]
        scattered = own.call("scatter", 8 * rank, [[0, 4, mean], [4, 4, mean]] if rank else [], 4, root=1)
        programs.append(own.result("weight", [[0, 4, [["1", scattered, 0]]]]).step().end())
    report = checked(run, tmp_path, *programs, status=0)
    assert report["verdict"] == "match"


def test_a_gradient_that_is_gathered(run, tmp_path):
    def program(rank):
        own = Program((rank, rank + 1))
        own.parameter("weight", 4, pieces=[{"range": [0, 4]}])
        source = own.contribution("weight")
        part = own.call("reduce_scatter", 4, [[0, 4, [["1", source, 0]]]], 2, reduce="avg")
        whole = own.call("all_gather", 2, [[0, 2, [["1", part, 0]]]], 4)
        return own.result("weight", [[0, 4, [["1", whole, 0]]]]).step().end()

    report = checked(run, tmp_path, program(0), program(1), status=0)
    assert formulas(report) == {("weight", None, (0, 1)): "(g0+g1)/2"}


def test_a_rank_that_does_not_call(run, tmp_path):
    other = Program((1, 2))
    other.parameter("weight", 8)
    own = other.contribution("weight")
    other.result("weight", [[0, 8, [["1", own, 0]]]]).step().end()
    report = checked(run, tmp_path, ddp((0, 1), names=["weight"]), other)
    assert report["verdict"] == "mismatch"
    assert report["collectives"] == ["collective 1 of ranks 0 and 1, in optimizer step 0: rank 0 calls all_reduce of 8 float32 "
                                     "elements at train.py:9 in main, and rank 1 nothing."]
    assert whats(report) == ["no other data-parallel rank's contribution arrived, and its own came with 1 where 1/2 was expected",
                             "what the optimizer gets is not known: the all_reduce of 8 float32 elements at train.py:9 in "
                             "main never ends"]


def test_what_a_rank_that_was_stopped_would_have_called_is_not_known(run, tmp_path):
    def program(rank, step=None, stopped=True):
        own = ddp((rank, rank + 1), names=["weight"])
        own.events.pop()
        if step is not None:
            own.call("send", 4, step=step, peer=0, **{"async": True})
            own.call("barrier", 0, step=step)
        return own.end(**({"stopped": True} if stopped else {}))

    report = checked(run, tmp_path, program(0), program(1, step=1), status=0)
    assert report["verdict"] == "match" and report["collectives"] == []
    report = checked(run, tmp_path, program(0), program(1, step=0))
    assert report["collectives"][0].endswith("and rank 0 nothing up to its last optimizer step that was looked at.")
    assert len(report["collectives"]) == 2
    report = checked(run, tmp_path, program(0, stopped=False), program(1, step=1))
    assert report["collectives"][0].endswith("and rank 0 nothing.") and len(report["collectives"]) == 2


def in_order(rank, order):
    """Two buckets, reduced one after the other; `order` says which first."""
    program = Program((rank, rank + 1))
    sources, reduced = {}, {}
    for name, count in (("a", 4), ("b", 8)):
        program.parameter(name, count)
        sources[name] = program.contribution(name)
    for name in order:
        count = program.parameters[name][1]
        reduced[name] = program.call("all_reduce", count, [[0, count, [["1", sources[name], 0]]]], count, reduce="avg")
    for name in "ab":
        program.result(name, [[0, program.parameters[name][1], [["1", reduced[name], 0]]]])
    return program.step().end()


def test_another_order_on_one_rank(run, tmp_path):
    report = checked(run, tmp_path, in_order(0, "ab"), in_order(1, "ba"))
    assert report["collectives"] == ["collective 1 of ranks 0 and 1, in optimizer step 0: rank 0 calls all_reduce of 4 float32 elements "
                                     "(avg), and rank 1 all_reduce of 8 float32 elements (avg)."]
    assert report["counts"] == {"right": 0, "wrong": 0, "undecided": 2}
    assert all("call it with different numbers of elements" in what for what in whats(report))


def test_a_deadlock_between_groups(run, tmp_path):
    def program(rank, groups):
        own = Program((rank, rank + 1))
        own.parameter("weight", 4)
        source = own.contribution("weight")
        for group in groups:
            own.call("barrier", 0, group=group)
        reduced = own.call("all_reduce", 4, [[0, 4, [["1", source, 0]]]], 4, reduce="avg")
        return own.result("weight", [[0, 4, [["1", reduced, 0]]]]).step().end()

    groups = [[0, 1], [1, 0]]
    report = checked(run, tmp_path, program(0, groups), program(1, groups[::-1]))
    assert report["collectives"] == ["deadlock: rank 0 waits in the barrier of 0 float32 elements for rank 1, rank 1 waits in the "
                                     "barrier of 0 float32 elements for rank 0."]
    assert checked(run, tmp_path, program(0, groups), program(1, groups), status=0)["collectives"] == []


def test_a_deadlock_beside_a_rank_that_waits_for_one_that_has_ended(run, tmp_path):
    def program(rank, *groups):
        own = Program((rank, rank + 1))
        own.parameter("weight", 4)
        for group in groups:
            own.call("barrier", 0, group=group)
        return own.step().end()

    programs = [program(0, [0, 3]), program(1, [1, 2], [2, 1]), program(2, [2, 1], [1, 2]), program(3)]
    report = checked(run, tmp_path, *programs)
    assert report["collectives"] == [
        "deadlock: rank 1 waits in the barrier of 0 float32 elements for rank 2, rank 2 waits in the barrier of 0 float32 elements for rank 1.",
        "collective 1 of ranks 0 and 3, in optimizer step 0: rank 0 calls barrier of 0 float32 elements, and rank 3 nothing."]


def test_a_result_that_is_read_twice_is_told_once_for_each_rank(run, tmp_path):
    program = Program((0, 2))
    program.parameter("weight", 4)
    own = program.contribution("weight")
    reduced = program.call("all_reduce", 4, [[0, 4, [["1", own, 0]]]], 4, reduce="sum")
    for _ in range(2):
        program.result("weight", [[0, 4, [["1", reduced, 0]]]])
    report = checked(run, tmp_path, program.step().end())
    assert [one["ranks"] for one in report["results"]] == [[0, 1]]


def test_each_of_many_ranks_gets_its_own_contribution_alone(run, tmp_path):
    ranks = 64
    program = Program((0, ranks))
    program.parameter("weight", 4)
    own = program.contribution("weight")
    program.result("weight", [[0, 4, [["1", own, 0]]]]).step().end()
    report = checked(run, tmp_path, program)
    assert whats(report) == [f"no other data-parallel rank's contribution arrived, and its own came with 1 where 1/{ranks} was expected"]
    assert [one["formula"] for one in report["results"]] == [f"g{rank}" for rank in range(ranks)]
    assert {len(one["coefficients"]) for one in report["results"]} == {ranks}


def test_a_list_of_ranks_is_the_group_of_its_axes(run, tmp_path):
    def program(rank, group):
        own = Program((rank, rank + 1))
        own.parameter("weight", 4)
        source = own.contribution("weight")
        reduced = own.call("all_reduce", 4, [[0, 4, [["1", source, 0]]]], 4, reduce="avg", group=group)
        return own.result("weight", [[0, 4, [["1", reduced, 0]]]]).step().end()

    checked(run, tmp_path, program(0, [0, 1]), program(1, {"axes": ["dp"]}), status=0)
    report = checked(run, tmp_path, program(0, [0, 1]), program(1, [1, 0]))
    assert report["collectives"][0].startswith("deadlock: rank 0 waits in the all_reduce")
    assert [what.split(": ", 1)[1] for what in report["collectives"][1:]] == [
        "rank 0 calls all_reduce of 4 float32 elements (avg), and rank 1 nothing.",
        "rank 1 calls all_reduce of 4 float32 elements (avg), and rank 0 nothing."]


def test_micro_batches_that_are_kept_in_a_buffer(run, tmp_path):
    report = checked(run, tmp_path, ddp((0, 2), micro_batches=3), status=0)
    assert {one["formula"] for one in report["results"]} == {"(g0+g1)/2"}

    def late():
        program = Program((0, 2))
        program.parameter("weight", 4)
        first = program.contribution("weight")
        reduced = program.call("all_reduce", 4, [[0, 4, [["1/2", first, 0]]]], 4, reduce="sum")
        second = program.contribution("weight", micro_batch=1)
        program.result("weight", [[0, 4, [["1", reduced, 0], ["1/2", second, 0]]]])
        return program.step(micro_batches=2).end()

    report = checked(run, tmp_path, late())
    assert set(whats(report)) == {
        "micro-batch 1 was not reduced: only the data-parallel rank's own contribution is in it"}
    assert formulas(report)["weight", None, (0,)] == "(g0+g1.0)/2"


def test_a_mean_of_ranks_with_other_numbers_of_micro_batches_is_undecided(run, tmp_path):
    """Each divides by its own; a sum is one whatever they have."""
    def programs(factor):
        return [ddp((rank, rank + 1), micro_batches=2 - rank, factor=factor) for rank in range(2)]

    report = checked(run, tmp_path, *programs("1/2"))
    assert report["verdict"] == "undecided" and report["gaps"] == [
        "in optimizer step 0, rank 1 yields gradients of 1 micro-batch, and rank 0 of 2: of a mean that each rank divides by its own micro-batches nobody"
        " knows what share it is of all: what is expected cannot be said."]
    assert checked(run, tmp_path, *programs("1"), loss="sum", status=0)["verdict"] == "match"
    # What lacks a rank is wrong whatever the shares are.
    one, other = programs("1/2")
    next(event for event in other.events if event["event"] == "collective")["input"] = []
    assert checked(run, tmp_path, one, other)["verdict"] != "match"


def test_an_optimizer_that_steps_in_no_step_is_not_passed_over(run, tmp_path):
    program = ddp((0, 2))
    program.events = [event for event in program.events if event["event"] != "result" or event["parameter"] == 0]
    next(event for event in program.events if event["event"] == "step")["waiting"] = [1]
    report = checked(run, tmp_path, program)
    assert report["verdict"] == "undecided" and report["gaps"] == [
        "no optimizer that has bias stepped in the optimizer steps that were looked at: more of them (--steps) say what it gets."]


def test_a_gradient_that_nobody_zeroed(run, tmp_path):
    program = Program((0, 2))
    program.parameter("weight", 4)
    kept = []
    for step in range(2):
        own = program.contribution("weight", step=step)
        reduced = program.call("all_reduce", 4, [[0, 4, [["1", own, 0], *kept]]], 4, reduce="avg", step=step)
        program.result("weight", [[0, 4, [["1", reduced, 0]]]], step=step).step(step)
        kept = [["1", reduced, 0]]
    report = checked(run, tmp_path, program.end())
    assert whats(report) == ["what earlier optimizer steps left is still in it: nobody zeroed the gradient"]
    assert [one["formula"] for one in report["results"]] == ["(g0+g1)/2", "(g0+g0.0+g1+g1.0)/2"]


def test_an_optimizer_that_did_not_step_before(run, tmp_path):
    def program(last):
        own = Program((0, 2))
        own.parameter("weight", 4)
        first = own.contribution("weight")
        own.step(0, waiting=[0])
        second = own.contribution("weight", step=1)
        terms = [["1", second, 0], *([["1", first, 0]] if last else [])]
        reduced = own.call("all_reduce", 4, [[0, 4, terms]], 4, reduce="avg", step=1)
        return own.result("weight", [[0, 4, [["1", reduced, 0]]]], step=1).step(1).end()

    assert checked(run, tmp_path, program(True), status=0)["counts"]["right"] == 1
    assert checked(run, tmp_path, program(False), status=0)["counts"]["right"] == 1
    # What came while it waited belongs to it: the factor is told, and not that something was left over.
    halved = program(True)
    for event in halved.events:
        if event["event"] == "result":
            event["content"][0][2][0][0] = "1/2"
    report = checked(run, tmp_path, halved)
    assert whats(report) == ["every contribution came with 1/4 where 1/2 was expected: uniform factor 1/2, invisible to Adam"]
    result, = report["results"]
    assert (result["formula"], result["expected"]) == ("(g0.0+g0.1+g1.0+g1.1)/4", "(g0.0+g0.1+g1.0+g1.1)/2")
    assert {(one["exact"], one["expected"]) for one in result["coefficients"]} == {("1/4", "1/2")}
    report = checked(run, tmp_path, program(True), status=0, options=["-v"])
    assert {(one["exact"], one["expected"]) for one in report["results"][0]["coefficients"]} == {("1/2", "1/2")}
    # One rank's optimizer does not wait: then what it gets is judged.
    waits, steps = (Program((rank, rank + 1)) for rank in range(2))
    for own in (waits, steps):
        own.parameter("weight", 4)
        source = own.contribution("weight")
    steps.result("weight", [[0, 4, [["1", source, 0]]]])
    report = checked(run, tmp_path, waits.step(waiting=[0]).end(), steps.step().end())
    assert whats(report) == ["no other data-parallel rank's contribution arrived, and its own came with 1 where 1/2 was expected"]


def test_what_earlier_steps_left_is_told_where_an_optimizer_waited_as_well(run, tmp_path):
    own = Program((0, 2))
    own.parameter("weight", 4)
    sources = []
    for step in range(3):
        sources.append(own.contribution("weight", step=step))
        if step != 1:
            reduced = own.call("all_reduce", 4, [[0, 4, [["1", source, 0] for source in sources]]], 4, reduce="avg", step=step)
            own.result("weight", [[0, 4, [["1", reduced, 0]]]], step=step)
        own.step(step, **({"waiting": [0]} if step == 1 else {}))
    report = checked(run, tmp_path, own.end())
    assert whats(report) == ["what earlier optimizer steps left is still in it: nobody zeroed the gradient"]
    wrong = report["results"][1]
    assert {one["step"]: one["expected"] for one in wrong["coefficients"]} == {0: "0", 1: "1/2", 2: "1/2"}


def test_a_hole_and_what_nobody_knows_are_undecided(run, tmp_path):
    def program(content):
        own = Program((0, 2))
        own.parameter("weight", 4)
        source = own.contribution("weight")
        reduced = own.call("all_reduce", 4, [[0, 4, [["1", source, 0]]]], 4, reduce="avg")
        own.result("weight", [[*part[:2], [[part[2], reduced, part[0]]] if len(part) == 3 else part[3]] for part in content])
        return own.step().end()

    report = checked(run, tmp_path, program([(0, 2, "1")]))
    assert report["verdict"] == "undecided"
    assert formulas(report) == {("weight", "[0, 2)", (0, 1)): "(g0+g1)/2", ("weight", "[2, 4)", (0, 1)): None}
    assert whats(report) == ["what the optimizer gets is not known: what is there was not followed"]
    report = checked(run, tmp_path, program([(0, 2, "1"), (2, 2, None, "aten::pow at optim.py:12 in step")]))
    assert whats(report) == ["what the optimizer gets is not known: aten::pow at optim.py:12 in step"]
    report = checked(run, tmp_path, program([(0, 2, "1"), (2, 2, "2")]))
    assert report["verdict"] == "mismatch"
    assert formulas(report) == {("weight", "[0, 2)", (0, 1)): "(g0+g1)/2", ("weight", "[2, 4)", (0, 1)): "g0 + g1"}


def test_a_gap_where_the_optimizer_gets_no_gradient(run, tmp_path):
    none = Program((0, 2))
    none.parameter("weight", 4)
    none.contribution("weight")
    none.result("weight", None).add("gap", step=0, parameters=[0], why="the script sets it")
    report = checked(run, tmp_path, none.step().end())
    assert report["verdict"] == "undecided" and whats(report) == ["the script sets it"]


def test_contributions_of_one_micro_batch_are_one_gradient(run, tmp_path):
    def program(second):
        own = Program((0, 2))
        own.parameter("weight", 4)
        sources = [own.contribution("weight") for _ in range(2)]
        terms = [["1", sources[0], 0], *([[second, sources[1], 0]] if second else [])]
        reduced = own.call("all_reduce", 4, [[0, 4, terms]], 4, reduce="avg")
        return own.result("weight", [[0, 4, [["1", reduced, 0]]]]).step().end()

    assert formulas(checked(run, tmp_path, program("1"), status=0)) == {("weight", None, (0, 1)): "(g0+g1)/2"}
    for second in ("1/2", None):
        report = checked(run, tmp_path, program(second))
        assert whats(report) == ["several contributions of one micro-batch came with different coefficients"]
        assert report["results"][0]["formula"] is None


def test_factors_that_ranks_do_not_agree_on(run, tmp_path):
    def program(rank, factor):
        own = Program((rank, rank + 1))
        own.parameter("weight", 4)
        source = own.contribution("weight")
        reduced = own.call("all_reduce", 4, [[0, 4, [["1", source, 0]]]], 4, reduce="premul_sum", factor=factor)
        return own.result("weight", [[0, 4, [["1", reduced, 0]]]]).step().end()

    checked(run, tmp_path, program(0, "1/2"), program(1, "1/2"), status=0)
    report = checked(run, tmp_path, program(0, "1/2"), program(1, "1/4"))
    assert report["collectives"] == ["collective 1 of ranks 0 and 1, in optimizer step 0, all_reduce of 4 float32 elements "
                                     "(premul_sum): ranks 0 and 1 call it with different reductions."]
    assert report["counts"]["undecided"] == 1


def test_contributions_of_other_elements(run, tmp_path):
    def program(offset, other=False):
        own = Program((0, 2))
        own.parameter("weight", 4, pieces=[{"range": [0, 4]}, {"range": [0, 2]}, {"range": [2, 4]}])
        own.parameter("bias", 4)
        sources = [own.contribution("weight"), own.contribution("bias")]
        reduced = own.call("all_reduce", 8, [[0, 4, [["1", sources[0], 0]]], [4, 4, [["1", sources[1], 0]]]], 8, reduce="avg")
        own.result("bias", [[0, 4, [["1", reduced, 4]]]])
        own.result("weight", [[0, 2, [["1", reduced, offset]]]], piece=1)
        own.result("weight", [[0, 2, [["1", reduced, 6 if other else 2]]]], piece=2)
        return own.step().end()

    checked(run, tmp_path, program(0), status=0)
    report = checked(run, tmp_path, program(1))
    assert whats(report) == ["contributions of other elements are in it"]
    assert formulas(report)["weight", "[0, 2)", (0, 1)] == "('weight+1'.0+'weight+1'.1)/2"
    assert report["results"][1]["expected"] == "(g0+g1)/2"
    sarif = json.loads(run("check", "step.json", "-f", "sarif").stdout)
    assert [one["ruleId"] for one in sarif["runs"][0]["results"]] == ["LS005"]
    report = checked(run, tmp_path, program(0, True))
    assert whats(report) == ["contributions to another parameter are in it, bias"]


def test_what_no_optimizer_reads(run, tmp_path):
    program = Program((0, 2))
    program.parameter("weight", 4, pieces=[{"range": [0, 4]}, {"range": [0, 3]}])
    own = program.contribution("weight")
    reduced = program.call("all_reduce", 4, [[0, 4, [["1", own, 0]]]], 4, reduce="avg")
    program.result("weight", [[0, 3, [["1", reduced, 0]]]], piece=1).step().end()
    report = checked(run, tmp_path, program)
    assert whats(report) == ["no rank's optimizer gets it, and backward yields a gradient"]
    assert ("weight", "[3, 4)", ()) in formulas(report)
    line = next(number for number, text in enumerate((tmp_path / "step.json").read_text().splitlines(), 1) if '"contribution"' in text)
    sarif = json.loads(run("check", "step.json", "-f", "sarif").stdout)
    assert [one["locations"][0]["physicalLocation"]["region"]["startLine"] for one in sarif["runs"][0]["results"]] == [line - 1]
    none = Program((0, 2))
    none.parameter("weight", 4)
    none.contribution("weight")
    report = checked(run, tmp_path, none.result("weight", None).step().end())
    assert whats(report) == ["the optimizer gets no gradient, and backward yields one"]


def test_a_rank_whose_optimizer_is_left_behind(run, tmp_path):
    def program(rank, gathers):
        own = Program((rank, rank + 1))
        own.parameter("weight", 4)
        source = own.contribution("weight")
        reduced = own.call("reduce", 4, [[0, 4, [["1/2", source, 0]]]], None if rank else 4, reduce="sum", root=0)
        if rank == 0:
            own.result("weight", [[0, 4, [["1", reduced, 0]]]])
        if gathers:
            own.call("broadcast", 4, root=0)
        return own.step().end()

    checked(run, tmp_path, program(0, True), program(1, True), status=0)
    report = checked(run, tmp_path, program(0, False), program(1, False))
    assert report["verdict"] == "undecided"
    assert report["gaps"] == [left_behind("rank 1 never gets weight, others' do")]


def left_behind(who):
    return f"the optimizer of {who}, and nothing that was recorded brings it the new values."


def updated(rank, ranks, pieces, bring, group=None, before=None):
    """An averaged parameter, of which the ranks' optimizers get pieces [first, end) by rank; `bring` adds calls at the end."""
    own = Program((rank, rank + 1))
    own.parameter("weight", 4, pieces=[{"range": [0, 4]}, *([{"range": pieces[rank]}] if pieces[rank] else [])])
    if before:
        before(own)
    source = own.contribution("weight")
    reduced = own.call("all_reduce", 4, [[0, 4, [[f"1/{ranks}", source, 0]]]], 4, reduce="sum", group=group)
    if pieces[rank]:
        first, end = pieces[rank]
        own.result("weight", [[0, end - first, [["1", reduced, first]]]], piece=1)
    bring(own, rank)
    return own.step().end()


def told_of_updates(run, tmp_path, pieces, bring, ranks=2, **more):
    programs = [updated(rank, ranks, pieces, bring, **more) for rank in range(ranks)]
    report = json.loads(run("check", extraction.write(tmp_path / "step.json", *programs), "-f", "json").stdout)
    assert report["counts"]["wrong"] == 0 and report["counts"]["undecided"] == 0 and report["collectives"] == []
    assert report["verdict"] == ("undecided" if report["gaps"] else "match")
    return report["gaps"]


def test_what_brings_no_values_from_others_brings_none(run, tmp_path):
    first = [[0, 4], None]
    told = [left_behind("rank 1 never gets weight, others' do")]
    broadcast = [lambda own, rank, root=root: own.call("broadcast", 4, root=root) for root in range(2)]
    assert told_of_updates(run, tmp_path, first, broadcast[0]) == []
    assert told_of_updates(run, tmp_path, first, broadcast[1]) == told
    assert told_of_updates(run, tmp_path, first, lambda own, rank: own.call("all_gather", 4, group=[rank])) == told
    assert told_of_updates(run, tmp_path, first, lambda own, rank: own.call("all_gather", 4, group=[0, 1])) == []
    # What training begins with is not new; a gather before the first backward comes again in each step.
    assert told_of_updates(run, tmp_path, first, lambda own, rank: None, before=lambda own: own.call("broadcast", 4, root=0)) == told
    assert told_of_updates(run, tmp_path, first, lambda own, rank: None, before=lambda own: own.call("all_gather", 2)) == []


def test_each_rank_updates_a_part_that_nobody_gets_from_it(run, tmp_path):
    halves = [[0, 2], [2, 4]]
    assert told_of_updates(run, tmp_path, halves, lambda own, rank: own.call("all_gather", 2)) == []
    assert told_of_updates(run, tmp_path, halves, lambda own, rank: None) == [
        left_behind("ranks 0 and 1 gets only a part of weight, others' get the rest")]
    # One of them gets the other's half, and the other not.
    assert told_of_updates(run, tmp_path, halves, lambda own, rank: own.call("broadcast", 2, root=0)) == [
        left_behind("rank 0 gets only a part of weight, others' get the rest")]


def test_values_go_from_rank_to_rank_in_several_calls(run, tmp_path):
    first = [[0, 4], None, None, None]

    def bring(own, rank, second=True):
        if rank < 2:
            own.call("broadcast", 4, root=0, group=[0, 1])
        if second:
            own.call("broadcast", 4, root=1, group=[1, 2, 3]) if rank else None

    assert told_of_updates(run, tmp_path, first, bring, ranks=4) == []
    assert told_of_updates(run, tmp_path, first, lambda own, rank: bring(own, rank, False), ranks=4) == [
        left_behind("ranks 2 and 3 never gets weight, others' do")]
    # Gathers of two ranks each, of activations maybe, bring them nothing from other pairs.
    assert told_of_updates(run, tmp_path, first, lambda own, rank: own.call("all_gather", 4, group=[rank & 2, rank | 1]), ranks=4) == [
        left_behind("ranks 2 and 3 never gets weight, others' do")]


def tensor_parallel(factor, reduce_over=("dp",), **more):
    """A parameter that two ranks of tp hold alike, as far as the file says."""
    program = Program((0, 4))
    placed = more.pop("placed", None)
    program.parameter("norm", 4, **({"placed": placed} if placed else {}))
    own = program.contribution("norm", **more)
    reduced = program.call("all_reduce", 4, [[0, 4, [["1", own, 0]]]], 4, reduce="sum", group={"axes": list(reduce_over)})
    return program.result("norm", [[0, 4, [[factor, reduced, 0]]]]).step().end()


GRID = {"axes": {"dp": 2, "tp": 2}}


def test_an_axis_of_which_nothing_is_said(run, tmp_path):
    undecided = ["ranks along tp each yield a gradient of it, and nothing says whether it is one gradient or shares of one"]
    report = checked(run, tmp_path, tensor_parallel("1/2"), **GRID)
    assert report["verdict"] == "undecided" and whats(report) == undecided
    report = checked(run, tmp_path, tensor_parallel("1/2", ("dp", "tp")), **GRID)
    assert report["verdict"] == "undecided" and whats(report) == undecided
    assert [one["expected"] for one in report["results"]] == [None]
    assert {one["expected"] for one in report["results"][0]["coefficients"]} == {None}


@pytest.mark.parametrize(("factor", "over", "said"), [
    ("1/4", ("dp",), "right if ranks along ep each have an expert of their own under this name, and nothing says so"),
    ("1/2", ("dp",), "ranks along ep each yield a gradient of it, and nothing says whether it is one gradient or shares of one"),
    ("1/8", ("dp",), "it is wrong whether ranks along ep yield one gradient or shares of one"),
    ("1/8", ("dp", "ep"), "it is wrong whether ranks along ep yield one gradient or shares of one"),
    ("1", ("ep",), "it is wrong whether ranks along ep yield one gradient or shares of one"),
])  # fmt: skip
def test_experts_of_their_own_under_one_name(run, tmp_path, factor, over, said):
    report = checked(run, tmp_path, tensor_parallel(factor, over), axes={"dp": 2, "ep": 2})
    assert whats(report) == [said]


def test_another_place_does_not_have_that_expert(run, tmp_path):
    """Ranks 1 and 3, of ep 1, get what those of ep 0 have yielded."""
    programs = []
    for rank in range(4):
        program = Program((rank, rank + 1))
        program.parameter("norm", 4)
        own = program.contribution("norm")
        reduced = program.call("all_reduce", 4, [[0, 4, [["1", own, 0]]]], 4, reduce="sum", group={"axes": ["dp"]})
        brought = program.call("broadcast", 4, [[0, 4, [["1/4", reduced, 0]]]] if rank % 2 == 0 else None, 4, root=rank & 2, group=[rank & 2, rank | 1])
        programs.append(program.result("norm", [[0, 4, [["1", brought, 0]]]]).step().end())
    report = checked(run, tmp_path, *programs, axes={"dp": 2, "ep": 2})
    assert {tuple(one["ranks"]): one["verdict"] for one in report["results"]} == {(0, 1, 2, 3): "wrong"}


def test_an_axis_of_which_nothing_is_said_where_it_is_wrong_in_either_case(run, tmp_path):
    report = checked(run, tmp_path, tensor_parallel("1/8", ("dp", "tp")), **GRID)
    assert whats(report) == ["it is wrong whether ranks along tp yield one gradient or shares of one"]
    result, = report["results"]
    assert result["verdict"] == "wrong" and result["expected"] is None and result["difference"] is None
    assert {one["expected"] for one in result["coefficients"]} == {None}
    assert result["why"] == ("as one gradient: every contribution came with 1/4 where 1/2 was expected: uniform factor 1/2, invisible to Adam; "
                             "as shares: every contribution came with 1/8 where 1/2 was expected: uniform factor 1/4, invisible to Adam")
    # No share of tp is said to be missing.
    report = checked(run, tmp_path, tensor_parallel("1/4"), **GRID)
    assert whats(report) == ["it is wrong whether ranks along tp yield one gradient or shares of one"]
    assert {one["formula"] for one in report["results"]} == {"(g0+g2)/4", "(g1+g3)/4"}
    program = tensor_parallel("1/2", ("dp", "tp"))
    for event in program.events:
        if event["event"] == "result":
            event["content"] = []
    assert whats(checked(run, tmp_path, program, **GRID)) == ["what the optimizer gets is not known: what is there was not followed"]
    for event in program.events:
        if event["event"] == "result":
            event["content"] = [[0, 4, []]]
    assert whats(checked(run, tmp_path, program, **GRID)) == ["nothing arrived"]


def test_replicas_and_shares_that_the_file_names(run, tmp_path):
    replicas = {"placed": ["tp"]}
    report = checked(run, tmp_path, tensor_parallel("1/2", **replicas), status=0, **GRID)
    assert {one["formula"] for one in report["results"]} == {"(g0+g2)/2"}
    checked(run, tmp_path, tensor_parallel("1/4", ("dp", "tp"), **replicas), status=0, **GRID)
    report = checked(run, tmp_path, tensor_parallel("1/2", ("dp", "tp"), **replicas), **GRID)
    assert whats(report) == ["every contribution came with 1 where 1/2 was expected: uniform factor 2, invisible to Adam"]
    # A DTensor is placed along the axis and has a share of the gradient as well.
    for shares in ({"partial": ["tp"]}, {"partial": ["tp"], "placed": ["tp"]}):
        checked(run, tmp_path, tensor_parallel("1/2", ("dp", "tp"), **shares), status=0, **GRID)
        report = checked(run, tmp_path, tensor_parallel("1/2", **shares), **GRID)
        assert whats(report) == ["the share of tp 1 is missing", "the share of tp 0 is missing"]


def test_boxes(run, tmp_path):
    """Columns of a matrix over tp; of these, rows over dp."""

    def program(rank, wrong=False):
        data, column = divmod(rank, 2)
        own = Program((rank, rank + 1))
        columns = [2 * column, 2 * column + 2]
        rows = [2 * data, 2 * data + 2]
        own.parameter("weight", 4, 4, pieces=[{"box": [[0, 4], columns]}, {"box": [rows, columns]}])
        source = own.contribution("weight", elements=8)
        part = own.call("reduce_scatter", 8, [[0, 8, [["1", source, 0]]]], 4, reduce="avg")
        content = [[0, 2, [["1", part, 2]]], [2, 2, [["1", part, 0]]]] if wrong else [[0, 4, [["1", part, 0]]]]
        own.result("weight", content, piece=1)
        own.call("all_gather", 4)
        return own.step().end()

    report = checked(run, tmp_path, *[program(rank) for rank in range(4)], status=0, **GRID)
    assert formulas(report)["weight", "[2, 4) × [0, 2)", (2,)] == "(g0+g2)/2"
    report = checked(run, tmp_path, *[program(rank, rank == 3) for rank in range(4)], **GRID)
    assert whats(report) == ["contributions of other elements are in it"]
    wrong = {one["elements"]: one["formula"] for one in report["results"] if one["verdict"] == "wrong"}
    assert wrong == {"[2, 4) × [2, 4) from its element 0 to 2": "('weight+4'.1+'weight+4'.3)/2",
                     "[2, 4) × [2, 4) from its element 2 to 4": "('weight-4'.1+'weight-4'.3)/2"}


def test_elements_of_a_box_that_come_from_a_range_are_named_by_how_far_they_are_off(run, tmp_path):
    program = Program((0, 1))
    program.parameter("weight", 4, 4, pieces=[{"range": [0, 16]}, {"box": [[0, 4], [0, 2]]}])
    own = program.contribution("weight")
    program.result("weight", [[0, 8, [["1", own, 0]]]], piece=1).step().end()
    report = checked(run, tmp_path, program, axes={"dp": 1})
    assert [one["formula"] for one in report["results"] if one["ranks"]] == ["g0", "'weight-2'.0", "'weight-4'.0", "'weight-6'.0"]


def test_sends_and_receives(run, tmp_path):
    def first():
        own = Program((0, 1))
        own.parameter("embedding", 4)
        source = own.contribution("embedding")
        got = own.call("recv", 4, None, 4, peer=1)
        return own.result("embedding", [[0, 4, [["1", source, 0], ["1", got, 0]]]]).step().end()

    def second(sends=True):
        own = Program((1, 2))
        own.parameter("head", 4, aliases=["embedding"])
        source = own.contribution("head")
        if sends:
            own.call("send", 4, [[0, 4, [["1", source, 0]]]], peer=0, call="tie.py:3 in share")
        return own.result("head", [[0, 4, "not looked at"]]).step().end()

    pipeline = {"axes": {"pp": 2}}
    report = checked(run, tmp_path, first(), second(), **pipeline)
    assert formulas(report)["embedding", None, (0,)] == "g0 + g1"
    assert report["counts"] == {"right": 1, "wrong": 0, "undecided": 1}
    report = checked(run, tmp_path, first(), second(False), **pipeline)
    assert report["collectives"] == ["send 1 from rank 1 to rank 0, in optimizer step 0, recv of 4 float32 elements: rank 1 sends nothing."]


def test_tokens(run, tmp_path):
    def program(rank, factor):
        own = Program((rank, rank + 1))
        own.parameter("weight", 4)
        source = own.contribution("weight")
        reduced = own.call("all_reduce", 4, [[0, 4, [[factor, source, 0]]]], 4, reduce="sum")
        return own.result("weight", [[0, 4, [["1", reduced, 0]]]]).step(tokens=[1 + 2 * rank]).end()

    checked(run, tmp_path, program(0, "1/4"), program(1, "3/4"), status=0, loss="token_mean")
    report = checked(run, tmp_path, program(0, "1/2"), program(1, "1/2"), loss="token_mean")
    assert formulas(report) == {("weight", None, (0, 1)): "(g0+g1)/2"}
    assert checked(run, tmp_path, program(0, "1/2"), program(1, "1/2"), status=0, loss=None)["loss"] is None


def test_gaps_are_told(run, tmp_path):
    program = ddp((0, 2))
    program.events.insert(2, {"event": "gap", "step": None, "parameters": [1], "why": "the script reads the gradient of bias"})
    report = checked(run, tmp_path, program)
    assert report["verdict"] == "undecided" and report["counts"]["right"] == 1
    assert report["gaps"] == ["the script reads the gradient of bias: what the optimizers get of bias is not judged."]


def test_every_format_can_say_it(run, tmp_path):
    path = extraction.write(tmp_path / "step.json", ddp((0, 2), factor="1/4"))
    for kind in ("text", "json", "concise", "junit", "sarif", "github", "gitlab", "markdown", "html"):
        finished = run("check", path, "-f", kind)
        assert finished.returncode == 1 and "uniform factor 1/2" in finished.stdout.replace("&#x2F;", "/"), kind
    line = next(number for number, text in enumerate((tmp_path / "step.json").read_text().splitlines(), 1) if '"result"' in text)
    sarif = json.loads(run("check", path, "-f", "sarif").stdout)
    region = sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert region["startLine"] == line - 1


def test_ranks_that_do_not_ascend_are_refused(run, tmp_path):
    path = extraction.write(tmp_path / "step.json", ddp((1, 2), (0, 1)))
    finished = run("check", path)
    assert finished.returncode == 2 and '"ranks": expected intervals that ascend, found rank 0 after 1' in finished.stdout


def test_an_extraction_from_a_pipe(run, binary, tmp_path):
    path = extraction.write(tmp_path / "step.json", ddp((0, 2), factor="1/4"))
    text = (tmp_path / "step.json").read_text()
    shown = run("check", path).stdout
    assert run("check", "-", input=text).stdout.replace("<stdin>", path) == shown
    os.mkfifo(tmp_path / "pipe")
    for content, status in ((text, 1), (text.replace('"1/4"', '"1/2"'), 0), ('{ "lockstep": 1 }', 2)):
        writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=(content,))
        writer.start()
        finished = subprocess.run([binary, "check", "-q", "pipe"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        writer.join()
        assert finished.returncode == status, finished.stdout + finished.stderr
    assert "missing key" in finished.stdout


def test_an_extraction_that_needs_too_much_leaves_others_their_answers(limited, tmp_path):
    program = Program((0, 1 << 19))
    for number in range(4):
        program.add("gap", step=number, parameters=[], why="x" * 200)
    extraction.write(tmp_path / "large.json", program.step().end())
    extraction.write(tmp_path / "small.json", ddp((0, 2)))
    finished = limited("check", "-q", "large.json", "small.json", memory=200 << 20)
    lines = finished.stdout.decode().splitlines()
    assert finished.returncode == 3 and lines[:2] == ["error  large.json", "large.json:1:1: error: out of memory"] and lines[-1] == "match  small.json", finished.stdout + finished.stderr


def test_calls_of_many_ranks_take_time_in_proportion(binary, tmp_path):
    ranks = 1 << 16
    program = Program((0, ranks), played=[0])
    program.parameter("weight", 4)
    own = program.contribution("weight")
    for _ in range(60):
        program.call("barrier", 0)
    reduced = program.call("all_reduce", 4, [[0, 4, [["1", own, 0]]]], 4, reduce="avg")
    part = program.call("reduce_scatter", ranks, [[0, 4, [["1", reduced, 0]]], [4, ranks - 4, []]], 1, reduce="sum")
    program.call("all_to_all", ranks, [[0, 1, [["1", part, 0]]], [1, ranks - 1, []]], input_splits=[1] * ranks, output_splits=[1] * ranks)
    program.result("weight", [[0, 4, [["1", reduced, 0]]]]).step().end()
    extraction.write(tmp_path / "step.json", program)
    finished = subprocess.run([binary, "check", "-q", "step.json"], cwd=tmp_path, capture_output=True, text=True, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (15, 15)))
    assert finished.stdout == "match  step.json\n", finished.stderr


def test_beside_scenarios(run, tmp_path, files):
    extraction.write(files / "step.json", ddp((0, 2)))
    finished = run("check", "-f", "json", "right.json", "step.json", "wrong.json")
    assert finished.returncode == 1
    assert [one["verdict"] for one in json.loads(finished.stdout)] == ["match", "match", "mismatch"]
    assert run("check", "-q", "right.json", "step.json").returncode == 0


def test_where_ranks_of_one_parameter_disagree_no_number_has_a_majority(run, tmp_path):
    """Nobody says what the loss is: three ranks divide by 4 and one by 5, or one each way."""
    def program(rank, factor):
        own = Program((rank, rank + 1)).parameter("weight", 8)
        summed = own.call("all_reduce", 8, [[0, 8, [["1", own.contribution("weight"), 0]]]], 8, reduce="sum")
        return own.result("weight", [[0, 8, [[factor, summed, 0]]]]).step().end()
    for factors in (("1/4", "1/4", "1/4", "1/5"), ("1/4", "1/5", "1/5", "1/5"), ("1/2", "1/3", "1/4", "1/5")):
        report = checked(run, tmp_path, *[program(rank, factor) for rank, factor in enumerate(factors)], loss=None)
        assert report["verdict"] == "undecided" and {one["verdict"] for one in report["results"]} == {"undecided"}
