# SPDX-License-Identifier: Apache-2.0
"""What a framework file leaves open, as factors with values, and a choice of them as a scenario.

Options, their values and the rules are read from the framework file, as the program prints it: a framework that is added
there joins by itself. A *choice* is {factor: value}; `layout` is one factor, whose value is {axis: size}.
"""

import itertools
import json
import re

LARGEST_WORLD = 64
AXES = ("tp", "cp", "sp", "dp_shard", "dp_replicate", "pp")
# Numbers that an option without a list of allowed values is tried with, beside its default. "data" is the number of ranks
# with different tokens, at which several frameworks take another way.
NUMBERS = (0, 1, 2, 16, "data")
MODELS = {
    "gpt2": {"preset": "gpt", "tied_embeddings": True},
    "untied": {"preset": "gpt", "tied_embeddings": False},
    "llama": {"preset": "llama", "tied_embeddings": False},
    "llama_tied": {"preset": "llama", "tied_embeddings": True},
    "moe": {"preset": "moe", "tied_embeddings": False},
}
NOT_GIVEN = None
# What the program itself refuses, whatever the framework, and the factors on which it depends: every number of an option
# for a weight of 0, the model for experts in a rank order that they do not fit into.
REFUSED_BY_THE_PROGRAM = [
    (re.compile('"order" does not name .*'), set()),
    (re.compile("the parameter .* uses the expert mesh, whose pipeline groups are not those of the dense mesh.*"), {"model"}),
    (re.compile('.*"backward.*" (must not be 0|is 0 on rank).*'), {"numbers"}),
]


def strip_comments(text):
    """JSON out of JSON with comments and trailing commas."""
    token = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
    return re.sub(r",(\s*[}\]])", r"\1", token.sub(lambda found: found.group(1) or "", text))


def product(values):
    result = 1
    for value in values:
        result *= value
    return result


def layouts(allowed):
    """Every layout up to 64 ranks whose axes are among the allowed ones: {axis: size}, axes of size 1 left out."""
    axes = [axis for axis in AXES if axis in allowed]

    def sizes(left, ranks):
        if not left:
            yield ()
            return
        for size in range(1, LARGEST_WORLD // ranks + 1):
            for rest in sizes(left[1:], ranks * size):
                yield (size, *rest)

    for found in sizes(axes, 1):
        dense = {axis: size for axis, size in zip(axes, found) if size > 1}
        yield dense
        if "ep" not in allowed:
            continue
        tp, stage = dense.get("tp", 1), product(size for axis, size in dense.items() if axis != "pp")
        for etp in sorted({1, tp}):
            for ep in range(1, stage // etp + 1):
                if stage % (etp * ep) == 0 and (ep > 1 or etp != tp):
                    yield {**dense, "ep": ep, "etp": etp}


def size_class(size):
    """Sizes of an axis that count as one value where pairs are counted."""
    return min(size, 5)


class Framework:
    """A framework's factors and rules, from what the program prints of it."""

    def __init__(self, name, show, known):
        self.name = name
        self.known = known
        content = json.loads(strip_comments(show(f"framework:{name}")))
        self.options = content["options"]
        self.lets = content.get("let", {})
        self.rules = [(rule["refuse"], template(rule["because"])) for rule in content.get("rules", [])]
        self.model_rules, self.sizes = [], set()
        for preset in ("gpt", "llama", "moe"):
            model = json.loads(strip_comments(show(f"model:{preset}")))
            self.sizes |= set(model["sizes"])
            self.model_rules += [(rule["refuse"], template(rule["because"])) for rule in model.get("rules", [])]
        self.factors = {
            # Experts join where the framework turns out to have the axis ep.
            "model": known.get("models", [name for name in MODELS if name != "moe"]),
            "sequence_parallel": [NOT_GIVEN, True],
            "virtual_stages": [1, 2],
            "micro_batches": [1, 2, 3],
            "tokens": ["uneven", "even"],
            **{name: self.values_of(name, option) for name, option in self.options.items()},
        }

    def values_of(self, name, option):
        if name in self.known.get("values", {}):
            return self.known["values"][name]
        if option["type"] == "boolean":
            return [False, True]
        if "allowed" in option:
            return list(option["allowed"])
        if option["type"] in ("integer", "number"):
            numbers = (1, 2) if name in self.sizes else NUMBERS
            return list(dict.fromkeys([option["default"], *numbers]))
        return [option["default"]]

    def defaults(self):
        return {
            "model": self.factors["model"][0], "sequence_parallel": NOT_GIVEN, "virtual_stages": 1, "micro_batches": 2, "tokens": "uneven",
            **{name: option["default"] for name, option in self.options.items()},
        }

    def refused_by(self, message):
        """The factors on which a refusal depends; None if the message is no rule's."""
        for condition, pattern in self.rules + self.model_rules:
            if pattern.fullmatch(message):
                return self.mentioned(condition)
        for pattern, factors in REFUSED_BY_THE_PROGRAM:
            if pattern.fullmatch(message):
                numbers = {name for name, option in self.options.items() if option["type"] in ("integer", "number")}
                return numbers if factors == {"numbers"} else factors
        return None

    def mentioned(self, condition):
        """The factors on which a condition depends, through `let` too."""
        seen, left = set(), [condition]
        while left:
            for word in re.findall(r"[A-Za-z_]\w*", left.pop()):
                if word not in seen:
                    seen.add(word)
                    left += [json.dumps(self.lets[word])] if word in self.lets else []
        found = {word for word in seen if word in self.factors}
        model = {"experts", "linear_bias", "layers", "heads", "ep"} & seen
        return found | ({"model"} if model else set())


def template(sentence):
    """A rule's sentence as a pattern: what stands in braces is replaced by a value."""
    return re.compile("".join(".*" if part.startswith("{") else re.escape(part)
                              for part in re.split(r"(\{[^}]*\})", sentence)))


def named(choice):
    """Every name that a condition may use, with its value: factors, axes, and what follows from them."""
    layout = choice["layout"]
    names = {axis: layout.get(axis, 1) for axis in (*AXES, "ep")}
    names["dp"] = names["dp_shard"] * names["dp_replicate"]
    names["etp"] = layout.get("etp", names["tp"])
    names["data"] = names["dp"] * names["cp"] * names["sp"]
    for factor, value in choice.items():
        if factor != "layout":
            names[factor] = names["data"] if value == "data" else value
    names["sequence_parallel"] = bool(choice["sequence_parallel"])
    names["tied"] = MODELS[choice["model"]]["tied_embeddings"]
    names["experts"] = choice["model"] == "moe"
    names["positions"] = MODELS[choice["model"]]["preset"] == "gpt"
    names["biases"] = names["positions"]
    return names


def scenario(framework, choice, model_keys):
    """The choice as a scenario. `model_keys` are sizes of the model that follow from it."""
    names = named(choice)
    tp, etp, blocks = names["tp"], names["etp"], names["pp"] * choice["virtual_stages"]
    model = {
        **MODELS[choice["model"]], "layers": blocks, "hidden": tp if names.get("mtp_num_layers") else 6, "heads": tp, "head_dim": 2, "ffn": 2 * max(tp, etp),
        "vocab": 5 * tp,
        "query_groups": tp,
    }
    if names["positions"]:
        model["positions"] = 5
    if names["experts"]:
        model |= {"experts": names["ep"], "moe_ffn": 2 * etp}
    layout = dict(choice["layout"])
    if choice["virtual_stages"] > 1:
        layout["virtual_stages"] = choice["virtual_stages"]
    if choice["sequence_parallel"] is not NOT_GIVEN:
        layout["sequence_parallel"] = choice["sequence_parallel"]
    options = {}
    for name, option in framework.options.items():
        if names[name] != option["default"]:
            options[name] = names[name]
        # An option that the model has as a size too is said to both.
        if name in framework.sizes:
            model[name] = names[name]
    return {
        "lockstep": 1,
        "layout": layout,
        "model": {**model, **model_keys},
        "batch": {"micro_batches": choice["micro_batches"], "tokens": choice["tokens"]},
        "schedule": {"framework": framework.name, "options": options},
    }


def pairs(choice, factors):
    """Every pair of values in a choice; of the layout, classes of sizes."""
    values = [(name, choice[name]) for name in factors]
    values += [(axis, size_class(size)) for axis, size in choice["layout"].items()]
    return itertools.combinations(values, 2)
