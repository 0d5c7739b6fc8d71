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
