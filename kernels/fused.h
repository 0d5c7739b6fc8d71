// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/hash_sums.h"

namespace lockstep::kernels {

/// The memory of a block in which each thread takes a pack of each slot through a program.
constexpr std::uint64_t fused_bytes(std::uint64_t slots, std::uint64_t results, unsigned threads) {
  return sizeof(HashKeys<4>) + (results + results % 2) * sizeof(std::uint64_t) + slots * threads * 16;
}

/// A whole program in one go: a thread takes a pack of each buffer through all instructions, in the memory of its
/// block. Only for programs in which an element never leaves its place.
template <class Stored>
struct FusedKernel {
  static constexpr int phases = 3;
  struct Local {};

  const Instruction* instructions = nullptr;
  std::uint64_t count = 0;
  Tables tables;
  std::uint32_t slots = 0;
  std::uint64_t end = 0;  ///< behind the last place
  std::uint64_t result_count = 0;
  std::uint64_t* results = nullptr;

  template <int phase>
  LOCKSTEP_HOST_DEVICE void run(const GridPlace& place, unsigned char* memory, Local&) const {
    HashKeys<width>& keys = *reinterpret_cast<HashKeys<width>*>(memory);
    auto* const sums = reinterpret_cast<std::uint64_t*>(memory + sizeof(HashKeys<4>));
    if constexpr (phase == 0) {
      keys.fill(place);
      for (std::uint64_t i = place.thread; i < result_count; i += place.threads) sums[i] = 0;
    } else if constexpr (phase == 1) {
      replay(place, keys, sums, reinterpret_cast<Stored*>(sums + result_count + result_count % 2));
    } else {
      for (std::uint64_t i = place.thread; i < result_count; i += place.threads) {
        if (sums[i] != 0) add_atomically(results + i, sums[i]);
      }
    }
  }

 private:
  static constexpr unsigned width = pack<Stored>;

  LOCKSTEP_HOST_DEVICE void replay(const GridPlace& place, const HashKeys<width>& keys, std::uint64_t* sums,
                                   Stored* data) const {
    Buffers<Stored> buffers{data, std::uint64_t{place.threads} * width};
    // All threads of a warp go round equally often, as they add up together.
    for (std::uint64_t at = place.index() - place.thread; at * width < end; at += place.count()) {
      const std::uint64_t first = (at + place.thread) * width;
      const bool works = first < end;
      buffers.shift = first - std::uint64_t{place.thread} * width;
      const typename Number<Stored>::Value nothing[width] = {};
      for (std::uint32_t slot = 0; slot < slots; ++slot) buffers.template store<width>(slot, first, nothing);
      for (std::uint64_t i = 0; i < count; ++i) perform(instructions[i], place, works, first, keys, sums, buffers);
    }
    if (buffers.lost) add_atomically(sums + lost_result, 1);
  }

  LOCKSTEP_HOST_DEVICE void perform(const Instruction& instruction, const GridPlace& place, bool works,
                                    std::uint64_t first, const HashKeys<width>& keys, std::uint64_t* sums,
                                    Buffers<Stored>& buffers) const {
    switch (instruction.kind) {
      case Kind::generate:
        return change_pack<Kind::generate>(instruction, works, first, buffers);
      case Kind::reference:
        return change_pack<Kind::reference>(instruction, works, first, buffers);
      case Kind::scale:
        return change_pack<Kind::scale>(instruction, works, first, buffers);
      case Kind::zero:
        return change_pack<Kind::zero>(instruction, works, first, buffers);
      case Kind::copy:
        return change_pack<Kind::copy>(instruction, works, first, buffers);
      case Kind::accumulate:
        return change_pack<Kind::accumulate>(instruction, works, first, buffers);
      case Kind::collective:
        return change_pack<Kind::collective>(instruction, works, first, buffers);
      case Kind::move:  // never in such a program
        return;
      case Kind::check:
        return check_pack<Kind::check>(instruction, place, works, first, keys, sums, buffers);
      case Kind::hash:
        return check_pack<Kind::hash>(instruction, place, works, first, keys, sums, buffers);
    }
  }

  template <Kind kind>
  LOCKSTEP_HOST_DEVICE void check_pack(const Instruction& instruction, const GridPlace& place, bool works,
                                       std::uint64_t first, const HashKeys<width>& keys, std::uint64_t* sums,
                                       const Buffers<Stored>& buffers) const {
    CheckSum<Stored, kind> sum;
    std::uint64_t guess = 0;
    if (works) {
      over_pack<width>(tables.spans + instruction.first_span, instruction.spans, first, guess,
                       [&](auto part, const Span& span, std::uint64_t begin_of_part) {
                         sum.template add<decltype(part)::width>(instruction, keys, buffers, span, begin_of_part);
                       });
    }
    sum.add_to(place, instruction, sums + instruction.result);
  }

  template <Kind kind>
  LOCKSTEP_HOST_DEVICE void change_pack(const Instruction& instruction, bool works, std::uint64_t first,
                                        Buffers<Stored>& buffers) const {
    if (!works) return;
    std::uint64_t guess = 0;
    over_pack<width>(tables.spans + instruction.first_span, instruction.spans, first, guess,
                     [&](auto part, const Span& span, std::uint64_t begin_of_part) {
                       change<Stored, kind, decltype(part)::width>(instruction, tables, buffers, span, begin_of_part);
                     });
  }
};

}  // namespace lockstep::kernels
