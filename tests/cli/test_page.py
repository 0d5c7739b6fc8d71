# SPDX-License-Identifier: Apache-2.0
"""`lockstep report`: the page as a file, and in a real browser what a person sees and does there."""

import base64
import html
import html.parser
import json
import os
import re
import subprocess
import zlib
from pathlib import Path

import pytest
from browser import Browser, missing

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2])
BUG = "scenarios/megatron/844.json"
FIXED = "scenarios/megatron/844-fixed.json"
needs_browser = pytest.mark.skipif(missing() != "", reason=missing() or "-")

HOSTILE = """{
  "lockstep": 1, "name": "hostile@script@",
  "title": "</script><script>document.title='broken'</script><!--<script> & \\"quoted\\" 'too' \\u2028",
  "layout": { "dp": 2 },
  "model": { "parameters": [ { "name": "<img src=x onerror=document.title='broken'>&amp;", "shape": [8] } ] },
  "batch": { "micro_batches": 1 },
  "schedule": { "steps": [
    { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
    { "name": "all_reduce", "op": "all_reduce", "over": "dp" }
  ] }
}
"""


def lockstep(*arguments, cwd=ROOT):
    done = subprocess.run([os.environ["LOCKSTEP_BINARY"], *map(str, arguments)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


class Shape(html.parser.HTMLParser):
    """Whether elements close as they open, and what they refer to."""

    VOID = {"meta", "link", "br", "input"}

    def __init__(self):
        super().__init__()
        self.open, self.links, self.ids = [], [], []

    def handle_starttag(self, tag, attributes):
        self.links += [value for key, value in attributes if key in ("src", "href")]
        self.ids += [value for key, value in attributes if key == "id"]
        assert not any(key.startswith("on") for key, _ in attributes)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"


def shape_of(page):
    shape = Shape()
    shape.feed(page)
    assert shape.open == []
    assert len(shape.ids) == len(set(shape.ids))
    return shape


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """#844 and its repair."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    lockstep("report", BUG, FIXED, "-o", path)
    return path


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


@pytest.fixture
def browser(chromium):
    """Each test has a tab of its own; to start a browser takes longer than most of them."""
    chromium.tab()
    return chromium


def explained():
    """The tables of `lockstep explain`: by title, the texts of the cells."""
    tables = {}
    for table in lockstep("explain", BUG).split("\n\n")[1:]:
        lines = table.strip().split("\n")
        if lines[0].startswith("after"):
            tables[lines[0]] = [re.split(r"\s{3,}", line)[1:] for line in lines[2:]]
    return tables


def test_the_page_is_the_same_bytes_each_time_and_fetches_nothing(page, tmp_path):
    lockstep("report", BUG, FIXED, "-o", tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()
    shape = shape_of(page.read_text(encoding="utf-8"))
    outside = [link for link in shape.links if not link.startswith(("#", "data:"))]
    assert set(outside) == {"https://github.com/NVIDIA/Megatron-LM/issues/844"}


def test_report_and_the_format_html_are_one(page):
    assert lockstep("check", "-f", "html", BUG, FIXED) == page.read_text(encoding="utf-8")


def test_without_scripts_the_tables_say_it_all(page):
    text = page.read_text(encoding="utf-8")
    body = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    for words in ("g3 + (g0+g1)/2", "(g0+g1+g2+g3)/2", "embedding_all_reduce", "← line 22: edit", "g3 + (g0+g1)/2 * ✗"):
        assert words in body, words


def test_what_scenarios_contain_cannot_break_the_page(tmp_path):
    (tmp_path / "hostile.json").write_text(HOSTILE)
    page = lockstep("report", "hostile.json", cwd=tmp_path)
    assert "onerror" in page and "<img" not in page
    shape_of(page)
    grid, timelines = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    assert "<" not in grid + timelines
    assert json.loads(timelines)["timelines"][0]["parameter"].startswith("<img")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A page of every scenario."""
    path = tmp_path_factory.mktemp("corpus") / "report.html"
    lockstep("report", "scenarios", "-o", path)
    return path


def unpacked(text):
    """{file: its article}, of those that are packed: docs/page.md says how."""
    data = json.loads(re.search(r'<script type="application/json" id="packed">(.*?)</script>', text, re.DOTALL).group(1))
    streams = [zlib.decompress(base64.b64decode(stream), -15).decode().split("\x1e") for stream in data["streams"]]
    files = re.findall(r"<tr data-verdict=.*?<small>(.*?)</small>", text)
    assert len(streams[0]) == len(data["rows"])
    return {files[row]: "".join(parts) for row, *parts in zip(data["rows"], *streams)}


def test_the_whole_corpus_stays_under_a_megabyte(corpus):
    page = corpus.read_bytes()
    assert len(page) < 1_000_000
    text = page.decode()
    shape_of(text)
    listed = text.count("<tr data-verdict=")
    assert listed > 500
    packed = unpacked(text)
    # Each with its ranks, steps, text and data; those of which a replay has no steps say so in the data.
    assert len(packed) == listed
    for article in packed.values():
        shape_of(article)
        assert 'class="text"' in article and article.count("application/json") == 2
    told = re.search(r'id="left-out">[^,]*, (\d+) of (\d+) scenarios are packed, .*? Without it (\d+) stand in the list alone', text)
    assert list(map(int, told.groups())) == [len(packed), listed, listed - text.count("<article ")]
    # Without scripts what is wrong comes first.
    without = re.findall(r'<article id="file=[^"]*".*?</header>', text, re.DOTALL)
    assert len(without) > 100 and all('class="verdict match"' not in head for head in without)


def test_the_timeline_is_what_explain_shows(page):
    """The keys of --timeline, read as docs/report-format.md says."""
    report = json.loads(lockstep("check", "-f", "json", "--timeline", BUG))
    plain = json.loads(lockstep("check", "-f", "json", BUG))
    added = set(report) - set(plain)
    assert added == {"title", "summary", "text", "marks", "unmet", "grid", "timelines_at", "timelines"}
    assert {**plain, "time": 0} == {**{key: report[key] for key in plain}, "time": 0}
    timeline = report["timelines"][0]
    held = {}
    for step in timeline["steps"]:
        for rank, part, formula, marks in step["cells"]:
            held[timeline["ranks"][rank], part] = " ".join([timeline["formulas"][formula], *marks])
        if step["changed"] and f"after {step['step']}" in explained():
            table = [[held[rank, 0] for rank in row] for row in timeline["blocks"][0]["ranks"]]
            assert table == explained()[f"after {step['step']}"], step["step"]
    assert [step["groups"] for step in timeline["steps"]][-2:] == [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]
    assert report["grid"]["rows"] == ["pp 0", "pp 1"]
    assert [cell["wrong"] != [] for cell in report["grid"]["cells"]] == [False, True, True, False]
    assert report["grid"]["sampled"] is False
    assert report["timelines_at"] is None


LARGE = "scenarios/scale/llama3-405b-tied-844.json"


def test_a_grid_of_16384_ranks_counts_every_wrong_one():
    """The buffers of the first and the last stage are cut differently, so that they differ in the owner of most elements."""
    report = json.loads(lockstep("check", "-f", "json", "--timeline", LARGE))
    grid = report["grid"]
    amount = lambda runs: sum(end - begin for begin, end in runs)  # noqa: E731
    assert (len(grid["rows"]), len(grid["columns"]), grid["folded"], grid["sampled"]) == (16, 64, "tp 8", False)
    assert sum(amount(cell["ranks"]) for cell in grid["cells"]) == 16384
    wrong = [sum(amount(cell["wrong"]) for cell in grid["cells"][row * 64:row * 64 + 64]) for row in range(16)]
    assert wrong[0] > 0 and wrong[15] > 0 and wrong[1:15] == [0] * 14
    assert sum(wrong) == 1824
    assert all(cell["owned"] > 0 for cell in grid["cells"])
    # The steps are those of a small layout with the same outcome.
    assert report["timelines_at"].startswith("pp 2 × dp 2 × tp 2 = 8 ranks")
    assert [timeline["parameter"] for timeline in report["timelines"]] == ["embedding.word_embeddings.weight", "output_layer.weight"]
    assert any("✗" in marks for *_, marks in report["timelines"][0]["steps"][-1]["cells"])
    page = lockstep("report", LARGE)
    assert f'<th scope="row">pp 0</th><td>1024</td><td class="bad">✗ {wrong[0]}</td>' in page


def cells(browser):
    rows = "article:not([hidden]) .board tbody tr"
    return browser.run("return [...document.querySelectorAll(arguments[0])].map((row) => [...row.querySelectorAll('td')]"
                       ".map((cell) => cell.querySelector('.f').textContent))", rows)


@needs_browser
def test_844_step_by_step_in_a_browser(page, browser):
    browser.open(f"{page.as_uri()}#file={BUG}&step=backward")
    tables = explained()
    assert browser.text("article:not([hidden]) .now strong") == "after backward"
    assert cells(browser) == tables["after backward"]
    # The scrubber, as the keyboard moves it.
    browser.type("article:not([hidden]) .player input", "\ue014")
    assert browser.text("article:not([hidden]) .now strong") == "after dp_reduce_scatter"
    assert cells(browser) == tables["after dp_reduce_scatter"]
    assert "step=dp_reduce_scatter" in browser.run("return location.hash")
    assert browser.run("return document.querySelectorAll('article:not([hidden]) .board svg > path').length") == 2
    browser.click("article:not([hidden]) .player button:last-child")
    assert cells(browser) == tables["after embedding_all_reduce"]
    assert browser.texts("article:not([hidden]) .board td.bad .rank") == ["rank 1\nowns", "rank 2\nowns"]
    spoken = browser.run("return document.querySelector('td[data-rank=\"1\"]').getAttribute('aria-label')")
    assert spoken == "rank 1: g3 + (g0+g1)/2, handed to the optimizer of this cell's rank, wrong"
    # Played from the beginning.
    browser.click("article:not([hidden]) .play")
    browser.wait("return document.querySelector('article:not([hidden]) .now strong').textContent === 'after zero'")
    browser.wait("return document.querySelector('article:not([hidden]) .now strong').textContent.startsWith('after backward')")
    assert browser.errors() == []


@needs_browser
def test_the_grid_of_ranks_by_keyboard(page, browser):
    browser.open(f"{page.as_uri()}#file={BUG}")
    grid = "article:not([hidden]) .grid td"
    assert browser.texts(grid) == ["✓ 0", "✗ 1", "✗ 2", "✓ 3"]
    browser.type(grid, "\ue014")
    assert "rank 1 · pp 0 · dp 1 · ✗ wrong: 1" in browser.text("article:not([hidden]) .who")
    assert "embedding.word_embeddings.weight" in browser.text("article:not([hidden]) .who")
    assert browser.run("return document.activeElement.getAttribute('aria-label')") == "pp 0, dp 1, rank 1, wrong"
    assert browser.errors() == []


@needs_browser
def test_the_list_filters_and_leads_to_scenarios(page, browser):
    browser.open(page.as_uri())
    assert browser.texts("article h2") == []
    assert len(browser.texts(".list tbody tr")) == 2
    browser.type("#filters input", "fixed")
    assert [row.split("\n")[-1] for row in browser.texts(".list td:nth-child(2)")] == [FIXED]
    assert browser.text("#filters output") == "1 of 2 shown"
    browser.run("const field = document.querySelector('#filters input'); field.value = '';"
                "field.dispatchEvent(new Event('input', { bubbles: true }))")
    browser.run("const field = document.querySelector('#filters select'); field.value = 'mismatch';"
                "field.dispatchEvent(new Event('input', { bubbles: true }))")
    assert [row.split("\n")[-1] for row in browser.texts(".list td:nth-child(2)")] == [BUG]
    browser.click(".list tbody tr:not([hidden]) a")
    browser.wait("return document.querySelector('#list').hidden")
    assert browser.text("article:not([hidden]) .now strong") == "after dp_reduce_scatter"
    browser.click("#navigation a")
    browser.wait("return !document.querySelector('#list').hidden")
    assert browser.errors() == []


@needs_browser
def test_a_page_of_the_whole_corpus_unpacks_what_it_shows(corpus, browser):
    browser.open(corpus.as_uri())
    assert browser.run("return [...document.querySelectorAll('.list tbody tr')].every((row) => row.querySelector('a'))")
    assert browser.run("return document.querySelector('#left-out').hidden")
    browser.type("#filters input", FIXED)
    browser.click(".list tbody tr:not([hidden]) a")
    shown = "article:not([hidden])"
    browser.wait(f"return document.querySelector('{shown} .now strong') !== null")
    assert browser.text(f"{shown} .meta code") == FIXED
    # From a deep link, and what stood there before scripts ran is replaced.
    browser.open(f"{corpus.as_uri()}#file={BUG}&step=embedding_all_reduce")
    browser.wait(f"return document.querySelector('{shown} .now strong') !== null")
    assert cells(browser) == explained()["after embedding_all_reduce"]
    assert browser.run(f"return document.querySelectorAll('article[data-file=\"{BUG}\"]').length") == 1
    assert browser.run("return document.title").startswith("Tied embedding all-reduced")
    browser.open(f"{corpus.as_uri()}#file={LARGE}")
    browser.wait(f"return document.querySelector('{shown} .grid.small') !== null")
    assert browser.run(f"return document.querySelectorAll('{shown} .grid td.bad').length") == 115
    browser.type(f"{shown} .grid td", "\ue014")
    assert "ranks 16-31 · pp 0 · dp 2-3 · " in browser.text(f"{shown} .who")
    browser.run(f"document.querySelector('{shown} .grid td.bad').focus()")
    assert re.search(r"✗ wrong: \d+ of 16, ", browser.text(f"{shown} .who"))
    assert browser.errors() == []


@needs_browser
def test_nothing_in_a_scenario_runs_in_the_browser(tmp_path, browser):
    (tmp_path / "hostile.json").write_text(HOSTILE)
    lockstep("report", "hostile.json", "-o", "hostile.html", cwd=tmp_path)
    browser.open((tmp_path / "hostile.html").as_uri())
    assert browser.run("return document.title").startswith("</script><script>")
    assert browser.text(".stage code").startswith("<img src=x")
    assert browser.errors() == []


@needs_browser
def test_a_narrow_window_needs_no_scrolling_sideways(page, browser):
    browser.size(500, 900)
    for part in ("", f"#file={BUG}"):
        browser.open(page.as_uri() + part)
        assert browser.run("return innerWidth") == 500
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), part or "the list"


def test_a_picture_of_the_ranks_before_and_after():
    picture = lockstep("explain", BUG, "-f", "svg")
    words = [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", picture)]
    tables = explained()
    for title in ("after backward", "after dp_reduce_scatter"):
        assert title in words
        for cell in sum(tables[title], []):
            assert cell in words
    assert words.index("after backward") < words.index("after dp_reduce_scatter")
    assert "one device has  (g0+g1+g2+g3)/2" in words
    assert lockstep("explain", BUG, "-f", "svg") == picture
