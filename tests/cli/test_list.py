# SPDX-License-Identifier: Apache-2.0
"""`lockstep list`, and the tables in the READMEs that it prints."""

import glob
import json
import os
import re
import subprocess

import pytest

ROOT = os.environ.get("LOCKSTEP_SOURCE_DIR", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BINARY = os.environ.get("LOCKSTEP_BINARY", "")
TABLE = re.compile(r"(<!-- table: (\S+) -->\n)(.*?)(<!-- end of table -->)", re.S)

pytestmark = pytest.mark.skipif(not BINARY, reason="LOCKSTEP_BINARY does not name the program")


def run(*arguments):
    return subprocess.run([BINARY, "list", *arguments], cwd=ROOT, capture_output=True, text=True)


def tables():
    for readme in sorted(glob.glob(os.path.join(ROOT, "scenarios", "*", "README.md"))):
        with open(readme, encoding="utf-8") as file:
            for match in TABLE.finditer(file.read()):
                yield readme, match.group(2), match.group(3)


def files_of(pattern):
    return sorted(glob.glob(pattern, root_dir=ROOT))


@pytest.mark.parametrize("readme, pattern, text", list(tables()))
def test_table_is_what_the_program_prints(readme, pattern, text):
    done = run("-f", "markdown", *files_of(pattern))
    assert done.returncode == 0, done.stderr
    assert done.stdout == text, f"run: LOCKSTEP_BINARY={BINARY} python3 tests/cli/test_list.py"


def test_there_is_such_a_table():
    assert any("deepspeed" in readme for readme, _, _ in tables())


def test_json_has_a_row_for_each_file():
    rows = json.loads(run("-f", "json", "scenarios/gpt-neox").stdout)
    assert len(rows) == len(files_of("scenarios/gpt-neox/*.json"))
    factor = {row["scenario"]: (row["verdict"], row["factor"], row["replicas"]) for row in rows}
    assert factor["gpt-neox-1257-b-averaged"] == ("mismatch", "1/2", "agree")
    assert factor["gpt-neox-1257-c-fixed"] == ("match", "1", None)
    assert factor["gpt-neox-1257-a-hooks-never-fired"] == ("mismatch", None, "differ")


def test_exit_status_does_not_depend_on_verdicts(tmp_path):
    assert run("scenarios/gpt-neox").returncode == 0
    assert run(str(tmp_path)).returncode == 4
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    assert run(str(bad)).returncode == 2


if __name__ == "__main__":
    for path in sorted({readme for readme, _, _ in tables()}):
        with open(path, encoding="utf-8") as source:
            old = source.read()
        new = TABLE.sub(lambda m: m.group(1) + run("-f", "markdown", *files_of(m.group(2))).stdout + m.group(4), old)
        with open(path, "w", encoding="utf-8") as target:
            target.write(new)
