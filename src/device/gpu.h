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

/// What is to be replayed does not fit into its memory, or would leave too little of it; nothing was allocated.
class GpuTooSmall : public GpuFailure {
 public:
  using GpuFailure::GpuFailure;
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

/// Streams of a GPU, numbered from 0.
inline constexpr unsigned streams = 32;

/// One GPU. What is launched runs later; download() waits for it. On stream 0, and with the calls for memory, all is in
/// order: each launch runs after everything that was launched before it on any stream, and before everything launched
/// after it. Other streams run side by side; each for itself is in order, and waits for others at marks alone.
/// Everything may throw GpuFailure. Of one thread. `Domain` stands for the arithmetic of the elements (docs/hash.md).
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
  /// A whole program in one launch, its buffers in the memory of blocks of threads: fused_packs() > 0.
  virtual void perform_fused(kernels::Domain domain, const GpuProgramRun& run) = 0;
  /// The stream of what is launched from here on; at first 0.
  virtual void use_stream(unsigned stream) = 0;
  /// Sets mark `mark`, a number from 0 on, behind all that the stream was given. A mark may be set anew.
  virtual void record(std::uint32_t mark) = 0;
  /// The stream goes on when all that stood in front of the mark, which was set before, is done.
  virtual void wait_for(std::uint32_t mark) = 0;
  /// The stream stands still for about so long.
  virtual void delay(std::uint64_t nanoseconds) = 0;
  /// What is launched from here on, for the sentences of failures.
  virtual void describe(const std::string& what) = 0;
};

/// Packs of each of `slots` buffers that the memory of a block holds, so that most are in the memory of all blocks that
/// run at once; 0 where not even the fewest fit.
unsigned fused_packs(const GpuFacts& facts, std::uint64_t slots, std::uint64_t results);

/// What the module that speaks CUDA exports: opens a GPU, counted from 0.
using OpenGpu = Gpu*(int number);
inline constexpr const char* open_gpu_name = "lockstep_open_gpu";

}  // namespace lockstep::device
