// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/delay.h"
#include "kernels/fused.h"
#include "kernels/steps.h"
#include "src/device/gpu.h"

namespace lockstep::device {

/// A Gpu made of the kernels and of something that launches them: CUDA, or the host thread by thread.
///
/// `Launcher` has the calls of Gpu for memory and streams but delay(), facts(), describe(), and
///   template <class Kernel> void launch(const Kernel&, unsigned blocks, unsigned threads, std::uint64_t shared_bytes)
/// which may launch fewer blocks: those of every kernel take turns until all places are done.
template <class Launcher>
class KernelGpu final : public Gpu {
 public:
  template <class... Arguments>
  explicit KernelGpu(Arguments&&... arguments) : launcher_(std::forward<Arguments>(arguments)...) {}

  Launcher& launcher() { return launcher_; }
  const GpuFacts& facts() const override { return launcher_.facts(); }
  void* allocate(std::uint64_t bytes) override { return launcher_.allocate(bytes); }
  void release(void* memory) noexcept override { launcher_.release(memory); }
  void clear(void* memory, std::uint64_t bytes) override { launcher_.clear(memory, bytes); }
  void upload(void* to, const void* from, std::uint64_t bytes) override { launcher_.upload(to, from, bytes); }
  void download(void* to, const void* from, std::uint64_t bytes) override { launcher_.download(to, from, bytes); }
  void describe(const std::string& what) override { launcher_.describe(what); }

  void use_stream(unsigned stream) override { launcher_.use_stream(stream); }
  void record(std::uint32_t mark) override { launcher_.record(mark); }
  void wait_for(std::uint32_t mark) override { launcher_.wait_for(mark); }
  void delay(std::uint64_t nanoseconds) override { launcher_.launch(kernels::DelayKernel{nanoseconds}, 1, 32, 0); }

  void perform(kernels::Domain domain, const kernels::Instruction& instruction, const GpuBuffers& buffers) override {
    if (instruction.begin >= instruction.end) return;
    with_stored(domain, [&]<class Stored>(Stored*) { perform_as<Stored>(instruction, buffers); });
  }

  void perform_fused(kernels::Domain domain, const GpuProgramRun& run) override {
    if (run.places == 0) return;
    with_stored(domain, [&]<class Stored>(Stored*) { fuse_as<Stored>(run); });
  }

 private:
  static constexpr unsigned threads = 256;
  static constexpr unsigned blocks_per_multiprocessor = 8;  // of 256 threads; no GPU runs more at once

  template <class Work>
  static void with_stored(kernels::Domain domain, const Work& work) {
    switch (domain) {
      case kernels::Domain::float32:
        return work(static_cast<float*>(nullptr));
      case kernels::Domain::float64:
        return work(static_cast<double*>(nullptr));
      case kernels::Domain::bfloat16:
        return work(static_cast<kernels::Bfloat16*>(nullptr));
      case kernels::Domain::float16:
        return work(static_cast<kernels::Float16*>(nullptr));
      case kernels::Domain::prime61:
        return work(static_cast<kernels::Residue*>(nullptr));
    }
  }

  /// As many blocks as have work, and no more than could run at once; the launcher knows how many do.
  unsigned blocks_for(std::uint64_t items) const {
    const std::uint64_t wanted = (items + threads - 1) / threads;
    const std::uint64_t most = std::uint64_t{facts().multiprocessors} * blocks_per_multiprocessor;
    return static_cast<unsigned>(std::clamp<std::uint64_t>(wanted, 1, most));
  }

  template <class Stored>
  void perform_as(const kernels::Instruction& instruction, const GpuBuffers& buffers) {
    const kernels::StepArguments<Stored> arguments{instruction, buffers.tables, static_cast<Stored*>(buffers.data),
                                                   buffers.stride, buffers.results};
    switch (instruction.kind) {
      case kernels::Kind::generate:
        return change<Stored, kernels::Kind::generate>(arguments);
      case kernels::Kind::reference:
        return change<Stored, kernels::Kind::reference>(arguments);
      case kernels::Kind::scale:
        return change<Stored, kernels::Kind::scale>(arguments);
      case kernels::Kind::zero:
        return change<Stored, kernels::Kind::zero>(arguments);
      case kernels::Kind::copy:
        return change<Stored, kernels::Kind::copy>(arguments);
      case kernels::Kind::accumulate:
        return change<Stored, kernels::Kind::accumulate>(arguments);
      case kernels::Kind::collective:
        return change<Stored, kernels::Kind::collective>(arguments);
      case kernels::Kind::move:
        return change<Stored, kernels::Kind::move>(arguments);
      case kernels::Kind::check:
        return check<Stored, kernels::Kind::check>(arguments);
      case kernels::Kind::hash:
        return check<Stored, kernels::Kind::hash>(arguments);
    }
  }

  template <class Stored, kernels::Kind kind>
  void change(const kernels::StepArguments<Stored>& arguments) {
    const std::uint64_t places = arguments.instruction.end - arguments.instruction.begin;
    using Kernel = kernels::ChangeKernel<Stored, kind>;
    launcher_.launch(Kernel{arguments}, blocks_for(Kernel::threads_for(places)), threads, 0);
  }

  template <class Stored, kernels::Kind kind>
  void check(const kernels::StepArguments<Stored>& arguments) {
    using Kernel = kernels::CheckKernel<Stored, kind>;
    const std::uint64_t places = arguments.instruction.end - arguments.instruction.begin;
    launcher_.launch(Kernel{arguments}, blocks_for(Kernel::threads_for(places)), threads, Kernel::shared_bytes);
  }

  template <class Stored>
  void fuse_as(const GpuProgramRun& run) {
    const unsigned together = fused_packs(facts(), run.slots, run.result_count);
    if (together == 0) throw std::logic_error("a program that does not fit into the memory of a block");
    const std::uint64_t shared_bytes = kernels::fused_bytes(run.slots, run.result_count, together);
    const std::uint64_t resident =
        facts().multiprocessors * std::max<std::uint64_t>(facts().block_memory / shared_bytes, 1);
    const std::uint64_t packs = (run.places + kernels::pack<Stored> - 1) / kernels::pack<Stored>;
    const std::uint64_t blocks = std::min((packs + together - 1) / together, resident);
    launcher_.launch(kernels::FusedKernel<Stored>{run.instructions, run.count, run.tables, run.slots, run.places,
                                                  run.result_count, run.results, together},
                     static_cast<unsigned>(blocks), kernels::fused_threads(together), shared_bytes);
  }

  Launcher launcher_;
};

}  // namespace lockstep::device
