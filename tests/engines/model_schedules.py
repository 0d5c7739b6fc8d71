# SPDX-License-Identifier: Apache-2.0
"""Random schedules of real models: a built-in framework with random options on a small preset, and random edits of its
steps. What the framework or the preset refuses is drawn all the same; the program says so."""

import json
import re
import subprocess
from pathlib import Path

SIZES = {
    "gpt2": {"preset": "gpt2", "layers": 2, "hidden": 16, "heads": 4, "vocab": 32, "positions": 64},
    "untied": {"preset": "gpt2", "layers": 2, "hidden": 16, "heads": 4, "vocab": 32, "positions": 64, "tied_embeddings": False},
    "llama": {"preset": "llama", "layers": 2, "hidden": 16, "heads": 4, "query_groups": 2, "ffn": 24, "vocab": 32},
    "qk_norm": {"preset": "llama", "layers": 2, "hidden": 16, "heads": 4, "query_groups": 2, "ffn": 24, "vocab": 32,
                "qk_layernorm": True},
    "ring": {"preset": "llama", "layers": 2, "hidden": 16, "heads": 4, "query_groups": 4, "ffn": 24, "vocab": 32,
             "cp_comm_type": "p2p"},
    "all_to_all": {"preset": "gpt2", "layers": 2, "hidden": 16, "heads": 4, "vocab": 32, "positions": 64, "cp_comm_type": "a2a"},
    "dropping": {"preset": "moe", "layers": 2, "hidden": 16, "heads": 4, "query_groups": 2, "ffn": 24, "moe_ffn": 8, "experts": 4,
                 "vocab": 32, "moe_expert_capacity_factor": 1, "moe_router_topk": 3, "shared_expert_ffn": 8},
    "moe": {"preset": "moe", "layers": 2, "hidden": 16, "heads": 4, "query_groups": 2, "ffn": 24, "moe_ffn": 8, "experts": 4,
            "vocab": 32},
}
LAYOUTS = [
    {"dp": 2}, {"dp": 2}, {"dp": 3}, {"dp": 4}, {"tp": 2}, {"tp": 2, "sequence_parallel": True},
    {"tp": 2, "dp": 2, "sequence_parallel": True}, {"cp": 2}, {"cp": 2, "dp": 2}, {"pp": 2}, {"pp": 2, "dp": 2},
    {"sp": 2}, {"sp": 2, "dp": 2}, {"dp_shard": 2, "dp_replicate": 2}, {"tp": 2, "pp": 2, "dp": 2, "sequence_parallel": True},
]
EXPERT_LAYOUTS = [{"dp": 2, "ep": 2}, {"dp": 4, "ep": 2}, {"cp": 2, "dp": 2, "ep": 2}, {"pp": 2, "dp": 2, "ep": 2},
                  {"tp": 2, "dp": 2, "ep": 2, "etp": 1, "sequence_parallel": True}]
AXES = ["dp", "dp", "tp", "cp", "pp", "sp", "edp", ["dp", "cp"]]
FACTORS = ["2", "1/2", "1/3", "-3/5", "1/dp", "rank.dp + 1", "7/5"]
TOKEN = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


def without_comments(text):
    return json.loads(re.sub(r",(\s*[}\]])", r"\1", TOKEN.sub(lambda found: found.group(1) or "", text)))


class Maker:
    """Scenarios of one program, from one source of random numbers."""

    def __init__(self, program, rng):
        self.program, self.rng, self.frameworks = program, rng, {}

    def run(self, *arguments):
        return subprocess.run([self.program, *arguments], capture_output=True, text=True, check=False)

    def framework(self):
        if not self.frameworks:
            for path in sorted((Path(__file__).resolve().parents[2] / "frameworks").glob("*.jsonc")):
                shown = without_comments(self.run("show", f"framework:{path.stem}").stdout)
                self.frameworks[path.stem] = shown.get("options", {})
        return self.rng.choice(sorted(self.frameworks))

    def options(self, framework):
        """Each with one chance in four another value than its default, where there are two to choose from."""
        chosen = {}
        for name, option in self.frameworks[framework].items():
            values = option.get("allowed", [True, False] if option.get("type") == "boolean" else [])
            if values and self.rng.random() < 0.25:
                chosen[name] = self.rng.choice(values)
        return chosen

    def base(self):
        rng = self.rng
        model = rng.choice(sorted(SIZES))
        framework = self.framework()
        batch = {"micro_batches": rng.choice([1, 2, 2, 3])}
        if rng.random() < 0.3:
            batch["tokens"] = "even"
        if rng.random() < 0.2:
            batch["loss"] = rng.choice(["token_mean", "micro_batch_mean", "local_mean", "sum"])
        if rng.random() < 0.2:
            batch["steps"] = 2
        return {"lockstep": 1, "layout": dict(rng.choice(EXPERT_LAYOUTS if SIZES[model]["preset"] == "moe" else LAYOUTS)),
                "model": dict(SIZES[model]), "batch": batch,
                "schedule": {"framework": framework, "options": self.options(framework)}}

    def edits(self, steps):
        """One or two changes of steps that are there; `steps` are names with their op."""
        rng, found = self.rng, []
        for _ in range(rng.choice([1, 1, 1, 2])):
            name, op = rng.choice(steps)
            other = rng.choice(steps)[0]
            reduction = op in ("all_reduce", "reduce_scatter")
            kinds = ["drop", "duplicate", "move", "insert"] + (["reduce", "over", "when"] if reduction else [])
            kinds += ["by"] if op in ("scale", "backward") else []
            kind = rng.choice(kinds)
            if kind in ("drop", "duplicate"):
                found.append({kind: name})
            elif kind == "move" and other != name:
                found.append({"move": name, rng.choice(["before", "after"]): other})
            elif kind == "reduce":
                found.append({"set": name, "reduce": rng.choice(["avg", "sum"])})
            elif kind == "over":
                found.append({"set": name, "over": rng.choice(AXES)})
            elif kind == "when":
                found.append({"set": name, "when": rng.choice(["rank.pp == 0", "rank.tp == 0", "step == 0"])})
            elif kind == "by":
                found.append({"set": name, "by": rng.choice(FACTORS)})
            else:
                step = rng.choice([
                    {"op": "zero"}, {"op": "scale", "by": rng.choice(FACTORS)}, {"op": "all_reduce", "over": rng.choice(AXES)},
                    {"op": "all_reduce", "over": rng.choice(AXES), "reduce": "avg"},
                    {"op": "leftover", "what": "noise"}, {"op": "broadcast", "over": "dp", "root": 0}])
                found.append({"insert": {"name": f"inserted{len(found)}", **step}, "after": rng.choice([name, "backward[0]"])})
        return found

    def make(self, count, folder, edits_of_each=5):
        """Writes about `count` files: bases as they are, each with some edited ones."""
        files = []
        while len(files) < count:
            document = self.base()
            path = folder / f"model-{len(files)}.json"
            path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            shown = self.run("show", str(path), "--resolved")
            if shown.returncode:
                path.unlink()  # a combination that the framework or the preset refuses
                continue
            files.append(path)
            steps = list(named(json.loads(shown.stdout)["schedule"]["steps"]))
            for _ in range(edits_of_each):
                if len(files) >= count:
                    break
                edited = json.loads(json.dumps(document))
                edited["schedule"]["edits"] = self.edits(steps)
                path = folder / f"model-{len(files)}.json"
                path.write_text(json.dumps(edited, indent=1) + "\n", encoding="utf-8")
                files.append(path)
        return files


def named(steps):
    for step in steps:
        if "name" in step:
            yield step["name"], step["op"]
        yield from named(step.get("steps", []))
