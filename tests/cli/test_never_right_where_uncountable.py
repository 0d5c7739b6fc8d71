# SPDX-License-Identifier: Apache-2.0
"""Numbers of a geometry that outgrow what a cut can count, and sentences that named sizes nobody had followed."""

import json

import pytest

MICRO_BATCHES = {"name": "m", "op": "each", "steps": [{"name": "b", "op": "backward"}]}
REDUCE = {"name": "r", "op": "all_reduce", "over": "dp"}
MEAN = {"name": "mean", "op": "scale", "by": "1 / sum(tokens, dp, micro_batch)"}
WHOLE = {"name": "w", "shape": [4]}


def doubled(when):
    return {"name": "twice", "op": "scale", "by": "2", "when": when}


@pytest.fixture
def asked(run, files):
    """asked(steps, layout): the proof, or what `check` says where `check`; a framework where there are `rules`."""

    def ask(steps, layout=None, parameters=(WHOLE,), check=False, rules=None, **batch):
        document = {"lockstep": 1, "layout": layout or {"dp": 2}, "model": {"parameters": list(parameters)},
                    "batch": {"micro_batches": 1, **batch}, "schedule": {"steps": steps}}
        if rules is not None:
            (files / "f.jsonc").write_text(json.dumps({"lockstep_framework": 1, "name": "f", "batch": {"loss": "token_mean"}, "rules": rules, "steps": steps}))
            document["schedule"] = {"framework": "./f.jsonc"}
        (files / "a.json").write_text(json.dumps(document))
        if check:
            result = run("check", "--no-blame", "a.json")
            return result.stdout + result.stderr
        return json.loads(run("prove", "-f", "json", "a.json").stdout)

    return ask


def scattered(**geometry):
    return [MICRO_BATCHES, {"name": "rs", "op": "reduce_scatter", "over": "dp", "geometry": geometry}, MEAN]


TWO = (WHOLE, {"name": "v", "shape": [4]})


@pytest.mark.parametrize(
    "geometry, parameters, first, refused",
    [
        ({"kind": "flat", "align": "n * 1000000000000000"}, (WHOLE,), 4612, 4612),
        ({"kind": "bucket", "align_bucket": "n * 1000000000000000"}, (WHOLE,), 4612, 4612),
        ({"kind": "bucket", "size": "n * 1000000000000000"}, (WHOLE,), 4612, 4612),
        ({"kind": "bucket", "align_bucket": "lcm(n, 1000003 * 1000033 * 1000037)"}, (WHOLE,), 5, 5),
        ({"kind": "bucket", "align_bucket": "n * n * n * n * n"}, (WHOLE,), 5405, 5405),
        ({"kind": "bucket", "align_parameter": "n * n * n * n * n", "align_bucket": "n"}, (WHOLE,), 5405, 5405),
        # Buffers behind each other: what is aligned adds up.
        ({"kind": "bucket", "align_parameter": "n * 1000000000000000", "align_bucket": "n"}, TWO, 1153, 4612),
    ],
)  # fmt: skip
def test_a_geometry_that_outgrows_what_a_cut_can_count_is_not_right(geometry, parameters, first, refused, asked):
    steps = scattered(**geometry)
    assert asked(steps, {"dp": first - 1}, parameters, check=True).startswith("match")
    assert "at most 4611686018427387904" in asked(steps, {"dp": refused}, parameters, check=True)
    proof = asked(steps, parameters=parameters)
    assert (proof["verdict"], proof["statement"]) == ("undecided", "right where it could be followed")
    assert [one["sizes"].split(" and ")[0] for one in proof["undecided"]] == [f"dp ≥ {first}"] * 2
    assert all("a cut has at most 2^62 elements" in one["why"] for one in proof["undecided"])


def test_one_that_stays_small_is_right(asked):
    for align in ("n", "lcm(n, 128)", "n * 1000000000000", "n * n", "lcm(n, n * 64)"):
        assert asked(scattered(kind="flat", align=align))["verdict"] == "right"
        assert asked(scattered(kind="bucket", align_bucket=align, align_parameter="n"), parameters=TWO)["verdict"] == "right"


@pytest.mark.parametrize("when", ["micro_batch == 5", "micro_batch == last and micro_batches > 7"])
def test_the_number_of_micro_batches_that_it_is_about_is_said(when, asked):
    each = {**MICRO_BATCHES, "steps": [*MICRO_BATCHES["steps"], doubled(when)]}
    proof = asked([each, REDUCE, MEAN], micro_batches=2)
    assert (proof["verdict"], proof["statement"]) == ("right", "right for every size, with micro_batches = 2")
    assert [(one["axis"], one["size"]) for one in proof["kept"]] == [("micro_batches", 2)]


CUT = {"name": "v", "shape": [8], "shard": {"tp": 0}}


@pytest.mark.parametrize(
    "when, elements, statement",
    [
        ("tp == 4", 8, "wrong for tp = 4"),
        ("tp == 3", 6, "wrong for tp = 3"),
        ("tp == 2", 4, "wrong for tp = 2"),
    ],
)  # fmt: skip
def test_a_sentence_names_no_size_that_was_not_followed(when, elements, statement, asked):
    cut = {**CUT, "shape": [elements]}
    assert asked([MICRO_BATCHES, doubled(when)], {"tp": elements}, [cut], check=True, loss="sum").startswith("match")
    proof = asked([MICRO_BATCHES, doubled(when)], {"tp": 2}, [cut], loss="sum")
    assert proof["verdict"] == "wrong" and proof["undecided"]
    assert proof["statement"] == statement + ", of the sizes that could be followed"


def test_nor_does_every_size(asked):
    proof = asked([MICRO_BATCHES, REDUCE, MEAN, {"name": "s", "op": "scale", "by": "(dp * dp - 1) / (dp + 1)"}])
    assert proof["statement"] == "wrong for dp = 1, of the sizes that could be followed"
    assert proof["undecided"][0]["sizes"].startswith("dp ≥ 2")


@pytest.mark.parametrize("when", ["dp == 250000", "micro_batches == 1000000"])
def test_other_tokens_are_not_what_is_wrong_where_no_such_size_was_replayed(when, asked):
    proof = asked([MICRO_BATCHES, REDUCE, MEAN, doubled(when)])
    assert proof["verdict"] == "undecided"
    assert proof["statement"] == "right at every small size that was tried; at others something may be wrong that was not seen at these"


def test_the_smallest_has_the_fewest_micro_batches_that_rules_allow(asked, run):
    steps = [MICRO_BATCHES, {**REDUCE, "over": ["dp", "cp"]}, {**MEAN, "by": "1 / sum(tokens, dp, cp, micro_batch)"}, doubled("pp == 7")]
    rules = [{"refuse": "micro_batches < pp", "because": "too few"}]
    stages = [{**WHOLE, "stage": 0}, {"name": "v", "shape": [4], "stage": -1}]
    proof = asked(steps, {"dp": 2, "pp": 2}, stages, rules=rules, micro_batches=4)
    assert (proof["counterexample"]["sizes"]["pp"], proof["counterexample"]["sizes"]["micro_batches"]) == (7, 7)
    assert "\n  smallest: tp 1, cp 1, sp 1, dp 1, pp 7, 7 micro-batches:" in run("prove", "a.json").stdout


@pytest.mark.parametrize("only, least", [(1, 2), (200, 201)])
def test_any_has_no_size_without_the_coordinate_of_a_parameter(only, least, asked):
    proof = asked([MICRO_BATCHES, REDUCE, MEAN], {"dp": "any"}, [{**WHOLE, "only": {"dp": only}}])
    assert proof["verdict"] != "right" or proof["refused"][0]["sizes"][0] == 1
    assert proof["open"] == ["dp"]
    same = asked([MICRO_BATCHES, REDUCE, MEAN], {"dp": least}, [{**WHOLE, "only": {"dp": only}}])
    assert proof["statement"].split(",")[0] == same["statement"].split(",")[0]
