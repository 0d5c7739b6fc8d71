# SPDX-License-Identifier: Apache-2.0
"""`python -m lockstep ARGS…`: the program takes the place of this process."""

import os
import sys

from lockstep import program

os.execv(program(), [program(), *sys.argv[1:]])
