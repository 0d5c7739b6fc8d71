# SPDX-License-Identifier: Apache-2.0
"""repair: what it prints, what it writes, and what it refuses."""

import json


def test_repairs_are_ranked_and_verified(run, files):
    done = run("repair", "wrong.json")
    assert done.returncode == 0
    assert done.stdout.startswith(
        "mismatch  wrong.json  wrong\n"
        "\n"
        "  1. mean; no more communication; right at 3 of 5 other sizes\n"
        '     { "set": "mean", "reduce": "avg" }\n'
        "     verified at the file's sizes by symbolic and host\n"
    )
    assert len([line for line in done.stdout.splitlines() if "verified" in line]) == 3
    assert run("repair", "--most", "1", "wrong.json").stdout.count("verified") == 1


def test_json(run, files):
    report = json.loads(run("repair", "-f", "json", "wrong.json").stdout)
    assert list(report) == ["lockstep", "file", "verdict", "repairs", "found", "tried", "time"]
    assert report["verdict"] == "mismatch" and report["found"] >= len(report["repairs"]) == 3
    assert report["repairs"][0] == {
        "edits": [{"set": "mean", "reduce": "avg"}],
        "steps": ["mean"],
        "verified": ["symbolic", "host"],
        "sizes": {"tried": 5, "right": 3},
        "other_owners": False,
        "added_bytes_per_rank": 0,
    }


def test_each_repair_is_right_when_it_is_written(run, files):
    for take in ("1", "2", "3"):
        done = run("repair", "--take", take, "--to", f"repaired-{take}.json", "wrong.json")
        assert (done.returncode, done.stderr) == (0, f"wrote repaired-{take}.json with repair {take}\n")
        assert run("test", f"repaired-{take}.json").stdout.startswith("ok ")
    assert json.loads((files / "repaired-1.json").read_text())["schedule"]["edits"] == [{"set": "mean", "reduce": "avg"}]


def test_write_keeps_comments_and_the_old_file(run, files):
    old = "// ours\n" + (files / "wrong.json").read_text()
    (files / "wrong.json").write_text(old)
    done = run("repair", "--write", "wrong.json")
    assert (done.returncode, done.stderr) == (0, "wrote wrong.json with repair 1; wrong.json.orig is as it was\n")
    assert (files / "wrong.json.orig").read_text() == old
    assert (files / "wrong.json").read_text().startswith("// ours\n")
    assert run("test", "wrong.json").returncode == 0 and run("check", "-q", "wrong.json").returncode == 0
    again = run("repair", "wrong.json")
    assert again.stdout == "match  wrong.json  wrong\n  there is nothing to repair\n"


def test_a_deadlock_is_repaired(run, files):
    assert '{ "set": "mean", "when": null, "reduce": "avg" }' not in run("repair", "stuck.json").stdout
    done = run("repair", "stuck.json")
    assert done.returncode == 0 and "deadlock  stuck.json" in done.stdout
    run("repair", "--to", "moving.json", "stuck.json")
    assert run("check", "moving.json").returncode == 0


def test_nothing_is_found_where_nothing_can_be(run, files):
    # What is lost for good cannot be had from edits of the steps: a parameter that never takes part.
    text = (files / "right.json").read_text().replace('"shape": [8]', '"shape": [8], "dtype": "float32"')
    text = text.replace('"reduce": "avg"', '"reduce": "avg"').replace('"tokens": "even"', '"tokens": "even", "loss": { "weight": "7 + micro_batch" }')
    (files / "lost.json").write_text(text)
    done = run("repair", "lost.json")
    assert done.returncode == 1
    assert "no edit makes it right, and no two edits do; " in done.stdout


def test_mistakes(run, files):
    def says(*arguments):
        done = run("repair", *arguments)
        assert done.returncode == 2 and done.stdout == ""
        return done.stderr

    assert says("--take", "0", "wrong.json") == 'error: --take takes a whole number from 1 to 1000, found "0"\n'
    assert says("--most", "many", "wrong.json") == 'error: --most takes a whole number from 1 to 1000, found "many"\n'
    assert says("--write", "--to", "x.json", "wrong.json") == "error: --write changes FILE and --to writes another file; give one of them\n"
    assert says(".") == "error: . is a folder; give one file\n"
    (files / "wrong.json.orig").write_text("")
    assert says("--write", "wrong.json") == (
        "error: wrong.json.orig is there already, and --write would replace it; move it away, or use --to\n"
    )
    assert "unknown key" in says("invalid.json")
    done = run("repair", "--take", "900", "--to", "x.json", "wrong.json")
    assert done.returncode == 2 and done.stderr.startswith("error: --take 900: there are ") and not (files / "x.json").exists()
