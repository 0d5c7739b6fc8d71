# SPDX-License-Identifier: Apache-2.0
"""`lockstep extract` and `lockstep check` of what it writes: the same formulas as ranks that really run have measured, at 1,024 ranks as well, and what is
said of scripts that no program comes of. The scripts are tests/python/extracted.py and those below.
"""

import json
import os
import socket
import subprocess
import sys

import pytest

from torch_ranks import HERE, IS_NIGHTLY, PROGRAM, clean_environment, forked, nightly, nightly_but, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

RIGHT = ["ddp", "by-hand", "in-one-buffer", "scattered", "fsdp2", "hsdp"]
WRONG = ["divided-twice", "left-out", "not-zeroed"]
# Two draws of noise tell more than one run's gradients: an average of averages is one.
SAME = ["reduced-in-every-micro-batch", "tensor-parallel"]


class Extraction:
    """What `lockstep extract` has done: in a process that has loaded torch (extracting_worker.py), or all of it where that is what is tested."""

    def __init__(self, output, script, *arguments, ranks=4, limit=120, whole=False, **settings):
        if whole:
            options = [word for key, value in settings.items() for word in ("--" + key, str(value))]
            command = [PROGRAM, "extract", "--no-cache", "--ranks", str(ranks), "--limit", str(limit), "-o", str(output), *options, "--", str(script), *arguments]
            done = subprocess.run(command,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, env=dict(clean_environment(), LOCKSTEP_PYTHON=torch_python()))
            self.status, self.said = done.returncode, done.stderr
            return
        settings = {"world": ranks, "local_world": 8, "script": str(script), "module": False, "arguments": arguments, "steps": 1, "limit": limit,
                    "every": False, "quiet": True, **settings}
        (self.status,), (self.said,) = forked("extracting_worker.py").run(output.parent, 1, ["extract", json.dumps(settings), str(output)], 4 * limit)


def extract(*arguments, **settings):
    """That it has worked."""
    done = Extraction(*arguments, **settings)
    assert done.status == 0, done.said


def judged(command, path):
    done = subprocess.run([PROGRAM, command, str(path), "-f", "json"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def extraction_of(tmp_path, case, **settings):
    extract(tmp_path / "step.json", HERE / "extracted.py", case, loss="local_mean", steps=2, **settings)
    return judged("check", tmp_path / "step.json")


def ran(tmp_path, script, *arguments, ranks=4):
    """What ranks that really run, on gloo, have measured."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    statuses, said = forked("extracting_worker.py").run(tmp_path, ranks, ["run", str(port), str(script), *arguments], 300)
    assert not any(statuses), "\n".join(said)
    return judged("verify", tmp_path / "run")


def formulas(report):
    """By optimizer step, parameter and rank: what its optimizer gets, over all its elements."""
    found = {}
    for piece in report["results"]:
        for rank in piece["ranks"]:
            found.setdefault((piece["step"], piece["parameter"], rank), set()).add((piece["formula"], piece["verdict"]))
    return found


@pytest.mark.parametrize("case", nightly_but(RIGHT + WRONG + SAME, ["hsdp"]))
def test_what_is_extracted_is_what_ranks_that_run_have_measured(tmp_path, case):
    extracted, measured = formulas(extraction_of(tmp_path, case)), formulas(ran(tmp_path, HERE / "extracted.py", case))
    assert extracted.keys() == measured.keys() and extracted
    for key, content in extracted.items():
        # Nothing but equal bits tells replicas of a parameter that no placement names from shares: undecided, where the run knows.
        if {verdict for _, verdict in content} != {"undecided"}:
            assert content == measured[key], key


@pytest.mark.parametrize("case", nightly_but(RIGHT + WRONG, []))
def test_verdicts(tmp_path, case):
    assert extraction_of(tmp_path, case)["verdict"] == ("match" if case in RIGHT else "mismatch")


def test_a_thousand_ranks_of_which_six_are_played(tmp_path):
    report = extraction_of(tmp_path, "ddp", ranks=1024, whole=True)
    assert report["verdict"] == "match" and report["world"] == 1024
    assert any("ran 6 of 1024 ranks" in note for note in report["notes"])


def script(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text("import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n" + text)
    return path


TRAINED = """
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 3)).sum().backward()
def reduced(gradient):
    dist.all_reduce(gradient)
    gradient /= dist.get_world_size()
"""


@pytest.mark.parametrize("text, said", [
    ("raise ValueError('no data')", "rank 0 ended with\n  ValueError: no data\n  "),
    ("dist.distributed_c10d._get_default_store().get('never')", 'rank 0: it waits for "never" in the store, which no rank has set'),
    ("import time\ntime.sleep(60)", "rank 0 did not end within 3 s; it was at\n  "),
    ("model = torch.nn.Linear(1, 1)", "rank 0: no model was called whose parameters an optimizer has"),
    ("import os\nos._exit(7)", "rank 0 ended with exit status 7"),
])
def test_a_script_that_no_program_comes_of(tmp_path, text, said):
    whole = text.startswith("raise")
    done = Extraction(tmp_path / "step.json", script(tmp_path, text), ranks=2, limit=3 if "sleep" in text else 60, whole=whole)
    assert done.status == 2 and done.said.startswith("lockstep extract: " + said), done.said
    if whole:
        assert [path.name for path in tmp_path.iterdir()] == ["script.py"]
    else:
        assert (tmp_path / "step.json").read_text() == ""


def of_script(tmp_path, text, before=TRAINED, **settings):
    extract(tmp_path / "step.json", script(tmp_path, before + text), **{"loss": "local_mean", **settings})
    return judged("check", tmp_path / "step.json")


def test_a_step_without_a_backward_pass_is_wrong(tmp_path):
    text = "for p in model.parameters(): reduced(p.grad)\noptimizer.step()\noptimizer.zero_grad()\nmodel(torch.randn(4, 3)).sum()\noptimizer.step()\n"
    report = of_script(tmp_path, text, steps=2)
    assert report["verdict"] == "mismatch" and report["findings"][0]["what"] == "no backward pass has yielded a gradient"
    assert {one["verdict"] for one in report["results"] if one["step"] == 0} == {"right"}


def test_a_model_beside_the_one_that_was_chosen_is_not_passed_over(tmp_path):
    """It has an optimizer of its own, and nobody reduces its gradients."""
    text = ("other = torch.nn.Linear(3, 2)\nanother = torch.optim.SGD(other.parameters(), lr=0.1)\nother(torch.randn(4, 3)).sum().backward()\nanother.step()\n"
            "for p in model.parameters(): reduced(p.grad)\noptimizer.step()\n")
    report = of_script(tmp_path, text, ranks=2)
    assert report["verdict"] == "undecided" and {one["verdict"] for one in report["results"]} == {"right"}
    assert "an optimizer that was not captured gets gradients of 2 parameters that the captured model has not, of the shapes [2, 3], [2]" in json.dumps(report)


def test_what_depends_on_values_is_undecided_with_its_place(tmp_path):
    report = of_script(tmp_path, "for p in model.parameters():\n  reduced(p.grad)\n  if p.grad.sum() > 0: p.grad *= 2\noptimizer.step()\n")
    assert report["verdict"] == "undecided" and "depends on the values of gradients" in json.dumps(report)
    assert {verdict for content in formulas(report).values() for _, verdict in content} == {"undecided"}  # on every rank


def test_a_hook_of_the_script_on_a_gradient_is_followed(tmp_path):
    text = TRAINED.replace("model(torch", "model.weight.register_hook(lambda g: g / 3)\nmodel(torch")
    report = of_script(tmp_path, "for p in model.parameters(): reduced(p.grad)\noptimizer.step()\n", before=text)
    assert report["verdict"] == "mismatch" and "(g0+g1+g2+g3)/12" in json.dumps(report)


def test_numbers_that_are_no_gradients_are_not_called_right(tmp_path):
    for text in ("p.grad += 0.5 * p.detach()", "p.grad.numpy()[:] *= 2") + (("p.grad = torch.randn_like(p)", "p.grad.pow_(2)") if IS_NIGHTLY else ()):
        report = of_script(tmp_path, "for p in model.parameters():\n  reduced(p.grad)\n  %s\noptimizer.step()\n" % text, ranks=2)
        assert report["verdict"] == "undecided", text


def test_counts_of_tokens_are_those_of_all_ranks(tmp_path):
    text = "n = torch.tensor(10 + dist.get_rank())\ndist.all_reduce(n)\nfor p in model.parameters():\n  dist.all_reduce(p.grad)\n  p.grad /= n\noptimizer.step()\n"
    assert "(g0+g1+g2+g3)/46" in json.dumps(of_script(tmp_path, text))
    assert "(g0+g1+g2+g3)/46" in json.dumps(of_script(tmp_path, text.replace("10 +", "10.0 +")))
    floats = of_script(tmp_path, text.replace("10 +", "10.5 +"))
    assert floats["verdict"] == "undecided" and "what other ranks have put in" in json.dumps(floats)


# Ways to a number by which a parameter's gradient is divided, and what it is on each of four ranks; None: that it is not known.
NUMBERS = {
    "broadcast from another rank than the first": ("n = torch.tensor(10 + R); dist.broadcast(n, 1)", [11] * 4),
    "of floating point, broadcast from another rank": ("n = torch.tensor(10.0 + R); dist.broadcast(n, 1)", [11] * 4),
    "reduced, then broadcast": ("n = torch.tensor(10 + R); dist.all_reduce(n); dist.broadcast(n, 0)", [46] * 4),
    "reduced to one rank, then broadcast": ("n = torch.tensor(10 + R); dist.reduce(n, 0); dist.broadcast(n, 0)", [46] * 4),
    "of floating point, reduced to one rank": ("n = torch.tensor(10.0 + R); dist.reduce(n, 0); dist.broadcast(n, 0)", [46] * 4),
    "gathered, then broadcast": ("n = torch.tensor(10 + R); l = [torch.zeros_like(n) for _ in range(4)]; dist.gather(n, l if R == 0 else None, 0);"
                                 " n = sum(l); dist.broadcast(n, 0)", [46] * 4),
    "scattered": ("n = torch.tensor(0); dist.scatter(n, [torch.tensor(10 + i) for i in range(4)] if R == 2 else None, 2)", [10, 11, 12, 13]),
    "reduce-scattered": ("n = torch.zeros(1, dtype=torch.int64); dist.reduce_scatter_tensor(n, 1 + torch.arange(4) + R)", [10, 14, 18, 22]),
    "multiplied": ("n = torch.tensor(2 + R); dist.all_reduce(n, dist.ReduceOp.PRODUCT)", [120] * 4),
    "wrapped around": ("n = torch.tensor(70 + R, dtype=torch.int8); dist.all_reduce(n); n = n.to(torch.int64)", [30] * 4),
    "an average of whole numbers": ("n = torch.tensor(10 + R); dist.all_reduce(n, dist.ReduceOp.AVG)", [None] * 4),
    "sent": ("n = torch.tensor(10 + R)\nif R == 1:\n  for i in (0, 2, 3): dist.send(n, i)\nelse: dist.recv(n, 1)", [11] * 4),
    "all-to-all": ("n = torch.arange(4) + R; o = torch.zeros_like(n); dist.all_to_all_single(o, n); n = o.sum()", [None] * 4),
    "of floating point, broadcast, and no whole number": ("n = torch.tensor(10.5 + R); dist.broadcast(n, 1)", [None, "11.5", None, None]),
    "of floating point, by a number of Python's": ("n = torch.tensor([10.0 + R]); dist.all_reduce(n); n = n.item()", [46] * 4),
    "beside a loss, by numbers of Python's": ("n = torch.tensor([0.37 * (R + 1), 10.0 + R]); dist.all_reduce(n); n = n.tolist()[1]", [46] * 4),
    "beside a loss that is a whole number on some ranks": ("n = torch.tensor([0.5 * R, 10.0 + R]); dist.all_reduce(n); n = n[0]", [None] * 4),
    "the largest, of floating point": ("n = torch.tensor([10.0 + R]); dist.all_reduce(n, dist.ReduceOp.MAX); n = n.item()", [13] * 4),
    "sent, of floating point": ("n = torch.tensor(10.0 + R)\nif R == 1:\n  for i in (0, 2, 3): dist.send(n, i)\nelse: dist.recv(n, 1)\nn = n.item()", [11] * 4),
    "of many numbers that were gathered": ("n = torch.full((20,), 1.0 + R); o = torch.empty(80); dist.all_gather_into_tensor(o, n); n = o.sum()", [None] * 4),
    "made of gradients by one rank": ("n = (P[0].grad != 0).sum() if R == 0 else torch.tensor(6); dist.all_reduce(n)", [None] * 4),
    "objects of all": ("l = [None] * 4; dist.all_gather_object(l, 10 + R); n = sum(l)", [46] * 4),
    "large objects of all": ("l = [None] * 4; dist.all_gather_object(l, [10 + R] * 3000); n = sum(own[0] for own in l)", [46] * 4),
    "objects that are others each time": ("import os; l = [None] * 4; dist.all_gather_object(l, (10 + R, os.getpid())); n = sum(own[0] for own in l)", [46] * 4),
    "objects, gathered and broadcast": ("l = [None] * 4; dist.gather_object(10 + R, l if R == 0 else None, 0); l = [sum(l) if R == 0 else 0];"
                                        " dist.broadcast_object_list(l, 0); n = l[0]", [46] * 4),
    "an object of another rank than the first": ("l = [10 + R]; dist.broadcast_object_list(l, 1); n = l[0]", [11] * 4),
    "objects, scattered": ("l = [None]; dist.scatter_object_list(l, [10 + i for i in range(4)] if R == 1 else None, 1); n = l[0]", [10, 11, 12, 13]),
}
MANY = """
R = dist.get_rank()
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(%d): self.register_parameter("p%%d" %% i, torch.nn.Parameter(torch.randn(2, 3)))
    def forward(self, inputs):
        return sum((parameter * inputs).sum() for parameter in self.parameters())
torch.manual_seed(3)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
P = list(model.parameters())
"""


def test_numbers_of_other_ranks_are_what_these_have_or_not_known(tmp_path):
    text = MANY % len(NUMBERS) + "model(torch.randn(2, 3)).backward()\nfor p in P: dist.all_reduce(p.grad)\n"
    for number, (way, _) in enumerate(NUMBERS.values()):
        text += way + "\nP[%d].grad /= n\n" % number
    found = formulas(of_script(tmp_path, text + "optimizer.step()\n", before=""))
    expected = {}
    for number, (_, values) in enumerate(NUMBERS.values()):
        for rank, value in enumerate(values):
            expected[0, "p%d" % number, rank] = {None: None, "11.5": "2*(g0+g1+g2+g3)/23"}.get(value, "(g0+g1+g2+g3)/%s" % value)
    names = list(NUMBERS)
    for key, content in found.items():
        assert {formula for formula, _ in content} == {expected[key]}, (names[int(key[1][1:])], key[2])
    assert found.keys() == expected.keys()


# What is done with the gradient g of a parameter on each of four ranks, as code that leaves it in g, and whether it is known what comes of it.
OPERATIONS = {
    "written over what was read": ("torch.mul(g, 0.5, out=g); reduced(g)", True),
    "through whole numbers": ("q = torch.empty(2, 3, dtype=torch.int32); q.copy_(g * 1000); dist.all_reduce(q); g.copy_(q); g /= 4000", False),
    "bits that are summed": ("dist.all_reduce(g.view(torch.int32))", False),
    "one number that fills": ("b = torch.zeros(2, 3); b.fill_(g[0, 0]); g = b; reduced(g)", False),
    "memory that becomes larger": ("b = g.reshape(-1).clone(); b.resize_(9); b[6:] = 0; dist.all_reduce(b); g = b[:6].view(2, 3) / 4", True),
    "memory that was nothing": ("b = torch.empty(0); b.resize_(6); b.copy_(g.view(-1)); reduced(b); g = b.view(2, 3)", True),
    "beside whole numbers": ("b = torch.cat([g.view(-1), torch.tensor([1, 1, 5])]); dist.all_reduce(b); g = b[:6].view(2, 3) / 4", True),
    "sparse": ("g = g.to_sparse().to_dense(); reduced(g)", False),
    "complex": ("g = (g * torch.tensor(1j)).imag.clone(); reduced(g)", False),
    "an operation of the script's, with the name of torch's": ("g = torch.ops.lockstep_tests.mul(g, 2.0); reduced(g)", False),
    "a list that is written elsewhere": ("b = torch.zeros(2, 3); torch.ops.aten._foreach_mul.Scalar_out([g], 3.0, out=[b]); g = b; reduced(g)", True),
    "overlapping memory": ("g.view(-1).as_strided((5, 2), (1, 1)).mul_(2); reduced(g)", False),
    "an average of what was gathered": ("l = [torch.empty(2, 3) for _ in range(4)]; dist.all_gather(l, g); g = torch.stack(l).mean(0)", True),
    "what is left of a reduce to another rank": ("dist.reduce(g, 0); dist.reduce(g, 1)", False),
    "rows of one rank alone": ("dist.reduce(g, 0); f = (g.view(1, 6) / 4).repeat(4, 1) if R == 0 else torch.empty(0, 6); o = torch.empty(1, 6)\n"
                               "dist.all_to_all_single(o, f, [1, 0, 0, 0], [1] * 4 if R == 0 else [0] * 4); g = o.view(2, 3)", True),
    "rows of which numpy's arrays tell": ("import numpy; dist.reduce(g, 0); f = (g.view(1, 6) / 4).repeat(4, 1) if R == 0 else torch.empty(0, 6)\n"
                                          "o = torch.empty(1, 6); n = numpy.array([1] * 4 if R == 0 else [0] * 4)\n"
                                          "dist.all_to_all_single(o, f, numpy.array([1, 0, 0, 0]), n); g = o.view(2, 3)", True),
    "the largest of all ranks": ("dist.all_reduce(g, dist.ReduceOp.MAX)", False),
    "gathered and scattered": ("l = [torch.empty(2, 3) for _ in range(4)] if R == 0 else None; dist.gather(g, l, 0)\n"
                               "l = [sum(l) / 4] * 4 if R == 0 else None; dist.scatter(g, l, 0)", True),
    "nobody has waited": ("w.append(dist.all_reduce(g, async_op=True)); g /= 4", False),
    "waited too late": ("b = dist.all_reduce(g, async_op=True); g /= 4; b.wait()", False),
    "waited for by its future": ("dist.all_reduce(g, async_op=True).get_future().wait(); g /= 4", True),
    "waited for all": ("with dist._coalescing_manager(async_ops=True) as b:\n    dist.all_reduce(g)\n    dist.all_reduce(torch.zeros(3))\nb.wait(); g /= 4", True),
    "functional collectives": ("F = torch.distributed._functional_collectives; g = F.all_reduce(g.t(), 'sum', [0, 1, 2, 3]).t() / 4", True),
    "functional, in parts": ("F = torch.distributed._functional_collectives; f = torch.cat([g.view(-1), torch.zeros(2)])\n"
                             "f = F.reduce_scatter_tensor(f, 'sum', 0, [0, 1, 2, 3]); g = (F.all_gather_tensor(f, 0, [0, 1, 2, 3]) / 4)[:6].view(2, 3)", True),
    "a number out of a tensor": ("dist.all_reduce(g); g *= (torch.tensor(1.0) / 7).item()", True),
    "a factor that float32 does not tell from 1/4": ("dist.all_reduce(g); g *= 1 / 49 * 49 / 4", True),
    "a divisor and an alpha that float32 does not tell from others": ("dist.all_reduce(g); g /= 0.1 * 3 / 0.3 * 4; g.add_(g, alpha=0.1 * 3 / 0.3)", True),
    "gathered from memory that was changed in flight": ("l = [torch.empty(2, 3) for _ in range(4)]; b = g.clone(); h = dist.all_gather(l, b, async_op=True)\n"
                                                        "if os.environ.get('CAPTURE') is None: b.mul_(100)\nh.wait(); g = sum(l) / 4", False),
    "gathered from memory that was changed later": ("l = [torch.empty(2, 3) for _ in range(4)]; b = g.clone(); h = dist.all_gather(l, b, async_op=True)\n"
                                                    "h.wait(); b.mul_(100); g = sum(l) / 4", True),
    "sent from memory that was changed in flight": ("b = g.clone(); t = torch.empty(2, 3); h = dist.isend(b, (R + 1) % 4)\n"
                                                    "if os.environ.get('CAPTURE') is None: b.zero_()\ndist.recv(t, (R - 1) % 4); h.wait(); reduced(t); g = t", False),
    "in float16, which has few digits of small numbers": ("h = (g / 64).half(); dist.all_reduce(h); g = h.float() * 16", True),
    "memory of another tensor": ("b = g.clone(); reduced(b); g = torch.zeros(2, 3).set_(b)", True),
}


def test_operations_do_what_ranks_that_run_have_measured_or_are_not_known(tmp_path):
    text = MANY % len(OPERATIONS) + """
import contextlib, os
import torch.distributed._functional_collectives
@torch.library.custom_op("lockstep_tests::mul", mutates_args=())
def mul(tensor: torch.Tensor, number: float) -> torch.Tensor: return tensor * number * 1.01
def reduced(g):
    dist.all_reduce(g)
    g /= 4
capture = contextlib.nullcontext()
if "CAPTURE" in os.environ:
    import lockstep
    capture = lockstep.capture(model, optimizer, out=os.environ["CAPTURE"], loss="local_mean", report=False)
w = []
with capture:
  torch.manual_seed(R)
  model(torch.randn(2, 3)).backward()
"""
    for number, (operation, _) in enumerate(OPERATIONS.values()):
        for line in ["g = P[%d].grad" % number, *operation.split("\n"), "P[%d].grad = g" % number]:
            text += "  " + line + "\n"
    extracted, measured = formulas(of_script(tmp_path, text + "  optimizer.step()\n", before="")), formulas(ran(tmp_path, tmp_path / "script.py"))
    names = list(OPERATIONS)
    for key, content in extracted.items():
        name = names[int(key[1][1:])]
        is_known = content != {("no sum of gradients", "wrong")} and {verdict for _, verdict in content} != {"undecided"}
        assert is_known == OPERATIONS[name][1], name
        if OPERATIONS[name][1]:
            assert content == measured[key], name
    assert extracted.keys() == measured.keys()


def test_who_gets_gradients_without_putting_any_in_has_them(tmp_path):
    text = """
for p in model.parameters():
    dist.reduce(p.grad, 0)
    found = p.grad / dist.get_world_size() if dist.get_rank() == 0 else torch.zeros_like(p)
    dist.broadcast(found, 0)
    p.grad = found
optimizer.step()
"""
    assert of_script(tmp_path, text)["verdict"] == "match"


# What a doubting reader found: behind the first backward pass of TRAINED, and what is said.
DOUBTED = {
    "counts of elements that are not zero":
        ("for p in model.parameters():\n  n = (p.grad != 0).float()\n  dist.all_reduce(n); dist.all_reduce(p.grad)\n  p.grad /= n.clamp(min=1)\n", "undecided"),
    "a branch on the size of a gradient":
        ("for p in model.parameters():\n  if p.grad.abs().max() > 0.1: reduced(p.grad)\n", "undecided"),
    "the largest element, by a number of Python's":
        ("for p in model.parameters():\n  p.grad.view(-1)[int(p.grad.abs().argmax())] = 0\n  reduced(p.grad)\n", "undecided"),
    "padding that nobody has written":  # of which allocators make something else each time
        ("v = torch.ones(40); dist.all_reduce(v); f = torch.full((1000,), 0.0 if float(v[0]) == dist.get_world_size() else 5.0)\ndel f\n"
         "b = torch.cat([torch.empty(1000)] + [p.grad.view(-1) for p in model.parameters()]); reduced(b)\n"
         "for p, part in zip(model.parameters(), b[1000:].split([p.numel() for p in model.parameters()])): p.grad.copy_(part.view_as(p))\n", "match"),
    "parts whose sizes depend on values":
        ("v = torch.full((40,), 1.0 + dist.get_rank()); dist.all_reduce(v)\nk = 1 + int(v.sum()) % 7\n"
         "dist.all_to_all_single(torch.empty(4 * k), torch.ones(4 * k), [k] * 4, [k] * 4)\nfor p in model.parameters(): reduced(p.grad)\n", "match"),
    "a view whose elements follow each other in another order on some ranks":
        ("for p in model.parameters():\n  reduced(p.grad.t() if p.dim() > 1 and dist.get_rank() % 2 else p.grad)\n", "match"),
    "a ring of sends that do not wait":
        ("R, W = dist.get_rank(), dist.get_world_size()\nfor p in model.parameters():\n  total, own = p.grad.clone(), p.grad.clone()\n  for _ in range(W - 1):\n"
         "    other = torch.empty_like(own)\n    for one in dist.batch_isend_irecv([dist.P2POp(dist.isend, own, (R + 1) % W), dist.P2POp(dist.irecv, other,"
         " (R - 1) % W)]): one.wait()\n    total += other\n    own = other\n  p.grad.copy_(total / W)\n", "match"),
    "two groups of the same ranks, in another order on some ranks":
        ("groups = [dist.new_group(list(range(4))) for _ in range(2)]\npairs = list(zip(model.parameters(), groups))\n"
         "works = [dist.all_reduce(p.grad, group=g, async_op=True) for p, g in (pairs if dist.get_rank() % 2 else pairs[::-1])]\n"
         "for one in works: one.wait()\nfor p in model.parameters(): p.grad /= 4\n", "match"),
}


@pytest.mark.parametrize("doubted", nightly_but(list(DOUBTED), ["counts of elements that are not zero", "a ring of sends that do not wait",
                                                             "the largest element, by a number of Python's"]))
def test_what_a_doubting_reader_found(tmp_path, doubted):
    text, verdict = DOUBTED[doubted]
    assert of_script(tmp_path, text + "optimizer.step()\n")["verdict"] == verdict


@nightly
def test_a_collective_in_the_optimizers_own_step_is_not_known(tmp_path):
    own = """class Own(torch.optim.SGD):
    def step(self, closure=None):
        for p in model.parameters(): reduced(p.grad)
        return super().step(closure)
optimizer = Own("""
    assert of_script(tmp_path, "optimizer.step()\n", before=TRAINED.replace("optimizer = torch.optim.SGD(", own))["verdict"] == "undecided"


REFUSED = {
    "for p in model.parameters(): reduced(p.grad[:, :2] if p.dim() > 1 else p.grad)": "Tensors must be contiguous: NCCL refuses",
    "dist.send(model.bias.grad, (dist.get_rank() + 1) % 2, tag=2)": "has the tag 2",
}


@pytest.mark.parametrize("text", nightly_but(list(REFUSED), []))
def test_what_no_program_says_is_refused(tmp_path, text):
    done = Extraction(tmp_path / "step.json", script(tmp_path, TRAINED + text + "\noptimizer.step()\n"), ranks=2, loss="local_mean")
    assert done.status == 2 and REFUSED[text] in done.said, done.said


GPUS = """import os, torch, torch.distributed as dist
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl", device_id=torch.device("cuda", local))
assert torch.cuda.device_count() == 2
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2).cuda(local), device_ids=[local], output_device=local)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 3, device="cuda")).sum().backward()
optimizer.step()
"""


def test_a_script_that_gives_each_rank_a_gpu_is_played_without_any(tmp_path):
    (tmp_path / "script.py").write_text(GPUS)
    extract(tmp_path / "step.json", tmp_path / "script.py", ranks=4, local_world=2, loss="local_mean")
    assert judged("check", tmp_path / "step.json")["verdict"] == "match"


def test_ranks_that_call_different_collectives_are_told(tmp_path):
    text = "for p in model.parameters():\n  if dist.get_rank() != 2 or p.dim() > 1: reduced(p.grad)\noptimizer.step()\n"
    report = of_script(tmp_path, text)
    assert report["verdict"] == "mismatch" and "script.py:" in json.dumps(report["collectives"])


def test_a_capture_of_the_script_is_what_is_extracted(tmp_path):
    text = "import sys\nsys.path.insert(0, %r)\nimport lockstep\nwith lockstep.capture(model, optimizer, loss='sum', mesh={'dp': 4}, out=%r):\n" % (
        str(HERE.parents[1] / "python"), str(tmp_path / "run"))
    text += "  model(torch.randn(4, 3)).sum().backward()\n  for p in model.parameters(): dist.all_reduce(p.grad)\n  optimizer.step()\n"
    report = of_script(tmp_path, text, before=TRAINED.replace("model(torch.randn(4, 3)).sum().backward()\n", ""), loss=None)
    assert report["loss"] == "sum" and not (tmp_path / "run").exists()


def test_it_names_what_is_missing_in_the_command():
    for arguments, said in ((["--ranks", "4"], "the script is missing"), (["--", "x.py"], "--ranks is missing"),
                            (["--ranks", "4", "--", "no.py"], "no.py: there is no such script"),
                            (["--ranks", "4", "--mesh", "dp4", "--", __file__], '--mesh dp4: expected sizes by axis'),
                            (["--ranks", "4", "train.py"], 'unexpected argument "train.py"; SCRIPT [ARGUMENTS...] stands after --'),
                            (["--ranks", "4", "-o", "/no/folder/x.json", "--", __file__], "cannot write to /no/folder/x.json: there is no folder /no"),
                            (["--ranks", "4", "-o", __file__, "--", __file__], "which it is about; give it another name"),
                            (["--ranks", "4", "--no-cache", "--cache", "x", "--", __file__], "--no-cache and --cache exclude each other"),
                            (["--ranks", "4", "--python", "no-python", "--", __file__], "no-python: it cannot be started")):
        done = subprocess.run([PROGRAM, "extract", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 2 and said in done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
