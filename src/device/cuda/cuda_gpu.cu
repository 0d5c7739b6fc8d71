// SPDX-License-Identifier: Apache-2.0
// The module that speaks CUDA. Nothing else in lockstep includes its headers or is linked with it.
#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cuda_launch.h"
#include "src/device/kernel_gpu.h"

namespace lockstep::device {

namespace {

std::string quoted(cudaError_t error) {
  return std::string("\"") + cudaGetErrorString(error) + "\" (" + cudaGetErrorName(error) + ")";
}

/// What a user can do about it.
std::string advice(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "another program may hold its memory: wait for it, or choose another GPU with CUDA_VISIBLE_DEVICES";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:
      return "this lockstep was built for " LOCKSTEP_CUDA_ARCHITECTURES
             "; build it with -DCMAKE_CUDA_ARCHITECTURES=native on this machine, or use --engine host";
    case cudaErrorDevicesUnavailable:
      return "another program has it to itself: wait for it, or choose another GPU with CUDA_VISIBLE_DEVICES";
    default:
      return "launches are not waited for: with CUDA_LAUNCH_BLOCKING=1 in the environment the failure names its own "
             "step; --engine host needs no GPU";
  }
}

class CudaLauncher {
 public:
  explicit CudaLauncher(int number) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
      throw GpuFailure("the cuda engine finds no GPU: cudaGetDeviceCount says " +
                       (error != cudaSuccess ? quoted(error) : std::string("that there are none")) +
                       "; --engine host replays the same numbers on this machine's processor");
    }
    facts_.name = "GPU " + std::to_string(number);
    cudaDeviceProp properties{};
    check(cudaSetDevice(number), "cudaSetDevice");
    check(cudaGetDeviceProperties(&properties, number), "cudaGetDeviceProperties");
    facts_.name += std::string(" (") + properties.name + ")";
    facts_.memory = properties.totalGlobalMem;
    facts_.block_memory = properties.sharedMemPerBlockOptin;
    facts_.multiprocessors = static_cast<unsigned>(properties.multiProcessorCount);
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    facts_.free_memory = free;
  }
  CudaLauncher(const CudaLauncher&) = delete;
  CudaLauncher& operator=(const CudaLauncher&) = delete;
  ~CudaLauncher() {  // after a failure there is nothing more to say
    for (cudaEvent_t mark : marks_) cudaEventDestroy(mark);
    for (cudaStream_t stream : streams_) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
  }

  const GpuFacts& facts() const { return facts_; }
  void describe(const std::string& what) { what_ = what; }

  void* allocate(std::uint64_t bytes) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc of " + std::to_string(bytes) + " bytes");
    return memory;
  }
  void release(void* memory) noexcept { cudaFree(memory); }  // after a failure there is nothing more to say
  void clear(void* memory, std::uint64_t bytes) { check(cudaMemset(memory, 0, bytes), "cudaMemset"); }
  void upload(void* to, const void* from, std::uint64_t bytes) {
    check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the GPU");
  }
  void download(void* to, const void* from, std::uint64_t bytes) {
    check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy from the GPU");
  }

  void use_stream(unsigned stream) {
    // Stream 0 is the default stream, for which the others wait and which waits for them unless they are created
    // otherwise.
    if (stream != 0 && streams_[stream] == nullptr) check(cudaStreamCreate(&streams_[stream]), "cudaStreamCreate");
    stream_ = stream;
  }
  void record(std::uint32_t mark) {
    while (marks_.size() <= mark) {
      cudaEvent_t made = nullptr;
      check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags");
      marks_.push_back(made);
    }
    check(cudaEventRecord(marks_[mark], streams_[stream_]), "cudaEventRecord");
  }
  void wait_for(std::uint32_t mark) {
    check(cudaStreamWaitEvent(streams_[stream_], marks_[mark], 0), "cudaStreamWaitEvent");
  }

  template <class Kernel>
  void launch(const Kernel& kernel, unsigned blocks, unsigned threads, std::uint64_t shared_bytes) {
    const std::uint64_t at_once = std::uint64_t{facts_.multiprocessors} * resident<Kernel>(threads, shared_bytes);
    blocks = static_cast<unsigned>(std::min<std::uint64_t>(blocks, at_once));
    check(kernels::launch_on_gpu(kernel, blocks, threads, shared_bytes, streams_[stream_]), "the launch of a kernel");
  }

 private:
  /// Blocks of a kernel that a multiprocessor runs at once; CUDA is asked once for each size of them.
  template <class Kernel>
  unsigned resident(unsigned threads, std::uint64_t shared_bytes) {
    const auto* const kernel = reinterpret_cast<const void*>(&kernels::run_kernel<Kernel>);
    unsigned& blocks = resident_[{kernel, threads, shared_bytes}];
    if (blocks == 0) {
      check(kernels::resident_blocks<Kernel>(threads, shared_bytes, blocks),
            "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
      blocks = std::max(blocks, 1u);  // where none fits the launch says so
    }
    return blocks;
  }

  void check(cudaError_t error, const std::string& call) const {
    if (error == cudaSuccess) return;
    throw GpuFailure(call + " failed on " + facts_.name + (what_.empty() ? "" : " during " + what_) + ": " +
                     quoted(error) + "; " + advice(error));
  }

  GpuFacts facts_;
  cudaStream_t streams_[streams] = {};  // created when they are used first
  unsigned stream_ = 0;
  std::vector<cudaEvent_t> marks_;
  std::map<std::tuple<const void*, unsigned, std::uint64_t>, unsigned> resident_;
  std::string what_;
};

}  // namespace

}  // namespace lockstep::device

/// The caller owns the result. Throws GpuFailure where there is no GPU.
extern "C" __attribute__((visibility("default"))) lockstep::device::Gpu* lockstep_open_gpu(int number) {
  return new lockstep::device::KernelGpu<lockstep::device::CudaLauncher>(number);
}
