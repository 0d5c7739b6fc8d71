# SPDX-License-Identifier: Apache-2.0
"""tools/bundle: one archive, the same bytes each time, which holds all that its sources include and its licences."""

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = {"fmt", "nlohmann", "CLI", "Eigen", "boost", "catch2"}
# Packages of CMake that must not be looked for: the bundle has them, or does without.
REQUIRED = ["fmt", "nlohmann_json", "CLI11", "Boost", "Eigen3", "Catch2"]
OPTIONAL = ["yaml-cpp", "tomlplusplus", "hwy", "MPI", "NCCL"]

pytestmark = pytest.mark.skipif(subprocess.run(["git", "-C", str(ROOT), "rev-parse"], capture_output=True, check=False).returncode != 0,
                                reason="a bundle is made of what git lists, and this is no checkout")


def bundle(*arguments, **options):
    return subprocess.run([ROOT / "tools" / "bundle", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, **options)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """(archive, its folder unpacked elsewhere)"""
    folder = tmp_path_factory.mktemp("bundle")
    archive = folder / "lockstep-bundle.tar.gz"
    done = bundle("--random", 5, "-o", archive)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.iterdir()) == [archive.name]  # nothing is left beside it
    with tarfile.open(archive) as packed:
        assert all(member.name.startswith("lockstep-") and ".." not in member.name for member in packed)
        packed.extractall(folder)
    return archive, next(path for path in folder.iterdir() if path.is_dir())


def assert_exceptions_leave_modules(flags, folder):
    """As those of lockstep_cuda.so do."""
    (folder / "module.cpp").write_text('#include <stdexcept>\n'
                                       'extern "C" void open_it() { throw std::runtime_error("no GPU"); }\n')
    (folder / "program.cpp").write_text(
        '#include <dlfcn.h>\n#include <stdexcept>\nint main(int, char** names) {\n'
        '  try { reinterpret_cast<void (*)()>(dlsym(dlopen(names[1], RTLD_NOW), "open_it"))(); }\n'
        '  catch (const std::runtime_error&) { return 7; }\n  return 8;\n}\n')
    for options in (["-shared", "-fPIC", "-o", "module.so", "module.cpp"], ["-o", "program", "program.cpp", "-ldl"]):
        done = subprocess.run([os.environ.get("CXX", "g++"), *flags, *options], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert subprocess.run(["./program", "./module.so"], cwd=folder, check=False).returncode == 7


def test_the_same_files_give_the_same_bytes_and_few_of_them(unpacked, tmp_path):
    again = tmp_path / "again.tar.gz"
    done = bundle("--random", 5, "-o", "again.tar.gz", cwd=tmp_path, umask=0o077, env=dict(os.environ, PYTHONHASHSEED="7", TZ="Asia/Tokyo"))
    assert done.returncode == 0, done.stderr
    assert again.read_bytes() == unpacked[0].read_bytes()
    assert again.stat().st_size < 8 << 20


def test_it_holds_the_sources_schedules_and_licences(unpacked):
    root = unpacked[1]
    for name in ("src/cli/main.cpp", "tools/test-gpu", "tools/bench-gpu", "kernels/fused.h", "scenarios/megatron/844.json"):
        assert (root / name).read_bytes() == (ROOT / name).read_bytes()
        assert os.access(root / name, os.X_OK) == os.access(ROOT / name, os.X_OK)
    assert sorted(path.name for path in (root / "random-schedules").iterdir()) == [f"{seed}.json" for seed in range(1, 6)]
    assert not (root / ".git").exists() and not (root / "build").exists()
    assert {path.name for path in (root / "third_party" / "include").iterdir()} == LIBRARIES
    licences = root / "third_party" / "licenses"
    texts = {path.name: path.read_text(encoding="utf-8") for path in licences.iterdir() if path.is_file()}
    assert len(texts) == len(LIBRARIES)
    for words in ("Boost Software License", "Victor Zverovich", "Niels Lohmann", "University of Cincinnati", "Mozilla Public License Version 2.0"):
        assert any(words in text for text in texts.values()), words
    common = licences / "common-licenses"  # which Debian's texts refer to
    assert "Apache License" in (common / "Apache-2.0").read_text(encoding="utf-8")
    for line in (root / "third_party" / "README").read_text(encoding="utf-8").splitlines():
        assert line.split("licenses/")[1] in texts


def test_it_is_configured_without_a_library_of_the_machine_and_compiles(unpacked, tmp_path):
    root, build = unpacked[1], tmp_path / "build"
    # find_package(… REQUIRED) of a disabled package ends CMake with an error.
    options = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in REQUIRED + OPTIONAL]
    done = subprocess.run(["cmake", "-G", "Ninja", "-S", root, "-B", build, "-DLOCKSTEP_CUDA=OFF", "-DLOCKSTEP_SOURCES_AT_ONCE=1",
                           "-DCMAKE_BUILD_TYPE=Debug", *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    link = re.search(r"^build bin/lockstep: .*?LINK_FLAGS = ([^\n]*)", (build / "build.ninja").read_text(encoding="utf-8"),
                     re.DOTALL | re.MULTILINE)
    flags = [word for word in link.group(1).split() if word.startswith("-static")]
    assert flags == ["-static-libstdc++"]
    assert_exceptions_leave_modules(flags, tmp_path)

    commands = {str(Path(entry["file"]).relative_to(root)): entry["command"].split()
                for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
                if Path(entry["file"]).is_relative_to(root)}
    assert len(commands) > 200
    chosen = set()
    for header in ("<boost/", "<nlohmann/", "<Eigen/", "<CLI/"):
        chosen |= {name for name in commands if header in (root / name).read_text(encoding="utf-8")}
    assert len(chosen) >= 5
    include = root / "third_party" / "include"
    for name in sorted(chosen | {"tests/main.cpp"}):
        command = commands[name]
        command = [word for i, word in enumerate(command) if word not in ("-c", "-o") and command[i - 1] != "-o"]
        listed = subprocess.run([*command, "-M"], cwd=build, capture_output=True, text=True, check=False)
        assert listed.returncode == 0, listed.stderr
        for word in listed.stdout.replace("\\\n", " ").split():
            if Path(word).is_absolute() and not Path(word).is_relative_to(root):
                # What the compiler and the C library bring, and nothing of a library that is packed.
                assert LIBRARIES.isdisjoint(Path(word).parts), f"{name} includes {word}, which is not in {include}"

    compiled = subprocess.run(commands["src/base/rational.cpp"], cwd=build, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr


def test_without_catch2_it_is_configured_without_the_tests(unpacked, tmp_path):
    root = tmp_path / "bundle"
    shutil.copytree(unpacked[1], root, symlinks=True)
    shutil.rmtree(root / "third_party" / "include" / "catch2")
    options = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in REQUIRED + OPTIONAL]
    done = subprocess.run(["cmake", "-G", "Ninja", "-S", root, "-B", tmp_path / "build", "-DLOCKSTEP_CUDA=OFF", *options],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the tests of C++ are left out" in done.stdout
    targets = (tmp_path / "build" / "build.ninja").read_text(encoding="utf-8")
    assert "build bin/lockstep:" in targets and "bin/test_" not in targets


def test_mistakes_and_what_cannot_be_written_leave_nothing(tmp_path):
    done = bundle("--random", 0, "-o", tmp_path / "x")
    assert done.returncode == 2 and "--random takes a positive number; found 0" in done.stderr
    done = bundle("--random", 1, "-o", tmp_path / "nowhere" / "x.tar.gz")
    assert done.returncode == 3 and done.stderr.startswith("lockstep: ") and "nowhere" in done.stderr
    done = bundle("--random", 1, "-o", tmp_path / "x.tar.gz", env=dict(os.environ, GIT_DIR=str(tmp_path / "none")))
    assert done.returncode == 3 and "the files that git lists, and it lists none" in done.stderr
    assert list(tmp_path.iterdir()) == []
