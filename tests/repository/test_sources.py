# SPDX-License-Identifier: Apache-2.0
"""Rules for the sources themselves: one-way dependencies between folders, size, licence line, no foreign paths."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Each line may include what stands above it, never what stands beside it or below (CONTRIBUTING.md).
LAYERS = [
    ["base"],
    ["mesh"],
    ["expression"],
    ["model"],
    ["schedule"],
    ["scenario"],
    ["symbolic", "numeric", "transformer", "importers"],
    ["tensors", "device"],
    ["diagnosis"],
    ["live"],
    ["report"],
    ["cli"],
]
LEVEL = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}

# The folder that implements each public header.
HEADERS = {
    "batch": "model",
    "check": "diagnosis",
    "collective": "schedule",
    "communication": "schedule",
    "comparison": "diagnosis",
    "coordinate_index": "mesh",
    "cuda": "device",
    "diagnostic": "base",
    "edit": "scenario",
    "expression": "expression",
    "extraction_comparison": "live",
    "flight_recorder": "live",
    "gradient_state": "schedule",
    "hash": "numeric",
    "importer": "importers",
    "intervals": "base",
    "job": "device",
    "json": "base",
    "live": "live",
    "local_step": "schedule",
    "mesh": "mesh",
    "mistake": "diagnosis",
    "model": "model",
    "mpi": "device",
    "nccl": "device",
    "numeric": "numeric",
    "operation": "schedule",
    "parametric": "symbolic",
    "prove": "symbolic",
    "rational": "base",
    "repair": "diagnosis",
    "report": "report",
    "scenario": "scenario",
    "schedule": "schedule",
    "shared": "base",
    "sizes": "scenario",
    "sketch": "numeric",
    "symbolic": "symbolic",
    "tensor_file": "tensors",
    "timeline": "schedule",
    "token_table": "model",
    "transformer": "transformer",
    "verdict": "diagnosis",
}

SUFFIXES = {".cpp", ".h", ".cu", ".py", ".sh", ".cmake"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def repository_files():
    """Every file that git tracks or would track; without git, every file that is not in a build folder."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                                capture_output=True, text=True, check=True).stdout
        names = [name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
    hidden = ("build/", ".git/", "third_party/")
    return [ROOT / name for name in sorted(names) if not name.startswith(hidden) and (ROOT / name).is_file()]


def is_source(path):
    if path.name == "CMakeLists.txt" or path.suffix in SUFFIXES:
        return True
    return path.suffix == "" and path.read_bytes().startswith(b"#!")


def text_of(path):
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""  # an image or the like


FILES = repository_files()
SOURCES = [path for path in FILES if is_source(path)]


def folder_of_include(name):
    """The folder of src/ that an include stands for; None for a header from elsewhere."""
    parts = name.split("/")
    if parts[0] == "lockstep":
        return HEADERS[Path(name).stem]
    return parts[1] if parts[0] == "src" else None


def wrong_includes(folder, text):
    """The includes of a source of `folder` that point the wrong way."""
    found = []
    for name in INCLUDE.findall(text):
        other = folder_of_include(name)
        if other and other != folder and LEVEL[other] >= LEVEL[folder]:
            found.append(name)
    return found


def test_every_folder_and_public_header_has_its_place():
    folders = {path.relative_to(ROOT / "src").parts[0] for path in FILES
               if path.is_relative_to(ROOT / "src") and path.suffix in (".cpp", ".h")}
    assert folders <= set(LEVEL), "a folder of src/ is missing in LAYERS of this test"
    headers = {path.stem for path in FILES if path.parent == ROOT / "include" / "lockstep"}
    assert headers == set(HEADERS), "HEADERS of this test must list the headers of include/lockstep"


def test_dependencies_between_folders_point_one_way():
    wrong = []
    for path in SOURCES:
        name = path.relative_to(ROOT)
        if name.parts[0] == "src" and len(name.parts) > 2:
            folder = name.parts[1]
        elif name.parts[0] == "include":
            folder = HEADERS[path.stem]
        elif name.parts[0] == "kernels":  # plain data and arithmetic, which know nothing of lockstep
            wrong += [f"{name} includes {include}" for include in INCLUDE.findall(text_of(path))
                      if not include.startswith("kernels/")]
            continue
        else:
            continue
        wrong += [f"{name} ({folder}) includes {include}" for include in wrong_includes(folder, text_of(path))]
    assert not wrong, "\n".join(wrong)


def test_the_check_of_dependencies_sees_a_wrong_one():
    assert wrong_includes("mesh", '#include "lockstep/diagnostic.h"\n#include "src/mesh/order.h"\n') == []
    assert wrong_includes("mesh", '#include "lockstep/model.h"\n') == ["lockstep/model.h"]
    assert wrong_includes("symbolic", '#include "src/numeric/mix.h"\n') == ["src/numeric/mix.h"]


# What is private to a folder is in lockstep::FOLDER; `base` is the vocabulary of all, and these two are parts of a folder.
NAMESPACES = {"base": "lockstep", "symbolic/parametric": "lockstep::parametric", "symbolic/formula": "lockstep::formula"}
OPENED = re.compile(r"^(?:inline )?namespace (lockstep[\w:]*) \{", re.MULTILINE)
# Declarations of a header directly in lockstep, but for nested classes of public ones: `struct SymbolicEngine::State {`.
PUBLIC_BLOCK = re.compile(r"^namespace lockstep \{\n(.*?)^\}  // namespace lockstep$", re.MULTILINE | re.DOTALL)
NESTED_BLOCK = re.compile(r"^namespace \w+ \{\n.*?^\}  // namespace \w+$", re.MULTILINE | re.DOTALL)
DECLARED_PUBLIC = re.compile(r"^(?!(?:class|struct) \w+::\w)(\w[^\n]*)$", re.MULTILINE)


def wrong_namespaces(name, text):
    """What a source of src/ opens, or a header declares, outside of its folder's namespace."""
    parts = name.split("/")
    own = NAMESPACES.get("/".join(parts[1:-1]), f"lockstep::{parts[1]}")
    allowed = {"lockstep", own, f"lockstep::{parts[1]}"} | ({NAMESPACES["symbolic/formula"]} if parts[1] == "symbolic" else set())
    wrong = [space for space in OPENED.findall(text)
             if space not in allowed and not space.startswith(tuple(f"{each}::" for each in allowed - {"lockstep"}))]
    if name.endswith(".h") and own != "lockstep":
        for block in PUBLIC_BLOCK.findall(text):
            wrong += DECLARED_PUBLIC.findall(NESTED_BLOCK.sub("", block))
    return wrong


def test_what_is_private_to_a_folder_is_in_its_namespace():
    wrong = []
    for path in SOURCES:
        name = str(path.relative_to(ROOT))
        if name.startswith("src/") and path.suffix in (".cpp", ".h", ".cu"):
            wrong += [f"{name}: {space}" for space in wrong_namespaces(name, text_of(path))]
    assert not wrong, "\n".join(wrong)


def test_the_check_of_namespaces_sees_a_wrong_one():
    private = "namespace lockstep {{\n\n/// Counts.\n{}\n\n}}  // namespace lockstep\n"
    assert wrong_namespaces("src/report/html.h", private.format("int pages();")) == ["int pages();"]
    assert wrong_namespaces("src/report/html.h", private.format("class Scenario;")) == ["class Scenario;"]
    assert wrong_namespaces("src/report/html.cpp", private.format("int pages();")) == []
    assert wrong_namespaces("src/base/at.h", private.format("int pages();")) == []
    assert wrong_namespaces("src/symbolic/engine_state.h", private.format("struct SymbolicEngine::State {\n  int a;\n};")) == []
    assert wrong_namespaces("src/report/html.h", "namespace lockstep::report {\nint pages();\n}  // namespace lockstep::report\n") == []
    assert wrong_namespaces("src/report/html.h", "namespace lockstep::diagnosis {\n}\n") == ["lockstep::diagnosis"]
    assert wrong_namespaces("src/symbolic/parametric/cases.h", "namespace lockstep::parametric {\n}\n") == []


def test_includes_name_their_file_from_the_root():
    wrong = []
    for path in SOURCES:
        if path.suffix not in (".cpp", ".h", ".cu") or path.is_relative_to(ROOT / "tests" / "package"):
            continue
        for name in INCLUDE.findall(text_of(path)):
            if not name.startswith(("lockstep/", "src/", "kernels/", "tests/", "benchmarks/", "tools/")):
                wrong.append(f"{path.relative_to(ROOT)} includes {name}")
    assert not wrong, "\n".join(wrong)


def test_sources_are_at_most_800_lines_long():
    long = [f"{path.relative_to(ROOT)}: {count}" for path in SOURCES if (count := text_of(path).count("\n")) > 800]
    assert not long, "\n".join(long)


def test_sources_name_their_licence_in_their_first_lines():
    missing = [str(path.relative_to(ROOT)) for path in SOURCES
               if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(text_of(path).splitlines()[:2])]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("what, pattern", [
    # Written so that this file does not find itself.
    ("a path of one machine", r"(?<![\w.$}{/-])/(?:home|root|Users|work)/[\w.-]"),
    ("a build folder outside of the repository", r"/tmp/[b]uild"),
    ("unresolved conflict", r"^(?:<{7}|>{7}) "),
])
def test_nothing_in_the_repository_belongs_to_one_machine(what, pattern):
    search = re.compile(pattern, re.MULTILINE)
    found = [f"{path.relative_to(ROOT)}: {match.group()}" for path in FILES if (match := search.search(text_of(path)))]
    assert not found, f"{what}:\n" + "\n".join(found)
