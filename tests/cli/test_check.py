# SPDX-License-Identifier: Apache-2.0
import json

import pytest


def test_status_is_the_verdict_alone(run, files):
    assert run("check", "right.json").returncode == 0
    # What `expect` says does not matter here.
    assert run("check", "wrong.json").returncode == 1
    assert run("check", "stuck.json").returncode == 1


def test_of_several_files_the_largest_status_counts(run, files):
    done = run("check", "right.json", "wrong.json", "invalid.json")
    assert done.returncode == 2
    assert done.stdout.index("match  right.json") < done.stdout.index("mismatch  wrong.json")


def test_an_invalid_file_is_shown_with_line_caret_and_the_nearest_word(run, files):
    done = run("check", "invalid.json")
    assert done.returncode == 2
    assert "invalid.json:4:3: error: " in done.stdout
    assert 'did you mean "layout"?' in done.stdout
    assert "^" in done.stdout


def test_a_path_that_does_not_exist_is_usage(run, files):
    done = run("check", "rihgt.json")
    assert done.returncode == 2
    assert "there is no file or folder rihgt.json" in done.stderr
    assert "right.json" in done.stderr


def test_folders_are_searched_and_an_empty_one_is_nothing_checked(run, files):
    (files / "deep" / "er").mkdir(parents=True)
    (files / "right.json").rename(files / "deep" / "er" / "right.jsonc")
    assert run("check", "-q", "deep").stdout == "match  deep/er/right.jsonc  right\n"
    (files / "empty").mkdir()
    done = run("check", "empty")
    assert done.returncode == 4
    assert "nothing was checked" in done.stderr


def test_json_is_one_object_or_an_array(run, files):
    one = json.loads(run("check", "-f", "json", "wrong.json").stdout)
    assert one["verdict"] == "mismatch"
    assert one["expected"] is True
    many = json.loads(run("check", "-f", "json", "right.json", "wrong.json").stdout)
    assert [report["verdict"] for report in many] == ["match", "mismatch"]


def test_an_invalid_file_is_a_report_too(run, files):
    report = json.loads(run("check", "-f", "json", "invalid.json").stdout)
    assert report["verdict"] == "error"
    assert report["errors"][0]["line"] == 4


def test_engines_can_be_chosen(run, files):
    report = json.loads(run("check", "-f", "json", "--engine", "symbolic", "wrong.json").stdout)
    assert list(report["engines"]) == ["symbolic"]
    report = json.loads(run("check", "-f", "json", "--engine=host", "wrong.json").stdout)
    assert list(report["engines"]) == ["host"]
    assert report["verdict"] == "mismatch"
    done = run("check", "--engine", "symbolik", "wrong.json")
    assert done.returncode == 2
    assert 'did you mean "symbolic"?' in done.stderr


def test_reports_are_written_beside(run, files):
    done = run("check", "--report", "json=a.json", "--report", "text=b.txt", "wrong.json")
    assert done.returncode == 1
    assert json.loads((files / "a.json").read_text())["verdict"] == "mismatch"
    assert (files / "b.txt").read_text() == done.stdout
    assert run("check", "--report", "pdf=a.pdf", "wrong.json").returncode == 2
    assert run("check", "--report", "json", "wrong.json").returncode == 2


def test_colour_follows_the_option_then_the_environment(run, files):
    assert "\x1b[" not in run("check", "wrong.json").stdout
    assert "\x1b[" in run("check", "--color", "always", "wrong.json").stdout
    assert "\x1b[" in run("check", "wrong.json", env={"CLICOLOR_FORCE": "1"}).stdout
    assert "\x1b[" not in run("check", "wrong.json", env={"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}).stdout
    assert "\x1b[" not in run("check", "--color", "always", "-f", "json", "wrong.json").stdout


def large_file(files, dp, parameters, *steps):
    """Sums over dp at first, where the steps do not say otherwise; the search replays two ranks of it."""
    each = {"name": "m", "op": "each", "steps": [{"name": "backward", "op": "backward"}]}
    scenario = {"lockstep": 1, "layout": {"dp": dp}, "batch": {"micro_batches": 1, "tokens": "even", "loss": "sum"},
                "model": {"parameters": [{"name": f"w{number}", "shape": [4096]} for number in range(parameters)]},
                "schedule": {"steps": [each, *steps]}}
    (files / "large.json").write_text(json.dumps(scenario))
    return scenario


DP_SUM = {"name": "sum", "op": "all_reduce", "over": "dp"}
TWICE = {"name": "twice", "op": "scale", "by": 2}
FAR = {"name": "far", "op": "scale", "by": 3, "when": "dp > 64"}


@pytest.mark.parametrize(("dp", "parameters"), [(4096, 1), (300, 40)], ids=["by classes", "replayed"])
def test_what_is_right_at_a_small_layout_is_not_called_right_at_a_large_one(run, files, dp, parameters):
    """Where two ranks are, the average takes back the factor of 2; what goes wrong beyond 64 does not go wrong there."""
    scenario = large_file(files, dp, parameters, TWICE)
    said = run("check", "large.json").stdout
    assert '    right with { "insert": { "name": "dp_all_reduce", "op": "all_reduce", "over": "dp" }, "after": "m" }\n' in said
    assert '    together with { "drop": "twice" }\n' in said
    report = json.loads(run("check", "-f", "json", "large.json").stdout)
    found = report["diagnosis"]["repairs"][0]
    assert found["verified"] == ["symbolic"] and "verified_at" not in found
    scenario["schedule"]["edits"] = found["edits"]
    (files / "repaired.json").write_text(json.dumps(scenario))
    assert run("check", "-q", "repaired.json").stdout.startswith("match ")
    assert json.loads(run("repair", "-f", "json", "large.json").stdout)["repairs"][0]["edits"] == found["edits"]

    large_file(files, dp, parameters, DP_SUM, TWICE, FAR)
    said = run("check", "large.json").stdout
    assert "right with" not in said and "right at a small" not in said and "at fault" not in said
    assert ("note: Edits make the file right at dp 2, and not at its own sizes: something goes wrong here that does not go wrong there.\n"
            in said)  # fmt: skip
    assert run("check", "-q", "large.json", "--set", "schedule.steps.3.when=dp > 4096").stdout.startswith("mismatch ")


def test_what_no_engine_decides_at_a_large_layout_is_said_to_be_right_at_a_small_one(run, files):
    norm, clip = {"name": "total", "op": "norm"}, {"name": "clip", "op": "clip"}
    large_file(files, 600, 60, DP_SUM, TWICE, norm, clip)
    said = run("check", "large.json").stdout
    assert '    right at a small layout with { "drop": "twice" }\n' in said
    assert "`lockstep repair large.json` looks for what is right at these sizes\n" in said
    assert "right at a small layout" in run("check", "-f", "github", "large.json").stdout
    report = json.loads(run("check", "-f", "json", "large.json").stdout)
    found = report["diagnosis"]["repairs"][0]
    assert (found["verified"], found["verified_at"]) == ([], "dp 2")


def test_what_was_replayed_is_right_where_it_stands(run, files):
    for engine in ("symbolic", "host"):
        assert "    right with { " in run("check", "--engine", engine, "wrong.json").stdout
