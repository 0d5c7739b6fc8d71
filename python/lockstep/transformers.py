# SPDX-License-Identifier: Apache-2.0
"""A capture of Hugging Face's Trainer, in one line before it trains (docs/capture.md):

    lockstep.transformers.capture(trainer, out="run")
    trainer.train()
"""

from transformers import TrainerCallback

import lockstep
from lockstep.losses import Told

__all__ = ["capture"]


def told_loss(trainer):
    """What the Trainer makes of the losses; None where a function of the script's own does."""
    if getattr(trainer, "compute_loss_func", None) is not None:
        return None
    if getattr(trainer, "model_accepts_loss_kwargs", False):
        whole = getattr(trainer.args, "average_tokens_across_devices", False)
        ranks = trainer.accelerator.num_processes // getattr(trainer, "get_tp_size", lambda: 1)()
        return Told("local_mean", "the Trainer hands the model the number of tokens of the whole step, by which it is to divide", factor=ranks if whole else 1)
    return Told("local_mean", "the Trainer divides each loss for the micro-batches", divides=True)


class _Capture(TrainerCallback):
    """The Trainer wraps its model and makes its optimizer when train() begins, and tells a callback of the bare model alone."""

    def __init__(self, trainer, options):
        self.trainer, self.options, self.run = trainer, options, None

    def on_train_begin(self, arguments, state, control, **_):
        # DeepSpeed's engine has its optimizer.
        optimizer = None if self.trainer.is_deepspeed_enabled else self.trainer.optimizer
        options = dict(self.options)
        if options["loss"] is None:
            options["loss"] = told_loss(self.trainer)
        self.run = lockstep.attach(self.trainer.model_wrapped, optimizer, **options)

    def on_train_end(self, arguments, state, control, **_):
        if self.run is not None:
            self.run.close()
            self.run = None


def capture(trainer, out="run", loss=None, **options):
    """Captures what trainer.train() does, on every rank, into the folder `out`; options are those of lockstep.capture.

    loss: not needed: the Trainer divides for the micro-batches, or has the model divide by the tokens of the whole step, before backward, so that what comes is
          the gradient of a "local_mean". Of a compute_loss_func that is not known; say it here where autograd's graph does not show it.
    Call it once, before train(). Raises, when train() begins, CaptureError where that cannot be captured.
    """
    trainer.add_callback(_Capture(trainer, {"out": out, "loss": loss, **options}))
