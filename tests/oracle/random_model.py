# SPDX-License-Identifier: Apache-2.0
"""Random layouts, parameters and batches for random_scenario.py: small, but with every placement of the format."""

import math

NAMES = (
    "embedding.weight",
    "layers.0.weight",
    "layers.0.bias",
    "layers.1.weight",
    "norm.weight",
    "head.weight",
    "router.weight",
)
TAGS = ("norm", "bias", "embedding", "head", "router", "expert", "position")


def random_layout(rng):
    while True:
        layout = {
            "tp": rng.choice((1, 1, 1, 2, 2, 3)),
            "cp": rng.choice((1, 1, 1, 2)),
            "sp": rng.choice((1, 1, 1, 1, 2)),
            "dp": rng.choice((1, 2, 2, 2, 3, 4)),
            "pp": rng.choice((1, 1, 2, 2, 3)),
        }
        world = math.prod(layout.values())
        if world <= rng.choice((6, 8, 8, 12, 12, 16)):
            break
    experts = world // layout["pp"]
    layout["ep"] = rng.choice([n for n in (1, 1, 2, 3, 4) if experts % n == 0])
    layout["etp"] = rng.choice([n for n in (1, 1, 2) if experts // layout["ep"] % n == 0])
    if layout["dp"] in (2, 4) and rng.random() < 0.4:
        shard = rng.choice([n for n in (1, 2, 4) if layout["dp"] % n == 0])
        layout["dp_shard"], layout["dp_replicate"] = shard, layout.pop("dp") // shard
    if rng.random() < 0.25:
        layout["order"] = rng.choice(
            ("tp-cp-sp-dp-ep-pp", "dp-tp-ep-cp-sp-pp", "ep-dp-sp-cp-tp-pp", "pp-tp-cp-sp-ep-dp", "tp-cp-ep-sp-pp-dp")
        )
    if rng.random() < 0.2:
        layout["sequence_parallel"] = True
    return {axis: n for axis, n in layout.items() if n != 1 or rng.random() < 0.3}


def random_shape(rng, most=40):
    kind = rng.random()
    if kind < 0.08:
        return []
    if kind < 0.55:
        return [rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 10, 12, min(most, rng.randint(8, 40))))]
    shape = [rng.choice((1, 2, 3, 4, 5, 6)) for _ in range(rng.choice((2, 2, 2, 3)))]
    while math.prod(shape) > most:
        shape[rng.randrange(len(shape))] = 1
    return shape


def random_shard(rng, axes, shape, size):
    """Each axis on a dimension of its own or a shared one; uneven where it does not divide."""
    shard, length = {}, list(shape)
    for axis in axes:
        dim = rng.randrange(len(shape))
        if length[dim] % size[axis] or rng.random() < 0.2:
            shard[axis] = {"dim": dim, "uneven": True}
            length[dim] = 1  # whatever comes after it must be uneven as well
        else:
            shard[axis] = dim
            length[dim] //= size[axis]
    return shard


def random_parameters(rng, mesh, uses, micro_batches):
    size, parameters = mesh.size, []
    names = rng.sample(NAMES, rng.choice((1, 2, 2, 3, 3, 4)))
    alike = random_shape(rng, 16) if rng.random() < 0.3 else None  # so that other parameters can meet by mistake
    for name in sorted(names, key=NAMES.index):
        parameter = {"name": name, "shape": alike or random_shape(rng, 40 if mesh.world <= 8 else 16)}
        place(rng, mesh, parameter)
        stage = rng.choice((0, 0, size["pp"] - 1, -1, "all", rng.randrange(size["pp"])))
        if stage or rng.random() < 0.3:
            parameter["stage"] = stage
        decorate(rng, mesh, parameter, uses, micro_batches)
        parameters.append(parameter)
    if rng.random() < 0.35:
        tie(rng, mesh, parameters)
    if any("chunk" in parameter for parameter in parameters):
        mesh.layout["virtual_stages"] = 2
    if all(parameter.get("frozen") for parameter in parameters):
        parameters[0].pop("frozen")
    return parameters


def place(rng, mesh, parameter):
    size, shape = mesh.size, parameter["shape"]
    kind = rng.random()
    expert_axes = [axis for axis in ("ep", "etp") if size[axis] > 1]
    if expert_axes and kind < 0.5 and mesh.pipeline_groups_agree:
        axes = [axis for axis in expert_axes if rng.random() < 0.8]
        if axes and shape:
            parameter["shard"] = random_shard(rng, axes, shape, size)
        if size["tp"] > 1 or rng.random() < 0.8:
            parameter["dispatch"] = axes if axes and shape and rng.random() < 0.6 else ["ep"]
        parameter["tags"] = ["expert"]
    elif size["tp"] > 1 and kind < 0.75:
        if shape and rng.random() < 0.6:
            parameter["shard"] = random_shard(rng, ["tp"], shape, size)
        else:
            parameter["partial"] = ["tp"]
            parameter["tags"] = ["norm"]


def decorate(rng, mesh, parameter, uses, micro_batches):
    size = mesh.size
    if rng.random() < 0.25:
        parameter["dtype"] = rng.choice(("float32", "float64", "bfloat16", "float16"))
    if rng.random() < 0.15:
        parameter["chunk"] = rng.choice((0, 1))
    if len(uses) > 1 and rng.random() < 0.6:
        parameter["uses"] = rng.choice((uses, uses[1:], uses[:1]))
    if rng.random() < 0.12:
        parameter["micro_batches"] = sorted(rng.sample(range(micro_batches), rng.randint(0, micro_batches)))
    if rng.random() < 0.1:
        axis = rng.choice(("dp", "cp", "sp"))
        parameter["only"] = {axis: sorted(rng.sample(range(size[axis]), rng.randint(1, size[axis])))}
    if rng.random() < 0.05:
        parameter["frozen"] = True
    if rng.random() < 0.3:
        parameter["tags"] = sorted({*parameter.get("tags", []), rng.choice(TAGS)})


def tie(rng, mesh, parameters):
    """A second site of a parameter, as an output layer is of the embedding: on another stage or on the same rank, in
    one buffer there or, as after a lost tie, in two."""
    first = rng.choice(parameters)
    if first.get("frozen"):
        return
    second = {key: first[key] for key in ("shape", "shard", "partial", "dispatch", "dtype", "chunk") if key in first}
    second["name"] = "output_layer.weight"
    first["tied"] = second["tied"] = "tied"
    if first.get("stage") == "all":
        first.pop("stage")
    second["stage"] = rng.choice((-1, -1, first.get("stage", 0)))
    if rng.random() < 0.15:  # a lost tie
        second["copy"] = "head"
        if rng.random() < 0.3:
            first["copy"] = "embedding"
    parameters.insert(rng.choice((len(parameters), parameters.index(first) + 1)), second)


def random_tokens(rng, mesh, micro_batches, steps):
    kind = rng.random()
    if kind < 0.4:
        return "uneven"
    if kind < 0.5:
        return "even"
    size = mesh.size
    entries = micro_batches * (steps if rng.random() < 0.5 else 1)
    zero = rng.choice((0, 0, 1, 2))
    tokens = [
        [
            [[rng.choice((1, 2, 3, 4, 6) + (0,) * zero) for _ in range(size["sp"])] for _ in range(size["cp"])]
            for _ in range(size["dp"])
        ]
        for _ in range(entries)
    ]
    for first in range(0, entries, micro_batches):
        tokens[first][0][0][0] = tokens[first][0][0][0] or 1  # not all tokens of a step may be 0
    return tokens


def random_loss(rng):
    losses = ("token_mean", "token_mean", "micro_batch_mean", "local_mean", "sum")
    if rng.random() < 0.15:
        return {
            "weight": rng.choice(
                (
                    "1/(tokens*micro_batches)",
                    "(micro_batch+1)/(dp*sum(tokens, cp, sp))",
                    "1/7",
                    2,
                    "(rank.dp+1)/sum(tokens, dp, micro_batch)",
                )
            )
        }
    return rng.choice(losses)


def random_batch(rng, mesh):
    steps, micro_batches = rng.choice((1, 1, 1, 2)), rng.choice((1, 2, 2, 3))
    batch, uses = {"micro_batches": micro_batches}, ["main"]
    if steps > 1:
        batch["steps"] = steps
    if rng.random() < 0.3:
        uses.append("aux")
    if rng.random() < 0.7:
        tokens = random_tokens(rng, mesh, micro_batches, steps)
        if len(uses) > 1 and rng.random() < 0.4:
            tokens = {"main": tokens, "aux": random_tokens(rng, mesh, micro_batches, steps)}
        batch["tokens"] = tokens
    elif steps > 1 and rng.random() < 0.5:
        batch["micro_batches"] = [micro_batches, micro_batches % 3 + 1]
    if rng.random() < 0.7:
        loss = random_loss(rng)
        batch["loss"] = {"main": loss, "aux": random_loss(rng)} if len(uses) > 1 and rng.random() < 0.5 else loss
    if len(uses) > 1 and rng.random() < 0.4:
        batch["weight"] = {rng.choice(uses): rng.choice(("1/100", 2, "3/2"))}
    return batch, uses
