# SPDX-License-Identifier: Apache-2.0
"""The gradient of one device: every contribution to every logical element, with the weight of the loss."""


def reference(model, batch, step):
    """{(logical, element): {atom: weight}}, for one optimizer step. No schedule, no collective."""
    result = {(logical, element): {} for logical, elements in model.logical_elements().items() for element in elements}
    weights = {}
    for rank in range(model.mesh.world):
        for buffer in model.buffers[rank]:
            for micro_batch in range(batch.micro_batches(step)):
                through = batch.first_micro_batch(step) + micro_batch
                for site, use, source, _ in model.contributions(rank, buffer, batch, step, micro_batch):
                    key = (use, micro_batch, source)
                    if key not in weights:
                        weights[key] = batch.weight(use, step, micro_batch, source)
                    if weights[key]:
                        for element in buffer.elements:
                            atom = (buffer.logical, element, site, use, source, through)
                            result[(buffer.logical, element)][atom] = weights[key]
    return result
