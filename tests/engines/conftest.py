# SPDX-License-Identifier: Apache-2.0
"""Prints how much the engines were compared on, also where they agree."""

import pytest

LINES = []


@pytest.fixture
def counted():
    return LINES


def pytest_terminal_summary(terminalreporter):
    for line in LINES:
        terminalreporter.write_line(f"counted: {line}")
