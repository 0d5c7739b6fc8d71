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
    constexpr unsigned width = pack<Stored>;
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
    HashKeys<pack<Stored>> keys;
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
      CheckSum<Stored, kind> sum;
      add_up(place, shared.keys, sum);
      sum.add_to(place, instruction, shared.sums);
    } else {
      const unsigned count = kind == Kind::hash ? hash_results : check_results;
      if (place.thread < count && shared.sums[place.thread] != 0)
        add_atomically(arguments.results + instruction.result + place.thread, shared.sums[place.thread]);
    }
  }

 private:
  static constexpr unsigned width = pack<Stored>;

  LOCKSTEP_HOST_DEVICE void add_up(const GridPlace& place, const HashKeys<pack<Stored>>& keys,
                                   CheckSum<Stored, kind>& sum) const {
    const Instruction& instruction = arguments.instruction;
    const Span* spans = arguments.tables.spans + instruction.first_span;
    const Buffers<Stored> buffers{arguments.data, arguments.stride};
    std::uint64_t guess = 0;
    for (std::uint64_t stretch = instruction.begin / hash_block + place.index() / warp;
         stretch * hash_block < instruction.end; stretch += place.count() / warp) {
      const std::uint64_t begin = stretch * hash_block, first = begin + place.thread % warp * width;
      const std::uint64_t at = find_span(spans, instruction.spans, begin, guess);
      if (at < instruction.spans && spans[at].begin <= begin && spans[at].end >= begin + hash_block &&
          (spans[at].other - spans[at].begin) % width == 0) {
        add_whole(keys, buffers, first, spans[at].other + (first - spans[at].begin), sum);
        continue;
      }
      LOCKSTEP_ROLLED
      for (unsigned part = 0; part < hash_block; part += warp * width) {
        over_pack<width>(spans, instruction.spans, first + part, guess,
                         [&](auto whole, const Span& span, std::uint64_t begin_of_part) {
                           sum.template add<decltype(whole)::width>(instruction, keys, buffers, span, begin_of_part);
                         });
      }
    }
  }

  /// What a thread has of a stretch that lies in one span, its packs at the hash's. All lanes of a warp come here
  /// together. Several packs are read before the first is looked at, so that the memory has enough to do.
  LOCKSTEP_HOST_DEVICE void add_whole(const HashKeys<pack<Stored>>& keys, const Buffers<Stored>& buffers,
                                      std::uint64_t first, std::uint64_t global, CheckSum<Stored, kind>& sum) const {
    constexpr unsigned step = warp * width, parts = hash_block / step, at_once = parts < 4 ? parts : 4;
    LOCKSTEP_ROLLED
    for (unsigned part = 0; part < parts; part += at_once) {
      Together<Stored, width> stored[at_once][CheckSum<Stored, kind>::buffers_read];
      LOCKSTEP_UNROLLED
      for (unsigned i = 0; i < at_once; ++i)
        sum.template load<width>(arguments.instruction, buffers, first + (part + i) * step, stored[i]);
      LOCKSTEP_UNROLLED
      for (unsigned i = 0; i < at_once; ++i) {
        sum.template compare<width>(stored[i]);
        if (kind == Kind::hash || arguments.instruction.hashes != 0)
          sum.hashes.template add_aligned<width>(keys, stored[i], global + (part + i) * step);
      }
    }
  }
};

}  // namespace lockstep::kernels
