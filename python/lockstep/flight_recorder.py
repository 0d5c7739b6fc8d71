# SPDX-License-Identifier: Apache-2.0
"""`python -m lockstep.flight_recorder DUMP… [-o FOLDER]`: dumps of PyTorch's Flight Recorder, which are pickles, as JSON, which
`lockstep import flight-recorder` reads (docs/flight-recorder.md). Needs no torch. To load a pickle is to run what is in it, so nothing is loaded
here but texts, numbers, lists and dictionaries: a pickle that names a class or a function is refused.
"""

import argparse
import io
import json
import os
import pickle
import sys

from lockstep.frames import passes_on


MOST_VALUES = 1 << 24


class DumpError(Exception):
    """A dump that cannot be turned into JSON."""


class Plain(pickle._Unpickler):
    """The unpickler that is written in Python: to the other, a few bytes that name a place of its memo are memory for all places before it."""

    dispatch = dict(pickle._Unpickler.dispatch)

    def find_class(self, module, name):
        raise DumpError("it names %s.%s, and a dump holds nothing that would be loaded or called" % (module, name))

    def persistent_load(self, pid):
        raise DumpError("it refers to something outside of it")


def checking(original, keys_of):
    """The function of an opcode that puts items into a dictionary; `keys_of` their keys."""
    def load(unpickler):
        for key in keys_of(unpickler.stack):
            # To find the place of a tuple of tuples may take time without end.
            if not (key is None or isinstance(key, (str, int, float))):
                raise DumpError("it holds what is no JSON: a key of a dictionary that is no text")
        original(unpickler)
    return load


def refused(unpickler):
    raise DumpError("it holds what is no JSON: a set, or an array of bytes, for which memory would be taken before it is there")


KEYS = {pickle.SETITEM: lambda stack: stack[-2:-1], pickle.SETITEMS: lambda stack: stack[::2], pickle.DICT: lambda stack: stack[::2]}
for _code, _keys in KEYS.items():
    Plain.dispatch[_code[0]] = checking(Plain.dispatch[_code[0]], _keys)
for _code in (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET, pickle.BYTEARRAY8):
    Plain.dispatch[_code[0]] = refused


def bounded(dump):
    """Raises DumpError where a dump is of more than MOST_VALUES values as JSON, which writes a list as often as the pickle refers to it. Each 64
    characters of a text count for one more. Each list is looked at once.
    """
    sizes, waiting = {}, [dump]  # by id; None: it is within itself, as far as is known
    while waiting:
        one = waiting[-1]
        parts = list(one) + list(one.values()) if isinstance(one, dict) else one if isinstance(one, (list, tuple)) else ()
        if id(one) not in sizes:
            sizes[id(one)] = None
            if any(id(part) in sizes and sizes[id(part)] is None for part in parts):
                raise DumpError("it holds what is no JSON: a list that holds itself")
            waiting.extend(part for part in parts if id(part) not in sizes)
            continue
        waiting.pop()
        if sizes[id(one)] is None:
            sizes[id(one)] = 1 + sum(sizes[id(part)] for part in parts) + (len(one) >> 6 if isinstance(one, str) else 0)
        if sizes[id(one)] > MOST_VALUES:
            raise DumpError("it holds what is no JSON of less than %d values, as one list is in many places" % MOST_VALUES)


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
        dump = Plain(io.BytesIO(file.read())).load()  # which gives no more than there is, whatever is asked for
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
