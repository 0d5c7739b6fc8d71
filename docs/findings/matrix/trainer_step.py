# SPDX-License-Identifier: Apache-2.0
"""A training script with transformers' Trainer: trainer_step.py MICRO_BATCHES AVERAGE LAYERS. AVERAGE=yes averages over the tokens of all ranks, no over each rank's own, and
"default" says nothing of it. LAYERS=lora trains with adapters of peft alone."""

import sys
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        tokens = (torch.arange(16) * (index + 3)) % 64
        return {"input_ids": tokens, "labels": tokens.clone()}


def main(micro_batches, average="default", layers="all"):
    options = {} if average == "default" else {"average_tokens_across_devices": average == "yes"}
    arguments = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=2, gradient_accumulation_steps=int(micro_batches), max_steps=4, report_to=[],
                                  save_strategy="no", logging_strategy="no", disable_tqdm=True, **options)
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2))
    if layers == "lora":
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    Trainer(model, arguments, train_dataset=Tokens()).train()


if __name__ == "__main__":
    main(*sys.argv[1:])
