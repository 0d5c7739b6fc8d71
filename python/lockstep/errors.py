# SPDX-License-Identifier: Apache-2.0
"""What a user of the package got wrong, as a sentence."""


class CaptureError(Exception):
    """A capture cannot be taken as asked for: what was expected, what was found, and what to do."""


class VerifyError(Exception):
    """A captured run cannot be verified: the program is missing, or the run cannot be read."""


class RanksError(Exception):
    """Ranks cannot be started as asked for."""


def nearest(word, known):
    """' (did you mean "…"?)' where a known word is near, otherwise nothing."""
    import difflib

    found = difflib.get_close_matches(word, list(known), 1)
    return ' (did you mean "%s"?)' % found[0] if found else ""
