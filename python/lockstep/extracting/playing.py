# SPDX-License-Identifier: Apache-2.0
"""One rank of an extraction: runs the script as torchrun would, on this process alone, and finds out the program of that rank.

The script is not edited. A capture of it begins when the model is first called, by an optimizer's being there; it ends after so many steps.
"""

import contextlib
import gc
import os
import re
import runpy
import sys
import traceback
import weakref

import torch
import torch.distributed as dist
from torch.distributed import device_mesh
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import lockstep
from lockstep import adapters, optimizers
from lockstep.adapters.plain import Plain
from lockstep.collectives import CallSites
from lockstep.errors import CaptureError
from lockstep.extracting import comm_hooks, cuda, meshes, peers, pipelining, shims
from lockstep.extracting.alike import Alike
from lockstep.extracting.environment import environment
from lockstep.extracting.flights import wait_for_futures
from lockstep.extracting.following import Following
from lockstep.extracting.objects import around_all_gather_object, around_monitored_barrier
from lockstep.extracting.placements import counted
from lockstep.extracting.program import ProgramRun, Stopped
from lockstep.extracting.session import Session
from lockstep.extracting.squares import is_infinite
from lockstep.loss_scaler import kinds
from lockstep.optimizers import Replaced, before, parameters_of
from lockstep.pipelines import is_training


MOST_PARTNERS = 64  # of a process group among which it is looked for who sets a key of the store


class Missing(BaseException):
    """Of a key that this rank waits for, and nobody has set."""


class Store(dist.Store):
    """What all ranks share by keys: what those that were played before have set (`stored`, an Asked), and this rank."""

    def __init__(self, stored):
        super().__init__()
        self.own, self.stored = {}, stored
        self.all = {}  # that this rank has set or changed; None where it has removed it

    def find(self, key):
        """None where nobody has set it."""
        if key in self.all:
            return self.all[key]
        value = self.stored.get(key)
        return None if value is None else bytes.fromhex(value)

    def set(self, key, value):
        value = value if isinstance(value, bytes) else str(value).encode()
        self.all[key] = value
        self.own[key] = value.hex()

    def get(self, key):
        value = self.find(key)
        if value is None:
            raise Missing(key)
        return value

    def add(self, key, number):
        value = int(self.find(key) or b"0") + number
        self.all[key] = str(value).encode()
        return value

    def compare_set(self, key, expected, desired):
        if self.find(key) in (None, expected.encode()):
            self.set(key, desired)
        return self.find(key)

    def check(self, keys):
        return all(self.find(key) is not None for key in keys)

    def wait(self, keys, timeout=None):
        for key in keys:
            self.get(key)

    def delete_key(self, key):
        there = self.find(key) is not None
        self.all[key] = None
        return there

    def num_keys(self):
        return len(self.stored) + sum((value is not None) - (self.stored.get(key) is not None) for key, value in self.all.items())

    def set_timeout(self, timeout):
        pass


class Distributed:
    """torch.distributed as the script finds it: whatever backend it asks for, it gets the played one."""

    def __init__(self, rank, world, store):
        self.rank, self.world, self.store = rank, world, store
        self.undo = []

    def install(self):
        c10d = dist.distributed_c10d
        for owner in (dist, c10d):
            self.undo.append(Replaced(owner, "init_process_group", self.around_init))
            self.undo.append(Replaced(owner, "new_group", self.around_new_group))
            self.undo.append(Replaced(owner, "all_gather_object", around_all_gather_object))
            self.undo.append(Replaced(owner, "monitored_barrier", around_monitored_barrier))
        self.undo.append(Replaced(device_mesh.DeviceMesh, "__init__", self.around_mesh))

    def around_init(self, original):
        def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="", pg_options=None,
                               device_id=None, **_):
            return original(peers.NAME, rank=self.rank, world_size=self.world, store=self.store)
        return init_process_group

    def around_mesh(self, original):
        def init(made, /, device_type, *arguments, **keys):  # `mesh` is a keyword of torch's
            original(made, "cpu" if device_type == "cuda" and not torch.cuda.is_available() else device_type, *arguments, **keys)
            meshes.made(made)
        return init

    def around_new_group(self, original):
        def new_group(ranks=None, timeout=None, backend=None, pg_options=None, use_local_synchronization=False, group_desc=None, device_id=None, **_):
            return original(ranks=ranks, group_desc=group_desc)
        return new_group


class CaptureStart:
    """Begins the capture when the script first calls a model whose parameters an optimizer has."""

    def __init__(self, session, settings):
        self.session, self.settings = session, settings
        self.optimizers, self.run = [], None
        self.stepped = set()  # of optimizers, by id
        self.is_chosen = False  # the model, and not said by the script

    def install(self):
        begin = self

        def around_optimizer(original):
            def init(optimizer, *arguments, **keys):
                original(optimizer, *arguments, **keys)
                begin.optimizers.append(weakref.ref(optimizer))
            return init

        def around_scale(original):
            def scale(scaler, *arguments, **keys):
                result = original(scaler, *arguments, **keys)  # in scale(model(inputs)) the capture has begun meanwhile
                if begin.run is not None and scaler.is_enabled():
                    begin.run.scaler.scaler, begin.run.scaler.scale = scaler, float(scaler.get_scale())
                return result
            return scale

        self.undo = [Replaced(torch.optim.Optimizer, "__init__", around_optimizer)]
        self.undo += [Replaced(kind, "scale", around_scale) for kind in kinds() if "scale" in vars(kind)]
        # Clipping that changes nothing of the noise may change a gradient: what the optimizer gets is looked at before it. To infinity it changes none.
        self.undo.append(Replaced(optimizers, "changes_nothing", lambda original: lambda limit, norm: is_infinite(limit)))
        self.undo.append(Replaced(Plain, "within", lambda original: lambda adapter, tensors, value: False))
        register_module_forward_pre_hook(self.before_forward)
        shims.on_optimizer(self.made)
        pipelining.on_schedule(self.before_schedule)
        lockstep._extraction = self.captured
        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(self.after_step)

    def before_forward(self, module, arguments):
        if self.run is not None:
            self.run.stop_if_done()
            self.computes(module)
        if self.run is not None or not module.training or pipelining.is_of_a_stage(module):
            return
        if type(module).__name__ == "DeepSpeedEngine":  # its optimizer has flat tensors in the place of parameters
            self.attach(module, None)
            return
        if self.attach_if_trained(module):
            if self.session.alike.axes:
                self.session.alike.begins(arguments)  # this call has begun with the forward that the module had
            self.computes(module)

    def before_schedule(self, schedule):
        if self.run is not None:
            self.run.stop_if_done()  # else a stage would wait for what one that was stopped does not send
            return False
        return is_training(schedule) and self.attach_if_trained(pipelining.of_schedule(schedule))

    def attach_if_trained(self, model):
        """Whether an optimizer has parameters of it."""
        there = [optimizer for optimizer in (reference() for reference in self.optimizers) if optimizer is not None]
        own = {id(parameter) for parameter in model.parameters()}
        mine = [optimizer for optimizer in there if any(id(tensor) in own for tensor in parameters_of([optimizer]))]
        if mine:
            self.attach(model, mine if len(mine) > 1 else mine[0])
        return bool(mine)

    def before_step(self, optimizer, arguments, keys):
        """Where a model is first called within the optimizer's step, by its closure, it is looked for now. Later steps may be those of other models."""
        self.stepped.add(id(optimizer))
        if self.run is not None:
            self.run.steps_within(optimizer)
            if self.is_chosen:
                self.run.gaps.step_of_another(optimizer)
            return
        own = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
        modules = [one for one in gc.get_objects() if isinstance(one, torch.nn.Module) and any(id(tensor) in own for tensor in one.parameters())]
        inner = {id(child) for one in modules for child in one.modules() if child is not one}
        roots = [one for one in modules if id(one) not in inner]
        if len(roots) == 1:
            self.attach(roots[0], optimizer)

    def after_step(self, optimizer, *_):
        if self.run is not None:
            self.run.has_stepped_within(optimizer)

    def tell_unstepped(self):
        """The script was stopped before optimizers of other models have stepped."""
        run = self.run
        if not self.is_chosen or not run.adapter.in_grad:
            return
        there = [optimizer for optimizer in (reference() for reference in self.optimizers) if optimizer is not None and id(optimizer) not in self.stepped]
        others = [tensor for tensor in parameters_of(there) if tensor.requires_grad and id(tensor) not in run.adapter.parameters.by_tensor]
        if others:
            run.gaps.say("optimizers of %s that the captured model has not had not stepped when the script was stopped: --steps %d looks further"
                         % (counted(len(others)), run.steps + 1), [], run.steps - 1)

    def made(self, model, optimizer):
        """By a framework that says so."""
        if self.run is None:
            self.attach(model if len(model) > 1 else model[0], optimizer)

    def attach(self, model, optimizer):
        settings = self.settings
        self.is_chosen = True
        self.make(model, optimizer, settings.get("mesh"), settings.get("loss"), settings.get("data_axes")).start()

    def computes(self, module):
        """A module of the model does, so that there may be a backward pass."""
        if module.training and torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in module._parameters.values()):
            self.run.computed = True
            self.run.computes(module)

    def captured(self, model, optimizer, mesh, loss, data_axes):
        """By the script itself, which says more than we would find; what the user says counts before that."""
        settings = self.settings
        if self.run is not None:
            raise CaptureError("this is the second capture of the script, and an extraction is of one")
        return self.make(model, optimizer, settings.get("mesh") or mesh, settings.get("loss") or loss, settings.get("data_axes") or data_axes)

    def make(self, model, optimizer, mesh, loss, data_axes):
        staged = isinstance(model, pipelining.Stages)
        with self.session.following.pause():
            mesh = mesh or meshes.of_script(model, self.settings["world"]) or (model.mesh() if staged and adapters.mesh_of(model) is None else None)
            self.run = ProgramRun(self.session, self.settings["steps"], model, optimizer, mesh=mesh, loss=loss, data_axes=data_axes)
            self.session.alike = Alike(self.run, list(model.values()) if staged else model)
            self.session.parameters = self.run.adapter.parameters.all
        return self.run


def play(settings, rank, draw, known):
    """The events of this rank and what else the parent asks for, as a dictionary. `draw` chooses the noise. `settings`: world, local_world, script,
    module, arguments, steps, mesh, loss, data_axes. `known`: what ranks that were played before have left (answers.Known)."""
    os.environ.update(environment(rank, settings["world"], settings["local_world"]))
    torch.set_num_threads(1)
    sites = CallSites()
    following = Following(sites.innermost)
    session = Session(following, sites, draw)
    asked = known.asked()
    session.rank, session.tape, session.carrying, session.told = rank, asked["tape"], asked["carrying"], asked["told"]
    peers.register(session)
    store = Store(asked["stored"])
    Distributed(rank, settings["world"], store).install()
    start = CaptureStart(session, settings)
    start.install()
    error = None
    sys.argv = [settings["script"]] + list(settings["arguments"])
    cuda.install()
    comm_hooks.install()
    Replaced(torch.cuda, "synchronize", before(session.arrive))
    if hasattr(torch, "accelerator") and not torch.accelerator.is_available():
        Replaced(torch.accelerator, "synchronize", lambda original: lambda *_, **__: session.arrive())
    wait_for_futures()
    Replaced(torch.UntypedStorage, "resize_", around_resize(following))
    with following:
        try:
            if settings.get("module"):
                runpy.run_module(settings["script"], run_name="__main__", alter_sys=True)
            else:
                sys.path[0] = os.path.dirname(os.path.abspath(settings["script"]))
                runpy.run_path(settings["script"], run_name="__main__")
        except Stopped:
            start.tell_unstepped()
            start.run.recorder.stopped = True
        except Missing as missing:
            key = re.sub(r"^(default_pg|\d+)/+", "", str(missing))  # without what torch puts before it
            error = {"kind": "waits", "said": 'it waits for "%s" in the store, which no rank has set' % key, "frames": []}
        except CaptureError as failure:
            error = {"kind": "not known", "said": str(failure), "frames": []}
        except SystemExit as end:
            if end.code not in (None, 0):
                error = died(end)
        except BaseException as failure:
            error = died(failure)
    run = start.run if start.run is not None and start.run.started else None  # one that was refused, or could not start, has begun nothing
    if run is not None and not (error is not None and error["kind"] == "waits"):
        with following.pause(), contextlib.suppress(Stopped):
            session.look()
            run.close(died=error is not None)
    if error is None and run is None:
        error = {"kind": "nothing", "said": "no model was called whose parameters an optimizer has", "frames": []}
    elif error is None and run.steps == 0:
        error = {"kind": "nothing", "said": "no optimizer stepped", "frames": []}
    return {"rank": rank, "error": error, "events": run.recorder.events if run is not None else [], "sent": session.sent, "stored": store.own,
            "carries": sorted(session.carries), "silent": sorted(session.silent), "numbers": session.numbers, "taken": session.taken,
            "asked": session.asked, "alike": session.alike.left() if session.alike is not None else None,
            "looked_for": {kind: own.found for kind, own in asked.items()},
            "groups": groups_of(rank) if error is not None and (error["kind"] == "waits" or session.asked) else []}


def around_resize(following):
    def around(original):
        def resize_(storage, size):
            before = storage.nbytes()
            result = original(storage, size)
            with following.pause():
                following.unwritten.grow(storage, before)
            return result
        return resize_
    return around


def groups_of(rank):
    """The members of each process group that it is in, small ones first."""
    every = {tuple(sorted(known)) for known in dist.distributed_c10d._world.pg_group_ranks.values()}
    return sorted((one for one in every if rank in one and 1 < len(one) <= MOST_PARTNERS), key=lambda one: (len(one), one))


def died(failure):
    frames = traceback.extract_tb(failure.__traceback__)
    return {"kind": "died", "said": "".join(traceback.format_exception_only(type(failure), failure)).strip(),
            "frames": [[frame.filename, frame.lineno, frame.name, frame.line] for frame in frames
                       if os.path.dirname(os.path.abspath(__file__)) not in os.path.abspath(frame.filename) and not frame.filename.startswith("<frozen")]}
