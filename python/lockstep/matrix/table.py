# SPDX-License-Identifier: Apache-2.0
"""Results as a table: a row for neighbours that say the same."""

import itertools
import json

from lockstep.matrix import results
from lockstep.matrix.plan import text

HEAD = ("experiment", "versions", "layout", "options", "loss", "verdict", "formula", "right is", "where")


def words(things):
    return " ".join("%s=%s" % (name, text(value)) for name, value in things.items())


def where(result):
    """The step at fault; where none is named, what is said in its place."""
    if result["outcome"] == results.MATCH:
        return ""
    if result.get("blame"):
        return "; ".join("%s: it %s" % (one["step"], one["why"]) for one in result["blame"])
    said = (result.get("findings") or []) + (result.get("why") or [])
    calls = result.get("calls") or []
    return "; ".join(filter(None, [said[0] if said else "", calls[-1] if calls and result["outcome"] == results.MISMATCH else ""]))


def wrong_first(result):
    """Of formulas that stand in a row: what is not right, and of each kind one."""
    found = [one for one in result.get("formulas", ()) if one["verdict"] != "right"] or result.get("formulas", [])
    return list(dict.fromkeys((one["formula"], one["expected"]) for one in found))


def columns(result):
    """All but the versions."""
    pairs = wrong_first(result)
    more = len(pairs) - 2
    formula = "; ".join(formula for formula, _ in pairs[:2]) + (" and %d more" % more if more > 0 else "")
    right = "; ".join(dict.fromkeys(expected for _, expected in pairs[:2] if expected))
    return (result["experiment"], words(result["layout"]), words(result["options"]), result["loss"], result["outcome"], formula, right)


def alike(result):
    """All that neighbours in one row have in common, whether it is shown or not; but for numbers of lines."""
    return (result["package"], *result.get("over", ())), columns(result), results.compared(result), results.without_lines(where(result))


def rows(found):
    """Neighbours that differ in their version alone are one row, which names each version; the place is that of the last."""
    for ((package, *over), head, *_), same in itertools.groupby(found, alike):
        same = list(same)
        experiment, layout, options, loss, outcome, formula, right = head
        versions = "%s %s%s" % (package, ", ".join(dict.fromkeys(one["version"] for one in same)), " over " + ", ".join(over) if over else "")
        yield experiment, versions, layout, options, loss, outcome, formula, right, where(same[-1])


def counted(found, missing=0):
    """In a sentence; `missing`: how many more there are to be, of which none has run."""
    outcomes = [one["outcome"] for one in found]
    seconds = sorted(one["seconds"] for one in found if one["outcome"] != results.UNAVAILABLE)
    parts = ["%d %s" % (outcomes.count(one), one) for one in (results.MATCH, results.MISMATCH, results.UNDECIDED, results.ERROR, results.UNAVAILABLE) if one in outcomes]
    versions = len({(one["package"], one["version"]) for one in found})
    median = "; %.0f s each at the median" % seconds[len(seconds) // 2] if seconds else ""
    if not found:
        return "none of %d combinations was run" % missing
    return "%d combinations of %d versions: %s%s%s" % (len(found), versions, ", ".join(parts), median,
                                                      "; %d of %d were not run" % (missing, missing + len(found)) if missing else "")


def as_text(found, missing=0):
    table = [HEAD, *rows(found)]
    filled = [place for place in range(len(HEAD)) if any(row[place] for row in table[1:])]
    # The last one may be as long as it likes.
    widths = [min(60, max(len(row[place]) for row in table)) for place in filled]
    lines = ["  ".join(row[place].ljust(width) for place, width in zip(filled, widths)).rstrip() for row in table] + [""] if found else []
    return "\n".join([*lines, counted(found, missing)]) + "\n"


def cell(content):
    return content.replace("|", "\\|").replace("\n", " ")


def as_markdown(found, command, missing=0):
    dates = sorted({one["date"] for one in found})
    lines = ["<!-- Written by `%s` -->" % command, "", "Written by `%s`; run on %s." % (command, " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "no day"),
             "%s." % counted(found, missing), "", "| %s |" % " | ".join(HEAD), "|%s" % ("---|" * len(HEAD))]
    lines += ["| %s |" % " | ".join("`%s`" % cell(content) if place in (6, 7) and content else cell(content) for place, content in enumerate(row)) for row in rows(found)]
    return "\n".join(lines) + "\n"


def as_json(found):
    return json.dumps({"lockstep_matrix": 1, "results": found}, indent=1) + "\n"
