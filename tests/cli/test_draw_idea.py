# SPDX-License-Identifier: Apache-2.0
"""The picture of README.md is what tools/draw_idea draws, and shows what the program computes for #844."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2])
PICTURE = ROOT / "docs" / "images" / "idea.svg"
SCENARIO = "scenarios/megatron/844.json"
SVG = "{http://www.w3.org/2000/svg}"


def report(*arguments):
    command = [os.environ["LOCKSTEP_BINARY"], *arguments, "--format", "json", SCENARIO]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout)


def texts(kind):
    """The texts of one class, in the order in which they are drawn."""
    return [text.text for text in ElementTree.parse(PICTURE).iter(SVG + "text") if kind in text.get("class").split()]


def test_the_picture_is_what_the_script_draws():
    drawn = subprocess.run([sys.executable, ROOT / "tools" / "draw_idea"], capture_output=True, check=True).stdout
    assert drawn == PICTURE.read_bytes(), "draw it anew: tools/draw_idea > docs/images/idea.svg"


def test_the_picture_shows_what_the_program_computes():
    after = {step["after"]: step["ranks"] for step in report("explain")["steps"]}
    scattered, summed = after["dp_reduce_scatter"], after["embedding_all_reduce"]
    wrong = [parameter["ranks"][0]["pieces"][0]["formula"] for parameter in report("check")["parameters"]]
    expected = report("check")["parameters"][0]["reference"]["formula"]
    held = [rank["formula"] for rank in [*after["backward"], *scattered, *summed]]
    assert texts("formula") == [*held, expected, *wrong]

    marks = [{(True, False): "stale", (False, False): "owned", (False, True): "owned ✗"}[rank["stale"], rank["wrong"]]
             for rank in [*scattered, *summed]]
    assert [text for text in texts("end") if text] == [*marks, "expected ✓"]


def test_the_picture_cuts_the_buffers_where_the_program_cuts_them():
    script = (ROOT / "tools" / "draw_idea").read_text(encoding="utf-8")
    found = []
    for stage in report("show")["geometry"]:
        embedding = next(item for item in stage["parameters"] if item["numel"] == 50257 * 768)
        found.append((stage["buckets"][-1]["end"], embedding["begin"], embedding["end"]))
    assert f"BUFFERS = {found}\n" in script


def test_the_picture_can_be_read_by_a_screen_reader_and_in_the_dark():
    picture = ElementTree.parse(PICTURE).getroot()
    assert picture.find(SVG + "title").text and "g3 + (g0+g1)/2" in picture.find(SVG + "desc").text
    light, dark = picture.find(SVG + "style").text.split("@media (prefers-color-scheme: dark)")
    coloured = re.findall(r"^(\S+) \{[^}]*#[0-9a-f]{6}", light, re.MULTILINE)
    assert coloured and all(f"\n{name} {{" in dark for name in coloured)
