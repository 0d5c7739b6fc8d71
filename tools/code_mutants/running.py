# SPDX-License-Identifier: Apache-2.0
"""Ranks that really run, on gloo: what their optimizers get, bit by bit. Takes nothing from the extraction but the environment that torchrun gives, and for
frameworks that know nothing but CUDA what leads them to the CPU."""

import glob
import hashlib
import os
import pickle
import runpy
import signal
import socket
import sys
import threading
import time
import traceback

STEPS = 2  # that are looked at
SAME, ROUNDED, OTHER, DIES, HANGS = "same", "rounded", "other", "dies", "hangs"
IDLE = 20  # seconds; of ranks all of which compute nothing for so long each waits for another
ROUNDING = 1e-4  # of the largest element; what computes the same in another order stays far below it


class Done(BaseException):
    """So many steps have been looked at."""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Gradients:
    """What optimizers of this process get in each step. `noise`: what backward yields is replaced by numbers that depend on nothing but rank, parameter
    and how often it was yielded, so that weights do not matter."""

    def __init__(self, rank, noise, most):
        import torch

        self.torch, self.rank, self.noise, self.most = torch, rank, noise, most
        self.steps, self.known, self.weights = [], {}, []

    def install(self):
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(self.after_step)
        if self.noise:
            register_module_forward_pre_hook(self.before_forward)

    def local(self, tensor):
        tensor = getattr(tensor, "_local_tensor", tensor)
        return tensor.detach().to(self.torch.float64).reshape(-1).tolist()

    def before_step(self, optimizer, *_):
        self.steps.append([None if one.grad is None else self.local(one.grad) for group in optimizer.param_groups for one in group["params"]])

    def after_step(self, optimizer, *_):
        if len(self.steps) >= self.most:
            raise Done()

    def before_forward(self, module, arguments):
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.requires_grad and id(parameter) not in self.known:
                place = "%d %s" % (len(self.known), name)
                self.known[id(parameter)] = parameter  # kept, so that its id is no other's
                parameter.register_hook(self.noise_of(place))

    def noise_of(self, place):
        count = 0

        def replace(gradient):
            nonlocal count
            count += 1
            seed = int.from_bytes(hashlib.sha256(("%d %s %d" % (self.rank, place, count)).encode()).digest()[:4], "big")
            noise = self.torch.randn(tuple(gradient.shape), generator=self.torch.Generator().manual_seed(seed)).to(gradient.dtype)
            gradient.copy_(noise)  # kinds of tensors and their layout stay
            return gradient
        return replace


class Lines:
    """Which lines of files functions of this process run, as (file, line): `before` a module computes, and in `training`, since."""

    def __init__(self, files):
        self.files, self.before, self.training = files, set(), set()
        self.seen, self.known = self.before, {}

    def install(self):
        from torch.nn.modules.module import register_module_forward_pre_hook

        register_module_forward_pre_hook(self.trains)
        sys.settrace(self.trace)
        threading.settrace(self.trace)

    def trains(self, module, arguments):
        self.seen = self.training

    def trace(self, frame, event, argument):
        path = frame.f_code.co_filename
        if path not in self.known:
            self.known[path] = next((file for file in self.files if path.endswith("/" + file)), None)
        return self.line(frame, event, argument) if self.known[path] else None

    def line(self, frame, event, argument):
        self.seen.add((self.known[frame.f_code.co_filename], frame.f_lineno))
        return self.line


def rank_of(case, path, rank, port, noise, files):
    """One rank: writes what its optimizers got, or how it ended, into the file `path`."""
    from lockstep.extracting.environment import environment

    os.environ.update(environment(rank, case.ranks, 8), MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    import torch

    torch.set_num_threads(1)
    case.framework.before_running()
    gradients, lines, error = Gradients(rank, noise, STEPS * case.calls), Lines(files) if files else None, None
    gradients.install()
    sys.argv = [case.script, *case.arguments]
    sys.path[0] = os.path.dirname(case.script)
    if lines:
        lines.install()
    try:
        runpy.run_path(case.script, run_name="__main__")
    except Done:
        pass
    except BaseException as failure:
        error = "%s: %s" % (type(failure).__name__, str(failure).split("\n")[0][:200])
        if "LOCKSTEP_SHOW" in os.environ:
            traceback.print_exc()
    sys.settrace(None)
    with open(path + ".part", "wb") as out:
        pickle.dump((error, gradients.steps, (lines.before, lines.training) if lines else None), out)
    os.rename(path + ".part", path)
    os._exit(0)


def seconds_of(process):
    """That it has computed."""
    try:
        with open("/proc/%d/stat" % process, encoding="ascii") as file:
            return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0.0


def is_ready(process):
    """Whether one of its threads would compute, and may have to wait for a processor."""
    for path in glob.glob("/proc/%d/task/*/stat" % process):
        try:
            with open(path, encoding="ascii") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "R":
                    return True
        except OSError:
            pass
    return False


def run(case, folder, noise=False, files=(), limit=60):
    """(how it ended, a sentence, the gradients of all ranks, lines of `files` that were run before the first forward pass, and since). As each rank is a fork of this process, it has loaded all."""
    port, paths, children = free_port(), [], {}
    for rank in range(case.ranks):
        path = os.path.join(folder, "rank-%d" % rank)
        if os.path.exists(path):
            os.remove(path)
        paths.append(path)
        child = os.fork()
        if child == 0:
            try:
                output = os.open(os.path.join(folder, "output-%d" % rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(output, 1)
                os.dup2(output, 2)
                rank_of(case, path, rank, port, noise, files)
            finally:
                os._exit(1)
        children[child] = rank
    end, failed = time.time() + limit, None
    idle, computed = time.time(), 0.0
    while children and time.time() < end and time.time() < idle + IDLE:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if not ended:
            time.sleep(0.02)
            now = sum(map(seconds_of, children))
            if now > computed + 0.05 or (time.time() > idle + 1 and any(map(is_ready, children))):
                idle, computed = time.time(), now
        elif ended in children:
            rank = children.pop(ended)
            idle, computed = time.time(), 0.0
            if status:
                failed = "rank %d ended with status %d" % (rank, status)
                break
            with open(paths[rank], "rb") as there:
                error = pickle.load(there)[0]
            if error:
                failed = "rank %d: %s" % (rank, error)
                break
    hangs = bool(children) and failed is None
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if failed or hangs:
        return (HANGS if hangs else DIES), failed or "no end within %d s" % (limit if time.time() >= end else IDLE), None, None
    read = []
    for path in paths:
        with open(path, "rb") as there:
            read.append(pickle.load(there))
    lines = [those for *_, those in read if those]
    return SAME, "", [steps for _, steps, _ in read], tuple(set().union(*those) for those in zip(*lines))


def compared(found, expected):
    """SAME, ROUNDED or OTHER: the gradients of all ranks."""
    worst = SAME
    if [[len(step) for step in rank] for rank in found] != [[len(step) for step in rank] for rank in expected]:
        return OTHER
    for own, right in zip(found, expected):
        for step, right_step in zip(own, right):
            for one, other in zip(step, right_step):
                if one == other:
                    continue
                if one is None or other is None or len(one) != len(other):
                    return OTHER
                size = max(map(abs, other), default=0)
                if not all(abs(a - b) <= ROUNDING * size for a, b in zip(one, other)):
                    return OTHER
                worst = ROUNDED
    return worst
