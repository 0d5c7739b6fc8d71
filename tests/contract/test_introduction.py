# SPDX-License-Identifier: Apache-2.0
"""Scenario files as a whole: the introduction of the scenario format."""

import json
import shutil

from contract_program import (
    FOLDER,
    ROOT,
    W,
    backward,
    check,
    expectation_holds,
    message,
    messages,
    named,
    run,
    scenario,
    step,
    verdicts,
    write,
)

MEAN = step("mean", "all_reduce", over="dp", reduce="avg")
RIGHT = scenario([backward(), MEAN], layout={"dp": 2})

EXAMPLE = """{
  "$schema": "../../schema/scenario.schema.json",
  "lockstep": 1,
  "name": "megatron-844",
  "title": "Tied embedding all-reduced after the DP reduce-scatter, in buffers that cut it differently",
  "source": "NVIDIA/Megatron-LM#844",
  "layout": { "pp": 2, "dp": 2 },
  "model": { "preset": "gpt2", "layers": 12, "hidden": 768, "vocab": 50257, "tied_embeddings": true },
  "batch": { "micro_batches": 1 },
  "schedule": {
    "framework": "megatron",
    "options": { "use_distributed_optimizer": true, "ddp_average_in_collective": true },
    "edits": [ { "set": "dp_reduce_scatter", "geometry": { "separate": [] } } ]
  },
  "expect": { "verdict": "mismatch", "parameters": ["tag:tied"], "ranks": [1, 2], "blame": ["dp_reduce_scatter"],
              "formula": { "embedding.word_embeddings.weight": { "1": "g3 + (g0+g1)/2" } } }
}
"""


def test_one_json_file_with_comments_and_trailing_commas_describes_a_step_and_what_must_come_out():
    text = """{ // one device
      "lockstep": 1, /* every part of the file: */
      "layout": { "dp": 2, },
      "model": { "parameters": [ { "name": "w", "shape": [4], }, ], },
      "batch": { "micro_batches": 1, },
      "schedule": { "steps": [ { "name": "m", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1/sum(tokens, dp, micro_batch)", }, ], },
        { "name": "sum", "op": "all_reduce", "over": "dp", }, ], },
      "expect": { "verdict": "match", },
    }"""
    assert check(text)["verdict"] == "match"
    assert check(text)["expected"] is True
    for key in ("model", "schedule"):
        without = json.loads(json.dumps(RIGHT))
        del without[key]
        assert f'"{key}"' in message(without)
    for key in ("layout", "batch"):
        without = json.loads(json.dumps(RIGHT))
        del without[key]
        assert check(without)["verdict"] != "error"


def test_a_scenario_file_stands_alone():
    folder = FOLDER / "elsewhere"
    folder.mkdir(exist_ok=True)
    shutil.copy(write(RIGHT), folder / "mailed.json")
    assert run("check", "mailed.json", folder=folder).returncode == 0
    wrong = scenario([backward()], layout={"dp": 2})
    write(wrong, "wrong.json", folder)
    assert run("check", "wrong.json", folder=folder).returncode == 1


def test_an_unknown_key_is_an_error_that_names_the_nearest_known_key():
    assert '"layout"' in message({**RIGHT, "layuot": {}})
    assert '"reduce"' in message(scenario([backward(), step("mean", "all_reduce", over="dp", redcue="avg")]))
    assert '"micro_batches"' in message(scenario([backward()], batch={"micro_batch": 1}))


def test_a_value_out_of_range_is_an_error():
    assert "0" in message(scenario([backward()], layout={"dp": 0}))
    assert "-1" in message(scenario([backward()], batch={"micro_batches": -1}))
    assert messages(scenario([backward()], [{"name": "w", "shape": [-4]}]))
    assert messages(scenario([backward()], [{"name": "w", "shape": [4], "stage": 1}]))
    assert messages(scenario([backward()], [{"name": "w", "shape": [4], "dtype": "float8"}]))


def test_a_selector_that_matches_nothing_on_any_rank_is_an_error():
    assert '"v"' in message(scenario([backward(), step("clear", "zero", params=["v"])]))
    assert "v*" in message(scenario([backward(), step("clear", "zero", params=["w", "v*"])]))
    # On one rank is enough.
    staged = [W, {"name": "v", "shape": [4], "stage": 1}]
    assert (
        check(scenario([backward(), step("once", "scale", params=["v"], by="1")], staged, {"pp": 2}))["verdict"]
        == "match"
    )


def test_an_edit_whose_step_does_not_exist_is_an_error():
    for edit in (
        {"drop": "maen"},
        {"duplicate": "maen"},
        {"move": "maen", "before": "backward"},
        {"set": "maen", "by": "1"},
        {"move": "mean", "before": "bakward"},
        {"insert": step("s", "zero"), "after": "maen"},
    ):
        text = message(scenario([backward(), MEAN], layout={"dp": 2}, edits=[edit]))
        assert ("mean" if "maen" in text else "backward") in text


def test_a_key_given_twice_is_an_error():
    assert '"layout"' in message(
        '{ "lockstep": 1, "layout": {}, "layout": {}, '
        + json.dumps(RIGHT)[1:].replace('"lockstep": 1, "layout": {"dp": 2}, ', "")
    )


def test_every_error_gives_file_line_column_and_pointer_and_all_come_at_once():
    text = """{
  "lockstep": 1,
  "layout": { "dq": 2 },
  "model": { "parameters": [ { "name": "w", "shape": [4] } ] },
  "batch": { "micro_batches": 0 },
  "schedule": { "steps": [ { "name": "clear", "op": "zreo" } ] }
}"""
    report = check(text)
    places = [(error["line"], error["column"], error["pointer"]) for error in report["errors"]]
    assert places == [(3, 15, "/layout/dq"), (5, 31, "/batch/micro_batches"), (6, 53, "/schedule/steps/0/op")]
    process = run("check", write(text, "three.json"))
    assert process.returncode == 2
    for line, column, pointer in places:
        assert f"three.json:{line}:{column}" in process.stdout
        assert pointer in process.stdout


def test_columns_count_characters_and_an_edit_has_the_place_of_what_it_makes_of_a_step():
    text = """{
  "lockstep": 1, "layout": { "dp": 2 },
  "model": { "parameters": [ { "name": "größe", "shape": [4] }, { "nmae": "v", "shape": [4] } ] },
  "schedule": { "steps": [ { "name": "mean", "op": "all_reduce", "over": "dp" } ] }
}"""
    (error,) = [each for each in check(text)["errors"] if "nmae" in each["message"]]
    line = text.splitlines()[2]
    assert (error["line"], error["column"]) == (3, line.index('"nmae"') + 1)
    whole = text.replace("nmae", "name").replace("} ] }\n}", '} ],\n  "edits": [ { "set": "mean", "over": null } ] }\n}')
    (error,) = check(whole)["errors"]
    assert (error["line"], error["pointer"]) == (5, "/schedule/edits/0/over")
    assert '"mean"' in error["message"]


def test_the_schema_in_the_repository_is_what_the_program_prints():
    process = run("schema")
    assert process.returncode == 0
    assert process.stdout == (ROOT / "schema" / "scenario.schema.json").read_text(encoding="utf-8")
    # It comes from the parser's table: what the parser refuses as unknown is no property of the schema, and the reverse.
    schema = json.loads(process.stdout)
    names = set(schema["properties"])
    assert {"lockstep", "name", "title", "source", "layout", "model", "batch", "schedule", "expect", "$schema"} == names


def test_the_example_of_the_format_comes_out_as_it_says():
    report = check(EXAMPLE)
    assert report["expected"] is True
    assert (report["verdict"], report["scenario"], report["source"]) == (
        "mismatch",
        "megatron-844",
        "NVIDIA/Megatron-LM#844",
    )
    # As the first stage lays the embedding out it lies in the slice of dp rank 1, as the last stage does, in that of 0.
    assert [
        entry["rank"] for entry in named(report, "embedding.word_embeddings.weight")["ranks"] if entry["owned"]
    ] == [1]
    assert [entry["rank"] for entry in named(report, "output_layer.weight")["ranks"] if entry["owned"]] == [2]
    without_edit = json.loads(EXAMPLE)
    del without_edit["schedule"]["edits"], without_edit["expect"]
    assert verdicts(without_edit) == ["match"]
    assert not expectation_holds(without_edit, verdict="mismatch")
