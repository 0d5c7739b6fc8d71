# SPDX-License-Identifier: Apache-2.0
"""Trainings whose losses autograd's graph, the rows of a batch or tokens say something of, for gaps_worker.py."""

from worker import case, variant  # finds lockstep
from torch.nn.parallel import DistributedDataParallel

from gaps_common import captured, data, net, sgd


@case(2)
def losses(out, loss, said=None, tokens=None, sizes=(16, 16), again=1):
    """`loss` of what the model makes of a micro-batch; `sizes`: rows of each; `again`: by what the averaged gradients are divided once more."""
    model = DistributedDataParallel(net())
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


def halves(squares):
    return squares.mean() / 2


variant("graph_tells_the_loss", 2, losses, loss=halves)
variant("graph_tells_the_loss_and_it_is_averaged_again", 2, losses, loss=halves, again=2)
variant("graph_tells_nothing_as_nothing_divides", 2, losses, loss=lambda squares: squares.mean())
variant("last_micro_batch_is_short", 2, losses, loss=halves, said="local_mean", sizes=(16, 4))
variant("sums_over_the_rows_of_all", 2, losses, loss=lambda squares: squares.sum() / 20, sizes=(16, 4))
variant("sums_over_own_rows", 2, losses, loss=lambda squares: squares.sum() / len(squares), said="local_mean", sizes=(16, 4))
variant("sums_over_own_elements", 2, losses, loss=lambda squares: squares.sum() / squares.numel(), said="local_mean")
variant("sums_over_own_tokens", 2, losses, loss=lambda squares: squares.sum() / 5, said="local_mean", tokens=5)
variant("sums_over_the_tokens_of_all", 2, losses, loss=lambda squares: squares.sum() / 10, said="local_mean", tokens=5)
variant("sums_that_are_said_to_be", 2, losses, loss=lambda squares: squares.sum() / 16, said="sum", again=0.5)
variant("losses_that_no_graph_tells", 2, losses, loss=lambda squares: squares.mean().sqrt(), said="local_mean")
