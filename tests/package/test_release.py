# SPDX-License-Identifier: Apache-2.0
"""tools/release: what it refuses, what does not change from one run to the next, and, with tools/nightly, a whole release of a copy."""

import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("LOCKSTEP_SOURCE_DIR") or Path(__file__).resolve().parents[2])
WHO = ["-c", "user.name=somebody", "-c", "user.email=somebody@localhost", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder, *arguments):
    subprocess.run(["git", *WHO, *arguments], cwd=folder, check=True, capture_output=True)


def committed(folder, subject, *tags):
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", subject, "--allow-empty")
    for tag in tags:
        git(folder, "tag", "-am", tag, tag)


@pytest.fixture
def repository(tmp_path):
    """A repository with the tool, and nothing to build: tags v0.1.0, v0.2.0, and v0.9.0 on a tree that says 0.2.0."""
    folder = tmp_path / "repository"
    (folder / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "release", folder / "tools" / "release")
    git(folder, "init", "-q")
    (folder / "CMakeLists.txt").write_text("project(lockstep VERSION 0.1.0)\n")
    committed(folder, "The first", "v0.1.0")
    (folder / "CMakeLists.txt").write_text("project(lockstep VERSION 0.2.0)\n")
    committed(folder, "A change")
    committed(folder, "Another change", "v0.2.0", "v0.9.0")
    return folder


def called(repository, *arguments):
    done = subprocess.run([repository / "tools" / "release", *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def module(repository):
    loader = importlib.machinery.SourceFileLoader("release_tool", str(repository / "tools" / "release"))
    tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("release_tool", loader))
    loader.exec_module(tool)
    return tool


def test_what_is_no_release_is_refused_with_a_sentence(repository, tmp_path):
    assert called(repository, "v0.3.0") == (2, "release: there is no tag v0.3.0; the newest is v0.9.0\n")
    assert called(repository, "v0.9.0") == (
        2, "release: the tree of v0.9.0 says that it is version 0.2.0 (CMakeLists.txt): tag it v0.2.0, or change that\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("")
    status, said = called(repository, "v0.2.0", "-o", tmp_path / "full")
    assert status == 2 and said.endswith("full is not empty; name another folder with -o, or remove it\n")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["kept"]


def test_a_tag_has_one_source_archive_and_its_notes_have_what_changed(repository, tmp_path):
    tool = module(repository)
    (repository / "CMakeLists.txt").write_text("not of the tag\n")
    archives = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        archives.append(tool.source_archive("v0.2.0", "0.2.0", tmp_path / name))
    assert archives[0].name == "lockstep-0.2.0.tar.gz" and archives[0].read_bytes() == archives[1].read_bytes()
    text = subprocess.run(["tar", "xzOf", archives[0], "lockstep-0.2.0/CMakeLists.txt"], capture_output=True, text=True, check=True).stdout
    assert text == "project(lockstep VERSION 0.2.0)\n"
    notes = tool.notes("v0.2.0", "0.2.0", archives[:1], {"lockstep-0.2.0.tar.gz": "not at all"})
    assert notes.endswith("## Changes since v0.1.0\n\n- Another change\n- A change\n") and "| not at all | `" in notes


def test_a_program_that_does_not_work_alone_is_no_release(repository, tmp_path):
    """The program of a wheel gets the C library and nothing else of the machine."""
    tool = module(repository)
    if not tool.can_change_root():
        pytest.skip("the root may not be changed here")
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy("/bin/true", root / "true")
    assert tool.in_a_root(root, "/true", tool.libraries_of("/bin/true")).startswith("status 0: ")  # it runs, and says nothing
    assert tool.in_a_root(tmp_path / "root", "/none", []) != ""


@pytest.mark.skipif(os.environ.get("LOCKSTEP_TEST_WHEEL") != "1", reason="compiles the program twice: tools/nightly, or tools/test --only test_release")
def test_a_whole_release(tmp_path):
    copy = tmp_path / "copy"
    subprocess.run(["git", "clone", "-q", ROOT, copy], check=True)
    version = re.search(r"project\(lockstep VERSION ([0-9.]+)", (copy / "CMakeLists.txt").read_text())[1]
    git(copy, "tag", f"v{version}")
    status, said = called(copy, f"v{version}", "-o", tmp_path / "files")
    assert status == 0, said
    names = {path.name for path in (tmp_path / "files").iterdir()}
    assert {"NOTES.md", "SHA256SUMS", "Containerfile", f"lockstep-{version}.tar.gz"} < names and len(names) == 6
    assert "in a root with the C library alone" in (tmp_path / "files" / "NOTES.md").read_text()
    subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=tmp_path / "files", check=True)
