# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer alone on gloo, two ranks, defaults but for the accumulation steps and no clipping. All samples are the same, so that the right gradient is that of
one sample in one process. "heads": the gradient of models over that, by the norm of all parameters. "router": the same of the router's balancing loss alone."""

import os
import sys
import tempfile

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 10000), WORLD_SIZE="2", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")

import torch
import torch.distributed as dist
import transformers

SMALL = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
STILL = {**SMALL, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TOKENS = torch.arange(1, 9)
HEADS = {"BertForSequenceClassification": (dict(STILL, num_labels=3), {"input_ids": TOKENS, "labels": torch.tensor(1)}),
         "BertForMaskedLM": (STILL, {"input_ids": TOKENS, "labels": TOKENS}),
         "T5ForConditionalGeneration": ({"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0,
                                         "decoder_start_token_id": 0}, {"input_ids": TOKENS, "labels": TOKENS}),
         "LlamaForSequenceClassification": (dict(SMALL, num_labels=3, pad_token_id=0), {"input_ids": TOKENS, "labels": torch.tensor(1)}),
         "LlamaForCausalLM": (SMALL, {"input_ids": TOKENS, "labels": TOKENS})}
ROUTER = ({**SMALL, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True}, HEADS["LlamaForCausalLM"][1])


class Look(transformers.TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.found = torch.cat([one.grad.flatten() for one in model.parameters()])


def gradient(name, options, sample, steps=None, folder=None):
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**options)).train()
    if steps is None:
        model(**{key: one[None] for key, one in sample.items()}).loss.backward()
        return torch.cat([one.grad.flatten() for one in model.parameters()])
    look = Look()
    transformers.Trainer(model=model, train_dataset=[sample] * 64, callbacks=[look], args=transformers.TrainingArguments(
        output_dir=folder, use_cpu=True, max_steps=1, gradient_accumulation_steps=steps, max_grad_norm=0.0, report_to=[], save_strategy="no", disable_tqdm=True)).train()
    return look.found


def main(rank, folder, what):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    transformers.logging.set_verbosity_error()
    dist.init_process_group("gloo")
    models = {"MixtralForCausalLM": ROUTER} if what == "router" else HEADS
    for name, (options, sample) in models.items():
        for steps in (1, 4):  # of the router: what 1 more of the coefficient adds to the gradient
            one, trained = ((lambda coefficient, run=run: gradient(name, {**options, **coefficient}, sample, *run)) for run in ((), (steps, folder)))
            right, found = (run({}) if what != "router" else run({"router_aux_loss_coef": 1.0}) - run({"router_aux_loss_coef": 0.0}) for run in (one, trained))
            if rank == 0:
                print("%s, %d accumulation steps: %.3f" % (name, steps, found.norm() / right.norm()), flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(main, (folder, sys.argv[1]), nprocs=2, start_method="fork")
