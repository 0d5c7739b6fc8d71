# SPDX-License-Identifier: Apache-2.0
"""How a script that cuts plain tensors by itself has cut them: what nobody else knows (docs/capture.md)."""

import fnmatch
import itertools

from lockstep.errors import CaptureError, nearest, shown
from lockstep.parameters import is_dtensor
from lockstep.pieces import Piece


def coordinates_of(mesh, rank):
    """By axis of the mesh as the first line of a capture has it: the size, and where the rank is."""
    place, found = mesh["ranks"].index(rank), {}
    for axis, size in reversed(list(zip(mesh["axes"], mesh["sizes"]))):
        found[axis] = (size, place % size)
        place //= size
    return found


def checked(cuts, pattern, coordinates):
    if not isinstance(cuts, dict) or not cuts or not all(isinstance(axis, str) and isinstance(dim, int) for axis, dim in cuts.items()):
        raise CaptureError('shards has %s for "%s": expected for each axis the dimension along which it cuts, such as {"tp": 0}' % (shown(cuts), pattern))
    for axis in cuts:
        if axis not in coordinates:
            raise CaptureError('shards names the axis "%s", which the mesh has not%s; its axes are %s'
                               % (axis, nearest(axis, coordinates), ", ".join(coordinates)))


def cut(parameter, cuts, coordinates):
    """Gives a parameter, of which this rank holds one of equal parts, the shape of the whole and its pieces."""
    dims = len(parameter.shape)
    by_dim = {}
    for axis, dim in cuts.items():
        if not -dims <= dim < dims:
            raise CaptureError('shards cuts dimension %d of "%s", which has %d' % (dim, parameter.name, dims))
        if dim % dims in by_dim:
            raise CaptureError('shards cuts dimension %d of "%s" along two axes' % (dim, parameter.name))
        by_dim[dim % dims] = coordinates[axis]
    local = list(parameter.shape)
    parameter.shape = [size * by_dim.get(dim, (1, 0))[0] for dim, size in enumerate(local)]
    counts = [range(by_dim.get(dim, (1, 0))[0]) for dim in range(dims)]
    boxes = [[(place * size, (place + 1) * size) for place, size in zip(places, local)] for places in itertools.product(*counts)]
    parameter.pieces = [Piece(parameter.shape, box=box) for box in boxes]
    parameter.box = [(by_dim.get(dim, (1, 0))[1] * size, (by_dim.get(dim, (1, 0))[1] + 1) * size) for dim, size in enumerate(local)]
    parameter.placed = list(cuts)


def shards_of(parameters, shards, mesh, rank):
    """Cuts the parameters that a pattern of `shards` names; the first one that does counts."""
    if shards is None:
        return
    if not isinstance(shards, dict) or not all(isinstance(pattern, str) for pattern in shards):
        raise CaptureError('shards is %s: expected a dictionary such as {"*.up.weight": {"tp": 0}}' % shown(shards))
    coordinates = coordinates_of(mesh, rank)
    names = [name for parameter in parameters for name in [parameter.name, *parameter.aliases]]
    for pattern, cuts in shards.items():
        checked(cuts, pattern, coordinates)
        # Of the stages of a pipeline one has what others have not.
        if not fnmatch.filter(names, pattern) and coordinates.get("pp", (1, 0))[0] == 1:
            raise CaptureError('shards names "%s", and no parameter has such a name%s' % (pattern, nearest(pattern, names)))
    for parameter in parameters:
        for pattern, cuts in shards.items():
            if any(fnmatch.fnmatchcase(name, pattern) for name in [parameter.name, *parameter.aliases]):
                if is_dtensor(parameter.held) or len(parameter.pieces) > 1:
                    raise CaptureError('shards names "%s", of which it is known already how ranks hold it' % parameter.name)
                cut(parameter, cuts, coordinates)
                break
