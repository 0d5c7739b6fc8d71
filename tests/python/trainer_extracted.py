# SPDX-License-Identifier: Apache-2.0
"""A script with transformers' Trainer as people write it, for `lockstep extract`: trainer_extracted.py CASE FOLDER, right or with a mistake in a subclass or a
callback. It asks for GPUs.
"""

import contextlib
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        tokens = (torch.arange(16) * (index + 3)) % 64
        return {"input_ids": tokens, "labels": tokens.clone()}


class Mistaken(Trainer):
    """`case` says how."""

    case = "right"

    def training_step(self, model, *arguments, **keys):
        never = self.case == "never-synchronized"  # to save communication, in the last micro-batch as well
        with model.no_sync() if never else contextlib.nullcontext():
            loss = super().training_step(model, *arguments, **keys)
        if self.accelerator.sync_gradients:
            if self.case == "divided-twice":  # DistributedDataParallel has done that
                for parameter in model.parameters():
                    parameter.grad /= self.args.world_size
            if self.case == "one-rank-frozen" and self.args.process_index == 0:  # what was tried on one process, and forgotten
                self.model.get_input_embeddings().weight.grad = None
        return loss


class DividedBehindClipping(TrainerCallback):
    def on_pre_optimizer_step(self, arguments, state, control, model=None, **_):
        for parameter in model.parameters():
            parameter.grad /= arguments.world_size


def main(case="right", output="out"):
    config = LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2)
    arguments = TrainingArguments(output_dir=output, per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=2, report_to=[],
                                  save_strategy="no", logging_strategy="no", disable_tqdm=True)
    torch.manual_seed(3)
    Mistaken.case = case
    callbacks = [DividedBehindClipping()] if case == "divided-behind-clipping" else None
    (Trainer if case == "right" else Mistaken)(LlamaForCausalLM(config), arguments, train_dataset=Tokens(), callbacks=callbacks).train()


if __name__ == "__main__":
    main(*sys.argv[1:])
