# SPDX-License-Identifier: Apache-2.0
"""Small files with a large appetite: each command ends in little memory, and says what it left out and where."""

import json
import os
import re
from pathlib import Path

import extraction
import pytest
from test_hostile import BACKWARD, STEPS, scenario

UNITS = "it would take more than "
BEYOND_THE_BUDGET = 4 << 30  # of memory, so that it is the budget that ends it
# Files of many layers or parameters take as long as they are large: tools/nightly has them five times as large.
TIMES = 5 if int(os.environ.get("LOCKSTEP_TEST_ROUNDS", "1")) > 1 else 1
# A whole budget of work is used up each time. With every change one file of each command does it, tools/nightly has the others.
nightly = pytest.mark.skipif("LOCKSTEP_NIGHTLY" not in os.environ, reason="a whole budget once more: tools/nightly")


def say(limited, tmp_path, content, *arguments, name="case.json", **options):
    """Runs a command on a file with this content; the status and everything that was said."""
    (tmp_path / name).write_text(content)
    done = limited(*arguments, name, **options)
    said = done.stdout.decode() + done.stderr.decode()
    assert len(said) < 3_000_000
    return done.returncode, said


def framework(tmp_path, **parts):
    whole = {"lockstep_framework": 1, "name": "ours", "steps": STEPS, **parts}
    (tmp_path / "ours.jsonc").write_text(json.dumps(whole))
    return scenario(schedule={"framework": "./ours.jsonc"})


def many_micro_batches(count):
    return scenario(layout={"dp": 2, "cp": 2}, batch={"micro_batches": count}, schedule={"steps": [BACKWARD]})


TOTAL = "sum(tokens,dp,cp,sp,micro_batch)"
BY_RANK = [{"name": f"z{i}", "op": "scale", "by": "(rank.dp+1)/(micro_batch+2)"} for i in range(4)]
ALL_REDUCES = [{"name": f"r{i}", "op": "all_reduce", "over": ["tp", "cp", "sp", "dp", "pp"][i % 5]} for i in range(60)]

MANY_ALL_REDUCES = scenario(
    layout={axis: 2 for axis in ["tp", "cp", "sp", "dp", "pp"]},
    model={"parameters": [{"name": "w", "shape": [64]}, {"name": "v", "shape": [64], "stage": 1}]},
    schedule={"steps": [BACKWARD, *ALL_REDUCES]},
)

# What the search for the step at fault would cost is more than the verdict, which stands.
HUNGRY = {
    "2^15 micro-batches": (many_micro_batches(1 << 15), 1, "mismatch"),
    "2^19 micro-batches": (many_micro_batches(1 << 19), 1, "mismatch"),
    "a long sum on many ranks": (
        scenario(
            layout={"dp": 1024},
            batch={"micro_batches": 1024},
            schedule={"steps": [*STEPS[:2], {"name": "s", "op": "scale", "by": "1/(" + "+".join([TOTAL] * 100) + ")"}]},
        ),
        1,
        "mismatch",
    ),
    "2^20 ranks": (scenario(layout={"dp": 1 << 20}, schedule={"steps": [BACKWARD, STEPS[2]]}), 1, "mismatch"),
    "4,000 layers, or 20,000": (
        scenario(
            model={"preset": "gpt2", "layers": 4_000 * TIMES, "hidden": 8, "heads": 2, "vocab": 16, "positions": 8},
            batch={"micro_batches": 2},
            schedule={"framework": "megatron", "edits": [{"drop": "dp_all_reduce"}]},
        ),
        1,
        "mismatch",
    ),
    "20,000 parameters, or 100,000": (
        scenario(model={"parameters": [{"name": f"w{i}.x", "shape": [1]} for i in range(20_000 * TIMES)]}, schedule={"steps": [BACKWARD]}),
        1,
        "mismatch",
    ),
}


@pytest.mark.parametrize("name", HUNGRY)
def test_a_wrong_file_with_a_large_appetite_has_its_verdict(limited, tmp_path, name):
    content, wanted, verdict = HUNGRY[name]
    status, said = say(limited, tmp_path, content, "check")
    assert (status, said.split()[0]) == (wanted, verdict), said[:2000]


def test_a_search_for_the_step_at_fault_that_is_cut_off_says_so(limited, tmp_path):
    content = MANY_ALL_REDUCES
    status, said = say(limited, tmp_path, content, "check")
    assert (status, said.split()[0]) == (1, "mismatch"), said[:2000]
    assert "The search for the step at fault was cut off: " + UNITS in said
    status, said = say(limited, tmp_path, content, "check", "--no-blame")
    assert status == 1
    assert "cut off" not in said


def test_work_is_counted_and_not_timed_so_that_a_search_is_cut_off_at_the_same_place(limited, tmp_path):
    content = MANY_ALL_REDUCES
    first, second = (say(limited, tmp_path, content, "repair")[1] for _ in range(2))
    assert first == second
    assert "the search was cut off: " + UNITS in first
    # And what was not tried is counted.
    assert re.search(r"; [0-9]+ single edits were not tried and no two edits together\n", first), first
    found = json.loads(say(limited, tmp_path, content, "repair", "-f", "json")[1])
    assert found["not_tried"]["edits"] > 100 and found["not_tried"]["pairs"] and found["not_tried"]["first_edits"] == 0


@nightly
def test_factors_that_differ_from_rank_to_rank_and_in_each_micro_batch_are_too_much(limited, tmp_path):
    steps = [{**BACKWARD, "steps": [*BACKWARD["steps"], {"name": "a", "op": "all_reduce", "over": "dp", "when": "micro_batch == last"}, *BY_RANK]}]
    content = scenario(layout={"dp": 2048}, batch={"micro_batches": 256}, schedule={"steps": [*steps, STEPS[2]]})
    status, said = say(limited, tmp_path, content, "check")
    assert status == 2
    assert 'does not follow it: it would take more than 150 million units of work in step "z' in said or UNITS in said


@pytest.mark.parametrize("steps", [STEPS, [BACKWARD, STEPS[2]]], ids=["right", "wrong"])
def test_ranks_that_are_to_be_shown_or_compared_one_by_one_are_not_a_million(limited, tmp_path, steps):
    content = scenario(layout={"dp": 1 << 20}, schedule={"steps": steps})
    status, said = say(limited, tmp_path, content, "explain")
    assert status == 2
    assert UNITS in said
    status, said = say(limited, tmp_path, content, "diff", "case.json")
    assert status in (2, 3)
    assert UNITS in said or "this scenario needs about" in said


def test_repair_of_a_million_ranks_says_how_far_it_came(limited, tmp_path):
    status, said = say(limited, tmp_path, scenario(layout={"dp": 1 << 20}, schedule={"steps": [BACKWARD, STEPS[2]]}), "repair")
    assert status in (0, 1), said
    assert "dp_all_reduce" in said or "all_reduce" in said or "cut off" in said


def test_a_hundred_thousand_parameters_are_shown(limited, tmp_path):
    content = scenario(model={"parameters": [{"name": f"w{chr(97 + i % 26)}{i:x}", "shape": [1 + i]} for i in range(100_000)]})
    status, said = say(limited, tmp_path, content, "show")
    assert status == 0
    assert "parameters (100000)" in said


DOUBLES = {"a0": "dp + 1", **{f"a{i}": f"a{i - 1} + a{i - 1}" for i in range(1, 40)}}
DEEP = {"a0": "dp + 1", **{f"a{i}": f"1 + a{i - 1}" for i in range(1, 1200)}}
LETS = {
    "deep": (dict(let=DEEP, rules=[{"refuse": "a1199 < 0", "because": "x"}]), "an expression too deep, written out in sizes"),
    "long": (dict(let=DOUBLES, steps=[*STEPS, {"name": "x", "op": "scale", "by": "a39 / a39"}]), "characters, written out in sizes"),
}
# Where no text is asked for, there is none to be too long.
SHARED = {
    "a rule": dict(rules=[{"refuse": "a39 < 0", "because": "x"}]),
    "a condition": dict(steps=[*STEPS, {"name": "x", "op": "scale", "when": "a39 < 0", "by": "2"}]),
    "a divisor": dict(steps=[*STEPS, {"name": "x", "op": "scale", "when": "1 / a39 > 1", "by": "2"}]),
}


@pytest.mark.parametrize("command", ["prove", "repair", "mutate", "diff"])
@pytest.mark.parametrize("name", LETS)
def test_names_that_stand_for_names_do_not_grow_without_end(limited, tmp_path, name, command):
    parts, sentence = LETS[name]
    content = framework(tmp_path, **parts)
    assert say(limited, tmp_path, content, "check")[0] == 0
    other = ["case.json"] if command == "diff" else []
    status, said = say(limited, tmp_path, content, command, *other)
    assert status in (0, 1), said
    if command != "repair":
        assert sentence in said
        assert 'the name "a' in said
        assert "ours.jsonc:1)" in said


@pytest.mark.parametrize("command", ["check", "prove", "repair", "mutate", "diff"])
@pytest.mark.parametrize("name", SHARED)
def test_names_that_stand_for_names_are_shared(limited, tmp_path, name, command):
    content = framework(tmp_path, let=DOUBLES, **SHARED[name])
    other = ["case.json"] if command == "diff" else []
    status, said = say(limited, tmp_path, content, command, *other)
    assert status == 0, said
    assert "written out" not in said
    if command == "prove":
        assert "right for every size" in said


@pytest.mark.parametrize("command", ["prove", "repair", "mutate", "diff"])
def test_a_condition_of_a_framework_on_ranks_and_sizes_is_a_limit_of_the_proof(limited, tmp_path, command):
    by = {"name": "x", "op": "scale", "when": "rank.dp == 0 or dp > 1", "by": "1 / sum(tokens, dp, micro_batch)"}
    content = framework(tmp_path, steps=[*STEPS[:2], by])
    other = ["case.json"] if command == "diff" else []
    status, said = say(limited, tmp_path, content, command, *other)
    assert status in (0, 1), said


def test_what_ends_one_file_leaves_the_others_their_answers(limited, tmp_path):
    (tmp_path / "a.json").write_text(HUNGRY["2^19 micro-batches"][0])
    (tmp_path / "c.json").write_text(scenario())
    (tmp_path / "b.json").write_text(framework(tmp_path, **LETS["deep"][0]))
    done = limited("check", "-q", "a.json", "b.json", "c.json")
    assert [line.split()[:2] for line in done.stdout.decode().splitlines()] == [
        ["mismatch", "a.json"],
        ["match", "b.json"],
        ["match", "c.json"],
    ]
    done = limited("prove", "-q", "b.json", "c.json")
    assert [line.split()[:2] for line in done.stdout.decode().splitlines()] == [["open", "b.json"], ["proved", "c.json"]]


def test_as_many_cases_as_three_axes_have_sizes_are_too_many(limited, tmp_path):
    named = {"name": "x", "op": "zero", "when": "rank.dp == 39 and rank.cp == 39 and rank.sp == 39"}
    steps = [BACKWARD, *({"name": f"ar_{axis}", "op": "all_reduce", "over": axis} for axis in ["dp", "cp", "sp"]), named, STEPS[2]]
    content = scenario(layout={"dp": "any", "cp": "any", "sp": "any"}, schedule={"steps": steps})
    status, said = say(limited, tmp_path, content, "check")
    assert status == 2
    assert "its sizes fall into more than 5000 cases, each of which would be looked at: " in said
    assert "of dp" in said
    status, said = say(limited, tmp_path, content, "prove")
    assert status == 1
    assert "more than 5000 cases" in said


def test_a_condition_on_the_number_of_all_ranks_is_cut_where_it_changes(limited, tmp_path):
    # Each size up to the last at which it changes was a case of its own, more than 5,000 together.
    steps = [
        {"name": "zero", "op": "zero"},
        {"name": "mbs", "op": "each", "steps": [{"name": "backward", "op": "backward", "by": "1/tokens"}]},
        {"name": "scatter", "op": "reduce_scatter", "over": ["dp"], "geometry": {"kind": "flat", "align": "n"}, "reduce": "avg"},
        {"name": "x4", "op": "scale", "when": "v < 8", "by": "2"},
        {"name": "post", "op": "scale", "by": "1/micro_batches"},
    ]
    framework(tmp_path, let={"v": "world"}, steps=steps)
    content = scenario(
        layout={"dp_shard": 2, "dp_replicate": 1, "order": "dp-tp-cp-sp-ep-pp"},
        model={"parameters": [{"name": "a.w", "shape": [5040]}, {"name": "b.norm", "shape": [720], "tags": ["norm"]}]},
        batch={"micro_batches": 2, "tokens": "uneven", "loss": "local_mean"},
        schedule={"framework": "./ours.jsonc"},
    )
    status, said = say(limited, tmp_path, content, "prove", "-v", "--open", "all")
    assert status == 1
    assert "\n  wrong for cp ≥ 2; for sp ≥ 2; for 1 ≤ dp_shard ≤ 7, dp_replicate = 1 and pp = 1; for dp_shard = 1, " in said


SUM_OF_SIZES = [
    {"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward", "by": "1/tokens"}]},
    {"name": "sum", "op": "all_reduce", "over": ["dp", "sp"]},
    {"name": "mean", "op": "scale", "by": "1/(micro_batches*dp*sp)"},
    {"if": "max(sp + dp, 5000) == min(sp + dp, 5000)", "then": {"name": "twice", "op": "scale", "by": "2"}},
]


def test_a_proof_at_many_large_sizes_holds_nothing_for_each_rank(limited, tmp_path):
    # Each pair of sizes that the condition cuts off is a case, of up to a million ranks.
    framework(tmp_path, steps=SUM_OF_SIZES)
    batch = {"micro_batches": "any", "tokens": "even", "loss": "local_mean"}
    content = scenario(layout={"dp": "any", "sp": "any"}, batch=batch, schedule={"framework": "./ours.jsonc"})
    status, said = say(limited, tmp_path, content, "prove", memory=1 << 29)
    assert (status, said.split()[0]) == (1, "wrong"), said
    assert "wrong for sp = 4999 and dp = 1; for sp = 1 and dp = 4999; " in said


def test_a_proof_reads_a_large_file_that_it_names_once_and_not_at_every_size(limited, tmp_path):
    framework(tmp_path, steps=[*STEPS, {"name": "last", "op": "zero", "when": "rank.dp == 36"}])
    ours = tmp_path / "ours.jsonc"
    ours.write_text("//" + "x" * 30_000_000 + "\n" + ours.read_text())
    content = scenario(layout={"dp": "any"}, schedule={"framework": "./ours.jsonc"})
    status, said = say(limited, tmp_path, content, "prove", memory=1 << 30)
    assert (status, said.split()[0]) == (1, "wrong"), said
    assert "wrong as soon as dp ≥ 37" in said


def test_long_numbers_are_not_worked_out_to_their_end(limited, tmp_path):
    scales = [{"name": f"s{i}", "op": "scale", "by": "1e400"} for i in range(60)]
    status, said = say(limited, tmp_path, scenario(schedule={"steps": [*STEPS, *scales]}), "check", "--engine", "host")
    assert (status, said.split()[0]) == (1, "mismatch"), said
    backward = {**BACKWARD, "steps": [{**BACKWARD["steps"][0], "by": "1/(micro_batch*micro_batch+1)"}]}
    content = scenario(batch={"micro_batches": 3000}, schedule={"steps": [backward, *STEPS[1:]]})
    status, said = say(limited, tmp_path, content, "check", "--engine", "host")
    assert (status, said.split()[0]) == (1, "mismatch"), said


@nightly
def test_a_long_condition_in_a_loop_of_a_model_is_too_much(limited, tmp_path):
    model = {
        "lockstep_model": 1,
        "name": "ours",
        "help": "",
        "sizes": {"k": {"default": 1_900_000, "help": ""}},
        "parameters": [{"for": {"a": "k"}, "when": "+".join(["lcm(a + 1, a + 2)"] * 40) + " < 0", "parameters": [{"name": "w{a}", "shape": [1]}]}],
    }
    (tmp_path / "ours.jsonc").write_text(json.dumps(model))
    status, said = say(limited, tmp_path, scenario(model={"preset": "./ours.jsonc"}), "check")
    assert status == 2
    assert "ours.jsonc:1:" in said
    assert "what the loops of the model evaluate is too much: " + UNITS in said


def test_what_a_search_makes_of_a_file_is_no_mistake_in_the_file(limited, tmp_path):
    tied = {"shape": [6, 3], "tied": "embedding", "shard": {"tp": 0}, "uses": ["main", "aux"]}
    content = scenario(
        layout={"tp": 1},
        model={
            "parameters": [
                {"name": "embedding.weight", "stage": 0, **tied},
                {"name": "layers.0.norm.weight", "shape": [2], "stage": 0},
                {"name": "head.weight", "stage": -1, **tied},
            ]
        },
        batch={"loss": {"main": "token_mean", "aux": "token_mean"}, "weight": {"aux": 2}},
        schedule={
            "result": "main",
            "steps": [
                {
                    "name": "loop",
                    "op": "each",
                    "steps": [
                        {"name": "backward", "op": "backward", "by": "1/sum(tokens, dp, cp, sp, micro_batch)", "uses": ["main"]},
                        {"name": "aux_backward", "op": "backward", "by": "(1/sum(tokens, dp, cp, sp, micro_batch))*(2)", "uses": ["aux"]},
                    ],
                },
                {"name": "to_main", "op": "copy", "from": "grad", "to": "main"},
                {
                    "name": "norm_0",
                    "op": "norm",
                    "params": ["embedding.weight", "head.weight"],
                    "over": ["tp", "pp", "dp", "cp", "sp"],
                    "count": "rank.pp == first",
                    "buffer": "main",
                },
            ],
        },
    )
    status, said = say(limited, tmp_path, content, "check")
    assert status == 1
    assert "symbolic mismatch, host match (compares values only)" in said
    assert "layers.0.norm.weight" in said
    assert "norm_0" in said
    status, said = say(limited, tmp_path, content, "repair")
    assert status in (0, 1), said


def test_what_is_too_much_to_be_replayed_is_decided_by_classes_of_ranks(limited, tmp_path):
    """Numbers grow with each micro-batch. With more of them, where the layout counts as large, there was a verdict."""
    grows = {"name": "q", "op": "scale", "by": "123456789101112131415161718192021222324252627281/123456789101112131415161718192021222324252627287"}
    mean = {"name": "s", "op": "scale", "by": "1 / sum(tokens, dp, micro_batch)"}
    each = {"name": "m", "op": "each", "steps": [{"name": "b", "op": "backward"}, grows]}
    content = scenario(
        layout={"dp": 2},
        model={"parameters": [{"name": "w", "shape": [4]}]},
        batch={"micro_batches": 120},
        schedule={"steps": [each, {"name": "ar", "op": "all_reduce", "over": "dp"}, mean]},
    )
    status, said = say(limited, tmp_path, content, "check")
    assert status == 1 and said.startswith("mismatch")
    assert "note: No rank was replayed: it would take more than " in said and "parametric mismatch" in said


def all_reduce(**parts):
    return {"name": "dp_all_reduce", "op": "all_reduce", "over": "dp", **parts}


HUNGRY_PROOF = scenario(
    model={"preset": "gpt2", "layers": 20_000, "hidden": 8, "heads": 2, "vocab": 16, "positions": 8},
    batch={"micro_batches": 2},
    schedule={"framework": "megatron", "edits": [{"drop": "dp_all_reduce"}]},
)


def test_a_proof_that_does_not_end_is_cut_off_in_little_memory_and_says_so(limited, tmp_path):
    status, said = say(limited, tmp_path, HUNGRY_PROOF, "prove", memory=1_200_000_000)
    assert (status, said.split()[0]) == (1, "wrong"), said
    assert "  wrong at the sizes of the file; no proof for every size\n" in said  # which are replayed by themselves
    assert UNITS in said


@pytest.mark.parametrize("command", ["check", "repair"])
def test_edits_of_many_steps_are_too_many_for_the_memory_and_not_for_the_machine(limited, tmp_path, command):
    """Each of 1,000 reductions may move to each other place. To count what was not tried all of them were made: 9 GB for 800."""
    each = {"name": "micro_batches", "op": "each", "steps": [
        {"name": "backward", "op": "backward", "by": "1 / sum(tokens, dp, micro_batch)"},
        *({"name": f"r{i}", "op": "all_reduce", "over": "dp", "params": [f"p{i}"]} for i in range(1000))]}
    document = {"lockstep": 1, "layout": {"dp": 2}, "model": {"parameters": [{"name": f"p{i}", "shape": [8]} for i in range(1000)]},
                "batch": {"micro_batches": 2}, "schedule": {"steps": [each]}}
    status, said = say(limited, tmp_path, json.dumps(document), command, memory=2_000_000_000)
    assert status == 1 and "cut off: it would take more than 1 GB of memory" in said
    if command == "repair":
        assert "; single edits too many to be counted were not tried" in said


@nightly
def test_what_is_searched_for_after_the_verdict_takes_little_memory(limited, tmp_path):
    """The search for the step at fault, and a comparison with itself, took 1.1 and 1.6 GB of a wrong file of 20,000 layers."""
    for command in ("check", "repair"):
        code, said = say(limited, tmp_path, HUNGRY_PROOF, command, memory=1_200_000_000)
        assert code == 1 and "it would take more than 1 GB of memory" in said, said
    done = limited("diff", "case.json", "case.json", memory=1_200_000_000)
    assert done.returncode == 2 and b"it would take more than 1 GB of memory" in done.stdout + done.stderr


@nightly
def test_a_proof_may_be_given_several_times_the_budget(limited, tmp_path):
    def limits(*options):
        return say(limited, tmp_path, HUNGRY_PROOF, "prove", *options, memory=8 << 30)[1]

    assert "more than 1 GB of memory" in limits() or "more than 280 million units of work" in limits()
    assert "more than 2 GB of memory" in limits("--budget", "2") or "more than 560 million units of work" in limits("--budget", "2")


@pytest.mark.parametrize("budget", ["0", "1001", "-1", "1.5", "ten"])
def test_a_budget_is_a_whole_number(limited, tmp_path, budget):
    status, said = say(limited, tmp_path, scenario(), "prove", "--budget", budget)
    assert status == 2
    assert "--budget" in said


def test_documents_say_the_budgets_that_the_program_has():
    root = Path(__file__).resolve().parents[2]
    header = (root / "src/base/budget.h").read_text(encoding="utf-8")
    texts = {name: " ".join((root / f"docs/{name}.md").read_text(encoding="utf-8").split()) for name in ["proof", "repair"]}

    def number(name):
        return int(re.search(rf" {name} = ([\d']+);", header).group(1).replace("'", ""))

    cases, counterexample, memory = number("proof"), number("counterexample"), number("memory_of_a_proof")
    assert f"{cases // 10**6} million units of work for its cases, {counterexample // 10**6} million more" in texts["proof"]
    assert f"and {memory // 10**9} GB of memory" in texts["proof"]
    assert f"{number('memory') // 10**9} GB at most, {memory // 10**9} GB for a [proof]" in texts["repair"]


def test_ranks_that_wait_for_the_same_one_are_told_in_linear_time(limited, tmp_path):
    content = scenario(layout={"dp": 65536}, schedule={"steps": [BACKWARD, all_reduce(when="rank.dp != 777"), STEPS[2]]})
    status, said = say(limited, tmp_path, content, "check")
    assert (status, said.split()[0]) == (1, "deadlock"), said[:2000]


def test_memory_has_a_budget_of_its_own_and_the_step_is_named(limited, tmp_path):
    """Half of the ranks wait for each one of the other half."""
    content = scenario(layout={"dp": 65536}, schedule={"steps": [BACKWARD, all_reduce(when="rank.dp < 32768"), STEPS[2]]})
    status, said = say(limited, tmp_path, content, "check", memory=BEYOND_THE_BUDGET)
    assert status == 2
    assert 'it would take more than 3 GB of memory in step "dp_all_reduce"' in said
    (tmp_path / "right.json").write_text(scenario())
    done = limited("check", "-q", "case.json", "right.json", memory=BEYOND_THE_BUDGET)
    assert [line.split()[:2] for line in done.stdout.decode().splitlines() if line[:5] in ("error", "match")] == [
        ["error", "case.json"],
        ["match", "right.json"],
    ]


@nightly
def test_what_a_thousand_factors_make_of_a_sum_is_counted(limited, tmp_path):
    by = {"name": "scale", "op": "scale", "by": "1 / (sum(tokens, dp, micro_batch) + rank.dp)"}
    content = scenario(layout={"dp": 16384}, schedule={"steps": [BACKWARD, all_reduce(), by]})
    status, said = say(limited, tmp_path, content, "check")
    assert status == 2
    assert UNITS in said


def test_a_table_has_a_row_for_a_large_layout_that_is_wrong(limited, tmp_path):
    content = scenario(layout={"dp": 1 << 20}, schedule={"steps": [BACKWARD, STEPS[2]]})
    status, said = say(limited, tmp_path, content, "list")
    assert status == 0
    assert said.splitlines()[1].split()[:2] == ["case.json", "mismatch"]


@nightly
def test_an_event_that_one_program_names_again_and_again_is_counted_each_time(limited, tmp_path):
    program = extraction.Program((0, 1)).parameter("weight", 8)
    source = program.contribution("weight")
    program.result("weight", [[0, 8, [["1", source, 0]] * 100_000]]).step().end()
    extraction.write(tmp_path / "named.json", program)
    content = json.loads((tmp_path / "named.json").read_text())
    events = content["programs"][0]["events"]
    place = next(number for number, event in enumerate(events) if event["event"] == "result")
    content["events"] = [events[place]]
    events[place:place + 1] = [0] * 3000
    (tmp_path / "named.json").write_text(json.dumps(content))
    finished = limited("check", "-q", "named.json", memory=5 << 30)
    assert finished.returncode == 2 and b"it would take more than 3 GB of memory" in finished.stdout + finished.stderr


@nightly
def test_an_extraction_that_takes_the_budget_of_memory_leaves_others_their_answers(limited, tmp_path):
    program = extraction.Program((0, 1 << 20), played=[0])
    for number in range(40):
        program.add("gap", step=number, parameters=None, why="x" * 200)
    extraction.write(tmp_path / "large.json", program.step().end())
    extraction.write(tmp_path / "small.json", extraction.ddp((0, 2)))
    finished = limited("check", "-q", "large.json", "small.json", memory=5 << 30)
    lines = finished.stdout.decode().splitlines()
    assert finished.returncode == 2 and lines[-1] == "match  small.json"
    assert lines[:2] == ["error  large.json", "large.json:1:1: error: it would take more than 3 GB of memory"]
