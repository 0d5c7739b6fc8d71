# SPDX-License-Identifier: Apache-2.0
"""What lockstep.carrying knows of memory, against a list with an entry for each byte; and gradients that are followed through operations."""

import os
import random
import sys
from types import SimpleNamespace

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch

from lockstep.carrying import Carried, Parts
from lockstep.collectives import Collectives
from lockstep.scaling import Scaling


def parts_against_bytes(rounds=300):
    random.seed(3)
    compared = 0
    for _ in range(rounds):
        parts, known = Parts(), [None] * 40
        for number in range(random.randint(1, 12)):
            first = random.randrange(40)
            end = random.randint(first + 1, 40)
            parts.put(first, end, (number,))
            known[first:end] = [number] * (end - first)
            assert parts.firsts == sorted(parts.known)
            for _ in range(5):
                first = random.randrange(40)
                end = random.randint(first + 1, 40)
                expected = [one for place, one in enumerate(known[first:end]) if one is not None and one not in known[first:end][:place]]
                assert list(dict.fromkeys(number for numbers in parts.of(first, end) for number in numbers)) == expected
                compared += 1
    return compared


def a_bucket_that_is_used_again():
    carried, bucket = Carried(), torch.zeros(8)
    carried.put(bucket, [1, 2, 3])
    carried.put(bucket[2:4], [4])
    assert carried.of(bucket[2:4]) == [4] and carried.of(bucket[3:5]) == [4, 1, 2, 3] and carried.of(bucket[4:]) == [1, 2, 3]
    assert carried.of(bucket.view(torch.uint8)[8:16]) == [4]  # whatever the elements are taken for


def a_collective_in_its_own_memory():
    """As Megatron reduces and scatters: the rank's part of the buffer keeps the parameters that lie there."""
    carried, bucket, other = Carried(), torch.zeros(8), torch.zeros(4)
    for place in range(4):
        carried.put(bucket[2 * place:2 * place + 2], [place])
    carried.left_by_a_collective([bucket], [bucket[:4], other])
    assert carried.of(bucket[:4]) == [0, 1] and carried.of(other) == [0, 1, 2, 3]


def the_gradient_among_several():
    """As FSDP2's shards lie in what a reduce-scatter has left, which has those of a layer together."""
    flat = torch.zeros(8)
    carried = Carried({1: flat[:3], 2: flat[3:], 3: None}.get)
    carried.put(flat, [1, 2, 3])
    assert [carried.of(tensor) for tensor in (flat[:3], flat[3:], flat, flat[2:5])] == [[1], [2], [1, 2, 3], [1, 2, 3]]


def what_is_scaled():
    """(step, op, number, parameters) of what a script multiplies and divides in place."""
    held = [torch.nn.Parameter(torch.zeros(size)) for size in (3, 4)]
    told = []
    run = SimpleNamespace(active=lambda: True, in_backward=lambda: False, micro=0, step=5, taken=set(), gaps=SimpleNamespace(stepping=None), pending=told,
                          adapter=SimpleNamespace(in_grad=True, parameters=SimpleNamespace(all=[SimpleNamespace(held=one) for one in held])))
    with Collectives(lambda found: None, Scaling(run)) as mode:
        for number, one in enumerate(held):
            one.grad = torch.ones_like(one)
            mode.carried.put(one.grad, [number])
        for one in held:
            one.grad.div_(2)
        held[0].grad.mul_(torch.tensor(0.25))
        torch._foreach_mul_([one.grad for one in held], [3.0, 1.0])
        held[1].grad[:2].mul_(2)  # a part of it
        held[0].grad * 2, held[0].grad.add_(1), held[0].grad.mul_(1), held[0].grad.mul_(-1), torch.ones(3).mul_(2)
        run.taken.add(0)
        held[0].grad.mul_(2)  # what an optimizer gets was looked at
        run.taken.clear()
        run.in_backward = lambda: True
        held[0].grad.mul_(2)
    assert all(event == "scale" and line["call"].startswith("carrying.py:") for event, line, *_ in told)
    return [(line["step"], line["op"], line["by"], line["parameters"]) for _, line, *_ in told]


def operations():
    with Collectives(lambda found: None) as mode:
        gradient, bucket = torch.ones(3), torch.zeros(6)
        mode.carried.put(gradient, [7])
        bucket[:3].copy_(gradient)
        half = bucket.to(torch.bfloat16)
        size = gradient.norm()
        assert [mode.carried.of(tensor) for tensor in (bucket[:3], bucket[3:], half, size)] == [[7], [], [7], []]
        other = torch.ones(2)
        mode.carried.put(other, [8])
        bucket[1:3].copy_(other)  # as DeepSpeed uses a bucket again
        assert [mode.carried.of(tensor) for tensor in (bucket[:1], bucket[1:3], bucket[:3])] == [[7], [8], [7, 8]]
        bucket[1:3].add_(gradient[:2])
        assert mode.carried.of(bucket[1:3]) == [8, 7]
        bucket[1:3].copy_(torch.ones(2))  # as gloo does with its output
        assert mode.carried.of(bucket[1:3]) == [8, 7]
        bucket[:2].fill_(1)
        bucket[2:].zero_()
        assert mode.carried.of(bucket) == []
        torch._foreach_copy_([bucket[:3], bucket[3:5]], [gradient, other])
        assert [mode.carried.of(tensor) for tensor in (bucket[:3], bucket[3:], torch.zeros_like(bucket))] == [[7], [8], []]
        small = torch.ones(1)
        mode.carried.put(small, [9])
        assert [mode.carried.of(tensor) for tensor in (small * small, (small * small).sum(), small.abs().max())] == [[9], [], []]


if __name__ == "__main__":
    a_bucket_that_is_used_again()
    a_collective_in_its_own_memory()
    the_gradient_among_several()
    assert what_is_scaled() == [(5, "div", 2, [0, 1]), (5, "mul", 0.25, [0]), (5, "mul", 3, [0])], what_is_scaled()
    operations()
    print("counted: %d stretches" % parts_against_bytes())
