# SPDX-License-Identifier: Apache-2.0
"""Files as a stranger could write them: scenarios, frameworks and models of this repository, with values of other files in place of their own, without some
of their keys, with numbers that are too large and words that are none. Each is told by its seed.
"""

import copy
import json
import random
import re
from pathlib import Path

WORD_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
ODD = [
    0, -1, 1, 2, 3, 5, 7, 64, 4096, 16384, 2**20, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**40, 0.5, -0.0, 1e308, 5e-324, None, True, False, "", [], {},
    "any", "even", "uneven", "last", "mean", "avg", "sum", "1/3", "1/0", "0", "-1", "dp", "rank.dp", "1/(dp*tp)", "rank.dp == 0", "micro_batch == last",
    "micro_batch % 2 == 0 and rank.pp < pp - 1", "dp*" * 40 + "dp", "(" * 60 + "1" + ")" * 60, "2^62*2^62", "*", "**", "[", "{layer}", "\\", "\u202e", "\0", "x" * 70000,
    "../..", "/etc/passwd", "/dev/zero", "./", "megatron", "deepspeed", "fsdp2", "gpt2", "llama3-8b", [0], [1, 1], [2**40], [["dp"]], ["dp", "dp"], {"dp": 2}, {"": 1},
]


def read(path):
    """A JSON file with comments and commas at the end of lists."""
    text = WORD_OR_COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else " ", path.read_text(encoding="utf-8"))
    return json.loads(re.sub(r",(\s*[\]}])", r"\1", text))


def places(value, path=()):
    """Where something stands: (keys from the top), the top left out."""
    for key, inside in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inside, (*path, key))


def at(document, path):
    for key in path:
        document = document[key]
    return document


def deep(draw):
    value = draw.choice(ODD)
    for _ in range(draw.randint(2, 300)):
        value = [value] if draw.random() < 0.5 else {draw.choice(["steps", "layout", "all", "x"]): value}
    return value


class Corpus:
    """What is spliced: every file below `folder`, and its values by key."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.names = sorted(str(path.relative_to(folder)) for kind in ("*.json", "*.jsonc") for path in self.folder.rglob(kind))
        self.documents = {name: read(self.folder / name) for name in self.names}
        self.values, self.alike = {}, {}
        for document in self.documents.values():
            for path in places(document):
                value = at(document, path)
                self.alike.setdefault(self.kind(document, path, value), []).append(value)
                if isinstance(path[-1], str):
                    self.values.setdefault(path[-1], []).append(value)
        self.keys = sorted(self.values)

    @staticmethod
    def kind(document, path, value):
        """Values of one kind are what can stand for each other in a valid file: of an op the same key, of a list the same list."""
        inside = at(document, path[:-1])
        named = [key for key in path if isinstance(key, str)][-2:]
        return (*named, isinstance(path[-1], int), type(value).__name__, inside.get("op") if isinstance(inside, dict) else None)

    def spliced(self, seed):
        """(The name that the file had, its text)."""
        draw = random.Random(seed)
        name = draw.choice(self.names)
        document = copy.deepcopy(self.documents[name])
        gentle = draw.random() < 0.7  # most files of the other kind are refused by the first reader
        for _ in range(draw.choice([1, 1, 1, 2, 2, 3, 5])):
            (self.exchange if gentle else self.change)(document, draw)
        text = json.dumps(document, indent=1, ensure_ascii=draw.random() < 0.5)
        if draw.random() < 0.02:  # a file that is cut off
            text = text[: draw.randrange(len(text) + 1)]
        return name, text

    def exchange(self, document, draw):
        """A value for another one of its kind; or a step, a parameter or an edit less, twice, or elsewhere in its list."""
        everywhere = list(places(document))
        if not everywhere:
            return
        path = draw.choice(everywhere)
        inside, key = at(document, path[:-1]), path[-1]
        if isinstance(inside, list) and draw.random() < 0.5:
            kind = draw.choice(["drop", "twice", "shuffled"])
            if kind == "shuffled":
                draw.shuffle(inside)
            elif kind == "twice":
                inside.insert(draw.randint(0, len(inside)), copy.deepcopy(inside[key]))
            else:
                del inside[key]
            return
        value = inside[key]
        if isinstance(value, int) and not isinstance(value, bool) and draw.random() < 0.4:
            inside[key] = draw.choice([1, 2, 3, 4, 5, 6, 8, 16, 31, 64, 1024, value + 1, value * 2, max(1, value // 2)])
        else:
            inside[key] = copy.deepcopy(draw.choice(self.alike[self.kind(document, path, value)] if self.kind(document, path, value) in self.alike else [value]))

    def change(self, document, draw):
        everywhere = list(places(document))
        if not everywhere:
            return
        path = draw.choice(everywhere)
        inside, key = at(document, path[:-1]), path[-1]
        kind = draw.choice(["other", "other", "other", "any", "odd", "odd", "drop", "drop", "rename", "twice", "shuffled", "more", "deep"])
        if kind == "other" and isinstance(key, str):
            inside[key] = copy.deepcopy(draw.choice(self.values.get(key, ODD)))
        elif kind in ("other", "any"):
            inside[key] = copy.deepcopy(draw.choice(self.values[draw.choice(self.keys)]))
        elif kind == "odd":
            inside[key] = draw.choice(ODD)
        elif kind == "deep":
            inside[key] = deep(draw)
        elif kind == "drop":
            del inside[key]
        elif kind == "rename" and isinstance(inside, dict):
            inside[draw.choice(self.keys)] = inside.pop(key)
        elif isinstance(inside, list):
            if kind == "shuffled":
                draw.shuffle(inside)
            else:
                inside.insert(draw.randint(0, len(inside)), copy.deepcopy(inside[key]))
        else:  # a key that files of this kind may have
            other = draw.choice(self.keys)
            inside[other] = copy.deepcopy(draw.choice(self.values[other]))
