# SPDX-License-Identifier: Apache-2.0
"""What counts for `lockstep extract` as waiting for an asynchronous collective: all that waits on some backend, and nothing else."""

import pytest

from test_extract import Extraction, judged, script
from torch_ranks import nightly_but, torch_python

pytestmark = pytest.mark.skipif(torch_python() is None, reason="no Python with torch (LOCKSTEP_TORCH_PYTHON names one)")

TEXT = """
import threading
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 3)).sum().backward()
flat = torch.cat([p.grad.view(-1) for p in model.parameters()])
work = dist.all_reduce(flat, async_op=True)
%s
flat /= dist.get_world_size()
for p, part in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
    p.grad.copy_(part.view_as(p))
optimizer.step()
"""
WAITS = {
    "the work": ("work.wait()", "match"),
    "its future": ("work.get_future().wait()", "match"),
    "what is made of its future": ("work.get_future().then(lambda future: future.value()).wait()", "match"),
    "several futures": ("torch.futures.wait_all([work.get_future()])", "match"),
    "one of several futures": ("torch.futures.collect_all([work.get_future()]).wait()", "match"),
    "several of which nobody waits": ("torch.futures.collect_all([work.get_future()])", "mismatch"),
    "the accelerator": ("torch.accelerator.synchronize()", "match"),
    "nothing": ("pass", "mismatch"),
    # Nothing says what the other thread has done by then.
    "an event of Python's": ("done = threading.Event(); work.get_future().add_done_callback(lambda _: done.set()); done.wait()", "undecided"),
}


@pytest.mark.parametrize("name", nightly_but(list(WAITS), ["several futures", "several of which nobody waits", "an event of Python's"]))
def test_what_counts_as_a_wait(tmp_path, name):
    text, verdict = WAITS[name]
    done = Extraction(tmp_path / "step.json", script(tmp_path, TEXT % text), loss="local_mean")
    assert done.status == 0, done.said
    assert judged("check", tmp_path / "step.json")["verdict"] == verdict
