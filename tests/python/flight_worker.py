# SPDX-License-Identifier: Apache-2.0
"""One rank, with gloo and the Flight Recorder: flight_worker.py FOLDER RANK WORLD CASE. It writes the recorder's dump as pickle and as JSON, before
it goes on where the ranks wait for each other."""

import contextlib
import datetime
import json
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d


def dump(folder, rank, case):
    with open(os.path.join(folder, case, "trace_%d" % rank), "wb") as file:
        file.write(c10d._dump_fr_trace())
    with open(os.path.join(folder, case, "json", "trace_%d.json" % rank), "wb") as file:
        file.write(c10d._dump_fr_trace_json())


def until_recorded(entries, ended):
    """Until the recorder has so many collectives, and knows that so many have ended, which another thread tells it."""
    while True:
        found = json.loads(c10d._dump_fr_trace_json())["entries"]
        if len(found) >= entries and sum(entry["retired"] for entry in found) >= ended:
            return
        time.sleep(0.05)


def dump_and_die(folder, rank, world, case, entries):
    until_recorded(entries, 4)
    dump(folder, rank, case)
    # A rank that goes away first would end the others' collectives.
    files = [os.path.join(folder, case, "json", "trace_%d.json" % other) for other in range(world)]
    while not all(os.path.exists(file) and os.path.getsize(file) for file in files):
        time.sleep(0.1)
    os._exit(0)


@contextlib.contextmanager
def without_end(*arguments):
    """Around what waits without end."""
    thread = threading.Thread(target=dump_and_die, args=arguments)
    thread.start()
    with contextlib.suppress(RuntimeError):  # the other rank has gone: all dumps are there
        yield
    thread.join()


def main():
    folder, rank, world, case = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    os.environ["TORCH_FR_BUFFER_SIZE"] = "3" if case == "ring" else "100"  # read when the first process group is made
    os.makedirs(os.path.join(folder, case, "json"), exist_ok=True)
    store = dist.FileStore(os.path.join(folder, case, "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=datetime.timedelta(seconds=600))
    values = torch.ones(5)
    for _ in range(4):
        dist.all_reduce(values)
    if case == "groups":
        pair = dist.new_group([0, 1], group_desc="mesh_tp")
        if rank < 2:
            dist.all_reduce(torch.ones(3), group=pair)
    if case == "crossed":
        with without_end(folder, rank, world, case, 5):
            dist.broadcast(values, 0) if rank == 0 else dist.all_reduce(torch.ones(1))
    if case == "left_out":
        with without_end(folder, rank, world, case, 5 - rank):
            if rank == 0:
                dist.barrier()
    made = 3 if case == "ring" else 5 if case == "groups" and rank < 2 else 4
    until_recorded(made, made)
    dump(folder, rank, case)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
