# SPDX-License-Identifier: Apache-2.0
"""Whether a module computes with the weights that the optimizers have: under FSDP2, which gathers them from shards before, and under DeepSpeed and Megatron-core's
distributed optimizer, which gather them from parts after a step, or before a module computes.

Gradients are followed whatever weights they were computed with. But what is gathered can be told here, where all other ranks are taken to have put in the same
as this one: each rank's part begins with the elements of this rank's shard. Its own part always does.
"""

import torch
import torch.distributed as dist

from lockstep.extracting.merging import FLYING_WEIGHTS, OLD_WEIGHTS, OTHER_WEIGHTS, STRAY_WEIGHTS, UNWRITTEN_WEIGHTS
from lockstep.extracting.numbers import FEW
from lockstep.extracting.parts import gathered, parts_of
from lockstep.extracting.unwritten import ANYTHING
from lockstep.parameters import is_dtensor, local_of


def are_weights(inputs, parameters):
    """Whether tensors hold what this rank has of parameters, one whole after another, as shards are put together to be gathered at once; behind each
    there may be zeros, which make parts as long as those of other ranks."""
    if not inputs or not all(tensor.is_floating_point() for tensor in inputs):
        return False
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in inputs])
    shards = [local_of(one.held).detach().reshape(-1) for one in parameters if isinstance(one.held, torch.Tensor)]
    shards = [one for one in shards if one.device == flat.device]
    found = any(one.numel() == 0 for one in shards)  # of these zeros are all that there is
    shards = sorted((one.to(flat.dtype) for one in shards if 0 < one.numel() <= flat.numel()), key=lambda one: -one.numel())
    first = 0
    while first < flat.numel():
        shard = next((one for one in shards if torch.equal(flat[first:first + one.numel()], one)), None)
        if shard is None and not (found and flat[first] == 0):
            return False
        first, found = first + (1 if shard is None else shard.numel()), True
    return found


def is_told(shards, alike):
    """Whether it is. Not where something of a script's own, such as a type of eight bits, stands between a shard and what is gathered, or where the
    group is one along which members' numbers are looked at."""
    inner = getattr(shards, "_sharded_local_tensor", None)
    if type(inner) not in (torch.Tensor, torch.nn.Parameter) or hasattr(inner, "fsdp_pre_all_gather") or not is_dtensor(shards.sharded_param):
        return False
    return alike is None or not alike.axes or not alike.covers(dist.get_process_group_ranks(shards.mesh_info.shard_process_group))


def differences(shards, before, tensor, alike):
    """Of torch's FSDPParam, the ShardedState in which it was, and the tensor that it puts in the place of its shard: parts that are not what the optimizer has
    of it, each with that. None as well where nobody can tell."""
    if not is_told(shards, alike):
        return
    own, whole, dim, info = local_of(shards.sharded_param.detach()), local_of(tensor.detach()), shards.fsdp_placement.dim, shards.mesh_info
    if whole.untyped_storage().nbytes() == 0:  # it is not there any more
        return
    own = own.to(whole.dtype)
    if getattr(before, "name", "") != "SHARDED" and (whole.shape[dim] % info.shard_mesh_size or own.numel() <= FEW):
        return  # sharded over another group in between: equal parts stay where they are
    size = -(-whole.shape[dim] // info.shard_mesh_size)
    for place in range(min(info.shard_mesh_size, -(-whole.shape[dim] // size) if size else 0)):  # what is left for the others is empty
        # Of few numbers ranks may get what others have really put in.
        length = min(size, whole.shape[dim] - place * size, own.shape[dim]) if own.numel() > FEW or place == info.shard_mesh_rank else 0
        if length > 0 and not torch.equal(whole.narrow(dim, place * size, length), own.narrow(dim, 0, length)):
            yield whole.narrow(dim, place * size, length), own.narrow(dim, 0, length)


def is_gathered(part, alike):
    """Whether nothing but what this rank has comes out. Of few numbers ranks may get what others have really put in."""
    if part.group is None or part.size <= FEW:
        return False
    return alike is None or not alike.axes or not alike.covers(dist.get_process_group_ranks(part.group))


def differs(held, own):
    """Which elements are none of these, nor in a type in which they may have been sent."""
    different = held != own
    for kind in (torch.bfloat16, torch.float16):
        different &= held != own.to(kind).to(held.dtype)
    return different


class Weights:
    """`gathered`: by number of a parameter, what differences() is given. `adapter`: whose parameters they are; `following`: following.Following."""

    def __init__(self, adapter, following):
        self.adapter, self.all, self.unwritten, self.flights = adapter, adapter.parameters.all, following.unwritten, following.flights
        self.gathered, self.old = {}, {}
        self.of_parts = None  # as parts.gathered() gives it; None where it is to be found
        self.left, self.by_hand = {}, {}  # by identity, what a step has left in an optimizer's tensor; by number of a parameter, parts that are something else since
        self.has_stepped = False  # before, weights are what a script has made of them

    def held(self, number):
        return self.all[number].held

    def before_step(self):
        self.old = {number: [local_of(shards.sharded_param.detach()).clone()] for number, (shards, *_) in self.gathered.items()}
        held = {one.number: one.held.detach().reshape(-1) for one in self.all if isinstance(one.held, torch.Tensor) and not is_dtensor(one.held)}
        for number, (whole, _) in gathered(parts_of(self.adapter)).items():
            # What is there, if it is, and what it would be if the parts of now were gathered.
            self.old[number] = [held[number].clone(), whole] if held[number].numel() == whole.numel() else [whole]
        self.of_parts, self.by_hand = None, {}

    def after_step(self, optimizer):
        own = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
        self.left.update({id(part.main): part.main.detach().clone() for part in parts_of(self.adapter) if id(part.main) in own})

    def look_at_parts(self, alike):
        """Where somebody has set an optimizer's tensor since it has stepped, as by a checkpoint, nobody knows what other ranks have."""
        there = [part for part in parts_of(self.adapter) if is_gathered(part, alike)]
        changed = {id(part.main) for part in there if part.count and id(part.main) in self.left and not torch.equal(part.main.detach(), self.left[id(part.main)])}
        buffers = {part.buffer for part in there if part.count and id(part.main) in changed}
        self.by_hand = {part.parameter.number: part for part in there if part.buffer in buffers}
        self.of_parts = gathered([part for part in there if part.buffer not in buffers])

    def parts(self, number, alike):
        """What differs, with what it should be."""
        if number in self.gathered:
            return list(differences(*self.gathered[number], alike))
        if self.of_parts is None and self.has_stepped:
            self.look_at_parts(alike)
        if number not in (self.of_parts or {}):
            return []
        whole, known = self.of_parts[number]
        held = self.held(number).detach().reshape(-1)
        if held.numel() != whole.numel() or held.device != whole.device:  # it is not there
            return []
        different = known & differs(held, whole)
        return [(torch.where(known, held, whole), whole)] if bool(different.any()) else []

    def wrong(self, number, alike):
        """Why a module computes with other weights than the optimizers have, and whether it is certain that nobody means it to: where they are of memory that
        nobody has written, or those of the step before, or weights of other elements. None where it does not."""
        held = self.held(number)
        if type(held) in (torch.Tensor, torch.nn.Parameter) and self.flights.is_over(held.detach()):
            return FLYING_WEIGHTS, True
        parts = self.parts(number, alike)
        if number in self.by_hand:
            part, held = self.by_hand[number], held.detach().reshape(-1)[self.by_hand[number].at:][:self.by_hand[number].count]
            own = part.main.detach().reshape(-1)[part.first:part.first + part.count] if part.count else held
            is_there = held.numel() == own.numel() and held.device == own.device
            return (OTHER_WEIGHTS, False) if is_there and bool(differs(held, own.to(held.dtype)).any()) else None
        if not parts:
            return None
        # What is one number everywhere, and that number, was not written by an operation that should have, either.
        if any(self.unwritten.of(part) is not None or bool((part == ANYTHING).all()) for part, _ in parts):
            return UNWRITTEN_WEIGHTS, True
        if any(are_old(parts, old) for old in self.old.get(number, ())):
            return OLD_WEIGHTS, True
        if number in self.gathered:
            shards = [local_of(one.held).detach().reshape(-1) for one in self.all if isinstance(one.held, torch.Tensor) and one.held.is_floating_point()]
        else:
            shards = [whole[known] for whole, known in self.of_parts.values()]
        if any(has_run_of(part, own, shards) for part, own in parts):
            return STRAY_WEIGHTS, True
        return OTHER_WEIGHTS, False


RUN = 16  # elements; so many that follow each other are not there by chance, whatever values a type has near a scale
MOST_RUNS = 16  # of a part are looked for


def are_telling(values):
    """Whether no script chooses such numbers: of RUN at least more than half differ from each other."""
    return values.numel() >= RUN and torch.unique(values[:RUN]).numel() > RUN // 2


def are_old(parts, old):
    """Whether all that differs is what was there before, in the same place."""
    values = []
    for part, own in parts:
        before = old[tuple(slice(length) for length in own.shape)].to(part.dtype)
        if before.shape != part.shape or not bool((part == before)[part != own].all()):
            return False
        values.append(part[part != own])
    return are_telling(torch.cat(values))


def has_run_of(part, own, shards):
    """Whether elements that follow each other, none of them what it should be, are a piece of one shard. Single ones may be by chance: in bfloat16 a
    shard has nearly every number near its scale."""
    part, differs = part.reshape(-1), (part != own).reshape(-1)
    if part.numel() < RUN:
        return False
    starts = torch.nonzero(differs.unfold(0, RUN, 1).all(1)).reshape(-1)
    runs = [part[start:start + RUN] for start in starts[::-(-starts.numel() // MOST_RUNS) or 1].tolist()]
    runs = [run for run in runs if are_telling(run)]
    return any(has(shard, run) for shard in (one.to(part.dtype) for one in shards if one.device == part.device and one.numel() >= RUN) for run in runs)


def has(shard, run):
    """Whether elements of a shard that follow each other are those of a run."""
    places = torch.nonzero(shard[:shard.numel() - RUN + 1] == run[0]).reshape(-1)
    for place in range(1, RUN):
        places = places[shard[places + place] == run[place]]
    return places.numel() > 0
