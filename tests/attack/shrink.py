# SPDX-License-Identifier: Apache-2.0
"""A finding as a small file: what can be left out of its documents while it is still found."""

import copy
import tempfile
from pathlib import Path

import attack


def places(value, path=()):
    """Every place in a document, the outer ones first."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def without(document, path):
    """The document less what stands there; a conditional value as its first branch."""
    changed = copy.deepcopy(document)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    inner = holder[path[-1]]
    if isinstance(inner, dict) and "if" in inner and "then" in inner:
        holder[path[-1]] = inner["then"]
    else:
        del holder[path[-1]]
    return changed


def still_found(files, kind, size, opened="", seed=1):
    name = next(iter(files))
    with tempfile.TemporaryDirectory(prefix="lockstep-shrink-") as folder:
        one = attack.Attack(Path(folder), seed, 4, ("symbolic", "parametric"), opened)
        one.sizes = [size] if size else []
        found = one.run({name: files})
    return any(finding.kind == kind for finding in found.findings)


def shrink(files, kind, size, opened=""):
    """Files of which nothing more can be left out, with the finding of this kind at this size. `opened`: what --open opens."""
    again = True
    while again:
        again = False
        for name, document in files.items():
            for path in sorted(places(document), key=len):
                if not path or path[-1] in ("lockstep", "lockstep_framework", "lockstep_model"):
                    continue
                try:
                    smaller = {**files, name: without(files[name], path)}
                except (KeyError, IndexError, TypeError):
                    continue  # it went with something before
                if still_found(smaller, kind, size, opened):
                    files, again = smaller, True
    return files
