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

/// Every kind but check and hash. A thread takes several packs of a span, a warp apart, so that the span is looked up
/// once for them.
template <class Stored, Kind kind>
struct ChangeKernel {
  static constexpr int phases = 1;
  struct Local {};
  StepArguments<Stored> arguments;

  /// As many threads have work.
  static constexpr std::uint64_t threads_for(std::uint64_t places) { return (places / (packs * step) + 2) * warp; }

  template <int>
  LOCKSTEP_HOST_DEVICE void run(const GridPlace& place, unsigned char*, Local&) const {
    const Instruction& instruction = arguments.instruction;
    const Span* spans = arguments.tables.spans + instruction.first_span;
    Buffers<Stored> buffers{arguments.data, arguments.stride};
    std::uint64_t guess = 0;
    const std::uint64_t begin = instruction.begin / width * width + place.thread % warp * width;
    for (std::uint64_t at = place.index() / warp;; at += place.count() / warp) {
      const std::uint64_t first = begin + at * packs * step;
      if (first >= instruction.end) break;
      over_packs<width>(
          spans, instruction.spans, first, packs, step, guess, [&](auto part, const Span& span, std::uint64_t from) {
            change<Stored, kind, decltype(part)::width>(instruction, arguments.tables, buffers, span, from);
          });
    }
    if (buffers.lost != 0) add_atomically(arguments.results + lost_result, 1);
  }

 private:
  static constexpr unsigned width = pack<Stored>, packs = 8, step = warp * width;
};

/// check and hash. A few threads take 512 elements at a time, so that each of them stays in a block of the hash for
/// long; for a hash alone twice as many, since the keys are read once for two buffers or for two blocks.
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

  /// As many threads have work.
  static constexpr std::uint64_t threads_for(std::uint64_t places) {
    return (places / (rows * hash_block) + 2) * threads;
  }

  template <int phase>
  LOCKSTEP_HOST_DEVICE void run(const GridPlace& place, unsigned char* memory, Local&) const {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Instruction& instruction = arguments.instruction;
    if constexpr (phase == 0) {
      shared.keys.fill(place, offset() % width);
      if (place.thread < check_results) shared.sums[place.thread] = 0;
    } else if constexpr (phase == 1) {
      Sum sum{0, HashSum<Stored, Sum::buffers_read, rows>(offset() % width)};
      add_up(place, shared.keys, sum);
      sum.add_to(place, instruction, shared.sums);
    } else {
      const unsigned count = kind == Kind::hash ? hash_results : check_results;
      if (place.thread < count && shared.sums[place.thread] != 0)
        add_atomically(arguments.results + instruction.result + place.thread, shared.sums[place.thread]);
    }
  }

 private:
  static constexpr unsigned width = pack<Stored>, threads = width < 4 ? 16 : 8, rows = kind == Kind::hash ? 2 : 1;
  using Sum = CheckSum<Stored, kind, rows>;

  static constexpr unsigned step = threads * width;

  /// How far the places of the first span stand behind those of the hash. Where a global index begins depends on the
  /// layout, and most often all spans are as far.
  LOCKSTEP_HOST_DEVICE unsigned offset() const {
    if (arguments.instruction.spans == 0) return 0;
    const Span& span = arguments.tables.spans[arguments.instruction.first_span];
    return static_cast<unsigned>((span.other - span.begin) % hash_block);
  }

  LOCKSTEP_HOST_DEVICE void add_up(const GridPlace& place, const HashKeys<pack<Stored>>& keys, Sum& sum) const {
    const Instruction& instruction = arguments.instruction;
    const Span* spans = arguments.tables.spans + instruction.first_span;
    const Buffers<Stored> buffers{arguments.data, arguments.stride};
    constexpr unsigned stretch = rows * hash_block;
    // Stretches begin where the packs of the keys do; the first one before the first place.
    const std::uint64_t before = (instruction.begin + offset() - sum.hashes.shift()) % hash_block;
    const auto end = static_cast<std::int64_t>(instruction.end);
    std::uint64_t guess = 0;
    for (auto from = static_cast<std::int64_t>(instruction.begin - before + place.index() / threads * stretch);
         from < end; from += static_cast<std::int64_t>(place.count() / threads * stretch)) {
      const auto begin = static_cast<std::uint64_t>(from);
      const std::uint64_t first = begin + place.thread % threads * width;
      const std::uint64_t at = find_span(spans, instruction.spans, begin, guess);
      if (at < instruction.spans && spans[at].begin <= begin && spans[at].end >= begin + stretch) {
        const std::uint64_t global = spans[at].other + (begin - spans[at].begin);
        if ((global - sum.hashes.shift()) % hash_block == 0) {
          add_whole(place, keys, buffers, first, global / hash_block, sum);
          continue;
        }
      }
      LOCKSTEP_ROLLED
      for (unsigned part = 0; part < stretch; part += step) {
        if (first + part >= instruction.end) continue;  // places before 0 wrap round, and are ≥ end too
        over_pack<width>(spans, instruction.spans, first + part, guess,
                         [&](auto whole, const Span& span, std::uint64_t begin_of_part) {
                           sum.template add<decltype(whole)::width>(instruction, keys, buffers, span, begin_of_part);
                         });
      }
    }
  }

  /// What a thread has of stretches that lie in one span, each in one block of the hash but for the elements by which
  /// the keys are shifted. Several packs are read before the first is looked at, so that the memory has enough to do.
  LOCKSTEP_HOST_DEVICE void add_whole(const GridPlace& place, const HashKeys<pack<Stored>>& keys,
                                      const Buffers<Stored>& buffers, std::uint64_t first, std::uint64_t block,
                                      Sum& sum) const {
    constexpr unsigned parts = hash_block / step, at_once = 2 * rows, each = Sum::buffers_read;
    const bool hashes = kind == Kind::hash || arguments.instruction.hashes != 0;
    const unsigned place_of_keys = place.thread % threads * width;
    sum.hashes.begin_block(block);
    LOCKSTEP_ROLLED
    for (unsigned part = 0; part < parts; part += at_once) {
      Together<Stored, width> stored[at_once][rows * each];
      LOCKSTEP_UNROLLED
      for (unsigned i = 0; i < at_once; ++i) {
        LOCKSTEP_UNROLLED
        for (unsigned row = 0; row < rows; ++row)
          sum.template load<width>(arguments.instruction, buffers, first + row * hash_block + (part + i) * step,
                                   stored[i] + row * each);
      }
      LOCKSTEP_UNROLLED
      for (unsigned i = 0; i < at_once; ++i) {
        LOCKSTEP_UNROLLED
        for (unsigned row = 0; row < rows; ++row) sum.template compare<width>(stored[i] + row * each);
        if (hashes) sum.hashes.add_rows(keys, stored[i], place_of_keys + (part + i) * step);
      }
    }
    if (hashes && sum.hashes.shift() != 0 && place.thread % threads == threads - 1) {
      std::uint64_t moved[rows * each][2] = {};
      LOCKSTEP_ROLLED
      for (unsigned i = hash_block - sum.hashes.shift(); i < hash_block; ++i) {
        Together<Stored, 1> one[rows * each];
        LOCKSTEP_UNROLLED
        for (unsigned row = 0; row < rows; ++row)
          sum.template load<1>(arguments.instruction, buffers, first - place_of_keys + row * hash_block + i,
                               one + row * each);
        for (auto& element : one) make_canonical(element);
        HashSum<Stored, each>::add_products(keys, one, i, moved);
      }
      sum.hashes.move_to_next(moved);
    }
  }
};

}  // namespace lockstep::kernels
