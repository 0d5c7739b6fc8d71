# SPDX-License-Identifier: Apache-2.0
"""Two neighbouring releases of which one says what the older end does, and the other something else: a binary search."""

import difflib

from lockstep.matrix import results


def lines_of(result):
    """What is compared, a line for each parameter and formula."""
    found = results.said(result)
    return ["%s: %s%s" % (name, formula, "" if verdict == "right" else " (%s%s)" % (verdict, ", right is %s" % expected if expected else ""))
            for name in sorted(found) for formula, expected, verdict in found[name]]


def shown_diff(old, new, title):
    """Lines that differ; of calls, those that stand in other functions."""
    found = [line for line in difflib.ndiff(old, new) if line[0] in "-+"]
    return ["", title, *("  " + line for line in found)] if found else ["", title + ": the same"]


class Bisection:
    """`run` gives the result of a version. Versions that cannot run are stepped over."""

    def __init__(self, versions, run, report):
        self.versions, self.run, self.report, self.found = versions, run, report, {}

    def at(self, place):
        """What the version says, None where it cannot run."""
        version = self.versions[place]
        if version not in self.found:
            self.found[version] = self.run(version)
            one = self.found[version]
            self.report("%s: %s" % (version, one["outcome"] + (" (%s)" % one["why"][0] if results.said(one) is None else "")))
        return results.compared(self.found[version])

    def are_the_same(self, places):
        """Whether the ends are known to do the same."""
        return places is None and results.is_known(self.found[self.versions[0]])

    def near(self, low, high):
        """The place next to the middle of those between that can run, or None."""
        middle = (low + high) // 2
        for place in sorted(range(low + 1, high), key=lambda one: (abs(one - middle), one)):
            if self.at(place) is not None:
                return place
        return None

    def search(self):
        """(place of one that says what the first does, place of the next one, but for those that cannot run, that does not); None where both ends say
        the same. Others before and behind may say either. Raises ValueError where an end cannot run."""
        low, high = 0, len(self.versions) - 1
        for end in (low, high):
            if self.at(end) is None:
                raise ValueError("%s cannot run: %s" % (self.versions[end], self.found[self.versions[end]]["why"][0]))
        old = self.at(low)
        if old == self.at(high):
            return None
        while (middle := self.near(low, high)) is not None:
            if self.at(middle) == old:
                low = middle
            else:
                high = middle
        return low, high


def text_of(bisection, package, places):
    versions, found = bisection.versions, bisection.found
    skipped = [version for version in versions if version in found and results.said(found[version]) is None]
    if places is None:
        first, last = found[versions[0]], found[versions[-1]]
        lines = ["%s %s and %s say the same: %s. What lies between them was not looked at." % (package, versions[0], versions[-1], first["outcome"])
                 if bisection.are_the_same(places) else
                 "%s %s and %s are %s for the same reasons: whether they do the same is not known." % (package, versions[0], versions[-1], first["outcome"]),
                 *("  " + line for line in lines_of(last)), *("  " + line for line in last.get("why", ()))]
    else:
        low, high = (versions[place] for place in places)
        old, new = found[low], found[high]
        between = versions[places[0] + 1:places[1]]
        lines = ["%s changes between %s (%s), which says what %s does, and %s (%s)." % (package, low, old["outcome"], versions[0], high, new["outcome"])]
        lines.append("Between them none can run: %s." % ", ".join(between) if between else "They are neighbours.")
        unseen = [version for version in versions if version not in found]
        if unseen:
            lines.append("%d others were not looked at: it may change there as well." % len(unseen))
        lines += shown_diff(lines_of(old), lines_of(new), "formulas")
        lines += shown_diff(old.get("why", []), new.get("why", []), "what is said besides") if old.get("why") or new.get("why") else []
        lines += shown_diff(*([results.without_lines(call) for call in one["calls"]] for one in (old, new)), "calls that carry gradients")
    if skipped:
        lines += ["", "stepped over:", *("  %s: %s" % (version, found[version]["why"][0]) for version in skipped)]
    lines += ["", "%d of %d versions were run." % (len(found) - len(skipped), len(versions))]
    return "\n".join(lines) + "\n"


def as_content(bisection, package, places):
    versions = bisection.versions
    return {"lockstep_bisect": 1, "package": package, "versions": versions, "same": bisection.are_the_same(places),
            "last_same": versions[places[0]] if places else None, "first_different": versions[places[1]] if places else None,
            "results": [bisection.found[version] for version in versions if version in bisection.found]}
