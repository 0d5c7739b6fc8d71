# SPDX-License-Identifier: Apache-2.0
"""Puts a mutant into a process that has loaded the module that it is of: each of its functions gets the code of the mutant's, wherever it was imported,
registered or wrapped. Nothing of what is installed is changed, and to load it again takes seconds."""

import gc
import sys
import types
from pathlib import Path


def is_function(code):
    return bool(code.co_flags & 0x1)


def codes(text, path):
    found, waiting = {}, [compile(text, path, "exec", dont_inherit=True)]
    while waiting:
        for constant in waiting.pop().co_consts:
            if isinstance(constant, types.CodeType):
                if is_function(constant):
                    found[constant.co_qualname, constant.co_firstlineno] = constant
                else:  # a class
                    waiting.append(constant)
    return found


def module_of(file):
    """The loaded module whose source ends with this."""
    return next(module for module in list(sys.modules.values()) if (getattr(module, "__file__", None) or "").endswith("/" + file))


PREPARED = {}  # by file: its path, its source, its code as it is, and the functions that have it


def prepare(file):
    """Finds the functions of a file, for which all objects of the process are gone through: forks of this one need not do it again."""
    path = module_of(file).__file__
    text = Path(path).read_bytes()
    functions = [one for one in gc.get_objects() if type(one) is types.FunctionType and one.__code__.co_filename == path]
    PREPARED[file] = path, text, codes(text, path), functions


def plant(mutant):
    """How many functions were changed, which is one in most cases. Raises LookupError where there is none, as one that is not loaded, and SyntaxError where the
    mutant is no Python."""
    if mutant.file not in PREPARED:
        prepare(mutant.file)
    path, text, before, functions = PREPARED[mutant.file]
    after = codes(mutant.written(text), path)
    changed = {key for key in before if before[key] != after.get(key)}
    count = 0
    for function in functions:
        key = function.__code__.co_qualname, function.__code__.co_firstlineno
        if key in changed:
            function.__code__ = after[key]
            count += 1
    if not count:
        raise LookupError("no function of %s has line %d" % (path, mutant.line))
    return count
