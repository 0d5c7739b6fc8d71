// SPDX-License-Identifier: Apache-2.0
// The sums of docs/hash.md for each of Highway's targets. A multiplication takes the lower halves of 64-bit lanes, so
// that elements of odd places are shifted down, and multiplied by keys that are stored one place further down.
#include "src/numeric/highway/setup.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/numeric/highway/hash_loops.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include <algorithm>

#include "src/numeric/highway/key_lines.h"
#include "src/numeric/loops.h"
#include "src/numeric/targets.h"

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

constexpr std::size_t line32 = KeyLines<std::uint32_t>::line, line64 = KeyLines<std::uint64_t>::line;

/// Two sums for each lane of the hash: no addition waits for the one before it. `key` is an index into KeyLines.
struct Sums {
  V64 even[2], odd[2];

  HWY_INLINE Sums() : even{hn::Zero(D64()), hn::Zero(D64())}, odd{hn::Zero(D64()), hn::Zero(D64())} {}

  HWY_INLINE void add32(V32 bits, std::size_t key) {
    const D32 d;
    for (std::size_t lane = 0; lane < 2; ++lane) {
      const V32 mixed = hn::Xor(bits, hn::Load(d, hash_key_lines.low[lane].at(key)));
      const V32 above = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(D64(), mixed)));
      even[lane] = hn::Add(even[lane], hn::MulEven(mixed, hn::Load(d, hash_key_lines.high[lane].at(key))));
      odd[lane] = hn::Add(odd[lane], hn::MulEven(above, hn::Load(d, hash_key_lines.next_high[lane].at(key))));
    }
  }
  HWY_INLINE void add64(V64 bits, std::size_t key, V64 (&sums)[2]) {
    const D32 d;
    for (std::size_t lane = 0; lane < 2; ++lane) {
      const V64 mixed = hn::Xor(bits, hn::Load(D64(), hash_key_lines.whole[lane].at(key)));
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

/// Elements in front of the first whole group of `group` places are left to the portable loop `rest`, and so are those
/// behind the last; `sum_groups(values, place, groups)` adds up what is between.
template <std::size_t group, class Element, class Rest, class SumGroups>
HWY_INLINE GradientHash sum_in_groups(const Element* values, std::size_t count, std::size_t place, const Rest& rest,
                                      const SumGroups& sum_groups) {
  const std::size_t before = std::min(count, (group - place % group) % group);
  const std::size_t groups = (count - before) / group, end = before + groups * group;
  GradientHash total;
  if (groups > 0) total = sum_groups(values + before, place + before, groups);
  if (before > 0) total += rest(values, before, place);
  if (end < count) total += rest(values + end, count - end, place + end);
  return total;
}

GradientHash sum_float32(const float* values, std::size_t count, std::size_t place) {
  const auto sum_lines = [](const float* at, std::size_t first, std::size_t lines) HWY_ATTR {
    const hn::ScalableTag<float> real;
    std::size_t key = KeyLines<std::uint32_t>::index(first);
    Sums sums;
    for (; lines > 0; --lines, at += line32, key -= line32) {
      for (std::size_t i = 0; i < line32; i += hn::MaxLanes(real))
        sums.add32(canonical(D32(), hn::BitCast(D32(), hn::LoadU(real, at + i)), 0x7F800000u), key + i);
    }
    return sums.total();
  };
  return sum_in_groups<line32>(values, count, place, portable_loops().sum_float32, sum_lines);
}

/// Groups of two lines of keys, since a vector has up to 32 elements.
template <std::uint16_t infinity>
HWY_INLINE GradientHash sum_pairs16(const std::uint16_t* values, std::size_t first, std::size_t pairs) {
  const D16 d;
  const hn::Half<D16> half;
  const D32 wide;
  constexpr std::size_t step = hn::MaxLanes(D32());
  std::size_t key = KeyLines<std::uint32_t>::index(first);
  Sums sums;
  for (; pairs > 0; --pairs, values += 2 * line32, key -= 2 * line32) {
    for (std::size_t i = 0; i < 2 * line32; i += 2 * step) {
      const auto bits = canonical(d, hn::LoadU(d, values + i), infinity);
      const auto key_of = [&](std::size_t at) { return key + at % line32 - at / line32 * line32; };
      sums.add32(hn::PromoteTo(wide, hn::LowerHalf(half, bits)), key_of(i));
      sums.add32(hn::PromoteTo(wide, hn::UpperHalf(half, bits)), key_of(i + step));
    }
  }
  return sums.total();
}

GradientHash sum_bfloat16(const std::uint16_t* values, std::size_t count, std::size_t place) {
  return sum_in_groups<2 * line32>(values, count, place, portable_loops().sum_bfloat16, sum_pairs16<0x7F80>);
}

GradientHash sum_float16(const std::uint16_t* values, std::size_t count, std::size_t place) {
  return sum_in_groups<2 * line32>(values, count, place, portable_loops().sum_float16, sum_pairs16<0x7C00>);
}

template <class Element, class Bits>
HWY_INLINE GradientHash sum_lines64(const Element* values, std::size_t first, std::size_t lines, const Bits& bits) {
  constexpr std::size_t step = hn::MaxLanes(D64());
  std::size_t key = KeyLines<std::uint64_t>::index(first);
  Sums sums;
  for (; lines > 0; --lines, values += line64, key -= line64) {
    for (std::size_t i = 0; i < line64; i += step)
      sums.add64(bits(values + i), key + i, i / step % 2 == 0 ? sums.even : sums.odd);
  }
  return sums.total();
}

GradientHash sum_float64(const double* values, std::size_t count, std::size_t place) {
  const auto bits = [](const double* at) HWY_ATTR {
    return canonical(D64(), hn::BitCast(D64(), hn::LoadU(hn::ScalableTag<double>(), at)), 0x7FF0000000000000u);
  };
  const auto sum_lines = [&](const double* at, std::size_t first, std::size_t lines)
                             HWY_ATTR { return sum_lines64(at, first, lines, bits); };
  return sum_in_groups<line64>(values, count, place, portable_loops().sum_float64, sum_lines);
}

GradientHash sum_residues(const std::uint64_t* values, std::size_t count, std::size_t place) {
  const auto bits = [](const std::uint64_t* at) HWY_ATTR { return hn::LoadU(D64(), at); };
  const auto sum_lines = [&](const std::uint64_t* at, std::size_t first, std::size_t lines)
                             HWY_ATTR { return sum_lines64(at, first, lines, bits); };
  return sum_in_groups<line64>(values, count, place, portable_loops().sum_residues, sum_lines);
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

SetLoops hash_loops_of(Target target) { return LOCKSTEP_OF_TARGET(target, set_hash_loops_of_target); }

}  // namespace lockstep::numeric
#endif
