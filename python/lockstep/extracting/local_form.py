# SPDX-License-Identifier: Apache-2.0
"""A rank's program in terms of its own memory, so that ranks at other places of the mesh which do the same have the same: local(); and back: placed().

Three things differ from rank to rank although all do the same. Ranks that a group is a list of are told by where they stand from this one. Where a
reduce-scatter brings a rank its part, the rest of the buffer keeps what was there: what is later read of the buffer is told by its place in the whole,
[coefficient, source, place, "whole"], and is what was brought on the rank whose part it is, and what went in on the others. And each optimizer reads
the elements whose sums its rank got: one event "own" in the place of its results, where these are all such elements and no others, each as the last
collective left it. What is not so stays as it is. What local() gives is only given where placed() makes the rank's own program of it.
"""


def is_unknown(terms):
    """Whether a segment of a content has, in the place of its terms, why they are not known."""
    return isinstance(terms, (str, dict))


def joined(content):
    """The same content in as few segments as can be."""
    found = []
    for first, count, terms in content:
        if found:
            begin, before, other = found[-1]
            if begin + before == first and follows(other, terms, before):
                found[-1] = [begin, before + count, other]
                continue
        found.append([first, count, terms])
    return found


def follows(terms, others, count):
    if is_unknown(terms) or is_unknown(others):
        return terms == others
    return len(terms) == len(others) and all(one[0] == other[0] and one[1] == other[1] and one[2] + count == other[2] and one[3:] == other[3:]
                                             for one, other in zip(terms, others))


def moved(terms, count):
    return terms if is_unknown(terms) else [[term[0], term[1], term[2] + count, *term[3:]] for term in terms]


def part(content, begin, end):
    """Elements [begin, end) of a content, counted from `begin`."""
    found = []
    for first, count, terms in content:
        low, high = max(first, begin), min(first + count, end)
        if low < high:
            found.append([low - begin, high - low, moved(terms, low - first)])
    return found


class Places:
    """For stretches of something, where they are: [begin, end) with what, at a place that grows with the elements. What is put later counts."""

    def __init__(self):
        self.all = []

    def put(self, begin, end, what, place):
        kept = []
        for low, high, other, first in self.all:
            if low < begin:
                kept.append((low, min(high, begin), other, first))
            if high > end:
                kept.append((max(low, end), high, other, first + max(low, end) - low))
        self.all = sorted((one for one in kept + [(begin, end, what, place)] if one[0] < one[1]), key=lambda one: one[0])

    def within(self, begin, end):
        """(begin, end, what, place) of what there is in [begin, end)."""
        return [(max(low, begin), min(high, end), what, place + max(low, begin) - low) for low, high, what, place in self.all
                if max(low, begin) < min(high, end)]


class Scatter:
    """A reduce-scatter that brings this rank the part at `position`, of `size` elements, of what went in."""

    def __init__(self, position, size, content):
        self.position, self.size, self.content = position, size, joined(content)

    def own(self):
        return self.position * self.size, (self.position + 1) * self.size


class Memory:
    """What sources of a rank's program hold, by the elements of its contributions: an element is that of a contribution of the step to a part of a
    parameter, by the first source of that part."""

    def __init__(self, mesh, rank):
        self.mesh, self.rank = mesh, rank
        self.parameters, self.regions, self.held = {}, {}, {}  # by number: the event; by step, parameter and part: an element's source; by source: Places
        self.latest, self.scattered = {}, {}  # by an element's source: where the last collective left it; where the last reduce-scatter had it
        self.scatters, self.named = {}, {}  # by source: the reduce-scatter; the parameters in it

    def began(self, event):
        """Takes note of a parameter or of what a backward pass has yielded; of nothing else."""
        if event["event"] == "parameter":
            self.parameters[event["id"]] = event
        elif event["event"] == "contribution":
            self.contributed(event)

    def contributed(self, event):
        self.named[event["source"]] = {event["parameter"]}
        region = {key: event[key] for key in ("range", "box") if key in event}
        if "piece" in event:
            region = self.parameters[event["parameter"]]["pieces"][event["piece"]]
        if event.get("first") or not region:
            return
        key = event["step"], event["parameter"], str(region)
        if key not in self.regions:
            self.regions[key] = event["source"], region, event["elements"]
        self.held[event["source"]] = Places()
        self.held[event["source"]].put(0, event["elements"], self.regions[key][0], 0)

    def elements(self, content):
        """Of which elements of contributions the parts of a content are made: Places. What is made of several is of none."""
        found = Places()
        for first, count, terms in content:
            if is_unknown(terms) or not terms:
                continue
            every = []
            for _, source, offset, *whole in terms:
                if whole or source not in self.held:
                    break
                every.append([(low - offset, high - offset, what, place) for low, high, what, place in self.held[source].within(offset, offset + count)])
            if len(every) == len(terms) and all(one == every[0] for one in every):
                for low, high, what, place in every[0]:
                    found.put(first + low, first + high, what, place)
        return found

    def position(self, group):
        if isinstance(group, dict):
            return self.mesh.number(self.rank, [self.mesh.axes.index(axis) for axis in group["axes"]])
        return group.index(self.rank)

    def called(self, event):
        """A collective, with what goes in as it is in this rank's memory."""
        if "output" in event:
            self.named[event["output"]["source"]] = set(event.get("parameters", ()))
        if "input" not in event or "output" not in event:
            return
        source, count = event["output"]["source"], event["output"]["elements"]
        inside = self.elements(event["input"])
        own = self.held[source] = Places()
        if event["op"] == "all_reduce" and count == event["elements"]:
            own.all = inside.all
        elif event["op"] == "reduce_scatter" and "input_splits" not in event and count and event["elements"] % count == 0:
            scatter = self.scatters[source] = Scatter(self.position(event["group"]), count, event["input"])
            begin, end = scatter.own()
            for low, high, what, place in inside.within(begin, end):
                own.put(low - begin, high - begin, what, place)
            for low, high, what, place in inside.all:
                self.scattered.setdefault(what, Places()).put(place, place + high - low, source, low)
        for low, high, what, place in own.all:
            self.latest.setdefault(what, Places()).put(place, place + high - low, source, low)

    def parameters_in(self, content):
        sources = {term[1] for _, _, terms in content if not is_unknown(terms) for term in terms}
        return sorted(set().union(*(self.named.get(source, ()) for source in sources)))

    # What is read of buffers whose sums are scattered.

    def whole(self, content):
        """A content by places in the whole of such buffers."""
        found = []
        for first, count, terms in joined(content):
            if is_unknown(terms) or not terms:
                found.append([first, count, terms])
                continue
            (factor, source, offset, *_), = terms[:1]
            if len(terms) == 1 and factor == "1" and source in self.scatters:
                scatter = self.scatters[source]
                found.append([first, count, [["1", source, scatter.own()[0] + offset, "whole"]]])
                continue
            left = Places()
            for low, high, what, place in self.elements([[0, count, terms]]).all:
                for begin, end, source, there in self.scattered.get(what, Places()).within(place, place + high - low):
                    self.put_left(left, low + begin - place, low + end - place, source, there, terms)
            at = 0
            for low, high, source, there in left.all + [(count, count, None, 0)]:
                found += [[first + at, low - at, moved(terms, at)]] if at < low else []
                found += [[first + low, high - low, [["1", source, there, "whole"]]]] if low < high else []
                at = high
        return joined(found)

    def put_left(self, left, low, high, source, there, terms):
        """Where elements [low, high) are what went into the reduce-scatter from `there` on, and it brought nothing to this rank."""
        scatter = self.scatters[source]
        for begin, end in ((there, min(there + high - low, scatter.own()[0])), (max(there, scatter.own()[1]), there + high - low)):
            if begin < end:
                own = [[low + begin - there + one, count, other] for one, count, other in part(scatter.content, begin, end)]
                if joined(own) == [[low + begin - there, end - begin, moved(terms, low + begin - there)]]:
                    left.put(low + begin - there, low + end - there, source, begin)

    def here(self, content):
        """The opposite."""
        found = []
        for first, count, terms in content:
            if is_unknown(terms) or not terms or len(terms[0]) < 4:
                found.append([first, count, terms])
                continue
            (_, source, there, _), = terms
            begin, end = self.scatters[source].own()
            for low, high in ((there, min(there + count, begin)), (max(there, begin), min(there + count, end)), (max(there, end), there + count)):
                if low < high:
                    at = first + low - there
                    if begin <= low < end:
                        found.append([at, high - low, [["1", source, low - begin]]])
                    else:
                        found += [[at + one, size, other] for one, size, other in part(self.scatters[source].content, low, high)]
        return joined(found)

    # Which elements its optimizer reads.

    def owned(self, step, factor):
        """(parameter, piece, content) of all elements of parameters whose sums are scattered that this rank got, as the last collectives left them;
        None where the pieces of a parameter do not say which these are."""
        found = []
        for (when, parameter, _), (source, region, _) in self.regions.items():
            if when != step or source not in self.scattered:
                continue
            for low, high, scatter, there in self.scattered[source].all:
                begin, end = self.scatters[scatter].own()
                first, last = low + max(there, begin) - there, low + min(there + high - low, end) - there
                if first >= last:
                    continue
                pieces = self.pieces(parameter, region, first, last)
                if pieces is None:
                    return None
                for number, one, size in pieces:
                    content = [[place - one, after - place, [[factor, what, at]]] for place, after, what, at in self.latest[source].within(one, one + size)]
                    found.append((parameter, number, joined(content)))
        return sorted(found)

    def pieces(self, parameter, region, first, last):
        """(number, its first element, how many) of the pieces that make up elements [first, last) of a part; None where not just some do."""
        every = self.parameters[parameter]["pieces"]
        if "box" in region:
            size = 1
            for begin, end in region["box"]:
                size *= end - begin
            numbers = [number for number, piece in enumerate(every) if piece == region]
            return [(numbers[0], 0, size)] if len(numbers) == 1 and (first, last) == (0, size) else None
        begin = region["range"][0]
        found, at = [], first
        while at < last:
            fitting = [(number, piece["range"][1] - begin) for number, piece in enumerate(every)
                       if "range" in piece and piece["range"][0] - begin == at and at < piece["range"][1] - begin <= last]
            if len(fitting) != 1:
                return None
            found.append((fitting[0][0], at, fitting[0][1] - at))
            at = fitting[0][1]
        return found

    def is_scattered(self, step, parameter):
        return any(source in self.scattered for (when, number, _), (source, _, _) in self.regions.items() if (when, number) == (step, parameter))


def results_of(events, pieces):
    """By step, (parameter, piece, content) of its results."""
    found, number = {}, 0
    for event in events:
        if event["event"] == "result":
            content = event["content"]
            found.setdefault(event["step"], []).append((event["parameter"], pieces[number], joined(content) if content else content))
            number += 1
    return found


def local(events, pieces, mesh, rank):
    """Of a rank's program as merging.normal() gives it."""
    memory, found, number = Memory(mesh, rank), [], 0
    own = {}  # by step: whether it is told by "own"
    every = results_of(events, pieces)
    for event in events:
        kind = event["event"]
        memory.began(event)
        if kind == "collective":
            before, event = event, dict(event)
            if "input" in event:
                if event.get("parameters") == memory.parameters_in(event["input"]):
                    event["parameters"] = "those in it"
                event["input"] = memory.whole(event["input"])
            if isinstance(event["group"], list):
                event["group"] = [mesh.away(rank, other) for other in event["group"]]
            memory.called(before)
        elif kind in ("result", "step"):
            step = event["step"]
            if step not in own:
                results = sorted(one for one in every.get(step, ()) if memory.is_scattered(step, one[0]))
                factor = next((terms[0][0] for _, _, content in results for _, _, terms in content or () if terms and not is_unknown(terms)), "1")
                own[step] = results == memory.owned(step, factor)
                if own[step]:
                    found.append({"event": "own", "step": step, "factor": factor})
            if kind == "result":
                event = dict(event, piece=pieces[number], content=joined(event["content"]) if event["content"] else event["content"])
                number += 1
                if own[step] and memory.is_scattered(step, event["parameter"]):
                    continue
        found.append(event)
    return found


def placed(form, mesh, rank):
    """The program of a rank of this form, as merging.normal() gives it; None where there is none."""
    memory, found, pieces = Memory(mesh, rank), [], []
    for event in form:
        kind = event["event"]
        memory.began(event)
        if kind == "collective":
            if "input" in event or isinstance(event["group"], list):  # else all ranks have the same one
                event = dict(event)
            if isinstance(event["group"], list):
                event["group"] = [mesh.there(rank, away) for away in event["group"]]
                if None in event["group"]:
                    return None
            if "input" in event:
                event["input"] = memory.here(event["input"])
                if event["parameters"] == "those in it":
                    event["parameters"] = memory.parameters_in(event["input"])
            memory.called(event)
        elif kind == "own":
            results = memory.owned(event["step"], event["factor"])
            if results is None:
                return None
            for parameter, piece, content in results:
                found.append({"event": "result", "step": event["step"], "parameter": parameter, "content": content})
                pieces.append(piece)
            continue
        elif kind == "result":
            event = dict(event)
            pieces.append(event.pop("piece"))
        found.append(event)
    return found, pieces


def in_one_order(events, pieces):
    """A program with its contents in as few segments as can be, and the results of a step in the order of parameters and pieces."""
    found, waiting, pieces = [], [], list(pieces)
    for event in events:
        if event["event"] == "result":
            content = event["content"]
            waiting.append((event["parameter"], pieces.pop(0), dict(event, content=joined(content) if content else content)))
            continue
        if waiting:
            found += [dict(own, piece=piece) for _, piece, own in sorted(waiting, key=lambda one: one[:2])]
            waiting = []
        found.append(dict(event, input=joined(event["input"])) if "input" in event else event)
    return found + [dict(own, piece=piece) for _, piece, own in sorted(waiting, key=lambda one: one[:2])]
