# SPDX-License-Identifier: Apache-2.0
"""A capture of Hugging Face's Trainer, in one line before it trains (docs/capture.md):

    lockstep.transformers.capture(trainer, out="run")
    trainer.train()
"""

from transformers import TrainerCallback

import lockstep

__all__ = ["capture"]


class _Capture(TrainerCallback):
    """The Trainer wraps its model and makes its optimizer when train() begins, and tells a callback of the bare model alone."""

    def __init__(self, trainer, options):
        self.trainer, self.options, self.run = trainer, options, None

    def on_train_begin(self, arguments, state, control, **_):
        # DeepSpeed's engine has its optimizer.
        optimizer = None if self.trainer.is_deepspeed_enabled else self.trainer.optimizer
        self.run = lockstep.attach(self.trainer.model_wrapped, optimizer, **self.options)

    def on_train_end(self, arguments, state, control, **_):
        if self.run is not None:
            self.run.close()
            self.run = None


def capture(trainer, out="run", loss="local_mean", **options):
    """Captures what trainer.train() does, on every rank, into the folder `out`; options are those of lockstep.capture.

    loss: the Trainer divides for the micro-batches and, with average_tokens_across_devices, for the tokens of all ranks, before backward:
          what comes is the gradient of a "local_mean". A model or a compute_loss_func that does otherwise says so here.
    Call it once, before train(). Raises, when train() begins, CaptureError where that cannot be captured.
    """
    trainer.add_callback(_Capture(trainer, {"out": out, "loss": loss, **options}))
