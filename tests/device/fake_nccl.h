// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "tests/device/fake/nccl.h"

namespace lockstep::test {

/// NCCL among the threads of this program, each of which stands for a process with a GPU whose memory is the host's. It
/// does what NCCL does, later, as NCCL does, and holds who calls it to NCCL's rules: one order of calls on each
/// communicator, equal arguments, where results may overlap what is sent, that communicators are not blocking, polled
/// and given back; and to those of the engine: reductions of numbers alone, and no rounding.
struct FakeNccl {
  /// Forgets everything, and begins with this many GPUs.
  static void reset(int gpus = 64);
  /// Rules that were not kept.
  static std::vector<std::string> violations();
  /// Calls by name.
  static std::map<std::string, int> calls();
  /// Communicators that were not given back.
  static int communicators();
  /// Communicators that were aborted.
  static int aborted();
  /// The `number`-th call of this name, counted from 1 over all threads, returns `result`.
  static void fail(const std::string& name, int number, ncclResult_t result);
  /// Once that many collectives are done, the communicators of `rank` report a failure.
  static void fail_later(int rank, int collectives, ncclResult_t result);
  /// The kernels in front of the next calls of cudaStreamQuery are busy for so long, then they fail or not.
  static void work(int rank, std::chrono::milliseconds time, cudaError_t end);
  /// All GPUs are one and the same.
  static void share_gpus();
};

}  // namespace lockstep::test
