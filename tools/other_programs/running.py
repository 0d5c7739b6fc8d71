# SPDX-License-Identifier: Apache-2.0
"""One run of a program: its ranks, what verify says of their capture, and whether that is what the list expects."""

import contextlib
import hashlib
import os
import re
import runpy
import shutil
import sys
import tempfile

import lockstep
from lockstep import ranks

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import programs


def digest_of_steps():
    """Hashes all parameters of each optimizer after each of its steps; what is returned is called for the digest."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    digest = hashlib.sha256()

    def stepped(optimizer, arguments, more):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                held = parameter.detach()
                held = held.to_local() if hasattr(held, "to_local") else held
                digest.update(held.contiguous().view(-1).view(torch.uint8).numpy().tobytes())

    register_optimizer_step_post_hook(stepped)
    return digest.hexdigest


class NoCapture:
    """What a program gets of lockstep where it is to train without: its calls do nothing."""

    def __call__(self, *arguments, **more):
        return self

    def __getattr__(self, name):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *what):
        return None


def train(rank, world, folder, start, script, arguments, missing, before, captured, digests):
    """Is a rank of a program. Its folder is unpacked and edited."""
    import random

    import numpy
    import stand_ins
    import torch

    for seed in (random.seed, numpy.random.seed, torch.manual_seed):
        seed(1000 + rank)  # ranks are forks, which would draw the same numbers; processes that were started do not
    os.chdir(os.path.join(folder, start))
    sys.path.insert(0, os.getcwd())
    os.environ["LOCKSTEP_RANKS"] = str(world)
    for name in missing:
        stand_ins.module(name)
    stand_ins.lead_to_cpu(world)
    if not captured:
        lockstep.attach = lockstep.capture = NoCapture()
        os.makedirs(os.path.join(digests, "run"), exist_ok=True)
    digest = digest_of_steps()
    if before:
        exec(compile(before, "before", "exec"), {"module": stand_ins.module, "__name__": "before"})
    sys.argv = [script, *arguments]
    with contextlib.suppress(SystemExit):
        runpy.run_path(script, run_name="__main__")
    with open(os.path.join(digests, "digest-%d" % rank), "w", encoding="utf-8") as file:
        file.write(digest())


class Outcome:
    """What came of a run. failed: a text where it did not end or could not be verified; report: of verify; digests: of each rank's weights."""

    def __init__(self, failed=None, report=None, digests=None, folder=None):
        self.failed, self.report, self.digests, self.folder = failed, report, digests, folder


def carried_out(program, checkouts, mistake=None, captured=True, keep=None):
    """Runs a program, or one with a mistake."""
    folder = keep or tempfile.mkdtemp(prefix="lockstep-others-")
    shutil.rmtree(folder, ignore_errors=True)
    project, files = os.path.join(folder, "project"), os.path.join(folder, "files")
    os.makedirs(project)
    try:
        checkouts.unpacked(program, project)
        program.edited(project, mistake)
        os.makedirs(files)
        settings = {"folder": project, "start": program.folder, "script": program.started(), "arguments": program.arguments, "missing": program.missing,
                    "before": program.before, "captured": captured, "digests": files}
        run = ranks.trained(train, program.ranks, None, settings, program.limit, False, files, None)
        digests = []
        for rank in range(program.ranks):
            with open(os.path.join(files, "digest-%d" % rank), encoding="utf-8") as file:
                digests.append(file.read())
        return Outcome(report=lockstep.verify(run).report if captured else None, digests=digests, folder=run)
    except (lockstep.Failed, lockstep.VerifyError) as error:
        return Outcome(failed=str(error), folder=os.path.join(files, "run"))
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def sentences(report):
    """All that verify says in words."""
    return [one["what"] for one in report["findings"]] + report["gaps"] + report["collectives"] + [one["why"] or "" for one in report["results"]]


def places(report):
    """What verify says of where it is: the step at fault and its repair."""
    return ["%s: %s" % (one["step"], one["why"]) for one in report["blame"]] + [str(one) for one in report["repair"]]


def where_it_may_be(place, report):
    """Where a place of the list is looked for. A line of a file is in sentences; a step's words must not be met by what says that something is wrong."""
    return places(report) + (sentences(report) if place.endswith(".py:") else [])


def formulas(report):
    return sorted({one["formula"] for one in report["results"] if one["verdict"] != "right" and one["formula"]}, key=lambda one: (len(one), one))


def differences(expected, outcome):
    """What is not as an entry of the list says: sentences."""
    if outcome.failed:
        return ["the run failed: " + outcome.failed]
    report, found = outcome.report, []
    if report["verdict"] != expected.verdict:
        found.append("the verdict is %s: expected %s" % (report["verdict"], expected.verdict))
    if expected.says and not any(expected.says in one for one in sentences(report)):
        found.append('nothing says "%s"' % expected.says)
    if isinstance(expected, programs.Mistake):
        if expected.formula and expected.formula not in formulas(report):
            found.append("no result is %s: there are %s" % (expected.formula, ", ".join(formulas(report)[:4]) or "none"))
        place = expected.place or expected.instead
        if place and not any(re.search(place, one) for one in where_it_may_be(place, report)):
            found.append("no place is %s: there are %s" % (place, "; ".join(places(report)) or "none, for " + str(report["not_blamed"])))
        if not place and places(report):
            found.append("a place is named, and none is expected: " + "; ".join(places(report)))
    return found
