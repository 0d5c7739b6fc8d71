# SPDX-License-Identifier: Apache-2.0
"""Clipping, as the section "schedule" of the scenario format describes it."""

from contract_program import W, backward, check, expectation_holds, messages, parameter, run, scenario, step, verdicts, write

MEAN = step("mean", "all_reduce", over="dp", reduce="avg")
SCATTER = step("scatter", "reduce_scatter", over="dp", reduce="avg")
NORM = step("norm", "norm")
CLIP = step("clip", "clip")
DP2 = {"dp": 2}


def document(*steps, parameters=(W,), layout=None, **keys):
    return scenario([backward(), *steps], parameters, layout or DP2, **keys)


def formulas(content, name="w"):
    """Of each rank: what its optimizer gets of a parameter that is wrong in one way."""
    found = check(content)
    result = {}
    for entry in next(one for one in found["parameters"] if one["name"] == name)["ranks"]:
        for rank in entry.get("ranks", [entry.get("rank")]):
            result[rank] = {piece["formula"] for piece in entry["pieces"]}
    return result


def test_clip_multiplies_by_the_factor_of_the_norm_that_the_rank_has_counted():
    assert verdicts(
        document(MEAN, NORM, CLIP),
        document(SCATTER, step("norm", "norm", over="dp"), CLIP),
        document(MEAN, NORM, step("clip", "clip", on="owned")),
    ) == ["match"] * 3
    # What was counted until then: half of it, or nothing.
    assert formulas(document(SCATTER, NORM, CLIP)) == {0: {"clip0((g0+g1)/2)"}, 1: {"clip1((g0+g1)/2)"}}
    assert formulas(document(MEAN, CLIP, NORM)) == {0: {"clip0((g0+g1)/2)"}, 1: {"clip0((g0+g1)/2)"}}


def test_ranks_whose_norms_count_the_same_have_the_same_factor_named_by_the_first_that_clips_by_it():
    twice = document(MEAN, step("norm", "norm", over="dp"), CLIP)
    assert formulas(twice) == {0: {"clip0((g0+g1)/2)"}, 1: {"clip0((g0+g1)/2)"}}
    assert check(twice)["parameters"][0]["replicas_agree"]
    own = document(NORM, MEAN, CLIP)
    assert formulas(own) == {0: {"clip0((g0+g1)/2)"}, 1: {"clip1((g0+g1)/2)"}}
    assert not check(own)["parameters"][0]["replicas_agree"]


def test_once_a_rank_clips_each_element_must_be_clipped_once_by_the_right_norm_and_else_none_is_missed():
    assert verdicts(document(MEAN, NORM)) == ["match"]
    assert formulas(document(MEAN, NORM, {**CLIP, "only": {"dp": 0}}))[1] == {"(g0+g1)/2"}
    assert formulas(document(MEAN, NORM, CLIP, step("again", "clip")))[0] == {"clip(clip((g0+g1)/2))"}
    two = [W, parameter("v", [4])]
    some = document(MEAN, NORM, {**CLIP, "params": ["w"]}, parameters=two)
    assert formulas(some, "v") == {0: {"(g0+g1)/2"}, 1: {"(g0+g1)/2"}}
    # Each optimizer step by itself.
    assert verdicts(
        scenario([step("zero", "zero"), backward(), MEAN, NORM, CLIP], layout=DP2, batch={"steps": 2}),
        scenario([step("zero", "zero"), backward(), MEAN, NORM, {**CLIP, "when": "step == 1"}], layout=DP2, batch={"steps": 2}),
    ) == ["match", "match"]


def test_a_norm_is_that_before_clipping_and_one_that_is_missing_counts_nothing():
    assert check(document(MEAN, NORM, CLIP))["norm"] == []
    found = check(document(MEAN, CLIP))
    assert [(entry["rank"], entry["counted"]) for entry in found["norm"]] == [(0, "0"), (1, "0")]
    changed = check(document(MEAN, NORM, step("half", "scale", by="1/2"), CLIP))
    assert [entry["counted"] for entry in changed["norm"]] == ["1", "1"]


def test_clipping_by_a_norm_in_flight_is_a_race():
    flying = step("norm", "norm", over="dp", **{"async": True})
    wait = {"op": "wait", "for": "norm"}
    copies = step("copies", "copy", **{"from": "grad", "to": "list"})
    other = step("clip", "clip", buffer="list")
    assert verdicts(document(SCATTER, copies, flying, other, wait)) == ["race"]
    found = check(document(SCATTER, copies, flying, wait, other))
    assert found["verdict"] == "mismatch" and found["norm"] == []


def test_clip_takes_the_keys_of_every_op_and_no_others():
    assert "\"clip\"" in messages(document(MEAN, NORM, {**CLIP, "max": 1}))[0]
    assert "\"clip\"" in messages(document(MEAN, NORM, {**CLIP, "over": "dp"}))[0]


def test_engines_that_compute_with_numbers_take_every_factor_for_1_and_prove_does_not_follow_it():
    assert check(document(MEAN, NORM, CLIP, step("again", "clip")))["engines"] == {"symbolic": "mismatch", "host": "match"}
    assert check(document(NORM, CLIP))["engines"] == {"symbolic": "mismatch", "host": "mismatch"}
    proof = run("prove", write(document(MEAN, NORM, CLIP)))
    assert "clip: it clips" in proof.stdout


def test_clips_of_a_coefficient_are_named_as_in_a_formula():
    pieces = check(document(NORM, CLIP, MEAN))["parameters"][0]["ranks"][0]["pieces"]
    assert [entry["clips"] for entry in pieces[0]["coefficients"]] == [["clip0"], ["clip1"]]
    assert all("clips" not in entry for entry in check(document(NORM))["parameters"][0]["ranks"][0]["pieces"][0]["coefficients"])


def test_expected_formulas_tell_factors_apart():
    content = document(NORM, CLIP, MEAN)
    assert expectation_holds(content, verdict="mismatch", formula={"w": {"0": "(clip0(g0) + clip1(g1))/2"}})
    assert not expectation_holds(content, verdict="mismatch", formula={"w": {"0": "clip((g0+g1)/2)"}})
    assert not expectation_holds(content, verdict="mismatch", formula={"w": {"0": "(g0 + g1)/2"}})
