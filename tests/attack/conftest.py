# SPDX-License-Identifier: Apache-2.0
"""Prints what the attack has replayed, also where nothing was found."""

import pytest

FOUND = {}


@pytest.fixture
def counted():
    return FOUND


def pytest_terminal_summary(terminalreporter):
    for what, counts in FOUND.items():
        terminalreporter.write_line(f"counted: {what}: {counts.text()}")
