# SPDX-License-Identifier: Apache-2.0
"""prove: which axes it leaves open, those that the layout names and those that --open asks for, and what it says of the others."""

import json

import pytest

EACH = {"name": "each", "op": "each", "steps": [{"name": "backward", "op": "backward"}]}
MEAN = {"name": "mean", "op": "scale", "by": "1 / sum(tokens, dp, cp, sp, micro_batch)"}


def summed(*axes):
    return {"name": "sum", "op": "all_reduce", "over": list(axes)}


@pytest.fixture
def prove(run, files):
    """prove({"dp": 2}, steps): what `lockstep prove -f json` answers to a file with this layout."""

    def answer(layout, steps, *options, parameters=None, batch=None, **keys):
        document = {"lockstep": 1, "name": "a", "layout": layout, "model": {"parameters": parameters or [{"name": "w", "shape": [16]}]},
                    "batch": batch or {}, "schedule": {"steps": steps}, **keys}  # fmt: skip
        (files / "a.json").write_text(json.dumps(document))
        done = run("prove", "-f", "json", *options, "a.json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    return answer


def kept(answer):
    return {one["axis"]: one["size"] for one in answer["kept"]}


def test_the_starter_file_is_right_for_the_axes_that_it_names(run):
    assert run("init").returncode == 0
    assert run("check", "-q", "scenario.jsonc").stdout == (
        "match  scenario.jsonc  Two data-parallel ranks, a norm split by sequence parallelism over two tensor-parallel ranks\n"
    )
    done = run("prove", "scenario.jsonc")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "proved  scenario.jsonc  first-scenario\n"
        "  right for every size, with cp = 1 and sp = 1\n"
        "  open: tp, dp, micro_batches; 8 cases, 16 classes of parameters\n"
        "  cp and sp stay 1: the layout does not name them; --open cp,sp opens them\n"
        "  tp 3, 5-7 and tp ≥ 9 are refused: tp 3: the parameter \"mlp.weight\" has 8 elements to cut in dimension 0, which tp = 3 does not divide; "
        'pad the dimension, or write "uneven": true to cut it as torch.chunk does\n'
    )
    assert run("prove", "-q", "--open", "all", "scenario.jsonc").stdout == "wrong   scenario.jsonc  right only at sp = 1 and cp = 1\n"


def test_an_axis_that_is_asked_for_is_open_as_though_the_layout_named_it(prove):
    steps = [EACH, summed("dp"), MEAN]
    for asked in (["cp"], ["sp"], ["cp", "sp"], ["tp"], ["pp"], ["dp"]):
        opened, named = prove({"dp": 2}, steps, "--open", ",".join(asked)), prove({"dp": 2, **{axis: 1 for axis in asked if axis != "dp"}}, steps)
        for answer in (opened, named):
            if answer["counterexample"]:
                answer["counterexample"]["scenario"].pop("layout")  # which has the keys of the file
        assert opened == named
        assert set(asked) <= set(opened["open"])
    assert prove({"dp": 2}, steps)["statement"] == "right for every size, with cp = 1 and sp = 1"
    assert prove({"dp": 2}, steps, "--open", "cp")["statement"] == "right only at cp = 1, with sp = 1"
    # Nothing in the file speaks of tp, so that nothing is said of it until it is asked for: all its ranks compute the same.
    assert prove({"dp": 2}, steps, "--open", "tp")["open"] == ["tp", "dp", "micro_batches"]


def test_a_size_of_1_names_an_axis(prove):
    assert prove({"dp": 2, "cp": 1}, [EACH, summed("dp", "cp"), MEAN])["open"] == ["cp", "dp", "micro_batches"]


def test_a_layout_that_names_no_axis_leaves_all_open(prove):
    steps = [EACH, summed("dp", "cp"), MEAN]
    for layout in ({}, {"order": "dp-tp-cp-sp-ep-pp"}):
        answer = prove(layout, steps)
        assert answer["open"] == ["cp", "sp", "dp", "micro_batches"] and answer["statement"] == "right only at sp = 1"
        assert answer == prove(layout, steps, "--open", "all")


def test_why_an_axis_stays_is_said(prove, run):
    answer = prove({"dp": 2}, [EACH, summed("dp"), MEAN])
    assert answer["kept"] == [{"axis": "cp", "size": 1, "why": "the layout does not name it; --open cp opens it"},
                              {"axis": "sp", "size": 1, "why": "the layout does not name it; --open sp opens it"}]  # fmt: skip
    assert "\n  sp stays 1: the layout does not name it; --open sp opens it\n" in run("prove", "--open", "cp", "a.json").stdout


def test_an_axis_that_is_refused_but_for_one_size_is_listed_as_refused(run, files):
    (files / "a.json").write_text(json.dumps({
        "lockstep": 1, "layout": {"dp": 2, "tp": 2}, "model": {"preset": "gpt", "layers": 2, "hidden": 8, "heads": 4, "head_dim": 2, "ffn": 16, "vocab": 32, "positions": 4},
        "schedule": {"framework": "megatron"}}))  # fmt: skip
    answer = json.loads(run("prove", "-f", "json", "a.json").stdout)
    assert answer["statement"].endswith("with cp = 1 and pp = 1") and answer["open"] == ["tp", "dp", "micro_batches"]
    assert [(one["axis"], one["sizes"][0], one["from"]) for one in answer["refused"] if one["axis"] == "sp"] == [("sp", 2, 2)]


def test_axes_that_are_refused_beside_size_1_of_each_other_are_not_said_to_be_refused(run, files):
    """cp 2 is refused beside sp 1, and sp 2 beside cp 1; both together are allowed."""
    steps = [EACH, summed("dp", "cp"), {"name": "mean", "op": "scale", "by": "1 / sum(tokens, dp, cp, sp, micro_batch)"}]
    (files / "ours.jsonc").write_text(json.dumps({"lockstep_framework": 1, "name": "ours", "rules": [{"refuse": "cp != sp", "because": "no"}], "steps": steps}))
    (files / "a.json").write_text(json.dumps({"lockstep": 1, "layout": {"dp": 2, "tp": 1, "pp": 1}, "model": {"parameters": [{"name": "w", "shape": [16]}]},
                                              "schedule": {"framework": "./ours.jsonc"}}))  # fmt: skip
    answer = json.loads(run("prove", "-f", "json", "a.json").stdout)
    assert answer["statement"] == "right for every size, with cp = 1 and sp = 1" and not answer["refused"]


def test_dp_names_the_part_that_gets_its_size_and_beside_a_part_both(prove):
    steps = [EACH, summed("dp_shard"), {"name": "mean", "op": "scale", "by": "1 / sum(tokens, dp, micro_batch)"}]
    for layout, opened, stay in (({"dp": 2}, ["dp_shard"], {"dp_replicate": 1}), ({"dp_shard": 2}, ["dp_shard"], {"dp_replicate": 1}),
                                 ({"dp": 4, "dp_shard": 2}, ["dp_shard", "dp_replicate"], {}), ({"dp": 2, "dp_shard": 2}, ["dp_shard", "dp_replicate"], {}),
                                 ({"dp_replicate": 2}, ["dp_replicate"], {"dp_shard": 1})):  # fmt: skip
        answer = prove(layout, steps)
        assert answer["open"] == [*opened, "micro_batches"] and kept(answer) == stay, layout
    assert prove({"dp": 2}, steps)["statement"] == "right for every size, with dp_replicate = 1"
    for asked in ("dp", "dp_replicate", "dp_replicate,dp_shard", "all"):
        assert prove({"dp": 2}, steps, "--open", asked)["statement"] == "right only at dp_replicate = 1", asked
    # A framework knows no parts until somebody asks for them.
    assert prove({"dp": 2}, [EACH, summed("dp"), MEAN], "--open", "dp_replicate")["open"] == ["dp_shard", "dp_replicate", "micro_batches"]


EXPERTS = [{"name": "w", "shape": [60]}, {"name": "e", "shape": [4, 24], "shard": {"ep": 0}, "dispatch": ["ep"]}]


def test_beside_experts_dp_names_what_is_left_of_it(prove):
    steps = [EACH, {**summed("dp"), "name": "dense", "params": "w"}, {**summed("edp"), "name": "experts", "params": "e"}]

    def with_experts(layout, *options):
        return prove(layout, steps, *options, parameters=EXPERTS, batch={"loss": "sum"})

    answer = with_experts({"dp": 2})
    assert answer["statement"].startswith("right for every size, with ") and answer["open"] == ["edp", "micro_batches"]
    assert kept(answer)["ep"] == 1 and "--open ep opens it" in next(one["why"] for one in answer["kept"] if one["axis"] == "ep")
    assert with_experts({"dp": 2, "ep": 2})["open"] == ["ep", "edp", "micro_batches"]
    assert with_experts({"dp": 2}, "--open", "ep")["open"] == ["ep", "edp", "micro_batches"]
    assert with_experts({"dp": 2}, "--open", "etp")["open"] == ["tp", "edp", "micro_batches"]
    answer = with_experts({"tp": 2, "etp": 2})
    assert answer["open"] == ["tp", "micro_batches"] and kept(answer)["edp"] == 1
    assert "--open dp opens it" in next(one["why"] for one in answer["kept"] if one["axis"] == "edp")
    assert with_experts({"tp": 2, "etp": 2}, "--open", "dp")["open"] == ["tp", "edp", "micro_batches"]


def test_an_axis_of_experts_that_the_file_does_not_have_stays(prove):
    answer = prove({"dp": 2}, [EACH, summed("dp")], "--open", "ep", batch={"loss": "sum"})
    assert answer["statement"] == "right for every size, with ep = 1"
    assert answer["kept"] == [{"axis": "ep", "size": 1, "why": "no parameter or step speaks of the expert mesh"}]


def test_what_is_any_is_open_alone_and_what_is_asked_for_beside_it(prove):
    steps = [EACH, summed("dp", "cp"), MEAN]
    batch = {"micro_batches": 2}
    assert prove({"dp": "any", "cp": 2}, steps, batch=batch)["open"] == ["dp"]
    assert prove({"dp": "any", "cp": 2}, steps, "--open", "all", batch=batch)["open"] == ["dp"]
    assert prove({"dp": "any", "cp": 2}, steps, "--open", "cp", batch=batch)["open"] == ["cp", "dp"]
    answer = prove({"dp": "any", "cp": 2}, steps, "--open", "sp", batch=batch)
    assert answer["open"] == ["sp", "dp"] and answer["statement"] == "right only at sp = 1"
    assert prove({"dp": "any"}, steps, "--open", "dp_shard", batch=batch)["open"] == ["dp_shard"]
    assert prove({"dp": "any"}, steps, "--open", "dp_replicate", batch=batch)["open"] == ["dp_shard", "dp_replicate"]
    answer = prove({"dp": 2}, steps, "--open", "cp", batch={"micro_batches": "any"})
    assert answer["open"] == ["cp", "micro_batches"] and answer["verdict"] == "right"


def test_a_list_of_tokens_keeps_an_axis_that_is_asked_for(prove):
    answer = prove({"dp": 2}, [EACH, summed("dp")], "--open", "cp,tp", batch={"micro_batches": 1, "tokens": [[[[1]], [[2]]]], "loss": "sum"})
    assert answer["open"] == ["tp"] and kept(answer) == {"cp": 1, "dp": 2, "micro_batches": 1}


def test_a_word_that_is_no_axis_is_usage(run, files):
    known = "all, tp, cp, sp, dp, dp_shard, dp_replicate, pp, ep, etp"
    for text, found in (("cpp", '"cpp"; did you mean "cp"?'), ("cp,", '""'), ("cp,dp_shards", '"dp_shards"; did you mean "dp_shard"?'), ("micro_batches", '"micro_batches"'),
                        ("al", '"al"; did you mean "all"?'), ("cp sp", '"cp sp"')):  # fmt: skip
        done = run("prove", "--open", text, "right.json")
        assert (done.returncode, done.stdout) == (2, ""), text
        assert done.stderr == f"error: --open takes {known}, separated by commas; found {found}\n", text


def test_a_repair_is_proved_for_all_that_the_file_speaks_of(run, files):
    """It is ranked by for how much it is right."""
    document = {"lockstep": 1, "layout": {"dp": 2}, "model": {"parameters": [{"name": "w", "shape": [16]}]},
                "schedule": {"steps": [EACH, summed("tp"), {"name": "mean", "op": "scale", "by": "1 / sum(tokens, dp, micro_batch)"}]}}  # fmt: skip
    (files / "a.json").write_text(json.dumps(document))
    assert "right for every size of tp, dp and micro_batches" in run("repair", "a.json").stdout


def test_any_dp_is_every_dp_where_steps_speak_of_its_parts(prove, run):
    """The part that gets its size is open."""
    steps = [EACH, summed("dp_shard"), {"name": "twice", "op": "scale", "by": 2, "when": "dp == 7"}]
    answer = prove({"dp": "any"}, steps, batch={"loss": "sum"})
    assert (answer["verdict"], answer["open"]) == ("wrong", ["dp_shard"]) and answer["statement"] == "wrong for dp_shard = 7"
    done = run("check", "a.json")
    assert done.returncode == 1 and "With any dp it is wrong for dp_shard = 7. Shown is the smallest layout that is wrong." in done.stdout
    del steps[-1]
    assert prove({"dp": "any"}, steps, batch={"loss": "sum"})["statement"] == "right for every size"
    assert run("check", "a.json").returncode == 0
