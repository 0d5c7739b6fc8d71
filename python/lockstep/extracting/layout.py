# SPDX-License-Identifier: Apache-2.0
"""How tensors that are given to collectives lie in memory."""

import torch


def shares_memory(one, other):
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


def is_changed(tensor, before):
    """Whether its bytes are others now. Memory that was given back is not looked at."""
    end = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    return tensor.untyped_storage().nbytes() >= end and not torch.equal(tensor.reshape(-1).view(torch.uint8), before.reshape(-1).view(torch.uint8))


def is_dense(tensor):
    """Whether its elements fill a stretch of memory, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def in_memory_order(tensor):
    return tensor if tensor.is_contiguous() else tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())
