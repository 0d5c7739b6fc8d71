# SPDX-License-Identifier: Apache-2.0
"""Which parameters' gradients a tensor has: they are followed from backward, through copies into buckets and casts, to the collectives.

What is followed is memory: a part of a tensor's storage has the gradients of some parameters, in their order. An operation that reads such a
part and writes at least as many elements elsewhere hands them on; a norm, which writes one, does not. A storage is known by its weak reference,
so that memory that was freed and given to another tensor is no mistake.
"""

import bisect

import torch
from torch.multiprocessing.reductions import StorageWeakRef

# What their first argument, or each tensor of it, had is gone.
OVERWRITES = {"copy_", "fill_", "zero_", "_foreach_copy_", "_foreach_zero_"}
# What a script does with a gradient that is about to be reduced; more is the arithmetic of optimizers.
COPIES = {"cat", "clone", "_to_copy", "copy_", "_foreach_copy_", "div", "mul", "stack"}
# What a backward of a script's own does with what it has got from other ranks, beside copies.
COMBINES = {"add", "add_", "sub", "sub_", "neg", "mul_", "div_", "_foreach_add", "_foreach_add_", "_foreach_mul", "_foreach_mul_", "_foreach_div",
            "_foreach_div_", "lerp", "where", "masked_fill", "clamp", "constant_pad_nd"}
# Of a gradient of one element they leave as many, and are none.
REDUCTIONS = {"sum", "mean", "prod", "max", "min", "amax", "amin", "any", "all"}


def flat(arguments):
    """The tensors in them and in lists of them."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, (list, tuple)):
            yield from flat(argument)


def storage_of(tensor):
    """None where it has none."""
    tensor = getattr(tensor, "elem", tensor) if type(tensor).__name__ == "AsyncCollectiveTensor" else tensor
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def memory_of(tensor):
    """Its storage and the [first, end) of it, in bytes, that the tensor spans; None where it has none."""
    tensor = getattr(tensor, "elem", tensor) if type(tensor).__name__ == "AsyncCollectiveTensor" else tensor
    try:
        storage = tensor.untyped_storage()
        span = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) + 1 if tensor.numel() else 0
        first, size = tensor.storage_offset(), tensor.element_size()
        return storage, first * size, (first + span) * size
    except (NotImplementedError, RuntimeError):
        return None


class Parts:
    """What lies where in a storage: parts that do not overlap, in their order. Finding one takes logarithmic time."""

    def __init__(self):
        self.firsts = []
        self.known = {}  # by the first element: the end, and numbers of parameters

    def within(self, first, end):
        """The places in self.firsts of the parts that overlap [first, end)."""
        begin = bisect.bisect_right(self.firsts, first)
        if begin and self.known[self.firsts[begin - 1]][0] > first:
            begin -= 1
        return slice(begin, bisect.bisect_left(self.firsts, end))

    def put(self, first, end, numbers):
        """[first, end) has these now; of a part that reaches beyond it, the rest stays what it was."""
        places = self.within(first, end)
        parts = {first: (end, numbers)}
        for before in self.firsts[places]:
            old_end, old = self.known.pop(before)
            if before < first:
                parts[before] = (first, old)
            if old_end > end:
                parts[end] = (old_end, old)
        self.known.update(parts)
        self.firsts[places] = sorted(parts)

    def of(self, first, end):
        return [self.known[one][1] for one in self.firsts[self.within(first, end)]]


class Carried:
    """Gradients in memory, from one optimizer step to the next. `gradient_of`: by the number of a parameter the tensor that is its gradient now, or
    None: of memory that has several gradients, such as what a reduce-scatter leaves, it is the part that has this one."""

    copies = COPIES

    def __init__(self, gradient_of=None):
        self.gradient_of = gradient_of
        self.storages = {}  # by address: a weak reference that keeps the address, and Parts in bytes
        self.paused = False
        self.copies_alone = False  # no other operation hands them on

    def clear(self):
        self.storages = {}

    def erase(self, tensor):
        """What lay there is gone, if the tensor has all of the memory that it spans."""
        memory = memory_of(tensor)
        if memory is not None and memory[0]._cdata in self.storages and memory[2] - memory[1] == tensor.numel() * tensor.element_size():
            self.storages[memory[0]._cdata][1].put(memory[1], memory[2], ())

    def put(self, tensor, numbers):
        """From now on the tensor has the gradients of these parameters."""
        memory = memory_of(tensor)
        if memory is None or not numbers or memory[1] == memory[2]:
            return
        storage, first, end = memory
        self.storages.setdefault(storage._cdata, (StorageWeakRef(storage), Parts()))[1].put(first, end, tuple(numbers))

    def of(self, tensor):
        """Numbers of the parameters whose gradients, or parts of them, the tensor has, as they follow each other in memory."""
        memory = memory_of(tensor)
        if memory is None or memory[0]._cdata not in self.storages:
            return []
        numbers = self.once(self.storages[memory[0]._cdata][1].of(memory[1], memory[2]))
        return self.one_of(numbers, memory) if len(numbers) > 1 and self.gradient_of is not None else numbers

    def one_of(self, numbers, memory):
        """Of these the one whose gradient lies in this memory; all where that is not known."""
        for number in numbers:
            gradient = self.gradient_of(number)
            own = None if gradient is None else memory_of(gradient)
            if own is not None and own[0]._cdata == memory[0]._cdata and own[1:] == memory[1:]:
                return [number]
        return numbers

    def of_all(self, tensors):
        return self.once(self.of(tensor) for tensor in tensors)

    def left_by_a_collective(self, inputs, written):
        """What it leaves, on this rank, are sums or parts of the gradients that went in. In their own memory they stay where they were."""
        numbers = self.of_all(inputs)
        own = {memory[0]._cdata for memory in map(memory_of, inputs) if memory is not None}
        for tensor in written if numbers else []:
            memory = memory_of(tensor)
            if memory is not None and not (memory[0]._cdata in own and self.of(tensor)):
                self.put(tensor, numbers)

    @staticmethod
    def once(lists):
        return list(dict.fromkeys(number for numbers in lists for number in numbers))

    def follow(self, function, arguments, keys, result):
        """An operation was executed: what it wrote has the gradients that it read. The norm of one element has as many, and is none."""
        name = function._schema.name.replace("aten::", "")
        if self.copies_alone and name not in self.copies:
            return
        if "norm" in name or name.endswith("_like") or name.startswith("new_"):
            return
        if name in REDUCTIONS and isinstance(result, torch.Tensor) and result.numel() == 1:
            return
        if name in OVERWRITES:
            lists = [argument for argument in arguments if isinstance(argument, (list, tuple))]
            for tensor, *read in zip(*lists) if lists else [arguments]:
                numbers = self.of_all(flat(read))
                # gloo copies what a collective yields from memory that nobody saw into its output, when that is waited for.
                if numbers or "copy_" not in name:
                    self.erase(tensor)
                self.put(tensor, numbers)
            return
        read = list(flat(arguments)) + list(flat(keys.values()))
        carried = [(tensor, numbers) for tensor in read for numbers in [self.of(tensor)] if numbers]
        if not carried:
            return
        if "_foreach_" in name:  # a list's tensors are read and written one by one
            lists = [list(argument) for argument in list(arguments) + [result] if isinstance(argument, (list, tuple)) and argument
                     and isinstance(argument[0], torch.Tensor)]
            for together in zip(*lists):
                self.hand_on(together, together)
        else:
            self.hand_on([tensor for tensor, _ in carried], self.written(function, arguments, keys, result))

    @staticmethod
    def written(function, arguments, keys, result):
        given = [(argument, arguments[place] if place < len(arguments) else keys.get(argument.name))
                 for place, argument in enumerate(function._schema.arguments)]
        changed = [value for argument, value in given if argument.alias_info is not None and argument.alias_info.is_write]
        return list(flat(changed)) + list(flat([result]))

    def hand_on(self, read, written):
        numbers = self.of_all(read)
        least = max((tensor.numel() for tensor in read if self.of(tensor)), default=0)
        known = {memory[0]._cdata for memory in map(memory_of, read) if memory is not None and memory[0]._cdata in self.storages}
        for tensor in written:
            memory = memory_of(tensor)
            if memory is None or tensor.numel() < least or tensor.dtype == torch.bool:
                continue
            if memory[0]._cdata not in known or not set(numbers) <= set(self.of(tensor)):  # else it is a view, or was changed in place
                self.put(tensor, numbers)


class Mixed(Carried):
    """What collectives of no parameter's gradient have brought from other ranks within a backward pass, and copies, multiples and sums of it. In the
    place of numbers: who called, the members, and how many elements of each rank it has one beside the other (None where it has added them up)."""

    copies = COPIES | COMBINES

    def __init__(self):
        super().__init__()
        self.copies_alone = True

    def follow(self, function, arguments, keys, result):
        """Adding up over ranks what they have put in leaves as many elements as one of them has; other sums, as of a bias, are the model's own."""
        if function._schema.name in ("aten::sum", "aten::mean"):
            if isinstance(result, torch.Tensor) and result.numel():
                self.put(result, [one for one in self.of(arguments[0]) if one[2] == result.numel()])
            return
        super().follow(function, arguments, keys, result)
