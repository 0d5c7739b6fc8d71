// SPDX-License-Identifier: Apache-2.0
// What tools/bench-gpu builds with nvcc where NCCL is found: its collectives among all GPUs of the machine, in one
// process, in place, on float32. Algorithm and bus bandwidth are those of nccl-tests (doc/PERFORMANCE.md there).
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace {

void require(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "bench-gpu: %s says \"%s\"\n", call, cudaGetErrorString(error));
  std::exit(3);
}

void require(ncclResult_t error, const char* call) {
  if (error == ncclSuccess) return;
  std::fprintf(stderr, "bench-gpu: %s says \"%s\"\n", call, ncclGetErrorString(error));
  std::exit(3);
}

struct Gpu {
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
  float* data = nullptr;
};

/// What a rank asks of NCCL: its communicator, its position and the elements of the whole buffer.
using Call = std::function<ncclResult_t(const Gpu&, std::size_t rank, std::size_t elements)>;

class Collectives {
 public:
  explicit Collectives(int count) : gpus_(static_cast<std::size_t>(count)) {
    std::vector<ncclComm_t> communicators(gpus_.size());
    require(ncclCommInitAll(communicators.data(), count, nullptr), "ncclCommInitAll");
    for (std::size_t rank = 0; rank < gpus_.size(); ++rank) {
      require(cudaSetDevice(static_cast<int>(rank)), "cudaSetDevice");
      gpus_[rank].communicator = communicators[rank];
      require(cudaStreamCreate(&gpus_[rank].stream), "cudaStreamCreate");
      require(cudaMalloc(&gpus_[rank].data, most), "cudaMalloc of 1 GiB");
      require(cudaMemset(gpus_[rank].data, 0, most), "cudaMemset");
    }
  }
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;
  ~Collectives() {
    for (const Gpu& gpu : gpus_) ncclCommDestroy(gpu.communicator);
  }

  void run() const {
    const double n = static_cast<double>(gpus_.size());
    std::printf("\nNCCL among %zu GPUs; mean of %d runs\n%-16s %10s %10s %14s %14s\n", gpus_.size(), runs, "", "MiB",
                "ms", "S/t in GB/s", "bus in GB/s");
    rows("all_reduce", 2 * (n - 1) / n, [](const Gpu& gpu, std::size_t, std::size_t elements) {
      return ncclAllReduce(gpu.data, gpu.data, elements, ncclFloat, ncclSum, gpu.communicator, gpu.stream);
    });
    rows("reduce_scatter", (n - 1) / n, [this](const Gpu& gpu, std::size_t rank, std::size_t elements) {
      const std::size_t part = elements / gpus_.size();
      return ncclReduceScatter(gpu.data, gpu.data + rank * part, part, ncclFloat, ncclSum, gpu.communicator,
                               gpu.stream);
    });
    rows("all_gather", (n - 1) / n, [this](const Gpu& gpu, std::size_t rank, std::size_t elements) {
      const std::size_t part = elements / gpus_.size();
      return ncclAllGather(gpu.data + rank * part, gpu.data, part, ncclFloat, gpu.communicator, gpu.stream);
    });
    rows("broadcast", 1, [](const Gpu& gpu, std::size_t, std::size_t elements) {
      return ncclBroadcast(gpu.data, gpu.data, elements, ncclFloat, 0, gpu.communicator, gpu.stream);
    });
    rows("reduce", 1, [](const Gpu& gpu, std::size_t, std::size_t elements) {
      return ncclReduce(gpu.data, gpu.data, elements, ncclFloat, ncclSum, 0, gpu.communicator, gpu.stream);
    });
  }

 private:
  static constexpr std::size_t most = std::size_t{1} << 30;
  static constexpr int runs = 20;

  void call_all(const Call& call, std::size_t elements) const {
    require(ncclGroupStart(), "ncclGroupStart");
    for (std::size_t rank = 0; rank < gpus_.size(); ++rank) require(call(gpus_[rank], rank, elements), "a collective");
    require(ncclGroupEnd(), "ncclGroupEnd");
  }

  void wait() const {
    for (std::size_t rank = 0; rank < gpus_.size(); ++rank) {
      require(cudaSetDevice(static_cast<int>(rank)), "cudaSetDevice");
      require(cudaStreamSynchronize(gpus_[rank].stream), "cudaStreamSynchronize");
    }
  }

  void rows(const char* name, double factor, const Call& call) const {
    for (const std::size_t asked : {std::size_t{1} << 20, std::size_t{1} << 25, most}) {
      const std::size_t elements = asked / sizeof(float) / gpus_.size() * gpus_.size();
      for (int run = 0; run < 5; ++run) call_all(call, elements);
      wait();
      const auto begin = std::chrono::steady_clock::now();
      for (int run = 0; run < runs; ++run) call_all(call, elements);
      wait();
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      const double seconds = elapsed.count() / runs;
      const double rate = static_cast<double>(elements * sizeof(float)) / seconds / 1e9;
      std::printf("%-16s %10zu %10.3f %14.1f %14.1f\n", name, asked >> 20, seconds * 1e3, rate, rate * factor);
      std::fflush(stdout);
    }
  }

  std::vector<Gpu> gpus_;
};

}  // namespace

int main() {
  int count = 0;
  require(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (count < 2) {
    std::printf("\n%d GPU: there is nothing between GPUs to measure\n", count);
    return 0;
  }
  Collectives(count).run();
}
