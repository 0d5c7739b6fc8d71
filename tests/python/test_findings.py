# SPDX-License-Identifier: Apache-2.0
"""docs/findings: each script shows with the framework alone what its page says."""

import importlib.util
import re
import subprocess

import pytest

from torch_ranks import HERE, clean_environment, nightly, torch_python

pytestmark = [pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")]

FINDINGS = HERE.parents[1] / "docs" / "findings"
PAGES = sorted(path for path in FINDINGS.glob("*.md") if path.name not in ("README.md", "table.md"))
SHOWN = {page.stem: re.findall(r"```text\n\$ python docs/findings/scripts/(\w+\.py) ?(\w*)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL) for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_a_script_of_at_most_60_lines_and_is_in_the_list(page):
    assert SHOWN[page.stem] and page.name in (FINDINGS / "README.md").read_text(encoding="utf-8")
    for script, _, _ in SHOWN[page.stem]:
        assert (FINDINGS / "scripts" / script).read_text(encoding="utf-8").count("\n") <= 60


@nightly
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_script_shows_what_its_page_says(page):
    for script, argument, lines in SHOWN[page.stem]:
        if script.startswith("deepspeed") and importlib.util.find_spec("deepspeed") is None and "build/torch" not in torch_python():
            pytest.skip("no deepspeed")
        done = subprocess.run([torch_python(), FINDINGS / "scripts" / script, *filter(None, [argument])], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=clean_environment(), timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        for line in lines.splitlines():
            assert line in done.stdout
