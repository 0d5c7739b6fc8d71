// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/operation.h"

namespace lockstep::schedule {

// Collectives as rings and chains, after Rabenseifner (2004) and Patarasuk & Yuan (2009): what
// libraries do, and an account of each table row that owes nothing to its effect.
Decomposition ring_reduce_scatter(int n, int root);
/// Every slice by a chain of its own that ends at its member, as NCCL is asked to reduce slices of different lengths.
Decomposition reduce_each_slice(int n, int root);
Decomposition ring_all_gather(int n, int root);
Decomposition ring_all_reduce(int n, int root);
Decomposition chain_broadcast(int n, int root);
Decomposition chain_reduce(int n, int root);

}  // namespace lockstep::schedule
