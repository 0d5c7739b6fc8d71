# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed alone on gloo, two ranks, no ZeRO: the gradient of an embedding, dense or sparse (nn.Embedding(sparse=True)), by gradient_predivide_factor. Rank 0 looks up the
tokens 0 and 2, rank 1 the tokens 1 and 2, each with the gradient 1: averaged 0.5 0.5 1."""

import multiprocessing
import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1")

import deepspeed
import torch


class Looked(torch.nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.embedding = torch.nn.Embedding(4, 2, sparse=sparse)

    def forward(self, tokens):
        return self.embedding(tokens).sum()


def gradient(rank, sparse, options):
    model = Looked(sparse)
    torch.nn.init.zeros_(model.embedding.weight)
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
                                      config={"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0, **options})
    engine.backward(engine(torch.tensor([rank, 2])))
    engine.step()
    return " ".join("%g" % -one for one in model.embedding.weight[:3, 0].tolist())


def main(rank):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    deepspeed.utils.logger.setLevel("ERROR")
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # gloo alone, without what would have to be compiled
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    for name, sparse in (("dense", False), ("sparse", True)):
        for options in ({}, {"gradient_predivide_factor": 2.0}, {"gradient_predivide_factor": 4.0}, {"prescale_gradients": True, "gradient_predivide_factor": 4.0}):
            found = gradient(rank, sparse, options)
            if rank == 0:
                print("%s%s: %s" % (name, "".join(", %s %s" % one for one in options.items()), found), flush=True)


if __name__ == "__main__":
    ranks = [multiprocessing.get_context("fork").Process(target=main, args=(rank,)) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    raise SystemExit(max(abs(one.exitcode) for one in ranks))
