# SPDX-License-Identifier: Apache-2.0
"""What `lockstep extract` knows of asynchronous collectives whose memory is written while they are in flight, and of those that nobody ever waits for:
lockstep.extracting.flights."""

import json
import sys

import pytest

from test_extract import MANY, formulas, of_script
from torch_ranks import torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

# What is done with the gradient g of a parameter on each of four ranks, as code that leaves it in g, and what the optimizer gets; None: that it is not known.
MEAN = "(g0+g1+g2+g3)/4"
FLIGHTS = {
    "sent, and not changed": ("b = g.clone(); w.append(dist.isend(b, N)); dist.recv(t, B); reduced(t); g = t", MEAN),
    "sent and changed, and never waited for": ("b = g.clone(); w.append(dist.isend(b, N)); dist.recv(t, B); b.zero_(); reduced(t); g = t", None),
    "sent and changed by numpy, and never waited for": ("b = g.clone(); w.append(dist.isend(b, N)); dist.recv(t, B); b.numpy()[:] = 0; reduced(t); g = t", None),
    "sent and changed, and the work is dropped": ("b = g.clone(); dist.isend(b, N); dist.recv(t, B); b.zero_(); reduced(t); g = t", None),
    "sent, and changed after the step": ("b = g.clone(); w.append(dist.isend(b, N)); dist.recv(t, B); later.append(b); reduced(t); g = t", None),
    "sent, and changed by numpy after the step": ("b = g.clone(); w.append(dist.isend(b, N)); dist.recv(t, B); at_end.append(b); reduced(t); g = t", None),
    "sent, and something else while the optimizer steps":
        ("b = g.clone(); w.append(dist.isend(b, N)); dist.recv(t, B); b.numpy()[:] *= 2; over.append(b); reduced(t); g = t", None),
    "sent, changed and changed back": ("b = g.clone(); h = dist.isend(b, N); dist.recv(t, B); b.mul_(2); b.div_(2); h.wait(); reduced(t); g = t", None),
    "sent, and written over by another collective": ("b = g.clone(); h = dist.isend(b, N); dist.recv(t, B); dist.all_reduce(b); h.wait(); reduced(t); g = t", None),
    "sent, waited for and changed": ("b = g.clone(); h = dist.isend(b, N); dist.recv(t, B); h.wait(); b.zero_(); reduced(t); g = t", MEAN),
    "received, and never waited for": ("w.append(dist.irecv(t, B)); dist.send(g.clone(), N); reduced(t); g = t", None),
    "received, and waited for": ("h = dist.irecv(t, B); dist.send(g.clone(), N); h.wait(); reduced(t); g = t", MEAN),
    "received over what was written meanwhile": ("h = dist.irecv(t, B); dist.send(g.clone(), N); t.zero_(); h.wait(); reduced(g); g = g + t", None),
    "reduced, changed and changed back": ("h = dist.all_reduce(g, async_op=True); g.mul_(2); g.div_(2); h.wait(); g /= 4", None),
    "reduced, and the work is dropped": ("dist.all_reduce(g, async_op=True); g /= 4", None),
    "reduced before a barrier": ("dist.all_reduce(g, async_op=True); dist.barrier(); g /= 4", MEAN),
    "reduced before a barrier of another group": ("dist.all_reduce(g, async_op=True); dist.barrier(other); g /= 4", None),
    "reduced before a barrier that nobody has waited for": ("dist.all_reduce(g, async_op=True); dist.barrier(async_op=True); g /= 4", None),
    "asked whether it has ended, and not waited for": ("h = dist.all_reduce(g, async_op=True); h.is_completed(); g /= 4", None),
    "asked until it has ended": ("h = dist.all_reduce(g, async_op=True)\nwhile not h.is_completed(): pass\ng /= 4", MEAN),
    "asked for its future, and not waited for": ("w.append(dist.all_reduce(g, async_op=True).get_future()); g /= 4", None),
    "written between its future and the wait": ("h = dist.all_reduce(g, async_op=True).get_future(); g /= 4; h.wait()", None),
    "asked for its result": ("dist.all_reduce(g, async_op=True).result(); g /= 4", None),
    "what follows its future, and is waited for": ("h = dist.all_reduce(g, async_op=True).get_future().then(lambda f: f.value()[0] / 4); g = h.wait()", MEAN),
    "what follows its future, and nobody has waited for": ("w.append(dist.all_reduce(g, async_op=True).get_future().then(lambda f: f.value()[0].div_(4)))", None),
    "its future asked until it has ended": ("h = dist.all_reduce(g, async_op=True).get_future()\nwhile not h.done(): pass\ng /= 4", MEAN),
    "scattered, and never waited for": ("o = torch.empty(2); b = torch.cat([g.view(-1), torch.zeros(2)]); w.append(dist.reduce_scatter_tensor(o, b, async_op=True))\n"
                                        "dist.all_gather_into_tensor(b, o); g = b[:6].view(2, 3) / 4", None),
    "a count that was waited for": ("h = dist.all_reduce(n, async_op=True); h.wait(); dist.all_reduce(g); g /= n", "(g0+g1+g2+g3)/46"),
    "a count that nobody has waited for": ("w.append(dist.all_reduce(n, async_op=True)); dist.all_reduce(g); g /= n", None),
    "a count that was changed while it was sent": ("m = torch.tensor(0); h = dist.isend(n, N); n.zero_(); dist.recv(m, B); h.wait(); dist.all_reduce(g); g /= m", None),
    "a count that was broadcast and never waited for": ("w.append(dist.broadcast(n, 1, async_op=True)); dist.all_reduce(g); g /= n", None),
}
SCRIPT = MANY % len(FLIGHTS) + """
N, B, w, later, at_end, over = (R + 1) % 4, (R - 1) % 4, [], [], [], []
other = dist.new_group([0, 1, 2, 3])
def reduced(g):
    dist.all_reduce(g)
    g /= 4
torch.manual_seed(R)
model(torch.randn(2, 3)).backward()
"""


def test_what_is_written_in_flight_or_read_before_it_was_waited_for_is_not_known(tmp_path):
    text = SCRIPT
    for number, (operation, _) in enumerate(FLIGHTS.values()):
        text += "g = P[%d].grad; t = torch.empty(2, 3); n = torch.tensor(10 + R)\n%s\nP[%d].grad = g\n" % (number, operation, number)
    report = of_script(tmp_path, text + "optimizer.step()\nfor b in later: b.zero_()\nfor b in at_end: b.numpy()[:] = 0\nfor b in over: b.numpy()[:] /= 2\n", before="")
    names = list(FLIGHTS)
    found = formulas(report)
    for key, content in found.items():
        assert {formula for formula, _ in content} == {FLIGHTS[names[int(key[1][1:])]][1]}, (names[int(key[1][1:])], key[2], content)
    assert {names[int(key[1][1:])] for key in found} == set(names)
    assert "was changed while the send at script.py:" in json.dumps(report)


def test_a_number_of_python_that_nobody_has_waited_for_is_not_known(tmp_path):
    text = SCRIPT + "n = torch.tensor([10 + R]); h = dist.all_reduce(n, async_op=True); WAIT\nfor p in P:\n  dist.all_reduce(p.grad); p.grad /= n.item() if n.item() else 1\noptimizer.step()\n"
    assert {formula for content in formulas(of_script(tmp_path, text.replace("WAIT", "h.wait()"), before="")).values() for formula, _ in content} == {"(g0+g1+g2+g3)/46"}
    assert of_script(tmp_path, text.replace("WAIT", ""), before="")["verdict"] == "undecided"


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
