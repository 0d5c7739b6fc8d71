# SPDX-License-Identifier: Apache-2.0
"""Prints how many schedules the sweep has replayed, also where everything is right."""

import pytest

OUTCOMES = []


@pytest.fixture
def counted():
    return OUTCOMES


def pytest_terminal_summary(terminalreporter):
    if OUTCOMES:
        schedules, layouts, matches, deviating, alarms = (
            sum(count(found) for found in OUTCOMES)
            for count in (lambda found: found.schedules, lambda found: found.layouts, lambda found: found.matches,
                          lambda found: found.deviating, lambda found: len(found.alarms))
        )  # fmt: skip
        terminalreporter.write_line(
            f"counted: {schedules} schedules on {layouts} layouts of {len(OUTCOMES)} frameworks: {matches} match, "
            f"{deviating} as the framework is known to be wrong, {alarms} false alarms"
        )
