// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/arithmetic.h"
#include "src/device/messenger.h"

namespace lockstep::device {

/// Where a process is in the replay: every process goes through its places in this order.
struct ReplayPlace {
  std::uint64_t task = 0, block = 0, event = 0;
  std::string what;  ///< "step "mean" (reduce_scatter) of optimizer step 0"
  friend bool operator<(const ReplayPlace& a, const ReplayPlace& b) {
    if (a.task != b.task) return a.task < b.task;
    return a.block != b.block ? a.block < b.block : a.event < b.event;
  }
};

/// Collectives between processes on values in the memory of their GPUs. Every call but go_to() and finish_own() is one
/// of the processes in `group`, one of which is the caller: all of them make it, with the same arguments but for the
/// values, and all calls in one order that is the same everywhere. It begins when what was launched on the GPU before
/// is done, and is over when it returns. Counts are in elements, of which each process has at least one in some call of
/// a group.
///
/// Throws GpuFailure, with a sentence that names the call, the process, its GPU and the place, where the network fails
/// or another process does not come; then the job must be aborted.
class GpuNetwork {
 public:
  virtual ~GpuNetwork() = default;

  /// Makes ready for these groups; all processes, with the same groups, each process ascending.
  virtual void prepare(const std::vector<Processes>& groups) = 0;
  /// Where this process is from here on.
  virtual void go_to(const ReplayPlace& place) = 0;
  /// Waits until what this process launched on its GPU is done. Whoever waits for this process sees that it works, for
  /// as long as that takes.
  virtual void finish_own() = 0;

  // Reductions multiply each contribution by `factor`, a power of two, and add them up in the type of the values;
  // residues they do not know. `send` and `receive` may be the same place, or for reduce_scatter and all_gather the
  // process's own part of the other; nothing but `receive` is written.

  /// Every process gets the sum.
  virtual void all_reduce(const Processes& group, kernels::Domain domain, const void* send, void* receive,
                          std::uint64_t count, double factor) = 0;
  /// The root gets the sum; in the others `receive` is not written. `root` is an index into `group`.
  virtual void reduce(const Processes& group, kernels::Domain domain, const void* send, void* receive,
                      std::uint64_t count, std::size_t root, double factor) = 0;
  /// `send` has counts[0] elements for the first process of the group, then counts[1] for the second, …; each gets the
  /// sum of what is for it.
  virtual void reduce_scatter(const Processes& group, kernels::Domain domain, const void* send, void* receive,
                              const std::vector<std::uint64_t>& counts, double factor) = 0;
  /// `receive` gets counts[0] elements from the first process of the group, then counts[1] from the second, ….
  virtual void all_gather(const Processes& group, kernels::Domain domain, const void* send, void* receive,
                          const std::vector<std::uint64_t>& counts) = 0;
  virtual void broadcast(const Processes& group, kernels::Domain domain, void* values, std::uint64_t count,
                         std::size_t root) = 0;
  /// `send` has counts[0] elements for the first process of the group, then counts[1] for the second, …. Each gets what
  /// is for it, from the i-th process at `receive` + i·stride elements.
  virtual void exchange(const Processes& group, kernels::Domain domain, const void* send, void* receive,
                        const std::vector<std::uint64_t>& counts, std::uint64_t stride) = 0;
};

/// Bytes of an element.
constexpr std::uint64_t bytes_of(kernels::Domain domain) {
  switch (domain) {
    case kernels::Domain::bfloat16:
    case kernels::Domain::float16:
      return 2;
    case kernels::Domain::float32:
      return 4;
    case kernels::Domain::float64:
    case kernels::Domain::prime61:
      break;
  }
  return 8;
}

}  // namespace lockstep::device
