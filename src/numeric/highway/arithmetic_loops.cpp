// SPDX-License-Identifier: Apache-2.0
// Generator, reductions, factors and comparisons on floating-point and whole numbers for each of Highway's targets.
// What is left over behind the last whole vector is left to the portable loops.
#include "src/numeric/highway/setup.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/numeric/highway/arithmetic_loops.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "src/numeric/loops.h"
#include "src/numeric/targets.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::numeric::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
void set_arithmetic_loops_of_target(Loops&) {}
#else

namespace hn = hwy::HWY_NAMESPACE;

using U32 = hn::ScalableTag<std::uint32_t>;
using I32 = hn::ScalableTag<std::int32_t>;
using VU32 = hn::Vec<U32>;
using VI32 = hn::Vec<I32>;
using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;

// Where each lane has a distance of its own, one of 32 leaves nothing; one distance for all takes an instruction more.
#undef LOCKSTEP_SHIFTS_BY_LANE
#define LOCKSTEP_SHIFTS_BY_LANE (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2)

/// Numbers in order, a vector at a time. The position is an index times a constant: carried along, an addition.
class Generator {
 public:
  explicit HWY_INLINE Generator(const Numbers& numbers)
      : position_(hn::Mul(hn::Iota(U32(), numbers.first), hn::Set(U32(), stride))),
#if LOCKSTEP_SHIFTS_BY_LANE
        shift_(hn::Set(U32(), static_cast<std::uint32_t>(32 - numbers.bits))) {
#else
        kept_(hn::Set(U32(), numbers.bits == 0 ? 0 : ~0u)),
        shift_(numbers.bits == 0 ? 31 : 32 - numbers.bits) {
#endif
    position_ = hn::Add(position_, hn::Set(U32(), static_cast<std::uint32_t>(numbers.key)));
    // (x ^ twist) ^ (x ^ twist) >> 15, with what does not depend on x done once.
    const auto twist = static_cast<std::uint32_t>(numbers.key >> 32);
    twist_ = hn::Set(U32(), twist ^ twist >> 15);
  }

  /// Mixed bits: the last is the number's sign.
  HWY_INLINE VU32 next() {
    const U32 d;
    VU32 x = position_;
    position_ = hn::Add(position_, hn::Set(d, stride * static_cast<std::uint32_t>(hn::Lanes(d))));
    x = hn::Xor(x, hn::ShiftRight<16>(x));
    x = hn::Mul(x, hn::Set(d, 0x21F0AAADu));
    x = hn::Xor3(x, hn::ShiftRight<15>(x), twist_);
    x = hn::Mul(x, hn::Set(d, 0x735A2D97u));
    return hn::Xor(x, hn::ShiftRight<15>(x));
  }
  HWY_INLINE VI32 magnitude(VU32 mixed) const { return hn::BitCast(I32(), hn::Add(height(mixed), hn::Set(U32(), 1))); }
  HWY_INLINE VI32 next_whole() {
    const VU32 mixed = next();
#if HWY_TARGET == HWY_AVX3
    const auto is_negative = hn::TestBit(hn::BitCast(I32(), mixed), hn::Set(I32(), 1));
    const VI32 size = magnitude(mixed);
    // One instruction; where it is written as a choice, GCC makes two of it.
    return VI32{_mm512_mask_sub_epi32(size.raw, is_negative.raw, _mm512_setzero_si512(), size.raw)};
#else
    // The height plus one, or the height's complement, which is the negative of that.
    const VU32 positive = hn::AndNot(mixed, hn::Set(U32(), 1));
    const VU32 negative_in_all = hn::Sub(positive, hn::Set(U32(), 1));
    return hn::BitCast(I32(), hn::Add(hn::Xor(height(mixed), negative_in_all), positive));
#endif
  }
  HWY_INLINE VF32 next_float() {
    const VU32 mixed = next();
    const VU32 sign = hn::ShiftLeft<31>(mixed);
    return hn::Xor(hn::ConvertTo(F32(), magnitude(mixed)), hn::BitCast(F32(), sign));
  }

 private:
  static constexpr std::uint32_t stride = 0x9E3779B1u;
  /// One less than the number's absolute value.
  HWY_INLINE VU32 height(VU32 mixed) const {
#if LOCKSTEP_SHIFTS_BY_LANE
    return hn::Shr(mixed, shift_);
#else
    return hn::And(hn::ShiftRightSame(mixed, shift_), kept_);
#endif
  }

  VU32 position_, twist_;
#if LOCKSTEP_SHIFTS_BY_LANE
  VU32 shift_;
#else
  VU32 kept_;
  int shift_;
#endif
};

Numbers behind(const Numbers& numbers, std::size_t count) {
  return {numbers.key, numbers.first + static_cast<std::uint32_t>(count), numbers.bits};
}

void generate(const Numbers& numbers, std::size_t count, std::int32_t* out) {
  const I32 d;
  const std::size_t step = hn::Lanes(d);
  Generator generator(numbers);
  std::size_t i = 0;
  for (; i + step <= count; i += step) hn::StoreU(generator.next_whole(), d, out + i);
  if (i < count) portable_loops().generate(behind(numbers, i), count - i, out + i);
}

/// As far as whole vectors go; returns how far.
template <bool set>
HWY_INLINE std::size_t put_numbers(float* values, float factor, const Numbers& numbers, std::size_t count) {
  const F32 d;
  const std::size_t step = hn::Lanes(d);
  const auto factors = hn::Set(d, factor);
  Generator generator(numbers);
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    const auto before = set ? hn::Zero(d) : hn::LoadU(d, values + i);
    hn::StoreU(hn::Add(before, hn::Mul(factors, generator.next_float())), d, values + i);
  }
  return i;
}

template <bool set>
HWY_INLINE std::size_t put_numbers(double* values, double factor, const Numbers& numbers, std::size_t count) {
  const hn::ScalableTag<double> d;
  const hn::Half<I32> half;
  const std::size_t step = hn::Lanes(I32());
  const auto factors = hn::Set(d, factor);
  const auto put = [&](hn::Vec<hn::Half<I32> > some, double* at) HWY_ATTR {
    const auto before = set ? hn::Zero(d) : hn::LoadU(d, at);
    hn::StoreU(hn::Add(before, hn::Mul(factors, hn::PromoteTo(d, some))), d, at);
  };
  Generator generator(numbers);
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    const VI32 some = generator.next_whole();
    put(hn::LowerHalf(half, some), values + i);
    put(hn::UpperHalf(half, some), values + i + step / 2);
  }
  return i;
}

void add_numbers_float32(float* values, float factor, const Numbers& numbers, std::size_t count) {
  const std::size_t i = put_numbers<false>(values, factor, numbers, count);
  if (i < count) portable_loops().add_numbers_float32(values + i, factor, behind(numbers, i), count - i);
}

void add_numbers_float64(double* values, double factor, const Numbers& numbers, std::size_t count) {
  const std::size_t i = put_numbers<false>(values, factor, numbers, count);
  if (i < count) portable_loops().add_numbers_float64(values + i, factor, behind(numbers, i), count - i);
}

void set_numbers_float32(float* values, float factor, const Numbers& numbers, std::size_t count) {
  const std::size_t i = put_numbers<true>(values, factor, numbers, count);
  if (i < count) portable_loops().set_numbers_float32(values + i, factor, behind(numbers, i), count - i);
}

void set_numbers_float64(double* values, double factor, const Numbers& numbers, std::size_t count) {
  const std::size_t i = put_numbers<true>(values, factor, numbers, count);
  if (i < count) portable_loops().set_numbers_float64(values + i, factor, behind(numbers, i), count - i);
}

void add_numbers_int32(std::int32_t* values, std::int32_t factor, const Numbers& numbers, std::size_t count) {
  const I32 d;
  const std::size_t step = hn::Lanes(d);
  const VI32 factors = hn::Set(d, factor);
  Generator generator(numbers);
  std::size_t i = 0;
  for (; i + step <= count; i += step)
    hn::StoreU(hn::Add(hn::LoadU(d, values + i), hn::Mul(factors, generator.next_whole())), d, values + i);
  if (i < count) portable_loops().add_numbers_int32(values + i, factor, behind(numbers, i), count - i);
}

void add_numbers_int64(std::int64_t* values, std::int64_t factor, const Numbers& numbers, std::size_t count) {
  const hn::ScalableTag<std::int64_t> d;
  const hn::Half<I32> half;
  const std::size_t step = hn::Lanes(I32());
  const auto factors = hn::Set(d, factor);
  const auto add = [&](hn::Vec<hn::Half<I32> > some, std::int64_t* at) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, at), hn::Mul(factors, hn::PromoteTo(d, some))), d, at);
  };
  Generator generator(numbers);
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    const VI32 some = generator.next_whole();
    add(hn::LowerHalf(half, some), values + i);
    add(hn::UpperHalf(half, some), values + i + step / 2);
  }
  if (i < count) portable_loops().add_numbers_int64(values + i, factor, behind(numbers, i), count - i);
}

/// Calls work(begin, vectors) for four vectors of elements at a time, then for single ones. The last may overlap the
/// one before it, whose elements are computed again; so `count` is at least that of a vector, and no result an operand.
/// Ends where work() returns false, and returns whether it never did.
template <class Work>
HWY_INLINE bool for_vectors(std::size_t step, std::size_t count, const Work& work) {
  std::size_t i = 0;
  for (; i + 4 * step <= count; i += 4 * step) {
    if (!work(i, std::integral_constant<std::size_t, 4>())) return false;
  }
  for (; i < count; i += step) {
    if (!work(std::min(i, count - step), std::integral_constant<std::size_t, 1>())) return false;
  }
  return true;
}

template <class Value>
HWY_INLINE void add_all(Value* out, Value factor, const Value* const* terms, std::size_t count_of_terms,
                        std::size_t count) {
  const hn::ScalableTag<Value> d;
  const std::size_t step = hn::Lanes(d);
  const auto factors = hn::Set(d, factor);
  for_vectors(step, count, [&](std::size_t at, auto vectors) HWY_ATTR {
    hn::Vec<hn::ScalableTag<Value> > sums[vectors()];
    for (std::size_t j = 0; j < vectors(); ++j) sums[j] = hn::LoadU(d, terms[0] + at + j * step);
    for (std::size_t k = 1; k < count_of_terms; ++k) {
      for (std::size_t j = 0; j < vectors(); ++j) sums[j] = hn::Add(sums[j], hn::LoadU(d, terms[k] + at + j * step));
    }
    for (std::size_t j = 0; j < vectors(); ++j) hn::StoreU(hn::Mul(sums[j], factors), d, out + at + j * step);
    return true;
  });
}

void add_all_float32(float* out, float factor, const float* const* terms, std::size_t count_of_terms,
                     std::size_t count) {
  const bool is_short = count < hn::Lanes(F32());
  if (is_short) return portable_loops().add_all_float32(out, factor, terms, count_of_terms, count);
  add_all(out, factor, terms, count_of_terms, count);
}

void add_all_float64(double* out, double factor, const double* const* terms, std::size_t count_of_terms,
                     std::size_t count) {
  const bool is_short = count < hn::Lanes(hn::ScalableTag<double>());
  if (is_short) return portable_loops().add_all_float64(out, factor, terms, count_of_terms, count);
  add_all(out, factor, terms, count_of_terms, count);
}

void add_multiples_float32(float* out, float factor, const float* elements, const Multiple<float>* terms,
                           std::size_t count_of_terms, std::size_t count) {
  const F32 d;
  const std::size_t step = hn::Lanes(d);
  if (count < step) return portable_loops().add_multiples_float32(out, factor, elements, terms, count_of_terms, count);
  const auto factors = hn::Set(d, factor);
  for_vectors(step, count, [&](std::size_t at, auto vectors) HWY_ATTR {
    VF32 sums[vectors()];
    for (std::size_t k = 0; k < count_of_terms; ++k) {
      const auto each = hn::Set(d, terms[k].factor);
      const std::int32_t* numbers = terms[k].numbers + at;
      for (std::size_t j = 0; j < vectors(); ++j) {
        const auto term = hn::Mul(each, hn::ConvertTo(d, hn::LoadU(I32(), numbers + j * step)));
        sums[j] = k == 0 ? term : hn::Add(sums[j], term);
      }
    }
    if (elements != nullptr) {
      for (std::size_t j = 0; j < vectors(); ++j) sums[j] = hn::Add(sums[j], hn::LoadU(d, elements + at + j * step));
    }
    for (std::size_t j = 0; j < vectors(); ++j) hn::StoreU(hn::Mul(sums[j], factors), d, out + at + j * step);
    return true;
  });
}

/// Calls work(begin, vectors, sums) as for_vectors() does, with unit · (the sum of the terms).
template <class Work>
HWY_INLINE bool for_sums(float unit, const Multiple<std::int32_t>* terms, std::size_t count_of_terms, std::size_t count,
                         const Work& work) {
  const F32 d;
  const std::size_t step = hn::Lanes(d);
  const auto units = hn::Set(d, unit);
  return for_vectors(step, count, [&](std::size_t at, auto vectors) HWY_ATTR {
    VI32 whole[vectors()];
    for (std::size_t j = 0; j < vectors(); ++j) whole[j] = hn::Zero(I32());
    for (std::size_t k = 0; k < count_of_terms; ++k) {
      const auto each = hn::Set(I32(), terms[k].factor);
      const std::int32_t* numbers = terms[k].numbers + at;
      for (std::size_t j = 0; j < vectors(); ++j)
        whole[j] = hn::Add(whole[j], hn::Mul(each, hn::LoadU(I32(), numbers + j * step)));
    }
    VF32 sums[vectors()];
    for (std::size_t j = 0; j < vectors(); ++j) sums[j] = hn::Mul(units, hn::ConvertTo(d, whole[j]));
    return work(at, vectors, sums);
  });
}

void add_up_float32(float* out, float unit, const Multiple<std::int32_t>* terms, std::size_t count_of_terms,
                    std::size_t count) {
  const F32 d;
  const std::size_t step = hn::Lanes(d);
  if (count < step) return portable_loops().add_up_float32(out, unit, terms, count_of_terms, count);
  for_sums(unit, terms, count_of_terms, count, [&](std::size_t at, auto vectors, const VF32* sums) HWY_ATTR {
    for (std::size_t j = 0; j < vectors(); ++j) hn::StoreU(sums[j], d, out + at + j * step);
    return true;
  });
}

bool equal_sum_float32(const float* values, float unit, const Multiple<std::int32_t>* terms, std::size_t count_of_terms,
                       std::size_t count) {
  const F32 d;
  const std::size_t step = hn::Lanes(d);
  if (count < step) return portable_loops().equal_sum_float32(values, unit, terms, count_of_terms, count);
  return for_sums(unit, terms, count_of_terms, count, [&](std::size_t at, auto vectors, const VF32* sums) HWY_ATTR {
    auto equal = hn::Eq(sums[0], hn::LoadU(d, values + at));
    for (std::size_t j = 1; j < vectors(); ++j)
      equal = hn::And(equal, hn::Eq(sums[j], hn::LoadU(d, values + at + j * step)));
    return hn::AllTrue(d, equal);
  });
}

void convert_float32(float* out, float unit, const std::int32_t* values, std::size_t count) {
  const F32 d;
  const std::size_t step = hn::Lanes(d);
  const auto units = hn::Set(d, unit);
  std::size_t i = 0;
  for (; i + step <= count; i += step)
    hn::StoreU(hn::Mul(units, hn::ConvertTo(d, hn::LoadU(I32(), values + i))), d, out + i);
  if (i < count) portable_loops().convert_float32(out + i, unit, values + i, count - i);
}

/// out[i] = operation(a[i], b[i]), as far as whole vectors go; returns how far.
template <class Value, class Operation>
HWY_INLINE std::size_t combine(Value* out, const Value* a, const Value* b, std::size_t count,
                               const Operation& operation) {
  const hn::ScalableTag<Value> d;
  const std::size_t step = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    const auto first = operation(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    const auto second = operation(hn::LoadU(d, a + i + step), hn::LoadU(d, b + i + step));
    hn::StoreU(first, d, out + i);
    hn::StoreU(second, d, out + i + step);
  }
  return i;
}

template <class Value>
HWY_INLINE std::size_t add(Value* out, const Value* a, const Value* b, std::size_t count) {
  using V = hn::Vec<hn::ScalableTag<Value> >;
  return combine(out, a, b, count, [](V x, V y) HWY_ATTR { return hn::Add(x, y); });
}

void add_float32(float* out, const float* a, const float* b, std::size_t count) {
  const std::size_t i = add(out, a, b, count);
  if (i < count) portable_loops().add_float32(out + i, a + i, b + i, count - i);
}

void add_float64(double* out, const double* a, const double* b, std::size_t count) {
  const std::size_t i = add(out, a, b, count);
  if (i < count) portable_loops().add_float64(out + i, a + i, b + i, count - i);
}

template <class Value>
HWY_INLINE std::size_t multiply(Value* values, Value factor, std::size_t count) {
  using V = hn::Vec<hn::ScalableTag<Value> >;
  const V factors = hn::Set(hn::ScalableTag<Value>(), factor);
  return combine(values, values, values, count, [&](V a, V) HWY_ATTR { return hn::Mul(a, factors); });
}

void multiply_float32(float* values, float factor, std::size_t count) {
  const std::size_t i = multiply(values, factor, count);
  if (i < count) portable_loops().multiply_float32(values + i, factor, count - i);
}

void multiply_float64(double* values, double factor, std::size_t count) {
  const std::size_t i = multiply(values, factor, count);
  if (i < count) portable_loops().multiply_float64(values + i, factor, count - i);
}

template <class Value>
HWY_INLINE std::size_t divide(Value* values, Value divisor, std::size_t count) {
  using V = hn::Vec<hn::ScalableTag<Value> >;
  const V divisors = hn::Set(hn::ScalableTag<Value>(), divisor);
  return combine(values, values, values, count, [&](V a, V) HWY_ATTR { return hn::Div(a, divisors); });
}

void divide_float32(float* values, float divisor, std::size_t count) {
  const std::size_t i = divide(values, divisor, count);
  if (i < count) portable_loops().divide_float32(values + i, divisor, count - i);
}

void divide_float64(double* values, double divisor, std::size_t count) {
  const std::size_t i = divide(values, divisor, count);
  if (i < count) portable_loops().divide_float64(values + i, divisor, count - i);
}

/// Whether whole vectors are equal, and how far they go.
template <class Value>
HWY_INLINE bool equal(const Value* a, const Value* b, std::size_t count, std::size_t& i) {
  const hn::ScalableTag<Value> d;
  const std::size_t step = hn::Lanes(d);
  for (i = 0; i + 2 * step <= count; i += 2 * step) {
    const auto first = hn::Eq(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    const auto second = hn::Eq(hn::LoadU(d, a + i + step), hn::LoadU(d, b + i + step));
    if (!hn::AllTrue(d, hn::And(first, second))) return false;
  }
  return true;
}

bool equal_float32(const float* a, const float* b, std::size_t count) {
  std::size_t i = 0;
  return equal(a, b, count, i) && portable_loops().equal_float32(a + i, b + i, count - i);
}

bool equal_float64(const double* a, const double* b, std::size_t count) {
  std::size_t i = 0;
  return equal(a, b, count, i) && portable_loops().equal_float64(a + i, b + i, count - i);
}

bool equal_residues(const std::uint64_t* a, const std::uint64_t* b, std::size_t count) {
  std::size_t i = 0;
  return equal(a, b, count, i) && portable_loops().equal_residues(a + i, b + i, count - i);
}

void set_arithmetic_loops_of_target(Loops& loops) {
  loops.generate = generate;
  loops.add_numbers_float32 = add_numbers_float32;
  loops.add_numbers_float64 = add_numbers_float64;
  loops.add_numbers_int32 = add_numbers_int32;
  loops.add_numbers_int64 = add_numbers_int64;
  loops.set_numbers_float32 = set_numbers_float32;
  loops.set_numbers_float64 = set_numbers_float64;
  loops.add_all_float32 = add_all_float32;
  loops.add_all_float64 = add_all_float64;
  loops.add_multiples_float32 = add_multiples_float32;
  loops.add_up_float32 = add_up_float32;
  loops.equal_sum_float32 = equal_sum_float32;
  loops.convert_float32 = convert_float32;
  loops.add_float32 = add_float32;
  loops.add_float64 = add_float64;
  loops.multiply_float32 = multiply_float32;
  loops.multiply_float64 = multiply_float64;
  loops.divide_float32 = divide_float32;
  loops.divide_float64 = divide_float64;
  loops.equal_float32 = equal_float32;
  loops.equal_float64 = equal_float64;
  loops.equal_residues = equal_residues;
}

#endif

}  // namespace lockstep::numeric::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::numeric {

SetLoops arithmetic_loops_of(Target target) { return LOCKSTEP_OF_TARGET(target, set_arithmetic_loops_of_target); }

}  // namespace lockstep::numeric
#endif
