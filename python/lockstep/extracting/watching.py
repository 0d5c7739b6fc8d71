# SPDX-License-Identifier: Apache-2.0
"""What a process looks at outside of itself, as far as Python tells it: files that it opens, folders that it lists, what it asks of files without opening
them, variables that the key of a cache leaves out (cache.py), and what nobody can look at again, as what another program or machine has said.
"""

import fcntl
import importlib.util
import json
import os
import stat
import sys
import threading

from lockstep.extracting.programs import tells_of_the_machine, words_of

# Of variables these say who has started lockstep, where, and in which job: they count where the script reads them. All others count always.
OF_THE_CALLER = ("_", "COLUMNS", "COLORTERM", "DISPLAY", "HISTFILE", "INVOCATION_ID", "JOURNAL_STREAM", "LINES", "LS_COLORS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS",
                 "OLDPWD", "PWD", "SHLVL", "SSH_AUTH_SOCK", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "STY", "TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION",
                 "TMUX", "TMUX_PANE", "WINDOWID", "XDG_RUNTIME_DIR", "XDG_SESSION_ID", "PYTEST_CURRENT_TEST")
OF_CALLERS = ("GITHUB_", "RUNNER_", "CI_", "BUILDKITE_", "CIRCLE_", "LOCKSTEP_")  # what they begin with
NOT_FILES = ("/proc/", "/sys/", "/dev/")  # of the machine
HERE = (None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0")
# Who asks whether something is there, and of what kind, alone; and who asks for times to know whether what it remembers of sources is of today.
ASKS_FOR_THE_KIND = {"exists", "lexists", "isfile", "isdir", "islink", "ismount", "realpath", "_joinrealpath", "is_file", "is_dir", "is_symlink"}
OF_PATHS = ("genericpath", "posixpath", "pathlib", "pathlib._local", "pathlib._abc")
REMEMBERS_SOURCES = ("linecache", "inspect", "zipimport", "importlib")


def is_of_the_caller(name):
    return name in OF_THE_CALLER or name.startswith(OF_CALLERS)


def of_descriptor(number):
    """The path of what is open; "" of what has none."""
    try:
        return os.readlink("/proc/self/fd/%d" % number)
    except OSError:
        return ""


def named(path):
    """Its full path, of a source in the place of what it was compiled to; None of what is no file, or of the machine."""
    if isinstance(path, int):
        path = of_descriptor(path)
        if not path.startswith("/") or path.endswith(" (deleted)"):
            return None
    if path is None:
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


OF_LINK = "link "  # before the path of what was asked for without following it
NAME_OF_THE_MACHINE = "name of the machine"  # among variables


def kind_of(found):
    """What os.stat says that something is: a file, a folder; False where it is not there."""
    return found is not None and stat.S_IFMT(found.st_mode)


def detail_of(found):
    """All that os.stat says of a file and that does not change when it is read; None where there is none."""
    return None if found is None else "%o %d %d" % (found.st_mode, found.st_size, found.st_mtime_ns)


class Watch:
    """From install() on. Forks of this process go on with what it has seen; what processes that a rank forks see goes to `path`, once begin(path) was called.
    Threads may look at things at the same time."""

    def __init__(self):
        self.renew()
        self.forget()
        self.written, self.variables = set(), {}
        self.caller_has = {name: value for name, value in os.environ.items() if is_of_the_caller(name)}
        self.why = None  # it cannot be looked at again
        self.busy, self.process, self.path = False, os.getpid(), None  # busy: what is looked at is ours
        self.actions = {"open": self.open, "os.listdir": self.list, "os.scandir": self.scan, "os.mkdir": self.make_folder, "os.rename": self.rename,
                        "os.link": self.link, "os.symlink": self.link, "os.remove": self.remove, "os.rmdir": self.remove, "os.truncate": self.write,
                        "sqlite3.connect": self.open_database, "socket.connect": self.connect, "socket.sendto": self.connect, "socket.getaddrinfo": self.ask_for_address,
                        "socket.gethostbyname": self.ask_for_address, "socket.gethostname": self.ask_for_name}
        self.actions.update((event, lambda *words, event=event: self.start(words_of(event, words))) for event in
                            ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.spawn"))

    def renew(self):
        """A process that was forked by one thread has not the others, which may have held the lock."""
        self.lock, self.inside = threading.Lock(), threading.local()

    def forget(self):
        self.read, self.absent, self.listed, self.scanned = set(), set(), set(), set()
        self.there, self.details, self.accessible, self.links = {}, {}, {}, {}

    def install(self):
        sys.addaudithook(self.hook)
        os.register_at_fork(after_in_child=self.renew)
        self.around("stat", self.ask, os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks)
        self.around("lstat", lambda path, result: self.ask(path, result, follow_symlinks=False), os.supports_dir_fd)
        self.around("fstat", self.ask)
        self.around("access", self.access, os.supports_dir_fd, os.supports_effective_ids, os.supports_follow_symlinks)
        self.around("readlink", self.link_read, os.supports_dir_fd)
        get, names = os._Environ.__getitem__, os._Environ.__iter__

        def get_variable(environment, key):
            name = os.fsdecode(key) if isinstance(key, (str, bytes)) else ""
            if is_of_the_caller(name):
                self.seen(self.variable, name)
            return get(environment, key)

        def all_names(environment):
            self.seen(self.all_variables)
            return names(environment)
        os._Environ.__getitem__, os._Environ.__iter__ = get_variable, all_names

    def around(self, name, tell, *sets):
        """Of a function of os, which tells no hook: tell(its first argument, what it returned or None, …)."""
        original = getattr(os, name)

        def call(*arguments, **keys):
            result = None
            try:
                result = original(*arguments, **keys)
                return result
            finally:
                if keys.get("dir_fd") is None:
                    self.seen(tell, *arguments[:1], result, *arguments[1:], **{key: value for key, value in keys.items() if key == "follow_symlinks"})
        call.__wrapped__, call.__name__ = original, name
        for supports in sets:
            if original in supports:
                supports.add(call)
        setattr(os, name, call)

    def hook(self, event, arguments):
        if event in self.actions:
            self.seen(self.actions[event], *arguments)

    def seen(self, action, *arguments, **keys):
        """A script goes on, whatever is wrong in ours."""
        if self.busy or getattr(self.inside, "ours", False):
            return
        self.inside.ours = True
        try:
            with self.lock:
                action(*arguments, **keys)
                if self.path is not None and os.getpid() != self.process:
                    self.hand_over()
        except Exception as error:
            self.cannot("what it looks at is not known (%s)" % error)
        finally:
            self.inside.ours = False

    def cannot(self, why):
        self.why = self.why or why

    def hand_over(self):
        """Of a process that a rank has forked, which may end at any time."""
        with open(self.path, "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(self.told()) + "\n")
        self.forget()

    # What it does.

    def is_own(self, path):
        """Whether the rank has made it, or a folder that it is in."""
        while path not in self.written:
            parent = os.path.dirname(path)
            if parent == path:
                return False
            path = parent
        return True

    def open(self, path, mode, flags):
        path = named(path)
        if path is None:
            return
        mode = set(mode or "")
        writes = bool(flags & (os.O_WRONLY | os.O_RDWR) or mode & set("wxa+"))
        reads = not (flags & os.O_WRONLY) if not mode else bool(mode & set("r+")) and "w" not in mode
        own, there = self.is_own(path), os.path.exists(path)
        if "x" in mode and not own:
            self.there.setdefault(path, kind_of(os.stat(path) if there else None))
        if reads and not flags & (os.O_TRUNC | os.O_EXCL) and not own and not os.path.isdir(path):
            if path in self.read and there == (path in self.absent):
                self.cannot("%s was %s meanwhile" % (path, "made" if there else "removed"))
            self.read.add(path)
            if not there:
                self.absent.add(path)
                self.there.setdefault(path, False)
        if writes:
            if path in self.read and path not in self.absent:
                self.cannot("it writes to %s, which it reads" % path)
            self.written.add(path)

    def write(self, path, *_):
        path = named(path)
        if path is not None:
            self.written.add(path)

    def make_folder(self, path, *_):
        if not os.path.exists(path):  # else it is told so
            self.write(path)

    def link(self, _, path, *__):
        self.write(path)

    def open_database(self, path, *_):
        if os.fsdecode(path) not in ("", ":memory:"):
            self.cannot("it opens the database %s" % os.fsdecode(path))

    def rename(self, path, new, *folders):
        self.remove(path, *folders[:1])
        self.write(new)

    def remove(self, path, folder=-1):
        if folder is not None and folder >= 0:
            path = os.path.join(of_descriptor(folder), os.fsdecode(path))
        path = named(path)
        if path is not None and not self.is_own(path) and os.path.lexists(path):
            self.cannot("it removes %s, which was there before" % path)

    def listing(self, path, found):
        """Python's search for modules apart, which inputs.py looks at."""
        frame = self.caller()
        if frame is None or "importlib" not in frame.f_code.co_filename:
            path = named("." if path is None else path)
            if path is not None:
                found.add(path)

    def list(self, path="."):
        self.listing(path, self.listed)

    def scan(self, path="."):
        """Its entries tell what is a folder as well."""
        self.listing(path, self.scanned)

    @staticmethod
    def caller():
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        return frame

    def ask(self, path, result, *_, follow_symlinks=True):
        """os.stat: for most it is the kind of what is there that matters."""
        path = named(path)
        if path is None or self.is_own(path):
            return
        frame = self.caller()
        while frame.f_code.co_name in ("stat", "lstat") and frame.f_globals.get("__name__") in OF_PATHS:  # of a pathlib.Path
            frame = frame.f_back
        of, key = frame.f_globals.get("__name__", ""), path if follow_symlinks else OF_LINK + path
        if (of in OF_PATHS and frame.f_code.co_name in ASKS_FOR_THE_KIND) or of.split(".")[0] in REMEMBERS_SOURCES:
            self.there.setdefault(key, kind_of(result))
        else:
            self.details.setdefault(key, detail_of(result))

    def access(self, path, result, mode, **_):
        path = named(path)
        if path is not None and not self.is_own(path):
            self.accessible.setdefault("%d %s" % (mode, path), bool(result))

    def link_read(self, path, result, **_):
        path = named(path)
        if path is not None and not self.is_own(path):
            self.links.setdefault(path, None if result is None else os.fsdecode(result))

    def variable(self, name):
        """As it was before the script may have changed it."""
        self.variables[name] = self.caller_has.get(name)

    def all_variables(self):
        """Their names as well."""
        self.variables.update(self.caller_has)
        self.variables[""] = sorted(self.caller_has)

    def start(self, words):
        if not words:
            self.cannot("it starts a program")
        elif os.path.basename(words[0]) == "which":
            for word in words[1:]:
                for folder in os.get_exec_path() if not word.startswith("-") else ():
                    path = named(os.path.join(folder, word))
                    if path is not None:
                        self.there.setdefault(path, kind_of(os.stat(path) if os.path.exists(path) else None))
        elif not tells_of_the_machine(words):
            self.cannot("it starts a program (%s)" % " ".join(words)[:80])

    def connect(self, _, address):
        if isinstance(address, tuple):  # else a path of this machine
            self.cannot("it connects to %s" % (address[0],))

    def ask_for_address(self, host, *_):
        host = os.fsdecode(host) if isinstance(host, bytes) else host
        if host not in HERE:
            self.cannot("it asks for the address of %s" % host)

    def ask_for_name(self, *_):
        self.variables[NAME_OF_THE_MACHINE] = os.uname().nodename

    # What is left of it.

    def begin(self, path):
        """This process is a rank; `path` is a file of its own."""
        self.process, self.path, self.busy = os.getpid(), path, False

    def told(self):
        return {"read": sorted(self.read), "absent": sorted(self.absent), "written": sorted(self.written), "listed": sorted(self.listed),
                "scanned": sorted(self.scanned), "there": self.there, "details": self.details, "accessible": self.accessible, "links": self.links,
                "variables": self.variables, "why": self.why}

    def end(self):
        """All that this rank, and those that it has forked, have looked at, with the files of what is loaded."""
        self.busy = True  # from here on it is ours
        with self.lock:
            return self.of_all()

    def of_all(self):
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                for line in file:
                    own = json.loads(line)
                    for kind in ("read", "absent", "written", "listed", "scanned"):
                        getattr(self, kind).update(own[kind])
                    for kind in ("there", "details", "accessible", "links", "variables"):
                        setattr(self, kind, {**own[kind], **getattr(self, kind)})
                    self.why = self.why or own["why"]
            os.remove(self.path)
        if {"multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver"} & set(sys.modules):
            self.cannot("it starts processes that are no forks of it")
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
