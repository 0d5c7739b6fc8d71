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

/// Whether this lockstep was built with CUDA.
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

/// Replays a timeline as run_host does, on the same numbers, with the buffers of all ranks on one GPU: step by step on
/// buffers in its memory, and, where every element stays in its place and the buffers of a few fit into the memory of a
/// block of threads, a second time with all steps in one kernel. The two must agree to the bit.
///
/// Memory of the GPU for buffers: at most about 4 GiB, in blocks of elements; a component whose collectives move
/// elements to other places is replayed in one block. Where that does not fit, CudaFailure says so before anything is
/// allocated. The program of a block and the sums of the checks come on top. HostOptions::threads of the processor
/// decide beforehand which numbers are replayed. Throws CudaFailure where the GPU cannot go on.
HostResult run_cuda(const Schedule& schedule, const Timeline& timeline, const HostOptions& options, CudaDevice& cuda);

}  // namespace lockstep
