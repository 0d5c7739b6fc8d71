# SPDX-License-Identifier: Apache-2.0
"""Scenarios of the built-in frameworks, with options drawn as tests/sweep does and a model that many sizes divide.

They are what a user of the framework asks about, so that of them nearly all have to be decided.
"""

import functools
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "sweep"))

import settings  # noqa: E402
import sweep  # noqa: E402

SIZES = {"layers": 4, "hidden": 24, "heads": 24, "head_dim": 2, "ffn": 48, "vocab": 480, "query_groups": 24}
AXES = {"tp": (2, 4, 8), "cp": (2, 4), "sp": (2, 8), "dp": (2, 8, 16), "pp": (2, 4)}
NUMBERS = (0, 1, 2, 4, 16, 64)


@functools.cache
def frameworks():
    return {name: settings.Framework(name, sweep.show, sweep.known().get(name, {})) for name in sweep.frameworks()}


def files(seed):
    """{name: document}: a few options that are not the default, on a layout of the framework's own axes."""
    rng = random.Random(f"own files {seed}")
    every = frameworks()
    name = sorted(every)[seed % len(every)]
    framework = every[name]
    model = rng.choice(framework.factors["model"])
    sizes = {**settings.MODELS[model], **SIZES}
    if sizes["preset"] == "gpt":
        sizes["positions"] = 5
    layout = {axis: rng.choice(some) for axis, some in AXES.items() if axis == "dp" or rng.random() < 0.2}
    options, batch = {}, {"micro_batches": rng.choice((1, 2, 4)), "tokens": rng.choice(("even", "uneven"))}
    for option in rng.sample(sorted(framework.options), min(len(framework.options), rng.choice((0, 1, 2, 3)))):
        values = [value for value in framework.values_of(option, framework.options[option]) if value != "data"]
        if framework.options[option]["type"] in ("integer", "number") and "allowed" not in framework.options[option]:
            values += NUMBERS
        options[option] = rng.choice(values)
        if option in framework.sizes:
            sizes[option] = options[option]
    document = {"lockstep": 1, "layout": layout, "model": sizes, "batch": batch, "schedule": {"framework": name, "options": options}}
    return {f"own{seed}.json": document}
