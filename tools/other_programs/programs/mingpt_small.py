# SPDX-License-Identifier: Apache-2.0
"""main.py of minGPT-ddp without hydra, with a small model."""

import torch
from torch.distributed import init_process_group

init_process_group("gloo")
from char_dataset import CharDataset, DataConfig
from model import GPT, GPTConfig, OptimizerConfig, create_optimizer
from trainer import Trainer, TrainerConfig

torch.manual_seed(0)
data = CharDataset(DataConfig(path="data/input.txt", block_size=16, truncate=0.0005))
config = GPTConfig(n_layer=2, n_head=2, n_embd=32)
config.vocab_size, config.block_size = data.vocab_size, data.block_size
model = GPT(config)
optimizer = create_optimizer(model, OptimizerConfig(learning_rate=3e-4, weight_decay=0.1))
Trainer(TrainerConfig(max_epochs=1, batch_size=64, data_loader_workers=0, grad_norm_clip=1.0, snapshot_path="none.pt", save_every=99, use_amp=False), model,
        optimizer, data).train()
