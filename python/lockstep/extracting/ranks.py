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

from lockstep.extracting.answers import Known
from lockstep.extracting.cache import Cache
from lockstep.extracting.classes import MOST_PLAYED, Classes, Uneven
from lockstep.extracting.found import Found
from lockstep.extracting.merging import Different, Merged
from lockstep.extracting.placements import Conflict, Placements
from lockstep.extracting.runs import Told
from lockstep.extracting.stages import StageNames
from lockstep.extracting.watching import Watch

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
    """`settings` as playing.play has them; `folder` for what ranks leave; `descriptor`: of ours alone, that ranks close; None: there is none. `cache`: of
    earlier extractions (cache.Cache), or None."""

    def __init__(self, settings, folder, jobs, limit, descriptor, cache=None):
        self.settings, self.folder, self.jobs, self.limit, self.descriptor, self.cache = settings, folder, jobs, limit, descriptor, cache
        self.running = {}  # by process: rank
        self.left = Found()
        self.asked, self.played = set(), set()  # ranks that are or were to be played, and those that were not taken from the cache alone
        self.tape = self.sent = None  # by call, what the first rank has sent to all, and when it was played last
        self.modules, self.shapes, self.loaded = (), {}, False  # that it has imported, and what shapes.py keeps
        self.groups = {}  # ranks of process groups, each list once: of 16,384 ranks many calls have as many members
        self.watch = Watch() if cache is not None else None
        self.later = []  # for the cache, if all goes well: of ranks that died of what others were yet to say

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
            from lockstep.extracting import shapes
            from lockstep.extracting.playing import play

            if self.watch is not None:
                self.watch.begin(self.path(rank, "watched", draw))
            found = play(self.settings, rank, draw, self.known)
            if self.watch is not None:
                found["watched"] = self.watch.end()
            if rank == 0:
                found["shapes"] = shapes.found
                found["modules"] = [name for name, module in list(sys.modules.items()) if "site-packages" in str(getattr(module, "__file__", ""))]
            if rank or draw or not found["sent"]:
                del found["sent"]
            with open(self.path(rank, "part", draw), "w", encoding="utf-8") as file:
                file.write(json.dumps(found))  # at once: json.dump goes through it in Python
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
        self.played.add(rank)
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
        say, are played again when it is there, and not before: along a pipeline each stage waits for the one before it. Where none of those that are played
        says it, others of their groups are played. Raises Failed with the first that has no program."""
        waiting = {}
        while ranks:
            self.asked.update(ranks)
            known = len(self.left.stored)
            for found in self.play_once(ranks, draw):
                waiting.pop(found["rank"], None)
                if found["error"] and not self.ended_otherwise(found):
                    waiting[found["rank"]] = found
                else:
                    yield found
            self.left.tell_what_one_says()
            ready = set(waiting) if len(self.left.stored) > known else self.left.stale & set(waiting)
            partners = self.partners(waiting.values()) if waiting and not ready else set()
            if waiting and not ready and not partners:
                rank = min(waiting)
                raise Failed(self.failure(rank, waiting[rank]["error"]))
            ranks = sorted(partners | ready)

    def partners(self, waiting):
        """Of each rank that waits, those of the smallest group that has any who were not asked for."""
        found = set()
        for one in waiting:
            found.update(next(filter(None, (set(group) - self.asked for group in one["groups"])), ()))
        return found

    def new_tape(self):
        """What the first rank has sent to all; whether that is something else than what ranks were given."""
        before, self.tape, self.sent = self.tape, self.sent or self.tape, None
        return self.tape != before

    def ready(self):
        """Imports what every rank needs, before the first of them is forked, and what the first of them has imported before the others are."""
        if self.watch is not None:
            self.watch.busy = False
        if not self.loaded:
            self.loaded = True
            if self.watch is not None:
                self.watch.install()
            load()
        if self.modules:
            from lockstep.extracting import shapes

            preload(self.modules)
            shapes.known.update(self.shapes)
            self.modules, self.shapes = (), {}
            gc.freeze()
        if self.watch is not None:
            self.watch.busy = True  # what is read now is ours

    def play_once(self, ranks, draw):
        """All with what is known now, so that it does not matter which of them end first."""
        self.known = Known(self.left.stored, self.left.carrying, self.left.told, self.tape)
        waiting, ended = [], []
        for rank in ranks:
            self.left.playing(rank)
            found = self.cache.find(rank, draw, self.known) if self.cache is not None else None
            if found is None:
                waiting.append(rank)
            else:
                ended.append(found)
                yield found
                self.drop_events(found)
        if waiting:
            self.ready()
        waiting = waiting[::-1]
        try:
            while waiting or self.running:
                while waiting and len(self.running) < self.jobs:
                    self.start(waiting.pop(), draw)
                process, status = os.wait()
                if process in self.running:
                    ended.append(self.found(*self.running.pop(process), status))
                    yield ended[-1]
                    self.drop_events(ended[-1])
        finally:
            self.end()
        for found in sorted(ended, key=lambda found: found["rank"]):
            self.left.add(found["rank"], draw, found)
            self.sent = found.get("sent") or self.sent
            self.modules, self.shapes = found.get("modules") or self.modules, found.get("shapes") or self.shapes

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
        for event in found["events"]:
            if isinstance(event.get("group"), list):
                event["group"] = self.group(event["group"])
        for entry in found["numbers"].values():
            entry[0] = self.group(entry[0])
        died = found["error"] and found["error"]["kind"] != "waits" and not self.ended_otherwise(found)
        if died and not found["asked"]:
            raise Failed(self.failure(rank, found["error"]))
        if self.cache is not None:
            entry = rank, draw, found, found.pop("looked_for"), found.pop("watched")
            if died:  # of what others were yet to say, it seems
                self.later.append(entry)
            else:
                self.cache.keep(*entry)
        return found

    @staticmethod
    def drop_events(found):
        """Of all ranks together they are large; those of ranks that died may be kept in the cache later."""
        if not found["error"]:
            found["events"] = []

    def group(self, ranks):
        return self.groups.setdefault(tuple(ranks), ranks)

    def kept(self):
        """All has gone well. What there is to say of the cache, in lines."""
        if self.cache is None:
            return []
        for entry in self.later:
            self.cache.keep(*entry)
        self.cache.close()
        said, taken, why = [], len(self.asked - self.played), self.cache.why
        if taken:
            said.append("%d of %d ranks were taken from the cache" % (taken, len(self.asked)))
        if why:
            said.append("rank %d%s not kept in the cache: %s" % (min(why), " is" if len(why) == 1 else " and %d more are" % (len(why) - 1), why[min(why)]))
        return said

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


def load():
    """torch, and what stands in for hardware that is not there."""
    os.environ.setdefault("PYTORCH_JIT", "0")  # what torch would compile of a script is executed as it is written
    try:
        import torch  # before the first fork, once for all
    except ImportError:
        raise Failed("the Python %s has no torch: --python or LOCKSTEP_PYTHON names the one that runs the script" % sys.executable) from None

    with contextlib.suppress(Exception):
        import torch._dynamo  # which every optimizer imports, for seconds

    # accelerate, pipelining and shapes for what they add to shims, and playing, which every rank needs.
    from lockstep.extracting import accelerate, megatron, pipelining, playing, shapes, shims

    megatron.install()
    shims.install()


def extract(settings, every=False, jobs=None, limit=300, report=lambda text: None, descriptor=None, cache=None, say=lambda line: None):
    """The extraction of a script, as docs/extract.md has it, and sentences of what it must be told. `report(text)` is told of progress; `descriptor` as of Player; `cache`: its folder, or
    None; `say(line)` is told what was taken from it."""
    world = settings["world"]
    folder = tempfile.mkdtemp(prefix="lockstep-extract-")
    player = Player(settings, folder, jobs or len(os.sched_getaffinity(0)), limit, descriptor, Cache(cache, settings) if cache else None)
    merged, chosen, begin = Merged(), {}, time.time()
    try:
        given = settings.pop("placements", None)
        placements, stages = Placements(Told(given) if given else None), StageNames()

        def add(found, draw):
            merged.add(found["rank"], found["events"], draw)
            if draw == DRAWS[0]:
                stages.add(found["rank"], found["events"])
                placements.add(found["rank"], found["alike"])

        def take(ranks, draw):
            """Plays them, and who else must be; returns whom."""
            taken = set()
            for number, found in enumerate(player.play(ranks, draw), 1):
                add(found, draw)
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

        # The first one alone: what it has imported, and has sent to all, the others find there.
        player.asked.add(0)
        for found in player.play_once([0], DRAWS[0]):
            if not found["error"]:
                add(found, DRAWS[0])
                left.add(0)
        player.new_tape()
        player.left.tell_what_nobody_knows()
        try:
            first = list(range(world)) if every else first_ranks(world)
            settle([rank for rank in first if rank not in left])
            settle(placements.partners(merged.mesh))
            if len(merged.played()) < world and not merged.one():
                classes = Classes(merged, settle, [rank for rank in first[2:] if rank != world - 1])
                classes.extend()
                chosen = classes.chosen()
        except Uneven as uneven:
            if world > MOST:
                raise Failed("%d ranks were played, and what the others do is not known, for %s: give --all-ranks"
                             % (len(merged.played()), uneven)) from None
            settle(sorted(set(range(world)) - merged.played()))
        programs = merged.written(world)
        unsaid = placements.apply(programs, merged.mesh, merged.common["data_axes"])
        notes = merged.sentences() + stages.apply(programs, merged.mesh)
        for line in player.kept():
            say(line)
    except Conflict as conflict:
        raise Failed(str(conflict)) from None
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
            "world": world, "mesh": mesh, "data_axes": common["data_axes"], "loss": common["loss"], **chosen, **counts,
            **placements.head(), **({"notes": notes} if notes else {}),
            "programs": programs}, list(placements.words(unsaid))
