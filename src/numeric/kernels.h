// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/hash.h"
#include "src/numeric/exactness.h"
#include "src/numeric/loops.h"

namespace lockstep::numeric {

// The loops over elements, one set per type of number. Buffers of different names do not overlap;
// a buffer may be given twice where both are read and written at the same index.

/// out = a + b; residues modulo 2^61 - 1.
void add(float* out, const float* a, const float* b, std::size_t count);
void add(double* out, const double* a, const double* b, std::size_t count);
void add(std::uint64_t* out, const std::uint64_t* a, const std::uint64_t* b, std::size_t count);
template <class Value>
void add(Value* to, const Value* from, std::size_t count) {
  add(to, to, from, count);
}

// out = the sum of one or more terms, scaled where there is a factor; out is none of the terms.
void add_all(float* out, const std::vector<const float*>& terms, const Factor* factor, std::size_t count);
void add_all(double* out, const std::vector<const double*>& terms, const Factor* factor, std::size_t count);
void add_all(std::uint64_t* out, const std::vector<const std::uint64_t*>& terms, const Factor* factor,
             std::size_t count);
/// `elements`, null for none, are added to the terms.
void add_all(float* out, const float* elements, const std::vector<Multiple<float>>& terms, const Factor* factor,
             std::size_t count);

void scale(float* values, const Factor& factor, std::size_t count);
void scale(double* values, const Factor& factor, std::size_t count);
void scale(std::uint64_t* values, const Factor& factor, std::size_t count);

/// values += term · numbers of the generator for elements `first`, `first + 1`, ….
void add_generated(float* values, const GeneratedTerm& term, int bits, std::uint64_t first, std::size_t count);
void add_generated(double* values, const GeneratedTerm& term, int bits, std::uint64_t first, std::size_t count);
void add_generated(std::uint64_t* values, const GeneratedTerm& term, int bits, std::uint64_t first, std::size_t count);

/// The same where all values are 0.
void set_generated(float* values, const GeneratedTerm& term, int bits, std::uint64_t first, std::size_t count);
void set_generated(double* values, const GeneratedTerm& term, int bits, std::uint64_t first, std::size_t count);
void set_generated(std::uint64_t* values, const GeneratedTerm& term, int bits, std::uint64_t first, std::size_t count);

/// out = unit · sums.
void convert(const std::int32_t* sums, float unit, std::size_t count, float* out);
void convert(const std::int64_t* sums, double unit, std::size_t count, double* out);

/// Whether every value is one of float16.
bool fits_float16(const float* values, std::size_t count);

/// Rounds to bfloat16 and returns whether nothing was lost.
bool round_to_bfloat16(float* values, std::size_t count);

bool equal(const float* a, const float* b, std::size_t count);
bool equal(const double* a, const double* b, std::size_t count);
bool equal(const std::uint64_t* a, const std::uint64_t* b, std::size_t count);

/// As elements of `arithmetic`, in which every value can be held.
GradientHash hash(const float* values, std::size_t count, std::uint64_t first, Arithmetic arithmetic);
GradientHash hash(const double* values, std::size_t count, std::uint64_t first, Arithmetic arithmetic);
GradientHash hash(const std::uint64_t* values, std::size_t count, std::uint64_t first, Arithmetic arithmetic);

}  // namespace lockstep::numeric
