# SPDX-License-Identifier: Apache-2.0
"""Which ranks are played, and by whom: each by a process of its own, a fork of this one, which has imported what the first of them needed."""

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback

from lockstep.extracting.classes import MOST_PLAYED, Classes, Uneven
from lockstep.extracting.found import Found
from lockstep.extracting.merging import Different, Merged

EVERY = 64  # so many ranks are all played
MOST = 4096  # so many are all played where they do different things
SAMPLE = 6
ROUNDS = 8  # in which ranks are played again with what others have put in
DRAWS = (0, 1)  # each rank is played with two draws of the noise: what differs between them depends on values


class Failed(Exception):
    """No extraction; a text for the user."""


def first_ranks(world, seed=1):
    """Those that are played first: all of few; else the first, the last and some others."""
    if world <= EVERY:
        return list(range(world))
    chosen = [0, 1, world - 1]
    others = random.Random(seed).sample(range(2, world - 1), SAMPLE - len(chosen))
    return chosen[:1] + sorted(chosen[1:] + others)


class Player:
    """`settings` as playing.play has them; `folder` for what ranks leave; `descriptor`: of ours alone, that ranks close; None: there is none."""

    def __init__(self, settings, folder, jobs, limit, descriptor):
        self.settings, self.folder, self.jobs, self.limit, self.descriptor = settings, folder, jobs, limit, descriptor
        self.running = {}  # by process: rank
        self.left = Found()
        self.asked = set()  # ranks that are or were to be played
        settings.update(stored=self.left.stored, carrying=self.left.carrying, told=self.left.told)

    def path(self, rank, kind, draw=0):
        return os.path.join(self.folder, "rank-%05d.%d.%s" % (rank, draw, kind))

    def child(self, rank, draw):
        """Is a rank; never returns."""
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if self.descriptor is not None:
                os.close(self.descriptor)
            output = os.open(self.path(rank, "output", draw), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            waits = open(self.path(rank, "waits", draw), "w", encoding="utf-8")
            faulthandler.dump_traceback_later(self.limit, exit=True, file=waits)
            from lockstep.extracting.playing import play

            found = play(self.settings, rank, draw)
            if rank == 0:
                found["modules"] = [name for name, module in list(sys.modules.items()) if "site-packages" in (getattr(module, "__file__", None) or "")]
            sent = found.pop("sent", None)
            if sent and rank == 0 and draw == 0:
                import torch

                torch.save(sent, self.path(rank, "tape"))
            with open(self.path(rank, "part", draw), "w", encoding="utf-8") as file:
                json.dump(found, file)
            os.replace(self.path(rank, "part", draw), self.path(rank, "json", draw))
            status = 0
        except BaseException:  # ours, or one that ends a process
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def start(self, rank, draw):
        sys.stdout.flush()
        sys.stderr.flush()
        self.left.playing(rank)
        process = os.fork()
        if process == 0:
            self.child(rank, draw)
        self.running[process] = rank, draw

    def end(self):
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
        self.running = {}

    def play(self, ranks, draw):
        """What each leaves, in the order in which they end. Those that wait for what others set in the store, or have died of what another rank was yet to
        say, are played again when it is there; where none of those that are played says it, others of their groups are played. Raises Failed with the
        first that has no program."""
        while ranks:
            self.asked.update(ranks)
            known, again, partners = len(self.left.stored), {}, []
            for found in self.play_once(ranks, draw):
                if found["error"] and not self.ended_otherwise(found):
                    again[found["rank"]] = found
                else:
                    yield found
            self.left.tell_what_one_says()
            if again and len(self.left.stored) == known and not self.left.stale & set(again):
                partners = self.partners(again.values())
                if not partners:
                    rank = min(again)
                    raise Failed(self.failure(rank, again[rank]["error"]))
            ranks = sorted({*partners, *again})

    def partners(self, waiting):
        """Of each rank that waits, those of the smallest group that has any who were not asked for."""
        found = set()
        for one in waiting:
            found.update(next(filter(None, (set(group) - self.asked for group in one["groups"])), ()))
        return found

    def new_tape(self):
        """What the first rank has sent to all; whether that is something else than what ranks were given."""
        path, before = self.path(0, "tape"), self.settings.get("tape")
        if not os.path.exists(path):
            return False
        import torch

        self.settings["tape"] = tape = torch.load(path, weights_only=True)
        os.remove(path)
        if before is None or before.keys() != tape.keys():
            return True

        def same(one, other):
            return one is other or (one is not None and other is not None and one.dtype == other.dtype and torch.equal(one.nan_to_num(), other.nan_to_num()))
        return not all(why == before[key][0] and all(map(same, values, before[key][1])) for key, (why, values) in tape.items())

    def play_once(self, ranks, draw):
        waiting = list(ranks)[::-1]
        try:
            while waiting or self.running:
                while waiting and len(self.running) < self.jobs:
                    self.start(waiting.pop(), draw)
                process, status = os.wait()
                if process in self.running:
                    yield self.found(*self.running.pop(process), status)
        finally:
            self.end()

    def output(self, rank, draw):
        with contextlib.suppress(OSError), open(self.path(rank, "output", draw), encoding="utf-8", errors="replace") as file:
            return [line.rstrip() for line in file.read().splitlines() if line.strip()][-8:]
        return []

    def found(self, rank, draw, status):
        try:
            with open(self.path(rank, "json", draw), encoding="utf-8") as file:
                found = dict(json.load(file), draw=draw)
        except OSError:
            raise Failed(self.without(rank, draw, status)) from None
        os.remove(self.path(rank, "json", draw))
        self.left.add(rank, draw, found)
        if found["error"] and found["error"]["kind"] != "waits" and not found["asked"] and not self.ended_otherwise(found):
            raise Failed(self.failure(rank, found["error"]))
        return found

    @staticmethod
    def ended_otherwise(found):
        """Whether it is the second draw alone that ends with an error, after the capture has begun: what the rank does depends on values."""
        return found["draw"] != DRAWS[0] and found["error"]["kind"] == "died" and any(event["event"] == "run" for event in found["events"])

    def without(self, rank, draw, status):
        with contextlib.suppress(OSError), open(self.path(rank, "waits", draw), encoding="utf-8") as file:
            frames = [line.strip() for line in file if line.startswith("  File")]
            if frames:
                return "rank %d did not end within %d s; it was at\n%s" % (rank, self.limit, "\n".join("  " + line for line in frames[:6]))
        how = "by signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "with exit status %d" % os.WEXITSTATUS(status)
        return "rank %d ended %s%s" % (rank, how, self.last_lines(rank, draw))

    def last_lines(self, rank, draw):
        lines = self.output(rank, draw)
        return "; the last lines that it wrote are\n" + "\n".join("  " + line for line in lines) if lines else ""

    def failure(self, rank, error):
        if error["kind"] != "died":
            return "rank %d: %s" % (rank, error["said"])
        where = ["  %s:%d in %s\n      %s" % (file, line, name, text) for file, line, name, text in error["frames"][-4:]]
        return "rank %d ended with\n  %s\n%s" % (rank, error["said"].splitlines()[-1] if error["said"] else "an error", "\n".join(where))


def preload(names):
    """Imports what a rank has imported from packages, so that the next ones need not."""
    for name in names:
        if name not in sys.modules and not name.startswith("_"):
            with contextlib.suppress(BaseException), open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere), \
                    contextlib.redirect_stderr(nowhere):
                importlib.import_module(name)


def extract(settings, every=False, jobs=None, limit=300, report=lambda text: None, descriptor=None):
    """The extraction of a script, as docs/extract.md has it. `report(text)` is told of progress; `descriptor` as of Player."""
    world = settings["world"]
    folder = tempfile.mkdtemp(prefix="lockstep-extract-")
    player = Player(settings, folder, jobs or len(os.sched_getaffinity(0)), limit, descriptor)
    merged, chosen, begin = Merged(), {}, time.time()
    try:
        def take(ranks, draw):
            """Plays them, and who else must be; returns whom."""
            taken = set()
            for number, found in enumerate(player.play(ranks, draw), 1):
                merged.add(found["rank"], found["events"], draw)
                taken.add(found["rank"])
                report("played %d of %d ranks, %.0f s" % (number, len(ranks), time.time() - begin))
            return taken

        def to_play_again():
            """Ranks that get something else, as it is known now what others put into their calls; and those that are to be played to know it."""
            again = player.left.again(merged.mesh)
            if len(merged.played() | again) * MOST_PLAYED > world > len(merged.played()):
                raise Uneven("counts of more than half of them would have to be known")
            return sorted(again)

        left = set()  # ranks whose second draw is to be played

        def settle(ranks):
            """Plays them with both draws, the second when nothing changes the first any more."""
            for _ in range(1 + ROUNDS):
                left.update(take(ranks, DRAWS[0]))
                if player.new_tape():
                    player.left.give_anew()
                ranks = to_play_again()
                if not ranks:
                    left.difference_update(take(sorted(left), DRAWS[1]))
                    ranks = to_play_again()
                if not ranks:
                    return
            raise Failed("what ranks put into collectives depends on what they got from others, and has not settled after %d rounds" % ROUNDS)

        os.environ.setdefault("PYTORCH_JIT", "0")  # what torch would compile of a script is executed as it is written
        try:
            import torch  # before the first fork, once for all
        except ImportError:
            raise Failed("the Python %s has no torch: --python or LOCKSTEP_PYTHON names the one that runs the script" % sys.executable) from None

        with contextlib.suppress(Exception):
            import torch._dynamo  # which every optimizer imports, for seconds

        from lockstep.extracting import megatron, shims

        megatron.install()
        shims.install()

        # The first one alone: what it has imported, and has sent to all, the others find there.
        player.asked.add(0)
        for found in player.play_once([0], DRAWS[0]):
            preload(found.get("modules", ()))
            if not found["error"]:
                merged.add(0, found["events"], DRAWS[0])
                left.add(0)
        player.new_tape()
        gc.freeze()
        try:
            first = list(range(world)) if every else first_ranks(world)
            settle([rank for rank in first if rank not in left])
            if len(merged.played()) < world and not merged.one():
                classes = Classes(merged, settle, [rank for rank in first[2:] if rank != world - 1])
                classes.extend()
                chosen = classes.chosen()
        except Uneven as uneven:
            if world > MOST:
                raise Failed("%d ranks were played, and what the others do is not known, for %s: give --all-ranks"
                             % (len(merged.played()), uneven)) from None
            settle(sorted(set(range(world)) - merged.played()))
    except Different as different:
        raise Failed(str(different)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    common = merged.common
    mesh = {key: common["mesh"][key] for key in ("axes", "sizes")}
    if common["mesh"]["ranks"] != list(range(world)):
        mesh["ranks"] = common["mesh"]["ranks"]
    taken = sum(player.left.counts.values())
    counts = {"counts_taken": taken} if taken else {}
    return {"lockstep_extract": 1, "versions": common["versions"], "command": [settings["script"], *settings["arguments"]], "adapter": common["adapter"],
            "world": world, "mesh": mesh, "data_axes": common["data_axes"], "loss": common["loss"], **chosen, **counts, "programs": merged.written(world)}
