# SPDX-License-Identifier: Apache-2.0
"""Random programs of torch operations under the mode that follows gradients exactly: following.py SEED COUNT, on a Python with torch.

Each program is run twice, with other gradients. What is said to be known must come to the numbers that are there in both; what is said to hold
nothing of a gradient must be the same in both. Prints how many elements were known, foreign and not known, and exits 1 with the program that lies.
"""

import os
import random
import sys
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import torch
from torch.testing._internal.two_tensor import TwoTensor

from lockstep.extracting.contents import FOREIGN, KNOWN
from lockstep.extracting.following import Following


@torch.library.custom_op("lockstep_tests::mul", mutates_args=())
def their_mul(tensor: torch.Tensor, number: float) -> torch.Tensor:
    """By the name of one of torch's, it is none of them."""
    return tensor * number * 1.01


@torch.library.custom_op("lockstep_tests::new_sign", mutates_args=())
def their_sign(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.sign()


class Program:
    """Random operations on a pool of tensors; the same seed gives the same operations."""

    def __init__(self, seed, values):
        self.random = random.Random(seed)
        self.values = torch.Generator().manual_seed(values)
        self.constants = torch.Generator().manual_seed(seed)
        self.following = Following(lambda: "here")
        self.pool, self.told = [], []

    def run(self, length):
        choices = [getattr(self, name) for name in sorted(dir(type(self))) if name.startswith("do_")]
        with self.following:
            for _ in range(2):
                self.gradient()
            for _ in range(length):
                operation = self.random.choice(choices)
                self.told.append(operation.__name__)
                try:
                    operation()
                except (IndexError, RuntimeError) as error:  # what torch refuses
                    frames = traceback.extract_tb(error.__traceback__)
                    if not frames[-1].filename.endswith("_ops.py") and "extracting" in frames[-1].filename:
                        raise
                self.pool = self.pool[-12:]
        return self

    def keep(self, *tensors):
        self.pool += [tensor for tensor in tensors if isinstance(tensor, torch.Tensor) and 0 < tensor.numel() <= 400]

    def any(self):
        return self.random.choice(self.pool)

    def two(self):
        """Two tensors of one shape."""
        one = self.any()
        same = [tensor for tensor in self.pool if tensor.shape == one.shape and tensor.dtype == one.dtype]
        return one, self.random.choice(same)

    def number(self):
        return self.random.choice([2, -1, 0.5, 1 / 3, 3, 0.25, 1 / 7, 0.1, 0, torch.tensor(1 / 3).item(), torch.tensor(0.3, dtype=torch.bfloat16).item()])

    def gradient(self):
        shape = self.random.choice([(6,), (2, 3), (4, 3), (2, 2, 3), (12,)])
        dtype = self.random.choice([torch.float32, torch.float32, torch.float64])
        tensor = torch.randn(shape, generator=self.values, dtype=torch.float64).to(dtype)
        with self.following.pause():
            _, content = self.following.memory.source(tensor)
            self.following.memory.put(tensor, content.map(lambda plane: plane.reshape(shape)))
        self.keep(tensor)

    def do_gradient(self):
        self.gradient()

    def do_buffer(self):
        self.keep(torch.zeros(self.random.choice([(12,), (2, 3), (24,)])))

    def do_constant(self):
        self.keep(torch.randn((2, 3), generator=self.constants))

    def do_view(self):
        tensor = self.any()
        ways = [lambda: tensor.reshape(-1), lambda: tensor[: max(1, tensor.shape[0] // 2)], lambda: tensor.t() if tensor.dim() == 2 else tensor,
                lambda: tensor.unsqueeze(0).expand(2, *tensor.shape), lambda: tensor[..., ::2], lambda: tensor.flatten(), lambda: tensor.detach(),
                lambda: tensor.view(torch.int32) if tensor.element_size() == 4 and tensor.dtype == torch.float32 else tensor]
        found = self.random.choice(ways)()
        self.keep(found)

    def do_copy(self):
        tensor = self.any()
        ways = [tensor.clone, tensor.contiguous, lambda: tensor.to(torch.float64), lambda: tensor.to(torch.bfloat16).to(torch.float32),
                lambda: tensor.flip(0), lambda: tensor.repeat(*[2] * max(1, tensor.dim())), lambda: torch.cat([tensor, tensor]), lambda: torch.stack([tensor, tensor], 1),
                lambda: torch.cat([tensor.reshape(-1), torch.tensor([1, 0, 7])]), lambda: torch.stack([tensor, torch.ones_like(tensor, dtype=torch.int64)]),
                lambda: torch.cat([tensor, tensor], out=torch.empty(0, dtype=tensor.dtype)), lambda: tensor.to_sparse().to_dense() if tensor.any() else tensor,
                lambda: torch.view_copy(tensor, torch.int32), lambda: torch.view_copy(tensor, torch.float32), lambda: torch.complex(tensor, tensor).real,
                lambda: tensor.roll(1), lambda: torch.nn.functional.pad(tensor, (0, 1)), lambda: tensor[torch.tensor([0])], lambda: tensor.index_select(0, torch.tensor([0, 0]))]
        if tensor.dtype.is_floating_point:
            self.keep(self.random.choice(ways)())

    def do_norm(self):
        tensor = self.any()
        if tensor.dtype.is_floating_point:
            ways = [lambda: torch._foreach_norm([tensor, tensor])[0], lambda: tensor.norm(), lambda: torch.linalg.vector_norm(tensor, dim=0)]
            self.keep(self.random.choice(ways)())

    def do_decide(self):
        """What is made of the values of gradients."""
        tensor, other = self.two()
        if not tensor.dtype.is_floating_point:
            return
        ways = [lambda: tensor != 0, lambda: tensor > other, lambda: (tensor > 0).to(torch.float32), lambda: tensor.int(), lambda: tensor.argmax(),
                lambda: torch.count_nonzero(tensor), lambda: tensor.sign(), lambda: tensor.isfinite(), lambda: tensor[tensor.reshape(-1).argsort().reshape(-1)[:1] % tensor.shape[0]],
                lambda: tensor.masked_fill(tensor > 0, 0.0), lambda: tensor.sort(-1)[0], lambda: torch.where(tensor > 0, tensor, 0.0)]
        self.keep(self.random.choice(ways)())

    def do_bytes(self):
        """Memory that is read as elements of another size."""
        tensor = self.any()
        if not tensor.dtype.is_floating_point or not tensor.is_contiguous() or tensor.dtype == torch.bfloat16:
            return
        bits = tensor.reshape(-1).view(torch.uint8)
        ways = [lambda: bits.clone().view(tensor.dtype), lambda: bits.zero_(), lambda: bits[:8].fill_(0), lambda: bits[8:].view(torch.float64).clone(),
                lambda: bits.view(torch.float32).mul_(2), lambda: torch.zeros(bits.numel(), dtype=torch.uint8).copy_(bits).view(tensor.dtype)]
        found = self.random.choice(ways)()
        if found.dtype.is_floating_point:
            self.keep(found)

    def do_whole(self):
        """Gradients in whole numbers, and out of them."""
        tensor = self.any()
        if not tensor.dtype.is_floating_point or tensor.dtype == torch.bfloat16:
            return
        whole = torch.zeros(tensor.shape, dtype=self.random.choice([torch.int32, torch.int64]))
        ways = [lambda: whole.copy_(tensor * 100), lambda: torch.zeros_like(tensor).copy_(whole.copy_(tensor * 100)), lambda: torch.sum(tensor * 100, 0, dtype=torch.int64),
                lambda: tensor.view(torch.int32).mul_(2), lambda: torch.cat([whole.copy_(tensor), whole]).to(tensor.dtype)]
        self.keep(self.random.choice(ways)())

    def do_place(self):
        """Where what comes out is written to, and memory that becomes larger."""
        tensor = self.any()
        if not tensor.dtype.is_floating_point or 0 in tensor.stride() or not tensor.is_contiguous():
            return
        number = self.number()
        ways = [lambda: torch.mul(tensor, number, out=tensor), lambda: torch.add(tensor, tensor, out=tensor), lambda: torch.zeros_like(tensor).fill_(tensor.reshape(-1)[0]),
                lambda: torch.ops.aten.zeros_like.out(tensor, out=tensor),
                lambda: tensor.clone().resize_(tensor.numel() + 3)[: tensor.numel()], lambda: torch.zeros(2).resize_(tensor.numel()).copy_(tensor.reshape(-1)),
                lambda: torch.empty(0, dtype=tensor.dtype).set_(tensor), lambda: self.foreach_out(tensor, number)]
        self.keep(self.random.choice(ways)())

    def foreach_out(self, tensor, number):
        out = torch.zeros_like(tensor)
        torch.ops.aten._foreach_mul.Scalar_out([tensor], float(number), out=[out])
        return out

    def do_theirs(self):
        """Operations that are not torch's own, and tensors of other kinds."""
        tensor = self.any()
        if tensor.dtype.is_floating_point:
            ways = [lambda: torch.ops.lockstep_tests.mul(tensor, 2.0), lambda: torch.ops.lockstep_tests.new_sign(tensor), lambda: tensor * torch.tensor(1j),
                    lambda: (TwoTensor(tensor.flatten().clone(), tensor.flatten().clone()) * 2).b]
            self.keep(self.random.choice(ways)())

    def do_copy_into(self):
        target, source = self.any(), self.any()
        if not (target.dtype.is_floating_point and source.dtype.is_floating_point) or target._is_view() and 0 in target.stride():
            return
        flat = target.reshape(-1) if target.is_contiguous() else None
        if flat is not None and flat.numel() >= source.numel():
            at = self.random.randrange(flat.numel() - source.numel() + 1)
            flat[at:at + source.numel()].copy_(source.reshape(-1))

    def do_scale(self):
        tensor, number = self.any(), self.number()
        if not tensor.dtype.is_floating_point or 0 in tensor.stride():
            return
        ways = [lambda: tensor * number, lambda: number * tensor, lambda: tensor.mul_(number), lambda: -tensor, lambda: tensor * torch.tensor(number),
                lambda: torch.mul(tensor, number, out=torch.empty_like(tensor)), lambda: torch._foreach_mul([tensor, tensor], number)[1]]
        if number:
            ways += [lambda: tensor / number, lambda: tensor.div_(number), lambda: tensor.div(torch.tensor(float(number)))]
        self.keep(self.random.choice(ways)())

    def do_add(self):
        one, other = self.two()
        if not one.dtype.is_floating_point or 0 in one.stride():
            return
        number = self.random.choice([1, 2, -1])
        ways = [lambda: one + other, lambda: one - other, lambda: one.add(other, alpha=number), lambda: one.add_(other), lambda: one.sub_(other, alpha=number),
                lambda: torch._foreach_add([one], [other])[0], lambda: torch._foreach_add_([one], [other]), lambda: one + 0, lambda: one + 1]
        self.keep(self.random.choice(ways)())

    def do_clear(self):
        tensor = self.any()
        if tensor.dtype.is_floating_point and 0 not in tensor.stride():
            self.random.choice([tensor.zero_, lambda: tensor.fill_(0), lambda: tensor.fill_(2), lambda: torch._foreach_zero_([tensor])])()

    def do_sum(self):
        tensor = self.any()
        if tensor.dtype.is_floating_point and tensor.dim() > 1:
            self.keep(tensor.sum(0), tensor.sum(-1, keepdim=True), tensor.mean(0), tensor.mean())
        elif tensor.dtype.is_floating_point:
            self.keep(tensor.sum(0), tensor.sum().sum(0))

    def do_other(self):
        one, other = self.two()
        if not one.dtype.is_floating_point or 0 in one.stride():
            return
        ways = [lambda: one * other, lambda: one.square(), lambda: torch.addcmul(one, one, other), lambda: one.abs(), lambda: one.clamp(-1, 1),
                lambda: torch.where(one > 0, one, other), lambda: one.lerp(other, 0.5), lambda: one.norm(), lambda: one.mul_(other), lambda: one.exp_(),
                lambda: torch.maximum(one, other), lambda: one.cumsum(0), lambda: one / one.sum()]
        self.keep(self.random.choice(ways)())


def lies(one, other, known):
    for place, (first, second) in enumerate(zip(one.pool, other.pool)):
        if first.shape != second.shape:
            return "tensor %d: shapes depend on values" % place
        contents = [program.following.memory.of(tensor) for program, tensor in ((one, first), (other, second))]
        marks = [content.marks if content is not None else torch.zeros(first.shape, dtype=torch.int64) for content in contents]
        if not torch.equal(marks[0] > KNOWN, marks[1] > KNOWN):
            return "tensor %d: other elements are known in the second run" % place
        same = (first == second) | (first.isnan() & second.isnan())
        if bool(((marks[0] == FOREIGN) & ~same).any()):
            return "tensor %d: said to hold nothing of a gradient, and differs with them: %s" % (place, first)
        for program, tensor, content in ((one, first, contents[0]), (other, second, contents[1])):
            if content is None:
                continue
            expected, size = program.following.memory.value(content)
            if not tensor.dtype.is_floating_point:
                if tensor.dtype != torch.int32:
                    if bool((content.marks == KNOWN).any()):
                        return "tensor %d: of whole numbers it is said which gradients they are: %s" % (place, tensor)
                    continue
                tensor = tensor.view(torch.float32)  # it can be the bits of one alone
            wrong = (content.marks == KNOWN) & ~((tensor.double() - expected).abs() <= 2.0 ** -5 * size + 1e-30) & tensor.isfinite()
            if bool(wrong.any()):
                return "tensor %d: %s is there, and %s is said" % (place, tensor[wrong], expected[wrong])
        for kind, count in (("known", (marks[0] == KNOWN).sum()), ("foreign", (marks[0] == FOREIGN).sum()), ("not known", (marks[0] > KNOWN).sum())):
            known[kind] = known.get(kind, 0) + int(count)
    return None


def most_kept():
    """Elements of the longest plane that is kept of a large buffer with few gradients in it."""
    program = Program(0, 1)
    with program.following:
        program.gradient()
        gradient = program.pool[0].reshape(-1)
        buffer = torch.empty(1 << 26)
        buffer[:gradient.numel()].copy_(gradient)
        buffer.view(2, -1)[0].narrow(0, 0, gradient.numel()).mul_(2)
    return max(content.marks.numel() for _, _, content in program.following.memory.storages.values())


def main():
    first, count = int(sys.argv[1]), int(sys.argv[2])
    known = {}
    for seed in range(first, first + count):
        programs = []
        for values in (1, 2):
            program = Program(seed, values)
            try:
                program.run(25)
            except Exception:
                print("seed %d: %s" % (seed, program.told))
                raise
            programs.append(program)
        lie = lies(*programs, known)
        if lie:
            print("seed %d: %s\n%s" % (seed, lie, programs[0].told))
            return 1
    if most_kept() > 100:
        print("of a large buffer with few gradients in it %d elements are kept" % most_kept())
        return 1
    print(" ".join("%s %d" % item for item in sorted(known.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
