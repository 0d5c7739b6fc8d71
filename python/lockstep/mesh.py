# SPDX-License-Identifier: Apache-2.0
"""The mesh of a run as the first line of a capture has it."""

from math import prod

from lockstep.errors import CaptureError, listed_names, nearest, shown

# Axes by the names that frameworks give them. Ranks along the first see different tokens.
DATA_AXES = {"dp", "ddp", "data", "data_parallel", "fsdp", "hsdp", "dp_replicate", "dp_shard", "replicate", "shard", "batch", "cp", "sp",
             "dp_shard_cp", "dp_cp", "edp", "context", "sequence"}
EXPERT_AXES = {"ep", "expert"}
OTHER_AXES = {"tp", "pp", "ep", "tensor", "model", "pipe", "pipeline", "expert", "mp", "etp"}


def described(mesh, world):
    """{"axes", "sizes", "ranks"} of a DeviceMesh, of a dictionary of sizes (the last axis varies fastest) or of None: data parallel alone."""
    if mesh is None:
        mesh = {"dp": world}
    if isinstance(mesh, dict):
        if "axes" in mesh and "sizes" in mesh:
            result = {"axes": mesh["axes"], "sizes": mesh["sizes"], "ranks": mesh.get("ranks", range(world))}
            if not all(isinstance(value, (list, tuple, range)) for value in result.values()):
                raise CaptureError("mesh is %s: expected lists of its axes, their sizes and its ranks" % shown(mesh))
            result = {key: list(value) for key, value in result.items()}
        else:
            result = {"axes": list(mesh), "sizes": list(mesh.values()), "ranks": list(range(world))}
    elif hasattr(mesh, "mesh"):
        names = mesh.mesh_dim_names
        sizes = list(mesh.shape)
        if names is None:
            raise CaptureError("the mesh has %d ax%s without a name, and whether ranks along it see different tokens is not known: name it with"
                               " init_device_mesh(…, mesh_dim_names=(%s)), or give sizes by name, such as mesh={%s}"
                               % (len(sizes), "is" if len(sizes) == 1 else "es", '"dp",' if len(sizes) == 1 else '"dp", "tp", …',
                                  ", ".join('"%s": %d' % pair for pair in zip(("dp", "tp", "cp", "pp"), sizes))))
        result = {"axes": list(names), "sizes": sizes, "ranks": mesh.mesh.reshape(-1).tolist()}
    else:
        raise CaptureError("mesh is a %s: expected a DeviceMesh or a dictionary of sizes such as {\"dp\": 2, \"tp\": 2}"
                           % type(mesh).__name__)
    if len(result["axes"]) != len(result["sizes"]) or not all(isinstance(size, int) and size > 0 for size in result["sizes"]):
        raise CaptureError("the mesh needs a size of 1 or more for each axis; found %r and %r" % (result["axes"], result["sizes"]))
    if not all(isinstance(axis, str) for axis in result["axes"]) or not all(isinstance(rank, int) for rank in result["ranks"]):
        raise CaptureError("mesh is %s: expected names of axes that are text, and ranks that are numbers" % shown(result))
    if prod(result["sizes"]) != len(result["ranks"]) or sorted(result["ranks"]) != list(range(world)):
        raise CaptureError("the mesh %s has %d places, but there are %d ranks: it must hold each rank once"
                           % (dict(zip(result["axes"], result["sizes"])), prod(result["sizes"]), world))
    return result


def is_over_data(mesh, data_axes, ranks):
    """Whether these ranks see different tokens, of a mesh as described() gives it."""
    seen, places = set(), {rank: place for place, rank in enumerate(mesh["ranks"])}
    for rank in ranks:
        place, coordinates = places[rank], []
        for axis, size in zip(reversed(mesh["axes"]), reversed(mesh["sizes"])):
            if axis in data_axes:
                coordinates.append(place % size)
            place //= size
        seen.add(tuple(coordinates))
    return len(seen) > 1


def data_axes(axes, chosen):
    """The axes along which ranks see different tokens: those chosen, or those whose names are known."""
    if chosen is not None:
        names = listed_names(chosen)
        if names is None:
            raise CaptureError("data_axes is %s: expected a list of names of the mesh's axes, which are %s" % (shown(chosen), ", ".join(axes)))
        for name in names:
            if name not in axes:
                raise CaptureError('data_axes names "%s", which the mesh has not%s; its axes are %s'
                                   % (name, nearest(name, axes), ", ".join(axes)))
        return names
    for name in axes:
        if name not in DATA_AXES and name not in OTHER_AXES:
            raise CaptureError('whether ranks along axis "%s" see different tokens is not known: say data_axes=[…], the axes along which'
                               " they do" % name)
    return [name for name in axes if name in DATA_AXES]
