# SPDX-License-Identifier: Apache-2.0
"""What a user of the package got wrong, as a sentence."""

import os

# What each rank's backward may be the gradient of: the names of scenarios (docs/scenario-format.md).
LOSSES = ("local_mean", "sum", "token_mean", "token_sum")
OLD_LOSSES = {"mean": "local_mean"}


class CaptureError(Exception):
    """A capture cannot be taken as asked for: what was expected, what was found, and what to do."""


class VerifyError(Exception):
    """A captured run cannot be verified: the program is missing, or the run cannot be read."""


class RanksError(Exception):
    """Ranks cannot be started as asked for."""


def checked_loss(loss, kind):
    """The loss by its name of today, if it is known or None; otherwise raises this kind of error."""
    loss = OLD_LOSSES.get(loss, loss) if isinstance(loss, str) else loss
    if loss is not None and loss not in LOSSES:
        raise kind("loss is %s: expected %s or None%s" % (shown(loss), ", ".join('"%s"' % one for one in LOSSES), nearest(str(loss), LOSSES)))
    return loss


def checked_path(path, name, kind):
    """The path of a folder as text; otherwise raises this kind of error."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise kind("%s is %s: expected the path of a folder" % (name, shown(path)))
    return os.fspath(path)


def listed_names(names):
    """A list of one name or of several; None where they are no text."""
    try:
        names = [names] if isinstance(names, str) else list(names)
    except TypeError:
        return None
    return names if all(isinstance(name, str) for name in names) else None


def shown(value):
    """A value of the user's, in one line."""
    return "%.80s" % " ".join(repr(value).split())


def nearest(word, known):
    """' (did you mean "…"?)' where a known word is near, otherwise nothing."""
    import difflib

    found = difflib.get_close_matches(word, list(known), 1)
    return ' (did you mean "%s"?)' % found[0] if found else ""
