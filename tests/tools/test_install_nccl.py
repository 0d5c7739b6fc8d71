# SPDX-License-Identifier: Apache-2.0
"""tools/install-nccl with a package of a few bytes in place of NCCL's, from a folder instead of the registry."""

import hashlib
import os
import shutil
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = ("LOCKSTEP_NCCL_ROOT", "NCCL_ROOT", "NCCL_HOME", "CUDA_HOME")
NAME = "nvidia_nccl_cu13-1.2.3"
FILES = {"nvidia/nccl/include/nccl.h": "// NCCL 1.2.3\n", "nvidia/nccl/lib/libnccl.so.2": "a library\n",
         "nvidia/nccl/lib/libnccl_device.bc": "not needed\n", f"{NAME}.dist-info/licenses/License.txt": "do as you like\n",
         f"{NAME}.dist-info/METADATA": "Metadata-Version: 2.1\nName: nvidia-nccl-cu13\nVersion: 1.2.3\n",
         f"{NAME}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
         f"{NAME}.dist-info/RECORD": ""}

pytestmark = pytest.mark.skipif(subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode != 0,
                                reason="there is no pip")


class Machine:
    """A copy of the tools, a registry in a folder, and the package that they name, pinned."""

    def __init__(self, folder, left_out=()):
        self.root, self.wheels = folder / "a copy", folder / "wheels"
        shutil.copytree(ROOT / "tools", self.root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        self.wheels.mkdir()
        self.wheel = self.wheels / f"{NAME}-py3-none-any.whl"
        with zipfile.ZipFile(self.wheel, "w") as packed:
            for name, text in FILES.items():
                if name not in left_out:
                    packed.writestr(name, text)
        self.pin(hashlib.sha256(self.wheel.read_bytes()).hexdigest())
        # The Python that runs the tests is the one that has pip.
        self.path = folder / "path"
        self.path.mkdir()
        (self.path / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (self.path / "python3").chmod(0o755)

    def pin(self, digest):
        (self.root / "tools" / "nccl.txt").write_text(f"# A comment.\nnvidia-nccl-cu13==1.2.3 \\\n    --hash=sha256:{digest}\n")

    def install(self, **environment):
        plain = {key: value for key, value in os.environ.items() if key not in VARIABLES}
        return subprocess.run([self.root / "tools" / "install-nccl"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              env=dict(plain, PATH=f"{self.path}:{os.environ['PATH']}", PIP_NO_INDEX="1",
                                       PIP_FIND_LINKS=str(self.wheels), **environment))

    def installed(self):
        folder = self.root / "build" / "nccl"
        return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}

    def left_over(self):
        return [path.name for path in (self.root / "build").glob(".nccl.*") if path.is_dir()]


PLACES = ["/usr", "/usr/local", "/usr/local/cuda",
          *(f"{folder}/nvidia/nccl" for folder in site.getsitepackages() + [site.getusersitepackages()])]
needs_none_here = pytest.mark.skipif(any(Path(place, "include/nccl.h").exists() for place in PLACES),
                                     reason="this machine has an NCCL of its own")


@needs_none_here
def test_what_is_needed_of_the_package_is_installed_once(tmp_path):
    machine = Machine(tmp_path)
    done = machine.install()
    assert (done.returncode, done.stdout, done.stderr) == (
        0, "", "lockstep: fetching NCCL (nvidia-nccl-cu13 1.2.3, about 300 MB) into build/nccl…\n")
    assert machine.installed() == {"include/nccl.h": "// NCCL 1.2.3\n", "lib/libnccl.so.2": "a library\n",
                                   "lib/libnccl.so": "a library\n", "LICENSE.txt": "do as you like\n"}
    assert machine.left_over() == []
    machine.wheel.unlink()
    done = machine.install()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_none_here
def test_another_package_than_the_pinned_one_is_refused(tmp_path):
    machine = Machine(tmp_path)
    machine.pin("0" * 64)
    done = machine.install()
    assert done.returncode == 3
    assert "HASHES" in done.stderr
    assert done.stderr.endswith("lockstep: NCCL could not be fetched\n")
    assert machine.installed() == {} and machine.left_over() == []


@needs_none_here
def test_a_package_without_its_library_leaves_nothing(tmp_path):
    machine = Machine(tmp_path, left_out=("nvidia/nccl/lib/libnccl.so.2",))
    done = machine.install()
    assert done.returncode == 3
    assert done.stderr.endswith("lockstep: the package of NCCL has not the files that were expected\n")
    assert machine.installed() == {} and machine.left_over() == []


@needs_none_here
def test_where_it_cannot_be_fetched_it_says_so(tmp_path):
    machine = Machine(tmp_path)
    machine.wheel.unlink()
    done = machine.install()
    assert done.returncode == 3
    assert done.stderr.endswith("lockstep: NCCL could not be fetched\n")
    (machine.path / "python3").write_text("#!/bin/sh\nexit 1\n")
    done = machine.install()
    assert (done.returncode, done.stderr) == (3, "lockstep: NCCL cannot be installed without Python's pip (Debian: python3-pip)\n")


def test_an_nccl_of_the_machine_is_enough(tmp_path):
    machine = Machine(tmp_path)
    (tmp_path / "own" / "include").mkdir(parents=True)
    (tmp_path / "own" / "include" / "nccl.h").touch()
    for variable in VARIABLES:
        done = machine.install(**{variable: str(tmp_path / "own")})
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    # And one among Python's packages.
    (tmp_path / "site" / "nvidia").mkdir(parents=True)
    (tmp_path / "site" / "nvidia" / "nccl").symlink_to(tmp_path / "own")
    (machine.path / "python3").write_text(f'#!/bin/sh\n[ "$1" = -c ] && echo "{tmp_path}/site/nvidia/nccl"\n')
    done = machine.install()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.installed() == {}


def test_cmake_takes_header_and_library_from_one_folder(tmp_path):
    """A package for Python has no libnccl.so; one that stands behind it in the list has."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, library in ((first, "libnccl.so.2"), (second, "libnccl.so")):
        (folder / "include").mkdir(parents=True)
        (folder / "lib").mkdir()
        (folder / "include" / "nccl.h").write_text("#define NCCL_MAJOR 2\n#define NCCL_MINOR 27\n#define NCCL_PATCH 3\n")
        (folder / "lib" / library).touch()
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(finds LANGUAGES CXX)\n"
        f'list(APPEND CMAKE_MODULE_PATH "{ROOT}/cmake")\nfind_package(NCCL REQUIRED)\n'
        'message(STATUS "found ${NCCL_INCLUDE_DIR} ${NCCL_LIBRARY} ${NCCL_VERSION}")\n')
    done = subprocess.run(["cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "build", f"-DLOCKSTEP_NCCL_ROOT={first};{second}"],
                          capture_output=True, text=True, check=False)
    assert f"found {first}/include {first}/lib/libnccl.so.2 2.27.3" in done.stdout, done.stdout + done.stderr
