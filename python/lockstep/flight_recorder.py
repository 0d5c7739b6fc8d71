# SPDX-License-Identifier: Apache-2.0
"""`python -m lockstep.flight_recorder DUMP… [-o FOLDER]`: dumps of PyTorch's Flight Recorder, which are pickles, as JSON, which
`lockstep import flight-recorder` reads (docs/flight-recorder.md). Needs no torch. To load a pickle is to run what is in it, so nothing is loaded
here but texts, numbers, lists and dictionaries: a pickle that names a class or a function is refused.
"""

import argparse
import json
import os
import pickle
import sys

from lockstep.frames import passes_on


MOST_VALUES = 1 << 24


class DumpError(Exception):
    """A dump that cannot be turned into JSON."""


class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise DumpError("it names %s.%s, and a dump holds nothing that would be loaded or called" % (module, name))

    def persistent_load(self, pid):
        raise DumpError("it refers to something outside of it")


def bounded(dump):
    """Raises DumpError where a dump is of more than MOST_VALUES values as JSON, which writes a list as often as the pickle refers to it. Each 64
    characters of a text count for one more.
    """
    count, waiting = 1, [dump]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            count += len(one)
            parts = list(one) + list(one.values()) if count <= MOST_VALUES else ()
        elif isinstance(one, (list, tuple)):
            count += len(one)
            parts = one
        else:
            count += len(one) >> 6 if isinstance(one, str) else 0
            parts = ()
        if count > MOST_VALUES:
            raise DumpError("it holds what is no JSON of less than %d values, as lists hold themselves or one list is in many places" % MOST_VALUES)
        waiting.extend(parts)


def call_of(frames):
    """"train.py:9 in main": the innermost frame that does more than pass the call on, without a folder of the machine; None."""
    for frame in frames:
        path = str(frame["filename"]).replace("\\", "/")
        for folder in ("/site-packages/", "/dist-packages/"):
            if folder in path:
                path = path.rsplit(folder, 1)[1]
                break
        else:
            path = path if path.startswith("<") else path.rsplit("/", 1)[-1]
        if not passes_on(path, frame["name"]):
            return "%s:%d in %s" % (path, frame["line"], frame["name"])
    return None


def loaded(file):
    """The dump in an open file, with `call` in the place of each entry's frames."""
    try:
        dump = Plain(file).load()
    except DumpError:
        raise
    except Exception as error:  # what garbage makes of an unpickler is of many types
        raise DumpError("it is no whole pickle (%s)" % (error or type(error).__name__)) from error
    if not isinstance(dump, dict) or "version" not in dump:
        raise DumpError("it holds no dump of the Flight Recorder: a dictionary with \"version\" and \"entries\"")
    bounded(dump)
    try:
        for entry in dump.get("entries") or ():
            entry["call"] = call_of(entry.pop("frames", None) or ())
    except (AttributeError, KeyError, TypeError) as error:
        raise DumpError("its entries are not those of a dump of version 2") from error
    return dump


def converted(path, folder):
    """Writes the dump as FOLDER/NAME.json, beside it without a folder. Returns the new path. Raises DumpError."""
    try:
        with open(path, "rb") as file:
            if file.read(1) == b"{":
                raise DumpError("it is JSON already: give it to `lockstep import flight-recorder` as it is")
            file.seek(0)
            text = json.dumps(loaded(file), allow_nan=False)
    except OSError as error:
        raise DumpError("it cannot be read: %s" % error.strerror) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise DumpError("it holds what is no JSON (%s)" % error) from error
    target = os.path.join(os.path.dirname(path) if folder is None else folder, os.path.basename(path) + ".json")
    try:
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
        with open("%s.%d.tmp" % (target, os.getpid()), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(file.name, target)
    except OSError as error:
        raise DumpError("%s cannot be written: %s" % (target, error.strerror)) from error
    return target


def main(arguments=None):
    """Returns the exit status: 0, or 2 where a dump was refused."""
    parser = argparse.ArgumentParser(prog="python -m lockstep.flight_recorder", description="Dumps of PyTorch's Flight Recorder as JSON.")
    parser.add_argument("dumps", nargs="+", metavar="DUMP", help="a pickle, of one rank")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="where to write NAME.json; beside each dump if it is not given")
    given = parser.parse_args(arguments)
    status = 0
    for path in given.dumps:
        try:
            print(converted(path, given.output))
        except DumpError as error:
            print("error: %s: %s" % (path, error), file=sys.stderr)
            status = 2
    return status


if __name__ == "__main__":
    sys.exit(main())
