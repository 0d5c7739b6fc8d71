# SPDX-License-Identifier: Apache-2.0
"""`lockstep verify` in every report format, read by the programs that test_formats.py reads those of `check` with."""

import json
import shutil
from fractions import Fraction
from html.parser import HTMLParser

import captured_run
import pytest
from test_formats import FORMATS, Table, concise_findings, junit_suites, read_all, reports, sarif_run  # noqa: F401

HALF = Fraction(1, 2)
STRANGE = "w<&>\"'`|%0A::,*_{}[x](y)#~"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    captured_run.simple_run(folder / "right", lambda name, rank, m: HALF)
    captured_run.simple_run(folder / "norms", lambda name, rank, m: 0 if "norm" in name and rank == 1 else HALF)
    captured_run.simple_run(folder / "twice", lambda name, rank, m: HALF / 2)
    captured_run.simple_run(folder / "weights", lambda name, rank, m: Fraction(1 + rank, 3))
    captured_run.simple_run(folder / "strange", lambda name, rank, m: 1, parameters=[(STRANGE, 200), ("b\x1b[31m\nc", 96)])
    for run in ("unequal", "crossed"):
        captured_run.simple_run(folder / run, lambda name, rank, m: HALF)
    call = '{"event":"collective","step":0,"micro_batch":null,"op":"all_reduce","group":[0,1],"elements":%d,"dtype":"float32",' \
           '"reduce":"sum","async":false,"call":"train.py:9 in main"}\n'
    for rank in range(2):
        file = folder / "crossed" / f"rank-{rank:05}.jsonl"
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(lines[:-1]) + call % (4 + rank) + lines[-1])
    return folder


def line_of(file, *parts):
    """The number of the first line that has all parts."""
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if all(part in line for part in parts):
            return number
    raise AssertionError(parts)


@pytest.mark.parametrize("name, rules", [
    ("right", []), ("norms", ["LS001"]), ("twice", ["LS002"]), ("weights", ["LS003"]), ("crossed", ["LS011"])])
def test_all_formats_say_the_same_of_a_run(reports, runs, name, rules):  # noqa: F811
    texts = reports("verify", str(runs / name), status=1 if rules else 0)
    junit = texts.pop("junit")
    found = read_all(dict(texts, junit=junit))
    for format in ("sarif", "gitlab", "github", "concise"):
        assert [rule for _, rule, _ in found[format]] == rules, format
    assert {rule for _, rule, _ in found["junit"]} == set(rules)
    verdict = "mismatch" if rules else "match"
    assert Table(texts["markdown"]).rows[0][1] == "run" and Table(texts["markdown"]).rows[1][2] == verdict
    assert concise_findings(texts["concise"])[1] == ("1 run: 0 match, 1 does not; 1 finding" if rules else "1 run: 1 matches, 0 do not; 0 findings")


def test_a_finding_is_at_the_line_of_what_the_first_optimizer_gets(reports, runs):  # noqa: F811
    found = read_all(reports("verify", str(runs / "norms")))
    file = runs / "norms" / "rank-00000.jsonl"
    line = line_of(file, '"event":"result"', '"parameter":1')
    for format in ("sarif", "gitlab", "github", "concise"):
        (path, _, number), = found[format]
        assert path.removeprefix("file://") == str(file) and number == line, format


def test_collectives_are_at_the_line_of_the_call(reports, runs):  # noqa: F811
    texts = reports("verify", str(runs / "crossed"))
    (path, rule, line), = read_all(texts)["concise"]
    assert (path, rule) == (str(runs / "crossed" / "rank-00000.jsonl"), "LS011") and line == line_of(runs / "crossed" / "rank-00000.jsonl", "collective")
    assert "rank 0 calls all_reduce of 4 float32 elements at train.py:9 in main, and rank 1 all_reduce of 5 float32 elements" in texts["sarif"]


def test_junit_has_a_case_for_each_parameter(run, runs):
    tree = junit_suites(run("verify", str(runs / "norms"), "-f", "junit").stdout)
    cases = {case.get("name"): [child.tag for child in case] for case in tree.iter("testcase")}
    assert cases == {"embedding.weight": [], "layers.0.norm.weight": ["failure"], "layers.1.norm.weight": ["failure"],
                     "collectives meet": [], "the run is complete": []}
    failure = next(tree.iter("failure"))
    assert failure.get("message") == "the share of dp 1 is missing." and "got g0/2, expected (g0+g1)/2" in failure.text
    tree = junit_suites(run("verify", str(runs / "crossed"), "-f", "junit").stdout)
    assert [case.get("name") for case in tree.iter("testcase") if len(case)] == ["collectives meet"]


def test_what_is_missing_is_an_error_and_no_failure(run, runs, tmp_path):
    shutil.copytree(runs / "right", tmp_path / "run")
    (tmp_path / "run" / "rank-00001.jsonl").unlink()
    tree = junit_suites(run("verify", "run", "-f", "junit").stdout)
    cases = {case.get("name"): [(child.tag, child.get("type")) for child in case] for case in tree.iter("testcase")}
    assert cases["the run is complete"] == cases["embedding.weight"] == [("error", "LS017")]
    findings, last = concise_findings(run("verify", "run", "-f", "concise").stdout)
    assert {rule for _, _, _, rule, _ in findings} == {"LS017"}
    assert findings[-1][4] == "rank 1 of 2 left no file: what it contributed is not known."


def test_strange_names_come_back_from_every_format(reports, runs):  # noqa: F811
    texts = reports("verify", str(runs / "strange"), "--parameter", "!b*")
    sentence = f"every contribution came with 1 where 1/2 was expected: uniform factor 2, invisible to Adam: {STRANGE}, on every rank."
    assert sarif_run(texts["sarif"])["results"][0]["message"]["text"].split("\n")[0] == sentence
    assert json.loads(texts["gitlab"])[0]["description"] == sentence
    assert concise_findings(texts["concise"])[0][0][4] == sentence
    assert STRANGE in [case.get("name") for case in junit_suites(texts["junit"]).iter("testcase")]


class Page(HTMLParser):
    """The texts of a page by the tags that they stand in, and whether it runs or loads anything."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.cells, self.loads = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.loads += [value for key, value in attributes if key in ("src", "href") and not value.startswith(("#", "data:"))]
        self.loads += [tag] if tag == "script" else []
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.cells[-1] += data


def test_the_page_has_formulas_and_a_table_of_parameters_by_ranks(run, runs, tmp_path):
    assert run("verify", str(runs / "norms"), "--report", "html=run.html").returncode == 1
    text = (tmp_path / "run.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == [] and page.loads == []
    assert page.cells[4:8] == ["layers.*.norm.weight (2)", "ranks 0, 1", "g0/2the share of dp 1 is missing", "(g0+g1)/2"]
    assert page.cells[8:] == ["", "rank 0", "rank 1", "layers.*.norm.weight (2)", "✗", "✗", "embedding.weight", "✓", "✓"]
    assert "✗ mismatch" in text and "the share of dp 1 is missing" in text
    Page(run("verify", str(runs / "strange"), "-f", "html").stdout)
    assert "✓ match" in run("verify", str(runs / "right"), "-f", "html").stdout


def test_a_fingerprint_stays_where_the_run_lies_elsewhere_and_has_more_ranks_and_layers(run, tmp_path):
    def wrong(folder, **more):
        captured_run.simple_run(tmp_path / folder, lambda name, rank, m: 0 if "norm" in name and rank == 1 else Fraction(1, more.get("world", 2)), **more)
        text = run("verify", folder, "-f", "sarif").stdout
        return [one["partialFingerprints"]["primaryLocationLineHash"] for one in sarif_run(text)["results"]]

    first = wrong("a")
    assert len(first) == 1 and wrong("b", parameters=[("head", 64), *[(f"layers.{i}.norm.weight", 96) for i in range(4)]], world=3, micro_batches=1) == first


def test_many_parameters_end_in_bounded_texts(run, tmp_path):
    captured_run.simple_run(tmp_path / "run", lambda name, rank, m: HALF / (2 + int(name[1:]) % 2), micro_batches=1,
                            parameters=[(f"p{i}", 64) for i in range(300)])
    assert len(sarif_run(run("verify", "run", "-f", "sarif").stdout)["results"]) == 2
    text = sarif_run(run("verify", "run", "-f", "sarif").stdout)["results"][0]["message"]["text"]
    assert text.count("\n") == 24 and text.endswith("\nand 127 more")
    assert "100 more are left out" in run("verify", "run", "-f", "html").stdout


def test_a_report_never_replaces_a_file_of_the_run(run, runs, tmp_path):
    shutil.copytree(runs / "right", tmp_path / "run")
    before = (tmp_path / "run" / "rank-00001.jsonl").read_bytes()
    done = run("verify", "run", "--report", "json=run/rank-00001.jsonl")
    assert done.returncode == 2 and "the report would replace run/rank-00001.jsonl" in done.stderr
    assert (tmp_path / "run" / "rank-00001.jsonl").read_bytes() == before


def test_a_gate_may_stay_open_and_the_job_gets_a_summary(run, runs, tmp_path):
    done = run("verify", str(runs / "twice"), "--exit-zero", "--summary", "-q", env={"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")})
    assert done.returncode == 0 and done.stdout.startswith("mismatch  ")
    assert "uniform factor 1/2" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_json_says_which_finding_a_result_belongs_to(run, runs):
    result = json.loads(run("verify", str(runs / "norms"), "-f", "json").stdout)
    assert [piece["finding"] for piece in result["results"]] == [None, 0, 0]


def test_a_page_has_a_row_of_its_own_for_a_layer_that_is_right_where_another_is_wrong(run, tmp_path):
    captured_run.simple_run(tmp_path / "run", lambda name, rank, m: 0 if "layers.1" in name and rank == 1 else HALF,
                            parameters=[(f"layers.{number}.weight", 96) for number in range(4)])
    text = run("verify", "run", "-f", "html").stdout
    text = text[text.index('<section class="ranks">'):]
    assert text.index("<code>layers.1.weight</code></th><td class=\"bad\">✗") < text.index("<code>layers.*.weight</code> (3)</th><td class=\"good\">✓")
