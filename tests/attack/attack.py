# SPDX-License-Identifier: Apache-2.0
"""What proofs say of sizes, against replays of every rank at these sizes.

A *finding* is a size that a proof calls right and a replay does not (unsound), one that it calls wrong and that matches
(a wrong sentence), one that it calls refused and that is allowed, or a file that the program has no answer to. A size that is refused
although nothing in the answer says that such sizes may be is counted: lists of these are not complete (docs/proof.md).
"""

import collections
import copy
import json
import random
import re
from dataclasses import dataclass, field

import program
from statement import NotASentence, Proof

LARGEST_WORLD = 4096
ELSEWHERE = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 24, 31, 32, 33, 48, 63, 64)
FAR = (65, 67, 97, 100, 127, 128, 129, 200, 251, 256, 400, 512, 1000, 1021, 1024, 2048, 4096)
LARGEST_TERMS = (*[128] * 16, 512, 512, 512, LARGEST_WORLD)  # most layouts are small, as they are among users
FAILURES = ("mismatch", "race", "deadlock", "invalid_collective", "error")


@dataclass
class Finding:
    kind: str  # unsound, sentence, refused, broken, engine, any
    file: str
    size: dict
    said: str
    found: str

    def text(self):
        at = ", ".join(f"{name} {number}" for name, number in self.size.items())
        return f"{self.kind}: {self.file}: said {self.said!r}, found {self.found} at {at or 'its own sizes'}"


@dataclass
class Counts:
    schedules: int = 0
    invalid: int = 0
    verdicts: collections.Counter = field(default_factory=collections.Counter)
    points: collections.Counter = field(default_factory=collections.Counter)
    why: collections.Counter = field(default_factory=collections.Counter)
    findings: list = field(default_factory=list)
    silent: list = field(default_factory=list)

    def add(self, other):
        self.schedules += other.schedules
        self.invalid += other.invalid
        for name in ("verdicts", "points", "why"):
            getattr(self, name).update(getattr(other, name))
        self.findings += other.findings
        self.silent += other.silent

    def number(self, *kinds):
        return sum(finding.kind in kinds for finding in self.findings)

    def decided(self):
        """The share of schedules of which something is said; with sizes that were not followed counts as one, too."""
        return (self.verdicts["right"] + self.verdicts["wrong"]) / max(1, sum(self.verdicts.values()))

    def text(self):
        replayed = sum(self.points[verdict] for verdict in ("match", *FAILURES))
        return (f"{self.schedules} schedules ({self.invalid} not valid), {self.verdicts['right']} right, {self.verdicts['wrong']} wrong, "
                f"{self.verdicts['undecided']} not decided: {100 * self.decided():.1f} % decided; {replayed} points replayed "
                f"({self.points['match']} match, {self.points['said']} said by a sentence), {self.points['refused']} refused ({len(self.silent)} of them silently); "
                f"{self.number('unsound', 'any')} unsound, {self.number('sentence', 'refused')} wrong sentences, "
                f"{self.number('broken', 'engine')} other findings")  # fmt: skip


def at(document, size):
    """The scenario with these sizes in the place of its own."""
    document = copy.deepcopy(document)
    layout, batch = document.setdefault("layout", {}), document.setdefault("batch", {})
    for name, number in size.items():
        if name == "micro_batches":
            batch[name] = number
        else:
            layout[name] = number
    if "dp_shard" in size:
        layout.pop("dp", None)
    if "edp" in size or "ep" in size:  # dp is ep * edp, and etp is tp
        layout["dp"] = size.get("ep", layout.get("ep", 1)) * size.get("edp", 1)
        layout.pop("edp", None)
        if "dp_shard" in layout and "dp_shard" not in size:  # what the file leaves out stays left out
            layout["dp_shard"] = layout["dp"] // layout.get("dp_replicate", 1)
        if "tp" in size and "etp" in layout:
            layout["etp"] = size["tp"]
    return document


def world(document):
    layout = document["layout"]
    ranks = layout.get("dp", 1) if "dp_shard" not in layout and "dp_replicate" not in layout else layout.get("dp_shard", 1) * layout.get("dp_replicate", 1)
    for axis in ("tp", "cp", "sp", "pp"):
        ranks *= layout.get(axis, 1)
    return ranks


def terms(document):
    """What a replay costs: ranks times contributions."""
    batch = document.get("batch", {})
    count = batch.get("micro_batches", 2)
    return world(document) * (max(count) if isinstance(count, list) else count) * batch.get("steps", 1)


def numbers_in(texts):
    """Whole numbers that the files name, with their neighbours: where something may change."""
    found = {int(number) for text in texts for number in re.findall(r"(?<![\w.])\d{1,4}(?![\w.])", text)}
    return sorted({near for number in found for near in (number - 1, number, number + 1, 2 * number) if 1 <= near <= LARGEST_WORLD})


def points(rng, open_names, document, texts, count):
    """Sizes to replay: along each axis to 64 and a few beyond, and some where several are large."""
    named = numbers_in(texts)
    near = [number for number in named if number <= 64] or [2]
    found = []

    def some(far):
        choices = (near, ELSEWHERE, range(1, 65), [number for number in named if number > 64] or FAR, FAR) if far else (near, ELSEWHERE[:10], (1, 2, 3, 4))
        return rng.choice(rng.choice(choices))

    for number in range(8 * count):
        size = {name: rng.choice((1, 1, 2, 2, 3, 4, 5)) for name in open_names}
        if open_names:
            size[open_names[number % len(open_names)]] = some(far=number % 3 != 2)
            if rng.random() < 0.25:
                size[rng.choice(open_names)] = some(far=False)
        if "micro_batches" in size and rng.random() < 0.7:
            size["micro_batches"] = rng.choice((1, 2, 2, 3, 4, 8))
        written = at(document, size)
        given = {**written["layout"], "micro_batches": written.get("batch", {}).get("micro_batches")}
        if "any" in given.values() or terms(written) > rng.choice(LARGEST_TERMS):
            continue
        if size not in found:
            found.append(size)
        if len(found) >= count or not open_names:
            break
    return found


def other_tokens(rng, document):
    """The scenario with other numbers of tokens; None where they are many."""
    if world(document) > 64 or isinstance(document.get("batch", {}).get("tokens"), (list, dict)):
        return None
    layout, batch = document["layout"], document["batch"]
    dp = layout.get("dp") or layout.get("dp_shard", 1) * layout.get("dp_replicate", 1)
    count = batch.get("micro_batches", 2)
    if not isinstance(count, int) or count * batch.get("steps", 1) > 8:
        return None
    number = lambda: rng.choice((1, 2, 3, 5, 7, 11, 4096))  # noqa: E731
    tokens = [[[[number() for _ in range(layout.get("sp", 1))] for _ in range(layout.get("cp", 1))] for _ in range(dp)]
              for _ in range(count * batch.get("steps", 1))]  # fmt: skip
    return {**document, "batch": {**batch, "tokens": tokens}}


def asks_for_any(document):
    return "any" in (*document.get("layout", {}).values(), document.get("batch", {}).get("micro_batches"))


class Attack:
    """One batch of schedules: {scenario file: {file: document}}."""

    def __init__(self, folder, seed, count, engines=("symbolic",), opened=""):
        self.opened = opened
        self.folder, self.rng, self.count, self.engines = folder, random.Random(f"points {seed}"), count, engines
        self.counts, self.broken = Counts(), {}
        self.sizes = []  # that are looked at whatever is drawn

    def write(self, name, document):
        (self.folder / name).write_text(json.dumps(document))

    def run(self, schedules):
        for files in schedules.values():
            for name, document in files.items():
                self.write(name, document)
        answers = program.prove(self.folder, list(schedules), self.broken, self.opened)
        self.counts.schedules += len(schedules)
        self.counts.invalid += len(schedules) - len(answers)
        proofs = {name: Proof(answer) for name, answer in answers.items()}
        asked = {}  # file: (name, size, document)
        for name, proof in proofs.items():
            self.counts.verdicts[proof.verdict] += 1
            for one in proof.answer["undecided"]:
                self.counts.why[re.sub(r'"[^"]*"|\d+', "#", one["why"])] += 1
            document = schedules[name][name]
            texts = [json.dumps(one) for one in schedules[name].values()]
            sizes = points(self.rng, proof.open, document, texts, self.count)
            sizes += [size for size in self.sizes if set(size) == set(proof.open) and size not in sizes]
            example = proof.answer["counterexample"]
            if example and {"sizes", "scenario"} <= set(example):
                sizes.insert(0, {axis: number for axis, number in example["sizes"].items() if axis in proof.open})
            for number, size in enumerate(sizes):
                file = f"{name.removesuffix('.json')}@{number}.json"
                written = at(document, size)
                self.write(file, written)
                asked[file] = (name, size, written)
        verdicts = program.check(self.folder, list(asked), "symbolic", self.broken)
        for file, verdict in verdicts.items():
            name, size, _ = asked[file]
            self.counts.points[verdict] += 1
            self.compare(proofs[name], name, size, verdict)
        self.compare_engines(asked, verdicts)
        self.compare_tokens(asked, verdicts, proofs)
        self.compare_any({name: files[name] for name, files in schedules.items()}, proofs)
        for file, said in self.broken.items():
            name = asked[file][0] if file in asked else file
            self.counts.findings.append(Finding("broken", name, asked[file][1] if file in asked else {}, "", said))
        return self.counts

    def finding(self, kind, name, size, said, found):
        self.counts.findings.append(Finding(kind, name, size, said, found))

    def compare(self, proof, name, size, verdict):
        """One size: what the proof says of it, and what the replay found."""
        if verdict == "limit":
            return
        statement = proof.answer["statement"]
        try:
            said, refused = proof.says(size), proof.is_refused(size)
        except NotASentence as error:
            return self.finding("sentence", name, size, statement, f"not a sentence: {error}")
        if refused and verdict != "refused":
            return self.finding("refused", name, size, "refused", verdict)
        if verdict == "refused":
            if said != "open" and not proof.may_be_refused(size):
                self.counts.silent.append(Finding("silent", name, size, statement, "refused"))
            return
        self.counts.points["said"] += said != "open"
        if said == "right" and verdict in FAILURES:
            self.finding("unsound", name, size, statement, verdict)
        elif said == "wrong" and verdict == "match":
            self.finding("wrong, but for tokens", name, size, statement, verdict)

    def compare_tokens(self, asked, verdicts, proofs):
        """A sentence holds for every number of tokens: what it calls wrong may be right for some of them, and nothing
        that it calls right is wrong for any."""
        suspects = [one for one in self.counts.findings if one.kind == "wrong, but for tokens"]
        self.counts.findings = [one for one in self.counts.findings if one.kind != "wrong, but for tokens"]
        tried = {}
        for number, suspect in enumerate(suspects):
            document = next(written for name, size, written in asked.values() if name == suspect.file and size == suspect.size)
            if document["batch"].get("tokens", "uneven") == "even":
                suspect.kind = "sentence"
                self.counts.findings.append(suspect)
                continue
            others = [other for other in (other_tokens(self.rng, document) for _ in range(4)) if other]
            if not others:
                continue
            for take, other in enumerate(others):
                file = f"{suspect.file.removesuffix('.json')}@tokens{number}.{take}.json"
                self.write(file, other)
                tried[file] = suspect
        found = program.check(self.folder, list(tried), "symbolic", self.broken)
        for suspect in {id(one): one for one in tried.values()}.values():
            if all(found.get(file) == "match" for file, one in tried.items() if one is suspect):
                suspect.kind = "sentence"
                self.counts.findings.append(suspect)
        right = {}
        for file, (name, size, document) in asked.items():
            if verdicts.get(file) != "match" or document["batch"].get("tokens", "uneven") != "uneven" or self.rng.random() > 0.3:
                continue
            if proofs[name].says(size) == "right" and (other := other_tokens(self.rng, document)):
                self.write(f"{file}.tokens.json", other)
                right[f"{file}.tokens.json"] = (name, size)
        for file, verdict in program.check(self.folder, list(right), "symbolic", self.broken).items():
            self.counts.points["tokens"] += 1
            if verdict in FAILURES:
                self.finding("unsound", *right[file], "right for every number of tokens", verdict)

    def compare_engines(self, asked, verdicts):
        """Single layouts, decided by classes of ranks and as `check` decides by itself."""
        for engine in self.engines:
            if engine == "symbolic":
                continue
            some = [file for file, verdict in verdicts.items() if verdict != "limit"]
            for file, verdict in program.check(self.folder, some, engine, self.broken).items():
                name, size, _ = asked[file]
                self.counts.points[f"by {engine}"] += verdict not in ("limit", "refused")
                if verdict != verdicts[file] and verdict != "limit" and not (verdict in FAILURES and verdicts[file] in ("race", "error")):
                    self.finding("engine", name, size, f"{engine} {verdict}", f"symbolic {verdicts[file]}")

    def compare_any(self, documents, proofs):
        """`check` of a file with "any" in it says what its proof says."""
        of_proof = {"right": "match", "wrong": "mismatch"}
        some = [name for name, document in documents.items() if name in proofs and asks_for_any(document)]
        for name, verdict in program.check(self.folder, some, "symbolic", self.broken).items():
            wanted = of_proof.get(proofs[name].verdict)
            if verdict in ("match", "mismatch") and verdict != wanted:
                self.finding("any", name, {}, f"check {verdict}", f"prove {proofs[name].verdict}")
