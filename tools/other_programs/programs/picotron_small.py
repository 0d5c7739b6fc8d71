# SPDX-License-Identifier: Apache-2.0
"""picotron's model, parallelism and training loop, with random tokens: what train.py does for a small Llama on CPUs."""

import os

os.environ.update(FLASH_ATTEN="0", DEVICE="cpu")
import lockstep
import torch
import torch.distributed as dist
import torch.nn.functional as F

dist.init_process_group("gloo")
import picotron.process_group_manager as manager
from picotron.process_group_manager import setup_process_group_manager

sizes = dict(one.split("=") for one in os.environ["SIZES"].split())
tp, cp, pp, dp = (int(sizes.get(axis, 1)) for axis in ("tp", "cp", "pp", "dp"))
setup_process_group_manager(tp_size=tp, cp_size=cp, pp_size=pp, dp_size=dp)
from picotron.context_parallel.context_parallel import apply_context_parallel
from picotron.data_parallel.data_parallel import DataParallelBucket
from picotron.model import Llama
from picotron.tensor_parallel.tensor_parallel import apply_tensor_parallel
from picotron.utils import set_all_seed
from transformers import LlamaConfig

set_all_seed(42)
config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, vocab_size=64, max_position_embeddings=16)
if not hasattr(config, "rope_theta"):
    config.rope_theta = 10000.0
model = Llama(config=config)
if tp > 1:
    model = apply_tensor_parallel(model)
if cp > 1:
    model = apply_context_parallel(model)
model.reset_parameters()
if "differ" in sizes:
    torch.manual_seed(7 + manager.process_group_manager.tp_rank)
    for name, parameter in model.named_parameters():
        if "proj" in name or "embedding" in name:
            torch.nn.init.normal_(parameter, std=0.02)
if dp * cp > 1:
    model = DataParallelBucket(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
shards = {"*q_proj.weight": {"tp": 0}, "*k_proj.weight": {"tp": 0}, "*v_proj.weight": {"tp": 0}, "*out_proj.weight": {"tp": 1}, "*up_proj.weight": {"tp": 0},
          "*gate_proj.weight": {"tp": 0}, "*down_proj.weight": {"tp": 1}, "*embedding.weight": {"tp": 0}, "*final_proj.weight": {"tp": 0}}
run = lockstep.attach(model, optimizer, loss="local_mean", mesh={"dp": dp, "pp": pp, "cp": cp, "tp": tp}, shards=shards if tp > 1 else None)
for step in range(2):
    optimizer.zero_grad()
    for micro_batch in range(2):
        generator = torch.Generator().manual_seed(1000 * manager.process_group_manager.dp_rank + 10 * step + micro_batch)
        ids = torch.randint(64, (2, 17), generator=generator)
        if dp * cp > 1:
            model.require_backward_grad_sync = micro_batch == 1
        length = 16 // cp
        begin = length * manager.process_group_manager.cp_rank
        out = model(input_ids=ids[:, begin:begin + length])
        loss = F.cross_entropy(out.view(-1, out.shape[-1]), ids[:, begin + 1:begin + length + 1].reshape(-1), reduction="mean") / 2
        loss.backward()
    optimizer.step()
    if hasattr(model, "reset"):
        model.reset()
