# SPDX-License-Identifier: Apache-2.0
"""lockstep in Python: the program, which the package brings along (`python -m lockstep` runs it), and the capture of training runs.

    with lockstep.capture(model, optimizer, out="run"):
        train()
    print(lockstep.verify("run"))

Only the capture needs torch, and imports it when it is called. lockstep.run trains on several ranks of this machine and verifies them,
as the pytest plugin does (docs/pytest.md).
"""

import os
import shutil
import sysconfig

from lockstep.errors import CaptureError, RanksError, VerifyError
from lockstep.ranks import Failed, run
from lockstep.verifying import Verification, verify

__all__ = ["CaptureError", "Failed", "RanksError", "Verification", "VerifyError", "attach", "capture", "program", "run", "verify"]

_rank = None  # what lockstep.run says to the captures of a rank that it has started
_extraction = None  # makes the captures of a rank that `lockstep extract` plays


def program():
    """The path of the program: LOCKSTEP_BINARY, the one that was installed with the package, or one that is found by its name."""
    scripts = sysconfig.get_path("scripts")
    # The package may be that of another environment than the Python that runs.
    packages = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    beside = os.path.normpath(os.path.join(packages, os.path.relpath(scripts, sysconfig.get_path("purelib"))))
    own = [path for path in (os.path.join(folder, "lockstep") for folder in (beside, scripts)) if os.path.isfile(path)]
    return os.environ.get("LOCKSTEP_BINARY") or (own[0] if own else shutil.which("lockstep") or os.path.join(scripts, "lockstep"))


def capture(model, optimizer=None, mesh=None, out="run", loss=None, data_axes=None, sums=None, seed=0, collectives=True, report=True,
            overwrite=False, sample=None, shards=None):
    """Records a training run into the folder `out`, for `with` (docs/capture.md); every rank calls it, after wrapping and
    after making the optimizer. Numbers of the training stay as they are, bit for bit.

    model, optimizer: what trains, wrapped; several optimizers as a list.
    mesh: a DeviceMesh with names, or {"dp": 2, "tp": 2} (the last axis varies fastest); None: that of the model's DTensors or of Megatron-core,
          otherwise data parallel alone.
    loss: what each backward is the gradient of: "local_mean" (of the rank's part of the batch, divided for the micro-batches), "sum",
          "token_mean" (of each micro-batch alone), "token_sum"; None: not known.
    data_axes: the mesh's axes along which ranks see different tokens; by their names where not given.
    sums, seed: of the sketches (docs/sketch.md); sums: 64 on two ranks and 128 on others where not given.
    collectives: whether to record the sequence of collectives.
    report: whether rank 0 says at the end, on standard error, how long and how large it was.
    overwrite: whether files of another run in that folder are replaced.
    shards: how a script has cut plain tensors: {"*.up.weight": {"tp": 0}}, patterns of names, and for each axis of the mesh the dimension.
    sample: "1/16" to look at one of 16 elements of large parameters alone, which costs less; None: at all.
    In a rank that lockstep.run has started, out and report are its own. In one that `lockstep extract` plays nothing is written, and what it extracts is
    that of this model, with this mesh and loss.
    Raises CaptureError where that cannot be captured.
    """
    try:
        from lockstep.capturing import Run
    except ImportError as error:
        if (getattr(error, "name", None) or "").split(".")[0] != "torch":
            raise
        raise CaptureError("a capture needs torch, which this Python (%s) does not have: install it first" % sysconfig.get_python_version()) from error
    if _extraction is not None:
        return _extraction(model, optimizer, mesh, loss, data_axes)
    if _rank is not None:
        out, report = _rank.folder_of_capture(), False
        sums = _rank.sums() if sums is None else sums
    captured = Run(model, optimizer, mesh=mesh, out=out, loss=loss, data_axes=data_axes, sums=sums, seed=seed, collectives=collectives,
                   report=report, overwrite=overwrite, sample=sample,
                   shards=shards)
    if _rank is not None:
        _rank.capture = captured
    return captured


def attach(engine, optimizer=None, **options):
    """As capture, started at once: for code in which no `with` can be written around the training. Returns the run; close() it."""
    return capture(engine, optimizer, **options).start()
