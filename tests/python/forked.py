# SPDX-License-Identifier: Apache-2.0
"""Ranks of a worker, each a process of its own, forked from one that has loaded it: to load torch takes longer than most cases.

forked.py WORKER, on a Python with torch. A line of standard input has the arguments of each rank, as JSON; when all of these ranks have ended,
a line of standard output has each rank's exit status and what it said.
"""

import importlib
import json
import os
import selectors
import sys


def forked(worker, arguments):
    """(process id, what it says) of a rank."""
    ours, its = os.pipe()
    child = os.fork()
    if child:
        os.close(its)
        return child, ours
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (1, 2):
        os.dup2(its, number)
    os.close(its)
    sys.argv[1:] = arguments
    worker.main()
    sys.exit()  # as any program ends


def all_said(pipes):
    """What the ranks say, of all at once: one that nobody reads waits, and others wait for it."""
    said = {pipe: b"" for pipe in pipes}
    with selectors.DefaultSelector() as open_ones:
        for pipe in pipes:
            open_ones.register(pipe, selectors.EVENT_READ)
        while open_ones.get_map():
            for key, _ in open_ones.select():
                text = os.read(key.fd, 1 << 16)
                said[key.fd] += text
                if not text:
                    open_ones.unregister(key.fd)
                    os.close(key.fd)
    return [said[pipe].decode(errors="replace") for pipe in pipes]


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what torch says while it is loaded is no answer
    os.set_inheritable(answers.fileno(), False)
    importlib.import_module("torch._dynamo")  # or each rank loads it, for more than a second, at its first optimizer step or collective
    worker = importlib.import_module(sys.argv[1])
    for line in sys.stdin:
        ranks = [forked(worker, arguments) for arguments in json.loads(line)]
        said = all_said([pipe for _, pipe in ranks])
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child, _ in ranks]
        print(json.dumps(list(zip(statuses, said))), file=answers, flush=True)


if __name__ == "__main__":
    main()
