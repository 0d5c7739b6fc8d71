# SPDX-License-Identifier: Apache-2.0
"""Every sentence of the two format documents has a test: sentences.md maps one to the other.

A sentence is known by a short hash of its text, so that a changed one is missed here. The documents do not lie in this
repository; LOCKSTEP_CONTRACTS names the folder that holds them.
"""

import hashlib
import os
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DOCUMENTS = ("scenario-format.md", "report-format.md")
ENTRY = re.compile(r"^- `([0-9a-f]{8})` (.+):$")
TEST = re.compile(r"^  - `(test_\w+)`$")


def normalised(text):
    return " ".join(text.split())


def hash_of(text):
    return hashlib.sha256(normalised(text).encode()).hexdigest()[:8]


def cut(text):
    """The sentences of a paragraph; what stands in backquotes is never cut."""
    quoted = []

    def hide(match):
        quoted.append(match.group(0))
        return f"\0{len(quoted) - 1}\0"

    hidden = re.sub(r"`[^`]*`", hide, normalised(text))
    parts = re.split(r"(?<=[.!?])\s+(?=[A-Z\0\"(*…])|(?<=[.!?]\))\s+(?=[A-Z\0\"(*…])", hidden)
    return [
        re.sub("\0(\\d+)\0", lambda match: quoted[int(match.group(1))], part).strip() for part in parts if part.strip()
    ]


def sentences(text):
    """All of a document, in order: those of paragraphs and list items, of each table row below its first cell, and of
    each example the whole and every line with a comment."""
    result, paragraph, example = [], [], None

    def end_paragraph():
        result.extend(cut(" ".join(paragraph)))
        paragraph.clear()

    for line in text.splitlines():
        if example is not None:
            if line.startswith("```"):
                result.append("\n".join(example))
                result.extend(inside.strip() for inside in example if re.search(r"\s//\s", inside))
                example = None
            else:
                example.append(line)
        elif line.startswith("```"):
            end_paragraph()
            example = []
        elif line.startswith("|"):
            end_paragraph()
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if cells[0].startswith("`"):
                result.extend(f"{cells[0]}: {part}" for part in cut(" | ".join(cells[1:])))
        elif not line.strip() or line.startswith("#"):
            end_paragraph()
        else:
            if re.match(r"[-*] ", line):
                end_paragraph()
            paragraph.append(re.sub(r"^[-*] ", "", line))
    end_paragraph()
    return result


def read_list():
    """[(hash or None, words, [tests])]: None for tests of no sentence."""
    entries = []
    for number, line in enumerate((HERE / "sentences.md").read_text(encoding="utf-8").splitlines(), 1):
        if match := ENTRY.match(line):
            entries.append((match.group(1), match.group(2), []))
        elif line.startswith("- "):
            entries.append((None, line[2:].rstrip(":"), []))
        elif match := TEST.match(line):
            entries[-1][2].append(match.group(1))
        else:
            assert not line.startswith(("-", " ")), f"sentences.md:{number}: neither a sentence nor a test"
    return entries


def folder_tests():
    return [
        name
        for path in sorted(HERE.glob("test_*.py"))
        if path != Path(__file__)
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def test_test_names_are_unique():
    names = folder_tests()
    assert len(names) > 200
    assert sorted(set(names)) == sorted(names)


def test_every_sentence_of_the_list_has_a_test_that_exists():
    names = set(folder_tests())
    for identity, words, tests in read_list():
        assert tests, f"{identity} {words}: no test"
        assert not set(tests) - names, f"{identity} {words}: no such test: {set(tests) - names}"


def test_every_test_is_named_by_the_list():
    named = {test for _, _, tests in read_list() for test in tests}
    assert not set(folder_tests()) - named


def test_no_sentence_is_in_the_list_twice():
    identities = [identity for identity, _, _ in read_list() if identity]
    assert len(set(identities)) == len(identities)


@pytest.mark.skipif(
    "LOCKSTEP_CONTRACTS" not in os.environ, reason="LOCKSTEP_CONTRACTS does not name the folder of the format documents"
)
def test_every_sentence_of_the_documents_is_in_the_list_and_in_order():
    folder = Path(os.environ["LOCKSTEP_CONTRACTS"])
    found = [sentence for name in DOCUMENTS for sentence in sentences((folder / name).read_text(encoding="utf-8"))]
    assert len(found) > 100
    listed = [identity for identity, _, _ in read_list() if identity]
    for sentence in found:
        assert hash_of(sentence) in listed, f"{hash_of(sentence)} is not in sentences.md: {sentence}"
    assert [hash_of(sentence) for sentence in found] == listed


def test_sentences_are_cut_at_their_ends_alone():
    text = "# Title\nOne `a. B` here: yes. Two (e. g. this)\ngoes on. `three` too!\n\n| key | meaning |\n|---|---|\n| `x` | First. Second |\n- item. Next\n```\nwhole\nline // why\n```\n"
    assert sentences(text) == [
        "One `a. B` here: yes.",
        "Two (e. g. this) goes on.",
        "`three` too!",
        "`x`: First.",
        "`x`: Second",
        "item.",
        "Next",
        "whole\nline // why",
        "line // why",
    ]
