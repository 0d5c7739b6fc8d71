# SPDX-License-Identifier: Apache-2.0
"""The documents are true: their scenarios come out as they say, their commands print what they show, their links lead
somewhere. `LOCKSTEP_BINARY=… python3 tests/cli/test_docs.py` writes the outputs of all commands anew.

A ```json block has a comment before it: `<!-- verdict: match -->` for a whole scenario, `<!-- file: NAME -->` for another
file, `<!-- verdict: match, file: NAME -->` for a scenario that commands further down in the same document use; the verdict
is `error` where it must be refused. In a
```console block a line that begins with `$ ` is a command, and what follows is what a terminal shows. A ```sh block is
commands alone, a ```bash block with a comment before it a file. The commands of a block run one after the other in a folder that looks like the repository's root, with
the files that stand above the block.
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
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "frameworks").glob("*.md")),
             *sorted((ROOT / "docs" / "rules").glob("*.md"))]

BLOCK = re.compile(r"^(?P<marker><!-- [^\n]* -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
MARKER = re.compile(r"<!-- (?:verdict: (?P<verdict>\w+))?(?:, )?(?:file: (?P<file>[\w.-]+))? -->")
COMMAND = re.compile(r"^\$ (?P<command>[^\n]*)\n(?P<output>(?:(?!\$ )[^\n]*\n)*)", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)(?P<path>[^)#]*)(?:#(?P<anchor>[^)]*))?\)")
TIME = re.compile(r'"time": \{[^}]*\}')


def program():
    return os.environ["LOCKSTEP_BINARY"]


def name_of(document):
    return str(document.relative_to(ROOT))


def is_shown(output, said):
    """Whether a document's output is what was said. A line "…" in it stands for lines that it leaves out."""
    parts = re.split(r"^…\n", TIME.sub("", output).strip() + "\n", flags=re.MULTILINE)
    return re.fullmatch("(?:.*\\n)+?".join(map(re.escape, parts)), TIME.sub("", said).strip() + "\n") is not None


class Block:
    def __init__(self, document, match, number):
        self.document = document
        self.name = f"{name_of(document)}-{number}"
        self.position = match.start()
        self.text = match["text"]
        self.marker = MARKER.fullmatch((match["marker"] or "").strip())

    def file(self):
        return self.marker["file"] or "block.jsonc"


def blocks_of(document, language):
    text = document.read_text(encoding="utf-8")
    found = [match for match in BLOCK.finditer(text) if match["language"] == language]
    return [Block(document, match, number) for number, match in enumerate(found, 1)]


def make_workplace(document, folder, end=None):
    """The repository's root, with the files of a document added, or of its text up to `end`."""
    for entry in ROOT.iterdir():
        (folder / entry.name).symlink_to(entry)
    for block in [*blocks_of(document, "json"), *blocks_of(document, "bash")]:
        if block.marker and block.marker["file"] and (end is None or block.position < end):
            assert not (folder / block.file()).is_symlink(), f"{block.file()} is a file of the repository"
            (folder / block.file()).write_text(block.text, encoding="utf-8")
    return folder


def run(arguments, folder):
    return subprocess.run([program(), *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def shown(arguments, folder):
    """What a terminal shows: standard output and standard error together."""
    return subprocess.run([program(), *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


def refused_in(document):
    """The files of a document that are there to be refused."""
    return {block.file() for block in blocks_of(document, "json") if block.marker and block.marker["verdict"] == "error"}


SHELL_BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document, "sh")]
JSON_BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document, "json")]
CONSOLE_BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document, "console")]


@pytest.mark.parametrize("block", JSON_BLOCKS, ids=lambda block: block.name)
def test_scenario_in_a_document_comes_out_as_it_says(block, tmp_path):
    assert block.marker, "a ```json block needs a comment before it; use ```jsonc for a fragment"
    if not block.marker["verdict"]:
        return
    folder = make_workplace(block.document, tmp_path)
    (folder / block.file()).write_text(block.text, encoding="utf-8")
    result = run(["check", "--format", "json", block.file()], folder)
    report = json.loads(result.stdout)
    assert report["verdict"] == block.marker["verdict"] and bool(report["errors"]) == (report["verdict"] == "error"), report["errors"]
    assert report["expected"] is not False, run(["test", block.file()], folder).stdout


@pytest.mark.parametrize("block", CONSOLE_BLOCKS, ids=lambda block: block.name)
def test_commands_in_a_document_print_what_it_shows(block, tmp_path):
    hint = "write the outputs anew: LOCKSTEP_BINARY=build/release/bin/lockstep python3 tests/cli/test_docs.py"
    make_workplace(block.document, tmp_path, block.position)
    commands = list(COMMAND.finditer(block.text))
    assert commands, "a ```console block needs a command, a line that begins with `$ `"
    for match in commands:
        words = shlex.split(match["command"], comments=True)
        if words[0] != "tools/lockstep":
            assert is_command(words[0]) and match["output"].strip() == "", "only the output of tools/lockstep can be compared"
            continue
        result = shown(words[1:], tmp_path)
        assert result.returncode in ((2,) if refused_in(block.document) & set(words) else (0, 1)), result.stdout
        assert is_shown(match["output"], result.stdout), f"{hint}\n{result.stdout}"


def is_command(word):
    return shutil.which(ROOT / word if "/" in word else word)


SHOWN = {tuple(shlex.split(match["command"], comments=True)) for block in CONSOLE_BLOCKS for match in COMMAND.finditer(block.text)}


def is_run_elsewhere(words):
    """Commands on the repository's files that take seconds: a ```console block shows the same, or it is a part of the corpus, of which
    tests/scenarios/test_scenarios.py runs all."""
    files = [word for word in words[2:] if not word.startswith("-")]
    known = words[0] == "tools/lockstep" and files and all((ROOT / file).exists() for file in files)
    return known and (tuple(words) in SHOWN or len(words) == 3 and words[1] == "test" and files[0].startswith("scenarios/"))


def test_most_commands_are_run_in_their_block():
    commands = [shlex.split(line, comments=True) for block in SHELL_BLOCKS for line in block.text.splitlines()]
    elsewhere = [words for words in commands if is_run_elsewhere(words)]
    assert 0 < len(elsewhere) < len(commands) / 4 and not any(word.startswith("-") for words in elsewhere for word in words)


@pytest.mark.parametrize("block", SHELL_BLOCKS, ids=lambda block: block.name)
def test_commands_in_a_document_work_one_after_the_other(block, tmp_path):
    make_workplace(block.document, tmp_path, block.position)
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "tools/lockstep":
            if is_run_elsewhere(words):
                continue
            result = run(words[1:], tmp_path)
            assert result.returncode in (0, 1), line + "\n" + result.stderr
        else:
            assert is_command(words[0]), f"there is no command {words[0]}"


def test_what_a_document_leaves_out_is_marked():
    said = "one\ntwo\nthree\n"
    for output in ("one\ntwo\nthree\n", "…\nthree\n", "one\n…\n", "one\n…\nthree\n"):
        assert is_shown(output, said), output
    for output in ("one\n", "three\n", "one\nthree\n", "…\nfour\n…\n", "one\n…\ntwo\nthree\n", "tw\n…\nthree\n"):
        assert not is_shown(output, said), output


def anchors_of(document):
    """As GitHub makes them from the headings."""
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_in_a_document_lead_somewhere(document):
    text = re.sub(r"`[^`\n]*`", "", document.read_text(encoding="utf-8"))  # in code a bracket is no link
    for match in LINK.finditer(text):
        target = document.parent / match["path"] if match["path"] else document
        assert target.exists(), match[0]
        if match["anchor"]:
            assert match["anchor"] in anchors_of(target), match[0]


def test_every_document_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for document in DOCUMENTS[1:]:
        path = document.relative_to(ROOT / "docs").as_posix()
        if document.parent.name == "rules" and document.name != "README.md":
            continue  # in the index of the rules (test_rules.py)
        assert path == "README.md" or f"]({path})" in index, path


def test_tutorial_has_ten_steps_that_each_run_something_and_name_the_files_to_write():
    tutorial = ROOT / "docs" / "tutorial.md"
    text = tutorial.read_text(encoding="utf-8")
    steps = re.split(r"^## (?=\d)", text, flags=re.MULTILINE)[1:]
    assert [step.split(".")[0] for step in steps] == [str(number) for number in range(1, 11)]
    for step in steps:
        assert "```console\n$ tools/lockstep " in step, step.splitlines()[0]
    for block in blocks_of(tutorial, "json"):
        assert f"`{block.file()}`" in text[: block.position], f"the reader is not told to save {block.file()}"


def write_outputs_anew():
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")

        def with_outputs(block):
            if block["language"] != "console":
                return block[0]
            with tempfile.TemporaryDirectory() as folder:
                workplace = make_workplace(document, Path(folder), block.start())

                def with_output(match):
                    words = shlex.split(match["command"], comments=True)
                    if words[0] != "tools/lockstep":
                        return match[0]
                    output = shown(words[1:], workplace).stdout
                    if is_shown(match["output"], output):
                        return match[0]
                    if "\n…\n" in "\n" + match["output"]:
                        print(f"{name_of(document)}: `{match['command']}` is shown in part: write it anew by hand")
                        return match[0]
                    return f"$ {match['command']}\n{output}"

                return f"```console\n{COMMAND.sub(with_output, block['text'])}```"

        document.write_text(BLOCK.sub(with_outputs, text), encoding="utf-8")


if __name__ == "__main__":
    write_outputs_anew()
