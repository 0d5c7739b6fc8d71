# SPDX-License-Identifier: Apache-2.0
"""No line with a formula is wider than a page unless -v is given, also on a pipe (docs/formulas.md)."""

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2])
WIDEST = 120
# Of the corpus each sixth file is explained and compared, and of 16 and 64 ranks one edit of five is tried: all of it in tools/nightly.
ONE_IN = 1 if os.environ.get("LOCKSTEP_NIGHTLY") else 6
FORMULA = re.compile(r"\bg\d+\b|\bsum\(g")


def is_about_a_formula(line):
    """Not the head, which has the file's name and title, nor an edit, which is there to be copied."""
    head = re.match(r"(match|mismatch|deadlock|invalid collective|race)  ", line)
    return FORMULA.search(line) and not head and not re.match(r" +(right|and) with \{", line)


def too_wide(text):
    return [line for line in text.splitlines() if len(line) > WIDEST and is_about_a_formula(line)]


def is_a_sentence(line):
    """About what went wrong; not an edit nor a command, which are there to be copied."""
    return re.match(r"    \S", line) and not re.match(r" +(right|together|and) .*with \{|    `lockstep ", line)


def test_check_of_the_corpus(run):
    done = run("check", str(ROOT / "scenarios"))
    assert [line for line in done.stdout.splitlines() if len(line) > WIDEST and is_a_sentence(line)] == []
    assert len([line for line in done.stdout.splitlines() if is_about_a_formula(line)]) > 2000
    assert too_wide(done.stdout) == []


def test_explain_of_the_corpus(run):
    names = [line.split("  ")[1] for line in run("check", "-q", str(ROOT / "scenarios")).stdout.splitlines() if line.startswith("mismatch  ")]
    assert len(names) > 200
    # Ranks by the thousand: their replay is refused, or takes long.
    small = [name for name in names if "/scale/" not in name][::ONE_IN]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        shown = list(pool.map(lambda name: run("explain", name).stdout, small))
    assert all(shown)
    assert [(name, lines) for name, text in zip(small, shown) if (lines := too_wide(text))] == []


def test_diff_and_verify(run):
    pairs = [(path, path.with_name(f"{path.stem}-fixed.json")) for path in sorted((ROOT / "scenarios").rglob("*.json"))]
    commands = [("diff", str(old), str(new)) for old, new in pairs if new.exists() and old.parent.name != "scale"]
    commands += [("verify", str(path)) for path in sorted((ROOT / "tests" / "live" / "runs").iterdir()) if path.is_dir()]
    assert len(commands) > 100
    commands = commands[::ONE_IN]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        shown = list(pool.map(lambda command: run(*command).stdout, commands))
    assert sum(1 for text in shown if FORMULA.search(text)) > 100 // ONE_IN
    assert [(command, lines) for command, text in zip(commands, shown) if (lines := too_wide(text))] == []


def scenario(layout, edit, micro_batches=4, tokens="uneven", names=("embedding", "head")):
    """Two ends of a model that are tied, one of them with two uses, and a mean over all tokens that goes wrong."""
    first, last = names
    parameters = [
        {"name": first, "shape": [16], "tied": "words", "uses": ["main", "aux"]},
        {"name": "norm", "shape": [16], "partial": ["tp"]},
        {"name": last, "shape": [16], "tied": "words", "stage": -1},
    ]
    steps = [
        {"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward"}]},
        {"name": "norms", "op": "all_reduce", "over": "tp", "params": ["norm"]},
        {"name": "dp_reduce", "op": "all_reduce", "over": ["dp", "cp"]},
        {"name": "ties", "op": "all_reduce", "over": "pp", "params": ["tied:words"]},
    ]
    return {
        "lockstep": 1,
        "layout": layout,
        "model": {"parameters": parameters},
        "batch": {"micro_batches": micro_batches, "tokens": tokens, "loss": "token_mean"},
        "schedule": {"steps": steps, "edits": edit},
    }


USE_LEFT_OUT = [{"set": "backward", "uses": ["main"]}]
USE_ONCE = [
    {"set": "backward", "uses": ["main"]},
    {"insert": {"name": "aux", "op": "backward", "uses": ["aux"], "when": "micro_batch == 1"}, "after": "backward"},
]
EARLY = [{"insert": {"name": "early", "op": "all_reduce", "over": "dp"}, "after": "backward"}]
BY_RANK = [{"insert": {"name": "weight", "op": "scale", "by": "1 + rank.dp + tokens"}, "after": "backward"}]
SHIFTED = [{"insert": {"name": "shifted", "op": "reduce_scatter", "over": "dp", "geometry": {"kind": "flat"}}, "before": "dp_reduce"}]


EDITS = {"use": USE_LEFT_OUT, "use-once": USE_ONCE, "early": EARLY, "by-rank": BY_RANK, "shifted": SHIFTED}
LAYOUTS = {8: {"dp": 8}, 16: {"tp": 2, "dp": 4, "pp": 2}, 64: {"tp": 2, "cp": 2, "dp": 8, "pp": 2}}
TRIED = [(ranks, edit) for ranks in LAYOUTS for number, edit in enumerate(EDITS) if ranks < 16 or number % ONE_IN == 0]


@pytest.mark.parametrize(("ranks", "edit"), TRIED)
def test_many_ranks_uses_and_micro_batches(run, tmp_path, ranks, edit):
    layout, edit = LAYOUTS[ranks], EDITS[edit]
    names = ("embedding", "head") if len(edit) == 1 else ("model.embed tokens+positions.weight", "lm_head]weight")
    (tmp_path / "wrong.json").write_text(json.dumps(scenario(layout, edit, names=names)))
    for command in ("check", "explain", "prove"):
        done = run(command, "wrong.json")
        assert done.returncode in (0, 1), done.stdout + done.stderr
        assert too_wide(done.stdout) == []
    whole = json.loads(run("check", "-f", "json", "wrong.json").stdout)
    formulas = [piece["formula"] for parameter in whole["parameters"] for rank in parameter["ranks"] for piece in rank["pieces"]]
    # What -v prints is what JSON has.
    shown = run("check", "-v", "wrong.json").stdout
    assert formulas and all(f"got       {formula}" in shown for formula in formulas)
    assert "…" not in "".join(formulas)
    # And it reads back.
    content = scenario(layout, edit, names=names)
    first = whole["parameters"][0]
    of_one_piece = [rank for rank in first["ranks"] if len(rank["pieces"]) == 1]
    expected = {str(rank["rank"] if "rank" in rank else rank["ranks"][0]): rank["pieces"][0]["formula"] for rank in of_one_piece}
    content["expect"] = {"verdict": "mismatch", "formula": {first["name"]: expected}}
    (tmp_path / "expected.json").write_text(json.dumps(content))
    tested = run("test", "expected.json")
    assert tested.returncode == 0, tested.stdout
