// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "lockstep/numeric.h"

namespace lockstep {

namespace device {
class Gpu;
}

/// Why the cuda engine cannot go on, as a sentence: no GPU, too little of its memory, or a call that failed.
class CudaFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// This schedule does not fit into the memory of the GPU, another may; nothing was allocated.
class CudaTooSmall : public CudaFailure {
 public:
  using CudaFailure::CudaFailure;
};

/// Whether the module that speaks CUDA is there: it is built by itself, when it is asked for.
bool cuda_is_built();

/// A GPU on which schedules are replayed; for one thread at a time.
class CudaDevice {
 public:
  /// Opens the first GPU (the one that CUDA_VISIBLE_DEVICES names first). Throws CudaFailure where there is none, with
  /// a sentence that says what to use instead.
  static std::unique_ptr<CudaDevice> open();
  /// Works with something else that runs the kernels.
  explicit CudaDevice(std::unique_ptr<device::Gpu> gpu);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  /// "GPU 0 (NVIDIA H100 80GB HBM3)"
  const std::string& name() const;
  device::Gpu& gpu() { return *gpu_; }

 private:
  std::unique_ptr<device::Gpu> gpu_;
};

/// A schedule with a race, replayed on streams: each rank's steps on one, its asynchronous steps on others.
struct RaceReplays {
  int replays = 0;
  int different = 0;  ///< of these: another gradient than that of the schedule with its waits
  std::string why;    ///< why there are no replays
};

/// Replays a timeline as run_host does, on the same numbers, with the buffers of all ranks on one GPU: step by step on
/// buffers in its memory, and, where every element stays in its place and the buffers of a few fit into the memory of a
/// block of threads, a second time with all steps in one kernel; where fewer than 128 threads have room there, that is
/// done for the first and the last block of elements alone. Where steps are asynchronous, once more with the steps of
/// each rank on a stream of its own and the asynchronous ones on further streams, which nothing but the schedule's
/// waits holds back. All must agree to the bit.
///
/// Memory of the GPU for buffers: at most three quarters of what is free, and at most about 4 GiB or 64 MiB for each
/// buffer, whichever is more, in blocks of elements (of HostOptions::block_elements, where that is less); a component
/// whose collectives move elements to other places is replayed in one block, and a note says so where that is more.
/// Where it does not fit, CudaTooSmall says so before anything is allocated. The program of a block and the sums of the
/// checks come on top. HostOptions::threads of the processor decide beforehand which numbers are replayed. Throws
/// CudaFailure where the GPU cannot go on.
HostResult run_cuda(const Schedule& schedule, const Timeline& timeline, const HostOptions& options, CudaDevice& cuda);

/// Replays a schedule that ends in a race, once as if a wait stood in front of each step that touches what is in
/// flight, and `replays` times on streams without these waits, in which asynchronous steps begin late by drawn times.
/// What is in flight is really touched then, and the gradients of completed optimizer steps may come out differently.
/// That none does proves nothing. Throws as run_cuda does.
RaceReplays replay_race(const Schedule& schedule, const HostOptions& options, CudaDevice& cuda, int replays = 20);

}  // namespace lockstep
