# SPDX-License-Identifier: Apache-2.0
"""What tells that a micro-batch begins."""


class MicroBatch:
    """What Run.micro_batch returns, so that `with` may be written around the pass."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False
