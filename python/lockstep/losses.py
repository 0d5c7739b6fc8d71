# SPDX-License-Identifier: Apache-2.0
"""A loss that nobody has to say, for a framework tells what it is (docs/capture.md, "Who says the loss")."""


class Told(str):
    """The name of a loss, and by whom it is told: `source`, a sentence without a period. `divides`: whether that one divides for the micro-batches itself;
    `factor`: by what it multiplies a loss, of which the average over ranks takes that out again."""

    def __new__(cls, loss, source, divides=False, factor=1):
        told = super().__new__(cls, loss)
        told.source, told.divides, told.factor = source, divides, factor
        return told
