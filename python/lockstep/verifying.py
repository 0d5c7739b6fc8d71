# SPDX-License-Identifier: Apache-2.0
"""`lockstep verify` for Python: what a captured run computed, as an object (docs/pytest.md). Needs no torch."""

import json
import os
import re
import subprocess

from lockstep.errors import VerifyError, checked_loss, checked_path, listed_names, shown


def finished(program, arguments):
    """What the program has printed, and its exit status."""
    try:
        done = subprocess.run([program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    except OSError as error:
        raise VerifyError('the program "%s" cannot be started (%s): install the package, or name the program with LOCKSTEP_BINARY'
                          % (program, error.strerror)) from error
    output, errors = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace").strip()
    if done.returncode not in (0, 1):
        raise VerifyError(re.sub("^error: ", "", errors) or "lockstep verify ended with status %d and said nothing" % done.returncode)
    return output, done.returncode


def listed(names, most=6):
    names = [str(name) for name in names]
    return ", ".join(names[:most]) + (" and %d more" % (len(names) - most) if len(names) > most else "")


class Verification:
    """What `lockstep verify` found in a run.

    ok: whether every result is what one device has, and nothing of the run is missing.
    verdict: "match", "mismatch" or "undecided".
    report: the JSON report as a dictionary (docs/verify.md).
    str() is the text that the program prints.
    """

    def __init__(self, program, arguments, folder):
        self.folder = folder
        self._asked = program, arguments
        self._text = None
        output, status = finished(program, ["verify", "-f", "json", *arguments])
        try:
            self.report = json.loads(output)
            self.verdict = self.report["verdict"]
        except (ValueError, KeyError, TypeError) as error:
            raise VerifyError('"%s verify -f json" did not print a report: is it the lockstep of this package?' % program) from error
        self.ok = status == 0 and self.verdict == "match"

    def __bool__(self):
        return self.ok

    def __str__(self):
        if self._text is None:
            program, arguments = self._asked
            self._text = finished(program, ["verify", "--color", "never", *arguments])[0].rstrip("\n")
        return self._text

    def __repr__(self):
        return "<lockstep.Verification %s of %s>" % (self.verdict, self.folder)

    @property
    def findings(self):
        """Each kind of mistake: dictionaries with "what", "parameters", "ranks", "steps"."""
        return self.report["findings"]

    def formulas(self, parameter):
        """{(step, piece, rank): formula} of what the optimizers got for a parameter."""
        return {(one["step"], one["piece"], rank): one["formula"]
                for one in self.report["results"] if one["parameter"] == parameter for rank in one["ranks"]}

    def message(self, most=4):
        """What is wrong, for an assertion: a sentence for each kind of mistake, with what ranks got and what was expected."""
        report = self.report
        said = "the optimizers got what one device would give them" if self.ok else \
            "the optimizers got other gradients than one device would give them" if self.verdict == "mismatch" else \
            "whether the optimizers got the right gradients cannot be said"
        lines = ["%s (%d ranks, %s, loss %s)" % (said, report["world"], report["adapter"], report["loss"] or "not known")]
        bad = [one for one in report["results"] if one["verdict"] != "right"]
        for number, finding in enumerate(report["findings"]):
            lines.append("  %s: %s" % (finding["verdict"], finding["what"]))
            if not finding["results"]:  # it is about the reference
                lines.append("    %s" % listed(finding["parameters"]))
                continue
            alike = {}
            for one in bad:
                if one["finding"] == number:
                    alike.setdefault((one["step"], tuple(one["ranks"]), one["formula"], one["expected"]), []).append(one)
            for (step, ranks, formula, expected), ones in list(alike.items())[:most]:
                names = list(dict.fromkeys(one["parameter"] for one in ones))
                lines.append("    %s on rank%s %s, optimizer step %d" % (listed(names), "s" * (len(ranks) > 1), listed(ranks), step))
                lines.append("      got       %s" % (formula or "no formula"))
                lines.append("      expected  %s" % (expected or "not known"))
                if all(one["why"] for one in ones):
                    lines.append("      because   %s" % ones[0]["why"])
            if len(alike) > most:
                lines.append("    and %d more formulas" % (len(alike) - most))
        lines += ["  missing: %s" % gap for gap in report["gaps"]]
        if not report["results"]:
            lines.append("  no optimizer got anything while the capture went on")
        return "\n".join(lines)


def verify(folder, loss=None, step=None, parameters=(), program=None, reference=None):
    """Runs `lockstep verify` on a captured run. Returns a Verification; raises VerifyError where the run cannot be read.

    loss: what each rank's backward is the gradient of, in the place of what the run says ("local_mean", "sum", "token_mean", "token_sum").
    step: this optimizer step alone. parameters: globs of names, one or several. program: another lockstep than the package's.
    reference: the folder of a captured run on one rank, of the same model with the same weights and data, to whose gradients the ranks'
               contributions must add up.
    """
    loss = checked_loss(loss, VerifyError)
    if step is not None and (isinstance(step, bool) or not isinstance(step, int) or step < 0):
        raise VerifyError("step is %r: expected the number of an optimizer step, counted from 0" % (step,))
    folder = checked_path(folder, "the folder of a run", VerifyError)
    names = listed_names(parameters)
    if names is None:
        raise VerifyError("parameters is %s: expected the name of a parameter, or a list of them" % shown(parameters))
    if not os.path.isdir(folder):
        raise VerifyError('"%s" is not a folder: expected the one that lockstep.capture has written (out=)' % folder)
    arguments = [folder]
    if reference is not None:
        reference = checked_path(reference, "reference", VerifyError)
        if not os.path.isdir(reference):
            raise VerifyError('"%s" is not a folder: expected the one that lockstep.capture has written on one rank' % reference)
        arguments += ["--reference", reference]
    if loss is not None:
        arguments += ["--loss", loss]
    if step is not None:
        arguments += ["--step", str(step)]
    for name in names:
        arguments += ["--parameter", name]
    if program is None:
        from lockstep import program as installed
        program = installed()
    return Verification(os.fspath(program), arguments, folder)
