# SPDX-License-Identifier: Apache-2.0
"""What ranks meet because of an edit is reported at the edit."""

import json

FILE = """{ "lockstep": 1, "layout": { "dp": 2, "tp": 2 },
  "model": { "parameters": [ { "name": "w", "shape": [8] } ] }, "batch": { "micro_batches": 1 },
  "schedule": { "steps": [
    { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
    { "name": "scatter", "op": "reduce_scatter", "over": "dp", "geometry": { "kind": "flat" } },
    { "name": "gather", "op": "all_gather", "over": "dp" } ],
    "edits": [
      { "set": "scatter", "over": "tp" }
    ] } }
"""


def test_a_mistake_that_ranks_meet_is_at_the_edit_that_causes_it(run, tmp_path):
    (tmp_path / "x.json").write_text(FILE)
    result = run("check", "-f", "json", "x.json")
    assert result.returncode == 2
    (error,) = json.loads(result.stdout)["errors"]
    assert (error["line"], error["column"], error["pointer"]) == (8, 27, "/schedule/edits/0/over")
    assert error["message"].startswith('with this edit of step "scatter": all_gather "gather" runs over ranks 0, 2')


def steps_and_edits(steps, edits):
    lines = ",\n".join(json.dumps(step) for step in steps)
    return f"""{{ "lockstep": 1, "layout": {{ "dp": 2 }},
"model": {{ "parameters": [ {{ "name": "w", "shape": [4] }} ] }},
"schedule": {{ "steps": [ {{ "name": "mb", "op": "each", "steps": [ {{ "name": "bw", "op": "backward" }} ] }},
{lines} ],
"edits": {json.dumps(edits)} }} }}
"""


def test_an_edit_that_mends_one_mistake_is_not_blamed_for_another(run, tmp_path):
    zero = {"name": "s4", "op": "scale", "by": "1 / (dp - 2)"}
    mend, drop, harmless = {"set": "s3", "by": 1}, {"drop": "s3"}, {"set": "bw", "by": 2}
    for broken in ["1+zz", "1 / (dp - 2)"]:
        for edits in [[mend], [drop], [harmless, mend], [mend, harmless], [harmless, drop, harmless]]:
            (tmp_path / "x.json").write_text(steps_and_edits([{"name": "s3", "op": "scale", "by": broken}, zero], edits))
            (error,) = json.loads(run("check", "-f", "json", "x.json").stdout)["errors"]
            assert error["pointer"] == "/schedule/steps/2/by", edits
            assert error["message"].startswith("division by zero")


def test_the_edit_at_fault_is_found_beside_one_that_mends(run, tmp_path):
    steps = [{"name": "s3", "op": "scale", "by": "1+zz"},
             {"name": "scatter", "op": "reduce_scatter", "over": "dp", "geometry": {"kind": "flat"}},
             {"name": "gather", "op": "all_gather", "over": "dp"}]
    mend, break_it = {"set": "s3", "by": 1}, {"set": "scatter", "op": "all_reduce"}
    for edits in [[mend, break_it], [break_it, mend]]:
        (tmp_path / "x.json").write_text(steps_and_edits(steps, edits))
        (error,) = json.loads(run("check", "-f", "json", "x.json").stdout)["errors"]
        assert error["pointer"].startswith(f"/schedule/edits/{edits.index(break_it)}"), error


def test_every_format_has_the_same_column_behind_characters_of_four_bytes(run, tmp_path):
    (tmp_path / "x.json").write_text(FILE.replace('"micro_batches": 1', '"micro_batches": /* \U0001f600\U0001f600 */ 0'))
    (error,) = json.loads(run("check", "-f", "json", "x.json").stdout)["errors"]
    assert (error["line"], error["column"]) == (2, 102)
    assert run("check", "-f", "concise", "x.json").stdout.startswith("x.json:2:102: ")
    sarif = json.loads(run("check", "-f", "sarif", "x.json").stdout)["runs"][0]
    place = sarif["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert (sarif["columnKind"], place["startColumn"]) == ("unicodeCodePoints", 102)
