# SPDX-License-Identifier: Apache-2.0
"""lockstep.run: trains on several ranks of this machine, captures, and verifies (docs/pytest.md)."""

import importlib.util
import inspect
import json
import os
import pickle
import shutil
import sys
import tempfile
import time

from lockstep import sequences
from lockstep.errors import RanksError, VerifyError, checked_loss, checked_path
from lockstep.server import Server
from lockstep.verifying import verify

START = 120  # seconds that processes may take until they train
ALONE = 1    # seconds for the others to fail themselves after one has failed; then they are told to end
GRACE = 30   # seconds for them to leave where they are and to end; most need one or two


class Failed(AssertionError):
    """A run of ranks that is not right: the message has the formulas, the error of a rank, or the collectives at which ranks wait.

    verification: the Verification, or None where the ranks did not end. folder: of the files.
    """

    def __init__(self, message, folder, verification=None):
        super().__init__(message)
        self.folder, self.verification = folder, verification


def checked(train, ranks, loss, arguments, limit):
    if inspect.isclass(train) or not inspect.isfunction(train):
        raise RanksError("train is a %s: expected a function train(rank, world)" % type(train).__name__)
    if "<" in train.__qualname__:
        raise RanksError('"%s" is defined within a function, where other processes do not find it: define it at the top of its file'
                         " and give what differs with arguments={…}" % train.__qualname__)
    try:
        file = inspect.getsourcefile(train)
    except TypeError:
        file = None
    if not file or not os.path.exists(file):
        raise RanksError('"%s" is in no file, and so other processes cannot load it: write it into one' % train.__qualname__)
    if isinstance(ranks, bool) or not isinstance(ranks, int) or not 1 <= ranks <= 64:
        raise RanksError("ranks is %r: expected a number of processes from 1 to 64" % (ranks,))
    checked_loss(loss, RanksError)
    if not isinstance(arguments, dict):
        raise RanksError("arguments is a %s: expected a dictionary of what train takes beside rank and world" % type(arguments).__name__)
    if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 < limit < 1e6:
        raise RanksError("limit is %r: expected seconds" % (limit,))
    try:
        inspect.signature(train).bind(0, ranks, **arguments)
    except TypeError as error:
        raise RanksError('"%s" cannot be called with rank, world%s: %s'
                         % (train.__qualname__, "".join(", " + name for name in arguments), error)) from error
    if importlib.util.find_spec("torch") is None:
        raise RanksError("ranks need torch, which this Python (%s) does not have: install it first" % sys.executable)
    return os.path.abspath(file)


def free_port():
    import socket

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def carried_out(settings):
    """Runs the ranks until all have ended; their exit statuses, None of those that were ended here."""
    try:
        settings = dict(settings, arguments=pickle.dumps(settings["arguments"]))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise RanksError("arguments cannot be brought to other processes: %s" % error) from error
    job = Server.of_this_process().begin(settings)
    statuses, stopping, halt = {}, False, 0
    end = time.monotonic() + START + settings["limit"]
    while len(statuses) < settings["world"] and time.monotonic() < end:
        statuses.update(job.ended(0.2))
        if any(statuses.values()) and not stopping:
            stopping = True
            halt = time.monotonic() + ALONE
            end = min(end, halt + GRACE)
        if stopping and time.monotonic() >= halt:
            open(os.path.join(settings["folder"], "stop"), "w").close()
    unfinished = set(range(settings["world"])) - set(statuses)
    job.kill(unfinished)
    return [None if rank in unfinished else statuses[rank] for rank in range(settings["world"])]


def left(folder, world, kind):
    """What ranks have left of a kind, the first in time first."""
    found = []
    for rank in range(world):
        path = os.path.join(folder, "rank-%05d.%s.json" % (rank, kind))
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found.append(dict(json.load(file), rank=rank))
    return sorted(found, key=lambda one: one["time"])


def output_of(folder, rank, most=10):
    with open(os.path.join(folder, "rank-%05d.output" % rank), encoding="utf-8", errors="replace") as file:
        lines = [line.rstrip() for line in file if line.strip()]
    return (["  it has printed:"] + ["    " + line for line in lines[-most:]]) if lines else []


def stopped(settings, statuses, program):
    """The lines of a message for ranks that did not all end well."""
    folder, world = settings["folder"], settings["world"]
    errors, waits = left(folder, world, "error"), left(folder, world, "waits")
    crashed = [rank for rank, status in enumerate(statuses) if status not in (0, None) and rank not in
               [one["rank"] for one in errors + waits]]
    lines = []
    if errors and not crashed:
        first = errors[0]
        lines = ["rank %d failed: %s" % (first["rank"], first["said"])]
        for file, number, name, line in first["frames"][-6:]:
            lines.append("  %s:%d in %s%s" % (file, number, name, ": " + line if line else ""))
        lines += output_of(folder, first["rank"])
        lines += ["rank %d failed after it: %.120s" % (one["rank"], one["said"].splitlines()[0]) for one in errors[1:]]
    elif crashed:
        lines = ["rank %d died with status %d" % (crashed[0], statuses[crashed[0]])] + output_of(folder, crashed[0])
    elif waits:
        lines = ["the ranks have not ended within %g s" % settings["limit"]]
        for one in sorted(waits, key=lambda one: one["rank"]):
            lines.append("  rank %d %s" % (one["rank"], "has ended" if one["done"] else "is at %s" % (one["at"] or "an unknown place")))
    else:
        lines = ["the ranks did not come to train within %d s" % START]
    captured = os.path.join(folder, "run")
    apart = not_met(captured, program)
    if waits or apart:
        lines += apart + sequences.tails(sequences.recorded(captured, world))
    return lines


def not_met(folder, program):
    """Sentences on collectives of the run that do not meet; none where it cannot be read."""
    try:
        return verify(folder, program=program).report["collectives"]
    except VerifyError:
        return []


def trained(train, ranks, loss, arguments, limit, init, folder, program, of="", compared=1):
    """Carries out one training on these ranks, with its files in the folder; the folder of its capture. `compared`: ranks of the run whose reference it is."""
    file = checked(train, ranks, loss, arguments, limit)
    os.makedirs(folder, exist_ok=True)
    environment = dict(os.environ)
    if sys.platform == "linux":
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    settings = {"folder": folder, "world": ranks, "compared": compared, "limit": limit, "init": init, "arguments": arguments, "module": train.__module__,
                "file": file, "function": train.__qualname__, "environment": environment, "path": list(sys.path),
                "directory": os.getcwd(), "port": free_port()}
    statuses = carried_out(settings)
    if any(status != 0 for status in statuses):
        lines = stopped(settings, statuses, program)
        raise Failed("\n".join([of + lines[0], *lines[1:], "the files are in %s" % folder]), folder)
    captured = os.path.join(folder, "run")
    if not os.path.isdir(captured):
        raise Failed('%s"%s" captured nothing: train within lockstep.capture(model, optimizer)' % (of, train.__qualname__), folder)
    return captured


def run(train, ranks=2, loss=None, arguments=None, out=None, limit=60, init=True, check=True, step=None, parameters=(), program=None,
        reference=None):
    """Calls train(rank, world) in `ranks` processes of this machine, joined by gloo, and verifies what it captures.

    train: a function at the top of a file. It makes model and optimizer, and trains within lockstep.capture(model, optimizer, …), whose folder
           is chosen here.
    loss: what each rank's backward is the gradient of ("local_mean", "sum", "token_mean", "token_sum"); None: what the capture says.
    arguments: a dictionary of what train takes beside rank and world.
    out: where to leave the files, a new or empty folder; None: a temporary one, which is removed if all is right.
    limit: seconds that train may take; then the message tells which collectives each rank has issued.
    init: whether to make the process group; with False, train does it (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set).
    check: whether what is not right raises Failed, an AssertionError; False: the Verification is returned anyhow.
    step, parameters, program: as for lockstep.verify.
    reference: a function that trains the same model on the same data on one device, called with (0, 1) and the arguments, and captures as well;
               True: train itself, if with world 1 it takes all data; or the folder of such a run. What the ranks contribute must add up to its gradients.
    Returns a Verification. Raises Failed also where a rank raises or does not end, RanksError where the ranks cannot be started.
    """
    arguments = {} if arguments is None else arguments
    checked(train, ranks, loss, arguments, limit)
    single = train if reference is True else reference
    trains = inspect.isfunction(single)
    if trains:
        checked(single, 1, loss, arguments, limit)
    elif single is not None and not isinstance(single, (str, os.PathLike)):
        raise RanksError("reference is a %s: expected a function train(rank, world), True for the same function, or a folder" % type(single).__name__)
    folder = tempfile.mkdtemp(prefix="lockstep-run-") if out is None else os.path.abspath(checked_path(out, "out", RanksError))
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise RanksError('"%s" is a file: choose a new or empty folder with out=' % folder)
    if os.path.exists(folder) and os.listdir(folder):
        raise RanksError('the folder "%s" is not empty: choose another one with out=, or remove it' % folder)
    captured = trained(train, ranks, loss, arguments, limit, init, folder, program)
    if trains:
        single = trained(single, 1, loss, arguments, limit, init, os.path.join(folder, "reference"), program, "on one rank, for the reference: ",
                         ranks)
    verification = verify(captured, loss=loss, step=step, parameters=parameters, program=program, reference=single)
    if check and not verification.ok:
        raise Failed("\n".join([verification.message(), "the files are in %s" % folder]), folder, verification)
    if out is None:
        str(verification)
        shutil.rmtree(folder, ignore_errors=True)
    return verification
