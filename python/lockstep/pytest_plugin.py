# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: `pytest --lockstep` and the fixture `lockstep` (docs/pytest.md). Without the option its tests are skipped."""

import importlib.util

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("lockstep", "gradients of real training on several ranks, verified")
    group.addoption("--lockstep", action="store_true", help="run the tests that use the fixture lockstep: each trains on several gloo processes"
                    " of this machine (needs torch)")
    group.addoption("--lockstep-limit", type=float, default=60, metavar="SECONDS", help="how long such a training may take (60)")


class Lockstep:
    """The fixture: lockstep.run(train, ranks=4, loss="local_mean"), with files below the test's tmp_path."""

    def __init__(self, folder, limit):
        self.folder, self.limit, self.runs = folder, limit, 0

    def run(self, train, ranks=2, **options):
        """As lockstep.run."""
        __tracebackhide__ = True
        import lockstep

        self.runs += 1
        options.setdefault("out", self.folder / ("lockstep-%d" % self.runs))
        options.setdefault("limit", self.limit)
        try:
            return lockstep.run(train, ranks, **options)
        except lockstep.Failed as failure:
            error = failure.with_traceback(None)
        raise error

    def verify(self, folder, **options):
        """As lockstep.verify, but fails where the run is not right."""
        __tracebackhide__ = True
        import lockstep

        verification = lockstep.verify(folder, **options)
        if not verification.ok:
            raise lockstep.Failed(verification.message(), str(folder), verification)
        return verification


@pytest.fixture
def lockstep(request, tmp_path):
    """Trains on several ranks and verifies what their optimizers get: lockstep.run(train, ranks=4, loss="local_mean")."""
    if not request.config.getoption("--lockstep"):
        pytest.skip("trains on several processes: give --lockstep")
    if importlib.util.find_spec("torch") is None:
        pytest.skip("this Python has no torch")
    return Lockstep(tmp_path, request.config.getoption("--lockstep-limit"))
