# SPDX-License-Identifier: Apache-2.0
"""`lockstep extract` of a case with a mutant, and what `lockstep check` says of it."""

import json
import os
import subprocess
import sys

MATCH, MISMATCH, UNDECIDED, ERROR = "match", "mismatch", "undecided", "error"
REFUSED = 2  # exit status of `lockstep extract`, with a sentence


class Unmade(Exception):
    """There is no extraction, and no reason in what was extracted."""


def extract(case, mutant, folder, ranks=None, jobs=1, limit=60):
    """(outcome, a sentence) of the verdict, or of why there is none. It is what the command does, in a fork of this process. Raises Unmade where the mutant could not
    be planted, or the command ended without a sentence: that says nothing of the mutant."""
    output, said = os.path.join(folder, "step.json"), os.path.join(folder, "said")
    child = os.fork()
    if child == 0:
        status = 1  # as of whatever raises below
        try:
            own = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(own, 1)
            os.dup2(own, 2)
            from lockstep.extracting import __main__ as command
            from lockstep.extracting import ranks as playing

            playing.load = lambda: None  # it is loaded
            if mutant is not None:
                from planting import plant

                plant(mutant)
            settings = {"world": ranks or case.ranks, "local_world": 8, "script": case.script, "module": False, "arguments": case.arguments, "steps": 2,
                        "loss": case.framework.losses.get(case.name, "local_mean"), "limit": limit, "every": False, "quiet": True, "jobs": jobs}
            status = command.main(json.dumps(settings), os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        except BaseException as failure:
            os.write(2, ("%s: %s\n" % (type(failure).__name__, failure)).encode())
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    with open(said, encoding="utf-8", errors="replace") as file:
        words = file.read().strip()
    status = os.waitstatus_to_exitcode(status)
    if status not in (0, REFUSED):
        raise Unmade("no extraction, status %d: %s" % (status, words.split("\n")[-1]))
    if status:
        return ERROR, words[words.find("lockstep extract: "):].replace("lockstep extract: ", "", 1)  # warnings of packages may stand before it
    return checked(output)


def checked(output):
    done = subprocess.run([os.environ["LOCKSTEP_BINARY"], "check", output, "-f", "json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        return ERROR, "check: " + done.stderr.strip()
    report = json.loads(done.stdout)
    return report["verdict"], sentence(report)


def sentence(report):
    """The first of what the report finds."""
    for key in ("findings", "collectives", "undecided", "gaps"):
        for one in report.get(key) or ():
            if isinstance(one, str):
                return one
            words = one.get("message") or one.get("text") or one.get("what") or one.get("why") or one.get("sentence")
            return words if words else json.dumps(one)[:300]
    for piece in report.get("results", ()):
        if piece["verdict"] != "right":
            return "%s: %s" % (piece["parameter"], piece.get("reason") or piece["formula"])
    return ""
