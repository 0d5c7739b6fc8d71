# SPDX-License-Identifier: Apache-2.0
"""The documents are true: their scenarios come out as they say, their commands print what they show, their links lead
somewhere. `LOCKSTEP_BINARY=… python3 tests/cli/test_docs.py` writes the outputs of all commands anew.

A ```json block has a comment before it: `<!-- verdict: match -->` for a whole scenario, `<!-- file: NAME -->` for another
file, `<!-- verdict: match, file: NAME -->` for a scenario that commands of the same document use. In a ```console block a
line that begins with `$ ` is a command, and what follows is its output. A ```sh block is commands alone. Commands run in
the repository's root, where the document's files seem to lie.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2])
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

BLOCK = re.compile(r"^(?P<marker><!-- [^\n]* -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
MARKER = re.compile(r"<!-- (?:verdict: (?P<verdict>\w+))?(?:, )?(?:file: (?P<file>[\w.-]+))? -->")
COMMAND = re.compile(r"^\$ (?P<command>[^\n]*)\n(?P<output>(?:(?!\$ )[^\n]*\n)*)", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)(?P<path>[^)#]*)(?:#(?P<anchor>[^)]*))?\)")
TIME = re.compile(r'"time": \{[^}]*\}')


def program():
    return os.environ["LOCKSTEP_BINARY"]


def name_of(document):
    return str(document.relative_to(ROOT))


class Block:
    def __init__(self, document, match, number):
        self.document = document
        self.name = f"{name_of(document)}-{number}"
        self.text = match["text"]
        self.marker = MARKER.fullmatch((match["marker"] or "").strip())

    def file(self):
        return self.marker["file"] or "block.jsonc"


def blocks_of(document, language):
    text = document.read_text(encoding="utf-8")
    found = [match for match in BLOCK.finditer(text) if match["language"] == language]
    return [Block(document, match, number) for number, match in enumerate(found, 1)]


def make_workplace(document, folder):
    """The repository's root, with the files of a document added."""
    for entry in ROOT.iterdir():
        (folder / entry.name).symlink_to(entry)
    for block in blocks_of(document, "json"):
        if block.marker and block.marker["file"]:
            assert not (folder / block.file()).is_symlink(), f"{block.file()} is a file of the repository"
            (folder / block.file()).write_text(block.text, encoding="utf-8")
    return folder


def run(arguments, folder):
    return subprocess.run([program(), *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)


SHELL_BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document, "sh")]
JSON_BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document, "json")]
COMMANDS = [(document, match) for document in DOCUMENTS for block in blocks_of(document, "console")
            for match in COMMAND.finditer(block.text)]


@pytest.mark.parametrize("block", JSON_BLOCKS, ids=lambda block: block.name)
def test_scenario_in_a_document_comes_out_as_it_says(block, tmp_path):
    assert block.marker, "a ```json block needs a comment before it; use ```jsonc for a fragment"
    if not block.marker["verdict"]:
        return
    folder = make_workplace(block.document, tmp_path)
    (folder / block.file()).write_text(block.text, encoding="utf-8")
    result = run(["check", "--format", "json", block.file()], folder)
    report = json.loads(result.stdout)
    assert (report["verdict"], report["errors"]) == (block.marker["verdict"], [])
    assert report["expected"] is not False, run(["test", block.file()], folder).stdout


@pytest.mark.parametrize("document, match", COMMANDS, ids=lambda value: value["command"] if isinstance(value, re.Match) else None)
def test_command_in_a_document_prints_what_it_shows(document, match, tmp_path):
    words = shlex.split(match["command"], comments=True)
    if words[0] != "tools/lockstep":
        assert is_command(words[0]) and match["output"].strip() == "", "only the output of tools/lockstep can be compared"
        return
    result = run(words[1:], make_workplace(document, tmp_path))
    assert result.returncode in (0, 1) and not result.stderr, result.stderr
    hint = "write the outputs anew: LOCKSTEP_BINARY=build/release/bin/lockstep python3 tests/cli/test_docs.py"
    assert TIME.sub("", match["output"]).strip() == TIME.sub("", result.stdout).strip(), hint


def is_command(word):
    return shutil.which(ROOT / word if "/" in word else word)


@pytest.mark.parametrize("block", SHELL_BLOCKS, ids=lambda block: block.name)
def test_commands_in_a_document_work_one_after_the_other(block, tmp_path):
    make_workplace(block.document, tmp_path)
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "tools/lockstep":
            result = run(words[1:], tmp_path)
            assert result.returncode in (0, 1), line + "\n" + result.stderr
        else:
            assert is_command(words[0]), f"there is no command {words[0]}"


def anchors_of(document):
    """As GitHub makes them from the headings."""
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_in_a_document_lead_somewhere(document):
    for match in LINK.finditer(document.read_text(encoding="utf-8")):
        target = document.parent / match["path"] if match["path"] else document
        assert target.exists(), match[0]
        if match["anchor"]:
            assert match["anchor"] in anchors_of(target), match[0]


def test_every_document_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for document in DOCUMENTS[1:]:
        assert document.name == "README.md" or f"]({document.name})" in index, document.name


def write_outputs_anew():
    for document in DOCUMENTS:
        with tempfile.TemporaryDirectory() as folder:
            workplace = make_workplace(document, Path(folder))

            def with_output(match):
                words = shlex.split(match["command"], comments=True)
                if words[0] != "tools/lockstep":
                    return match[0]
                return f"$ {match['command']}\n{run(words[1:], workplace).stdout}"

            def with_outputs(block):
                if block["language"] != "console":
                    return block[0]
                return f"```console\n{COMMAND.sub(with_output, block['text'])}```"

            text = document.read_text(encoding="utf-8")
            document.write_text(BLOCK.sub(with_outputs, text), encoding="utf-8")


if __name__ == "__main__":
    write_outputs_anew()
