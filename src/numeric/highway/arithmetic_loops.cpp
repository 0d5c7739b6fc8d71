// SPDX-License-Identifier: Apache-2.0
// Generator, reductions, factors and comparisons on floating-point and whole numbers for each of Highway's targets.
// What is left over behind the last whole vector is left to the portable loops.
#include "src/numeric/highway/setup.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/numeric/highway/arithmetic_loops.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "src/numeric/loops.h"

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

/// Numbers in order, a vector at a time. The position is an index times a constant: carried along, an addition.
class Generator {
 public:
  explicit HWY_INLINE Generator(const Numbers& numbers)
      : position_(hn::Mul(hn::Iota(U32(), numbers.first), hn::Set(U32(), stride))),
        twist_(hn::Set(U32(), static_cast<std::uint32_t>(numbers.key >> 32))),
        kept_(hn::Set(U32(), numbers.bits == 0 ? 0 : ~0u)),
        shift_(numbers.bits == 0 ? 31 : 32 - numbers.bits) {
    position_ = hn::Add(position_, hn::Set(U32(), static_cast<std::uint32_t>(numbers.key)));
  }

  HWY_INLINE VI32 next() {
    const U32 d;
    VU32 x = position_;
    position_ = hn::Add(position_, hn::Set(d, stride * static_cast<std::uint32_t>(hn::Lanes(d))));
    x = hn::Xor(x, hn::ShiftRight<16>(x));
    x = hn::Xor(hn::Mul(x, hn::Set(d, 0x21F0AAADu)), twist_);
    x = hn::Xor(x, hn::ShiftRight<15>(x));
    x = hn::Mul(x, hn::Set(d, 0x735A2D97u));
    x = hn::Xor(x, hn::ShiftRight<15>(x));
    const VU32 magnitude = hn::Add(hn::And(hn::ShiftRightSame(x, shift_), kept_), hn::Set(d, 1));
    // The last bit is the sign: in all bits it is what turns a number into its complement.
    const VI32 sign = hn::Neg(hn::BitCast(I32(), hn::And(x, hn::Set(d, 1))));
    return hn::Sub(hn::Xor(hn::BitCast(I32(), magnitude), sign), sign);
  }

 private:
  static constexpr std::uint32_t stride = 0x9E3779B1u;
  VU32 position_, twist_, kept_;
  int shift_;
};

Numbers behind(const Numbers& numbers, std::size_t count) {
  return {numbers.key, numbers.first + static_cast<std::uint32_t>(count), numbers.bits};
}

void generate(const Numbers& numbers, std::size_t count, std::int32_t* out) {
  const I32 d;
  const std::size_t step = hn::Lanes(d);
  Generator generator(numbers);
  std::size_t i = 0;
  for (; i + step <= count; i += step) hn::StoreU(generator.next(), d, out + i);
  if (i < count) portable_loops().generate(behind(numbers, i), count - i, out + i);
}

void add_numbers_float32(float* values, float factor, const Numbers& numbers, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t step = hn::Lanes(d);
  const auto factors = hn::Set(d, factor);
  Generator generator(numbers);
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    const auto product = hn::Mul(factors, hn::ConvertTo(d, generator.next()));
    hn::StoreU(hn::Add(hn::LoadU(d, values + i), product), d, values + i);
  }
  if (i < count) portable_loops().add_numbers_float32(values + i, factor, behind(numbers, i), count - i);
}

void add_numbers_float64(double* values, double factor, const Numbers& numbers, std::size_t count) {
  const hn::ScalableTag<double> d;
  const hn::Half<I32> half;
  const std::size_t step = hn::Lanes(I32());
  const auto factors = hn::Set(d, factor);
  const auto add = [&](hn::Vec<hn::Half<I32> > some, double* at) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, at), hn::Mul(factors, hn::PromoteTo(d, some))), d, at);
  };
  Generator generator(numbers);
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    const VI32 some = generator.next();
    add(hn::LowerHalf(half, some), values + i);
    add(hn::UpperHalf(half, some), values + i + step / 2);
  }
  if (i < count) portable_loops().add_numbers_float64(values + i, factor, behind(numbers, i), count - i);
}

void add_products32(std::int32_t* sums, std::int32_t factor, const std::int32_t* numbers, std::size_t count) {
  const I32 d;
  const std::size_t step = hn::Lanes(d);
  const VI32 factors = hn::Set(d, factor);
  std::size_t i = 0;
  for (; i + step <= count; i += step)
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), hn::Mul(factors, hn::LoadU(d, numbers + i))), d, sums + i);
  if (i < count) portable_loops().add_products32(sums + i, factor, numbers + i, count - i);
}

void add_products64(std::int64_t* sums, std::int64_t factor, const std::int32_t* numbers, std::size_t count) {
  const hn::ScalableTag<std::int64_t> d;
  const hn::Rebind<std::int32_t, decltype(d)> narrow;
  const std::size_t step = hn::Lanes(d);
  const auto factors = hn::Set(d, factor);
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    const auto product = hn::Mul(factors, hn::PromoteTo(d, hn::LoadU(narrow, numbers + i)));
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), product), d, sums + i);
  }
  if (i < count) portable_loops().add_products64(sums + i, factor, numbers + i, count - i);
}

/// to[i] = operation(to[i], from[i]), as far as whole vectors go; returns how far.
template <class Value, class Operation>
HWY_INLINE std::size_t combine(Value* to, const Value* from, std::size_t count, const Operation& operation) {
  const hn::ScalableTag<Value> d;
  const std::size_t step = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    const auto first = operation(hn::LoadU(d, to + i), hn::LoadU(d, from + i));
    const auto second = operation(hn::LoadU(d, to + i + step), hn::LoadU(d, from + i + step));
    hn::StoreU(first, d, to + i);
    hn::StoreU(second, d, to + i + step);
  }
  return i;
}

template <class Value>
HWY_INLINE std::size_t add(Value* to, const Value* from, std::size_t count) {
  using V = hn::Vec<hn::ScalableTag<Value> >;
  return combine(to, from, count, [](V a, V b) HWY_ATTR { return hn::Add(a, b); });
}

void add_float32(float* to, const float* from, std::size_t count) {
  const std::size_t i = add(to, from, count);
  if (i < count) portable_loops().add_float32(to + i, from + i, count - i);
}

void add_float64(double* to, const double* from, std::size_t count) {
  const std::size_t i = add(to, from, count);
  if (i < count) portable_loops().add_float64(to + i, from + i, count - i);
}

template <class Value>
HWY_INLINE std::size_t multiply(Value* values, Value factor, std::size_t count) {
  using V = hn::Vec<hn::ScalableTag<Value> >;
  const V factors = hn::Set(hn::ScalableTag<Value>(), factor);
  return combine(values, values, count, [&](V a, V) HWY_ATTR { return hn::Mul(a, factors); });
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
  return combine(values, values, count, [&](V a, V) HWY_ATTR { return hn::Div(a, divisors); });
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
  loops.add_products32 = add_products32;
  loops.add_products64 = add_products64;
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

HWY_EXPORT(set_arithmetic_loops_of_target);

void set_arithmetic_loops(Loops& loops) { HWY_DYNAMIC_DISPATCH(set_arithmetic_loops_of_target)(loops); }

}  // namespace lockstep::numeric
#endif
