// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/hash_sums.h"

namespace lockstep::kernels {

/// The memory of a block that holds so many packs of each slot.
constexpr std::uint64_t fused_bytes(std::uint64_t slots, std::uint64_t results, unsigned packs) {
  return sizeof(HashKeys<4>) + (results + results % 2) * sizeof(std::uint64_t) + slots * packs * 16;
}
/// Threads of a block that holds so many packs. A thread takes several, for which an instruction is read and what a
/// check adds up is joined once.
constexpr unsigned fused_threads(unsigned packs) {
  constexpr unsigned each = 2;
  return packs > each * warp ? packs / each : warp;
}

/// A whole program in one go: a thread takes some packs of each buffer through all instructions, in the memory of its
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
  unsigned packs = 0;  ///< that a block holds; a multiple of its threads

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
    Buffers<Stored> buffers{data, std::uint64_t{packs} * width};
    // All threads of a warp go round equally often, as they add up together.
    for (std::uint64_t at = std::uint64_t{place.block} * packs; at * width < end;
         at += std::uint64_t{place.blocks} * packs) {
      buffers.shift = at * width;
      const typename Number<Stored>::Value nothing[width] = {};
      for (std::uint32_t slot = 0; slot < slots; ++slot) {
        for (unsigned i = place.thread; i < packs; i += place.threads)
          buffers.template store<width>(slot, buffers.shift + std::uint64_t{i} * width, nothing);
      }
      for (std::uint64_t i = 0; i < count; ++i)
        perform(instructions[i], place, (at + place.thread) * width, keys, sums, buffers);
    }
    if (buffers.lost != 0) add_atomically(sums + lost_result, 1);
  }

  LOCKSTEP_HOST_DEVICE void perform(const Instruction& instruction, const GridPlace& place, std::uint64_t first,
                                    const HashKeys<width>& keys, std::uint64_t* sums, Buffers<Stored>& buffers) const {
    switch (instruction.kind) {
      case Kind::generate:
        return change_packs<Kind::generate>(instruction, place, first, buffers);
      case Kind::reference:
        return change_packs<Kind::reference>(instruction, place, first, buffers);
      case Kind::scale:
        return change_packs<Kind::scale>(instruction, place, first, buffers);
      case Kind::zero:
        return change_packs<Kind::zero>(instruction, place, first, buffers);
      case Kind::copy:
        return change_packs<Kind::copy>(instruction, place, first, buffers);
      case Kind::accumulate:
        return change_packs<Kind::accumulate>(instruction, place, first, buffers);
      case Kind::collective:
        return change_packs<Kind::collective>(instruction, place, first, buffers);
      case Kind::move:  // never in such a program
        return;
      case Kind::check:
        return check_packs<Kind::check>(instruction, place, first, keys, sums, buffers);
      case Kind::hash:
        return check_packs<Kind::hash>(instruction, place, first, keys, sums, buffers);
    }
  }

  template <Kind kind>
  LOCKSTEP_HOST_DEVICE void check_packs(const Instruction& instruction, const GridPlace& place, std::uint64_t first,
                                        const HashKeys<width>& keys, std::uint64_t* sums,
                                        const Buffers<Stored>& buffers) const {
    CheckSum<Stored, kind> sum;
    over_own(instruction, place, first, [&](auto part, const Span& span, std::uint64_t from) {
      sum.template add<decltype(part)::width>(instruction, keys, buffers, span, from);
    });
    sum.add_to(place, instruction, sums + instruction.result);
  }

  template <Kind kind>
  LOCKSTEP_HOST_DEVICE void change_packs(const Instruction& instruction, const GridPlace& place, std::uint64_t first,
                                         Buffers<Stored>& buffers) const {
    over_own(instruction, place, first, [&](auto part, const Span& span, std::uint64_t from) {
      change<Stored, kind, decltype(part)::width>(instruction, tables, buffers, span, from);
    });
  }

  /// Calls work for the packs of a thread; places behind the last one are in no span.
  template <class Work>
  LOCKSTEP_HOST_DEVICE void over_own(const Instruction& instruction, const GridPlace& place, std::uint64_t first,
                                     const Work& work) const {
    std::uint64_t guess = 0;
    over_packs<width>(tables.spans + instruction.first_span, instruction.spans, first, packs / place.threads,
                      place.threads * width, guess, work);
  }
};

}  // namespace lockstep::kernels
