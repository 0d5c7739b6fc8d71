# SPDX-License-Identifier: Apache-2.0
"""The package for Debian: made from the build, unpacked into a root that holds nothing but it and the libraries of the
packages that it depends on, and run there."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from test_package import SCENARIO, run

BUILD = Path(os.environ.get("LOCKSTEP_BINARY", "/none/bin/lockstep")).parents[1]
MISSING = [program for program in ("cpack", "dpkg-deb", "dpkg-shlibdeps", "unshare", "chroot") if shutil.which(program) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} is not installed")


def test_the_package_runs_where_nothing_else_is(tmp_path):
    process = subprocess.run(["cpack", "-G", "DEB", "-B", tmp_path], cwd=BUILD, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    (package,) = tmp_path.glob("*.deb")
    fields = run("dpkg-deb", "-f", package)
    depends = re.search(r"^Depends: (.*)$", fields, re.MULTILINE)[1]
    assert re.search(r"^Package: lockstep$", fields, re.MULTILINE) and "libstdc++6" in depends and "libc6" in depends
    root = tmp_path / "root"
    run("dpkg-deb", "-x", package, root)
    for name in ("bin/lockstep", "share/doc/lockstep/LICENSE", "share/doc/lockstep/commands.md", "share/man/man1/lockstep-check.1",
                 "share/bash-completion/completions/lockstep", "share/lockstep/scenario.schema.json"):
        assert (root / "usr" / name).is_file(), name
    libraries = re.findall(r"(/\S+) \(0x", run("ldd", root / "usr" / "bin" / "lockstep"))
    assert libraries and not any(library.startswith(str(BUILD)) for library in libraries)
    for library in libraries:
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(library), target)
    (root / "plain.json").write_text(SCENARIO)
    inside = ["unshare", "--map-root-user", "chroot", root]
    if os.geteuid() == 0:
        inside = ["chroot", root]
    elif subprocess.run([*inside, "/usr/bin/lockstep", "version"], capture_output=True).returncode != 0:
        pytest.skip("a user may not change the root here")
    assert "lockstep 0." in run(*inside, "/usr/bin/lockstep", "version")
    done = subprocess.run([*inside, "/usr/bin/lockstep", "check", "-q", "/plain.json"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "mismatch  /plain.json  plain\n", "")
