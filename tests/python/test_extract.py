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

from torch_ranks import HERE, IS_NIGHTLY, PROGRAM, clean_environment, nightly_but, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

RIGHT = ["ddp", "by-hand", "in-one-buffer", "scattered", "fsdp2", "hsdp"]
WRONG = ["divided-twice", "left-out", "not-zeroed"]
# Two draws of noise tell more than one run's gradients: an average of averages is one.
SAME = ["reduced-in-every-micro-batch", "tensor-parallel"]


def extract(output, *arguments, ranks=4, limit=120):
    environment = dict(clean_environment(), LOCKSTEP_PYTHON=torch_python())
    return subprocess.run([PROGRAM, "extract", "--ranks", str(ranks), "--limit", str(limit), "-o", str(output), *map(str, arguments)],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment)


def judged(command, path):
    done = subprocess.run([PROGRAM, command, str(path), "-f", "json"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def extraction_of(tmp_path, case, ranks=4):
    output = tmp_path / "step.json"
    done = extract(output, "--loss", "mean", "--steps", "2", "--", HERE / "extracted.py", case, ranks=ranks)
    assert done.returncode == 0, done.stderr
    return judged("check", output)


def captured(tmp_path, case, ranks=4):
    """Ranks that really run, on gloo."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []
    for rank in range(ranks):
        environment = dict(clean_environment(), RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                           OMP_NUM_THREADS="1", CAPTURE=str(tmp_path / "run"))
        running.append(subprocess.Popen([torch_python(), str(HERE / "extracted.py"), case], env=environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    return judged("verify", tmp_path / "run")


def formulas(report):
    """By optimizer step, parameter and rank: what its optimizer gets, over all its elements."""
    found = {}
    for piece in report["results"]:
        for rank in piece["ranks"]:
            found.setdefault((piece["step"], piece["parameter"], rank), set()).add((piece["formula"], piece["verdict"]))
    return found


@pytest.mark.parametrize("case", nightly_but(RIGHT + WRONG + SAME, ["left-out", "hsdp"]))
def test_what_is_extracted_is_what_ranks_that_run_have_measured(tmp_path, case):
    extracted, measured = formulas(extraction_of(tmp_path, case)), formulas(captured(tmp_path, case))
    assert extracted.keys() == measured.keys() and extracted
    for key, content in extracted.items():
        # Nothing but equal bits tells replicas of a parameter that no placement names from shares: undecided, where the run knows.
        if {verdict for _, verdict in content} != {"undecided"}:
            assert content == measured[key], key


@pytest.mark.parametrize("case", nightly_but(RIGHT + WRONG, []))
def test_verdicts(tmp_path, case):
    assert extraction_of(tmp_path, case)["verdict"] == ("match" if case in RIGHT else "mismatch")


def test_a_thousand_ranks_of_which_six_are_played(tmp_path):
    report = extraction_of(tmp_path, "ddp", ranks=1024)
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
    ("import time\ntime.sleep(60)", "rank 0 did not end within 5 s; it was at\n  "),
    ("model = torch.nn.Linear(1, 1)", "rank 0: no model was called whose parameters an optimizer has"),
    ("import os\nos._exit(7)", "rank 0 ended with exit status 7"),
])
def test_a_script_that_no_program_comes_of(tmp_path, text, said):
    done = extract(tmp_path / "step.json", "--", script(tmp_path, text), ranks=2, limit=5)
    assert done.returncode == 2 and done.stderr.startswith("lockstep extract: " + said), done.stderr
    assert not (tmp_path / "step.json").exists() and [path.name for path in tmp_path.iterdir()] == ["script.py"]


def of_script(tmp_path, text, *options, ranks=4):
    done = extract(tmp_path / "step.json", *options, "--", script(tmp_path, TRAINED + text), ranks=ranks)
    assert done.returncode == 0, done.stderr
    return judged("check", tmp_path / "step.json")


def test_what_depends_on_values_is_undecided_with_its_place(tmp_path):
    report = of_script(tmp_path, "for p in model.parameters():\n  reduced(p.grad)\n  if p.grad.sum() > 0: p.grad *= 2\noptimizer.step()\n", "--loss", "mean")
    assert report["verdict"] == "undecided" and "depends on the values of gradients" in json.dumps(report)


def test_a_hook_of_the_script_on_a_gradient_is_followed(tmp_path):
    text = TRAINED.replace("model(torch", "model.weight.register_hook(lambda g: g / 3)\nmodel(torch")
    done = extract(tmp_path / "step.json", "--loss", "mean", "--", script(tmp_path, text + "for p in model.parameters(): reduced(p.grad)\noptimizer.step()\n"))
    assert done.returncode == 0, done.stderr
    report = judged("check", tmp_path / "step.json")
    assert report["verdict"] == "mismatch" and "(g0+g1+g2+g3)/12" in json.dumps(report)


def test_numbers_that_are_no_gradients_are_not_called_right(tmp_path):
    for text in ("p.grad += 0.5 * p.detach()", "p.grad.numpy()[:] *= 2") + (("p.grad = torch.randn_like(p)", "p.grad.pow_(2)") if IS_NIGHTLY else ()):
        report = of_script(tmp_path, "for p in model.parameters():\n  reduced(p.grad)\n  %s\noptimizer.step()\n" % text, "--loss", "mean", ranks=2)
        assert report["verdict"] == "undecided", text


def test_counts_of_tokens_are_those_of_all_ranks(tmp_path):
    text = "n = torch.tensor(10 + dist.get_rank())\ndist.all_reduce(n)\nfor p in model.parameters():\n  dist.all_reduce(p.grad)\n  p.grad /= n\noptimizer.step()\n"
    assert "(g0+g1+g2+g3)/46" in json.dumps(of_script(tmp_path, text, "--loss", "mean"))
    floats = of_script(tmp_path, text.replace("10 +", "10.0 +"), "--loss", "mean")
    assert floats["verdict"] == "undecided" and "what other ranks have put in" in json.dumps(floats)


def test_who_gets_gradients_without_putting_any_in_has_them(tmp_path):
    text = """
for p in model.parameters():
    dist.reduce(p.grad, 0)
    found = p.grad / dist.get_world_size() if dist.get_rank() == 0 else torch.zeros_like(p)
    dist.broadcast(found, 0)
    p.grad = found
optimizer.step()
"""
    assert of_script(tmp_path, text, "--loss", "mean")["verdict"] == "match"


# What a doubting reader found: behind the first backward pass of TRAINED, and what is said.
DOUBTED = {
    "counts of elements that are not zero":
        ("for p in model.parameters():\n  n = (p.grad != 0).float()\n  dist.all_reduce(n); dist.all_reduce(p.grad)\n  p.grad /= n.clamp(min=1)\n", "undecided"),
    "a branch on the size of a gradient":
        ("for p in model.parameters():\n  if p.grad.abs().max() > 0.1: reduced(p.grad)\n", "undecided"),
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
    "a collective in the optimizer's own step":
        ("class Own(torch.optim.SGD):\n  def step(self, closure=None):\n    for p in model.parameters(): reduced(p.grad)\n    return super().step(closure)\n"
         "optimizer = Own(model.parameters(), lr=0.1)\n", "undecided"),
}


@pytest.mark.parametrize("doubted", nightly_but(list(DOUBTED), ["counts of elements that are not zero", "a ring of sends that do not wait"]))
def test_what_a_doubting_reader_found(tmp_path, doubted):
    text, verdict = DOUBTED[doubted]
    assert of_script(tmp_path, text + "optimizer.step()\n", "--loss", "mean")["verdict"] == verdict


REFUSED = {
    "for p in model.parameters(): reduced(p.grad[:, :2] if p.dim() > 1 else p.grad)": "Tensors must be contiguous: NCCL refuses",
    "dist.send(model.bias.grad, (dist.get_rank() + 1) % 2, tag=2)": "has the tag 2",
}


@pytest.mark.parametrize("text", nightly_but(list(REFUSED), []))
def test_what_no_program_says_is_refused(tmp_path, text):
    done = extract(tmp_path / "step.json", "--loss", "mean", "--", script(tmp_path, TRAINED + text + "\noptimizer.step()\n"), ranks=2)
    assert done.returncode == 2 and REFUSED[text] in done.stderr, done.stderr


def test_ranks_that_call_different_collectives_are_told(tmp_path):
    text = "for p in model.parameters():\n  if dist.get_rank() != 2 or p.dim() > 1: reduced(p.grad)\noptimizer.step()\n"
    report = of_script(tmp_path, text, "--loss", "mean")
    assert report["verdict"] == "mismatch" and "script.py:" in json.dumps(report["collectives"])


def test_a_capture_of_the_script_is_what_is_extracted(tmp_path):
    text = "import sys\nsys.path.insert(0, %r)\nimport lockstep\nwith lockstep.capture(model, optimizer, loss='sum', mesh={'dp': 4}, out=%r):\n" % (
        str(HERE.parents[1] / "python"), str(tmp_path / "run"))
    text += "  model(torch.randn(4, 3)).sum().backward()\n  for p in model.parameters(): dist.all_reduce(p.grad)\n  optimizer.step()\n"
    done = extract(tmp_path / "step.json", "--", script(tmp_path, TRAINED.replace("model(torch.randn(4, 3)).sum().backward()\n", "") + text))
    assert done.returncode == 0, done.stderr
    assert judged("check", tmp_path / "step.json")["loss"] == "sum" and not (tmp_path / "run").exists()


def test_it_names_what_is_missing_in_the_command():
    for arguments, said in ((["--ranks", "4"], "the script is missing"), (["--", "x.py"], "--ranks is missing"),
                            (["--ranks", "4", "--", "no.py"], "no.py: there is no such script"),
                            (["--ranks", "4", "--mesh", "dp4", "--", __file__], '--mesh dp4: expected sizes by axis'),
                            (["--ranks", "4", "train.py"], 'found "train.py", where no argument is left to give; what is no option of lockstep itself stands'),
                            (["--ranks", "4", "-o", "/no/folder/x.json", "--", __file__], "cannot write to /no/folder/x.json: there is no folder /no"),
                            (["--ranks", "4", "-o", __file__, "--", __file__], "which it is about; give it another name"),
                            (["--ranks", "4", "--python", "no-python", "--", __file__], "no-python: it cannot be started")):
        done = subprocess.run([PROGRAM, "extract", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 2 and said in done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
