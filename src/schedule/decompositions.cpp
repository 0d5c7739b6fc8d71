// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/decompositions.h"

#include "src/base/at.h"

namespace lockstep::schedule {

namespace {

int around(int member, int n) { return ((member % n) + n) % n; }

std::vector<std::vector<int>> everything_for_all(int n) {
  return std::vector<std::vector<int>>(static_cast<std::size_t>(n), std::vector<int>{-1});
}

}  // namespace

// Slice k starts at member k + 1 and collects a summand at each hop until it reaches member k.
Decomposition ring_reduce_scatter(int n, int) {
  Decomposition result;
  for (int round = 0; round + 1 < n; ++round) {
    for (int member = 0; member < n; ++member) {
      result.transfers.push_back({member, around(member + 1, n), around(member - round - 1, n), true});
    }
  }
  for (int member = 0; member < n; ++member) result.takes_over.push_back({member});
  return result;
}

Decomposition reduce_each_slice(int n, int) {
  Decomposition result;
  for (int slice = 0; slice < n; ++slice) {
    for (int hop = 1; hop < n; ++hop)
      result.transfers.push_back({around(slice + hop, n), around(slice + hop + 1, n), slice, true});
    result.takes_over.push_back({slice});
  }
  return result;
}

// Slice k starts at member k and is handed on until everybody has it.
Decomposition ring_all_gather(int n, int) {
  Decomposition result;
  for (int round = 0; round + 1 < n; ++round) {
    for (int member = 0; member < n; ++member) {
      result.transfers.push_back({member, around(member + 1, n), around(member - round, n), false});
    }
  }
  result.takes_over = everything_for_all(n);
  return result;
}

Decomposition ring_all_reduce(int n, int root) {
  Decomposition result = ring_reduce_scatter(n, root);
  const Decomposition gather = ring_all_gather(n, root);
  result.transfers.insert(result.transfers.end(), gather.transfers.begin(), gather.transfers.end());
  result.takes_over = everything_for_all(n);
  return result;
}

Decomposition chain_broadcast(int n, int root) {
  Decomposition result;
  for (int hop = 0; hop + 1 < n; ++hop) {
    result.transfers.push_back({around(root + hop, n), around(root + hop + 1, n), -1, false});
  }
  result.takes_over = everything_for_all(n);
  return result;
}

Decomposition chain_reduce(int n, int root) {
  Decomposition result;
  for (int hop = 1; hop < n; ++hop) {
    result.transfers.push_back({around(root + hop, n), around(root + hop + 1, n), -1, true});
  }
  result.takes_over.resize(static_cast<std::size_t>(n));
  result.takes_over[at(root)] = {-1};
  return result;
}

}  // namespace lockstep::schedule
