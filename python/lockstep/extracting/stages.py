# SPDX-License-Identifier: Apache-2.0
"""Names of parameters that a pipeline's stages hold, where several stages use one name: of different parameters, or of one that each of them has.

A parameter of which gradients meet those of another stage in a collective is one, as a tied embedding is, but where the stages begin with different weights:
then gradients of different parameters are mixed. Others are each stage's own and are named by it. Where such ones begin with the same weights on two stages,
they may be copies whose gradients nobody adds up: that is said, and nothing is judged of them.
"""

AXES = ("pp", "pipe", "pipeline", "stage")
BETWEEN_TWO = ("send", "recv")


def own_name(event):
    """The stage's own name of a parameter."""
    return event["name"][len("stage%d." % event["stage"]):]


def listed(names):
    names = sorted(names)
    return names[0] if len(names) == 1 else "%s and %d other%s" % (names[0], len(names) - 1, "s" if len(names) > 2 else "")


class StageNames:
    def __init__(self):
        self.starts, self.constant = {}, set()  # by name and rank: what it begins with, by stage; names that begin with one number everywhere

    def add(self, rank, events):
        """Of a rank that was played."""
        for event in events:
            if event["event"] == "parameter" and "stage" in event and event.get("start"):
                if event.get("constant"):
                    self.constant.add(own_name(event))
                else:
                    begins = event["shape"], event["start"]
                    self.starts.setdefault(own_name(event), {}).setdefault(rank, {})[event["stage"]] = begins

    def pairs(self, name, mesh):
        """Of two stages that stand alike along all other axes: whether they begin alike."""
        chosen = [place for place, axis in enumerate(mesh.axes) if axis not in AXES]
        groups = {}
        for rank, begins in self.starts.get(name, {}).items():
            groups.setdefault(mesh.number(rank, chosen), []).extend(begins.items())
        for group in groups.values():
            for place, (stage, begins) in enumerate(group):
                yield from (begins == other for number, other in group[:place] if number != stage)

    def are_mixed(self, shared, mesh):
        """Of names whose gradients a collective adds up, those of different parameters: that begin otherwise on each stage, and beside them what begins
        with one number everywhere, as biases and norms do."""
        found = {name for name in shared - self.constant if not any(self.pairs(name, mesh)) and any(True for _ in self.pairs(name, mesh))}
        return found | (shared & self.constant if found else set())

    def apply(self, programs, mesh):
        """Writes names into the programs. Returns sentences for the reader."""
        stages, shared = {}, set()
        for program in programs:
            own = {event["id"]: event for event in program["events"] if event["event"] == "parameter" and "stage" in event}
            for event in own.values():
                stages.setdefault(own_name(event), set()).add(event["stage"])
            for event in program["events"] if own else ():
                if event["event"] == "collective" and event["op"] not in BETWEEN_TWO and self.is_between_stages(event["group"], mesh):
                    shared.update(own_name(own[number]) for number in event.get("parameters", ()) if number in own)
        if not stages:
            return []
        shared = {name for name in shared if len(stages[name]) > 1}
        mixed = self.are_mixed(shared, mesh)
        apart = {name for name, own in stages.items() if len(own) > 1} - shared | mixed
        tied = {name for name in apart - mixed if any(self.pairs(name, mesh))}
        known = {}
        for program in programs:
            numbers = [event["id"] for event in program["events"] if event["event"] == "parameter" and "stage" in event and own_name(event) in tied]
            program["events"][:] = [self.renamed(event, apart, known) if event["event"] == "parameter" else event for event in program["events"]]
            if numbers:
                end = next((place for place, event in enumerate(program["events"]) if event["event"] == "end"), len(program["events"]))
                program["events"].insert(end, {"event": "gap", "step": None, "parameters": numbers, "why": (
                    "stages of the pipeline have it under one name and begin with the same weights, and no collective adds up their gradients: whether it is"
                    " one parameter is not known (other names, or other weights in each stage, would tell)")})
        if not apart:
            return []
        return ["stages of the pipeline have %s under one name, and %s: they are taken as each stage's own, stage%d.%s and so on."
                % (listed(names), why, min(stages[min(names)]), min(names))
                for names, why in ((apart - mixed, "no collective adds up their gradients"), (mixed, "begin with different weights")) if names]

    @staticmethod
    def is_between_stages(group, mesh):
        if isinstance(group, dict):
            return any(axis in AXES for axis in group["axes"])
        chosen = [place for place, axis in enumerate(mesh.axes) if axis in AXES]
        return len({mesh.number(rank, chosen) for rank in group}) > 1

    @staticmethod
    def renamed(event, apart, known):
        """Many programs have the same event, which stays with what comes of it, so that no other has its identity."""
        if "stage" not in event:
            return event
        if id(event) not in known:
            own = own_name(event)
            new = {key: value for key, value in event.items() if key != "stage"}
            aliases = [name for name in event.get("aliases", ()) if name not in (own, event["name"])]
            prefix = "stage%d." % event["stage"]
            new["name"] = prefix + own if own in apart else own
            new["aliases"] = [prefix + name[len(prefix):] if own in apart else name[len(prefix):] if name.startswith(prefix) else name for name in aliases]
            if not new["aliases"]:
                del new["aliases"]
            known[id(event)] = event, new
        return known[id(event)][1]
