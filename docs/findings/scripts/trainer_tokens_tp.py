# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer alone on gloo, two ranks: the norm of one gradient of a small Llama, by tensor parallelism and average_tokens_across_devices.
All samples are the same, so that every setting has the same right gradient, that of one process ("no Trainer"). No clipping."""

import os
import tempfile

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")

import torch
import torch.distributed as dist
import transformers
from accelerate.parallelism_config import ParallelismConfig
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.distributed import DistributedConfig

ParallelismConfig._validate_accelerator = lambda *_: None  # it asks for GPUs
SAMPLE = {"input_ids": torch.arange(8), "labels": torch.arange(8)}


def norm(model):
    gradient = model.get_input_embeddings().weight.grad
    return (gradient.full_tensor() if isinstance(gradient, DTensor) else gradient).norm().item()


class Look(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.found = norm(model)


def trained(folder, tp, average):
    model = AutoModelForCausalLM.from_pretrained(folder, **({"distributed_config": DistributedConfig(tp_size=2)} if tp else {}))
    look = Look()
    Trainer(model=model, train_dataset=[SAMPLE] * 8, callbacks=[look], args=TrainingArguments(
        output_dir=folder, use_cpu=True, max_steps=1, per_device_train_batch_size=2, average_tokens_across_devices=average, max_grad_norm=0.0,
        report_to=[], save_strategy="no", disable_tqdm=True)).train()
    return look.found


def main(rank, folder):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    transformers.logging.set_verbosity_error()
    dist.init_process_group("gloo")
    model = AutoModelForCausalLM.from_pretrained(folder)
    model(**{name: one[None] for name, one in SAMPLE.items()}).loss.backward()
    found = {"no Trainer": norm(model)}
    for tp in (False, True):
        for average in (True, False):
            found["tensor parallelism %d, average_tokens_across_devices %s" % (1 + tp, average)] = trained(folder, tp, average)
    if rank == 0:
        print("\n".join("%s: %.4f" % one for one in found.items()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)).save_pretrained(folder)
        torch.multiprocessing.start_processes(main, (folder,), nprocs=2, start_method="fork")
