// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "src/numeric/generator.h"
#include "src/numeric/loops.h"

namespace lockstep::numeric {

namespace {

constexpr std::size_t stretch = 1024;

/// A power of two that is no subnormal and whose inverse is none: to multiply by it is to divide, and much faster.
template <class Value>
bool has_exact_inverse(Value divisor) {
  int exponent = 0;
  return std::frexp(divisor, &exponent) == Value(0.5) && std::abs(exponent) < 100;
}

/// The pattern of a value that float16 holds.
inline std::uint16_t float16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
  const std::uint32_t normal = (size >> 13) - ((127 - 15) << 10);
  // Clipped, because what no integer holds may not be converted to one.
  const auto subnormal =
      static_cast<std::uint32_t>(static_cast<std::int32_t>(std::min(std::abs(value), 1.0f) * 0x1p24f));
  return static_cast<std::uint16_t>(sign | (size < 0x38800000u ? subnormal : normal));
}

}  // namespace

void add(float* out, const float* a, const float* b, std::size_t count) { loops().add_float32(out, a, b, count); }
void add(double* out, const double* a, const double* b, std::size_t count) { loops().add_float64(out, a, b, count); }
void add(std::uint64_t* out, const std::uint64_t* a, const std::uint64_t* b, std::size_t count) {
  loops().add_residues(out, a, b, count);
}

void scale(float* values, const Factor& factor, std::size_t count) {
  if (factor.multiply != 1) loops().multiply_float32(values, static_cast<float>(factor.multiply), count);
  if (factor.divide == 1) return;
  const auto divide = static_cast<float>(factor.divide);
  if (has_exact_inverse(divide)) {
    loops().multiply_float32(values, 1 / divide, count);
  } else {
    loops().divide_float32(values, divide, count);
  }
}

void scale(double* values, const Factor& factor, std::size_t count) {
  if (factor.multiply != 1) loops().multiply_float64(values, factor.multiply, count);
  if (factor.divide == 1) return;
  if (has_exact_inverse(factor.divide)) {
    loops().multiply_float64(values, 1 / factor.divide, count);
  } else {
    loops().divide_float64(values, factor.divide, count);
  }
}

void scale(std::uint64_t* values, const Factor& factor, std::size_t count) {
  loops().multiply_residues(values, factor.residue, count);
}

namespace {

/// What a sum may be multiplied by at once in place of scaling it by `factor`; 0 where it may not.
template <class Value>
Value factor_at_once(const Factor* factor) {
  if (factor == nullptr) return 1;
  const auto divide = static_cast<Value>(factor->divide);
  return factor->multiply == 1 && has_exact_inverse(divide) ? 1 / divide : 0;
}

template <class Value, class Terms, class Loop>
void add_and_scale(Value* out, const Terms& terms, const Factor* factor, std::size_t count, Loop loop) {
  const auto at_once = factor_at_once<Value>(factor);
  loop(out, at_once == 0 ? 1 : at_once, terms.data(), terms.size(), count);
  if (at_once == 0) scale(out, *factor, count);
}

}  // namespace

void add_all(float* out, const std::vector<const float*>& terms, const Factor* factor, std::size_t count) {
  add_and_scale(out, terms, factor, count, loops().add_all_float32);
}

void add_all(double* out, const std::vector<const double*>& terms, const Factor* factor, std::size_t count) {
  add_and_scale(out, terms, factor, count, loops().add_all_float64);
}

void add_all(float* out, const float* elements, const std::vector<Multiple<float>>& terms, const Factor* factor,
             std::size_t count) {
  const auto loop = [&](float* to, float at_once, const Multiple<float>* first, std::size_t all, std::size_t length) {
    loops().add_multiples_float32(to, at_once, elements, first, all, length);
  };
  add_and_scale(out, terms, factor, count, loop);
}

void add_all(std::uint64_t* out, const std::vector<const std::uint64_t*>& terms, const Factor* factor,
             std::size_t count) {
  if (terms.size() == 1) {
    std::copy_n(terms[0], count, out);
  } else {
    add(out, terms[0], terms[1], count);
  }
  for (std::size_t k = 2; k < terms.size(); ++k) add(out, terms[k], count);
  if (factor) scale(out, *factor, count);
}

void add_generated(float* values, const GeneratedTerm& term, int bits, std::uint64_t first, std::size_t count) {
  for_stretches(term.key, bits, first, count, [&](const Numbers& numbers, std::size_t begin, std::size_t part) {
    loops().add_numbers_float32(values + begin, static_cast<float>(term.factor.multiply), numbers, part);
  });
}

void add_generated(double* values, const GeneratedTerm& term, int bits, std::uint64_t first, std::size_t count) {
  for_stretches(term.key, bits, first, count, [&](const Numbers& numbers, std::size_t begin, std::size_t part) {
    loops().add_numbers_float64(values + begin, term.factor.multiply, numbers, part);
  });
}

void set_generated(float* values, const GeneratedTerm& term, int bits, std::uint64_t first, std::size_t count) {
  for_stretches(term.key, bits, first, count, [&](const Numbers& numbers, std::size_t begin, std::size_t part) {
    loops().set_numbers_float32(values + begin, static_cast<float>(term.factor.multiply), numbers, part);
  });
}

void set_generated(double* values, const GeneratedTerm& term, int bits, std::uint64_t first, std::size_t count) {
  for_stretches(term.key, bits, first, count, [&](const Numbers& numbers, std::size_t begin, std::size_t part) {
    loops().set_numbers_float64(values + begin, term.factor.multiply, numbers, part);
  });
}

void set_generated(std::uint64_t* values, const GeneratedTerm& term, int, std::uint64_t first, std::size_t count) {
  loops().generate_residues(term.key, first, count, values);
  if (term.factor.residue != 1) scale(values, term.factor, count);
}

void add_generated(std::uint64_t* values, const GeneratedTerm& term, int, std::uint64_t first, std::size_t count) {
  std::array<std::uint64_t, stretch> numbers;
  for (std::size_t done = 0; done < count; done += stretch) {
    const std::size_t part = std::min(stretch, count - done);
    generate_residues(term.key, first + done, part, numbers.data());
    if (term.factor.residue != 1) scale(numbers.data(), term.factor, part);
    add(values + done, values + done, numbers.data(), part);
  }
}

void convert(const std::int32_t* sums, float unit, std::size_t count, float* out) {
  loops().convert_float32(out, unit, sums, count);
}

void convert(const std::int64_t* sums, double unit, std::size_t count, double* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = unit * static_cast<double>(sums[i]);
}

bool round_to_bfloat16(float* values, std::size_t count) {
  std::uint32_t lost = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    lost |= bits & 0xFFFFu;
    values[i] = std::bit_cast<float>((bits + 0x7FFFu + (bits >> 16 & 1)) & 0xFFFF0000u);
  }
  return lost == 0;
}

bool fits_float16(const float* values, std::size_t count) {
  bool fits = true;
  for (std::size_t i = 0; i < count; ++i) {
    const float last_bits = values[i] * 0x1p24f;  // float16 counts in 2^-24
    const bool short_enough = (std::bit_cast<std::uint32_t>(values[i]) & 0x1FFFu) == 0;
    fits &= short_enough && std::abs(values[i]) < 65536 && std::trunc(last_bits) == last_bits;
  }
  return fits;
}

bool equal(const float* a, const float* b, std::size_t count) { return loops().equal_float32(a, b, count); }
bool equal(const double* a, const double* b, std::size_t count) { return loops().equal_float64(a, b, count); }
bool equal(const std::uint64_t* a, const std::uint64_t* b, std::size_t count) {
  return loops().equal_residues(a, b, count);
}

GradientHash hash(const float* values, std::size_t count, std::uint64_t first, Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::float32) return hash_elements(values, count, first);
  const bool brain = arithmetic == Arithmetic::bfloat16;
  GradientHash result;
  std::array<std::uint16_t, stretch> patterns;
  for (std::size_t done = 0; done < count; done += stretch) {
    const std::size_t part = std::min(stretch, count - done);
    if (brain) {
      for (std::size_t i = 0; i < part; ++i)
        patterns[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[done + i]) >> 16);
    } else {
      for (std::size_t i = 0; i < part; ++i) patterns[i] = float16_bits(values[done + i]);
    }
    result += (brain ? hash_bfloat16 : hash_float16)(patterns.data(), part, first + done);
  }
  return result;
}

GradientHash hash(const double* values, std::size_t count, std::uint64_t first, Arithmetic) {
  return hash_elements(values, count, first);
}

GradientHash hash(const std::uint64_t* values, std::size_t count, std::uint64_t first, Arithmetic) {
  return hash_residues(values, count, first);
}

}  // namespace lockstep::numeric
