# SPDX-License-Identifier: Apache-2.0
"""Training under transformers' Trainer and Lightning with lockstep's callbacks, for test_callbacks.py: callbacks_worker.py FOLDER CASE [MISTAKE] trains with
lockstep.run and prints, as JSON, what verify says.
"""

import json
import logging
import os
import sys
import warnings

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import lockstep  # noqa: E402


class Rows(torch.utils.data.Dataset):
    """Of tokens for a language model, in uneven numbers, or of numbers."""

    def __init__(self, tokens):
        self.tokens = tokens

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if not self.tokens:
            return torch.sin(torch.arange(8.0) * (index + 1))
        ids = (torch.arange(12) * (index + 3)) % 64
        labels = ids.clone()
        labels[: index % 7] = -100
        return {"input_ids": ids, "labels": labels}


def hugging_face(rank, world, mistake, folder):
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    import lockstep.transformers

    class Mine(Trainer):
        def training_step(self, model, *arguments, **keys):
            loss = super().training_step(model, *arguments, **keys)
            if mistake == "divided again" and self.accelerator.sync_gradients:
                for parameter in model.parameters():
                    parameter.grad /= world
            return loss

    class Deaf(LlamaForCausalLM):
        """Takes the number of tokens, as the Trainer sees by its arguments, and divides by its own alone."""

        def forward(self, input_ids=None, labels=None, **keys):
            keys.pop("num_items_in_batch", None)
            return super().forward(input_ids=input_ids, labels=labels, **keys)

    torch.manual_seed(3)
    config = LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
    arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=2, report_to=[], use_cpu=True,
                                  save_strategy="no", logging_strategy="no", disable_tqdm=True)
    trainer = Mine((Deaf if mistake == "tokens ignored" else LlamaForCausalLM)(config), arguments, train_dataset=Rows(True))
    lockstep.transformers.capture(trainer)
    trainer.train()


def lightning(rank, world, mistake, folder):
    from lightning import LightningModule, Trainer
    from lightning.pytorch.plugins.environments import LightningEnvironment
    from lightning.pytorch.strategies import DDPStrategy

    import lockstep.lightning

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.up, self.down = torch.nn.Linear(8, 12), torch.nn.Linear(12, 8)

            self.automatic_optimization = mistake != "by hand"

        def training_step(self, batch, number):
            if mistake == "by hand":
                loss = (self.down(torch.tanh(self.up(batch))) - batch).square().mean() / 3
                self.manual_backward(loss)
                if number % 3 == 2:
                    self.optimizers().step()
                    self.optimizers().zero_grad()
                return
            return (self.down(torch.tanh(self.up(batch))) - batch).square().mean()

        def on_before_optimizer_step(self, optimizer):
            if mistake == "divided again":
                for parameter in self.parameters():
                    parameter.grad /= world

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    torch.manual_seed(3)
    trainer = Trainer(accelerator="cpu", devices=world, strategy=DDPStrategy(cluster_environment=LightningEnvironment()), max_steps=2,
                      accumulate_grad_batches=1 if mistake == "by hand" else 2, callbacks=[lockstep.lightning.Capture()], logger=False, enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False)
    trainer.fit(Model(), torch.utils.data.DataLoader(Rows(False), batch_size=4))


def accelerated(rank, world, mistake, folder):
    from accelerate import Accelerator

    torch.manual_seed(3)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, rows = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(Rows(False), batch_size=4))
    with lockstep.capture(model, optimizer):
        for number, batch in enumerate(rows):
            with accelerator.accumulate(model):
                accelerator.backward((model(batch) - batch).square().mean())
                if mistake == "divided again" and accelerator.sync_gradients:
                    for parameter in model.parameters():
                        parameter.grad /= world
                optimizer.step()
                optimizer.zero_grad()
            if number == 3:
                break


def main(folder, case, mistake=""):
    run = lockstep.run({"transformers": hugging_face, "lightning": lightning, "accelerate": accelerated}[case], out=folder, check=False, limit=240,
                       arguments={"mistake": mistake, "folder": folder + ".trainer"})
    results = run.report["results"]
    print(json.dumps({"verdict": run.verdict, "loss": run.report["loss"], "steps": run.report["steps"], "adapter": run.report["adapter"],
                      "formulas": sorted({one["formula"] for one in results}), "expected": sorted({one["expected"] for one in results}),
                      "notes": run.report["notes"], "gaps": run.report["gaps"], "findings": [one["what"] for one in run.report["findings"]]}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    main(*sys.argv[1:])
