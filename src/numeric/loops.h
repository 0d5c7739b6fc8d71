// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/hash.h"

namespace lockstep::numeric {

/// A stretch of the generator's numbers, within which 32 bits of the index tell them apart (generator.cpp).
struct Numbers {
  std::uint64_t key = 0;
  std::uint32_t first = 0;
  int bits = 0;
};

/// Whole numbers and what they are multiplied by.
template <class Factor>
struct Multiple {
  const std::int32_t* numbers = nullptr;
  Factor factor = 0;
};

/// The last factors of a block, by lane (docs/hash.md).
using HashFactors = std::array<std::uint64_t, 2>;

/// The loops over elements, built for one instruction set. Every set computes the same bits as the portable one.
struct Loops {
  std::string target;  ///< "portable", "avx2", …

  // Sums of products over part of a block (docs/hash.md), without its last factor: of elements at places `place`,
  // `place + 1`, … of the block; place + count <= 512.
  GradientHash (*sum_float32)(const float* values, std::size_t count, std::size_t place);
  GradientHash (*sum_float64)(const double* values, std::size_t count, std::size_t place);
  GradientHash (*sum_bfloat16)(const std::uint16_t* values, std::size_t count, std::size_t place);
  GradientHash (*sum_float16)(const std::uint16_t* values, std::size_t count, std::size_t place);
  GradientHash (*sum_residues)(const std::uint64_t* values, std::size_t count, std::size_t place);
  // The sums of `blocks` whole blocks, that of block b in each lane times factors[b] there.
  GradientHash (*sum_blocks_float32)(const float* values, std::size_t blocks, const HashFactors* factors);
  GradientHash (*sum_blocks_float64)(const double* values, std::size_t blocks, const HashFactors* factors);
  GradientHash (*sum_blocks_bfloat16)(const std::uint16_t* values, std::size_t blocks, const HashFactors* factors);
  GradientHash (*sum_blocks_float16)(const std::uint16_t* values, std::size_t blocks, const HashFactors* factors);
  GradientHash (*sum_blocks_residues)(const std::uint64_t* values, std::size_t blocks, const HashFactors* factors);

  void (*generate)(const Numbers& numbers, std::size_t count, std::int32_t* out);
  void (*generate_residues)(std::uint64_t key, std::uint64_t first, std::size_t count, std::uint64_t* out);

  // values += factor · numbers; with `set`, values = factor · numbers. Nothing passes the bits of a sum: that was
  // checked before (exactness.h).
  void (*add_numbers_float32)(float* values, float factor, const Numbers& numbers, std::size_t count);
  void (*add_numbers_float64)(double* values, double factor, const Numbers& numbers, std::size_t count);
  void (*add_numbers_int32)(std::int32_t* values, std::int32_t factor, const Numbers& numbers, std::size_t count);
  void (*add_numbers_int64)(std::int64_t* values, std::int64_t factor, const Numbers& numbers, std::size_t count);
  void (*set_numbers_float32)(float* values, float factor, const Numbers& numbers, std::size_t count);
  void (*set_numbers_float64)(double* values, double factor, const Numbers& numbers, std::size_t count);

  // One or more terms are added up in their order, and the sum is multiplied by `factor`; out is none of them.
  void (*add_all_float32)(float* out, float factor, const float* const* terms, std::size_t count_of_terms,
                          std::size_t count);
  void (*add_all_float64)(double* out, double factor, const double* const* terms, std::size_t count_of_terms,
                          std::size_t count);
  /// `elements`, null for none, are added to the terms.
  void (*add_multiples_float32)(float* out, float factor, const float* elements, const Multiple<float>* terms,
                                std::size_t count_of_terms, std::size_t count);
  /// The same where the sum is one of whole numbers; it has no more than 32 bits.
  void (*add_up_float32)(float* out, float unit, const Multiple<std::int32_t>* terms, std::size_t count_of_terms,
                         std::size_t count);
  /// Whether the values are equal to what add_up_float32 computes.
  bool (*equal_sum_float32)(const float* values, float unit, const Multiple<std::int32_t>* terms,
                            std::size_t count_of_terms, std::size_t count);

  /// out = unit · values.
  void (*convert_float32)(float* out, float unit, const std::int32_t* values, std::size_t count);

  // out = a + b; out may be a or b.
  void (*add_float32)(float* out, const float* a, const float* b, std::size_t count);
  void (*add_float64)(double* out, const double* a, const double* b, std::size_t count);
  void (*add_residues)(std::uint64_t* out, const std::uint64_t* a, const std::uint64_t* b, std::size_t count);

  void (*multiply_float32)(float* values, float factor, std::size_t count);
  void (*multiply_float64)(double* values, double factor, std::size_t count);
  void (*multiply_residues)(std::uint64_t* values, std::uint64_t factor, std::size_t count);
  void (*divide_float32)(float* values, float divisor, std::size_t count);
  void (*divide_float64)(double* values, double divisor, std::size_t count);

  bool (*equal_float32)(const float* a, const float* b, std::size_t count);
  bool (*equal_float64)(const double* a, const double* b, std::size_t count);
  bool (*equal_residues)(const std::uint64_t* a, const std::uint64_t* b, std::size_t count);
};

const Loops& portable_loops();

/// Those that this machine can run, the fastest first, "portable" last.
const std::vector<Loops>& available_loops();

/// Those of available_loops() with this target; the first for null and for "". Throws InputError where there are none.
const Loops& loops_named(const char* target);

/// Those that are used: what LOCKSTEP_TARGET names. Throws as loops_named().
const Loops& loops();

/// Whether there can be others than portable ones.
bool highway_is_built();

}  // namespace lockstep::numeric
