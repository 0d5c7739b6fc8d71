# SPDX-License-Identifier: Apache-2.0
"""Memory that nobody has written since it was made, and what was set to zero and not written since. What is unwritten holds anything: whoever reads a number
of it has no gradient there, whatever the number is. Here it is one number everywhere, so that what was written past torch's dispatcher tells itself.

Each storage has a plane, a byte for each of its elements, and operations that copy elements copy their bytes.
"""

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from lockstep.carrying import flat, memory_of, storage_of
from lockstep.extracting.contents import Meaning
from lockstep.extracting.rules import JOINS, MOVES, name_of

WRITTEN, UNWRITTEN, ZERO = 0, 1, 2
ANYTHING = 0.6181505918502808  # in float32 both halves of it are what it is in bfloat16: so what was made longer is filled before its type is known
HALF = 0x3F1E
MAKE = {torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default, torch.ops.aten.empty_like.default, torch.ops.aten.new_empty.default,
        torch.ops.aten.new_empty_strided.default}
MAKE_ZEROS = {torch.ops.aten.zeros.default, torch.ops.aten.zeros_like.default, torch.ops.aten.new_zeros.default}
SET_TO_ZERO = {"zero_", "_foreach_zero_"}
STAY = {"mul_", "div_", "_foreach_mul_", "_foreach_div_"}  # anything times a number is anything


def is_plain(tensor):
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided and tensor.device.type == "cpu"


def fill(storage, dtype):
    """What was made longer gets the number of its type where nobody has written since."""
    if dtype not in (torch.float16, torch.float64):
        return
    halves = dtype.itemsize // 2
    count = storage.nbytes() // dtype.itemsize
    untouched = (torch.empty(0, dtype=torch.int16).set_(storage)[:count * halves].view(count, halves) == HALF).all(1)
    torch.empty(0, dtype=dtype).set_(storage)[:count].masked_fill_(untouched, ANYTHING)


class Unwritten:
    """`site()`: where an operation stands in the script."""

    def __init__(self, site):
        self.site = site
        self.storages = {}  # by address: a weak reference, the size of an element in bytes, the plane, and why nothing is known of what is unwritten
        self.writes = {}  # by operation: the places and names of the arguments that it writes

    def begin(self, tensor, kind, place=None):
        """A new tensor is alone in its storage."""
        storage = storage_of(tensor)
        if storage is None or not tensor.is_floating_point() or not is_plain(tensor) or tensor.numel() == 0:
            return
        if kind == UNWRITTEN:
            tensor.fill_(ANYTHING)
        plane = torch.full((storage.nbytes() // tensor.element_size(),), kind, dtype=torch.uint8)
        self.storages[storage._cdata] = StorageWeakRef(storage), tensor.element_size(), plane, self.reason(place) if kind == UNWRITTEN else place

    def grow(self, storage, before):
        """A storage was made longer: as FSDP2 and Megatron do it, from nothing."""
        if before == 0 and storage.device.type == "cpu" and storage.nbytes() and storage.nbytes() % 2 == 0:
            torch.empty(0, dtype=torch.int16).set_(storage).fill_(HALF)
            self.storages[storage._cdata] = StorageWeakRef(storage), None, None, self.reason()
        else:
            self.storages.pop(storage._cdata, None)

    def reason(self, place=None):
        return Meaning("memory that nobody has written, made at %s, is in it" % (place or self.site() or "an unknown place"), "never")

    def view(self, tensor):
        """The plane as the tensor shows it, and the reason; None where nothing is known of its memory."""
        storage = storage_of(tensor)
        found = self.storages.get(storage._cdata) if storage is not None else None
        if found is None or tensor.numel() == 0:
            return None
        if found[1] is None:
            size = tensor.element_size()
            found = self.storages[storage._cdata] = found[0], size, torch.full((storage.nbytes() // size,), UNWRITTEN, dtype=torch.uint8), found[3]
            fill(storage, tensor.dtype)
        if found[1] != tensor.element_size():  # nobody tells the two apart
            self.storages.pop(storage._cdata)
            return None
        place = tensor.elem if hasattr(tensor, "elem") and type(tensor).__name__ == "AsyncCollectiveTensor" else tensor
        if memory_of(place)[2] > found[2].numel() * found[1]:  # it was made longer
            self.storages.pop(storage._cdata)
            return None
        return found[2].as_strided(place.shape, place.stride(), place.storage_offset()), found[3]

    def write(self, tensor, kind=WRITTEN):
        found = self.view(tensor)
        if found is not None:
            found[0].fill_(kind)
        elif kind == ZERO:
            storage = storage_of(tensor)
            if storage is not None and storage.nbytes() == tensor.numel() * tensor.element_size():
                self.begin(tensor, ZERO)

    def of(self, tensor):
        """What of it is unwritten, as a tensor of truths, and why it is not known; None where nothing is."""
        found = self.view(tensor) if is_plain(tensor) and tensor.is_floating_point() else None
        if found is None:
            return None
        which = (found[0] == UNWRITTEN) & (tensor.detach() == torch.tensor(ANYTHING, dtype=tensor.dtype))
        return (which, found[1]) if bool(which.any()) else None

    def of_all(self, tensors):
        """Why nothing is known of tensors all of which is unwritten; None where anything is written."""
        found = [self.of(tensor) for tensor in tensors]
        return found[0][1] if found and all(one is not None and bool(one[0].all()) for one in found) else None

    def mark_all(self, tensors, why):
        for tensor in tensors:
            self.mark(tensor, (torch.ones_like(tensor, dtype=torch.bool), why))

    def are_untouched(self, tensors):
        """Whether nothing was written to them but zeros since they were made."""
        return all(map(self.is_untouched, tensors))

    def is_untouched(self, tensor):
        found = self.view(tensor) if is_plain(tensor) and tensor.is_floating_point() else None
        if found is None:
            return False
        anything = torch.tensor(ANYTHING, dtype=tensor.dtype)
        plane, values = found[0], tensor.detach()
        return bool((((plane == UNWRITTEN) & (values == anything)) | ((plane == ZERO) & (values == 0))).all())

    def sweep(self):
        for address in [address for address, (reference, *_) in self.storages.items() if reference.expired()]:
            self.storages.pop(address)

    # Operations.

    def written_by(self, function, arguments, keys):
        if function not in self.writes:
            self.writes[function] = [(place, argument.name) for place, argument in enumerate(function._schema.arguments)
                                     if argument.alias_info is not None and argument.alias_info.is_write]
        return list(flat([arguments[place] if place < len(arguments) else keys.get(name) for place, name in self.writes[function]]))

    def before(self, function, arguments, keys):
        """What is to be done with the result of an operation; None: nothing."""
        if function in MAKE:
            return lambda result: self.begin(result, UNWRITTEN)
        if function in MAKE_ZEROS:
            return lambda result: self.begin(result, ZERO)
        name, changed = name_of(function), self.written_by(function, arguments, keys)
        if name in SET_TO_ZERO:
            return lambda result: [self.write(tensor, ZERO) for tensor in changed]
        if not self.storages:
            return None
        if name in STAY and len(arguments) == 2 and isinstance(arguments[1], (int, float)) and arguments[1] != 0:
            return self.stay(changed)
        if name in ("copy_", "_foreach_copy_"):
            return self.copies(arguments)
        moved = self.moved(function, name, arguments, keys) if name in MOVES or name.rstrip("_") in MOVES else None
        if moved is None and not changed:
            return None
        return lambda result: self.put(moved, changed, result)

    def stay(self, changed):
        """What was unwritten before the operation is so behind it; what was written past torch's dispatcher is not."""
        before = [(tensor, self.of(tensor)) for tensor in changed]

        def after(result):
            for tensor, found in before:
                plane = self.view(tensor)
                if plane is not None:
                    plane[0].masked_fill_(plane[0] == UNWRITTEN, WRITTEN)
                self.mark(tensor, found)
        return after

    def copies(self, arguments):
        pairs = list(zip(*arguments[:2])) if isinstance(arguments[0], (list, tuple)) else [arguments[:2]]
        planes = []
        for target, source in pairs:
            found = self.of(source) if isinstance(source, torch.Tensor) else None
            planes.append((target, None if found is None else (found[0].expand(target.shape).clone(), found[1])))

        def after(result):
            for target, found in planes:
                self.write(target)
                self.mark(target, found)
        return after

    def mark(self, tensor, found):
        """It has, where that is true, what is unwritten."""
        if found is None or not is_plain(tensor) or not tensor.is_floating_point():
            return
        which, why = found
        if self.view(tensor) is None:
            storage = storage_of(tensor)
            plane = torch.zeros(storage.nbytes() // tensor.element_size(), dtype=torch.uint8)
            self.storages[storage._cdata] = StorageWeakRef(storage), tensor.element_size(), plane, why
        plane, own = self.view(tensor)
        if own is None:
            reference, size, whole, _ = self.storages[storage_of(tensor)._cdata]
            self.storages[storage_of(tensor)._cdata] = reference, size, whole, why
        plane.masked_fill_(which, UNWRITTEN)
        tensor.detach().masked_fill_(which, ANYTHING)  # what another type has made of it

    def moved(self, function, name, arguments, keys):
        """Of what reads unwritten elements and moves elements: which of each result are."""
        outputs = {argument.name for argument in function._schema.arguments if argument.kwarg_only and argument.alias_info is not None}
        read = [tensor for tensor in flat([*arguments, *(value for key, value in keys.items() if key not in outputs)]) if isinstance(tensor, torch.Tensor)]
        found = {id(tensor): self.of(tensor) for tensor in read}
        why = next((one[1] for one in found.values() if one is not None), None)
        if why is None or name not in MOVES:
            return None
        options = {key: value for key, value in keys.items() if key not in ("dtype", "layout", "device", "pin_memory", "non_blocking", "memory_format", *outputs)}

        def plane(value):
            if isinstance(value, torch.Tensor) and (value.is_floating_point() or name in JOINS):
                return found[id(value)][0].to(torch.uint8) if found.get(id(value)) else torch.zeros(value.shape, dtype=torch.uint8)
            return type(value)(plane(one) for one in value) if isinstance(value, (list, tuple)) else value
        try:
            given = [plane(value) for value in (arguments[:2] if name == "constant_pad_nd" else arguments)]
            made = given[0].clone() if name in ("_to_copy", "contiguous") else getattr(torch.ops.aten, name)(*given, **options)
            return why, [one == 1 for one in flat([made])]
        except (RuntimeError, IndexError, TypeError, ValueError):
            return None

    def put(self, moved, changed, result):
        for tensor in changed:
            self.write(tensor)
        if moved is not None:
            for tensor, which in zip(changed or flat([result]), moved[1]):
                if tensor.numel() == which.numel():
                    self.mark(tensor, (which.reshape(tensor.shape), moved[0]))
