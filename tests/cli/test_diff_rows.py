# SPDX-License-Identifier: Apache-2.0
"""What a row of `lockstep diff` says of ranks and elements is what `lockstep check` says of each schedule, and no
rank and element with another value is left out."""

import json
import random
from pathlib import Path

BACKWARD = {"name": "mb", "op": "each", "steps": [{"name": "backward", "op": "backward"}]}
OWNERS = [[], [{"name": "own", "op": "own", "over": "dp"}], [{"name": "root", "op": "reduce", "over": "dp", "root": 1}],
          [{"name": "scatter", "op": "reduce_scatter", "over": "dp"}],
          [{"name": "gather", "op": "all_gather", "over": "dp"}]]
SUMS = [[], [{"name": "sum", "op": "all_reduce", "over": "dp"}],
        [{"name": "half", "op": "scale", "by": "1/2", "only": {"dp": [0]}}],
        [{"name": "tp_sum", "op": "all_reduce", "over": "tp"}]]


def values(run, path):
    """The formula of each rank's element, local, that its optimizer gets."""
    found = {}
    for parameter in json.loads(run("check", "--all", "-f", "json", path).stdout)["parameters"]:
        for rank in parameter["ranks"]:
            for piece in rank["pieces"]:
                for element in range(*piece["elements"]):
                    if any(begin <= element < end for begin, end in rank["owned"]):
                        for each in rank.get("ranks", [rank.get("rank")]):
                            found[parameter["name"], element, each] = piece["formula"]
    return found


def check_rows(run, old, new):
    before, after = values(run, old), values(run, new)
    named = set()
    rows = json.loads(run("diff", "--this-layout", "-f", "json", old, new).stdout)["gradients"]
    for row in rows:
        assert "more" not in row
        for here in [row, *row.get("also", [])]:
            for element in range(*here["elements"]):
                for rank in here["ranks"]:
                    assert before[row["parameter"], element, rank] == row["old"], (here, row)
                    named.add(("old", row["parameter"], element, rank))
                for rank in here.get("new_ranks", here["ranks"]):
                    assert after[row["parameter"], element, rank] == row["new"], (here, row)
                    named.add(("new", row["parameter"], element, rank))
    for side, mine, others in [("old", before, after), ("new", after, before)]:
        for (parameter, element, rank), value in mine.items():
            if (parameter, element, rank) in others:
                differs = value != others[parameter, element, rank]
            else:
                owners = {each for (name, at, _), each in others.items() if (name, at) == (parameter, element)}
                differs = bool(owners) and value not in owners
            assert not differs or (side, parameter, element, rank) in named, (side, parameter, element, rank, rows)
    return rows


def write(path, steps, layout):
    path.write_text(json.dumps({"lockstep": 1, "layout": layout, "batch": {"micro_batches": 1, "loss": "sum"}, "model": {
        "parameters": [{"name": "w", "shape": [12]}, {"name": "v", "shape": [7]}]}, "schedule": {"steps": [BACKWARD, *steps]}}))
    return str(path)


def test_rows_are_true_of_each_rank_and_element_that_they_name(run, tmp_path):
    differing = 0
    for seed in range(25):
        draw = random.Random(seed)
        layout = {"dp": draw.choice([2, 3, 4]), "tp": draw.choice([1, 1, 2])}
        old, new = [write(tmp_path / f"{name}.json", draw.choice(SUMS) + draw.choice(OWNERS), layout) for name in ["old", "new"]]
        differing += bool(check_rows(run, old, new))
    assert differing > 10


def test_owners_that_changed_have_rows_of_their_own(run, tmp_path):
    old = write(tmp_path / "old.json", SUMS[1] + OWNERS[1], {"dp": 3})
    new = write(tmp_path / "new.json", [], {"dp": 3})
    check_rows(run, old, new)
    text = run("diff", "--this-layout", old, new).stdout
    assert ("  w [0, 4)  rank 0; [4, 8)  rank 1, in the new one rank 0; [8, 12)  rank 2, in the new one rank 0\n"
            "    old  g0 + g1 + g2\n    new  g0\n") in text


def test_more_elements_are_counted(run, tmp_path):
    layout, shape = {"dp": 70}, {"name": "w", "shape": [140]}
    for name, steps in [("old", SUMS[1] + OWNERS[1]), ("new", [{**SUMS[1][0], "reduce": "avg"}, *OWNERS[1]])]:
        path = Path(write(tmp_path / f"{name}.json", steps, layout))
        path.write_text(json.dumps({**json.loads(path.read_text()), "model": {"parameters": [shape]}}))
    (row,) = json.loads(run("diff", "--this-layout", "-f", "json", str(tmp_path / "old.json"), str(tmp_path / "new.json")).stdout)["gradients"]
    assert (row["ranks"], row["elements"], len(row["also"]), row["more"]) == ([0], [0, 2], 63, 12)
    assert row["also"][-1] == {"ranks": [63], "elements": [126, 128]}
    text = run("diff", "--this-layout", str(tmp_path / "old.json"), str(tmp_path / "new.json")).stdout
    assert "  w [0, 2)  rank 0; [2, 4)  rank 1; [4, 6)  rank 2; [6, 8)  rank 3; and 132 more elements\n" in text
