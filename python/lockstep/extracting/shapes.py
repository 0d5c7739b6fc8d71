# SPDX-License-Identifier: Apache-2.0
"""Shapes of what torch's own operations on DTensors give. Before each, a DTensor has torch work out its result's shape, strides and type as a whole, from those
of its arguments as wholes: they are the same on every rank, and a process that plays one rank alone would work out each of them anew. What the first rank
has found is given to the others here. How a result is sharded, and all that is in it, each rank finds by itself.
"""

import torch

from lockstep.extracting import shims

PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
known = {}  # by text: [shape, strides, type]
found = {}  # the same, of those that this process has worked out


def text_of(argument, spec):
    """None of what may say something else on another rank."""
    if isinstance(argument, spec):
        meta = argument.tensor_meta
        if meta is None or any(type(size) is not int for size in (*meta.shape, *meta.stride)):
            return None
        return "%s %s %s %s" % (list(meta.shape), list(meta.stride), meta.dtype, argument.mesh.device_type)
    if type(argument) in (list, tuple):
        parts = [text_of(one, spec) for one in argument]
        return None if None in parts else "(%s)" % ", ".join(parts)
    return repr(argument) if type(argument) in PLAIN else None


def key_of(schema, spec):
    """None where the operation is not one of torch's own."""
    if schema.op.namespace != "aten":
        return None
    arguments = text_of(tuple(schema.args_schema), spec)
    keys = text_of(tuple(part for pair in sorted(schema.kwargs_schema.items()) for part in pair), spec)
    return None if arguments is None or keys is None else "%s %s %s %s" % (schema.op, torch.get_default_dtype(), arguments, keys)


@shims.of("torch.distributed.tensor._sharding_prop")
def worked_out_once(module):
    """Has the meta kernel of each operation run on each rank, with other shapes again."""
    propagator, meta = module.ShardingPropagator, module.TensorMeta
    original = getattr(propagator, "_propagate_tensor_meta_non_cached", None)
    if original is None or not hasattr(module, "_are_we_tracing"):
        return

    def propagate(self, schema):
        key = key_of(schema, module.DTensorSpec) if not module._are_we_tracing() else None
        if key in known:
            shape, strides, kind = known[key]
            return meta(torch.Size(shape), tuple(strides), getattr(torch, kind))
        result = original(self, schema)
        if key is not None and isinstance(result, meta):
            found[key] = [list(result.shape), list(result.stride), str(result.dtype).replace("torch.", "")]
        return result
    propagator._propagate_tensor_meta_non_cached = propagate
