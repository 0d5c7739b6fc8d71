# SPDX-License-Identifier: Apache-2.0
"""What a process looks at outside of itself, as far as Python tells it: files that it opens, folders that it lists, whether something is there, variables
that the key of a cache leaves out (cache.py), and what nobody can look at again, as what another program or machine has said.
"""

import fcntl
import importlib.util
import json
import os
import sys

# Of variables these say who has started lockstep, where, and in which job: they count where the script reads them. All others count always.
OF_THE_CALLER = ("_", "COLUMNS", "COLORTERM", "DISPLAY", "HISTFILE", "INVOCATION_ID", "JOURNAL_STREAM", "LINES", "LS_COLORS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS",
                 "OLDPWD", "PWD", "SHLVL", "SSH_AUTH_SOCK", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "STY", "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION",
                 "TMUX", "TMUX_PANE", "WINDOWID", "XDG_RUNTIME_DIR", "XDG_SESSION_ID", "PYTEST_CURRENT_TEST")
OF_CALLERS = ("GITHUB_", "RUNNER_", "CI_", "BUILDKITE_", "CIRCLE_", "LOCKSTEP_")  # what they begin with
NOT_FILES = ("/proc/", "/sys/", "/dev/")  # of the machine
OF_THE_MACHINE = ("cc", "gcc", "ld", "ldconfig", "lscpu", "nvidia-smi", "uname", "which")  # programs that tell of it, and of nothing else
STARTS = {"subprocess.Popen": lambda program, words, *_: words or program, "os.system": lambda command: command, "os.posix_spawn": lambda path, words, _: words,
          "os.exec": lambda path, words, _: words, "os.spawn": lambda mode, path, words, _: words}


def is_of_the_caller(name):
    return name in OF_THE_CALLER or name.startswith(OF_CALLERS)


def named(path):
    """Its full path, of a source in the place of what it was compiled to; None of what is no file, or of the machine."""
    if isinstance(path, int) or path is None:
        return None
    path = os.path.abspath(os.fsdecode(path))
    if path.startswith(NOT_FILES):
        return None
    if path.endswith(".pyc"):
        try:
            return importlib.util.source_from_cache(path)
        except (ValueError, NotImplementedError):
            pass  # without a source
    elif "/__pycache__" in path:
        return None
    return path


class Watch:
    """From install() on. Forks of this process go on with what it has seen; what processes that a rank forks see goes to `path`, once begin(path) was called."""

    def __init__(self):
        self.read, self.written, self.listed, self.there, self.variables = set(), set(), set(), {}, {}
        self.why = None  # it cannot be looked at again
        self.busy, self.process, self.path = False, os.getpid(), None
        self.actions = {"open": self.open, "os.listdir": self.list, "os.scandir": self.list, "os.mkdir": self.write, "os.rename": self.rename,
                        "os.link": self.rename, "os.symlink": self.rename, "socket.connect": self.connect, "socket.sendto": self.connect}
        self.actions.update({event: lambda *words, tell=tell: self.start(tell(*words)) for event, tell in STARTS.items()})

    def install(self):
        sys.addaudithook(self.hook)
        original, get = os.stat, os._Environ.__getitem__

        def stat(path, *, dir_fd=None, follow_symlinks=True):
            found = False
            try:
                result = original(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
                found = True
                return result
            finally:
                if dir_fd is None and not self.busy:
                    self.seen(self.look, path, found)

        def get_variable(environment, key):
            name = os.fsdecode(key) if isinstance(key, (str, bytes)) else ""
            if is_of_the_caller(name):
                self.seen(self.variable, name)
            return get(environment, key)
        stat.__wrapped__ = original
        for supports in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if original in supports:
                supports.add(stat)
        os.stat, os._Environ.__getitem__ = stat, get_variable

    def hook(self, event, arguments):
        if event in self.actions and not self.busy:
            self.seen(self.actions[event], *arguments)

    def seen(self, action, *arguments):
        """A script goes on, whatever is wrong in ours."""
        self.busy = True
        try:
            action(*arguments)
            if self.path is not None and os.getpid() != self.process:
                self.hand_over()
        except Exception as error:
            self.why = self.why or "what it looks at is not known (%s)" % error
        finally:
            self.busy = False

    def hand_over(self):
        """Of a process that a rank has forked, which may end at any time."""
        with open(self.path, "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(self.told()) + "\n")
        self.read, self.listed, self.there = set(), set(), {}

    def open(self, path, mode, flags):
        path = named(path)
        if path is None:
            return
        fresh = bool(flags & (os.O_TRUNC | os.O_EXCL)) or bool(mode and set(mode) & set("wxa"))
        if flags & (os.O_WRONLY | os.O_RDWR) or (mode and set(mode) & set("wxa+")):
            self.written.add(path)
        if not fresh and path not in self.written and not os.path.isdir(path):
            self.read.add(path)

    def write(self, path, *_):
        path = named(path)
        if path is not None:
            self.written.add(path)

    def rename(self, _, path, *__):
        self.write(path)

    def list(self, path="."):
        """Python's search for modules apart, which inputs.py looks at."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        if frame is not None and "importlib" in frame.f_code.co_filename:
            return
        path = named(path or ".")
        if path is not None:
            self.listed.add(path)

    def look(self, path, found):
        path = named(path)
        if path is not None and path not in self.there and not any(path == own or path.startswith(own + "/") for own in self.written):
            self.there[path] = found

    def variable(self, name):
        self.variables[name] = dict.get(os.environ._data, os.environ.encodekey(name))
        if self.variables[name] is not None:
            self.variables[name] = os.fsdecode(self.variables[name])

    def start(self, words):
        words = os.fsdecode(words).split() if isinstance(words, (str, bytes)) else list(map(os.fsdecode, words))
        if os.path.basename(words[0]) not in OF_THE_MACHINE:
            self.why = self.why or "it starts a program (%s)" % " ".join(words)[:80]

    def connect(self, _, address):
        if isinstance(address, tuple):  # else a path of this machine
            self.why = self.why or "it connects to %s" % (address[0],)

    def begin(self, path):
        """This process is a rank; `path` is a file of its own."""
        self.process, self.path, self.busy = os.getpid(), path, False

    def told(self):
        return {"read": sorted(self.read), "written": sorted(self.written), "listed": sorted(self.listed), "there": self.there, "variables": self.variables,
                "why": self.why}

    def end(self):
        """All that this rank, and those that it has forked, have looked at, with the files of what is loaded."""
        self.busy = True  # from here on it is ours
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                for line in file:
                    own = json.loads(line)
                    self.read.update(own["read"])
                    self.written.update(own["written"])
                    self.listed.update(own["listed"])
                    self.there = {**own["there"], **self.there}
                    self.variables = {**own["variables"], **self.variables}
                    self.why = self.why or own["why"]
            os.remove(self.path)
        if {"multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver"} & set(sys.modules):
            self.why = self.why or "it starts processes that are no forks of it"
        modules, folders = set(), {os.path.abspath(path) for path in sys.path}
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if isinstance(path, str) and os.path.isabs(path):
                modules.add(path)
            with_path = getattr(module, "__path__", None)
            folders.update(path for path in (with_path if isinstance(with_path, (list, tuple)) else ()) if isinstance(path, str))
        return dict(self.told(), read=sorted(self.read | modules), folders=sorted(folders), mapped=mapped())


def mapped():
    """Files of which memory is a part: shared objects, and data that libraries map."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            paths = {line.rstrip("\n").split(None, 5)[5] for line in file if line.count("/")}
    except (OSError, IndexError):
        return []
    return sorted(path for path in paths if path.startswith("/") and not path.startswith(NOT_FILES) and not path.endswith(" (deleted)"))
