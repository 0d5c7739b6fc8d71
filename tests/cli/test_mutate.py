# SPDX-License-Identifier: Apache-2.0
"""mutate: what it prints, what it writes, and what it refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2])


def test_every_mutant_of_a_right_file_is_explained(run, files):
    done = run("mutate", "right.json")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "explained  right.json  42 mutants: 31 killed, 11 equivalent, 0 not proved"
    assert lines[1] == (
        "  dp 2 = 2 ranks, 1 micro-batch, loss token_mean over even tokens, as in the file; "
        "the schedule itself: right for every dp, with the number of micro-batches of the file"
    )
    assert lines[3].split() == "mutants killed at other sizes equivalent not proved".split()
    assert [line.split()[0] for line in lines[4:7]] == ["dropped", "doubled", "moved"]


def test_it_starts_with_the_sizes_of_the_file_unless_they_are_large(run, files):
    right = json.loads((files / "right.json").read_text())
    for dp, at, as_in_file in ((5, 5, True), (17, 2, False), ("any", 2, False)):
        right["layout"] = {"dp": dp}
        (files / "sized.json").write_text(json.dumps(right))
        line = run("mutate", "sized.json").stdout.splitlines()[1]
        assert line.startswith(f"  dp {at} = {at} ranks, 1 micro-batch")
        assert (", as in the file; the schedule itself: " in line) == as_in_file
    backward = right["schedule"]["steps"][0]
    right["schedule"]["steps"] = [{"name": "zero", "op": "zero"}, backward, {"name": "sum", "op": "all_reduce", "over": "dp"}]
    right["layout"], right["batch"] = {"dp": 2}, {"micro_batches": [1, 2], "steps": 2, "loss": "sum"}
    (files / "sized.json").write_text(json.dumps(right))
    assert run("mutate", "sized.json").stdout.splitlines()[1].startswith("  dp 2 = 2 ranks, 2 optimizer steps of 1, 2 micro-batches")


def test_what_is_wrong_at_the_large_sizes_of_the_file_alone_is_found(run, files):
    """A step that runs there alone: at the layout where edits are tried first it is none."""
    right = json.loads((files / "right.json").read_text())
    right["layout"] = {"dp": 20}
    right["schedule"]["steps"].append({"name": "late", "op": "scale", "by": "1", "when": "dp > 16"})
    (files / "large.json").write_text(json.dumps(right))
    mutants = json.loads(run("mutate", "-f", "json", "-v", "large.json").stdout)["files"][0]["mutants"]
    late = [one for one in mutants if one["edit"].get("set") == "late" and "by" in one["edit"]]
    assert late and all(one["fate"] != "not proved" or "sum" not in one["edit"]["by"] for one in late)


def test_each_mutant_runs_again_from_its_file(run, files):
    done = run("mutate", "right.json", "--write-mutants", "mutants")
    assert done.stderr == "wrote 42 mutants to mutants; `lockstep test mutants` runs them again\n"
    assert len(list((files / "mutants").iterdir())) == 42
    tested = run("test", "-q", "mutants")
    assert (tested.returncode, tested.stdout) == (0, "42 passed, 0 failed\n")
    verdicts = {json.loads(path.read_text())["expect"]["verdict"] for path in (files / "mutants").iterdir()}
    assert verdicts == {"match", "mismatch", "deadlock", "race"}
    again = run("mutate", "right.json", "--write-mutants", "mutants")
    assert (again.returncode, again.stderr) == (
        2,
        "error: --write-mutants takes a folder that is empty or not there yet; mutants is neither\n",
    )


def test_json(run, files):
    report = json.loads(run("mutate", "-f", "json", "right.json").stdout)
    assert list(report) == ["lockstep", "files", "time"]
    (one,) = report["files"]
    assert list(one) == ["file", "layout", "schedule", "counts", "same", "not_applicable", "mutants"]
    assert one["counts"] == {"mutants": 42, "killed": 31, "other_sizes": 0, "equivalent": 11, "not_proved": 0}
    assert len(one["mutants"]) == 42
    by_edit = {json.dumps(mutant["edit"]): mutant for mutant in one["mutants"]}
    assert by_edit['{"drop": "mean"}'] == {
        "kind": "dropped",
        "step": "mean",
        "edit": {"drop": "mean"},
        "fate": "killed",
        "verdict": "mismatch",
        "engines": ["symbolic", "parametric"],
        "sizes": None,
    }
    assert by_edit['{"duplicate": "mean"}']["fate"] == "equivalent"


def test_verbose_lists_every_edit(run, files):
    text = run("mutate", "-v", "right.json").stdout
    assert '  { "drop": "mean" }\n    mismatch\n' in text
    assert '  { "duplicate": "mean" }\n    equivalent\n' in text


def test_a_file_that_is_wrong_is_a_sentence_and_one_of_a_folder_is_passed_over(run, files):
    done = run("mutate", "wrong.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: wrong.json is wrong before any edit: mismatch; only a right schedule has mutants (`lockstep check "
        "wrong.json` shows what is wrong, `lockstep repair wrong.json` how to make it right)\n"
    )
    (files / "invalid.json").unlink()
    done = run("mutate", ".")
    assert done.returncode == 0 and done.stdout.startswith("explained  right.json  42 mutants")
    assert done.stderr == "lockstep mutate: passed over 2 of 3 files, which are wrong before any edit\n"
    (files / "right.json").unlink()
    assert run("mutate", ".").returncode == 4


def test_mistakes(run, files):
    done = run("mutate", "-j", "none", "right.json")
    assert (done.returncode, done.stderr) == (2, 'error: --jobs takes a whole number from 1 to 1024; found "none"\n')
    done = run("mutate", "-f", "sarif", "right.json")
    assert done.returncode == 2 and "sarif" in done.stderr
    done = run("mutate", "invalid.json")
    assert done.returncode == 2 and 'did you mean "layout"?' in done.stderr
    assert run("mutate").returncode == 2
    assert run("mutate", "absent.json").returncode == 2


def test_several_files_have_one_table(run, files):
    (files / "again.json").write_text((files / "right.json").read_text())
    done = run("mutate", "right.json", "again.json")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("explained  right.json") and lines[1].startswith("explained  again.json")
    assert lines[-1].split() == ["all", "84", "62", "0", "22", "0"]
    assert run("mutate", "-j", "1", "right.json", "again.json").stdout == done.stdout


# One for each of a few frameworks, and one with survivors; tools/mutants --check compares all.
DOCUMENTED = [
    "scenarios/megatron/906-fixed.json",
    "scenarios/deepspeed/5259-expert-gradients-depend-on-ep-fixed.json",
    "tests/mutants/nanotron-tied.jsonc",
    "tests/mutants/picotron.jsonc",
]


@pytest.mark.parametrize("file", DOCUMENTED)
def test_the_document_says_what_the_program_says(binary, file):
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "mutants", file], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {"LOCKSTEP_BINARY": binary},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (row,) = [line for line in lines if line.startswith(f"| `{file}` |")]
    survivors = [line for line in lines if line.startswith(("- `", "  - `"))]
    document = (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8")
    assert "\n" + row + "\n" in document
    if survivors:
        assert "\n" + "\n".join(survivors) + "\n" in document
    else:
        assert f"- `{file}`" not in document


def test_a_file_that_is_not_valid_does_not_take_the_others_with_it(run, files):
    done = run("mutate", "-q", "right.json", "invalid.json")
    assert done.returncode == 2
    assert done.stdout == "explained  right.json  42 mutants: 31 killed, 11 equivalent, 0 not proved\n"
    assert done.stderr.startswith("invalid.json:") and "unknown key \"layuot\"" in done.stderr


def given_by_files(folder):
    """A scenario in folder/cases whose framework and model are files of its own, beside it and above it."""
    (folder / "cases" / ".git").mkdir(parents=True)
    (folder / "cases" / "parts").mkdir()
    (folder / "cases" / "ours.jsonc").write_text(json.dumps({
        "lockstep_framework": 1, "name": "ours",
        "steps": [{"name": "micro_batches", "op": "each", "steps": [{"name": "backward", "op": "backward"}]},
                  {"name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg"}]}))
    (folder / "cases" / "parts" / "small.jsonc").write_text(json.dumps({
        "lockstep_model": 1, "name": "small", "parameters": [{"name": "w", "shape": [8]}]}))
    case = {"lockstep": 1, "layout": {"dp": 2}, "model": {"preset": "./parts/small.jsonc"}, "batch": {"micro_batches": 1, "tokens": "even"},
            "schedule": {"framework": "./ours.jsonc"}, "expect": {"verdict": "match"}}
    (folder / "cases" / "case.json").write_text(json.dumps(case))


def test_mutants_in_another_folder_find_the_files_that_the_scenario_names(run, tmp_path):
    given_by_files(tmp_path)
    done = run("mutate", "-q", "cases/case.json", "--write-mutants", "cases/written/mutants")
    assert done.returncode == 0 and done.stderr.startswith("wrote "), done.stderr
    written = sorted((tmp_path / "cases" / "written" / "mutants").iterdir())
    document = json.loads(written[0].read_text())
    assert document["schedule"]["framework"] == "../../ours.jsonc"
    assert document["model"]["preset"] == "../../parts/small.jsonc"
    tested = run("test", "-q", "cases/written/mutants")
    assert (tested.returncode, tested.stdout) == (0, f"{len(written)} passed, 0 failed\n")


def test_mutants_are_not_written_where_they_may_not_name_what_the_scenario_names(run, tmp_path):
    given_by_files(tmp_path)
    done = run("mutate", "cases/case.json", "--write-mutants", "elsewhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert 'a scenario in "elsewhere" could not name the file "cases/./ours.jsonc", which lies outside' in done.stderr
    assert not list((tmp_path / "elsewhere").iterdir())
    # Whoever allows these files may write them anywhere.
    done = run("mutate", "-q", "cases/case.json", "--write-mutants", "elsewhere", "--include", "cases")
    assert done.returncode == 0, done.stderr
    document = json.loads(next((tmp_path / "elsewhere").iterdir()).read_text())
    assert document["schedule"]["framework"] == "../cases/ours.jsonc"
    assert run("test", "-q", "elsewhere", "--include", "cases").returncode == 0


def with_edits_of_the_model(edit):
    sizes = {"layers": 1, "hidden": 8, "heads": 2, "query_groups": 2, "ffn": 8, "vocab": 16}
    return {
        "lockstep": 1,
        "layout": {"tp": 2},
        "model": {"preset": "llama", **sizes, "edits": [edit]},
        "schedule": {"framework": "megatron"},
    }


def test_where_the_model_has_edits_no_mutant_is_proved_right(run, files):
    """The largest logit is taken twice, which changes nothing; but no proof follows what the model does then."""
    (files / "edited.json").write_text(json.dumps(with_edits_of_the_model({"duplicate": "cross_entropy.max"})))
    assert run("check", "edited.json").returncode == 0
    done = run("mutate", "-f", "json", "-v", "edited.json")
    found = json.loads(done.stdout)["files"][0]
    assert (done.returncode, done.stderr) == (1, "")
    assert found["schedule"].startswith("the edits of the model are not followed")
    assert found["counts"]["killed"] > 0 and found["counts"]["not_proved"] > 0 and found["counts"]["equivalent"] == 0
    kept = [one for one in found["mutants"] if one["fate"] != "killed"]
    assert all("the edits of the model are not followed" in one["why"] for one in kept)


def test_what_an_edit_of_the_model_makes_wrong_has_no_mutants(run, files):
    (files / "edited.json").write_text(json.dumps(with_edits_of_the_model({"drop": "mlp.copy_to_tp"})))
    done = run("mutate", "edited.json")
    assert done.returncode == 2
    assert "edited.json is wrong before any edit: mismatch; only a right schedule has mutants" in done.stdout + done.stderr
