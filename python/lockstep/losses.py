# SPDX-License-Identifier: Apache-2.0
"""A loss that nobody has to say, for a framework tells what it is (docs/capture.md, "Who says the loss")."""


class Told(str):
    """The name of a loss, and by whom it is told: `source`, a sentence without a period. `divides`: whether that one divides for the micro-batches itself."""

    def __new__(cls, loss, source, divides=False):
        told = super().__new__(cls, loss)
        told.source, told.divides = source, divides
        return told
