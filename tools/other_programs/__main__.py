# SPDX-License-Identifier: Apache-2.0
"""tools/others: see there, and programs.py for the list."""

import argparse
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "python")]

import checkouts
import document
import programs
import running


def arguments():
    parser = argparse.ArgumentParser(prog="tools/others", description="Captures training programs of other projects on CPU ranks, as they are and with mistakes put"
                                     " in, and compares what lockstep verify says with what is known of them.")
    parser.add_argument("names", nargs="*", help="programs, or PROGRAM:MISTAKE; all if none is named")
    parser.add_argument("--mirror", default="https://github.com/{owner}/{name}", metavar="PLACE",
                        help="where the projects' git repositories are, with {owner} and {name} in it: an address, or folders")
    parser.add_argument("--list", action="store_true", help="name all programs and their mistakes, and run nothing")
    parser.add_argument("--right", action="store_true", help="only as they are, without mistakes")
    parser.add_argument("--bits", action="store_true", help="also whether each trains to the same bits without the capture")
    parser.add_argument("--show", action="store_true", help="print what verify says")
    parser.add_argument("--keep", metavar="FOLDER", help="leave the edited project and the capture of each run in FOLDER/PROGRAM:MISTAKE")
    parser.add_argument("--write", action="store_true", help="renew the table of docs/pytest.md from the list, and run nothing")
    return parser.parse_args()


def chosen(names):
    """(program, mistake or None) of all that is asked for."""
    listed = programs.listed()
    for name in names:
        program, _, mistake = name.partition(":")
        if program not in listed or mistake and mistake not in [one.name for one in listed[program].mistakes]:
            sys.exit('tools/others: there is no "%s"; --list names all' % name)
    for name, program in listed.items():
        for mistake in [None, *program.mistakes]:
            whole = name + (":" + mistake.name if mistake else "")
            if not names or name in names or whole in names:
                yield whole, program, mistake


def shown(report):
    counts = report["counts"]
    lines = ["%s: %d right, %d wrong, %d undecided; %s" % (report["verdict"], counts["right"], counts["wrong"], counts["undecided"], report["adapter"])]
    for one in report["findings"][:5]:
        lines.append("%s: %s: %s, ranks %s" % (one["verdict"], one["what"], ", ".join(one["parameters"][:3]), one["ranks"]))
    lines += ["formulas " + "; ".join(running.formulas(report)[:5])] if running.formulas(report) else []
    lines += ["gap: " + one for one in report["gaps"][:3]] + ["note: " + one for one in report["notes"][:3]]
    lines += ["at fault: " + one for one in running.places(report)] + (["no step: " + report["not_blamed"]] if report["not_blamed"] else [])
    return lines + report["collectives"]


def main():
    asked = arguments()
    if asked.list:
        for whole, program, mistake in chosen(asked.names):
            print("%-44s %s" % (whole, mistake.words if mistake else "%s %s" % (program.project, program.started())))
        return 0
    if asked.write:
        path = os.path.join(ROOT, "docs", "pytest.md")
        with open(path, encoding="utf-8") as file:
            text = document.renewed(file.read(), programs.listed())
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return 0
    found = checkouts.Checkouts(asked.mirror, os.path.join(ROOT, "build", "others"))
    number, bad = 0, 0
    for whole, program, mistake in chosen(asked.names):
        if mistake and asked.right:
            continue
        began = time.monotonic()
        try:
            outcome = running.carried_out(program, found, mistake, keep=os.path.join(os.path.abspath(asked.keep), whole) if asked.keep else None)
            wrong = running.differences(mistake or program, outcome)
            if asked.bits and not mistake and not outcome.failed:
                alone = running.carried_out(program, found, captured=False)
                if alone.digests != outcome.digests:
                    wrong.append("without the capture it fails: " + alone.failed if alone.failed else "without the capture it trains to other bits")
        except (checkouts.Missing, programs.Wrong) as error:
            outcome, wrong = running.Outcome(failed=str(error)), [str(error)]
        bad += bool(wrong)
        print("%s %s, %.1f s" % ("not as expected:" if wrong else "as expected:", whole, time.monotonic() - began), flush=True)
        for line in wrong + (shown(outcome.report) if outcome.report and (asked.show or wrong) else []):
            print("    " + line.replace("\n", "\n    "), flush=True)
        number += 1
    print("%d of %d runs are as expected" % (number - bad, number))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
