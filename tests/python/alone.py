# SPDX-License-Identifier: Apache-2.0
"""For test_alone.py, on a Python with torch: captures in one process whose ends or optimizers are not the plain ones."""

import atexit
import contextlib
import functools
import gc
import os
import resource
import sys
import threading
from unittest.mock import patch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch

import lockstep
from lockstep import measuring, pieces
from lockstep.places import Row


def linear():
    model = torch.nn.Linear(2, 1, bias=False)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def train(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2)).backward()
    optimizer.step()


def attached(folder, name, model, optimizer):
    return lockstep.attach(model, optimizer, out=os.path.join(folder, name), report=False)


def closed_in_another_order(folder):
    (model, optimizer), plain = linear(), (torch.autograd.backward, torch.nn.utils.clip_grad_value_)
    first, second, third = (attached(folder, name, model, optimizer) for name in ("first", "second", "third"))
    first.close()
    train(model, optimizer)
    second.close()
    train(model, optimizer)
    assert torch.autograd.backward is not plain[0]
    third.close()
    train(model, optimizer)
    assert (torch.autograd.backward, torch.nn.utils.clip_grad_value_) == plain, "closed captures are left around torch's functions"


def closed_below_another_wrapper(folder):
    """Whoever has wrapped torch's function after the capture began keeps what he has put there."""
    (model, optimizer), plain, passes = linear(), torch.autograd.backward, []
    run = attached(folder, "below", model, optimizer)
    ours = torch.autograd.backward

    @functools.wraps(ours)
    def backward(*arguments, **keys):
        passes.append(1)
        return ours(*arguments, **keys)

    torch.autograd.backward = backward
    later = attached(folder, "above", model, optimizer)
    run.close()
    later.close()
    train(model, optimizer)
    assert torch.autograd.backward is backward and len(passes) == 1
    torch.autograd.backward = plain


def told_after_the_end(folder):
    model, optimizer = linear()
    run = attached(folder, "told", model, optimizer)
    for step in range(3):
        with run.micro_batch(tokens=2):
            train(model, optimizer)
        if step == 1:
            run.close()


def clipped_by_a_norm_known_before(folder):
    model, optimizer = linear()
    run = attached(folder, "norm", model, optimizer)
    model(torch.ones(2)).backward()
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), 0.5, torch.tensor(2.0))
    assert model.weight.grad.max() < 0.5
    optimizer.step()
    run.close()


class Derived(torch.optim.SGD):
    def step(self, closure=None):
        if closure is not None:
            closure()
        return super().step()


def stepped_by_the_base_class(folder):
    """torch wraps the step of each class of which an optimizer was made."""
    linear()
    model, _ = linear()
    optimizer = Derived(model.parameters(), lr=0.1)
    run = attached(folder, "derived", model, optimizer)

    def raises():
        raise ArithmeticError

    for closure in (None, raises, None):
        optimizer.zero_grad()
        model(torch.ones(2)).backward()
        with contextlib.suppress(ArithmeticError):
            optimizer.step(closure)
    run.close()


def clipped_one_after_the_other(folder):
    models, optimizers = zip(linear(), linear())
    run = attached(folder, "clipped", torch.nn.ModuleList(models), list(optimizers))
    for _ in range(2):
        for model, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
            model(torch.ones(2)).backward()
            torch.nn.utils.clip_grad_norm_((tensor for tensor in model.parameters()), 1.0)
            assert abs(model.weight.grad.norm() - 1) < 1e-3
            torch.nn.utils.clip_grad_value_(parameters=iter([model.weight]), clip_value=0.5)
            assert model.weight.grad.max() == 0.5
            optimizer.step()
    run.close()


def forked(folder):
    model, optimizer = linear()
    run = attached(folder, "forked", model, optimizer)
    model(torch.ones(2)).backward()
    child = os.fork()
    if child == 0:
        train(model, optimizer)
        run.close()
        atexit._run_exitfuncs()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    optimizer.step()
    run.close()


def modes_left_in_another_order():
    from lockstep.collectives import Collectives
    from torch.utils._python_dispatch import _get_current_dispatch_mode
    from torch.utils.flop_counter import FlopCounterMode

    mode = Collectives(None)
    mode.__enter__()
    with FlopCounterMode(display=False) as counter:
        mode.leave()
        torch.ones(2, 2) @ torch.ones(2, 2)
    assert counter.get_total_flops() == 16
    mode.leave()
    first, second = Collectives(None), Collectives(lambda found: None)
    first.__enter__()
    second.__enter__()
    first.leave()
    second.leave()
    assert _get_current_dispatch_mode() is None, "the mode of a capture that was closed is left"


def rows_of_two_threads(folder):
    """As autograd does for two devices, hooks of several threads at once."""
    model = torch.nn.ParameterList(torch.ones(64 * number) for number in range(1, 9))
    run = attached(folder, "threads", model, torch.optim.SGD(model.parameters(), lr=0.1))
    run.begin_backward()
    run.depth = 1

    def contribute(some):
        for parameter in some:
            run.contribute(parameter, torch.full(parameter.shape, 1.0 + parameter.number))

    threads = [threading.Thread(target=contribute, args=(run.adapter.parameters.all[part::2],)) for part in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.depth = 0
    run.pending.reverse()  # in whichever order they came
    run.settle()
    run.close()


def places_are_shared_and_bounded():
    gc.collect()
    begin = pieces.known.elements
    device, size = torch.device("cpu"), pieces.KEPT // 2
    same = [pieces.whole([2, size // 2])[0], pieces.whole([size])[0]]
    first, second = (piece.places((0, size), device) for piece in same)
    assert first is second is same[0].places((0, size), device), "equal pieces have places of their own"
    boxes = [pieces.Piece([size, 4], box=[(0, size), (0, 1)]), pieces.Piece([size, 8], box=[(0, size), (0, 1)])]
    strides = [piece.places(piece.box, device).indices[1] for piece in boxes]
    assert strides == [4, 8], "pieces of different parameters have the same places"
    others = [pieces.whole([size + 1 + number])[0] for number in range(2 * pieces.ALL_KEPT // size)]
    for piece in others:
        piece.places(piece.range, device)
    assert pieces.ALL_KEPT / 2 < pieces.known.elements <= pieces.ALL_KEPT
    del first, second, same, boxes, others, piece
    gc.collect()
    assert pieces.known.elements == begin and begin == 0, "places are kept after their pieces"


def measured_on_a_device():
    """In parts that need little beside a large gradient."""
    large = torch.ones(1 << 24)
    places = Row(0, large.numel(), large.device)
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with patch.dict(measuring.AT_ONCE, cpu=measuring.AT_ONCE_ON_DEVICES):
        measuring.measure(large, places, 128, 0)
    megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begin) / 1024
    assert megabytes < 700, "measuring 64 MB took %d MB" % megabytes


def a_name_that_is_no_text(folder):
    model = torch.nn.Module()
    model.register_parameter("caf\u00e9\udcff", torch.nn.Parameter(torch.ones(2)))
    attached(folder, "name", model, torch.optim.SGD(model.parameters(), lr=0.1)).close()


def stepped_with_a_closure(folder):
    model, optimizer = linear()
    run = attached(folder, "closure", model, optimizer)
    for number in (1.0, 2.0):
        def closure():
            optimizer.zero_grad()
            model(torch.full((2,), number)).backward()
        optimizer.step(closure)
    run.close()


def differentiated_without_adding(folder):
    model, optimizer = linear()
    run = attached(folder, "grad", model, optimizer)
    torch.autograd.grad(model(torch.ones(2)), model.weight)
    train(model, optimizer)
    run.close()


def replaced(folder):
    """The files of an earlier run on two ranks, and one that is of no run."""
    name = os.path.join(folder, "replaced")
    os.makedirs(name)
    for other in ("rank-00000.step-00007.safetensors", "rank-00001.jsonl", "rank-00001.step-00000.safetensors", "rank-00001.txt"):
        open(os.path.join(name, other), "w").close()
    model, optimizer = linear()
    for left in ("rank-00001.jsonl", "rank-00001.step-00000.safetensors", "rank-00000.step-00007.safetensors"):
        try:
            attached(folder, "replaced", model, optimizer)
            raise AssertionError("another run's files were replaced: " + left)
        except lockstep.CaptureError as error:
            assert "holds the files of another run" in str(error), error
        assert os.path.exists(os.path.join(name, left))
    run = lockstep.attach(model, optimizer, out=name, report=False, overwrite=True)
    train(model, optimizer)
    run.close()


def main():
    folder = sys.argv[1]
    replaced(folder)
    places_are_shared_and_bounded()
    measured_on_a_device()
    closed_in_another_order(folder)
    closed_below_another_wrapper(folder)
    told_after_the_end(folder)
    clipped_by_a_norm_known_before(folder)
    stepped_by_the_base_class(folder)
    clipped_one_after_the_other(folder)
    forked(folder)
    modes_left_in_another_order()
    rows_of_two_threads(folder)
    a_name_that_is_no_text(folder)
    stepped_with_a_closure(folder)
    differentiated_without_adding(folder)


if __name__ == "__main__":
    main()
