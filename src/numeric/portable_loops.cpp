// SPDX-License-Identifier: Apache-2.0
// The loops in plain C++: what all others are tested against, and what runs where there are no others.
#include <bit>

#include "src/numeric/hash_keys.h"
#include "src/numeric/loops.h"
#include "src/numeric/prime61.h"

namespace lockstep::numeric {

namespace {

/// -0 becomes 0, every NaN all ones. Without branches, so that the compiler finds vectors for it.
template <class Bits>
inline Bits canonical(Bits bits, Bits infinity) {
  constexpr auto sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const auto nan =
      static_cast<Bits>(static_cast<Bits>(bits & static_cast<Bits>(~sign)) > infinity ? ~Bits{0} : Bits{0});
  return static_cast<Bits>((bits == sign ? Bits{0} : bits) | nan);
}

/// `product(value, lane, place)` added up over both lanes.
template <class Element, class Product>
inline GradientHash sum(const Element* values, std::size_t count, std::size_t place, const Product& product) {
  std::uint64_t sum0 = 0, sum1 = 0;
  for (std::size_t j = 0; j < count; ++j) {
    sum0 += product(values[j], 0, place + j);
    sum1 += product(values[j], 1, place + j);
  }
  return {{sum0, sum1}};
}

inline std::uint64_t product32(std::uint32_t bits, std::size_t lane, std::size_t place) {
  return std::uint64_t{bits ^ hash_keys.low[lane][place]} * hash_keys.high[lane][place];
}

inline std::uint64_t product64(std::uint64_t bits, std::size_t lane, std::size_t place) {
  const std::uint64_t mixed = bits ^ hash_keys.whole[lane][place];
  return (mixed & 0xFFFFFFFFu) * (mixed >> 32);
}

GradientHash sum_float32(const float* values, std::size_t count, std::size_t place) {
  return sum(values, count, place, [](float value, std::size_t lane, std::size_t at) {
    return product32(canonical(std::bit_cast<std::uint32_t>(value), 0x7F800000u), lane, at);
  });
}

GradientHash sum_float64(const double* values, std::size_t count, std::size_t place) {
  return sum(values, count, place, [](double value, std::size_t lane, std::size_t at) {
    return product64(canonical(std::bit_cast<std::uint64_t>(value), std::uint64_t{0x7FF} << 52), lane, at);
  });
}

template <std::uint16_t infinity>
GradientHash sum16(const std::uint16_t* values, std::size_t count, std::size_t place) {
  return sum(values, count, place, [](std::uint16_t value, std::size_t lane, std::size_t at) {
    return product32(canonical(value, infinity), lane, at);
  });
}

GradientHash sum_residues(const std::uint64_t* values, std::size_t count, std::size_t place) {
  return sum(values, count, place,
             [](std::uint64_t value, std::size_t lane, std::size_t at) { return product64(value, lane, at); });
}

/// `sum_block` is the sum of one block.
template <class Element, GradientHash (*sum_block)(const Element*, std::size_t, std::size_t)>
GradientHash sum_blocks(const Element* values, std::size_t blocks, const HashFactors* factors) {
  GradientHash total;
  for (std::size_t b = 0; b < blocks; ++b) {
    const GradientHash sums = sum_block(values + b * hash_block, hash_block, 0);
    for (std::size_t lane = 0; lane < 2; ++lane) total.lanes[lane] += factors[b][lane] * sums.lanes[lane];
  }
  return total;
}

/// The number at one index; docs: generator.h. 32-bit operations only.
class Generator {
 public:
  explicit Generator(const Numbers& numbers)
      : position_(numbers.first * stride + static_cast<std::uint32_t>(numbers.key)),
        twist_(static_cast<std::uint32_t>(numbers.key >> 32)),
        shift_(numbers.bits == 0 ? 31 : 32 - numbers.bits),
        kept_(numbers.bits == 0 ? 0 : ~0u) {}  // 0 bits must shift everything out, which one shift by 32 may not

  std::int32_t at(std::uint32_t i) const {
    std::uint32_t x = position_ + i * stride;
    x ^= x >> 16;
    x = (x * 0x21F0AAADu) ^ twist_;
    x ^= x >> 15;
    x *= 0x735A2D97u;
    x ^= x >> 15;
    const auto magnitude = static_cast<std::int32_t>(((x >> shift_) & kept_) + 1);
    const std::int32_t sign = -static_cast<std::int32_t>(x & 1);
    return (magnitude ^ sign) - sign;
  }

 private:
  static constexpr std::uint32_t stride = 0x9E3779B1u;
  std::uint32_t position_, twist_;
  int shift_;
  std::uint32_t kept_;
};

void generate(const Numbers& numbers, std::size_t count, std::int32_t* out) {
  const Generator generator(numbers);
  for (std::size_t i = 0; i < count; ++i) out[i] = generator.at(static_cast<std::uint32_t>(i));
}

void make_residues(std::uint64_t key, std::uint64_t first, std::size_t count, std::uint64_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t residue = splitmix(key, first + i) >> 3;
    out[i] = residue == 0 || residue == prime61 ? 1 : residue;
  }
}

template <class Value>
void add_numbers(Value* values, Value factor, const Numbers& numbers, std::size_t count) {
  const Generator generator(numbers);
  for (std::size_t i = 0; i < count; ++i)
    values[i] += factor * static_cast<Value>(generator.at(static_cast<std::uint32_t>(i)));
}

template <class Value>
void set_numbers(Value* values, Value factor, const Numbers& numbers, std::size_t count) {
  const Generator generator(numbers);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = Value{0} + factor * static_cast<Value>(generator.at(static_cast<std::uint32_t>(i)));
}

template <class Value>
void add_all(Value* out, Value factor, const Value* const* terms, std::size_t count_of_terms, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Value sum = terms[0][i];
    for (std::size_t k = 1; k < count_of_terms; ++k) sum += terms[k][i];
    out[i] = sum * factor;
  }
}

void add_multiples_float32(float* out, float factor, const float* elements, const Multiple<float>* terms,
                           std::size_t count_of_terms, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    float sum = terms[0].factor * static_cast<float>(terms[0].numbers[i]);
    for (std::size_t k = 1; k < count_of_terms; ++k) sum += terms[k].factor * static_cast<float>(terms[k].numbers[i]);
    if (elements != nullptr) sum += elements[i];
    out[i] = sum * factor;
  }
}

inline float sum_at(std::size_t i, float unit, const Multiple<std::int32_t>* terms, std::size_t count_of_terms) {
  std::int32_t sum = 0;
  for (std::size_t k = 0; k < count_of_terms; ++k) sum += terms[k].factor * terms[k].numbers[i];
  return unit * static_cast<float>(sum);
}

void add_up_float32(float* out, float unit, const Multiple<std::int32_t>* terms, std::size_t count_of_terms,
                    std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = sum_at(i, unit, terms, count_of_terms);
}

bool equal_sum_float32(const float* values, float unit, const Multiple<std::int32_t>* terms, std::size_t count_of_terms,
                       std::size_t count) {
  bool same = true;
  for (std::size_t i = 0; i < count; ++i) same &= values[i] == sum_at(i, unit, terms, count_of_terms);
  return same;
}

void convert_float32(float* out, float unit, const std::int32_t* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = unit * static_cast<float>(values[i]);
}

template <class Value>
void add_values(Value* out, const Value* a, const Value* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

void add_residues(std::uint64_t* out, const std::uint64_t* a, const std::uint64_t* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = add61(a[i], b[i]);
}

template <class Value>
void multiply(Value* values, Value factor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] *= factor;
}

void multiply_residues(std::uint64_t* values, std::uint64_t factor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = multiply61(values[i], factor);
}

template <class Value>
void divide(Value* values, Value divisor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] /= divisor;
}

template <class Value>
bool equal(const Value* a, const Value* b, std::size_t count) {
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < count; ++i) different += a[i] != b[i];
  return different == 0;
}

}  // namespace

const Loops& portable_loops() {
  static const Loops loops = {
      .target = "portable",
      .sum_float32 = sum_float32,
      .sum_float64 = sum_float64,
      .sum_bfloat16 = sum16<0x7F80>,
      .sum_float16 = sum16<0x7C00>,
      .sum_residues = sum_residues,
      .sum_blocks_float32 = sum_blocks<float, sum_float32>,
      .sum_blocks_float64 = sum_blocks<double, sum_float64>,
      .sum_blocks_bfloat16 = sum_blocks<std::uint16_t, sum16<0x7F80>>,
      .sum_blocks_float16 = sum_blocks<std::uint16_t, sum16<0x7C00>>,
      .sum_blocks_residues = sum_blocks<std::uint64_t, sum_residues>,
      .generate = generate,
      .generate_residues = make_residues,
      .add_numbers_float32 = add_numbers<float>,
      .add_numbers_float64 = add_numbers<double>,
      .add_numbers_int32 = add_numbers<std::int32_t>,
      .add_numbers_int64 = add_numbers<std::int64_t>,
      .set_numbers_float32 = set_numbers<float>,
      .set_numbers_float64 = set_numbers<double>,
      .add_all_float32 = add_all<float>,
      .add_all_float64 = add_all<double>,
      .add_multiples_float32 = add_multiples_float32,
      .add_up_float32 = add_up_float32,
      .equal_sum_float32 = equal_sum_float32,
      .convert_float32 = convert_float32,
      .add_float32 = add_values<float>,
      .add_float64 = add_values<double>,
      .add_residues = add_residues,
      .multiply_float32 = multiply<float>,
      .multiply_float64 = multiply<double>,
      .multiply_residues = multiply_residues,
      .divide_float32 = divide<float>,
      .divide_float64 = divide<double>,
      .equal_float32 = equal<float>,
      .equal_float64 = equal<double>,
      .equal_residues = equal<std::uint64_t>,
  };
  return loops;
}

}  // namespace lockstep::numeric
