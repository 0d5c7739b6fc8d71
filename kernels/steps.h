// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/hash_sums.h"

// One instruction over all packs of the buffers in the GPU's memory.

namespace lockstep::kernels {

template <class Stored>
struct StepArguments {
  Instruction instruction;
  Tables tables;
  Stored* data = nullptr;
  std::uint64_t stride = 0;
  std::uint64_t* results = nullptr;
};

/// Every kind but check and hash.
template <class Stored, Kind kind>
struct ChangeKernel {
  static constexpr int phases = 1;
  struct Local {};
  StepArguments<Stored> arguments;

  template <int>
  LOCKSTEP_HOST_DEVICE void run(const GridPlace& place, unsigned char*, Local&) const {
    // Where elements are read from other places, they do not lie together.
    constexpr unsigned width = kind == Kind::move ? 1 : pack<Stored>;
    const Instruction& instruction = arguments.instruction;
    const Span* spans = arguments.tables.spans + instruction.first_span;
    Buffers<Stored> buffers{arguments.data, arguments.stride};
    std::uint64_t guess = 0;
    for (std::uint64_t at = instruction.begin / width + place.index(); at * width < instruction.end;
         at += place.count()) {
      over_pack<width>(
          spans, instruction.spans, at * width, guess, [&](auto part, const Span& span, std::uint64_t first) {
            change<Stored, kind, decltype(part)::width>(instruction, arguments.tables, buffers, span, first);
          });
    }
    if (buffers.lost) add_atomically(arguments.results + lost_result, 1);
  }
};

/// check and hash. A warp takes 512 elements at a time, so that each of its threads stays in a block of the hash.
template <class Stored, Kind kind>
struct CheckKernel {
  static constexpr int phases = 3;
  struct Local {};
  struct Shared {
    HashKeys keys;
    std::uint64_t sums[check_results];
  };
  static constexpr std::size_t shared_bytes = sizeof(Shared);
  StepArguments<Stored> arguments;

  template <int phase>
  LOCKSTEP_HOST_DEVICE void run(const GridPlace& place, unsigned char* memory, Local&) const {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Instruction& instruction = arguments.instruction;
    if constexpr (phase == 0) {
      shared.keys.fill(place);
      if (place.thread < check_results) shared.sums[place.thread] = 0;
    } else if constexpr (phase == 1) {
      CheckSum<Stored> sum;
      add_up(place, shared.keys, sum);
      sum.add_to(place, instruction, shared.sums);
    } else {
      const unsigned count = kind == Kind::hash ? hash_results : check_results;
      if (place.thread < count && shared.sums[place.thread] != 0)
        add_atomically(arguments.results + instruction.result + place.thread, shared.sums[place.thread]);
    }
  }

 private:
  LOCKSTEP_HOST_DEVICE void add_up(const GridPlace& place, const HashKeys& keys, CheckSum<Stored>& sum) const {
    constexpr unsigned width = pack<Stored>;
    const Instruction& instruction = arguments.instruction;
    const Span* spans = arguments.tables.spans + instruction.first_span;
    const Buffers<Stored> buffers{arguments.data, arguments.stride};
    std::uint64_t guess = 0;
    for (std::uint64_t stretch = instruction.begin / hash_block + place.index() / warp;
         stretch * hash_block < instruction.end; stretch += place.count() / warp) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
      for (unsigned part = 0; part < hash_block / width / warp; ++part) {
        const std::uint64_t first = stretch * hash_block + (part * warp + place.thread % warp) * width;
        over_pack<width>(spans, instruction.spans, first, guess,
                         [&](auto whole, const Span& span, std::uint64_t begin) {
                           constexpr unsigned count = decltype(whole)::width;
                           if constexpr (kind == Kind::hash) {
                             sum.template hash<count>(instruction, keys, buffers, span, begin);
                           } else {
                             sum.template compare<count>(instruction, keys, buffers, span, begin);
                           }
                         });
      }
    }
  }
};

}  // namespace lockstep::kernels
