# SPDX-License-Identifier: Apache-2.0
"""tools/lockstep from a user's point of view: any directory, standard output of the program alone, several at once."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "tools" / "lockstep"
PROGRAM = os.environ["LOCKSTEP_BINARY"]
# The launcher shall find the build that is being tested.
THIS_BUILD = dict(os.environ, LOCKSTEP_BUILD_DIR=str(Path(PROGRAM).parents[1]))
# A program that says where it is and what it was given, in place of lockstep's own: it compiles in a second.
ECHO = """#include <cstdio>
#include <filesystem>
int main(int argc, char** argv) {
  std::printf("%s\\n", std::filesystem::current_path().c_str());
  for (int i = 1; i < argc; ++i) std::printf("[%s]\\n", argv[i]);
  return argc - 1;
}
"""


def run(*command, **options):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)


@pytest.fixture
def small_repository(tmp_path):
    """A copy of the build files and tools with that program alone."""
    root = tmp_path / "a copy"
    for folder in ("cmake", "tools", "include"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("CMakeLists.txt", "CMakePresets.json", "LICENSE"):
        shutil.copy(ROOT / file, root / file)
    (root / "src" / "cli").mkdir(parents=True)
    (root / "src" / "cli" / "main.cpp").write_text(ECHO)
    (root / "src" / "CMakeLists.txt").write_text(
        "add_library(lockstep STATIC cli/main.cpp)\n"
        "add_executable(lockstep_cli cli/main.cpp)\n"
        "set_target_properties(lockstep_cli PROPERTIES OUTPUT_NAME lockstep "
        "RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)\n")
    return root


@pytest.fixture
def environment():
    plain = {key: value for key, value in os.environ.items() if not key.startswith("LOCKSTEP_")}
    # To look at a CUDA compiler takes five seconds, and nothing here is compiled with it.
    return dict(plain, LOCKSTEP_CMAKE_OPTIONS="-DBUILD_TESTING=OFF -DLOCKSTEP_CUDA=OFF")


def test_the_launcher_prints_what_the_program_prints(tmp_path):
    direct = run(PROGRAM, "version", cwd=tmp_path)
    launched = run(LAUNCHER, "version", cwd=tmp_path, env=THIS_BUILD)
    assert (launched.stdout, launched.returncode) == (direct.stdout, direct.returncode)
    assert launched.stderr == direct.stderr == ""


def test_the_launcher_adds_little_time(tmp_path, capsys):
    def fastest(command):
        times = []
        for _ in range(5):
            begin = time.monotonic()
            run(command, "version", cwd=tmp_path, env=THIS_BUILD)
            times.append(time.monotonic() - begin)
        return min(times)

    added = fastest(LAUNCHER) - fastest(PROGRAM)
    # Printed, not asserted: a busy machine proves nothing.
    with capsys.disabled():
        print(f"tools/lockstep adds {added * 1000:.0f} ms")


def test_it_builds_once_and_runs_in_the_users_directory(small_repository, environment, tmp_path):
    launcher = small_repository / "tools" / "lockstep"
    link = tmp_path / "link"
    link.symlink_to(launcher)
    first = run(launcher, "one", "two words", cwd=tmp_path, env=environment)
    assert first.stdout == f"{tmp_path}\n[one]\n[two words]\n"
    assert first.stderr == "lockstep: building lockstep…\n"
    assert first.returncode == 2
    second = run(link, cwd=tmp_path, env=environment)
    assert (second.stdout, second.stderr, second.returncode) == (f"{tmp_path}\n", "", 0)


def test_several_at_once_build_once(small_repository, environment, tmp_path):
    launcher = small_repository / "tools" / "lockstep"
    processes = [subprocess.Popen([launcher], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate() for process in processes]
    assert [output for output, _ in outputs] == [f"{tmp_path}\n"] * 3
    assert "".join(errors for _, errors in outputs).count("building lockstep…") == 1


def test_a_build_that_fails_shows_the_compilers_words_and_recovers(small_repository, environment):
    launcher = small_repository / "tools" / "lockstep"
    source = small_repository / "src" / "cli" / "main.cpp"
    source.write_text("int main() { return nonsense; }\n")
    failed = run(launcher, env=environment)
    assert failed.returncode == 3
    assert failed.stdout == ""
    assert "nonsense" in failed.stderr
    assert failed.stderr.endswith("lockstep: the build failed\n")
    source.write_text("int main() { return 5; }\n")
    assert run(launcher, env=environment).returncode == 5


def test_a_repository_that_was_moved_is_built_anew(small_repository, environment, tmp_path):
    assert run(small_repository / "tools" / "lockstep", env=environment).returncode == 0
    moved = small_repository.rename(tmp_path / "moved")
    (moved / "src" / "cli" / "main.cpp").write_text("int main() { return 6; }\n")
    assert run(moved / "tools" / "lockstep", env=environment).returncode == 6


def test_where_nothing_may_be_installed_the_command_is_printed(small_repository, environment, tmp_path):
    tools = tmp_path / "path"
    tools.mkdir()
    for name in "bash cat env find flock grep mkdir mktemp readlink realpath rm tee touch".split():
        (tools / name).symlink_to(shutil.which(name))
    # A Debian on which nothing is installed and nobody may become root.
    for name, text in {"dpkg-query": "exit 1", "apt-get": "exit 1", "sudo": "exit 1"}.items():
        (tools / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (tools / name).chmod(0o755)
    launcher = small_repository / "tools" / "lockstep"
    # EUID cannot be set in bash: as root, installation is tried and fails.
    result = run("bash", launcher, env=dict(environment, PATH=str(tools)))
    assert result.returncode == 3
    assert result.stdout == ""
    assert "apt-get install -y --no-install-recommends cmake g++ ninja-build" in result.stderr


def test_nccl_is_installed_when_it_is_asked_for(small_repository, environment, tmp_path):
    launcher, installer = small_repository / "tools" / "lockstep", small_repository / "tools" / "install-nccl"
    installer.write_text(f"#!/usr/bin/env bash\necho installing >&2\ntouch '{tmp_path}/asked'\n")
    assert run(launcher, env=dict(environment, LOCKSTEP_NCCL="0")).stderr == "lockstep: building lockstep…\n"
    assert not (tmp_path / "asked").exists()
    asked = run(launcher, env=dict(environment, LOCKSTEP_NCCL="1"))
    assert (asked.returncode, asked.stderr) == (0, "installing\n")
    assert (tmp_path / "asked").exists()
    # An NCCL that is new is looked for by CMake again.
    (small_repository / "build" / "nccl").mkdir()
    assert run(launcher, env=environment).stderr == "lockstep: building lockstep…\n"
    assert run(launcher, env=environment).stderr == ""
    installer.write_text("#!/usr/bin/env bash\nexit 3\n")
    assert run(launcher, env=dict(environment, LOCKSTEP_NCCL="1")).returncode == 3
