# SPDX-License-Identifier: Apache-2.0
"""The collectives that a rank issues, in their order: what goes to the process groups passes torch's dispatcher, also from
DDP's C++ reducer and from DTensor, and a dispatch mode sees it there.
"""

import os
import sys
import sysconfig
import time

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from lockstep.carrying import Carried, flat, Mixed
from lockstep.frames import passes_on

# Operations of torch.ops.c10d and torch.ops._c10d_functional: the name in a capture, and which argument holds what the rank puts in.
C10D = {
    "allreduce_": ("all_reduce", 0), "allreduce_coalesced_": ("all_reduce", 0),
    "reduce_scatter_": ("reduce_scatter", 1), "_reduce_scatter_base_": ("reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "allgather_": ("all_gather", 1), "_allgather_base_": ("all_gather", 1), "allgather_coalesced_": ("all_gather", 1),
    "allgather_into_tensor_coalesced_": ("all_gather", 1),
    "broadcast_": ("broadcast", 0), "reduce_": ("reduce", 0), "gather_": ("gather", 1), "scatter_": ("scatter", 1),
    "alltoall_": ("all_to_all", 1), "alltoall_base_": ("all_to_all", 1),
    "send": ("send", 0), "recv_": ("recv", 0), "recv_any_source_": ("recv", 0),
    "barrier": ("barrier", None), "monitored_barrier_": ("barrier", None),
}
FUNCTIONAL = {
    "all_reduce": "all_reduce", "all_reduce_": "all_reduce", "all_reduce_coalesced": "all_reduce", "all_reduce_coalesced_": "all_reduce",
    "all_gather_into_tensor": "all_gather", "all_gather_into_tensor_out": "all_gather", "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter_tensor_out": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all_single": "all_to_all", "broadcast": "broadcast", "broadcast_": "broadcast", "isend": "send", "irecv": "recv",
}
# Who gathers weights within backward passes, which no gradient is a copy of.
GATHERS_WEIGHTS = ("torch/distributed/fsdp/", "torch/distributed/_composable/fsdp/", "deepspeed/", "megatron/core/distributed/")
# By the numbers of c10d's ReduceOp.
REDUCTIONS = ["sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"]


def roots():
    """Folders that packages lie in: torch's and ours, whose files are known by their paths, then the longest first."""
    first = [os.path.dirname(os.path.dirname(os.path.abspath(file))) for file in (torch.__file__, __file__)]
    others = {os.path.abspath(path or os.getcwd()) for path in sys.path} | {sysconfig.get_path("stdlib"), os.getcwd()}
    return [folder.rstrip(os.sep) + os.sep for folder in first + sorted(others, key=len, reverse=True)]


class CallSites:
    """Names frames without a folder of this machine."""

    def __init__(self):
        self.roots = roots()
        self.known = {}

    def path(self, file):
        if file not in self.known:
            absolute = os.path.abspath(file)
            below = [absolute[len(root):] for root in self.roots if absolute.startswith(root)]
            self.known[file] = (below[0] if below else os.path.basename(file)).replace(os.sep, "/")
        return self.known[file]

    def innermost(self, frame=None):
        """The innermost frame, of this thread or from `frame` on, that does more than pass the call on."""
        frame = frame or sys._getframe(1)
        while frame is not None:
            path = self.path(frame.f_code.co_filename)
            if not passes_on(path, frame.f_code.co_name):
                return "%s:%d in %s" % (path, frame.f_lineno, frame.f_code.co_name)
            frame = frame.f_back
        return None


class Groups:
    """Global ranks of process groups, given as torch's operations get them: boxed, or by their names."""

    def __init__(self):
        self.known = {}

    def ranks(self, group):
        if isinstance(group, torch.ScriptObject):
            group = dist.ProcessGroup.unbox(group)
        name = group if isinstance(group, str) else group.group_name
        if name not in self.known:
            if isinstance(group, str):
                group = dist.distributed_c10d._resolve_process_group(name)
            self.known[name] = dist.get_process_group_ranks(group)
        return self.known[name]


def reduction(value):
    if isinstance(value, str):
        return value.lower()
    try:
        return REDUCTIONS[value.op()]
    except (AttributeError, IndexError, RuntimeError):
        return None  # a torch that does not tell


def described(function, arguments, keys, groups):
    """What a capture says of an operation, or None where it is no collective, and the tensors that this rank puts in. The call is not in it."""
    name = function._schema.name.split("::")[-1]
    named = {argument.name: value for argument, value in zip(function._schema.arguments, arguments)}
    for argument in function._schema.arguments:
        if argument.name not in named:
            named[argument.name] = keys.get(argument.name, argument.default_value)
    if function.namespace == "c10d":
        if name not in C10D:
            return None, []
        op, place = C10D[name]
        inputs = list(flat([arguments[place]])) if place is not None else []
        group, is_async = named["process_group"], bool(named.get("async_op", op in ("send", "recv")))
        reduce = named.get("reduce_op")
    else:
        if name not in FUNCTIONAL:
            return None, []
        op, inputs, is_async, reduce = FUNCTIONAL[name], list(flat([arguments[0]])), True, named.get("reduce_op")
        group = named["group_name"]
    if any(type(tensor).__name__ == "FakeTensor" for tensor in inputs):
        return None, []
    members = groups.ranks(group)
    result = {"op": op, "group": members, "elements": sum(tensor.numel() for tensor in inputs),
              "dtype": str(inputs[0].dtype).replace("torch.", "") if inputs else None,
              "reduce": reduction(reduce) if reduce is not None else None, "async": is_async}
    for key, other in (("root_rank", "root"), ("src", "root" if op == "broadcast" else "peer"), ("dst", "peer")):
        if isinstance(named.get(key), int) and op != "all_to_all" and 0 <= named[key] < len(members):
            result[other] = members[named[key]]
    return result, inputs


class Collectives(TorchDispatchMode):
    """Tells `record(description)` of each collective before it is issued, and counts the operations that passed. `scaling`, where there is one, looks
    at those before which gradients are in memory. `gradient_of`: see Carried."""

    def __init__(self, record, scaling=None, gradient_of=None):
        super().__init__()
        self.scaling = scaling
        self.supports_higher_order_operators = True
        self.record = record
        self.sites, self.groups, self.carried = CallSites(), Groups(), Carried(gradient_of)
        self.mixed = Mixed()  # of the backward pass that runs
        self.task, self.within = None, False  # that pass, by its number or from begin_pass() to end_pass(): others may run within it
        self.operations = 0
        self.seconds = 0.0

    @classmethod
    def ignore_compile_internals(cls):
        """What torch.compile has compiled stays so, while this mode is on and after it."""
        return True

    def leave(self):
        """Ends it. Where another mode was entered since, or in another thread, it stays below that and does nothing; one of these that ends later
        takes it along."""
        self.record = None
        top = _get_current_dispatch_mode()
        while isinstance(top, Collectives) and top.record is None:
            top.__exit__(None, None, None)
            top = _get_current_dispatch_mode()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations += 1
        if self.record is not None and isinstance(func, torch._ops.OpOverload):
            # A subclass such as DTensor takes the operation apart, and this mode sees its collectives then.
            if any(kind.__name__ == "DTensor" for kind in types):
                return NotImplemented
            if func.namespace in ("c10d", "_c10d_functional"):
                return self.issue(func, args, kwargs or {})
            if (self.carried.storages or self.mixed.storages) and not self.carried.paused:
                if self.scaling is not None and self.carried.storages:
                    self.scaling.look(func, args, self.carried, self.sites.innermost)
                result = func(*args, **(kwargs or {}))
                begin = time.perf_counter()
                self.carried.follow(func, args, kwargs or {}, result)
                if self.mixed.storages:
                    self.mixed.follow(func, args, kwargs or {}, result)
                self.seconds += time.perf_counter() - begin
                return result
        return func(*args, **(kwargs or {}))

    def issue(self, function, arguments, keys):
        begin = time.perf_counter()
        found, inputs = described(function, arguments, keys, self.groups)
        if found:
            found.update(call=self.sites.innermost(), parameters=self.carried.of_all(inputs))
            self.record(found)
        self.seconds += time.perf_counter() - begin
        result = function(*arguments, **keys)
        self.carried.left_by_a_collective(inputs, flat(list(arguments) + [result]))
        if found and found["op"] not in ("send", "barrier") and not found["parameters"]:
            self.mixes(function, arguments, result, found)
        return result

    def begin_pass(self):
        """A backward pass begins, within no other."""
        self.mixed.clear()
        self.within = True

    def end_pass(self):
        self.within = False

    def mixes(self, function, arguments, result, found):
        """Of a collective that brings from other ranks what is no parameter's gradient yet, as a backward of the script's own calls it."""
        task = torch._C._current_graph_task_id()
        if task != self.task and not self.within:
            self.mixed.clear()
        self.task = task
        if task == -1 or (found["op"] == "all_gather" and (found["call"] or "").startswith(GATHERS_WEIGHTS)):
            return
        members, each = found["group"], None
        if found["op"] in ("all_gather", "gather", "all_to_all"):
            each = found["elements"] // (len(members) if found["op"] == "all_to_all" else 1)
        elif found["op"] == "recv" and "peer" in found:
            members = [found["peer"], dist.get_rank()]
        # c10d's operations have their outputs first.
        for tensor in flat([result] if function.namespace != "c10d" else [arguments[0]]):
            self.mixed.put(tensor, [(found["call"], tuple(members), each)])

    def brought(self, tensor):
        """(call, members) of the collectives that have brought what is in the tensor, within the backward pass that runs."""
        known = self.mixed.storages and (self.within or torch._C._current_graph_task_id() == self.task)
        return [(call, members) for call, members, _ in self.mixed.of(tensor)] if known else []


def run_uncompiled():
    """Whether this torch, an older one, runs what it has compiled uncompiled under such a mode, and for good after it."""
    return not hasattr(TorchDispatchMode, "ignore_compile_internals")


def cost_of_an_operation(count=200):
    """Seconds that a dispatch mode adds to an operation, measured here."""
    def timed():
        number = torch.zeros(1)
        begin = time.perf_counter()
        for _ in range(count):
            number.detach()
        return time.perf_counter() - begin

    plain = min(timed() for _ in range(3))
    with Collectives(lambda found: None):
        seen = min(timed() for _ in range(3))
    return max(0.0, seen - plain) / count
