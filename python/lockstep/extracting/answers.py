# SPDX-License-Identifier: Apache-2.0
"""What a rank gets of what others have left, and which of it it has looked for: on nothing else of them depends what it does (cache.py)."""

import hashlib
import json

KINDS = ("stored", "carrying", "told", "tape")
COUNT = "\0count"  # is no key: how many there are was asked for


def fingerprint(value):
    return None if value is None else hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


class Asked:
    """A mapping in which it is remembered what was looked for, and what was there."""

    def __init__(self, known=None):
        self.known, self.found = known or {}, {}

    def get(self, key):
        """None where it is not there."""
        value = self.known.get(key)
        if key not in self.found:
            self.found[key] = fingerprint(value)
        return value

    def __len__(self):
        self.found[COUNT] = len(self.known)
        return len(self.known)


class Known:
    """What is known when ranks begin to be played: the same for all that are played together, whichever of them ends first."""

    def __init__(self, stored, carrying, told, tape):
        self.stored, self.carrying, self.told, self.tape = dict(stored), dict.fromkeys(carrying, True), dict(told), dict(tape or {})
        self.fingerprints = {}

    def asked(self):
        """For a rank: an Asked by kind."""
        return {kind: Asked(getattr(self, kind)) for kind in KINDS}

    def fingerprint(self, kind, key):
        known = getattr(self, kind)
        if key == COUNT:
            return len(known)
        if (kind, key) not in self.fingerprints:
            self.fingerprints[kind, key] = fingerprint(known.get(key))
        return self.fingerprints[kind, key]

    def says(self, found):
        """Whether a rank that has found this, by kind, finds it again."""
        return all(self.fingerprint(kind, key) == value for kind, own in found.items() for key, value in own.items())
