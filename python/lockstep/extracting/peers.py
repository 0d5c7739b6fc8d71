# SPDX-License-Identifier: Apache-2.0
"""The process group of an extraction: this process is one rank, and all others are played.

A collective ends at once. Where what this rank puts in holds gradients, what comes out is a new source: noise, whose part in everything that follows
is found out. Anything else, as parameters, activations, sizes and objects, comes out as if every other rank had put in what this one has.
"""

import hashlib
import sys

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future

from lockstep.errors import CaptureError
from lockstep.extracting.contents import KNOWN, fraction_of
from lockstep.extracting.rules import scalar

NAME = "lockstep"
C10D = "torch/distributed/distributed_c10d.py"
FEW = 16  # elements
MOST_TOLD = 4096
WHOLE = {"sum": lambda values: values.sum(0), "max": lambda values: values.amax(0), "min": lambda values: values.amin(0)}
MOST_TAPED = 1 << 16  # elements of a tensor
_session = None  # the Session of this process


def done(result):
    future = Future()
    future.set_result(result)
    return _create_work_from_future(future)


class Session:
    """What the groups of this process tell their collectives to: `following` (following.Following) and `record`, a function of an event."""

    def __init__(self, following, sites, draw=0):
        self.following, self.sites, self.draw = following, sites, draw
        self.record = lambda event: None
        self.noise = torch.Generator().manual_seed(0x10C457E9 + draw)
        self.tape = {}  # what ranks that were played before have sent to all: by the group and the number of the broadcast in it
        self.sent, self.broadcasts = {}, {}  # the same of this rank, and how many a group has had
        self.carrying = set()  # calls into which others put gradients, as ranks that were played before have found
        self.members_of = {}  # by the reason for which it is not known: ranks whose numbers are in it
        self.rank, self.told, self.numbers = 0, {}, {}  # whole numbers that all ranks have put into calls; those of this rank
        self.carries, self.silent, self.calls = set(), set(), {}  # calls of this rank, with gradients in them and without

    def issue(self, group, op, inputs, outputs, play, reduce=None, **more):
        """A collective: `inputs` are the tensors that this rank puts in, in their order, and `outputs` those that it gets. `play` writes the outputs
        as if all ranks had put in the same."""
        inputs, outputs = [tensor.detach() for tensor in inputs], [tensor.detach() for tensor in outputs]
        following, memory = self.following, self.following.memory
        for tensor in inputs + outputs:
            if tensor.numel() and not is_dense(tensor):
                raise ValueError("Tensors must be contiguous: NCCL refuses a tensor of the strides %s in %s, and gloo reduces other memory than its own"
                                 % (tuple(tensor.stride()), op))
        # In the order of memory, as backends send them.
        inputs, outputs = [in_memory_order(tensor) for tensor in inputs], [in_memory_order(tensor) for tensor in outputs]
        with following.pause(), torch.no_grad():
            contents = [memory.of(tensor) for tensor in inputs]
            call = self.call(group, op, more.get("peer"))
            carries = any(content is not None and bool((content.marks == KNOWN).any()) for content in contents) or call in self.carrying
            unknown = None if carries else next((memory.reasons[int(one.marks[one.marks > KNOWN][0])] for one in contents if one is not None), None)
            if any(tensor.is_floating_point() for tensor in inputs + outputs):
                (self.carries if carries else self.silent).add(call)
            told = inputs or outputs
            event = {"op": op, "group": group.members(), "elements": sum(tensor.numel() for tensor in told),
                     "dtype": str(told[0].dtype).replace("torch.", "") if told else None, "reduce": reduce, "async": is_async(), **more}
            if group.twin() and op not in ("send", "recv"):
                event["communicator"] = group.twin()
            if carries:
                event["input"] = self.written(inputs, contents)
            if carries:
                play()
                left = self.leave(outputs)
                event.update({"output": left} if left else {})
            else:
                for tensor in outputs:
                    if memory.holds(tensor):
                        memory.put(tensor, None)
                if unknown is not None:  # what comes of what is not known, as of a norm, is not known
                    play()
                    for tensor in outputs:
                        memory.put(tensor, memory.unknown(tensor, unknown))
                elif inputs and self.may_count(op, inputs):
                    self.play_counts(call, event["group"], inputs, outputs, play, reduce)
                else:
                    play()
            event["call"] = self.sites.innermost()
        self.record(event)
        return done(outputs)

    def from_tape(self, group, tensors, is_root):
        """What a root that was played before has sent; the root itself leaves it. Else a rank has what it had: sizes and seeds are mostly the same."""
        key = (tuple(group.members()), group.twin(), self.broadcasts.setdefault(group, 0))
        self.broadcasts[group] += 1
        if is_root:
            self.sent[key] = [tensor.clone() for tensor in tensors if tensor.numel() <= MOST_TAPED]
            return
        for tensor, value in zip(tensors, self.tape.get(key, ())):
            if tensor.shape == value.shape:
                tensor.copy_(value)

    @staticmethod
    def may_count(op, inputs):
        """Whether what comes out may be counts, or other numbers of all ranks, that gradients are divided by. What is gathered of many is parameters."""
        elements = sum(tensor.numel() for tensor in inputs)
        if op == "all_gather":
            return elements <= (FEW if any(tensor.is_floating_point() for tensor in inputs) else MOST_TOLD)
        return op in ("all_reduce", "reduce_scatter")

    def play_counts(self, call, members, inputs, outputs, play, reduce):
        """Numbers which may be counts that gradients are divided by. Whole ones are told to the parent, who says what the others have where
        that is something else; of others it is only known that they are not known."""
        memory = self.following.memory
        if any(tensor.is_floating_point() for tensor in inputs) or sum(tensor.numel() for tensor in inputs) > MOST_TOLD:
            play()
            reason = "what other ranks have put in at %s" % (self.sites.innermost() or "an unknown place")
            self.members_of.setdefault(reason, set()).update(members)
            for tensor in outputs:
                memory.put(tensor, memory.unknown(tensor, reason))
            return
        own = [tensor.reshape(-1).tolist() for tensor in inputs]
        self.numbers[call] = (members, own, reduce)
        everybody = self.told.get(call)
        if everybody is None or everybody[members.index(self.rank)] != own:
            play()
            return
        if reduce in WHOLE and len(inputs) == len(outputs) and all(one.numel() == other.numel() for one, other in zip(inputs, outputs)):
            for place, tensor in enumerate(outputs):
                values = torch.tensor([one[place] for one in everybody], dtype=torch.int64)
                tensor.copy_(WHOLE[reduce](values).to(tensor.dtype).reshape(tensor.shape))
        elif reduce is None and len(inputs) == 1:
            values = [torch.tensor(one[0], dtype=inputs[0].dtype) for one in everybody]
            if len(outputs) == len(values):
                for tensor, value in zip(outputs, values):
                    tensor.copy_(value.reshape(tensor.shape))
            else:
                outputs[0].copy_(torch.cat(values).reshape(outputs[0].shape))
        else:
            play()

    def call(self, group, op, peer):
        """The same for all ranks that meet in it: the members and how many calls they had before; of a send and its receive, the two and how many
        such there were."""
        members = group.members()
        twin = group.twin()
        if op in ("send", "recv"):
            own = members[group.own]
            key = "%d>%d" % ((own, peer) if op == "send" else (peer, own))
        else:
            key = "%s/%d" % (",".join(map(str, members)), twin)
        self.calls[key] = self.calls.get(key, -1) + 1
        return "%s#%d" % (hashlib.sha1(key.encode()).hexdigest()[:16], self.calls[key])

    def written(self, tensors, contents):
        """The contents of the tensors one after another, each held against the numbers that are there."""
        result, first = [], 0
        for tensor, content in zip(tensors, contents):
            if tensor.is_floating_point():
                segments = self.checked(tensor)
            else:
                segments = self.following.memory.segments(content) if content is not None else []
            result += [[first + begin, *rest] for begin, *rest in segments]
            first += tensor.numel()
        return result

    def checked(self, tensor):
        """Segments of a tensor's content; what the numbers in it contradict is not known."""
        memory = self.following.memory
        content = self.following.rules.content(tensor)
        expected, size = memory.value(content)
        there = tensor.to(torch.float64)
        # Each term was rounded a few times on its way, in the coarsest type at worst.
        wrong = (content.marks == KNOWN) & ~((there - expected).abs() <= 4 * memory.roundoff * (len(content.terms) + 1) * size)
        if bool(wrong.any()):
            place = self.sites.innermost() or "an unknown place"
            reason = memory.reasons.number("what is there at %s is not what the operations that were seen have left" % place)
            content.marks = torch.where(wrong, torch.full_like(content.marks, reason), content.marks)
        return memory.segments(content)

    def leave(self, outputs):
        """New sources, of noise, in the outputs."""
        memory, result, elements = self.following.memory, None, 0
        values = [torch.randn(tensor.shape, generator=self.noise, dtype=torch.float64).mul_(2.0 ** (-10 * self.draw)).to(tensor.dtype)
                  for tensor in outputs]
        for tensor, value in zip(outputs, values):
            tensor.copy_(value)
            elements += tensor.numel()
        if not outputs:
            return None
        number, content = memory.source(torch.cat([value.reshape(-1).to(torch.float64) for value in values]))
        first = 0
        for tensor in outputs:
            end = first + tensor.numel()
            memory.put(tensor, content.map(lambda plane, first=first, end=end, tensor=tensor: plane[first:end].reshape(tensor.shape)))
            first = end
        return {"source": number, "elements": elements}


def is_dense(tensor):
    """Whether its elements fill a stretch of memory, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def in_memory_order(tensor):
    return tensor if tensor.is_contiguous() else tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def is_async():
    """Whether the script goes on before the collective that it has just called has ended: what torch's function for it was given. What no function
    of torch was called for, as DDP's reducer calls it, goes on."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith(C10D):
            if code.co_name in ("isend", "irecv", "batch_isend_irecv"):
                return True
            if code.co_name in ("send", "recv", "barrier"):
                return False
            if "async_op" in frame.f_locals:
                return bool(frame.f_locals["async_op"])
        frame = frame.f_back
    return True


def reduce_of(opts):
    """The name of the reduction that a collective's opts ask for."""
    operation = opts.reduceOp
    return getattr(operation, "op", operation).name.lower()


class PlayedGroup(dist.ProcessGroup):
    """A process group of `size` ranks in which this process is number `rank`."""

    def __init__(self, rank, size):
        super().__init__(rank, size)
        self.own, self.count, self.before = rank, size, None

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
        known = dist.distributed_c10d._world.pg_group_ranks.get(self)
        return [rank for rank, _ in sorted(known.items(), key=lambda item: item[1])] if known else list(range(self.count))

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
                              **factor(opts))

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts=None):
        reduce, root = reduce_of(opts), self.members()[opts.rootRank]
        outputs = tensors if opts.rootRank == self.own else []
        return _session.issue(self, "reduce", tensors, outputs, lambda: [self.reduced(tensor, reduce) for tensor in outputs], reduce, root=root,
                              **factor(opts))

    def scattered(self, outputs, inputs, opts):
        """One reduce-scatter of a list of input and output tensors for each call of c10d: as many events."""
        for output, tensor in zip(outputs, inputs):
            reduce = reduce_of(opts)

            def play(output=output, tensor=tensor, reduce=reduce):
                output.copy_(tensor.reshape(self.count, -1)[self.own].reshape(output.shape))
                self.reduced(output, reduce)
            _session.issue(self, "reduce_scatter", [tensor], [output], play, reduce, **factor(opts))
        return done(list(outputs))

    def reduce_scatter_single(self, output, tensor, opts=None):
        return self.scattered([output], [tensor], opts or dist.ReduceScatterOptions())

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        return self.scattered(outputs, inputs, opts or dist.ReduceScatterOptions())

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce_scatter(self, outputs, lists, opts=None):
        opts = opts or dist.ReduceScatterOptions()
        for output, tensors in zip(outputs, lists):
            reduce = reduce_of(opts)

            def play(output=output, tensors=tensors, reduce=reduce):
                output.copy_(tensors[self.own].reshape(output.shape))
                self.reduced(output, reduce)
            splits = [tensor.numel() for tensor in tensors]
            uneven = {} if len(set(splits)) == 1 else {"input_splits": splits}
            _session.issue(self, "reduce_scatter", list(tensors), [output], play, reduce, **factor(opts), **uneven)
        return done(list(outputs))

    # Gathering.

    def allgather(self, outputs, inputs, opts=None):
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
            _session.issue(self, "all_gather", [tensor], list(own), play, **uneven)
        return done([tensor for own in outputs for tensor in own])

    def all_gather_single(self, output, tensor, opts=None):
        def play():
            flat = output.view(-1) if output.is_contiguous() else None
            own = tensor.reshape(-1).clone()  # it may lie in the output
            if flat is not None:
                for part in torch.chunk(flat, self.count):
                    part.copy_(own)
        return _session.issue(self, "all_gather", [tensor], [output], play)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        for output, tensor in zip(outputs, inputs):
            self.all_gather_single(output, tensor)
        return done(list(outputs))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(self, outputs, inputs, opts=None):
        for own, tensor in zip(zip(*outputs), inputs):
            self.allgather([list(own)], [tensor])
        return done([tensor for own in outputs for tensor in own])

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
        return _session.issue(self, "broadcast", list(tensors), list(tensors), lambda: _session.from_tape(self, tensors, root == self.own),
                              root=self.members()[root])

    def scatter(self, outputs, inputs, opts=None):
        root = opts.rootRank if opts is not None else 0

        def play():
            for output, own in zip(outputs, inputs or []):
                output.copy_(own[self.own])
        return _session.issue(self, "scatter", [tensor for own in inputs or [] for tensor in own], list(outputs), play, root=self.members()[root])

    def all_to_all_single(self, output, tensor, output_splits, input_splits, opts=None):
        def play():
            count = min(output.numel(), tensor.numel())
            output.zero_()
            output.view(-1)[:count].copy_(tensor.reshape(-1)[:count])
        width = tensor[0].numel() if tensor.dim() and tensor.shape[0] else 1
        splits = {}
        if input_splits or output_splits:
            splits = {"input_splits": [size * width for size in input_splits], "output_splits": [size * width for size in output_splits]}
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


def factor(opts):
    """{"factor": f} where what is summed is multiplied first."""
    if opts is None or reduce_of(opts) != "premul_sum":
        return {}
    value = scalar(opts.reduceOp.factor)
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
