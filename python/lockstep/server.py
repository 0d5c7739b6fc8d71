# SPDX-License-Identifier: Apache-2.0
"""A process that has loaded torch and does nothing else, from which the ranks of lockstep.run are forked: loading it takes each process seconds.

The parent keeps it for as long as it lives. What it is told comes over its standard input, what it says goes to its standard output.
"""

import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import time

# The last but one is what the first optimizer step or collective of each rank would load, for a second.
PRELOADED = ("torch", "torch.distributed.tensor.parallel", "torch.distributed.fsdp", "torch.nn.parallel", "torch._dynamo", "lockstep.capturing")


def written(file, what):
    content = pickle.dumps(what)
    content = struct.pack("<Q", len(content)) + content
    while content:
        content = content[file.write(content):]


def read(file):
    """The next message, or None where the other side has gone. The file has no buffer, so that select knows whether there is more."""
    def take(size):
        content = b""
        while len(content) < size:
            part = file.read(size - len(content))
            if not part:
                return None
            content += part
        return content
    size = take(8)
    content = take(struct.unpack("<Q", size)[0]) if size else None
    return pickle.loads(content) if content is not None else None


class Job:
    """Ranks that are running."""

    def __init__(self, server, pids):
        self.server, self.pids = server, pids

    def ended(self, seconds):
        """{rank: status} of ranks that have ended since, after waiting that long at most."""
        if not select.select([self.server.process.stdout], [], [], seconds)[0]:
            return {}
        message = read(self.server.process.stdout)
        if message is None:
            return {rank: -signal.SIGKILL for rank in range(len(self.pids))}
        return message

    def kill(self, ranks):
        """Ends these, and waits for it."""
        for rank in ranks:
            try:
                os.kill(self.pids[rank], signal.SIGKILL)
            except ProcessLookupError:
                pass
        left = set(ranks)
        while left:
            left -= set(self.ended(1))


class Server:
    """The parent's side."""

    current = None

    def __init__(self):
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        script = "import sys; sys.path.insert(0, %r); from lockstep.server import serve; serve()" % root
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        self.owner = os.getpid()
        self.process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        bufsize=0, env=environment)

    @classmethod
    def of_this_process(cls):
        if cls.current is None or cls.current.owner != os.getpid() or cls.current.process.poll() is not None:
            cls.current = cls()
        return cls.current

    def begin(self, settings):
        """Starts the ranks."""
        from lockstep.errors import RanksError
        try:
            written(self.process.stdin, settings)
            pids = read(self.process.stdout)
        except (OSError, EOFError):
            pids = None
        if pids is None:
            raise RanksError("the process that loads torch has ended: see whether \"%s -c 'import torch'\" works" % sys.executable)
        return Job(self, pids)


def serve():
    """The server's side: loads torch, then forks ranks for each message until the parent goes away."""
    import importlib

    told, say = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError:  # an older torch; the rank says what it misses
            pass
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's matter
    while True:
        settings = read(told)
        if settings is None:
            return
        pids = []
        for rank in range(settings["world"]):
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.close(told.fileno())
                os.close(say.fileno())
                status = 1
                try:
                    from lockstep.rank import main
                    status = main(settings, rank)
                finally:
                    os._exit(status)
            pids.append(pid)
        written(say, pids)
        running = {pid: rank for rank, pid in enumerate(pids)}
        while running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in running:
                written(say, {running.pop(pid): -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)})
            elif gone(told):
                for one in running:
                    os.kill(one, signal.SIGKILL)
                return
            else:
                time.sleep(0.01)


def gone(file):
    """Whether the parent has gone: it says nothing while ranks are running."""
    return bool(select.select([file], [], [], 0)[0])
