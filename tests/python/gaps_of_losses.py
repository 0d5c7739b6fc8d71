# SPDX-License-Identifier: Apache-2.0
"""Trainings whose losses autograd's graph, the rows of a batch or tokens say something of, for gaps_worker.py."""

from worker import case, variant  # finds lockstep
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.parallel import DistributedDataParallel

from gaps_common import captured, data, net, sgd


@case(2)
def losses(out, loss, said=None, tokens=None, sizes=(16, 16), again=1, hook=None, others=None):
    """`loss` of what the model makes of a micro-batch; `sizes`: rows of each, `others` on rank 1; `again`: by what the averaged gradients are divided once
    more; `hook`: of DistributedDataParallel."""
    model = DistributedDataParallel(net())
    if hook is not None:
        model.register_comm_hook(None, hook)
    sizes = others if others and dist.get_rank() == 1 else sizes
    optimizer = sgd(model.parameters())
    with captured(model, optimizer, out, loss=said) as run:
        for step in range(2):
            optimizer.zero_grad()
            for micro, size in enumerate(sizes):
                if tokens:
                    run.micro_batch(tokens=tokens)
                loss(model(data(step, micro)[:size]).square()).backward()
            for parameter in model.parameters():
                parameter.grad /= again
            optimizer.step()


def labels(squares):
    """Of rows; some are ignored, of each micro-batch another number."""
    return squares.detach().argmax(1).masked_fill(squares.detach()[:, 0] > 0.2, -100)


def of_all(squares):
    """With what the other rank has, of which no gradient comes back."""
    parts = [torch.empty_like(squares) for _ in range(2)]
    dist.all_gather(parts, squares.detach())
    parts[dist.get_rank()] = squares
    return torch.cat(parts)


def halves(squares):
    return squares.mean() / 2


def thirds(squares):
    return squares.mean() / 3


def summed(_, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0] / 2)


variant("graph_tells_the_loss", 2, losses, loss=thirds, sizes=(16, 16, 16))
variant("graph_tells_the_loss_and_it_is_averaged_again", 2, losses, loss=thirds, sizes=(16, 16, 16), again=2)
variant("halves_of_means_may_have_a_weight", 2, losses, loss=halves)
variant("quarters_of_means_may_have_a_weight", 2, losses, loss=lambda squares: 0.25 * squares.mean(), sizes=(8, 8, 8, 8))
variant("a_third_within_may_be_a_weight", 2, losses, loss=lambda squares: squares.mean() * (1 / 3), sizes=(8, 8, 8))
variant("means_of_uneven_parts", 2, losses, loss=thirds, sizes=(16, 16, 4))
variant("means_of_uneven_ranks", 2, losses, loss=thirds, sizes=(16, 16, 16), others=(4, 4, 4))
variant("means_that_a_hook_reduces", 2, losses, loss=thirds, sizes=(16, 16, 16), hook=summed)
variant("sums_over_rows_that_may_be_elements", 2, losses, loss=lambda squares: mse_loss(squares[:, :2], squares[:, 2:], reduction="sum") / 32)
variant("sums_that_are_added_up_over_ranks", 2, losses, loss=lambda squares: squares[:, :2].sum() / 32, sizes=(16,), again=0.5)
variant("means_over_what_others_have", 2, losses, loss=lambda squares: of_all(squares).mean() / 3, sizes=(16, 16, 16))
variant("means_that_leave_out_what_is_ignored", 2, losses, loss=lambda squares: cross_entropy(squares, labels(squares)) / 3, sizes=(16, 16, 16))
variant("graph_tells_nothing_as_nothing_divides", 2, losses, loss=lambda squares: squares.mean())
variant("last_micro_batch_is_short", 2, losses, loss=halves, said="local_mean", sizes=(16, 4))
variant("sums_over_the_rows_of_all", 2, losses, loss=lambda squares: squares.sum() / 20, sizes=(16, 4))
variant("sums_over_own_rows", 2, losses, loss=lambda squares: squares.sum() / len(squares), said="local_mean", sizes=(16, 4))
variant("sums_over_own_elements", 2, losses, loss=lambda squares: squares.sum() / squares.numel(), said="local_mean")
variant("sums_over_own_tokens", 2, losses, loss=lambda squares: squares.sum() / 5, said="local_mean", tokens=5)
variant("sums_over_the_tokens_of_all", 2, losses, loss=lambda squares: squares.sum() / 10, said="local_mean", tokens=5)
variant("sums_that_are_said_to_be", 2, losses, loss=lambda squares: squares.sum() / 16, said="sum", again=0.5)
variant("losses_that_no_graph_tells", 2, losses, loss=lambda squares: squares.mean().sqrt(), said="local_mean")
