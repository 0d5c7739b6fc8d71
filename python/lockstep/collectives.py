# SPDX-License-Identifier: Apache-2.0
"""The collectives that a rank issues, in their order: what goes to the process groups passes torch's dispatcher, also from
DDP's C++ reducer and from DTensor, and a dispatch mode sees it there.
"""

import os
import sys
import sysconfig
import time

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from lockstep.carrying import Carried, flat
