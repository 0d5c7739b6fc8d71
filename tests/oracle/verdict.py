# SPDX-License-Identifier: Apache-2.0
"""Compares what every rank hands to its optimizer with one device, in the shape of docs/report-format.md."""

from fractions import Fraction

from operations import clipped, unclipped
from reference import reference


def ranges(elements):
    """Half-open ranges of a set of elements."""
    result = []
    for element in sorted(elements):
        if result and result[-1][1] == element:
            result[-1][1] = element + 1
        else:
            result.append([element, element + 1])
    return result


def ratio_of(got, expected):
    """The one number that `got` is of `expected`, or None."""
    if not got:
        return Fraction(0 if expected else 1)
    if set(got) != set(expected):
        return None
    factors = {got[atom] / expected[atom] for atom in got}
    return factors.pop() if len(factors) == 1 else None


class Judgement:
    """One optimizer step that all ranks completed."""

    def __init__(self, walk, step):
        self.walk, self.model, self.step = walk, walk.model, step
        self.right = reference(walk.model, walk.batch, step)
        if step in walk.clipped_steps:
            self.right = {key: clipped(form, (-1, step)) for key, form in self.right.items()}
        self.ends = walk.ends[step]
        self.ranks = range(walk.mesh.world)
        # Where an element stands in its piece: pieces do not overlap, so this is the same on every holder.
        self.place_in_piece = {
            (buffer.logical, at): local
            for held in self.model.buffers
            for buffer in held
            for local, at in enumerate(buffer.elements)
        }
        self.wrong_values = {}  # (rank, buffer index) -> local elements
        for rank, index, buffer in self.all_buffers():
            owned, values = self.at_end(rank, index)
            wrong = {e for e in owned if values[e] != self.right[(buffer.logical, buffer.elements[e])]}
            if wrong:
                self.wrong_values[(rank, index)] = wrong
        self.unowned = self.find_unowned()
        self.norm = self.norm_problems()
        self.match = not (self.wrong_values or self.unowned or self.norm)

    def all_buffers(self):
        return [(rank, index, buffer) for rank in self.ranks for index, buffer in enumerate(self.model.buffers[rank])]

    def at_end(self, rank, index):
        owned, values = self.ends[rank]
        return owned[index], values[index]

    def find_unowned(self):
        """{(rank, buffer index): local elements} that nobody of the rank's family owns."""
        family = {(rank, index): (rank, index) for rank, index, _ in self.all_buffers()}
        joins = self.walk.joined[self.step] + list(self.walk.own_callers[self.step].values())
        for members in joins:
            for member in members[1:]:
                old, new = family[member], family[members[0]]
                family = {key: new if value == old else value for key, value in family.items()}
        answered = {}
        for rank, index, buffer in self.all_buffers():
            key = self.family_key(family, rank, index, buffer)
            answered.setdefault(key, set()).update(self.at_end(rank, index)[0])
        result = {}
        for rank, index, buffer in self.all_buffers():
            missing = set(range(buffer.numel)) - answered[self.family_key(family, rank, index, buffer)]
            if missing:
                result[(rank, index)] = missing
        return result

    def family_key(self, family, rank, index, buffer):
        return family[(rank, index)], buffer.logical, buffer.box, self.walk.mesh.coordinates[rank]["pp"]

    def norm_problems(self):
        """{(rank, logical): set of texts counted}; every logical element must be counted exactly once on every rank."""
        if not self.walk.norm_called[self.step] and self.step not in self.walk.clipped_steps:
            return {}
        result = {}
        for rank in self.ranks:
            count, too_early, mean = dict.fromkeys(self.right, 0), set(), set()
            for member, index, local, value, is_mean in self.walk.counted[self.step][rank]:
                buffer = self.model.buffers[member][index]
                key = (buffer.logical, buffer.elements[local])
                count[key] += 1
                owned, values = self.at_end(member, index)
                if local not in owned or unclipped(values[local]) != unclipped(value):
                    too_early.add(key)
                if is_mean:
                    mean.add(key)
            for key, n in count.items():
                if key in mean:
                    result.setdefault((rank, key[0]), set()).add("mean_of_norms")
                elif n != 1 or key in too_early:
                    result.setdefault((rank, key[0]), set()).add(str(n))
        return result

    def replicas_agree(self):
        """{logical: bool}: all owners of each logical element hold equal values."""
        seen, result = {}, {}
        for rank, index, buffer in self.all_buffers():
            owned, values = self.at_end(rank, index)
            result.setdefault(buffer.logical, True)
            for local in owned:
                if seen.setdefault((buffer.logical, buffer.elements[local]), values[local]) != values[local]:
                    result[buffer.logical] = False
        return result

    def name_on(self, rank, logical):
        """The name that the rank's own stage gives a parameter; on a rank that does not hold it, its first name."""
        names = [buffer.name for buffer in self.model.buffers[rank] if buffer.logical == logical]
        return names[0] if names else self.model.logical_name[logical]

    def name_of_copy(self, site):
        """The first name of the copy that a parameter belongs to, by its place among the parameters."""
        model = self.model
        logical, copy = model.logical_of[site], model.parameters[site].get("copy")
        return next(parameter["name"] for place, parameter in enumerate(model.parameters)
                    if model.logical_of[place] == logical and parameter.get("copy") == copy)

    # The report.

    def coefficient(self, atom, value, buffer, element):
        logical, at, site, use, rank, micro_batch = atom[:6]
        foreign = (logical, at) != (buffer.logical, buffer.elements[element])
        parameters = self.model.parameters
        if site == "leftover":
            entry = {"leftover": use, "value": str(value)}
            if rank is not None:
                entry["of_rank"] = rank
        else:
            name = parameters[site]["name"]
            value = value / self.walk.last_by.get(atom[:6], Fraction(1))
            entry = {
                "rank": rank,
                "micro_batch": micro_batch,
                "use": name if use == "main" else f"{name}:{use}",
                "value": str(value),
            }
        if foreign:
            entry["foreign"] = True
            entry["of"] = self.model.logical_name[logical] if site == "leftover" else self.name_of_copy(site)
            entry["offset"] = self.place_in_piece[(logical, at)] - element
        if len(atom) > 6:
            entry["clips"] = [self.factor_name(*factor) for factor in atom[6]]
        return entry

    def factor_name(self, rank, number):
        if rank < 0:
            return "clip" if number == self.step else f"clip.{number}"
        return f"clip{rank}" + (f".{number}" if number else "")

    def pieces(self, rank, index, buffer):
        owned, values = self.at_end(rank, index)
        wrong = self.wrong_values.get((rank, index), set())
        result = []
        for element in sorted(owned):
            form, right = values[element], self.right[(buffer.logical, buffer.elements[element])]
            entries = [self.coefficient(atom, value, buffer, element) for atom, value in form.items()]
            entries.sort(
                key=lambda e: (
                    "leftover" in e,
                    bool(e.get("foreign")),
                    e.get("rank", -1),
                    e.get("micro_batch", -1),
                    e.get("use", ""),
                    e.get("leftover", ""),
                    e.get("of", ""),
                    e.get("offset", 0),
                    e.get("clips", []),
                )
            )
            ratio = ratio_of(form, right)
            piece = {
                "elements": [element, element + 1],
                "verdict": "mismatch" if element in wrong else "match",
                "ratio": None if ratio is None else str(ratio),
                "coefficients": entries,
                "right_unclipped": unclipped(form) == unclipped(right),
            }
            last = result[-1] if result else None
            if (
                last
                and last["elements"][1] == element
                and all(last[key] == piece[key] for key in ("verdict", "coefficients", "right_unclipped"))
            ):
                last["elements"][1] += 1
            else:
                result.append(piece)
        return result

    def parameters(self):
        agree, result = self.replicas_agree(), []
        for site, parameter in enumerate(self.model.parameters):
            entry = {
                "name": parameter["name"],
                "tied": parameter.get("tied"),
                "verdict": "match",
                "replicas_agree": agree.get(self.model.logical_of[site], True),
                "unowned": [],
                "ranks": [],
            }
            missing = set()
            for rank, index, buffer in self.all_buffers():
                if buffer.sites[0] != site:
                    continue
                wrong = (rank, index) in self.wrong_values
                entry["ranks"].append(
                    {
                        "rank": rank,
                        "owned": ranges(self.at_end(rank, index)[0]),
                        "verdict": "mismatch" if wrong else "match",
                        "pieces": self.pieces(rank, index, buffer),
                    }
                )
                if (rank, index) in self.unowned:
                    missing |= self.unowned[(rank, index)]
                    entry["ranks"][-1]["unowned"] = ranges(self.unowned[(rank, index)])
                if wrong or (rank, index) in self.unowned:
                    entry["verdict"] = "mismatch"
            entry["unowned"] = ranges(missing)
            if any(self.name_on(rank, logical) == parameter["name"] for rank, logical in self.norm):
                entry["verdict"] = "mismatch"
            result.append(entry)
        return result


def report(walk):
    """The first wrong optimizer step; before a structural failure in a later one."""
    result = {
        "lockstep": 1,
        "verdict": "match",
        "step": walk.batch.steps - 1,
        "parameters": [],
        "norm": [],
        "stuck": [],
    }
    judgement = None
    for step in range(walk.batch.steps):
        if len(walk.ends[step]) < walk.mesh.world:
            break
        judgement = Judgement(walk, step)
        if not judgement.match:
            result.update(verdict="mismatch", step=step)
            break
    if result["verdict"] == "match" and walk.outcome != "complete":
        result.update(verdict=walk.outcome, step=walk.failed_step, stuck=walk.found)
    if judgement:
        result["parameters"] = judgement.parameters()
        result["norm"] = [
            {"parameter": judgement.name_on(rank, logical), "rank": rank, "counted": counted, "expected": "1"}
            for (rank, logical), texts in sorted(judgement.norm.items())
            for counted in sorted(texts)
        ]
    return result
