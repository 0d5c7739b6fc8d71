# SPDX-License-Identifier: Apache-2.0
"""The program lockstep, which the package brings along; `python -m lockstep` runs it."""

import os
import sysconfig


def program():
    """The path of the program."""
    return os.path.join(sysconfig.get_path("scripts"), "lockstep")
