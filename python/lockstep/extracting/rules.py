# SPDX-License-Identifier: Apache-2.0
"""What operations make of contents (contents.py). Three kinds are known: those that move elements, those that are linear with known factors, and
those whose result is no gradient any more. Whatever else reads a gradient leaves what is not known, with the operation's name and place."""

import contextlib
from fractions import Fraction
from math import isfinite

import torch

from lockstep.carrying import flat, memory_of
from lockstep.extracting.contents import FOREIGN, KNOWN, Content, fraction_of
from lockstep.extracting.squares import NORMS, Squares

# Each element of the result is an element of an argument: the same operation on the planes says which.
MOVES = {
    "clone", "_to_copy", "contiguous", "cat", "stack", "index_select", "gather", "index", "take", "flip", "roll", "repeat", "constant_pad_nd",
    "_chunk_cat", "chunk_cat", "split_with_sizes_copy", "unfold_copy", "expand_copy", "permute_copy", "view_copy", "slice_copy", "t_copy", "transpose_copy", "select_copy",
    "as_strided_copy", "masked_select", "narrow_copy", "alias_copy", "detach_copy", "unsqueeze_copy", "squeeze_copy", "tril", "triu", "lift_fresh_copy",
}
JOINS = {"cat", "stack", "_chunk_cat", "chunk_cat"}  # all tensors that they read are moved; what is no floating point number elsewhere says what is
# Operations of others that are torch's own. What else has such a name may do anything.
OF_ATEN = {"fsdp::chunk_cat": "_chunk_cat", "fsdp::split_with_sizes_copy": "split_with_sizes_copy"}
# They write what they are given, or what comes by chance, over all that was there.
FILLS = {"zero_", "fill_", "_foreach_zero_", "normal_", "uniform_", "random_"}
# They read no values.
FORGETS = {"empty_like", "zeros_like", "ones_like", "rand_like", "randn_like", "full_like", "new_empty", "new_zeros", "new_ones", "new_full",
           "new_empty_strided", "size", "numel", "record_stream", "is_same_size"}
SCALARS = (int, float)


def name_of(function):
    """The operation's name if it is torch's own; "" of others."""
    full = function._schema.name
    return full[len("aten::"):] if full.startswith("aten::") else OF_ATEN.get(full, "")


def scalar(value):
    """A number that all elements of an argument are, and its binary digits; None where they are not one."""
    if isinstance(value, SCALARS):
        return (value, digits_of(value))
    if isinstance(value, torch.Tensor) and value.numel() > 0 and not value.is_complex():
        first = value.reshape(-1)[0]
        if value.numel() == 1 or bool((value == first).all()):
            number = first.item()
            return (number, {torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}.get(value.dtype, digits_of(number)))
    return None


def digits_of(number):
    """The binary digits that a number of Python's has: those of float32 where it came out of one, as of tensor.item()."""
    is_short = isinstance(number, float) and isfinite(number) and Fraction(number).numerator.bit_length() <= 24
    return 24 if is_short else 53


def as_applied(value, kind):
    """A number by which torch multiplies or divides a tensor of that type, and its binary digits: computed in float32, but for float64."""
    found = scalar(value)
    if found is None or kind == torch.float64 or not isinstance(found[0], float) or not isfinite(found[0]):
        return found
    return torch.tensor(found[0], dtype=torch.float32).item(), min(found[1], 24)


def dense(tensor):
    """The tensor itself, or the one that has the numbers of a sparse one."""
    if tensor.layout == torch.strided or tensor.layout == torch._mkldnn:
        return tensor
    return tensor._values() if tensor.layout == torch.sparse_coo else tensor.values()


def is_crowded(tensor):
    """Whether it has an element of memory more than once: what an operation leaves there depends on its order."""
    memory = memory_of(tensor)
    return memory is not None and tensor.numel() * tensor.element_size() > memory[2] - memory[1]


def overlap(one, other):
    """Whether two tensors share memory, and are not the same part of it."""
    first, second = memory_of(one), memory_of(other)
    if first is None or second is None or first[0]._cdata != second[0]._cdata:
        return False
    same = first[1:] == second[1:] and one.stride() == other.stride()
    return not same and first[1] < second[2] and second[1] < first[2]


class Rules:
    """`memory`: contents.Memory; `site()`: where the operation stands in the script, for reasons."""

    def __init__(self, memory, site):
        self.memory, self.site = memory, site
        self.squares = Squares(self)
        self.unwritten_of = lambda tensor: None  # what of a tensor nobody has written, and the reason; None where there is nothing

    def reason(self, name, what=""):
        return "%s at %s%s" % (name, self.site() or "an unknown place", what)

    def content(self, tensor):
        """The content of a tensor that an operation reads as a number: what holds nothing of ours and is 0 is 0; else nobody knows what it is."""
        found = self.memory.of(tensor)
        marks = found.marks if found is not None else torch.zeros(tensor.shape, dtype=torch.int64)
        foreign = marks == FOREIGN
        if bool(foreign.any()):
            zero = (tensor.detach() == 0) if tensor.layout == torch.strided else torch.zeros(tensor.shape, dtype=torch.bool)
            strange = foreign & ~zero
            marks = torch.where(foreign, torch.ones_like(marks), marks)
            unwritten = self.unwritten_of(tensor) if bool(strange.any()) else None
            if unwritten is not None:
                marks = torch.where(strange & unwritten[0], torch.full_like(marks, self.memory.reasons.number(unwritten[1])), marks)
                strange = strange & ~unwritten[0]
            if bool(strange.any()):
                number = self.memory.reasons.number(self.reason("numbers that are no gradients", ", added to gradients"))
                marks = torch.where(strange, torch.full_like(marks, number), marks)
        return Content(marks, found.terms, found.roundoff) if found is not None else Content(marks, [])

    # Before the operation runs: what its results will hold. A list of (tensor or index of the result, content).

    def before(self, function, arguments, keys):
        """What is known before it runs: a function of its result that says what the tensors it wrote hold. None: it reads nothing of ours."""
        given = [dense(tensor) for tensor in [*flat(arguments), *flat(keys.values())]]
        for tensor in given:
            if self.memory.holds(tensor):
                break
        else:
            return None
        name = name_of(function)
        if name in ("set_", "resize_", "detach_", "requires_grad_"):  # they write nothing
            return None
        if function.is_view:  # before it is looked at what is there: it may be the whole of a large buffer
            return self.shows(function, given)
        changed, outputs = self.changed(function, arguments, keys), self.outputs(function, keys)
        inputs = [*flat(arguments), *flat([value for key, value in keys.items() if key not in outputs])]
        own = [tensor for tensor in map(dense, inputs) if self.memory.of(tensor) is not None]
        outputs = list(flat(list(outputs.values())))
        if own and any(tensor.layout != torch.strided for tensor in inputs):
            return self.not_known(function, name, changed, own)
        base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        if not own and base in NORMS:  # of shards that have no element
            found = self.squares.norms(name, base, arguments, keys)
            if found is not None:
                return found
        if not own or name in FORGETS or name.endswith("_like") or name.startswith("new_"):
            return lambda result: [(tensor, None) for tensor in changed]
        if name in ("copy_", "_foreach_copy_"):
            return self.copies(arguments)
        if name in FILLS and not any(self.memory.of(tensor) is not None for tensor in flat(arguments[1:])):
            return lambda result: [(tensor, None) for tensor in changed]
        # A gradient says which elements, or is read as bits; or elements are written several times.
        if any(not tensor.is_floating_point() for tensor in own) or any(map(is_crowded, changed)):
            return self.not_known(function, name, changed, own)
        if name == "_amp_foreach_non_finite_check_and_unscale_":
            return self.unscaled(arguments)
        found = self.squares.rule(name, base, arguments, keys, changed, own) if base not in MOVES else None
        if found is not None:
            return found
        if name.startswith("_foreach_"):
            return self.each(function, name, arguments, keys)
        if base in MOVES and function._overloadname != "dtype":
            with contextlib.suppress(RuntimeError, IndexError, TypeError, ValueError):  # what the operation raises itself, or takes of no planes
                return self.moves(function, name, arguments, keys, outputs)
            return self.not_known(function, name, changed, own)
        linear = {"mul": self.times, "div": self.times, "true_divide": self.times, "neg": self.times, "add": self.plus, "sub": self.plus,
                  "sum": self.total, "mean": self.total}.get(base)
        if linear is not None:
            found = linear(base, arguments, keys)
            if found is not None:
                return lambda result: [(tensor, self.as_number(function, tensor, found)) for tensor in (changed or flat([result]))]
        return self.not_known(function, name, changed, own)

    def in_a_step(self, function, arguments, keys):
        """Within an optimizer's step: what it writes over a gradient is none that a later collective could reduce as it was."""
        changed = [tensor for tensor in self.changed(function, arguments, keys) if self.memory.of(tensor) is not None]
        if not changed or function._schema.name in ("aten::zero_", "aten::_foreach_zero_"):
            return (lambda result: [(tensor, None) for tensor in changed]) if changed else None
        reason = self.reason(function._schema.name, ", in the optimizer's step")
        return lambda result: [(tensor, self.memory.unknown(tensor, reason)) for tensor in changed]

    def changed(self, function, arguments, keys):
        """The tensors that it writes among its arguments."""
        given = [(argument, arguments[place] if place < len(arguments) else keys.get(argument.name))
                 for place, argument in enumerate(function._schema.arguments)]
        return list(flat([value for argument, value in given if argument.alias_info is not None and argument.alias_info.is_write]))

    @staticmethod
    def outputs(function, keys):
        """By key, what it writes and does not read."""
        return {argument.name: keys[argument.name] for argument in function._schema.arguments
                if argument.kwarg_only and argument.alias_info is not None and argument.alias_info.is_write and argument.name in keys}

    def as_number(self, function, tensor, content):
        """The content of a tensor that it was written to; whole numbers and truths lose what makes a gradient one."""
        return content if tensor.is_floating_point() else self.memory.unknown(tensor, self.reason(function._schema.name))

    def shows(self, function, given):
        """A view shows the memory that it lies in. What such an operation leaves elsewhere is not known."""
        storages = {memory_of(tensor)[0]._cdata for tensor in given if self.memory.holds(tensor)}

        def after(result):
            elsewhere = [tensor for tensor in flat([result]) if memory_of(tensor) is not None and memory_of(tensor)[0]._cdata not in storages]
            return [(tensor, self.memory.unknown(tensor, self.reason(function._schema.name))) for tensor in elsewhere]
        return after

    def not_known(self, function, name, changed, own):
        """A view shows the memory that it lies in; anything else that it wrote is not known. The norm of a gradient is no gradient."""
        return self.not_known_of(function._schema.name, changed, own)

    def not_known_of(self, name, changed, own):
        reason = self.known_reason(own) or self.reason(name)
        storages = {memory_of(tensor)[0]._cdata for tensor in own}

        def after(result):
            written = [(tensor, self.memory.unknown(tensor, reason)) for tensor in changed]
            for tensor in flat([result]):
                if any(tensor is one for one in changed):  # else whole numbers and truths as well: what is made of them may be a factor
                    continue
                tensor = dense(tensor)
                memory = memory_of(tensor)
                if memory is not None and memory[0]._cdata not in storages:  # else a view
                    written.append((tensor, self.memory.unknown(tensor, reason)))
            return written
        return after

    def known_reason(self, tensors):
        """Why something that is read is not known, if it is not."""
        for tensor in tensors:
            marks = self.memory.of(tensor).marks
            if bool((marks > KNOWN).all()):
                return str(self.memory.reasons[int(marks.reshape(-1)[0])])  # and nothing more of it
        return None

    def copies(self, arguments):
        if isinstance(arguments[0], (list, tuple)):
            pairs = list(zip(arguments[0], arguments[1]))
        else:
            pairs = [(arguments[0], arguments[1])]
        found = []
        for target, source in pairs:
            content = self.memory.of(source) if isinstance(source, torch.Tensor) else None
            if content is not None and overlap(target, source):  # what comes of it, torch does not say
                found.append((target, self.memory.unknown(target, self.reason("a copy within overlapping memory"))))
            elif content is not None and target.dtype != source.dtype and not (target.is_floating_point() and source.is_floating_point()):
                found.append((target, self.memory.unknown(target, self.reason("a copy of a gradient into whole numbers, or out of them"))))
            else:
                found.append((target, content.map(lambda plane, target=target: plane.expand(target.shape).clone()) if content is not None else None))
        return lambda result: found

    def moves(self, function, name, arguments, keys, outputs):
        """Runs it on the planes of what it reads."""
        tensors = [tensor for tensor in flat(arguments) if tensor.is_floating_point() or name in JOINS]
        contents = {id(tensor): self.memory.of(tensor) for tensor in tensors}
        depth = max(len(content.terms) for content in contents.values() if content is not None)
        roundoff = max(content.roundoff for content in contents.values() if content is not None)
        options = {key: value for key, value in keys.items() if key not in ("dtype", "layout", "device", "pin_memory", "non_blocking", "memory_format", "out")}
        if name == "constant_pad_nd":
            arguments = tuple(arguments[:2])

        operation = getattr(torch.ops.aten, name)

        def run(choose):
            def plane(value):
                if isinstance(value, torch.Tensor):
                    return choose(contents[id(value)], value) if id(value) in contents else value
                if isinstance(value, (list, tuple)):
                    return type(value)(plane(one) for one in value)
                return value
            given = [plane(value) for value in arguments]
            if name in ("_to_copy", "contiguous"):
                return given[0].clone()
            return operation(*given, **options)

        def zeros(value):
            return torch.zeros(value.shape, dtype=torch.int64)

        planes = [run(lambda content, value: content.marks if content is not None else zeros(value))]
        for place in range(depth):
            for part in (0, 1):
                planes.append(run(lambda content, value: content.terms[place][part] if content is not None and place < len(content.terms) else zeros(value)))

        def after(result):
            written = outputs or list(flat([result]))
            made = [list(flat([plane])) for plane in planes]
            found = []
            for place, tensor in enumerate(written):
                own = [plane[place].reshape(tensor.shape) for plane in made]
                content = Content(own[0], [(own[1 + 2 * term], own[2 + 2 * term]) for term in range(depth)], roundoff)
                found.append((tensor, self.as_number(function, tensor, content) if bool(content.marks.any()) else None))
            return found
        return after

    def times(self, base, arguments, keys):
        """A gradient times or over a number."""
        if base == "neg":
            return self.memory.scaled(self.memory.of(arguments[0]), -1)
        if keys.get("rounding_mode") is not None:
            return None
        first, second = arguments[0], arguments[1]
        own = [isinstance(value, torch.Tensor) and self.memory.of(value) is not None for value in (first, second)]
        if own[0] and not own[1]:
            gradient, factor = first, as_applied(second, torch.result_type(first, second))
        elif own[1] and not own[0] and base == "mul":
            gradient, factor = second, as_applied(first, torch.result_type(first, second))
        else:
            return None
        number = fraction_of(*factor) if factor is not None else None
        if number is None or (base != "mul" and number == 0):
            return None
        shape = torch.broadcast_shapes(*(value.shape for value in (first, second) if isinstance(value, torch.Tensor)))
        content = self.content(gradient).map(lambda plane: plane.expand(shape))
        content.roundoff = max(content.roundoff, 2.0 ** (1 - factor[1]))  # of the number itself
        return self.memory.scaled(content, number if base == "mul" else 1 / number)

    def plus(self, base, arguments, keys):
        first, second = arguments[0], arguments[1]
        if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
            other = second if isinstance(first, torch.Tensor) else first
            if scalar(other) is None or scalar(other)[0] != 0:
                return None
            return self.content(first if isinstance(first, torch.Tensor) else second)
        alpha = as_applied(keys.get("alpha", arguments[2] if len(arguments) > 2 else 1), torch.result_type(first, second))
        alpha = fraction_of(*alpha) if alpha is not None else None
        if alpha is None:
            return None
        shape = torch.broadcast_shapes(first.shape, second.shape)
        one, other = (self.content(value).map(lambda plane: plane.expand(shape)) for value in (first, second))
        return self.memory.added(one, self.memory.scaled(other, -alpha if base == "sub" else alpha), self.reason("a sum of too many terms"))

    def total(self, base, arguments, keys):
        """A sum or an average along dimensions, of few elements."""
        tensor = arguments[0]
        dims = arguments[1] if len(arguments) > 1 else keys.get("dim")
        keep = arguments[2] if len(arguments) > 2 else keys.get("keepdim", False)
        dims = list(range(tensor.dim())) if dims is None or dims == [] or not tensor.dim() else \
            [dim % tensor.dim() for dim in ([dims] if isinstance(dims, int) else dims)]
        count = 1
        for dim in dims:
            count *= tensor.shape[dim]
        if count > 64 or count == 0:
            return None
        order = [dim for dim in range(tensor.dim()) if dim not in dims] + dims
        rest = [tensor.shape[dim] for dim in range(tensor.dim()) if dim not in dims]
        parts = self.content(tensor).map(lambda plane: plane.permute(order).reshape(rest + [count]))
        result = parts.map(lambda plane: plane[..., 0])
        for place in range(1, count):
            result = self.memory.added(result, parts.map(lambda plane, place=place: plane[..., place]), self.reason("a sum of too many terms"))
        if base == "mean":
            result = self.memory.scaled(result, Fraction(1, count))
        if keep:
            shape = [1 if dim in dims else size for dim, size in enumerate(tensor.shape)]
            result = result.map(lambda plane: plane.reshape(shape))
        return result

    def unscaled(self, arguments):
        """A loss scaler takes its scale out of gradients, and looks whether they are finite."""
        factor = scalar(arguments[2])
        number = fraction_of(*factor) if factor is not None and self.memory.of(arguments[2]) is None else None
        reason = self.reason("unscaling by what is no number")
        found = [self.memory.unknown(tensor, reason) if number is None else self.memory.scaled(self.content(tensor), number) for tensor in arguments[0]]
        return lambda result: list(zip(arguments[0], found))

    def each(self, function, name, arguments, keys):
        """One of torch's operations on lists: that of each of its tensors."""
        base = name[len("_foreach_"):]
        base = base.rstrip("_")
        lists = [argument for argument in arguments if isinstance(argument, (list, tuple)) and argument and isinstance(argument[0], torch.Tensor)]
        changed = self.changed(function, arguments, keys)
        linear = {"mul": self.times, "div": self.times, "neg": self.times, "add": self.plus, "sub": self.plus}.get(base)
        found = []
        for place in range(len(lists[0])):
            own = [argument[place] if isinstance(argument, (list, tuple)) else argument for argument in arguments]
            tensors = [value for value in own if isinstance(value, torch.Tensor)]
            if not any(self.memory.of(tensor) is not None for tensor in tensors):
                found.append(None)
                continue
            content = linear(base, own, keys) if linear is not None else None
            found.append(content if content is not None else self.reason(function._schema.name))

        def after(result):
            written = changed or list(flat([result]))
            return [(tensor, self.memory.unknown(tensor, content) if isinstance(content, str) else content) for tensor, content in zip(written, found)]
        return after
