# SPDX-License-Identifier: Apache-2.0
"""For test_pytest_plugin.py, which runs it under pytest on a Python with torch: what a test with the fixture may come to. Those that should
fail are looked at from outside."""

import os
import threading
import time

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import lockstep as package


def made():
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 6))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def backward(model, rank):
    torch.manual_seed(rank)
    model(torch.randn(12, 8)).square().mean().backward()


def ends_in(capture, rank, other_has_ended):
    """From when this rank has issued the collective that never ends on rank 1, and the other one has, or has ended its training: as if the time
    were over, which is minutes. Nobody looks at a clock for it."""
    folder = package._rank.folder
    issued, record = [os.path.join(folder, "issued-%d" % number) for number in (0, 1)], capture.collective

    def collective(found):
        record(found)
        if found["elements"] in HANGING:
            open(issued[rank], "w").close()

    store = dist.FileStore(os.path.join(folder, "store"))

    def ended():
        return store.add("lockstep/done", 0) if other_has_ended else os.path.exists(issued[0])

    def watch():
        while not (os.path.exists(issued[1]) and ended()):
            time.sleep(0.05)
        open(os.path.join(folder, "stop"), "w").close()
    capture.collective = collective
    if rank == 1:
        threading.Thread(target=watch, daemon=True).start()


HANGING = (1, 3, 5)  # elements of what does not meet
LIMIT = 300  # seconds that nobody waits for


def train(rank, world, at=None):
    model, optimizer = made()
    capture = package.capture(model, optimizer, loss="local_mean")
    if at in ("wait", "cross"):
        ends_in(capture, rank, at == "wait")
    with capture:
        backward(model, rank)
        if at == "raise" and rank == 1:
            print("so far", "so good")
            raise ArithmeticError("no number")
        if at == "die" and rank == 1:
            os._exit(7)
        if at == "wait" and rank == 1:
            dist.all_reduce(torch.ones(1))
        if at == "cross":
            dist.all_reduce(torch.ones(3)) if rank else dist.broadcast(torch.ones(5), 0)
        optimizer.step()


def test_waits(lockstep):
    lockstep.run(train, arguments={"at": "wait"}, limit=LIMIT)


def test_crossed(lockstep):
    lockstep.run(train, arguments={"at": "cross"}, limit=LIMIT)


def test_raises(lockstep):
    lockstep.run(train, arguments={"at": "raise"})


def test_dies(lockstep):
    lockstep.run(train, arguments={"at": "die"})


def captures_nothing(rank, world):
    model, optimizer = made()
    backward(model, rank)
    optimizer.step()


def test_captures_nothing(lockstep):
    lockstep.run(captures_nothing)


def captures_twice(rank, world):
    train(rank, world)
    train(rank, world)


def test_captures_twice(lockstep):
    lockstep.run(captures_twice)


def by_itself(rank, world):
    assert os.environ["RANK"] == str(rank) and os.environ["WORLD_SIZE"] == str(world)
    dist.init_process_group("gloo")
    train(rank, world)


def test_a_script_makes_its_process_group(lockstep):
    assert lockstep.run(by_itself, init=False).ok


def test_four_ranks_give_a_verification_and_its_text(lockstep, tmp_path):
    run = lockstep.run(train, ranks=4, loss="local_mean")
    assert run and run.verdict == "match" and run.report["world"] == 4 and not run.findings
    assert str(run).startswith("match") and "4 ranks" in str(run)
    assert set(run.formulas("weight").values()) == {"(g0+g1+g2+g3)/4"}
    assert lockstep.verify(tmp_path / "lockstep-1" / "run").ok


def test_a_wrong_run_is_returned_where_it_is_not_checked(lockstep, tmp_path):
    run = lockstep.run(train, loss="sum", check=False)
    assert not run and run.verdict == "mismatch" and "uniform factor 1/2" in str(run)
    with pytest.raises(AssertionError, match=r"got       \(g0\+g1\)/2\n      expected  g0 \+ g1"):
        lockstep.verify(tmp_path / "lockstep-1" / "run", loss="sum")


def split(rank, world, factor=1):
    """The same batch on any number of ranks; each takes its part."""
    model, optimizer = made()
    torch.manual_seed(5)
    batch = torch.randn(24, 8).chunk(world)[rank]
    with package.capture(model, optimizer, loss="local_mean"):
        (model(batch).square().mean() * (factor if world > 1 else 1)).backward()
        optimizer.step()


def alone(rank, world, factor=1):
    assert world == 1
    split(rank, world)


def test_a_run_on_one_rank_is_the_reference(lockstep, tmp_path):
    run = lockstep.run(split, reference=True)
    assert run.ok and run.report["reference"]["parameters"][0]["contributions"] == "right"
    assert lockstep.verify(tmp_path / "lockstep-1" / "run", reference=tmp_path / "lockstep-1" / "reference" / "run").ok
    assert lockstep.run(split, reference=alone).ok
    assert lockstep.run(split, reference=tmp_path / "lockstep-1" / "reference" / "run").ok


def test_a_backward_that_is_wrong_fails_against_the_reference(lockstep):
    assert lockstep.run(split, arguments={"factor": 0.25}).ok
    with pytest.raises(AssertionError, match="the contributions add up to 1/4 of the true gradient\n    weight, bias"):
        lockstep.run(split, arguments={"factor": 0.25}, reference=alone)


def test_a_temporary_folder_is_removed_where_all_is_right(lockstep):
    run = package.run(train, limit=LIMIT)
    assert run.ok and not os.path.exists(run.folder) and str(run).startswith("match")


def test_mistakes_are_answered_with_a_sentence(lockstep, tmp_path):
    def within(rank, world):
        pass

    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "rank-00000.jsonl").write_text("{")
    run, verify = lockstep.run, package.verify
    for mistake, kind, part in [
            (lambda: run(3), package.RanksError, "train is a int: expected a function"),
            (lambda: run(within), package.RanksError, "within a function"),
            (lambda: run(lambda rank, world: None), package.RanksError, "within a function"),
            (lambda: run(made), package.RanksError, "cannot be called with rank, world"),
            (lambda: run(train, arguments={"places": 1}), package.RanksError, "cannot be called with rank, world, places"),
            (lambda: run(train, arguments={"at": lambda: 0}), package.RanksError, "cannot be brought to other processes"),
            (lambda: run(train, arguments=[1]), package.RanksError, "arguments is a list"),
            (lambda: run(train, ranks=0), package.RanksError, "ranks is 0: expected"),
            (lambda: run(train, loss="avg"), package.RanksError, "loss is 'avg': expected"),
            (lambda: run(train, limit=-1), package.RanksError, "limit is -1: expected seconds"),
            (lambda: run(train, out=tmp_path / "full"), package.RanksError, "is not empty"),
            (lambda: run(train, reference=3), package.RanksError, "reference is a int: expected a function"),
            (lambda: run(train, reference=within), package.RanksError, "within a function"),
            (lambda: verify(tmp_path, reference=tmp_path / "none"), package.VerifyError, "is not a folder"),
            (lambda: verify(tmp_path / "none"), package.VerifyError, "is not a folder"),
            (lambda: verify(tmp_path / "full"), package.VerifyError, "full"),
            (lambda: verify(tmp_path / "broken"), package.VerifyError, "complete first line"),
            (lambda: verify(tmp_path, loss="avg"), package.VerifyError, "loss is 'avg': expected"),
            (lambda: verify(tmp_path, step=-1), package.VerifyError, "step is -1: expected"),
            (lambda: verify(tmp_path, program="/none"), package.VerifyError, "cannot be started"),
            (lambda: verify(tmp_path, program="echo"), package.VerifyError, "did not print a report")]:
        with pytest.raises(kind) as error:
            mistake()
        assert part in str(error.value) and not str(error.value).endswith("."), str(error.value)
