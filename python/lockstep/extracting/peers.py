# SPDX-License-Identifier: Apache-2.0
"""The process group of an extraction: this process is one rank, and all others are played (session.py says what comes out of a collective)."""

import math

import torch
import torch.distributed as dist

from lockstep.errors import CaptureError
from lockstep.extracting.contents import fraction_of
from lockstep.extracting.rules import as_applied
from lockstep.extracting.session import together

NAME = "lockstep"
_session = None  # the Session of this process


def reduce_of(opts):
    """The name of the reduction that a collective's opts ask for."""
    operation = opts.reduceOp
    return getattr(operation, "op", operation).name.lower()


class PlayedGroup(dist.ProcessGroup):
    """A process group of `size` ranks in which this process is number `rank`."""

    def __init__(self, rank, size):
        super().__init__(rank, size)
        self.own, self.count, self.before, self.known = rank, size, None, None

    def size(self):
        return self.count

    def rank(self):
        return self.own

    def getBackendName(self):
        return NAME

    @property
    def pg_name(self):
        return dist.distributed_c10d._world.pg_names.get(self)

    @property
    def group_name(self):
        return self.pg_name

    def members(self):
        """Its ranks, a list that stays the same; nobody changes it."""
        if self.known is None:
            known = dist.distributed_c10d._world.pg_group_ranks.get(self)
            if not known:
                return list(range(self.count))
            self.known = [rank for rank, _ in sorted(known.items(), key=lambda item: item[1])]
        return self.known

    def twin(self):
        """How many groups of the same ranks were made before this one: each is a communicator of its own."""
        if self.before is None:
            own = self.members()
            groups = list(dist.distributed_c10d._world.pg_group_ranks)
            same = [one for one in groups if isinstance(one, PlayedGroup) and one.members() == own]
            self.before = same.index(self) if self in same else 0
        return self.before

    # Reductions.

    def reduced(self, tensor, reduce):
        """A tensor that all ranks have put in the same, reduced, in place."""
        if reduce == "sum":
            tensor.mul_(self.count)
        elif reduce == "product":
            tensor.pow_(self.count)
        elif reduce == "bxor" and self.count % 2 == 0:
            tensor.zero_()

    def allreduce(self, tensors, opts=None):
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        reduce = reduce_of(opts or dist.AllreduceOptions())
        return _session.issue(self, "all_reduce", tensors, tensors, lambda: [self.reduced(tensor, reduce) for tensor in tensors], reduce,
                              **factor(opts, tensors))

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts=None):
        reduce, root = reduce_of(opts), self.members()[opts.rootRank]
        outputs = tensors if opts.rootRank == self.own else []
        return _session.issue(self, "reduce", tensors, outputs, lambda: [self.reduced(tensor, reduce) for tensor in outputs], reduce, root=root,
                              **factor(opts, tensors))

    def scattered(self, outputs, inputs, opts):
        """One reduce-scatter of a list of input and output tensors for each call of c10d: as many events."""
        works = []
        for output, tensor in zip(outputs, inputs):
            reduce = reduce_of(opts)

            def play(output=output, tensor=tensor, reduce=reduce):
                output.copy_(tensor.reshape(self.count, -1)[self.own].reshape(output.shape))
                self.reduced(output, reduce)
            works.append(_session.issue(self, "reduce_scatter", [tensor], [output], play, reduce, **factor(opts, [tensor])))
        return together(works, list(outputs))

    def reduce_scatter_single(self, output, tensor, opts=None):
        return self.scattered([output], [tensor], opts or dist.ReduceScatterOptions())

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        return self.scattered(outputs, inputs, opts or dist.ReduceScatterOptions())

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce_scatter(self, outputs, lists, opts=None):
        opts, works = opts or dist.ReduceScatterOptions(), []
        for output, tensors in zip(outputs, lists):
            reduce = reduce_of(opts)

            def play(output=output, tensors=tensors, reduce=reduce):
                output.copy_(tensors[self.own].reshape(output.shape))
                self.reduced(output, reduce)
            splits = [tensor.numel() for tensor in tensors]
            uneven = {} if len(set(splits)) == 1 else {"input_splits": splits}
            works.append(_session.issue(self, "reduce_scatter", list(tensors), [output], play, reduce, **factor(opts, tensors), **uneven))
        return together(works, list(outputs))

    # Gathering.

    def allgather(self, outputs, inputs, opts=None):
        works = []
        for own, tensor in zip(outputs, inputs):
            def play(own=own, tensor=tensor):
                for output in own:
                    if output.shape == tensor.shape:
                        output.copy_(tensor)
                    else:
                        output.zero_()
                own[self.own].copy_(tensor)
            splits = [output.numel() for output in own]
            uneven = {} if len(set(splits)) == 1 else {"output_splits": splits}
            works.append(_session.issue(self, "all_gather", [tensor], list(own), play, **uneven))
        return together(works, [tensor for own in outputs for tensor in own])

    def all_gather_single(self, output, tensor, opts=None):
        def play():
            own = tensor.reshape(1, -1).clone()  # it may lie in the output
            if output.is_contiguous():
                output.view(self.count, -1).copy_(own)
        return _session.issue(self, "all_gather", [tensor], [output], play)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        return together([self.all_gather_single(output, tensor) for output, tensor in zip(outputs, inputs)], list(outputs))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(self, outputs, inputs, opts=None):
        works = [self.allgather([list(own)], [tensor]) for own, tensor in zip(zip(*outputs), inputs)]
        return together(works, [tensor for own in outputs for tensor in own])

    def gather(self, outputs, inputs, opts=None):
        root = opts.rootRank if opts is not None else 0
        own = [tensor for each in outputs for tensor in each]

        def play():
            for output in own:
                output.copy_(inputs[0])
        return _session.issue(self, "gather", list(inputs), own, play, root=self.members()[root])

    # From one rank to others.

    def broadcast(self, tensors, opts=None):
        root = opts.rootRank
        return _session.issue(self, "broadcast", list(tensors), list(tensors), lambda: None, root=self.members()[root])

    def scatter(self, outputs, inputs, opts=None):
        root = opts.rootRank if opts is not None else 0

        def play():
            for output, own in zip(outputs, inputs or []):
                output.copy_(own[self.own])
        return _session.issue(self, "scatter", [tensor for own in inputs or [] for tensor in own], list(outputs), play, root=self.members()[root])

    def elements_of(self, tensor, rows):
        """For each member; rows of none are as many for each."""
        width = math.prod(tensor.shape[1:])
        return [size * width for size in rows] if rows else [tensor.numel() // self.count] * self.count

    def all_to_all_single(self, output, tensor, output_splits, input_splits, opts=None):
        def play():
            count = min(output.numel(), tensor.numel())
            output.zero_()
            output.view(-1)[:count].copy_(tensor.reshape(-1)[:count])
        splits = {}
        # Of Python's whole numbers: Megatron's dispatcher of tokens gives an array of numpy's, of which nobody may ask whether it is empty.
        input_splits, output_splits = ([int(size) for size in given] if given is not None else [] for given in (input_splits, output_splits))
        if input_splits or output_splits:
            splits = {"input_splits": self.elements_of(tensor, input_splits), "output_splits": self.elements_of(output, output_splits)}
        return _session.issue(self, "all_to_all", [tensor], [output], play, **splits)

    alltoall_base = all_to_all_single

    def alltoall(self, outputs, inputs, opts=None):
        def play():
            for output, tensor in zip(outputs, inputs):
                if output.shape == tensor.shape:
                    output.copy_(tensor)
                else:
                    output.zero_()
        return _session.issue(self, "all_to_all", list(inputs), list(outputs), play, input_splits=[tensor.numel() for tensor in inputs],
                              output_splits=[tensor.numel() for tensor in outputs])

    def without_tag(self, tag):
        if tag:
            raise CaptureError("a send or a receive has the tag %d, by which gloo and MPI find what belongs together, and NCCL does not: an extraction knows"
                               " none" % tag)

    def send(self, tensors, destination, tag=0):
        self.without_tag(tag)
        return _session.issue(self, "send", list(tensors), [], lambda: None, peer=self.members()[destination])

    def recv(self, tensors, source, tag=0):
        self.without_tag(tag)
        # What comes holds gradients if what is sent does: the ranks' programs say that when they are put together.
        return _session.issue(self, "recv", [], list(tensors), lambda: None, peer=self.members()[source])

    def recv_anysource(self, tensors, tag=0):
        raise CaptureError("it receives from any rank, and from which first, no program says")

    def barrier(self, opts=None):
        return _session.issue(self, "barrier", [], [], lambda: None)

    def monitored_barrier(self, *_, **__):
        return self.barrier()


def factor(opts, tensors):
    """{"factor": f} where what is summed, these tensors, is multiplied first."""
    if opts is None or reduce_of(opts) != "premul_sum":
        return {}
    value = as_applied(opts.reduceOp.factor, tensors[0].dtype if tensors else None)
    number = fraction_of(*value) if value is not None else None
    return {"factor": str(number)} if number is not None else {}


def create(store, rank, size, timeout):
    return PlayedGroup(rank, size)


def register(session):
    """From now on torch.distributed knows this backend."""
    global _session
    _session = session
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, create, devices=["cpu", "cuda"])
