// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/launch.h"

namespace lockstep::kernels {

// What a GPU does to a block of elements of all buffers of a plan, as plain data that is copied to it. Every buffer has
// a slot; a place is where an element is stored in each slot. Offsets point into the tables of the program.

/// A factor as in numeric::Factor.
struct Factor {
  double multiply = 1, divide = 1;
  std::uint64_t residue = 1;
};

/// A contribution of the generator times a number: as a real for buffers, as a whole number for the reference, as a
/// residue for both. `key` is that of one stretch of 2^32 indices, except for residues.
struct Addend {
  std::uint64_t key = 0;
  double multiply = 1;
  std::int64_t whole = 0;
  std::uint64_t residue = 1;
};

/// Places [begin, end) that are treated alike.
struct Span {
  std::uint64_t begin = 0, end = 0;
  /// generate, reference, check, hash: global index of the first, all of them in one stretch of 2^32.
  /// move: the place that the first is read from.
  std::uint64_t other = 0;
  /// generate, reference: offset of the terms for this stretch. collective: the member that answers for them.
  std::uint64_t what = 0;
};

enum class Kind : std::uint32_t {
  generate,    ///< target += terms
  reference,   ///< target = terms, added up as whole numbers and times `unit`
  scale,       ///< target *= factor
  zero,        ///< target = 0
  copy,        ///< target = from
  accumulate,  ///< target += from
  collective,  ///< of `members` slots
  move,        ///< target = from, from other places
  check,       ///< compares target with from, and hashes both
  hash,        ///< hashes target
};

/// What a collective's members receive, and which of them.
enum class Received : std::uint32_t { sum, owner, root };
enum class Receiver : std::uint32_t { everyone, owner, root };

struct Instruction {
  Kind kind = Kind::zero;
  std::uint32_t target = 0, from = 0;
  std::uint32_t first_member = 0, members = 0;
  Received received = Received::sum;
  Receiver receiver = Receiver::everyone;
  std::uint32_t root = 0;
  std::int32_t bits = 0;
  std::uint32_t terms = 0;   ///< of each span
  std::uint32_t hashes = 1;  ///< check: 0 compares only
  std::uint32_t event = 0;   ///< of the plan; for messages
  std::uint64_t first_span = 0, spans = 0;
  std::uint64_t begin = 0, end = 0;  ///< places, from the first span to the last
  std::uint64_t result = 0;          ///< check, hash: where in the results their sums begin
  double unit = 1;
  Factor factor;
};

/// Sums of a check in the results: different elements, two lanes as it is, two as it should be. Of a hash: two lanes.
inline constexpr std::uint64_t check_results = 5, hash_results = 2;
/// The first of all results: elements that 16 bits could not hold.
inline constexpr std::uint64_t lost_result = 0;

struct Tables {
  const Span* spans = nullptr;
  const Addend* terms = nullptr;
  const std::uint32_t* members = nullptr;
};

}  // namespace lockstep::kernels
