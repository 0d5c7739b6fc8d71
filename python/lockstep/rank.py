# SPDX-License-Identifier: Apache-2.0
"""A rank that lockstep.run has started: a gloo process that calls the function of a test and leaves what happened in files."""

import importlib
import importlib.util
import json
import os
import pickle
import sys
import threading
import time
import traceback

FAILED, WAITED = 1, 3  # exit statuses


def module_of(name, file):
    """The module that the function is in: by its name where that finds the same file, otherwise from the file."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        found = None
    if found is not None and found.origin and os.path.exists(found.origin) and os.path.samefile(found.origin, file):
        return importlib.import_module(name)
    name = "__lockstep_main__" if name == "__main__" else name
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Rank:
    """What captures of this process ask (lockstep._rank), and what is left for the parent."""

    def __init__(self, settings, rank):
        self.settings, self.rank = settings, rank
        self.folder, self.world = settings["folder"], settings["world"]
        self.capture = None
        self.main = threading.get_ident()
        self.lock = threading.Lock()

    def folder_of_capture(self):
        from lockstep.errors import CaptureError
        if self.capture is not None:
            raise CaptureError("this is the second capture of a rank of lockstep.run, which verifies one: call lockstep.run for each")
        return os.path.join(self.folder, "run")

    def sums(self):
        """Those of the run that this one is the reference of: only sketches of as many sums can be compared."""
        from lockstep.capturing import sums_for
        return sums_for(max(self.world, self.settings["compared"]))

    def leave(self, kind, values):
        """Writes FOLDER/rank-R.KIND.json, whole or not at all."""
        path = os.path.join(self.folder, "rank-%05d.%s.json" % (self.rank, kind))
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(dict(values, time=time.time()), file)
        os.replace(path + ".part", path)

    def watch(self, ended, end):
        """In a thread of its own: collectives that wait without end let other threads run. Ends this process when its time is over, or when
        the parent leaves a file because another rank has failed."""
        stop = os.path.join(self.folder, "stop")
        while time.time() < end and not os.path.exists(stop):
            if ended.wait(0.1):
                return
        with self.lock:
            if ended.is_set():
                return
            where = None
            try:
                from lockstep.collectives import CallSites
                where = CallSites().innermost(sys._current_frames().get(self.main))
                if self.capture is not None and self.capture.recorder is not None and not self.capture.recorder.closed:
                    self.capture.leave_collectives()
            finally:
                self.leave("waits", {"at": where, "done": getattr(self, "done", False)})
                time.sleep(1.5)  # others may come here a moment later
                os._exit(WAITED)

    def train(self):
        import torch
        import torch.distributed as dist

        import lockstep

        torch.set_num_threads(1)
        store = dist.FileStore(os.path.join(self.folder, "store"), self.world)
        if self.settings["init"]:
            dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world)
        lockstep._rank = self
        function = module_of(self.settings["module"], self.settings["file"])
        for name in self.settings["function"].split("."):
            function = getattr(function, name)
        # The time of all is over at once: one that went away first would end the others' collectives with errors of their own.
        end = store.compare_set("lockstep/end", "", str(time.time() + self.settings["limit"]))
        ended = threading.Event()
        threading.Thread(target=self.watch, args=(ended, float(end)), daemon=True).start()
        function(self.rank, self.world, **pickle.loads(self.settings["arguments"]))
        if self.capture is not None:
            self.capture.close()
        self.done = True
        store.add("lockstep/done", 1)
        while store.add("lockstep/done", 0) < self.world:  # for the same reason
            time.sleep(0.02)
        with self.lock:
            ended.set()
        if dist.is_initialized():
            dist.destroy_process_group()


def main(settings, rank):
    """Is this rank, in a process of its own; returns its exit status."""
    output = os.open(os.path.join(settings["folder"], "rank-%05d.output" % rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(settings["environment"], RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(settings["world"]),
                      LOCAL_WORLD_SIZE=str(settings["world"]), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(settings["port"]))
    sys.path[:] = settings["path"]
    os.chdir(settings["directory"])
    own = Rank(settings, rank)
    status = 0
    try:
        own.train()
    except BaseException as error:
        with own.lock:
            # Frames of this package say nothing to the user.
            frames = traceback.extract_tb(error.__traceback__)
            own.leave("error", {"said": "".join(traceback.format_exception_only(type(error), error)).strip(),
                                "frames": [[frame.filename, frame.lineno, frame.name, frame.line] for frame in frames
                                           if os.path.dirname(frame.filename) != os.path.dirname(__file__)]})
        status = FAILED
    if own.capture is not None and own.capture.recorder is not None:
        own.capture.close(died=bool(status))
    sys.stdout.flush()
    sys.stderr.flush()
    return status  # the process ends at once: other threads may wait for collectives without end
