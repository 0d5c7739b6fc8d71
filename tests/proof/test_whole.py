# SPDX-License-Identifier: Apache-2.0
"""Proofs against the scenarios that they are about: nothing is taken from a proof, and every kind of lie in one is found."""

import collections
import copy
import json
import os
import random
import subprocess
from fractions import Fraction
from pathlib import Path

import lies
import pytest
from conditions import Reader
from coverage import Sizes
from cuts import begins_aligned, cut_signatures
from functions import WrongProof, axis, constant, parse, plus, variable
from program import Program, Scenario, without_comments
from test_proofs import SCENARIO, STEPS
from whole import Counts, check_case, check_whole

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif("LOCKSTEP_BINARY" not in os.environ, reason="LOCKSTEP_BINARY does not name the program")

# So much is taken from the proofs below, instead of derived from the scenario: it must not grow.
MOST_TAKEN = 0
CASES = 2  # looked at in each proof of the corpus, drawn by a seed; tools/proofs looks at all
LIES = 3  # of each kind, where so many proofs can have it; tools/proofs --lies tells more
PARAMETERS = [*SCENARIO["model"]["parameters"], {"name": "bias", "shape": [10], "stage": 0, "partial": ["tp"]}]
EACH = STEPS["sharded"][0][0]
MORE = {
    "right": ([EACH,
        {"name": "partial", "op": "all_reduce", "over": "tp", "params": ["norm", "bias"]},
        {"name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg"},
        {"name": "tie", "op": "all_reduce", "over": {"pp": ["first", "last"]}, "params": ["tied:embedding"]}], {}),
    "undecided": ([EACH, {"name": "late", "op": "scale", "by": "1/2", "when": "dp * tp == 6"}], {}),
}  # fmt: skip
FILES = ["scenarios/colossalai/2192-norm-not-summed-over-experts-fixed.json",  # experts: two meshes
         "scenarios/deepspeed/5248-zero3-sp2-world-local-mean.json",  # a factor that a framework derives from sizes
         "scenarios/megatron/7452-8-attention-sink-norm-fixed.json",  # stages, norms, buckets
         "scenarios/torchtitan/1805-moe-input-gradient-in-the-model-fixed.json"]  # dispatched tokens


def prove(path, opened="all"):
    done = subprocess.run([os.environ["LOCKSTEP_BINARY"], "prove", "-f", "json", "--proof", *(["--open", opened] if opened else []), str(path)],
                          capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout, parse_float=Fraction)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Scenarios that together have every operation, one that is right and one that is not decided for some sizes; with their proofs."""
    folder, found = tmp_path_factory.mktemp("whole"), []
    for name, (steps, batch) in {**STEPS, **MORE}.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps({**SCENARIO, "model": {"parameters": PARAMETERS}, "batch": {"tokens": "even", **batch}, "schedule": {"steps": steps}}))
        found.append((Scenario(path), prove(path)))
    return found


def test_proofs_are_checked_whole(own):
    counts = Counts()
    for scenario, report in own:
        check_whole(report, scenario, counts, random.Random(1))
    for name in FILES:
        check_whole(prove(ROOT / name), Scenario(ROOT / name), counts, random.Random(1), most_cases=CASES)
    print("counted:", counts)
    assert counts.taken.count() <= MOST_TAKEN, dict(counts.taken)
    assert counts.whole == counts.proofs == len(own) + len(FILES)
    assert counts.classes >= 60 and counts.steps >= 400 and counts.sizes >= 60 and counts.refused >= 100 and counts.conditions >= 10


def test_so_are_proofs_of_the_axes_that_the_layout_names_alone():
    counts = Counts()
    for name in (FILES[0], FILES[2]):
        report = prove(ROOT / name, opened="")
        assert any("--open" in one["why"] for one in report["kept"])
        check_whole(report, Scenario(ROOT / name), counts, random.Random(1), most_cases=CASES)
    assert counts.taken.count() <= MOST_TAKEN and counts.whole == 2


def test_a_list_of_ones_is_as_good_as_even(tmp_path):
    """What the list gives is a number, also where each piece has its own."""
    counts, ones = Counts(), [[[[1], [1]], [[1], [1]]]] * 2
    parameters = [{"name": "w", "shape": [8], "stage": 0}, {"name": "v", "shape": [8], "stage": -1}]
    for loss, by in (("local_mean", "1 / (tokens * micro_batches * dp * cp)"), ("micro_batch_mean", "1 / (sum(tokens, cp) * micro_batches * dp)")):
        each = {"name": "each", "op": "each", "steps": [{"name": "backward", "op": "backward", "by": by}]}
        path = tmp_path / "ones.json"
        path.write_text(json.dumps({"lockstep": 1, "layout": {"dp": 2, "cp": 2, "pp": 2}, "model": {"parameters": parameters},
                                    "batch": {"tokens": ones, "loss": loss},
                                    "schedule": {"steps": [each, {"name": "sum", "op": "all_reduce", "over": ["dp", "cp"]}]}}))  # fmt: skip
        report = prove(path)
        assert report["verdict"] == "right" and "tokens" not in json.dumps(report["cases"])
        check_whole(report, Scenario(path), counts, random.Random(1))
    assert counts.whole == counts.proofs == 2


def test_every_kind_of_lie_is_found(own):
    told = collections.Counter()
    for number, lie in enumerate(lies.LIES):
        for scenario, proof in own[number % len(own):] + own[:number % len(own)]:
            if told[lie.__name__] == LIES:
                break
            report = copy.deepcopy(proof)
            if lies.tell(report, number) is None:
                continue
            name = lie.__name__
            told[name] += 1
            with pytest.raises(WrongProof):
                check_whole(report, scenario, Counts(), random.Random(number))
                print(f"{scenario.path.name}: the lie {number}, {name}, was not found")
    print("counted:", sum(told.values()), "lies found:", dict(told))
    assert all(told[lie.__name__] for lie in lies.LIES)


def test_a_class_that_only_a_larger_layout_has_is_not_left_out():
    """With three stages of the pipeline some layers lie where they do not with two."""
    path = ROOT / "scenarios/megatron/844-fixed.json"
    scenario, report = Scenario(path), prove(path)
    case = next(case for case in report["proof"] if any(entry["layout"] for entry in case["classes"]))
    sizes = Sizes(report, scenario, random.Random(1))
    check_case(case, scenario, sizes, Counts(), 0)
    case["classes"].remove(next(entry for entry in case["classes"] if entry["layout"]))
    with pytest.raises(WrongProof, match="no class has the parameter"):
        check_case(case, scenario, sizes, Counts(), 0)


def test_a_scenario_that_is_not_the_one_that_was_proved_is_found(own):
    for number, (_, report) in enumerate(own):
        with pytest.raises(WrongProof):
            check_whole(report, own[number - 1][0], Counts(), random.Random(1))


def step_of(document, name):
    steps = document["schedule"]["steps"]
    return next(step for outer in steps for step in [outer, *outer.get("steps", [])] if step["name"] == name)


def parameter_of(document, name):
    return next(one for one in document["model"]["parameters"] if one["name"] == name)


def without(document, name):
    document["schedule"]["steps"] = [step for step in document["schedule"]["steps"] if step["name"] != name]


def swapped(steps):
    steps[-1], steps[-2] = steps[-2], steps[-1]


# What a prover could take a scenario for that it is not: each is a change of the scenario, whose proof is then printed as
# that of the unchanged one. Every value in it follows from those before it.
MISREAD = {
    "sharded": {
        "two cuts are one": lambda d: step_of(d, "scatter")["geometry"].update(separate=["tied:embedding"]),
        "a cut is another one": lambda d: step_of(d, "scatter").update(geometry={"kind": "parameter"}),
        "an average is a sum": lambda d: step_of(d, "scatter").pop("reduce"),
        "a group is another one": lambda d: step_of(d, "partial").update(over="dp"),
        "a stage is another one": lambda d: step_of(d, "tie").update(over={"pp": ["first"]}),
        "a step is left out": lambda d: without(d, "partial"),
        "steps are swapped": lambda d: swapped(d["schedule"]["steps"]),
        "other ranks count": lambda d: step_of(d, "norm").update(count="rank.pp != 0"),
        "a norm goes along less": lambda d: step_of(d, "norm").update(over=["dp", "tp"]),
        "a step chooses less": lambda d: step_of(d, "partial").update(params=["bias"]),
        "backward has another factor": lambda d: step_of(d, "backward").update(by="1"),
        "a share is the whole": lambda d: parameter_of(d, "norm").pop("partial"),
        "a piece is the whole": lambda d: [parameter_of(d, name).pop("shard") for name in ("word", "output")],
        "a parameter lies elsewhere": lambda d: parameter_of(d, "norm").update(stage=-1),
        "a parameter is missing": lambda d: d["model"]["parameters"].remove(parameter_of(d, "bias")),
        "another loss": lambda d: d["batch"].update(loss="sum"),
        "other tokens": lambda d: d["batch"].update(tokens="uneven"),
        "some ranks take no part": lambda d: parameter_of(d, "norm").update(only={"dp": [0]}),
    },
    "rooted": {
        "another root": lambda d: step_of(d, "send").update(root={"dp": "last"}),
        "another factor": lambda d: step_of(d, "scale").update(by="1/pp"),
        "what is owned is all": lambda d: step_of(d, "scale").pop("on"),
        "another buffer": lambda d: step_of(d, "clear").update(buffer="total"),
        "a norm is a sum": lambda d: step_of(d, "norm").pop("combine"),
        "a copy adds": lambda d: step_of(d, "copy").update(op="accumulate"),
        "only some ranks": lambda d: step_of(d, "scale").update(only={"pp": [0]}),
    },
    "late": {
        "a step is waited for": lambda d: step_of(d, "start").pop("async"),
        "one unknown for all ranks": lambda d: step_of(d, "noise").pop("per"),
    },
    "twice": {
        "one optimizer step": lambda d: d["batch"].update(steps=1, micro_batches=[2]),
        "one micro-batch more": lambda d: d["batch"].update(micro_batches=[2, 2]),
        "a reduction of the last": lambda d: step_of(d, "reduce").update(when="micro_batch == last"),
    },
}  # fmt: skip


def test_a_prover_that_misread_the_scenario_is_found(own, tmp_path):
    reports, decided = {scenario.path.stem: (scenario, report) for scenario, report in own}, 0
    for name, changes in MISREAD.items():
        scenario, report = reports[name]
        program = next(case["program"] for case in report["proof"] if case["layouts"])
        for what, change in changes.items():
            document = copy.deepcopy(scenario.document)
            change(document)
            path = tmp_path / "misread.json"
            path.write_text(json.dumps(document))
            misread = prove(path)
            decided += any(case["classes"] for case in misread["proof"])
            for case in misread["proof"]:
                if "program" in case:
                    case["program"] = program
            with pytest.raises(WrongProof):
                check_whole(misread, scenario, Counts(), random.Random(1))
                print(f"{name}: {what}: was not found")
    print("counted:", sum(map(len, MISREAD.values())), "scenarios misread,", decided, "of them proved")
    assert decided >= 28


def test_no_proof_is_of_copies(own, tmp_path):
    scenario, report = own[0]
    document = copy.deepcopy(scenario.document)
    parameter_of(document, "output")["copy"] = "second"
    path = tmp_path / "lost.json"
    path.write_text(json.dumps(document))
    assert not any(case["classes"] for case in prove(path)["proof"])
    with pytest.raises(WrongProof, match="several copies"):
        check_whole(report, Scenario(path), Counts(), random.Random(1))


def test_buckets_begin_where_their_parameters_do():
    assert begins_aligned({})
    assert begins_aligned({"align_parameter": 64, "align_bucket": "lcm(n, 128)"})
    assert begins_aligned({"align_parameter": "n", "align_bucket": "2 * n"})
    assert not begins_aligned({"align_parameter": 64, "align_bucket": "n"})
    assert not begins_aligned({"align_parameter": "n * n", "align_bucket": "lcm(n, 128)"})
    assert not begins_aligned({"align_parameter": 64, "align_bucket": "n + 63"})


def test_signs_are_those_of_all_sizes():
    program = Program({"layout": {"dp": 2}, "model": {"parameters": []}, "schedule": {"steps": []}})
    reader = Reader(program, {"dp": axis(("rank", "contributor"), "dp")}, {}, {"dp": 3}, {})
    dp = variable("dp")
    assert reader.signs(plus(dp, constant(3), -1)) == {0, 1}
    assert reader.signs(plus(dp, constant(2), -1)) == {1}
    assert reader.signs(plus(constant(2), dp, -1)) == {-1}
    assert reader.signs(plus(constant(4), dp, -1)) == {-1, 0, 1}
    assert reader.signs(parse("1/dp - 1/3")) == {-1, 0}
    assert reader.signs({}) == {0}


def test_comments_and_commas_are_left_out_where_they_are_none_of_a_string():
    assert json.loads(without_comments('{ "a": "// no, }", /* x */ "b": [1, 2,], // y\n }')) == {"a": "// no, }", "b": [1, 2]}


def test_a_buffer_that_ranks_lay_out_otherwise_has_no_cut_of_its_own():
    uneven = {"name": "u", "shape": [3], "shard": {"tp": {"dim": 0, "uneven": True}}}
    scatter = {"name": "scatter", "op": "reduce_scatter", "over": "dp", "geometry": {"kind": "flat"}}

    def signatures(*parameters, **layout):
        model = {"parameters": list(parameters)}
        program = Program({"layout": {"dp": 2, "tp": 2, **layout}, "model": model, "schedule": {"steps": [scatter]}})
        return cut_signatures(program, scatter, 0)

    assert len(signatures(uneven)) == 1
    assert len(signatures(uneven, {"name": "w", "shape": [12]}, tp=1)) == 2
    with pytest.raises(WrongProof, match="laid out otherwise"):
        signatures(uneven, {"name": "w", "shape": [12]})


def test_conditions_that_share_their_parts_are_written_with_names_for_these(tmp_path):
    """Each name of the chain stands twice for the one before: as a text the condition would have 2^40 sums."""
    chains = {
        "doubles": ({"a0": "dp + 1", **{f"a{i}": f"a{i - 1} + a{i - 1}" for i in range(1, 41)}}, f"a40 > {9 * 2**40}"),
        "conditions": ({"a0": "dp > 5", **{f"a{i}": f"a{i - 1} and a{i - 1}" for i in range(1, 41)}}, "not a40"),
        "floors": ({"a0": "floor(dp / 99) + dp", **{f"a{i}": f"a{i - 1} + a{i - 1}" for i in range(1, 41)}}, "a40 > 0"),
    }
    counts = Counts()
    for name, (let, when) in chains.items():
        each = {"name": "each", "op": "each", "steps": [{"name": "backward", "op": "backward", "by": "1/micro_batches"}]}
        steps = [each, {"name": "sum", "op": "all_reduce", "over": "dp", "reduce": "avg"}, {"name": "twice", "op": "scale", "when": when, "by": "2"}]
        (tmp_path / "ours.jsonc").write_text(json.dumps({"lockstep_framework": 1, "name": "ours", "let": let, "steps": steps}))
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"lockstep": 1, "layout": {"dp": 2}, "model": {"parameters": [{"name": "w", "shape": [8]}]},
                                    "batch": {"micro_batches": 1, "tokens": "even"}, "schedule": {"framework": "./ours.jsonc"}}))  # fmt: skip
        report = prove(path, opened="")
        assert not report["undecided"]
        assert all(len(case["let"]) >= 40 and all(len(text) < 100 for text in case["let"].values()) for case in report["proof"])
        check_whole(report, Scenario(path), counts, random.Random(1))
    assert counts.taken.count() == 0, dict(counts.taken)
    assert counts.whole == counts.proofs == len(chains) and counts.conditions >= 8
