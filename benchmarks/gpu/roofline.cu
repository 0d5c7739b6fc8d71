// SPDX-License-Identifier: Apache-2.0
// What tools/bench-gpu builds with nvcc alone: the kernels against a device-to-device copy of the same run.
#include <thrust/device_ptr.h>
#include <thrust/reduce.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda_launch.h"
#include "kernels/fused.h"
#include "kernels/steps.h"
#include "src/device/gpu.h"

namespace {

using namespace lockstep::kernels;

constexpr std::uint64_t gibibyte = std::uint64_t{1} << 30;
/// Of the bandwidth of a device-to-device copy, for every kernel that is bound by memory.
constexpr double goal = 0.85;

void require(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "bench-gpu: %s says \"%s\"\n", call, cudaGetErrorString(error));
  std::exit(3);
}

/// Memory of the GPU that holds these rows.
template <class Row>
Row* on_gpu(const std::vector<Row>& rows) {
  void* memory = nullptr;
  require(cudaMalloc(&memory, rows.size() * sizeof(Row)), "cudaMalloc");
  require(cudaMemcpy(memory, rows.data(), rows.size() * sizeof(Row), cudaMemcpyHostToDevice), "cudaMemcpy");
  return static_cast<Row*>(memory);
}

/// Seconds of the median of several runs, after some that warm up.
double measure(const std::function<void()>& work) {
  cudaEvent_t begin{}, end{};
  require(cudaEventCreate(&begin), "cudaEventCreate");
  require(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> milliseconds;
  for (int run = 0; run < 14; ++run) {
    require(cudaEventRecord(begin), "cudaEventRecord");
    work();
    require(cudaEventRecord(end), "cudaEventRecord");
    require(cudaEventSynchronize(end), "cudaEventSynchronize");
    float elapsed = 0;
    require(cudaEventElapsedTime(&elapsed, begin, end), "cudaEventElapsedTime");
    if (run >= 3) milliseconds.push_back(elapsed);
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  return milliseconds[milliseconds.size() / 2] / 1e3;
}

class Roofline {
 public:
  explicit Roofline(const cudaDeviceProp& properties) : properties_(properties) {
    require(cudaMalloc(&data_, 3 * gibibyte), "cudaMalloc of 3 GiB");
    require(cudaMemset(data_, 0, 3 * gibibyte), "cudaMemset");
    require(cudaMalloc(&results_, result_count * sizeof(std::uint64_t)), "cudaMalloc");
    require(cudaMemset(results_, 0, result_count * sizeof(std::uint64_t)), "cudaMemset");
  }

  void run() {
    std::printf("%-30s %10s %10s %10s %12s\n", "", "GiB moved", "ms", "GB/s", "of the copy");
    auto* const bytes = static_cast<char*>(data_);
    copy_ = row(
        "device-to-device copy", 2 * gibibyte,
        [&] {
          require(cudaMemcpyAsync(bytes + gibibyte, bytes, gibibyte, cudaMemcpyDeviceToDevice), "cudaMemcpyAsync");
        },
        false);
    row(
        "thrust::reduce, float32", gibibyte,
        [&] {
          const thrust::device_ptr<float> begin(static_cast<float*>(data_));
          sum_ += thrust::reduce(begin, begin + gibibyte / sizeof(float));
        },
        false);
    steps<float>("float32");
    steps<double>("float64");
    steps<Bfloat16>("bfloat16");
    steps<Float16>("float16");
    steps<Residue>("prime61");
    replay<float>("float32");
    replay<Residue>("prime61");
    std::printf("%d of %d kernels reach the goal of %.0f%% of the copy\n", ours_ - missed_, ours_, 100 * goal);
  }

 private:
  static constexpr std::uint64_t result_count = 64;
  static constexpr unsigned ranks = 8;

  double row(const std::string& name, std::uint64_t bytes, const std::function<void()>& work, bool is_ours = true) {
    const double seconds = measure(work);
    const double rate = static_cast<double>(bytes) / seconds;
    const double fraction = rate / (copy_ > 0 ? copy_ : rate);
    const bool missed = is_ours && fraction < goal;
    std::printf("%-30s %10.2f %10.3f %10.1f %11.1f%%%s\n", name.c_str(),
                static_cast<double>(bytes) / static_cast<double>(gibibyte), seconds * 1e3, rate / 1e9, 100 * fraction,
                missed ? "  below the goal" : "");
    std::fflush(stdout);
    ours_ += is_ours;
    missed_ += missed;
    return rate;
  }

  /// With as many blocks as run at once, as the engine launches it.
  template <class Kernel>
  void launch(const Kernel& kernel, unsigned threads, std::size_t shared_bytes) {
    static unsigned resident = 0;
    if (resident == 0) {
      require(resident_blocks<Kernel>(threads, shared_bytes, resident),
              "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    }
    const unsigned blocks = static_cast<unsigned>(properties_.multiProcessorCount) * resident;
    require(launch_on_gpu(kernel, blocks, threads, shared_bytes), "a launch");
  }

  template <class Stored>
  Instruction whole(std::uint64_t elements) const {
    Instruction instruction;
    instruction.spans = 1;
    instruction.end = elements;
    instruction.bits = 8;
    instruction.terms = 1;
    return instruction;
  }

  template <class Stored>
  void steps(const std::string& type) {
    const std::uint64_t elements = gibibyte / sizeof(Stored), part = elements / ranks;
    std::vector<std::uint32_t> members;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) members.push_back(rank);
    const Tables tables{on_gpu(std::vector<Span>{{0, elements}}), on_gpu(std::vector<Addend>{{1234567}}),
                        on_gpu(members)};
    const Tables parts{on_gpu(std::vector<Span>{{0, part}}), tables.terms, tables.members};
    change<Stored, Kind::zero>("zero, " + type, gibibyte, whole<Stored>(elements), tables, elements);
    change<Stored, Kind::generate>("generate, " + type, 2 * gibibyte, whole<Stored>(elements), tables, elements);
    change<Stored, Kind::scale>("scale, " + type, 2 * gibibyte, whole<Stored>(elements), tables, elements);
    Instruction two = whole<Stored>(elements);
    two.from = 1;
    change<Stored, Kind::copy>("copy, " + type, 2 * gibibyte, two, tables, elements);
    change<Stored, Kind::accumulate>("accumulate, " + type, 3 * gibibyte, two, tables, elements);
    Instruction together = whole<Stored>(part);
    together.members = ranks;
    change<Stored, Kind::collective>("all-reduce of 8, " + type, 2 * gibibyte, together, parts, part);
    fill<Stored>(two, tables, elements);
    check<Stored, Kind::hash>("hash, " + type, gibibyte, whole<Stored>(elements), tables, elements);
    check<Stored, Kind::check>("compare and hash, " + type, 2 * gibibyte, two, tables, elements);
    const Tables odd{on_gpu(std::vector<Span>{{0, elements, 1}}), tables.terms, tables.members};
    check<Stored, Kind::hash>("hash from index 1, " + type, gibibyte, whole<Stored>(elements), odd, elements);
  }

  template <class Stored, Kind kind>
  void change(const std::string& name, std::uint64_t bytes, Instruction instruction, const Tables& tables,
              std::uint64_t stride) {
    instruction.kind = kind;
    const StepArguments<Stored> arguments{instruction, tables, static_cast<Stored*>(data_), stride, results_};
    row(name, bytes, [&] { launch(ChangeKernel<Stored, kind>{arguments}, most_threads, 0); });
  }

  /// Both buffers of an instruction get the same numbers: zeros would be kinder than what is hashed in earnest.
  template <class Stored>
  void fill(Instruction instruction, const Tables& tables, std::uint64_t stride) {
    for (const std::uint32_t target : {instruction.target, instruction.from}) {
      instruction.target = target;
      const StepArguments<Stored> arguments{instruction, tables, static_cast<Stored*>(data_), stride, results_};
      launch(ChangeKernel<Stored, Kind::zero>{arguments}, most_threads, 0);
      launch(ChangeKernel<Stored, Kind::generate>{arguments}, most_threads, 0);
    }
  }

  template <class Stored, Kind kind>
  void check(const std::string& name, std::uint64_t bytes, Instruction instruction, const Tables& tables,
             std::uint64_t stride) {
    instruction.kind = kind;
    using Kernel = CheckKernel<Stored, kind>;
    const StepArguments<Stored> arguments{instruction, tables, static_cast<Stored*>(data_), stride, results_};
    row(name, bytes, [&] { launch(Kernel{arguments}, most_threads, Kernel::shared_bytes); });
  }

  /// Backward on 8 ranks, their sum, and the comparison with the reference: step by step in the GPU's memory, and all
  /// steps in one kernel without it.
  template <class Stored>
  void replay(const std::string& type) {
    const std::uint64_t elements = gibibyte / 4 / sizeof(Stored);
    std::vector<Instruction> program;
    std::vector<std::uint32_t> members;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      members.push_back(rank);
      Instruction backward = whole<Stored>(elements);
      backward.kind = Kind::generate;
      backward.target = rank;
      program.push_back(backward);
    }
    Instruction together = whole<Stored>(elements);
    together.kind = Kind::collective;
    together.members = ranks;
    program.push_back(together);
    Instruction reference = whole<Stored>(elements);
    reference.kind = Kind::reference;
    reference.target = ranks;
    reference.terms = ranks;
    program.push_back(reference);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      Instruction comparison = whole<Stored>(elements);
      comparison.kind = Kind::check;
      comparison.target = rank;
      comparison.from = ranks;
      comparison.result = 1 + rank * check_results;
      program.push_back(comparison);
    }
    std::vector<Addend> addends(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) addends[rank].key = 1234567 + rank;
    const Tables tables{on_gpu(std::vector<Span>{{0, elements}}), on_gpu(addends), on_gpu(members)};
    // Cleared, generated (read and written) and added up (likewise) on each rank; the reference is written; comparisons
    // read a rank and the reference.
    const std::uint64_t one = elements * sizeof(Stored), moved = (ranks * (1 + 2 + 2 + 2) + 1) * one;
    row("8 ranks step by step, " + type, moved, [&] {
      require(cudaMemsetAsync(data_, 0, ranks * one), "cudaMemsetAsync");
      for (const Instruction& instruction : program)
        perform<Stored>({instruction, tables, static_cast<Stored*>(data_), elements, results_});
    });
    lockstep::device::GpuFacts facts;
    facts.block_memory = properties_.sharedMemPerBlockOptin;
    const unsigned packs = lockstep::device::fused_packs(facts, ranks + 1, result_count);
    const FusedKernel<Stored> kernel{on_gpu(program), program.size(), tables,   ranks + 1,
                                     elements,        result_count,   results_, packs};
    const double seconds =
        measure([&] { launch(kernel, fused_threads(packs), fused_bytes(ranks + 1, result_count, packs)); });
    std::printf("%-30s %10s %10.3f   %.2f billion elements of 8 ranks through %zu steps each second\n",
                ("fused, " + type).c_str(), "none", seconds * 1e3, static_cast<double>(elements) / seconds / 1e9,
                program.size());
  }

  /// One step of replay().
  template <class Stored>
  void perform(const StepArguments<Stored>& arguments) {
    switch (arguments.instruction.kind) {
      case Kind::generate:
        return launch(ChangeKernel<Stored, Kind::generate>{arguments}, most_threads, 0);
      case Kind::collective:
        return launch(ChangeKernel<Stored, Kind::collective>{arguments}, most_threads, 0);
      case Kind::reference:
        return launch(ChangeKernel<Stored, Kind::reference>{arguments}, most_threads, 0);
      default: {
        using Kernel = CheckKernel<Stored, Kind::check>;
        return launch(Kernel{arguments}, most_threads, Kernel::shared_bytes);
      }
    }
  }

  cudaDeviceProp properties_;
  void* data_ = nullptr;
  std::uint64_t* results_ = nullptr;
  double copy_ = 0;
  int ours_ = 0, missed_ = 0;
  float sum_ = 0;
};

}  // namespace

int main() {
  cudaDeviceProp properties{};
  require(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("%s, %d multiprocessors; median of 11 runs\n", properties.name, properties.multiProcessorCount);
  Roofline(properties).run();
}
