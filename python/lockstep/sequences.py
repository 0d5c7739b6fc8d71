# SPDX-License-Identifier: Apache-2.0
"""The collectives that ranks have recorded, held against each other: where they go apart, nobody comes out of the next one."""

import json
import os

# Of others, ranks may put in different numbers of elements.
SAME_SIZE = {"all_reduce", "reduce_scatter", "broadcast", "reduce"}


def recorded(folder, world):
    """The collectives of each rank in their order; of a rank without a file none."""
    ranks = []
    for rank in range(world):
        found = []
        path = os.path.join(folder, "rank-%05d.jsonl" % rank)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for line in file:
                    try:
                        event = json.loads(line)
                    except ValueError:
                        break  # cut short
                    if event.get("event") == "collective":
                        found.append(event)
        ranks.append(found)
    return ranks


def sentence(event):
    """One collective in words."""
    if event is None:
        return "no further one"
    said = event["op"]
    if event["dtype"]:
        said += " of %d %s element%s" % (event["elements"], event["dtype"], "s" * (event["elements"] != 1))
    if event["reduce"] and event["op"] != "all_gather":
        said += ", %s" % event["reduce"]
    return said + (" (%s)" % event["call"] if event["call"] else "")


def same(one, other):
    if one is None or other is None:
        return one is other
    keys = ["op", "dtype", "reduce", "root"] + (["elements"] if one["op"] in SAME_SIZE else [])
    return all(one.get(key) == other.get(key) for key in keys)


def group_words(group):
    return "ranks " + ", ".join(str(rank) for rank in group)


def differences(ranks, missing=True):
    """A sentence for each group whose members' sequences go apart: where, and what each rank has there. Without `missing`, a rank that has
    issued fewer is none that differs."""
    groups = sorted({tuple(event["group"]) for events in ranks for event in events if event["op"] not in ("send", "recv")})
    said = []
    for group in groups:
        own = {rank: [event for event in ranks[rank] if tuple(event["group"]) == group and event["op"] not in ("send", "recv")]
               for rank in group if rank < len(ranks)}
        for place in range(max(len(events) for events in own.values())):
            here = {rank: events[place] if place < len(events) else None for rank, events in own.items()}
            first = next((event for event in here.values() if event is not None))
            if all(same(first, event) or (event is None and not missing) for event in here.values()):
                continue
            said.append("collective %d of %s differs:" % (place + 1, group_words(group)))
            said += ["  rank %d: %s" % (rank, sentence(event)) for rank, event in here.items()]
            break
    return said


def tails(ranks, most=4):
    """The last collectives of each rank."""
    said = []
    for rank, events in enumerate(ranks):
        said.append("rank %d has issued %d collective%s%s" % (rank, len(events), "s" * (len(events) != 1), ", last:" if events else ""))
        first = max(0, len(events) - most)
        said += ["  %d. %s over %s" % (first + number + 1, sentence(event), group_words(event["group"]))
                 for number, event in enumerate(events[first:])]
    return said
