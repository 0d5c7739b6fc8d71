# SPDX-License-Identifier: Apache-2.0
"""The table of docs/pytest.md, written from the list. What it says holds where tools/others finds everything as expected."""

BEGIN, END = "<!-- tools/others --write -->\n", "<!-- end of tools/others -->\n"


def counts(listed):
    """Of all mistakes: how many are a mismatch, with the formula or the words that are right, and with the place; how many are undecided."""
    mistakes = [mistake for program in listed.values() for mistake in program.mistakes]
    wrong = [one for one in mistakes if one.verdict == "mismatch"]
    return {"programs": len(listed), "projects": len({program.project for program in listed.values()}), "mistakes": len(mistakes), "mismatch": len(wrong),
            "said": sum(1 for one in wrong if one.formula or one.says), "placed": sum(1 for one in wrong if one.place), "elsewhere": sum(1 for one in wrong if one.instead),
            "undecided": sum(1 for one in mistakes if one.verdict == "undecided")}


def said(entry):
    """A verdict in words."""
    parts = [entry.verdict] if entry.verdict != "mismatch" else []
    if getattr(entry, "formula", None):
        parts.append("`%s`" % entry.formula)
    if entry.says:
        parts.append("*%s*" % entry.says)
    if entry.verdict == "mismatch":
        parts.append("*named*" if entry.place else "*another step named*" if entry.instead else "no step named")
    return ", ".join(parts)


def row(name, program):
    mistakes = "; ".join("%s: %s" % (one.words, said(one)) for one in program.mistakes)
    words = "%s, `%s`%s" % (program.project, program.script if program.script else ", ".join(program.needs), ": " + program.words if program.words else "")
    return "| `%s` | %s | %d | %s | %s |" % (name, words, program.ranks, said(program), mistakes)


def table(listed):
    number = counts(listed)
    lines = ["%(programs)d programs of %(projects)d projects, %(mistakes)d mistakes: %(mismatch)d are a mismatch, %(said)d of these with the formula or words that"
             " the list has, %(placed)d with the step at fault or the line, %(elsewhere)d with another step; %(undecided)d are undecided, with what is not known." %
             number, "", "| program | what | ranks | right | mistakes put in, and what `verify` says |",
             "|---|---|---|---|---|"]
    return "\n".join(lines + [row(name, program) for name, program in listed.items()]) + "\n"


def renewed(text, listed):
    """The document with the table of this list."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table(listed) + END + rest.split(END)[1]
