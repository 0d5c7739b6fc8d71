# SPDX-License-Identifier: Apache-2.0
"""`python -m lockstep.matrix SETTINGS DESCRIPTOR`, as `lockstep matrix` and `lockstep bisect` run it. The text goes to the descriptor. Exit status 0; 1 where not
everything is a match, or the ends of a bisection differ; 2 with a sentence on standard error."""

import concurrent.futures
import json
import os
import re
import signal
import sys

from lockstep.matrix import bisecting, environment, releases, results, running, table
from lockstep.matrix.plan import WORD, Combination, PlanError, read

WRONG = 11  # the exit status: a text was written, and something in it is wrong


def report(settings, line):
    if not settings["quiet"]:
        print("lockstep %s: %s" % (settings["command"], line), file=sys.stderr, flush=True)


def versions_of(experiment, python):
    if isinstance(experiment.versions, list):
        return experiment.versions
    first, _, last = experiment.versions.partition("..")
    try:
        return releases.between(experiment.package, first, last, python)
    except releases.Unavailable as unavailable:
        raise PlanError("%s: %s" % (experiment.where, unavailable)) from unavailable


def matrix(settings):
    python = settings["python"]
    experiments, had = read(settings["file"]), environment.Had(python)
    combinations = [one for experiment in experiments for one in experiment.combinations(versions_of(experiment, python), had)]
    combinations = [one for one in combinations if all(word in one.title() for word in settings["only"])]
    if not combinations:
        raise PlanError("%s: there is no combination%s" % (settings["file"], " with " + " and ".join(settings["only"]) if settings["only"] else ""))
    there, kept = releases.Releases(settings["releases"], python), running.Kept(settings["results"])
    there.clean()
    waiting = [one for one in combinations if settings["again"] or not kept.has(one)]
    if len(waiting) < len(combinations):
        report(settings, "%d of %d combinations are there" % (len(combinations) - len(waiting), len(combinations)))

    def one(combination):
        found = running.result(combination, there, settings["limit"])
        kept.write(combination, found)
        return found

    if not settings["written"]:
        # One after the other: two that install the same release would do it twice.
        for combination in {(one.package, one.wanted, one.together, one.over): one for one in waiting}.values():
            try:
                there.folders(combination)
            except releases.Unavailable as unavailable:
                report(settings, "%s %s: %s" % (combination.package, combination.wanted, unavailable))
        with concurrent.futures.ThreadPoolExecutor(settings["jobs"]) as pool:
            try:
                for number, (combination, found) in enumerate(zip(waiting, pool.map(one, waiting)), 1):
                    report(settings, "%d of %d: %s: %s (%.0f s)" % (number, len(waiting), combination.title(), found["outcome"], found["seconds"]))
            except BaseException:
                running.end_all()
                pool.shutdown(cancel_futures=True)
                raise
    found = [one for one in map(kept.read, combinations) if one is not None]
    kind, missing = settings["format"], len(combinations) - len(found)
    shown = table.as_json(found) if kind == "json" else table.as_markdown(found, settings["shown"], missing) if kind == "markdown" else table.as_text(found, missing)
    return shown, not missing and all(one["outcome"] == results.MATCH for one in found)


def bisect(settings):
    package, python = settings["package"], settings["python"]
    if not re.fullmatch(WORD, package):
        raise PlanError("%s is no name of a package" % package)
    try:
        versions = releases.between(package, settings["first"], settings["last"], python)
    except releases.Unavailable as unavailable:
        raise PlanError(str(unavailable)) from unavailable
    there, had = releases.Releases(settings["releases"], python), environment.Had(python)
    there.clean()
    kept = running.Kept(settings["results"]) if settings["results"] else None

    def run(version):
        combination = Combination("bisect", package, version, (("ranks", settings["ranks"]),), (), settings["loss"], settings["ranks"], settings["mesh"],
                                  settings["data_axes"], os.path.abspath(settings["script"]), tuple(settings["arguments"]), (), (), (), settings["steps"],
                                  environment=had.digest)
        found = kept.read(combination) if kept and kept.has(combination) and not settings["again"] else None
        if found is None:
            found = running.result(combination, there, settings["limit"], settings["jobs"])
            if kept:
                kept.write(combination, found)
        return found

    bisection = bisecting.Bisection(versions, run, lambda line: report(settings, line))
    try:
        places = bisection.search()
    except ValueError as error:
        raise PlanError("%s %s" % (package, error)) from error
    if settings["format"] == "json":
        return json.dumps(bisecting.as_content(bisection, package, places), indent=1) + "\n", bisection.are_the_same(places)
    return bisecting.text_of(bisection, package, places), bisection.are_the_same(places)


def main(settings, descriptor):
    settings = json.loads(settings)
    os.environ.setdefault("LOCKSTEP_BINARY", settings["program"])  # that has started this
    if os.sep in settings["python"]:  # scripts run elsewhere; a link stays one, as that of a virtual environment
        settings["python"] = os.path.abspath(settings["python"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # what runs is ended on the way out
    try:
        text, right = {"matrix": matrix, "bisect": bisect}[settings["command"]](settings)
    except PlanError as error:
        print("lockstep %s: %s" % (settings["command"], error), file=sys.stderr)
        return 2
    with os.fdopen(int(descriptor), "w", encoding="utf-8") as file:
        file.write(text)
    return 0 if right else WRONG


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
