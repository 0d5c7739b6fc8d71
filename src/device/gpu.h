// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/arithmetic.h"
#include "kernels/program.h"

namespace lockstep::device {

/// Why a GPU cannot go on, as a sentence.
class GpuFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Why a GPU cannot go on where another process of the job failed: what that one said.
class OtherFailure : public GpuFailure {
 public:
  using GpuFailure::GpuFailure;
};

/// Why the network of GPUs cannot go on; the sentence names the process.
class NetworkFailure : public GpuFailure {
 public:
  using GpuFailure::GpuFailure;
};

struct GpuFacts {
  std::string name;                ///< "GPU 0 (NVIDIA H100 80GB HBM3)"
  std::uint64_t memory = 0;        ///< bytes
  std::uint64_t free_memory = 0;   ///< bytes, when it was opened
  std::uint64_t block_memory = 0;  ///< bytes that the threads of a block can share
  unsigned multiprocessors = 1;
};

/// The buffers of a block of elements in the GPU's memory: slot after slot, `stride` elements each.
struct GpuBuffers {
  void* data = nullptr;
  std::uint64_t stride = 0;
  kernels::Tables tables;
  std::uint64_t* results = nullptr;  ///< sums are added to them
};

/// A whole program, which lies in the GPU's memory.
struct GpuProgramRun {
  const kernels::Instruction* instructions = nullptr;
  std::uint64_t count = 0;
  kernels::Tables tables;
  std::uint32_t slots = 0;
  std::uint64_t places = 0;  ///< from 0 on
  std::uint64_t result_count = 0;
  std::uint64_t* results = nullptr;
};

/// One GPU. What is launched runs in order, and later; download() waits for it. Everything may throw GpuFailure. Of one
/// thread. `Domain` stands for the arithmetic of the elements (docs/hash.md).
class Gpu {
 public:
  virtual ~Gpu() = default;
  virtual const GpuFacts& facts() const = 0;
  /// Memory of the GPU, aligned to at least 256 bytes; released by release().
  virtual void* allocate(std::uint64_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  virtual void clear(void* memory, std::uint64_t bytes) = 0;
  /// `from` may change once it returns.
  virtual void upload(void* to, const void* from, std::uint64_t bytes) = 0;
  virtual void download(void* to, const void* from, std::uint64_t bytes) = 0;
  /// One instruction on all places.
  virtual void perform(kernels::Domain domain, const kernels::Instruction& instruction, const GpuBuffers& buffers) = 0;
  /// A whole program in one launch, its buffers in the memory of blocks of threads: fused_threads() > 0.
  virtual void perform_fused(kernels::Domain domain, const GpuProgramRun& run) = 0;
  /// What is launched from here on, for the sentences of failures.
  virtual void describe(const std::string& what) = 0;
};

/// Threads of a block with which most run at once, where each takes a pack of `slots` buffers into the memory of its
/// block; 0 where not even the fewest fit.
unsigned fused_threads(const GpuFacts& facts, std::uint64_t slots, std::uint64_t results);

/// What the module that speaks CUDA exports: opens a GPU, counted from 0.
using OpenGpu = Gpu*(int number);
inline constexpr const char* open_gpu_name = "lockstep_open_gpu";

}  // namespace lockstep::device
