# SPDX-License-Identifier: Apache-2.0
"""What autograd's graph says of a loss: of what it is a mean or a sum, and what that is multiplied with."""

from math import prod

import torch

# What yields a mean, with `_saved_reduction` 1 where there are others.
MEANS = {"MeanBackward0", "MeanBackward1", "NllLossBackward0", "NllLoss2DBackward0", "MseLossBackward0", "BinaryCrossEntropyBackward0",
         "BinaryCrossEntropyWithLogitsBackward0", "SmoothL1LossBackward0", "HuberLossBackward0"}
MEAN, SUM = 1, 2  # `_saved_reduction` of these
# What hands a number on.
SAME = {"ToCopyBackward0", "ViewBackward0", "ReshapeAliasBackward0", "SqueezeBackward0", "UnsqueezeBackward0", "CloneBackward0", "AliasBackward0"}
SINK = "_DDPSinkBackward"  # through which DistributedDataParallel hands on all that its model returns
SCALES = ("DivBackward0", "MulBackward0")
MOST_TERMS = 64
# What elements of a loss are made by, of which nothing before that is a factor on the loss.
ELEMENTS = MEANS - {"MeanBackward0", "MeanBackward1"} | {"PowBackward0", "AbsBackward0", "LogSoftmaxBackward0", "LogBackward0",
                                                        "LogSigmoidBackward0", "SoftplusBackward0", "LogsumexpBackward0"}
# What hands elements on, adds them up, or takes some of them.
WITHIN = SAME | {"MeanBackward0", "MeanBackward1", "SumBackward0", "SumBackward1", "NegBackward0", "GatherBackward0", "SelectBackward0", "SliceBackward0",
                 "IndexBackward0", "TransposeBackward0", "PermuteBackward0", "UnsafeViewBackward0", "ExpandBackward0"}


def only_input_of(node):
    following = [one for one, _ in node.next_functions if one is not None]
    return following[0] if len(following) == 1 else None


def number_of(node):
    """What a tensor is multiplied with or divided by; None where that is no single number on the CPU."""
    other = getattr(node, "_saved_other", None)
    return float(other) if isinstance(other, torch.Tensor) and other.numel() == 1 and other.device.type == "cpu" else None


def scaled_from(node, factor):
    """Of a node that scales a number or hands it on: the node before, and the factor with what this one makes of it. None where it does something else."""
    name = type(node).__name__
    other = number_of(node) if name in SCALES else 1.0 if name in SAME else None
    return (only_input_of(node), factor / other if name == "DivBackward0" else factor * other) if other else None


def is_scaled_within(mean):
    """Whether each element that a mean is made of was multiplied by a number before: a script may divide there as well."""
    node = only_input_of(mean)
    while node is not None and type(node).__name__ in (*SCALES, *SAME):
        if type(node).__name__ in SCALES and number_of(node) not in (None, 1.0):
            return True
        node = only_input_of(node)
    return False


def is_one(tensor):
    """Whether a tensor that elements are multiplied with is 1 everywhere, as far as it is there to be read."""
    return isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu" and bool((tensor == 1).all())


def is_plain(mean):
    """Whether nothing is known to multiply or divide the elements that a mean is made of, down to what makes them elements of a loss."""
    left, seen = [one for one, _ in mean.next_functions if one is not None], 0
    if "Nll" in type(mean).__name__:  # of log-softmax, whose own inputs' scale is no factor
        return all(type(one).__name__ in ("LogSoftmaxBackward0", *SAME) for one in left)
    if type(mean).__name__ in ELEMENTS:
        return True
    while left:
        node, seen = left.pop(), seen + 1
        name = type(node).__name__
        if name in ELEMENTS:
            continue
        is_number = name in SCALES and is_one(getattr(node, "_saved_other", None))
        is_sum = name in ("AddBackward0", "SubBackward0") and getattr(node, "_saved_alpha", None) == 1
        following = [one for one, _ in node.next_functions if one is not None]
        if seen > MOST_TERMS or not following or not (name in WITHIN or is_number or is_sum):
            return False
        left += following
    return True


def numbers_of(root):
    """By what a loss is multiplied or divided after its reduction, the last first, each as (name of the operation, number)."""
    node, found = root.grad_fn, []
    while node is not None and type(node).__name__ in (*SCALES, *SAME):
        if type(node).__name__ in SCALES:
            found.append((type(node).__name__, number_of(node)))
        node = only_input_of(node)
    return found


def mean_of(root):
    """The mean that term_of() finds; None where there is none."""
    node, place = root.grad_fn, root.output_nr
    while node is not None and reduction_of(node) is None:
        edges = node.next_functions
        known = [one for one, _ in edges if one is not None]
        node, place = edges[place] if type(node).__name__ == SINK and place < len(edges) else (known[0], 0) if known else (None, 0)
    return node


def reduction_of(node):
    """Whether it yields a mean or a sum of elements; None where it is not known to be either."""
    name = type(node).__name__
    return getattr(node, "_saved_reduction", MEAN) if name in MEANS else SUM if name in ("SumBackward0", "SumBackward1") else None


def elements_of(node):
    """Of how many elements it is a mean or a sum, those that are ignored left out; None where the graph does not say it."""
    sizes, weight = getattr(node, "_saved_self_sym_sizes", None), getattr(node, "_saved_total_weight", None)
    if sizes is not None:
        return prod(map(int, sizes))
    if "Nll" in type(node).__name__:
        return float(weight) if isinstance(weight, torch.Tensor) and weight.device.type == "cpu" and reduction_of(node) == MEAN else None
    values = getattr(node, "_saved_self", None)
    return values.numel() if isinstance(values, torch.Tensor) else None


def last_divisor(root):
    """By what a loss is divided last of all, but for a scale that it is multiplied with after that; None where it is not."""
    node = root.grad_fn
    while node is not None and type(node).__name__ in (*SCALES, *SAME):
        if type(node).__name__ == "DivBackward0":
            return number_of(node)
        node = only_input_of(node)
    return None


def term_of(root):
    """Whether this loss is a mean or a sum of elements, what that is multiplied with, and the elements of a sum where they are known; None where the graph
    does not say that it is one."""
    node, place, factor = root.grad_fn, root.output_nr, 1.0
    while node is not None:
        if reduction_of(node) is not None:
            return None if is_scaled_within(node) else (reduction_of(node), factor, elements_of(node))
        edges = node.next_functions
        if type(node).__name__ == SINK:
            node, place = edges[place] if place < len(edges) else (None, 0)
            continue
        scaled = scaled_from(node, factor)
        node, factor = scaled if scaled is not None else (None, 0)
        place = next((place for one, place in edges if one is not None), 0)
    return None


def terms_of(root):
    """What this loss adds up: of each whether it is a mean or a sum of elements, and what that is multiplied with; None where the graph does not say it."""
    found, left = [], [(root.grad_fn, 1.0)]
    while left:
        node, factor = left.pop()
        if len(found) + len(left) > MOST_TERMS:
            return [None]
        if reduction_of(node) is not None:
            found.append(None if is_scaled_within(node) else (reduction_of(node), factor))
        elif (one := scaled_from(node, factor)) is not None:
            left.append(one)
        elif type(node).__name__ == "AddBackward0" and getattr(node, "_saved_alpha", None) == 1:
            left += [(one, factor) for one, _ in node.next_functions if one is not None]
        else:
            found.append(None)
    return found
