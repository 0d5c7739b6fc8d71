# SPDX-License-Identifier: Apache-2.0
"""The collectives that ranks have recorded, in words."""

import json
import os


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
    said = event["op"]
    if event["dtype"]:
        said += " of %d %s element%s" % (event["elements"], event["dtype"], "s" * (event["elements"] != 1))
    if event["reduce"] and event["op"] != "all_gather":
        said += ", %s" % event["reduce"]
    return said + (" (%s)" % event["call"] if event["call"] else "")


def group_words(group):
    return "ranks " + ", ".join(str(rank) for rank in group)


def tails(ranks, most=4):
    """The last collectives of each rank."""
    said = []
    for rank, events in enumerate(ranks):
        said.append("rank %d has issued %d collective%s%s" % (rank, len(events), "s" * (len(events) != 1), ", last:" if events else ""))
        first = max(0, len(events) - most)
        said += ["  %d. %s over %s" % (first + number + 1, sentence(event), group_words(event["group"]))
                 for number, event in enumerate(events[first:])]
    return said
