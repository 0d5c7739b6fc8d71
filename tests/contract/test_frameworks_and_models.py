# SPDX-License-Identifier: Apache-2.0
"""The section "Frameworks and models are files in the same language" of the scenario format."""

import json

from contract_program import (
    FOLDER,
    ROOT,
    W,
    assert_held,
    backward,
    check,
    message,
    messages,
    named,
    parameter,
    rank_entries,
    run,
    scenario,
    show,
    step,
    verdicts,
    write,
)

FRAMEWORK = """{ // a comment
  "lockstep_framework": 1,
  "name": "ours",
  "help": "A schedule of our own.",
  "options": {
    "shard_grads": { "type": "boolean", "default": false, "help": "scatter instead of reduce" },
    "divide": { "type": "string", "default": "after", "allowed": ["before", "after", "never"], "help": "where to divide" },
    "bucket": { "type": "integer", "default": 0, "help": "elements" },
    "factor": { "type": "number", "default": 1, "help": "on top" },
  },
  "layout": { "dp": 2 },
  "batch": { "loss": "local_mean" },
  "let": { "pieces": "dp * micro_batches" },
  "rules": [ { "refuse": "divide == 'never' and shard_grads", "because": "ours cannot leave {dp} shards undivided." } ],
  "steps": [
    { "name": "zero", "op": "zero" },
    { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward", "by": "1/tokens" } ] },
    { "name": "before", "op": "scale", "when": "divide == 'before'", "by": "factor / pieces" },
    { "name": "sum", "op": "all_reduce", "when": "not shard_grads", "over": { "if": "dp_replicate > 1", "then": ["dp_shard", "dp_replicate"], "else": "dp" } },
    { "name": "scatter", "op": "reduce_scatter", "when": "shard_grads", "over": "dp",
      "geometry": { "kind": "flat", "align": { "if": "bucket > 0", "then": "bucket", "else": "n" } } },
    { "name": "after", "op": "scale", "when": "divide == 'after'", "by": "factor / pieces" }
  ]
}
"""

MODEL = """{
  "lockstep_model": 1,
  "name": "our-model",
  "sizes": { "layers": { "default": 2, "help": "layers" }, "width": { "default": 4, "help": "" }, "experts": { "default": 2, "help": "" },
             "tie": { "default": true, "help": "" } },
  "rules": [ { "refuse": "width % 2 == 1", "because": "odd" } ],
  "parameters": [
    { "name": "word", "shape": ["10 * width"], "tied": { "if": "tie", "then": "t" } },
    { "for": { "layer": "layers" }, "parameters": [
      { "name": "layers.{layer}.weight", "shape": ["width", "2 * width"], "stage": "min(layer, pp - 1)", "shard": { "tp": 1 } },
      { "name": "layers.{layer}.norm", "shape": ["width"], "stage": "min(layer, pp - 1)", "partial": { "if": "sequence_parallel", "then": ["tp"] }, "tags": ["norm"] },
      { "for": { "expert": "experts" }, "parameters": [ { "name": "layers.{layer}.experts.{expert}", "shape": ["width"] } ] }
    ] }
  ]
}
""".replace(
    '  "rules": [ { "refuse": "width % 2 == 1", "because": "odd" } ],\n',
    '  "rules": [ { "refuse": "width > 100", "because": "A width of {width} is too much." } ],\n',
)


def with_framework(
    options=None, parameters=(W,), layout=None, batch=None, name="./our-framework.jsonc", text=FRAMEWORK
):
    write(text, "our-framework.jsonc", FOLDER)
    content = scenario([], parameters, layout, batch)
    content["schedule"] = {"framework": name, "options": options or {}}
    return content


def with_model(layout=None, steps=(backward(),), **sizes):
    write(MODEL, "our-model.jsonc", FOLDER)
    content = scenario(steps, layout=layout)
    content["model"] = {"preset": "./our-model.jsonc", **sizes}
    return content


def test_a_framework_file_has_options_with_defaults_types_and_allowed_values():
    assert verdicts(with_framework()) == ["match"]
    assert_held(check(with_framework()), "w", {0: "1/2: g0 g1", 1: "1/2: g0 g1"})
    assert verdicts(*[with_framework({"divide": where}) for where in ("before", "after", "never")]) == [
        "match",
        "match",
        "mismatch",
    ]
    assert '"divide"' in message(with_framework({"divid": "before"}))
    assert '"before"' in message(with_framework({"divide": "befor"}))
    for wrong in ({"divide": True}, {"shard_grads": 1}, {"bucket": 1.5}, {"factor": "x"}):
        assert messages(with_framework(wrong))


def test_a_framework_file_sets_the_default_loss_and_layout():
    assert check(with_framework())["layout"]["dp"] == 2
    assert check(with_framework(layout={"dp": 3}))["layout"]["dp"] == 3
    uneven = {"micro_batches": 2, "tokens": "uneven"}
    assert verdicts(with_framework(batch=uneven), with_framework(batch={**uneven, "loss": "token_mean"})) == [
        "match",
        "mismatch",
    ]


def test_rules_refuse_combinations_with_a_sentence():
    text = message(with_framework({"divide": "never", "shard_grads": True}))
    assert "ours cannot leave 2 shards undivided." in text


def test_steps_of_a_framework_may_use_options_in_when_by_over_and_geometry():
    report = check(with_framework({"factor": 3}))
    assert_held(report, "w", {0: "3/2: g0 g1", 1: "3/2: g0 g1"})
    shown = show(with_framework({"shard_grads": True}))
    assert [entry["name"] for entry in shown["steps"]] == ["zero", "micro_batches", "scatter", "after"]
    assert shown["geometry"][0]["buckets"][0]["end"] == 4
    assert show(with_framework({"shard_grads": True, "bucket": 10}))["geometry"][0]["buckets"][0]["end"] == 10
    assert show(with_framework(layout={"dp_shard": 2, "dp_replicate": 2}))["groups"]["steps"]["sum"] == [[0, 1, 2, 3]]


def test_a_model_file_has_sizes_and_expressions_over_sizes_axes_and_options_with_loops():
    names = [entry["name"] for entry in show(with_model())["parameters"]]
    assert names == [
        "word",
        *[f"layers.{layer}.{rest}" for layer in range(2) for rest in ("weight", "norm", "experts.0", "experts.1")],
    ]
    shown = {
        entry["name"]: entry
        for entry in show(with_model({"tp": 2, "pp": 2, "sequence_parallel": True}, width=6, layers=3, experts=0))[
            "parameters"
        ]
    }
    assert len(shown) == 1 + 3 * 2
    assert shown["word"]["shape"] == [60] and shown["layers.2.weight"]["shape"] == [6, 12]
    assert [shown[f"layers.{layer}.norm"]["stage"] for layer in range(3)] == [0, 1, 1]
    assert shown["layers.0.norm"]["tags"] == ["norm"]
    # Placements, as they act: a piece of the weight, a share of the norm.
    report = check(with_model({"tp": 2, "sequence_parallel": True}))
    assert_held(report, "layers.0.weight", {0: "g0", 1: "g1"})
    assert named(report, "layers.0.weight")["verdict"] == "match"
    assert_held(report, "layers.0.norm", {0: "g0", 1: "g1"})
    assert named(report, "layers.0.norm")["verdict"] == "mismatch"
    assert named(report, "word")["tied"] == "t" and named(check(with_model(tie=False)), "word")["tied"] is None
    assert '"layers"' in message(with_model(layer=3))
    assert "A width of 200 is too much." in message(with_model(width=200))


LOOPS = """{
  "lockstep_model": 1,
  "name": "loops",
  "sizes": { "layers": { "default": 3, "help": "" } },
  "parameters": [
    { "for": { "part": "2", "i": { "if": "part == 0", "then": "layers", "else": 1 } },
      "let": { "block": { "if": "part == 0", "then": "'body'", "else": "'tail'" }, "width": "2 + i", "wide": "2 * width" },
      "common": { "stage": { "if": "part == 0", "then": 0, "else": -1 }, "tags": ["outer"], "shape": ["wide"] },
      "parameters": [
        { "name": "{block}.{i}.a" },
        { "name": "{block}.{i}.b", "shape": ["width"], "stage": 0 },
        { "for": { "once": "1" }, "common": { "tags": ["inner"] }, "parameters": [ { "name": "{block}.{i}.c" } ] }
      ] },
    { "name": "last", "shape": [1] }
  ]
}
"""


def test_a_loop_has_names_of_its_own_and_keys_for_all_inside():
    write(LOOPS, "loops.jsonc", FOLDER)
    content = scenario([backward()], layout={"pp": 2})
    content["model"] = {"preset": "./loops.jsonc", "layers": 2}
    shown = {entry["name"]: entry for entry in show(content)["parameters"]}
    assert list(shown) == [*[f"{part}.{name}" for part in ("body.0", "body.1", "tail.0") for name in "abc"], "last"]
    assert [shown[name]["shape"] for name in ("body.0.a", "body.1.a", "body.1.b", "tail.0.c")] == [[4], [6], [3], [4]]
    assert [shown[name]["stage"] for name in ("body.1.a", "tail.0.a", "tail.0.b", "last")] == [0, 1, 0, 0]
    # A parameter's own keys come first, then those of the innermost loop.
    assert [shown[name]["tags"] for name in ("body.0.a", "tail.0.c", "last")] == [["outer"], ["inner"], []]
    for name in ("layers", "i", "part"):
        write(LOOPS.replace('"width": "2 + i", "wide"', f'"{name}": "2", "width": "2 + i", "wide"'), "loops.jsonc", FOLDER)
        assert all(f'"{name}" has a value already' in text for text in messages(content))


def test_framework_and_model_files_are_compiled_into_the_program_and_printed_by_it():
    for folder, kind in (("frameworks", "framework"), ("models", "model")):
        paths = sorted((ROOT / folder).glob("*.jsonc"))
        assert paths
        for path in paths:
            process = run("show", f"{kind}:{path.stem}")
            assert process.returncode == 0
            assert process.stdout == path.read_text(encoding="utf-8")
    process = run("show", "framework:megatorn")
    assert process.returncode == 2 and "megatron" in process.stderr
    assert {path.stem for path in (ROOT / "frameworks").glob("*.jsonc")} >= {"megatron"}
    assert {path.stem for path in (ROOT / "models").glob("*.jsonc")} >= {"gpt2"}


def test_a_scenario_may_name_a_file_of_its_own():
    # Relative to the scenario, not to where the program runs.
    folder = FOLDER / "beside"
    folder.mkdir(exist_ok=True)
    write(
        FRAMEWORK.replace('"default": 1, "help": "on top"', '"default": 7, "help": "on top"'),
        "our-framework.jsonc",
        folder,
    )
    content = with_framework()
    path = write(content, "here.json", folder)
    process = run("check", "--all", "--format", "json", path, folder=ROOT)
    assert_held(json.loads(process.stdout), "w", {0: "7/2: g0 g1", 1: "7/2: g0 g1"})
    assert messages(with_framework(name="./their-framework.jsonc"))


def test_mistakes_in_a_framework_file_are_the_users():
    broken = FRAMEWORK.replace('"op": "all_reduce"', '"op": "allreduce"')
    report = check(with_framework(text=broken))
    assert report["verdict"] == "error"
    assert '"all_reduce"' in json.dumps(report["errors"]) or "all_reduce" in report["errors"][0]["message"]


def test_resolved_prints_plain_parameters_and_steps_that_are_a_scenario_with_the_same_verdict():
    contents = [
        with_framework({"shard_grads": True}),
        with_framework({"divide": "never"}),
        with_model({"tp": 2}),
        with_model(steps=[backward(), step("x", "scale", by="1/2")]),
    ]
    contents[0]["schedule"]["edits"] = [{"duplicate": "after"}]
    for content in contents:
        process = run("show", "--resolved", write(content))
        assert process.returncode == 0, process.stderr
        plain = json.loads(process.stdout)
        assert set(plain["schedule"]) <= {"steps", "result"} and "preset" not in plain["model"]
        before, after = check(content), check(process.stdout)
        assert after["verdict"] == before["verdict"] != "error"
        assert [
            {key: entry[key] for key in ("name", "verdict", "reference", "ranks")} for entry in after["parameters"]
        ] == [{key: entry[key] for key in ("name", "verdict", "reference", "ranks")} for entry in before["parameters"]]
    assert rank_entries(check(contents[0]), "w")[0]["pieces"][0]["ratio"] == "1/2"
    assert parameter("w", [4]) == W
