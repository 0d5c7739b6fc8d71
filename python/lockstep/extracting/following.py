# SPDX-License-Identifier: Apache-2.0
"""The dispatch mode that sees each operation of torch on this rank, and keeps what memory holds (contents.py) by the rules (rules.py)."""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.carrying import flat
from lockstep.extracting.contents import Memory
from lockstep.extracting.flights import Flights
from lockstep.extracting.rules import Rules
from lockstep.extracting.unwritten import Unwritten


class Following(TorchDispatchMode):
    """`site()`: where the running operation stands in the script."""

    def __init__(self, site):
        super().__init__()
        self.memory, self.flights = Memory(), Flights()
        self.rules = Rules(self.memory, site)
        self.unwritten = Unwritten(site)
        self.memory.wrote, self.rules.unwritten_of = self.unwritten.write, self.unwritten.of
        self.site = site
        self.paused = 0
        self.stepping = False  # optimizers compute; what they write holds nothing that anybody reduces
        self.given = []  # to the functional collective that runs: copies of these go into the process group's
        self.operations = 0

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # nothing is compiled under a mode: what torch would put around each of a hundred thousand calls guards nothing

    @contextmanager
    def pause(self):
        """Our own operations."""
        self.paused += 1
        try:
            yield
        finally:
            self.paused -= 1

    def __torch_dispatch__(self, function, types, arguments=(), keys=None):
        keys = keys or {}
        if self.paused or not isinstance(function, torch._ops.OpOverload):
            return function(*arguments, **keys)
        for kind in types:
            if kind.__name__ in ("FakeTensor", "FunctionalTensor"):
                return function(*arguments, **keys)
        if not self.memory.storages:
            return self.written(function, arguments, keys)
        # A subclass such as DTensor takes the operation apart, and this mode sees its parts then.
        for kind in types:
            if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
                return NotImplemented
        self.operations += 1
        if self.operations % 4096 == 0:
            self.memory.sweep()
            self.unwritten.sweep()
        if function._schema.name.startswith("_c10d_functional::"):  # the process group says what comes out (session.py)
            self.given = list(flat(arguments))
            try:
                return function(*arguments, **keys)
            finally:
                self.given = []
        self.paused += 1  # as pause(), of which there are many thousands
        try:
            after = self.rules.before(function, arguments, keys) if not self.stepping else self.rules.in_a_step(function, arguments, keys)
        finally:
            self.paused -= 1
        return self.written(function, arguments, keys, after)

    def written(self, function, arguments, keys, after=None):
        """Its result; `after` as Rules.before() gives it."""
        self.paused += 1
        try:
            marks = self.unwritten.before(function, arguments, keys)
        finally:
            self.paused -= 1
        result = function(*arguments, **keys)
        if after is not None or marks is not None:
            with self.pause():
                for tensor, content in after(result) if after is not None else ():
                    if self.flights.over:
                        self.flights.write(tensor)
                    self.memory.put(tensor, content)
                if marks is not None:
                    marks(result)
        return result
