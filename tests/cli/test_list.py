# SPDX-License-Identifier: Apache-2.0
"""`lockstep list`, and the tables in the READMEs and in docs/corpus.md that it prints."""

import functools
import glob
import json
import os
import re
import shutil
import subprocess

import pytest

ROOT = os.environ.get("LOCKSTEP_SOURCE_DIR", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BINARY = os.environ.get("LOCKSTEP_BINARY", "")
TABLE = re.compile(r"(<!-- table: (\S+) -->\n)(.*?)(<!-- end of table -->)", re.S)
CORPUS = re.compile(r"(<!-- corpus: (\S+) -->\n)(.*?)(<!-- end of corpus -->)", re.S)
CORPUS_DOCUMENT = os.path.join(ROOT, "docs", "corpus.md")

pytestmark = pytest.mark.skipif(not BINARY, reason="LOCKSTEP_BINARY does not name the program")


@functools.lru_cache(None)
def run(*arguments):
    """Each command once: several tests read the list of the whole corpus."""
    return subprocess.run([BINARY, "list", *arguments], cwd=ROOT, capture_output=True, text=True)


def tables():
    for readme in sorted(glob.glob(os.path.join(ROOT, "scenarios", "*", "README.md"))):
        with open(readme, encoding="utf-8") as file:
            for match in TABLE.finditer(file.read()):
                yield readme, match.group(2), match.group(3)


def files_of(pattern):
    return sorted(glob.glob(pattern, root_dir=ROOT))


@pytest.mark.parametrize("readme, pattern, text", list(tables()))
def test_table_is_what_the_program_prints(readme, pattern, text):
    done = run("-f", "markdown", *files_of(pattern))
    assert done.returncode == 0, done.stderr
    assert done.stdout == text, f"run: LOCKSTEP_BINARY={BINARY} python3 tests/cli/test_list.py"


def test_there_is_such_a_table():
    assert any("deepspeed" in readme for readme, _, _ in tables())


def test_json_has_a_row_for_each_file():
    rows = json.loads(run("-f", "json", "scenarios/gpt-neox").stdout)
    assert len(rows) == len(files_of("scenarios/gpt-neox/*.json"))
    factor = {row["scenario"]: (row["verdict"], row["factor"], row["replicas"]) for row in rows}
    assert factor["gpt-neox-1257-b-averaged"] == ("mismatch", "1/2", "agree")
    assert factor["gpt-neox-1257-c-fixed"] == ("match", "1", None)
    assert factor["gpt-neox-1257-a-hooks-never-fired"] == ("mismatch", None, "differ")


def test_a_row_has_axes_and_kind_of_mistake():
    row = json.loads(run("-f", "json", "scenarios/megatron/844.json").stdout)[0]
    assert list(row) == ["scenario", "verdict", "axes", "mistake", "factor", "replicas", "title"]
    assert (row["axes"], row["mistake"], row["factor"], row["replicas"]) == ("pp 2, dp 2", "wrong cut", None, "differ")


def test_without_files_the_scenarios_of_this_place_are_listed(tmp_path):
    folder = tmp_path / "scenarios"
    folder.mkdir()
    shutil.copy(os.path.join(ROOT, "scenarios", "megatron", "844.json"), folder / "one.json")
    (tmp_path / "package.json").write_text("{}")
    for place in (tmp_path, folder):
        done = subprocess.run([BINARY, "list"], cwd=place, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(done.stdout.splitlines()) == 2 and done.stdout.splitlines()[1].split()[0].endswith("one.json")


def test_what_is_not_valid_is_told(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    done = run(str(bad))
    assert done.returncode == 2
    assert done.stderr.startswith(f"{bad}:1:2: error: ")
    assert done.stdout.splitlines()[1].split() == [str(bad), "error", "-", "-", "-", "-"]


def corpus_markdown(folder):
    done = run("--corpus", "-f", "markdown", folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_corpus_document_is_what_the_program_prints():
    with open(CORPUS_DOCUMENT, encoding="utf-8") as file:
        tables_there = CORPUS.findall(file.read())
    assert len(tables_there) == 1
    _, folder, text, _ = tables_there[0]
    assert corpus_markdown(folder) == text, f"run: LOCKSTEP_BINARY={BINARY} python3 tests/cli/test_list.py"


def corpus_rows(*paths):
    done = run("--corpus", "-f", "json", *paths)
    assert done.returncode == 0, done.stderr
    return {row["scenario"]: row for row in json.loads(done.stdout)}


def test_corpus_has_a_row_for_each_mistake_and_each_control():
    rows = corpus_rows("scenarios")
    results = json.loads(run("-f", "json", "scenarios").stdout)
    wrong = {row["scenario"] for row in results if row["verdict"] != "match"}
    controls = set(rows) - wrong
    assert wrong <= set(rows)
    assert "megatron-673-loss-times-cp-is-right" in controls
    assert all(rows[name]["mistake"] == "none" and "-fixed" not in name for name in controls)
    numbers = {(rows[name]["project"], rows[name]["number"]) for name in wrong}
    assert not any((rows[name]["project"], rows[name]["number"]) in numbers for name in controls)


def test_a_row_of_the_corpus_has_source_axes_kind_and_what_other_tests_see():
    rows = corpus_rows("scenarios")
    assert rows["megatron-844"] == {
        "project": "NVIDIA/Megatron-LM",
        "number": "#844",
        "title": rows["megatron-844"]["title"],
        "axes": "pp 2, dp 2",
        "mistake": "wrong cut",
        "replicas": "differ",
        "tolerance": "fails",
        "scenario": "megatron-844",
    }
    assert rows["gpt-neox-1257-b-averaged"]["replicas"] == "agree"
    assert rows["gpt-neox-1257-b-averaged"]["mistake"] == "wrong factor"
    norm = rows["megatron-7228-tied-counted-on-both-stages"]
    assert (norm["number"], norm["mistake"], norm["replicas"]) == ("PR 7228", "norm count", "agree")
    stopped = rows["pytorch-174862-unused-on-one-rank"]
    assert (stopped["mistake"], stopped["replicas"], stopped["tolerance"]) == ("deadlock", None, None)


def test_the_summary_counts_what_other_tests_miss():
    rows = corpus_rows("scenarios").values()
    mismatches = [row for row in rows if row["tolerance"] is not None]
    missed = [row for row in mismatches if row["replicas"] != "differ"]
    alone = [row for row in missed if row["replicas"] == "nothing to compare"]
    passed = [row for row in mismatches if row["tolerance"] == "passes"]
    assert alone and passed and len(alone) < len(missed) < len(mismatches)
    text = run("--corpus", "scenarios").stdout
    assert (
        f"Of the {len(mismatches)} mismatches a comparison of replicas misses {len(missed)}: in "
        f"{len(missed) - len(alone)} all owners agree, in {len(alone)} there is nothing to compare." in text
    )

    def entries(chosen):
        return {(row["project"], row["number"]) for row in chosen if row["project"]}

    unseen = entries(mismatches) - entries(row for row in mismatches if row["replicas"] == "differ")
    assert f"Of their {len(entries(mismatches))} sources it misses {len(unseen)} in every file." in text
    assert f"a relative error of 8 % misses {len(passed)} of the mismatches" in text


TYPES_MISS = re.compile(r"It misses at least (\d+) of the (\d+) mismatches")
OF_THE_RIGHT_TYPE = {"wrong factor", "wrong weights", "norm count", "wrong cut", "leftover"}


def missed_by_types():
    mismatches = [row for row in corpus_rows("scenarios").values() if row["tolerance"] is not None]
    missed = sum(row["mistake"] in OF_THE_RIGHT_TYPE for row in mismatches)
    return f"It misses at least {missed} of the {len(mismatches)} mismatches"


def test_the_argument_about_types_has_the_counts_of_the_table():
    with open(CORPUS_DOCUMENT, encoding="utf-8") as file:
        assert TYPES_MISS.search(file.read()).group() == missed_by_types()


def test_a_mismatch_of_the_norm_alone_has_no_factor():
    rows = {row["scenario"]: row for row in json.loads(run("-f", "json", "scenarios/megatron").stdout)}
    norm = rows["megatron-7228-tied-counted-on-both-stages"]
    assert (norm["verdict"], norm["factor"], norm["replicas"]) == ("mismatch", "norm", "agree")


def test_exit_status_does_not_depend_on_verdicts(tmp_path):
    assert run("scenarios/gpt-neox").returncode == 0
    assert run(str(tmp_path)).returncode == 4
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    assert run(str(bad)).returncode == 2


if __name__ == "__main__":
    for path in sorted({readme for readme, _, _ in tables()}):
        with open(path, encoding="utf-8") as source:
            old = source.read()
        new = TABLE.sub(lambda m: m.group(1) + run("-f", "markdown", *files_of(m.group(2))).stdout + m.group(4), old)
        with open(path, "w", encoding="utf-8") as target:
            target.write(new)
    with open(CORPUS_DOCUMENT, encoding="utf-8") as source:
        old = source.read()
    with open(CORPUS_DOCUMENT, "w", encoding="utf-8") as target:
        new = CORPUS.sub(lambda m: m.group(1) + corpus_markdown(m.group(2)) + m.group(4), old)
        target.write(TYPES_MISS.sub(lambda _: missed_by_types(), new))
