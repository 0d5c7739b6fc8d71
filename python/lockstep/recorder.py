# SPDX-License-Identifier: Apache-2.0
"""The files of one rank (docs/capture.md): lines of JSON, and the sketches of each optimizer step as safetensors.

Nothing is shared with other ranks. Lines are flushed; sketches are written beside and renamed, so that what has a name is whole.
"""

import glob
import json
import os
import re
import struct

from lockstep.errors import CaptureError


def safetensors(rows, sums):
    """A file with one float64 tensor "sketches" [rows, sums]; `rows` are bytes, little endian."""
    data = b"".join(rows)
    header = {"sketches": {"dtype": "F64", "shape": [len(rows), sums], "data_offsets": [0, len(data)]}}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


class Recorder:
    """Writes what rank `rank` of `world` has to say into `folder`."""

    def __init__(self, folder, rank, world, sums):
        self.folder, self.sums = os.fspath(folder), sums
        os.makedirs(self.folder, exist_ok=True)
        for path in glob.glob(os.path.join(glob.escape(self.folder), "rank-*.jsonl")):
            other = re.match(r"rank-(\d+)\.jsonl$", os.path.basename(path))
            if other and int(other.group(1)) >= world:
                raise CaptureError('"%s" holds a capture with more ranks (%s; this job has %d): choose another folder with out=, or remove it'
                                   % (self.folder, os.path.basename(path), world))
        self.stem = os.path.join(self.folder, "rank-%05d" % rank)
        for path in glob.glob(glob.escape(self.stem) + ".step-*"):
            os.remove(path)  # of an earlier run in the same folder
        self.lines = open(self.stem + ".jsonl", "w", encoding="utf-8", errors="replace", newline="\n")
        self.size = 0

    def event(self, kind, values):
        text = json.dumps(dict({"event": kind}, **values), ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"
        self.size += len(text.encode(errors="replace"))
        self.lines.write(text)

    def flush(self):
        self.lines.flush()

    def sketches(self, step, rows):
        """The sketches of a step, as bytes, in the order of their rows."""
        path = "%s.step-%05d.safetensors" % (self.stem, step)
        content = safetensors(rows, self.sums)
        with open(path + ".part", "wb") as file:
            file.write(content)
        os.replace(path + ".part", path)
        self.size += len(content)

    def close(self):
        self.lines.close()
