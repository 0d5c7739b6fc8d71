# SPDX-License-Identifier: Apache-2.0
"""These tests run the built program as a process; LOCKSTEP_BINARY names it."""

import os

import pytest

pytest.register_assert_rewrite("contract_program")


def pytest_collection_modifyitems(items):
    if "LOCKSTEP_BINARY" in os.environ:
        return
    for item in items:
        if "test_passages" not in item.nodeid:
            item.add_marker(pytest.mark.skip(reason="LOCKSTEP_BINARY does not name the program"))
