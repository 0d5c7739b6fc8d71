# SPDX-License-Identifier: Apache-2.0
"""The likeliest mistakes of someone's first scenarios, and to the character what is said about each: what to do next."""

from pathlib import Path

import pytest

# "a", "b" or "c", as messages list words.
NAMES = sorted(f'"{file.stem}"' for file in (Path(__file__).resolve().parents[2] / "frameworks").glob("*.jsonc"))
FRAMEWORKS = f"{', '.join(NAMES[:-1])} or {NAMES[-1]}"

OWN = """{
  "lockstep": 1,
  "layout": { "tp": 2, "dp": 2 },
  "model": { "parameters": [
    { "name": "mlp.weight", "shape": [8, 4], "shard": { "tp": 0 } },
    { "name": "norm.weight", "shape": [8], "partial": ["tp"], "tags": ["norm"] }
  ] },
  "batch": { "micro_batches": 2 },
  "schedule": { "steps": [
    { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
    { "name": "norm_all_reduce", "op": "all_reduce", "over": "tp", "params": ["tag:norm"] },
    { "name": "dp_all_reduce", "op": "all_reduce", "over": "dp" },
    { "name": "mean", "op": "scale", "by": "1 / sum(tokens, dp, micro_batch)" }
  ] }
}
"""

FRAMEWORK = """{
  "lockstep": 1,
  "layout": { "pp": 2, "dp": 2 },
  "model": { "preset": "gpt2", "layers": 2, "hidden": 8, "heads": 2, "vocab": 100 },
  "schedule": { "framework": "megatron", "options": { "use_distributed_optimizer": false }, "edits": [] }
}
"""

# What is written, what is written in its place, and what is said.
IN_OWN = {
    "axis misspelt": ('"dp": 2', '"ddp": 2', 'unknown key "ddp" in "layout"; did you mean "dp"? [/layout/ddp]'),
    "axis as another program calls it": (
        '"dp": 2',
        '"data_parallel_size": 2',
        'unknown key "data_parallel_size" in "layout"; did you mean "dp"? [/layout/data_parallel_size]',
    ),
    "world size given": (
        '"tp": 2, "dp": 2',
        '"world_size": 4',
        'unknown key "world_size" in "layout"; the world size is the product of tp, cp, sp, dp and pp, and is not given [/layout/world_size]',
    ),
    "axis misspelt in a step": (
        '"over": "dp"',
        '"over": "data"',
        'expected an axis, found the string "data"; did you mean "dp"? [/schedule/steps/2/over]',
    ),
    "comma forgotten": (
        '"lockstep": 1,',
        '"lockstep": 1',
        'expected "," or "}" after the value of "lockstep", found the string "layout"; a comma is missing',
    ),
    "single quotes": (
        '"over": "dp"',
        "'over': 'dp'",
        "expected a key in double quotes, found a single quote; JSON has double quotes only [/schedule/steps/2]",
    ),
    "as Python writes it": (
        '"over": "dp"',
        '"over": "dp", "async": True',
        'expected a value for the key "async", found the word True; write true [/schedule/steps/2/async]',
    ),
    "no version": (
        '"lockstep": 1,',
        "",
        'missing key "lockstep" at the top level of the scenario: Version of the format: 1.',
    ),
    "selector that matches nothing": (
        '"tag:norm"',
        '"norm.wieght"',
        'selector "norm.wieght" matches no parameter on any rank; did you mean "norm.weight"? [/schedule/steps/1/params/0]',
    ),
    "size that does not divide": (
        "[8, 4]",
        "[9, 4]",
        'the parameter "mlp.weight" has 9 elements to cut in dimension 0, which tp = 2 does not divide; pad the dimension, '
        'or write "uneven": true to cut it as torch.chunk does [/model/parameters/0]',
    ),
    "tokens of the wrong shape": (
        '"micro_batches": 2',
        '"micro_batches": 2, "tokens": [[1, 2], [[[3]], [[4]]]]',
        "tokens[0][0]: expected a list with an entry for each cp rank, found the number 1; "
        "the counts stand as [micro-batch][dp][cp][sp] [/batch/tokens/0/0]",
    ),
    "collective misspelt": (
        '"op": "all_reduce", "over": "dp"',
        '"op": "allreduce", "over": "dp"',
        'expected the name of an op, found the string "allreduce"; did you mean "all_reduce"? [/schedule/steps/2/op]',
    ),
    "collective without axes": (
        ', "over": "dp"',
        "",
        'missing key "over" in step "dp_all_reduce": Axes of one mesh, or coordinates on axes; `[]` is each rank alone. [/schedule/steps/2]',
    ),
    "mean instead of avg": (
        '"over": "dp"',
        '"over": "dp", "reduce": "mean"',
        'expected "sum" or "avg", found the string "mean"; did you mean "avg"? [/schedule/steps/2/reduce]',
    ),
    "unknown name in an expression": (
        "1 / sum(tokens, dp, micro_batch)",
        "1 / world_size",
        'unknown name "world_size" in an expression; did you mean "world"? [/schedule/steps/3/by]',
    ),
    "tokens outside of each": (
        "1 / sum(tokens, dp, micro_batch)",
        "1 / tokens",
        '"tokens" has a meaning only inside an "each"; outside it, write sum(tokens, dp, cp, sp, micro_batch) [/schedule/steps/3/by]',
    ),
    "sum over micro_batches": (
        "sum(tokens, dp, micro_batch)",
        "sum(tokens, dp, micro_batches)",
        'to sum over the micro-batches, write "micro_batch" [/schedule/steps/3/by]',
    ),
    "backward outside of each": (
        '{ "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }',
        '{ "name": "backward", "op": "backward" }',
        '"backward" must stand inside an "each", which runs it once for each micro-batch [/schedule/steps/0/op]',
    ),
    "two steps of one name": (
        '"dp_all_reduce"',
        '"norm_all_reduce"',
        'two steps are named "norm_all_reduce"; give one of them another name [/schedule/steps/2/name]',
    ),
    "shape without brackets": (
        '"shape": [8]',
        '"shape": 8',
        "expected a list of sizes such as [1024, 768], found the number 8 [/model/parameters/1/shape]",
    ),
    "stage counted from 1": (
        '"shape": [8]',
        '"shape": [8], "stage": 1',
        'stage 1 does not exist: "pp" is 1, and stages count from 0 [/model/parameters/1/stage]',
    ),
    "dtype as torch shortens it": (
        '"shape": [8]',
        '"shape": [8], "dtype": "bf16"',
        'expected "float32", "float64", "bfloat16" or "float16", found the string "bf16"; did you mean "bfloat16"? [/model/parameters/1/dtype]',
    ),
}

IN_FRAMEWORK = {
    "framework misspelt": ("megatron", "megatron-lm", 'unknown framework "megatron-lm"; did you mean "megatron"? [/schedule/framework]'),
    "neither framework nor steps": (
        '"framework": "megatron", "options": { "use_distributed_optimizer": false }, ',
        "",
        f'missing key "framework" or "steps" in "schedule": name one of {FRAMEWORKS}, or list the steps [/schedule]',
    ),
    "option misspelt": (
        "use_distributed_optimizer",
        "use_distributed_optimiser",
        '"use_distributed_optimiser" is no option of framework "megatron"; did you mean "use_distributed_optimizer"? '
        "[/schedule/options/use_distributed_optimiser]",
    ),
    "option in quotes": (
        "false",
        '"false"',
        '"use_distributed_optimizer": expected true or false, found the string "false" [/schedule/options/use_distributed_optimizer]',
    ),
    "size as another program calls it": (
        '"hidden"',
        '"hidden_size"',
        '"hidden_size" is no size of model "gpt2"; did you mean "hidden"? [/model/hidden_size]',
    ),
    "edit of a step that the options switched off": (
        '"edits": []',
        '"edits": [ { "drop": "dp_reduce_scatter" } ]',
        'step "dp_reduce_scatter" is not in the schedule: the options switched it off; '
        "it is there where use_distributed_optimizer [/schedule/edits/0/drop]",
    ),
    "edit of a step misspelt": (
        '"edits": []',
        '"edits": [ { "drop": "dp_allreduce" } ]',
        'no step is named "dp_allreduce"; did you mean "dp_all_reduce"? [/schedule/edits/0/drop]',
    ),
    "edit in one's own words": (
        '"edits": []',
        '"edits": [ { "remove": "dp_all_reduce" } ]',
        'expected an edit with one of "drop", "duplicate", "move", "set", "insert" or "parameter"; did you mean "drop"? [/schedule/edits/0]',
    ),
    "key that the step's op does not have": (
        '"edits": []',
        '"edits": [ { "set": "dp_all_reduce", "geometry": { "kind": "flat" } } ]',
        'key "geometry" does not belong to "all_reduce" in step "dp_all_reduce"; reduce_scatter, reduce_scatter_v, all_gather, own have it '
        "[/schedule/edits/0/geometry]",
    ),
    "more experts than ranks": (
        '"pp": 2',
        '"ep": 4',
        "the expert mesh needs etp * ep * pp = 1 * 4 * 1 = 4 to divide the world size 2, which is tp * cp * sp * dp * pp [/layout]",
    ),
}

CASES = [
    pytest.param(text, *change, id=name) for text, changes in [(OWN, IN_OWN), (FRAMEWORK, IN_FRAMEWORK)] for name, change in changes.items()
]


def test_without_a_mistake_nothing_is_said(run, tmp_path):
    for text in [OWN, FRAMEWORK]:
        (tmp_path / "first.json").write_text(text)
        assert run("check", "first.json").returncode == 0


@pytest.mark.parametrize("text, written, instead, sentence", CASES)
def test_each_mistake_says_what_to_do(run, tmp_path, text, written, instead, sentence):
    assert written in text
    (tmp_path / "first.json").write_text(text.replace(written, instead, 1))
    done = run("check", "first.json")
    assert done.returncode == 2
    said = [line.split(": error: ", 1)[1] for line in done.stdout.splitlines() if ": error: " in line]
    assert sentence in said


def test_a_removed_key_need_not_belong_to_the_op(run, tmp_path):
    """An edit may give a step another op, and take away what only the old one had."""
    edit = '"edits": [ { "set": "dp_all_reduce", "geometry": null } ]'
    (tmp_path / "first.json").write_text(FRAMEWORK.replace('"edits": []', edit))
    assert run("check", "first.json").returncode == 0


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["chek", "first.json"], 'lockstep: there is no command "chek"; did you mean "check"?'),
        (["first.json"], 'lockstep: there is no command "first.json"; did you mean `lockstep check first.json`?'),
        (["check", "frist.json"], 'there is no file or folder frist.json; did you mean "first.json"?'),
        (["check", "--formatt", "json", "first.json"], 'lockstep check: there is no option --formatt; did you mean "--format"?'),
        (["check", "-f", "yaml", "first.json"], 'lockstep check: --format takes one of text, json, concise, junit, sarif, github, gitlab, markdown, html; found "yaml"'),
        (["check"], "lockstep check: FILES is required"),
        (["completion"], "lockstep completion: SHELL is required: one of bash, zsh, fish"),
        (["help", "chek"], 'lockstep: there is no command "chek"; did you mean "check"?'),
        (["man", "chek"], 'there is no command "chek"; did you mean "check"?'),
        (["schema", "first.json"], 'lockstep schema: unexpected argument "first.json"'),
        (["repair", "first.json", "--take", "2"], "--take says which repair --write or --to writes; give one of these too"),
        (["show", "gpt2"], 'there is no file gpt2; did you mean "model:gpt2"?'),
        (["show", "framework:megatrom"], 'there is no framework "megatrom"; did you mean "megatron"?'),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_on_the_command_line(run, tmp_path, arguments, sentence):
    (tmp_path / "first.json").write_text(OWN)
    done = run(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr
