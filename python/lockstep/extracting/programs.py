# SPDX-License-Identifier: Apache-2.0
"""Programs that a rank starts: what they read nobody sees, so that of those alone which tell of the machine and of nothing else the rank's results can be
kept (watching.py)."""

import os

OF_THE_MACHINE = ("ldconfig", "lscpu", "nvidia-smi", "uname")
COMPILERS = ("cc", "gcc", "ld")  # which say where a library is: Python's ctypes asks them. What they compile or link is in files
GIVEN = ("-o", "-L")  # the next word is no file that is read
OF_SHELLS = set(";&|`$<>(){}*?\n\\'\"#~")


def words_of(event, arguments):
    """What is started, by an event of Python's; [] where that is not known."""
    if event == "os.system":
        command = os.fsdecode(arguments[0])
        return [] if OF_SHELLS & set(command) else command.split()
    program, words = {"subprocess.Popen": arguments[:2], "os.posix_spawn": arguments[:2], "os.exec": arguments[:2], "os.spawn": arguments[1:3]}[event]
    words = [words] if isinstance(words, (str, bytes, os.PathLike)) else words
    return [os.fsdecode(program or words[0]), *map(os.fsdecode, list(words or ())[1:])]


def tells_of_the_machine(words):
    name = os.path.basename(words[0])
    if name in COMPILERS:
        return all(before in GIVEN or (word.startswith("-") and word != "-" and not word.startswith(("-x", "-i", "-I", "-T")))
                   for before, word in zip(words, words[1:]))
    return name in OF_THE_MACHINE
