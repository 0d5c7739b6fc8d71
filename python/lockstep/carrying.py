# SPDX-License-Identifier: Apache-2.0
"""Which parameters' gradients a tensor has: they are followed from backward, through copies into buckets and casts, to the collectives.

What is followed is memory: a part of a tensor's storage has the gradients of some parameters, in their order. An operation that reads such a
part and writes at least as many elements elsewhere hands them on; a norm, which writes one, does not. A storage is known by its weak reference,
so that memory that was freed and given to another tensor is no mistake.
"""

import torch
from torch.multiprocessing.reductions import StorageWeakRef


def flat(arguments):
    """The tensors in them and in lists of them."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, (list, tuple)):
            yield from flat(argument)


def memory_of(tensor):
    """Its storage and the [first, end) of it, in elements, that the tensor spans; None where it has none."""
    tensor = getattr(tensor, "elem", tensor) if type(tensor).__name__ == "AsyncCollectiveTensor" else tensor
    try:
        storage = tensor.untyped_storage()
        span = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) + 1 if tensor.numel() else 0
        return storage, tensor.storage_offset(), tensor.storage_offset() + span
    except (NotImplementedError, RuntimeError):
        return None


class Carried:
    """Gradients in memory, from one optimizer step to the next."""

    def __init__(self):
        self.storages = {}  # by address: a weak reference that keeps the address, and {(first, end): numbers of parameters}
        self.paused = False

    def clear(self):
        self.storages = {}

    def put(self, tensor, numbers):
        """From now on the tensor has the gradients of these parameters."""
        memory = memory_of(tensor)
        if memory is None or not numbers:
            return
        storage, first, end = memory
        _, parts = self.storages.setdefault(storage._cdata, (StorageWeakRef(storage), {}))
        for other in [part for part in parts if first <= part[0] and part[1] <= end]:
            del parts[other]
        parts[first, end] = tuple(numbers)

    def of(self, tensor):
        """Numbers of the parameters whose gradients, or parts of them, the tensor has, as they follow each other in memory."""
        memory = memory_of(tensor)
        if memory is None or memory[0]._cdata not in self.storages:
            return []
        parts = self.storages[memory[0]._cdata][1]
        return self.once(parts[part] for part in sorted(parts) if part[0] < memory[2] and memory[1] < part[1])

    def of_all(self, tensors):
        return self.once(self.of(tensor) for tensor in tensors)

    @staticmethod
    def once(lists):
        return list(dict.fromkeys(number for numbers in lists for number in numbers))

    def follow(self, function, arguments, keys, result):
        """An operation was executed: what it wrote has the gradients that it read. The norm of one element has as many, and is none."""
        if "norm" in function._schema.name:
            return
        read = list(flat(arguments)) + list(flat(keys.values()))
        carried = [(tensor, numbers) for tensor in read for numbers in [self.of(tensor)] if numbers]
        if not carried:
            return
        if "_foreach_" in function._schema.name:  # a list's tensors are read and written one by one
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
