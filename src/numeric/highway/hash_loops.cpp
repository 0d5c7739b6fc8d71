// SPDX-License-Identifier: Apache-2.0
// The sums of docs/hash.md for each of Highway's targets. A multiplication takes the lower halves of 64-bit lanes, so
// that elements of odd places are shifted down, and multiplied by keys that are stored one place further down.
#include "src/numeric/highway/setup.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/numeric/highway/hash_loops.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "src/numeric/hash_keys.h"
#include "src/numeric/loops.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::numeric::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
void set_hash_loops_of_target(Loops&) {}
#else

namespace hn = hwy::HWY_NAMESPACE;

using D16 = hn::ScalableTag<std::uint16_t>;
using D32 = hn::ScalableTag<std::uint32_t>;
using D64 = hn::ScalableTag<std::uint64_t>;
using V32 = hn::Vec<D32>;
using V64 = hn::Vec<D64>;

/// -0 becomes 0, every NaN all ones.
template <class D, class V>
HWY_INLINE V canonical(D d, V bits, hn::TFromD<D> infinity) {
  using Bits = hn::TFromD<D>;
  constexpr auto sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const hn::RebindToSigned<D> ordered;  // without the sign every pattern is positive
  const V size = hn::AndNot(hn::Set(d, sign), bits);
  const auto nan = hn::Gt(hn::BitCast(ordered, size), hn::BitCast(ordered, hn::Set(d, infinity)));
  const V number = hn::IfThenZeroElse(hn::Eq(bits, hn::Set(d, sign)), bits);
#if HWY_TARGET == HWY_AVX3
  // Where masks are no vectors, a choice takes one instruction less.
  return hn::IfThenElse(hn::RebindMask(d, nan), hn::Set(d, static_cast<Bits>(~Bits{0})), number);
#else
  return hn::Or(number, hn::BitCast(d, hn::VecFromMask(ordered, nan)));
#endif
}

/// Asks for what is read some blocks later than `bytes` bytes from `at` on: the processor's own prefetching ends with
/// each page, and large vectors go through pages quickly. The distance was measured (docs/performance.md).
HWY_INLINE void prefetch(const void* at, std::size_t bytes) {
  constexpr std::uintptr_t distance = 6144, line = 64;
  for (std::uintptr_t done = 0; done < bytes; done += line)
    hwy::Prefetch(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(at) + distance + done));
}

/// Two sums for each lane of the hash: no addition waits for the one before it.
struct Sums {
  V64 even[2], odd[2];

  HWY_INLINE Sums() : even{hn::Zero(D64()), hn::Zero(D64())}, odd{hn::Zero(D64()), hn::Zero(D64())} {}

  HWY_INLINE void add32(V32 bits, std::size_t place) {
    const D32 d;
    for (std::size_t lane = 0; lane < 2; ++lane) {
      const V32 mixed = hn::Xor(bits, hn::LoadU(d, hash_keys.low[lane].data() + place));
      const V32 above = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(D64(), mixed)));
      even[lane] = hn::Add(even[lane], hn::MulEven(mixed, hn::LoadU(d, hash_keys.high[lane].data() + place)));
      odd[lane] = hn::Add(odd[lane], hn::MulEven(above, hn::LoadU(d, hash_keys.next_high[lane].data() + place)));
    }
  }
  HWY_INLINE void add64(V64 bits, std::size_t place, V64 (&sums)[2]) {
    const D32 d;
    for (std::size_t lane = 0; lane < 2; ++lane) {
      const V64 mixed = hn::Xor(bits, hn::LoadU(D64(), hash_keys.whole[lane].data() + place));
      const V64 above = hn::ShiftRight<32>(mixed);
      sums[lane] = hn::Add(sums[lane], hn::MulEven(hn::BitCast(d, mixed), hn::BitCast(d, above)));
    }
  }
  HWY_INLINE GradientHash total() const {
    GradientHash hash;
    for (std::size_t lane = 0; lane < 2; ++lane)
      hash.lanes[lane] = hn::GetLane(hn::SumOfLanes(D64(), hn::Add(even[lane], odd[lane])));
    return hash;
  }
};

GradientHash sum_float32(const float* values, std::size_t count, std::size_t place) {
  const hn::ScalableTag<float> real;
  const std::size_t step = hn::Lanes(real);
  const auto bits = [&](std::size_t i) HWY_ATTR {
    return canonical(D32(), hn::BitCast(D32(), hn::LoadU(real, values + i)), 0x7F800000u);
  };
  Sums sums;
  std::size_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    prefetch(values + i, 2 * step * sizeof(float));
    sums.add32(bits(i), place + i);
    sums.add32(bits(i + step), place + i + step);
  }
  GradientHash total = sums.total();
  if (i < count) total += portable_loops().sum_float32(values + i, count - i, place + i);
  return total;
}

template <std::uint16_t infinity>
HWY_INLINE GradientHash sum16(const std::uint16_t* values, std::size_t count, std::size_t place, std::size_t& i) {
  const D16 d;
  const hn::Half<D16> half;
  const D32 wide;
  const std::size_t step = hn::Lanes(D16());
  Sums sums;
  for (i = 0; i + step <= count; i += step) {
    prefetch(values + i, step * sizeof(std::uint16_t));
    const auto bits = canonical(d, hn::LoadU(d, values + i), infinity);
    sums.add32(hn::PromoteTo(wide, hn::LowerHalf(half, bits)), place + i);
    sums.add32(hn::PromoteTo(wide, hn::UpperHalf(half, bits)), place + i + step / 2);
  }
  return sums.total();
}

GradientHash sum_bfloat16(const std::uint16_t* values, std::size_t count, std::size_t place) {
  std::size_t i = 0;
  GradientHash total = sum16<0x7F80>(values, count, place, i);
  if (i < count) total += portable_loops().sum_bfloat16(values + i, count - i, place + i);
  return total;
}

GradientHash sum_float16(const std::uint16_t* values, std::size_t count, std::size_t place) {
  std::size_t i = 0;
  GradientHash total = sum16<0x7C00>(values, count, place, i);
  if (i < count) total += portable_loops().sum_float16(values + i, count - i, place + i);
  return total;
}

template <class Element, class Bits>
HWY_INLINE GradientHash sum64(const Element* values, std::size_t count, std::size_t place, std::size_t& i,
                              const Bits& bits) {
  const std::size_t step = hn::Lanes(D64());
  Sums sums;
  for (i = 0; i + 2 * step <= count; i += 2 * step) {
    prefetch(values + i, 2 * step * sizeof(Element));
    sums.add64(bits(i), place + i, sums.even);
    sums.add64(bits(i + step), place + i + step, sums.odd);
  }
  return sums.total();
}

GradientHash sum_float64(const double* values, std::size_t count, std::size_t place) {
  const hn::ScalableTag<double> real;
  std::size_t i = 0;
  GradientHash total = sum64(values, count, place, i, [&](std::size_t at) HWY_ATTR {
    return canonical(D64(), hn::BitCast(D64(), hn::LoadU(real, values + at)), 0x7FF0000000000000u);
  });
  if (i < count) total += portable_loops().sum_float64(values + i, count - i, place + i);
  return total;
}

GradientHash sum_residues(const std::uint64_t* values, std::size_t count, std::size_t place) {
  std::size_t i = 0;
  GradientHash total =
      sum64(values, count, place, i, [&](std::size_t at) HWY_ATTR { return hn::LoadU(D64(), values + at); });
  if (i < count) total += portable_loops().sum_residues(values + i, count - i, place + i);
  return total;
}

void set_hash_loops_of_target(Loops& loops) {
  loops.sum_float32 = sum_float32;
  loops.sum_float64 = sum_float64;
  loops.sum_bfloat16 = sum_bfloat16;
  loops.sum_float16 = sum_float16;
  loops.sum_residues = sum_residues;
}

#endif

}  // namespace lockstep::numeric::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::numeric {

HWY_EXPORT(set_hash_loops_of_target);

void set_hash_loops(Loops& loops) { HWY_DYNAMIC_DISPATCH(set_hash_loops_of_target)(loops); }

}  // namespace lockstep::numeric
#endif
