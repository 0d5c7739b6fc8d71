# SPDX-License-Identifier: Apache-2.0
"""Every passage of the two format documents has a test: passages.md maps one to the other.

A passage is a paragraph, an item of a list, a row of a table or a block of text. It is known by a short hash of its text,
so that a changed one is missed here. Blocks of scenarios and of commands are left out: tests/cli/test_docs.py runs them.
"""

import hashlib
import os
import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or HERE.parents[1])
DOCUMENTS = ("scenario-format.md", "report-format.md")
NOTHING = " (nothing to hold)"
PASSAGE = re.compile(r"^- `([0-9a-f]{8})` (.+)$")
TEST = re.compile(r"^  - `([\w/.]+)`$")


def hash_of(text):
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:8]


def passages(text):
    """All of a document, in order."""
    result, paragraph, row = [], [], 0
    block, language = None, ""

    def end_paragraph():
        if paragraph:
            result.append(" ".join(paragraph))
        paragraph.clear()

    for line in text.splitlines():
        in_table, is_item = line.startswith("|"), re.match(r"[-*] ", line)
        row = row + 1 if in_table and block is None else 0
        if block is not None:
            if not line.startswith("```"):
                block.append(line)
                continue
            if language in ("text", "jsonc"):
                result.append("\n".join(block))
            block = None
        elif line.startswith("```"):
            end_paragraph()
            block, language = [], line[3:]
        elif in_table:
            end_paragraph()
            if row > 2:  # below the heads of the columns and the line under them
                result.append(line)
        elif not line.strip() or line.startswith(("#", "<!--")):
            end_paragraph()
        else:
            if is_item:
                end_paragraph()
            paragraph.append((line[2:] if is_item else line).strip())
    end_paragraph()
    return result


def read_list():
    """[(hash or None, words, [tests])]: None for tests of no passage."""
    entries = []
    for number, line in enumerate((HERE / "passages.md").read_text(encoding="utf-8").splitlines(), 1):
        if match := PASSAGE.match(line):
            entries.append((match[1], match[2], []))
        elif line.startswith("- "):
            entries.append((None, line[2:], []))
        elif match := TEST.match(line):
            entries[-1][2].append(match[1])
        else:
            assert not line.startswith(("-", " ")), f"passages.md:{number}: neither a passage nor a test"
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


def test_every_passage_of_the_list_has_a_test_that_exists_or_says_that_there_is_nothing_to_hold():
    names = set(folder_tests())
    for identity, words, tests in read_list():
        assert words.endswith(":" if tests else NOTHING), f"{identity} {words}: {len(tests)} tests"
        for test in tests:
            assert test in names or ("/" in test and (ROOT / test).is_file()), f"{identity} {words}: no such test: {test}"


def test_every_test_is_named_by_the_list():
    named = {test for _, _, tests in read_list() for test in tests}
    assert not set(folder_tests()) - named


def test_every_passage_of_the_documents_is_in_the_list_and_in_order():
    found = [passage for name in DOCUMENTS for passage in passages((ROOT / "docs" / name).read_text(encoding="utf-8"))]
    assert len(found) > 100
    listed = [identity for identity, _, _ in read_list() if identity]
    for passage in found:
        assert hash_of(passage) in listed, f"{hash_of(passage)} is not in passages.md: {passage}"
    assert [hash_of(passage) for passage in found] == listed


def test_passages_are_paragraphs_items_rows_and_blocks_of_text():
    text = (
        "# Title\nOne. Two\ngoes on.\n\n| key | meaning |\n|---|---|\n| `x` | First. |\n| y | Second |\n\n- item. Next\n"
        "  line\n- last\n```text\nwhole\n\nblock\n```\n<!-- verdict: match -->\n```json\n| no |\n```\nEnd.\n"
    )
    assert passages(text) == [
        "One. Two goes on.",
        "| `x` | First. |",
        "| y | Second |",
        "item. Next line",
        "last",
        "whole\n\nblock",
        "End.",
    ]
