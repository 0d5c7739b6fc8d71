# SPDX-License-Identifier: Apache-2.0
"""What a proof says of single sizes: its sentence, read as a person reads it (docs/proof.md), as a predicate.

A size is {name: number}, with a name for everything that the proof leaves open. `says` answers "right", "wrong", or
"open" where the sentence leaves it open: where it depends on cuts, on a value that speaks of tokens, or was not decided.
"""

import re
from fractions import Fraction

OPERATORS = {
    "=": lambda size, number: size == number,
    "≠": lambda size, number: size != number,
    "≥": lambda size, number: size >= number,
}
# Verdicts of docs/proof.md that say nothing of any size.
NOTHING = ("no proof for every size", "it may be wrong at some sizes, and none was found", "right at every small size that was tried; ")


class NotASentence(ValueError):
    pass


def condition(text, size):
    """ "dp ≥ 2", "2 ≤ dp ≤ 64" """
    words = text.split(" ")
    if len(words) == 5 and words[1] == words[3] == "≤" and words[2] in size and words[0].isdigit() and words[4].isdigit():
        return int(words[0]) <= size[words[2]] <= int(words[4])
    if len(words) != 3 or words[1] not in OPERATORS or words[0] not in size or not words[2].isdigit():
        raise NotASentence(text)
    return OPERATORS[words[1]](size[words[0]], int(words[2]))


def every(text, size):
    """ "dp ≥ 2, cp ≠ 3 and pp = 1"; "" and "every size" are all sizes. """
    if text in ("", "every size"):
        return True
    return all(condition(part, size) for part in re.split(", | and ", text))


def some(text, size, word=", or "):
    """Whether one of several lists of conditions holds."""
    return any(every(part, size) for part in text.split(word))


def value(text, size):
    """A polynomial such as "2*cp*dp - 1/3*pp^2" as a fraction; None where it speaks of something else than sizes."""
    words = []
    for token in re.findall(r"[A-Za-z_]\w*|\d+|\S", text):
        if token not in size and not token.isdigit() and token not in "+-*/()":
            return None
        words.append(token if token in "+-*/()" else f"Fraction({size.get(token, token)})")
    try:
        return Fraction(eval(" ".join(words), {"__builtins__": {}, "Fraction": Fraction}))  # nothing but numbers and signs
    except (SyntaxError, TypeError, ZeroDivisionError):
        return None


def equal(text, size):
    """Whether "cp*dp = 4", or one of "dp = 3 or dp = 7", holds; None where that is not known."""
    if " or " in text:
        known = [equal(one, size) for one in text.split(" or ")]
        return None if None in known else any(known)
    left, right = (value(side, size) for side in text.split(" = "))
    return None if left is None or right is None else left == right


class Proof:
    """The JSON answer of `lockstep prove -f json` to one file."""

    def __init__(self, answer):
        self.answer = answer
        self.verdict, self.open = answer["verdict"], answer["open"]
        self.undecided = [one["sizes"] for one in answer["undecided"]]
        statement = re.sub("^wrong at [^;]*; ", "", answer["statement"])  # the rest is of all that are open
        if not statement.startswith("right for") and not statement.startswith("right at"):
            statement = re.sub(r", with \w+ = \d+( and \w+ = \d+)*$", "", statement)  # of what stays: no size that the proof leaves open
        statement = statement.removesuffix(", of the sizes that could be followed")
        self.has_others = statement.endswith(", and perhaps at others")  # what it does not name is open
        self.text, self.by_cut, self.also = self.taken_apart(statement.removesuffix(", and perhaps at others"))

    @staticmethod
    def taken_apart(text):
        by_cut = text.endswith(", wherever its cuts give an element these owners")
        text = text.removesuffix(", wherever its cuts give an element these owners")
        text, _, also = text.partition("; also ")
        # Of two, the second is the one that the cuts decide.
        return text, by_cut and not also, also

    def is_decided(self, size):
        try:
            return not any(every(sizes, size) for sizes in self.undecided)
        except NotASentence:
            return False  # of an axis that turned out to have one size

    def is_refused(self, size):
        return any(axis_size in one["sizes"] or axis_size >= one.get("from", axis_size + 1)
                   for one in self.answer["refused"] if (axis_size := size.get(one["axis"])) is not None)  # fmt: skip

    def may_be_refused(self, size):
        """Whether something in the answer says that a size may be refused: then it is not refused silently."""
        beyond = [size[one["axis"]] > one["tried"] and "from" not in one for one in self.answer["refused"] if one["axis"] in size]
        beside = [one["axis"] in size for one in self.answer["refused_beside"]]
        return self.is_refused(size) or any(beyond) or any(beside) or bool(self.answer["refused_together"] or self.answer["rules"])

    def says(self, size):
        if not self.is_decided(size) or self.text.startswith(NOTHING):
            return "open"
        said = self.sentence(self.text, size)
        if said == "right" and self.has_others:
            return "open"
        if said == "wrong" and self.by_cut:
            return "open"
        if said == "right" and self.also and self.sentence(self.also, size) != "right":
            return "open"
        return said

    def sentence(self, text, size):
        def wrong(holds):
            return "wrong" if holds else "right"

        def after(start):
            return text[len(start):] if text.startswith(start) else None

        if text in ("right where it could be followed", "right at the one size that it has") or re.fullmatch(
            "right (for every size|at the one size that it has)(, with .*)?", text
        ):
            return "right"
        if text == "wrong at some sizes":
            return "open"
        if (rest := after("right only at ")) is not None:
            return wrong(not every(rest, size))
        if (rest := after("wrong as soon as ")) is not None:
            rest, _, but = rest.partition(", but not at ")
            return wrong(some(rest, size) and not (but and some(but, size, " or ")))
        if not re.search(" unless | where |; for ", text) and (rest := after("wrong for every ")) is not None:
            rest, _, but = rest.partition(" but ")
            return wrong((rest == "size" or every(rest, size)) and not (but and some(but, size, " or ")))
        if (rest := after("wrong for ")) is None:
            raise NotASentence(text)
        said = "right"
        for place in rest.split("; for "):
            sizes, word, equation = re.fullmatch("(.*?)(?: (unless|where) (.*))?", place).groups()
            if not some(sizes, size):
                continue
            if word is None:
                return "wrong"
            holds = equal(equation, size)
            if holds is None:
                said = "open"
            elif holds == (word == "where"):
                return "wrong"
        return said
