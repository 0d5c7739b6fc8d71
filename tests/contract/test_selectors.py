# SPDX-License-Identifier: Apache-2.0
"""Selectors, as the section "schedule" of the scenario format describes them."""

from contract_program import (
    assert_held,
    backward,
    check,
    check_all,
    held,
    message,
    messages,
    parameter,
    scenario,
    show,
    step,
    verdicts,
)

PARAMETERS = [
    parameter("embedding.weight", [8], tags=["embedding"]),
    parameter("layers.0.norm.weight", [2], tags=["norm"]),
    parameter("layers.0.mlp.weight", [4]),
    parameter("layers.1.norm.weight", [2], tags=["norm", "last"]),
    parameter("layers.10.mlp.weight", [6]),
]
NAMES = [entry["name"] for entry in PARAMETERS]


def chosen_by(selectors_of_each, parameters=None, layout=None):
    """For each list of selectors, the names of the parameters whose buffers it chooses."""
    parameters = parameters or PARAMETERS
    contents = [
        scenario([backward(), step("x", "scale", by="2", params=selectors)], parameters, layout)
        for selectors in selectors_of_each
    ]
    result = []
    for report in check_all(contents):
        assert report["verdict"] in ("match", "mismatch"), report["errors"]
        result.append(
            [
                entry["name"]
                for entry in report["parameters"]
                if any(2 in form_of.values() for form_of in held(report, entry["name"]).values())
            ]
        )
    return result


def chosen(*selectors, **keys):
    return chosen_by([list(selectors)], **keys)[0]


def test_a_selector_is_a_glob_on_names():
    assert chosen_by(
        [["embedding.weight"], ["layers.*"], ["*.norm.*"], ["layers.?.mlp.weight"], ["*"], ["layers.[01].norm.weight"]]
    ) == [NAMES[:1], NAMES[1:], [NAMES[1], NAMES[3]], [NAMES[2]], NAMES, [NAMES[1], NAMES[3]]]
    assert messages(scenario([backward(), step("x", "zero", params=["layers"])], PARAMETERS))


def test_tag_and_tied_choose_by_tag_and_by_group():
    assert chosen_by([["tag:norm"], ["tag:last"], ["tag:embedding", "tag:last"]]) == [
        [NAMES[1], NAMES[3]],
        [NAMES[3]],
        [NAMES[0], NAMES[3]],
    ]
    ends = [
        parameter("word", [4], tied="shared"),
        parameter("layer", [4]),
        parameter("head", [4], tied="shared", stage=-1),
    ]
    report = check(scenario([backward(), step("x", "scale", by="2", params=["tied:shared"])], ends, {"pp": 2}))
    assert_held(report, "word", {0: "2: g0"})
    assert_held(report, "layer", {0: "g0"})
    assert_held(report, "head", {1: "2: g1"})
    assert messages(scenario([backward(), step("x", "zero", params=["tag:nrom"])], PARAMETERS))


def test_shard_and_partial_choose_by_the_axes_of_the_placement():
    cut = [
        parameter("a", [8], shard={"tp": 0}),
        parameter("b", [8], partial=["tp"]),
        parameter("c", [8]),
        parameter("d", [8], shard={"ep": 0}, dispatch=["ep"]),
    ]
    layout = {"tp": 2, "dp": 2, "ep": 2}
    choices = {"shard:tp": ["a"], "partial:tp": ["b"], "shard:*": ["a", "d"], "!shard:tp": ["b", "c", "d"]}
    assert {item: chosen(item, parameters=cut, layout=layout) for item in choices} == choices
    assert messages(scenario([backward(), step("x", "zero", params=["partial:cp"])], cut, layout))


def test_numel_compares_local_elements_with_every_operator():
    # Sizes 8, 2, 4, 2, 6.
    assert chosen_by([["numel>4"], ["numel>=4"], ["numel<4"], ["numel<=4"], ["numel==4"]]) == [
        [NAMES[0], NAMES[4]],
        [NAMES[0], NAMES[2], NAMES[4]],
        [NAMES[1], NAMES[3]],
        NAMES[1:4],
        [NAMES[2]],
    ]
    # Local: 8 elements over tp 2 are 4.
    sharded = [parameter("a", [8], shard={"tp": 0}), parameter("b", [8])]
    assert chosen("numel>4", parameters=sharded, layout={"tp": 2}) == ["b"]
    assert chosen("numel==4", parameters=sharded, layout={"tp": 2}) == ["a"]


def test_chunk_compares_virtual_stages_with_the_same_operators():
    parameters = [parameter("a", [4]), parameter("b", [4], chunk=1), parameter("c", [4], chunk=2)]
    layout = {"virtual_stages": 3}
    assert chosen_by([["chunk==0"], ["chunk>0"], ["chunk<=1"], ["!chunk==1"]], parameters, layout) == [
        ["a"],
        ["b", "c"],
        ["a", "b"],
        ["a", "c"],
    ]
    # What tied parameters share on one rank lies where the first of them lies.
    tied = [parameter("a", [4], tied="t"), parameter("b", [4], chunk=1, tied="t"), parameter("c", [4], chunk=1)]
    assert chosen_by([["chunk==0"], ["chunk>0"]], tied, layout) == [["a"], ["c"]]
    assert "==" in message(scenario([backward(), step("x", "zero", params=["chunk=1"])], parameters, layout))
    assert "chunk>" in message(scenario([backward(), step("x", "zero", params=["chunk>one"])], parameters, layout))


def test_an_exclamation_mark_goes_before_any():
    assert chosen_by([["!layers.*"], ["!tag:norm"], ["!numel>=4"], ["!numel==2", "!embedding*"]]) == [
        NAMES[:1],
        [NAMES[0], NAMES[2], NAMES[4]],
        [NAMES[1], NAMES[3]],
        [NAMES[2], NAMES[4]],
    ]
    ends = [parameter("word", [4], tied="shared"), parameter("layer", [4])]
    assert chosen("!tied:shared", parameters=ends) == ["layer"]


def test_a_list_is_a_union_without_its_exclusions():
    assert chosen("layers.0.*", "tag:norm", "!*.mlp.*") == [NAMES[1], NAMES[3]]
    assert chosen("*", "!tag:norm") == [NAMES[0], NAMES[2], NAMES[4]]


def test_exclusions_alone_start_from_all():
    assert chosen("!tag:norm", "!tag:embedding") == [NAMES[2], NAMES[4]]


def test_an_empty_list_is_an_error_but_for_separate():
    assert "empty" in message(scenario([backward(), step("x", "zero", params=[])], PARAMETERS))
    content = scenario(
        [backward(), step("x", "reduce_scatter", over="dp", reduce="avg", geometry={"kind": "bucket", "separate": []})],
        PARAMETERS,
        {"dp": 2},
    )
    assert verdicts(content) == ["match"]
    assert len(show(content)["geometry"][0]["buckets"]) == 1


TIED = [
    parameter("word", [4], tied="t", tags=["embedding"]),
    parameter("layer", [4]),
    parameter("head", [4], tied="t", tags=["head"]),
]


def test_selectors_choose_buffers_and_one_is_chosen_if_one_of_its_names_is():
    # On one rank word and head are one buffer, listed under word.
    assert chosen_by([["head"], ["tag:head"], ["word"], ["tag:embedding"]], TIED) == [["word"]] * 4
    # An exclusion takes a name out, not the buffer that another name has chosen.
    assert chosen_by([["!head"], ["*", "!head"], ["!head", "!word"]], TIED) == [
        ["word", "layer"],
        ["word", "layer"],
        ["layer"],
    ]
    # Chosen once, however many of its names are.
    report = check(scenario([backward(), step("x", "scale", by="2", params=["word", "head"])], TIED))
    assert_held(report, "word", {0: "2: g0 g0@head"})


def test_the_order_of_selectors_does_not_matter():
    assert chosen("!tag:norm", "*") == chosen("*", "!tag:norm") == [NAMES[0], NAMES[2], NAMES[4]]
    assert (
        chosen("tag:norm", "!layers.0.*", "embedding*")
        == chosen("!layers.0.*", "embedding*", "tag:norm")
        == [NAMES[0], NAMES[3]]
    )
