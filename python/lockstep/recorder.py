# SPDX-License-Identifier: Apache-2.0
"""The files of one rank (docs/capture.md): lines of JSON, and the sketches of each optimizer step as safetensors.

Nothing is shared with other ranks. Lines are flushed; sketches are written beside and renamed, so that what has a name is whole. What cannot be
written any more, as of a disk that is full or a folder that is gone, ends the files with a warning: no training ends for them.
"""

import contextlib
import glob
import json
import os
import re
import sys

from lockstep import sketch_files
from lockstep.errors import CaptureError


def rank_files(folder):
    """(path, rank) of what captures have left in a folder."""
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "rank-*"))):
        found = re.match(r"rank-(\d+)\.(jsonl$|step-)", os.path.basename(path))
        if found:
            yield path, int(found.group(1))


def world_of(path):
    """How many ranks the run of a rank's file has; None where it does not say so yet."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.loads(file.readline()).get("world")
    except (OSError, ValueError, AttributeError):
        return None


class Recorder:
    """Writes what rank `rank` of `world` has to say into `folder`; with `overwrite`, in the place of an earlier run."""

    def __init__(self, folder, rank, world, sums, overwrite=False):
        self.folder, self.sums = os.fspath(folder), sums
        os.makedirs(self.folder, exist_ok=True)
        own, others = [], []  # of earlier runs: the other ranks of this one may have begun
        for path, other in rank_files(self.folder):
            if other == rank:
                own.append(path)
            elif other >= world or (path.endswith(".jsonl") and world_of(path) not in (None, world)):
                others.append(path)
        if (own or others) and not overwrite:
            raise CaptureError('the folder "%s" holds the files of another run (%s): choose another one with out=, remove it, or replace that run with'
                               " overwrite=True" % (self.folder, os.path.basename((own + others)[0])))
        for path, other in rank_files(self.folder):
            if other == rank or (rank == 0 and other >= world):
                os.remove(path)
        self.stem = os.path.join(self.folder, "rank-%05d" % rank)
        self.size, self.waiting = 0, []
        self.failed = self.closed = False
        self.file = open(self.stem + ".jsonl", "xb", buffering=0)

    def event(self, kind, values):
        if self.closed:
            return
        text = json.dumps(dict({"event": kind}, **values), ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"
        self.waiting.append(text.encode(errors="replace"))
        self.size += len(self.waiting[-1])

    def flush(self):
        if self.closed or not self.waiting:
            return
        content, self.waiting = b"".join(self.waiting), []
        with self.writing(self.stem + ".jsonl"):
            while content:
                content = content[self.file.write(content):]

    def sketches(self, step, rows, wide):
        """The sketches of a step, as bytes, in the order of their rows; `wide`: with all digits of a float64."""
        if self.closed:
            return
        path = "%s.step-%05d.safetensors" % (self.stem, step)
        content = sketch_files.written(rows, self.sums, wide)
        with self.writing(path):
            with open(path + ".part", "wb") as file:
                file.write(content)
            os.replace(path + ".part", path)
            self.size += len(content)
        if self.failed:
            with contextlib.suppress(OSError):
                os.remove(path + ".part")

    @contextlib.contextmanager
    def writing(self, path):
        try:
            yield
        except OSError as error:
            self.failed = self.closed = True
            with contextlib.suppress(OSError):
                self.file.close()
            with contextlib.suppress(OSError, ValueError, AttributeError):  # where that is full, or closed, as well
                print("lockstep: warning: %s cannot be written (%s): the capture of this rank ends here, and the training goes on; lockstep verify says"
                      " that the run is not complete" % (path, error.strerror), file=sys.stderr, flush=True)

    def close(self):
        self.flush()
        if not self.closed:
            self.closed = True
            with self.writing(self.stem + ".jsonl"):
                self.file.close()
