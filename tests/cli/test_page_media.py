# SPDX-License-Identifier: Apache-2.0
"""The page of `lockstep report` in the dark, on paper and without a mouse, in a real browser."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from browser import Browser, missing

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2])
BUG = "scenarios/megatron/844.json"
# Right, wrong, two that end early, a large one whose grid is small, one with a mistake.
FILES = ["scenarios/megatron/844-fixed.json", BUG, "scenarios/trainverify/6-sent-to-the-wrong-rank.json",
         "scenarios/megatron/3670-scaling-races-reduction.json", "scenarios/scale/llama3-405b-tied-844.json"]
pytestmark = pytest.mark.skipif(missing() != "", reason=missing() or "-")

# Texts that stand out too little from what is behind them, as the Web Content Accessibility Guidelines 2.2 reckon it
# (1.4.3): 4.5 to 1, for large letters 3 to 1. What is disabled does not count.
CONTRASTS = """
const channels = (text) => {
  const numbers = text.match(/[\\d.]+/g).map(Number);
  return { rgb: numbers.slice(0, 3), alpha: numbers.length > 3 ? numbers[3] : 1 };
};
const over = (top, below) => top.rgb.map((value, at) => value * top.alpha + below[at] * (1 - top.alpha));
const behind = (element) => {
  if (element === null) return channels(getComputedStyle(document.documentElement).colorScheme.includes('dark') && arguments[0] ? 'rgb(18, 18, 18)' : 'rgb(255, 255, 255)').rgb;
  const colour = channels(getComputedStyle(element).backgroundColor);
  return colour.alpha === 1 ? colour.rgb : over(colour, behind(element.parentElement));
};
const light = (rgb) => {
  const [r, g, b] = rgb.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const weak = [];
let looked = 0;
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest('script, style, option, .sr, .skip, :disabled')) continue;
  const style = getComputedStyle(element);
  const back = behind(element);
  const front = over(channels(style.color), back);
  const [dark, bright] = [light(front), light(back)].sort((a, b) => a - b);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const ratio = (bright + 0.05) / (dark + 0.05);
  looked += 1;
  if (ratio < (large ? 3 : 4.5)) weak.push(`${texts.currentNode.data.trim().slice(0, 40)}: ${ratio.toFixed(2)} (${style.color} on ${back.map(Math.round)})`);
}
return [looked, [...new Set(weak)]];
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("media")
    (folder / "mistake.json").write_text((ROOT / BUG).read_text(encoding="utf-8").replace('"layout"', '"layuot"'), encoding="utf-8")
    done = subprocess.run([os.environ["LOCKSTEP_BINARY"], "report", *FILES, folder / "mistake.json", "-o", folder / "report.html"],
                          cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    return folder / "report.html"


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


def addresses(page):
    """Of the list and of each scenario."""
    files = re.findall(r'id="(file=[^"]*)"', page.read_text(encoding="utf-8"))
    assert len(files) == len(FILES) + 1
    return [page.as_uri(), *(f"{page.as_uri()}#{file}" for file in files)]


def opened(browser, address):
    browser.open(address)
    browser.wait("return document.querySelector('#list').hidden === location.hash.startsWith('#file=')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out(page, browser, scheme):
    browser.media(scheme=scheme)
    papers = set()
    for address in addresses(page):
        opened(browser, address)
        browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        looked, weak = browser.run(CONTRASTS, scheme == "dark")
        assert looked > 20 and weak == [], address
        papers.add(browser.run("return getComputedStyle(document.body).backgroundColor"))
    assert papers == {"rgb(20, 22, 27)" if scheme == "dark" else "rgb(251, 250, 247)"}


CONTROLS = "button, input, select, nav, .player, .chips, .choose, .who, .skip, #filters, footer"


def test_paper_has_all_sections_and_no_controls(page, browser):
    browser.media(scheme="dark")
    for address in addresses(page):
        opened(browser, address)
        sections = "article:not([hidden]) section:not([hidden]), article:not([hidden]) header, #list:not([hidden])"
        details = "return [...document.querySelectorAll('details')].map((one) => one.open)"
        folded = browser.run(details)
        before = browser.run("return [...document.querySelectorAll(arguments[0])].map((one) => one.className || one.id)", sections)
        assert before
        pdf = browser.pdf()
        assert pdf.startswith(b"%PDF-") and len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 1
        # What was opened for the paper is closed again.
        assert browser.run(details) == folded, address
        browser.media("print", "dark")
        browser.run("dispatchEvent(new Event('beforeprint'))")
        assert browser.texts(CONTROLS) == [], address
        shown = browser.run("return [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility() && one.innerText.trim())"
                            ".map((one) => one.className || one.id)", sections)
        assert shown == before, address
        assert browser.run("return [...document.querySelectorAll('article:not([hidden]) details')].every((one) => one.open &&"
                           " [...one.children].every((part) => part.checkVisibility()))"), address
        looked, weak = browser.run(CONTRASTS, False)
        assert looked > 20 and weak == [], address
        # Nothing is cut off where one would scroll on a screen, on A4 less its margins.
        browser.size(718, 1000)
        assert browser.run("return [...document.querySelectorAll('*')].filter((one) => one.clientWidth > 1 && one.scrollWidth > one.clientWidth"
                           " && getComputedStyle(one).overflowX !== 'visible').map((one) => one.outerHTML.slice(0, 80))") == [], address
        parameters = browser.texts("article:not([hidden]) .stage > p code")
        assert len(parameters) == browser.run("return document.querySelectorAll('article:not([hidden]) .stage:not([hidden])').length")
        assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        browser.run("dispatchEvent(new Event('afterprint'))")
        browser.media(scheme="dark")
    assert browser.errors() == []


def test_paper_has_the_colours_of_light(page, browser):
    """The bars are drawn by the script, which has to notice."""
    bars = ("return [...document.querySelectorAll('article:not([hidden]) .bar span')].map((one) => one.style.backgroundImage)")
    drawn = {}
    for scheme in ("light", "dark"):
        browser.media(scheme=scheme)
        opened(browser, f"{page.as_uri()}#file={BUG}")
        drawn[scheme] = browser.run(bars)
    assert drawn["light"] != drawn["dark"] and len(drawn["light"]) > 4
    browser.run("addEventListener('beforeprint', () => { window.printed = [...document.querySelectorAll("
                "'article:not([hidden]) .bar span')].map((one) => one.style.backgroundImage); })")
    browser.pdf()
    assert browser.run("return window.printed") == drawn["light"]
    assert browser.run(bars) == drawn["dark"]


TAB, ENTER, SPACE, LEFT, RIGHT, END = "\ue004", "\ue007", " ", "\ue012", "\ue014", "\ue010"
FOCUS = "const one = document.activeElement; "


def tab_to(browser, selector, most=200):
    for _ in range(most):
        browser.press(TAB)
        if browser.run(FOCUS + "return one.matches(arguments[0])", selector):
            return
    raise AssertionError(f"no {selector} on the way")


def test_all_of_it_without_a_mouse(page, browser):
    opened(browser, page.as_uri())
    browser.press(TAB)
    assert browser.run(FOCUS + "return one.className") == "skip"
    assert browser.run(FOCUS + "const box = one.getBoundingClientRect(); return box.left >= 0 && box.width > 0")
    tab_to(browser, "#filters input")
    browser.press(*"megatron/844.json")
    assert browser.text("#filters output") == f"1 of {len(FILES) + 1} shown"
    tab_to(browser, ".list a")
    browser.press(ENTER)
    browser.wait("return document.querySelector('#list').hidden")
    assert browser.run(FOCUS + "return one.tagName") == "H2"
    inside = "article:not([hidden]) "
    tab_to(browser, inside + ".grid td")
    browser.press(RIGHT)
    assert "rank 1" in browser.text(inside + ".who")
    tab_to(browser, inside + ".play")
    # From the step at fault to the end, and from there again from the beginning.
    browser.press(SPACE)
    browser.wait(f"return document.querySelector('{inside}.now strong').textContent === 'after embedding_all_reduce'")
    browser.wait(f"return document.querySelector('{inside}.play').textContent.endsWith('Play')")
    browser.press(SPACE)
    browser.wait(f"return document.querySelector('{inside}.now strong').textContent === 'after zero'")
    browser.press(SPACE)
    assert browser.text(inside + ".play").endswith("Play")
    tab_to(browser, inside + ".player input")
    browser.press(END)
    assert browser.text(inside + ".now strong") == "after embedding_all_reduce"
    browser.press(LEFT)
    assert browser.text(inside + ".now strong") == "after dp_reduce_scatter"
    tab_to(browser, inside + ".chips li:last-child button")
    browser.press(ENTER)
    assert browser.text(inside + ".now strong") == "after embedding_all_reduce"
    tab_to(browser, inside + "summary")
    browser.press(ENTER)
    assert browser.run(FOCUS + "return one.parentElement.open")
    assert browser.errors() == []


def test_the_tab_key_reaches_every_control_and_shows_where_it_is(page, browser):
    controls = ("return [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex=\"0\"]')]"
                ".filter((one) => one.checkVisibility() && !one.disabled).length")
    for address in (page.as_uri(), f"{page.as_uri()}#file={BUG}"):
        opened(browser, address)
        wanted = browser.run(controls)
        browser.run("window.seen = new Set()")
        for _ in range(wanted + 1):  # once it leaves the page
            browser.press(TAB)
            if browser.run(FOCUS + "return one === document.body"):
                continue
            assert browser.run(FOCUS + "window.seen.add(one); const style = getComputedStyle(one); return one.matches(':focus-visible')"
                               " && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2"), \
                browser.run(FOCUS + "return one.outerHTML.slice(0, 200)")
        assert browser.run("return window.seen.size") == wanted


# Of what one can press or point at: width and height, where one of them is less than 24 pixels (2.5.8 of the same guidelines).
SMALL = """
return [...document.querySelectorAll('a, button, summary, input, select, .grid:not(.small) td')].filter((one) => one.checkVisibility() && !one.matches('.skip'))
  .map((one) => [one.outerHTML.slice(0, 80), one.getBoundingClientRect()]).filter(([, box]) => box.width < 24 || box.height < 24)
  .map(([text, box]) => `${text}: ${box.width} x ${box.height}`)
"""
# Where something is that cannot be seen without scrolling sideways, in its box or in the page.
CUT_OFF = """
return [...document.querySelectorAll('article:not([hidden]) .findings :is(.got, .got + td) code')].map((one) => one.getBoundingClientRect())
  .filter((box) => box.left < 0 || box.right > innerWidth).length
"""


@pytest.mark.parametrize("width", [390, 1200])
def test_on_a_telephone_both_gradients_are_seen_and_everything_can_be_pressed(page, browser, width):
    browser.size(width, 844)
    for fragment in ["", *(f"#file={file}" for file in FILES)]:
        opened(browser, page.as_uri() + fragment)
        assert browser.run(SMALL) == [], fragment
        assert browser.run(CUT_OFF) == 0, fragment
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), fragment
    opened(browser, page.as_uri() + f"#file={BUG}")
    boxes = browser.run("return ['.got', '.got + td'].map((one) => { const box = document.querySelector('article:not([hidden]) .findings ' + one)"
                        ".getBoundingClientRect(); return [box.left, box.top]; })")
    assert (boxes[0][0] == boxes[1][0]) == (width == 390) and (boxes[0][1] == boxes[1][1]) == (width == 1200)


def test_the_name_of_a_run_is_as_long_as_it_likes_on_a_telephone(browser, tmp_path):
    run = tmp_path / "captured-in-a-folder-whose-name-is-longer-than-a-telephone-is-wide"
    run.symlink_to(ROOT / "tests/live/runs/left-out")
    wrong = subprocess.run([os.environ["LOCKSTEP_BINARY"], "verify", run, "-f", "html", "-o", tmp_path / "run.html"], stdin=subprocess.DEVNULL, check=False)
    assert wrong.returncode == 1
    browser.size(390, 844)
    browser.open((tmp_path / "run.html").as_uri())
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")


def test_arrow_keys_work_at_once(page, browser):
    now = "article:not([hidden]) .now strong"
    opened(browser, page.as_uri() + f"#file={BUG}")
    assert browser.text(now) == "after dp_reduce_scatter"
    browser.press(RIGHT)
    assert browser.text(now) == "after embedding_all_reduce"
    browser.press(LEFT, LEFT)
    assert browser.text(now) == "after backward"
    # What has a use of its own for them keeps it.
    browser.run("document.querySelector('article:not([hidden]) .grid td').focus()")
    browser.press(RIGHT)
    assert browser.text(now) == "after backward"
    opened(browser, page.as_uri())
    browser.press(RIGHT)
    assert browser.text("#filters output").endswith("shown") and browser.errors() == []
