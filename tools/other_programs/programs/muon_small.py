# SPDX-License-Identifier: Apache-2.0
"""A training loop for Muon as its readme has it: hidden matrices by Muon, all else by Adam, under DistributedDataParallel."""

import lockstep
import torch
import torch.distributed as dist
from muon import MuonWithAuxAdam

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(32, 16), torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16), torch.nn.Linear(16, 32, bias=False))
hidden = [model[1].weight, model[3].weight]
others = [parameter for parameter in model.parameters() if all(parameter is not one for one in hidden)]
optimizer = MuonWithAuxAdam([{"params": hidden, "lr": 0.02, "weight_decay": 0.01, "use_muon": True},
                             {"params": others, "lr": 3e-4, "betas": (0.9, 0.95), "weight_decay": 0.01, "use_muon": False}])
model = torch.nn.parallel.DistributedDataParallel(model)
torch.manual_seed(1 + dist.get_rank())
lockstep.attach(model, optimizer, loss="local_mean")
for _ in range(2):
    optimizer.zero_grad()
    for micro_batch in range(2):
        model.require_backward_grad_sync = micro_batch == 1
        inputs = torch.randint(32, (4, 8))
        loss = model(inputs).square().mean() / 2
        loss.backward()
    optimizer.step()
