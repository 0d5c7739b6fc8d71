# SPDX-License-Identifier: Apache-2.0
"""A capture of Lightning's Trainer, as a callback (docs/capture.md):

    trainer = Trainer(callbacks=[lockstep.lightning.Capture(out="run")], …)
"""

try:
    from lightning.pytorch import Callback
except ImportError:  # the package that has Lightning's Trainer alone
    from pytorch_lightning import Callback

import lockstep
from lockstep.losses import Told

__all__ = ["Capture"]


class Capture(Callback):
    """Captures what trainer.fit() does, on every rank, into the folder `out`; options are those of lockstep.capture.

    loss: with automatic optimization the Trainer divides by accumulate_grad_batches before backward, so that what comes is the gradient of a "local_mean",
          if training_step returns the mean over its batch. A module that does otherwise says so here. With manual optimization it is not known.
    Raises, when fit() begins, CaptureError where that cannot be captured.
    """

    def __init__(self, out="run", loss=None, **options):
        super().__init__()
        self.options, self.run = {"out": out, "loss": loss, **options}, None

    def on_train_start(self, trainer, pl_module):
        engine, options = trainer.strategy.model, dict(self.options)
        if options["loss"] is None and pl_module.automatic_optimization:
            options["loss"] = Told("local_mean", "Lightning divides what training_step returns by accumulate_grad_batches", divides=True)
        if type(engine).__module__.startswith("deepspeed."):  # it has its optimizer
            self.run = lockstep.attach(engine, **options)
        else:
            self.run = lockstep.attach(engine, trainer.optimizers, **options)

    def on_train_end(self, trainer, pl_module):
        if self.run is not None:
            self.run.close()
            self.run = None
