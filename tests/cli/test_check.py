# SPDX-License-Identifier: Apache-2.0
import json


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


def test_what_was_replayed_is_right_where_it_stands(run, files):
    for engine in ("symbolic", "host"):
        assert "    right with { " in run("check", "--engine", engine, "wrong.json").stdout
