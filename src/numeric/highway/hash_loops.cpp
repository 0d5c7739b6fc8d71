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
#if HWY_TARGET == HWY_AVX3
  // Twice the pattern has no sign; of zero and of NaN alone one less than that is more than of infinity. Both want what
  // the upper bit of it is, in all bits.
  const hn::RebindToSigned<D> with_sign;
  const V twice = hn::Add(bits, bits);
  const V one_less = hn::Sub(twice, hn::Set(d, Bits{1}));
  const auto is_special = hn::Gt(one_less, hn::Set(d, static_cast<Bits>(2 * infinity - 1)));
  const auto upper_bit = hn::BroadcastSignBit(hn::BitCast(with_sign, twice));
  return hn::IfThenElse(is_special, hn::BitCast(d, upper_bit), bits);
#else
  constexpr auto sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const hn::RebindToSigned<D> ordered;  // without the sign every pattern is positive
  const V size = hn::AndNot(hn::Set(d, sign), bits);
  const auto nan = hn::Gt(hn::BitCast(ordered, size), hn::BitCast(ordered, hn::Set(d, infinity)));
  const V number = hn::IfThenZeroElse(hn::Eq(bits, hn::Set(d, sign)), bits);
  return hn::Or(number, hn::BitCast(d, hn::VecFromMask(ordered, nan)));
#endif
}

/// Asks for the line of elements that comes 6 KiB later, into the second-level cache: from memory, float64 reached 64 %
/// of the read bandwidth of an Intel Sapphire Rapids without, 85 % with a request into the first level, and 91 % so. On
/// an AMD Zen 4 requests gained nothing at any distance; this one was not measured there.
template <class Element>
HWY_INLINE void ask_ahead(const Element* at) {
  constexpr std::uintptr_t ahead = 6144;
  constexpr int read = 0, second_level = 2;
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(at) + ahead), read, second_level);
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
/// behind the last; `add_groups(sums, values, place, groups)` adds what is between.
template <std::size_t group, class Element, class Rest, class AddGroups>
HWY_INLINE GradientHash sum_in_groups(const Element* values, std::size_t count, std::size_t place, const Rest& rest,
                                      const AddGroups& add_groups) {
  const std::size_t before = std::min(count, (group - place % group) % group);
  const std::size_t groups = (count - before) / group, end = before + groups * group;
  Sums sums;
  add_groups(sums, values + before, place + before, groups);
  GradientHash total = sums.total();
  if (before > 0) total += rest(values, before, place);
  if (end < count) total += rest(values + end, count - end, place + end);
  return total;
}

/// Whole blocks, whose sums stay in vectors until the end.
template <std::size_t group, class Element, class AddGroups>
HWY_INLINE GradientHash sum_whole_blocks(const Element* values, std::size_t blocks, const HashFactors* factors,
                                         const AddGroups& add_groups) {
  const D64 d;
  V64 totals[2] = {hn::Zero(d), hn::Zero(d)};
  for (; blocks > 0; --blocks, ++factors, values += hash_block) {
    Sums sums;
    add_groups(sums, values, 0, hash_block / group);
    for (std::size_t lane = 0; lane < 2; ++lane) {
      const V64 sum = hn::Add(sums.even[lane], sums.odd[lane]);
      totals[lane] = hn::Add(totals[lane], hn::Mul(sum, hn::Set(d, (*factors)[lane])));
    }
  }
  GradientHash hash;
  for (std::size_t lane = 0; lane < 2; ++lane) hash.lanes[lane] = hn::GetLane(hn::SumOfLanes(d, totals[lane]));
  return hash;
}

struct AddFloat32 {
  /// With AVX-512 the two halves one after the other: of lines that are each read by one load, Zen 4 asks memory for
  /// the next ones too late, and beside six loads of keys it came from there at 76 % of what this does, or less.
  static HWY_INLINE hn::Vec<hn::ScalableTag<float> > load(const float* at) {
    const hn::ScalableTag<float> real;
#if HWY_TARGET == HWY_AVX3
    const hn::Half<hn::ScalableTag<float> > half;
    return hn::Combine(real, hn::LoadU(half, at + hn::MaxLanes(half)), hn::LoadU(half, at));
#else
    return hn::LoadU(real, at);
#endif
  }
  HWY_INLINE void operator()(Sums& sums, const float* at, std::size_t first, std::size_t lines) const {
    const hn::ScalableTag<float> real;
    std::size_t key = KeyLines<std::uint32_t>::index(first);
    for (; lines > 0; --lines, at += line32, key -= line32) {
      ask_ahead(at);
      for (std::size_t i = 0; i < line32; i += hn::MaxLanes(real))
        sums.add32(canonical(D32(), hn::BitCast(D32(), load(at + i)), 0x7F800000u), key + i);
    }
  }
};

GradientHash sum_float32(const float* values, std::size_t count, std::size_t place) {
  return sum_in_groups<line32>(values, count, place, portable_loops().sum_float32, AddFloat32());
}

GradientHash sum_blocks_float32(const float* values, std::size_t blocks, const HashFactors* factors) {
  return sum_whole_blocks<line32>(values, blocks, factors, AddFloat32());
}

/// Groups of two lines of keys, since a vector has up to 32 elements.
template <std::uint16_t infinity>
struct AddPairs16 {
  HWY_INLINE void operator()(Sums& sums, const std::uint16_t* at, std::size_t first, std::size_t pairs) const {
    const D16 d;
    const hn::Half<D16> half;
    const D32 wide;
    constexpr std::size_t step = hn::MaxLanes(D32());
    std::size_t key = KeyLines<std::uint32_t>::index(first);
    for (; pairs > 0; --pairs, at += 2 * line32, key -= 2 * line32) {
      ask_ahead(at);
      for (std::size_t i = 0; i < 2 * line32; i += 2 * step) {
        const auto bits = canonical(d, hn::LoadU(d, at + i), infinity);
        const auto key_of = [&](std::size_t place) { return key + place % line32 - place / line32 * line32; };
        sums.add32(hn::PromoteTo(wide, hn::LowerHalf(half, bits)), key_of(i));
        sums.add32(hn::PromoteTo(wide, hn::UpperHalf(half, bits)), key_of(i + step));
      }
    }
  }
};
using AddBfloat16 = AddPairs16<0x7F80>;
using AddFloat16 = AddPairs16<0x7C00>;

GradientHash sum_bfloat16(const std::uint16_t* values, std::size_t count, std::size_t place) {
  return sum_in_groups<2 * line32>(values, count, place, portable_loops().sum_bfloat16, AddBfloat16());
}

GradientHash sum_float16(const std::uint16_t* values, std::size_t count, std::size_t place) {
  return sum_in_groups<2 * line32>(values, count, place, portable_loops().sum_float16, AddFloat16());
}

GradientHash sum_blocks_bfloat16(const std::uint16_t* values, std::size_t blocks, const HashFactors* factors) {
  return sum_whole_blocks<2 * line32>(values, blocks, factors, AddBfloat16());
}

GradientHash sum_blocks_float16(const std::uint16_t* values, std::size_t blocks, const HashFactors* factors) {
  return sum_whole_blocks<2 * line32>(values, blocks, factors, AddFloat16());
}

template <class Element>
struct AddLines64 {
  static HWY_INLINE V64 bits(const double* at) {
    return canonical(D64(), hn::BitCast(D64(), hn::LoadU(hn::ScalableTag<double>(), at)), 0x7FF0000000000000u);
  }
  static HWY_INLINE V64 bits(const std::uint64_t* at) { return hn::LoadU(D64(), at); }

  HWY_INLINE void operator()(Sums& sums, const Element* at, std::size_t first, std::size_t lines) const {
    constexpr std::size_t step = hn::MaxLanes(D64());
    std::size_t key = KeyLines<std::uint64_t>::index(first);
    for (; lines > 0; --lines, at += line64, key -= line64) {
      ask_ahead(at);
      for (std::size_t i = 0; i < line64; i += step)
        sums.add64(bits(at + i), key + i, i / step % 2 == 0 ? sums.even : sums.odd);
    }
  }
};

GradientHash sum_float64(const double* values, std::size_t count, std::size_t place) {
  return sum_in_groups<line64>(values, count, place, portable_loops().sum_float64, AddLines64<double>());
}

GradientHash sum_blocks_float64(const double* values, std::size_t blocks, const HashFactors* factors) {
  return sum_whole_blocks<line64>(values, blocks, factors, AddLines64<double>());
}

GradientHash sum_residues(const std::uint64_t* values, std::size_t count, std::size_t place) {
  return sum_in_groups<line64>(values, count, place, portable_loops().sum_residues, AddLines64<std::uint64_t>());
}

GradientHash sum_blocks_residues(const std::uint64_t* values, std::size_t blocks, const HashFactors* factors) {
  return sum_whole_blocks<line64>(values, blocks, factors, AddLines64<std::uint64_t>());
}

void set_hash_loops_of_target(Loops& loops) {
  loops.sum_float32 = sum_float32;
  loops.sum_float64 = sum_float64;
  loops.sum_bfloat16 = sum_bfloat16;
  loops.sum_float16 = sum_float16;
  loops.sum_residues = sum_residues;
  loops.sum_blocks_float32 = sum_blocks_float32;
  loops.sum_blocks_float64 = sum_blocks_float64;
  loops.sum_blocks_bfloat16 = sum_blocks_bfloat16;
  loops.sum_blocks_float16 = sum_blocks_float16;
  loops.sum_blocks_residues = sum_blocks_residues;
}

#endif

}  // namespace lockstep::numeric::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::numeric {

SetLoops hash_loops_of(Target target) { return LOCKSTEP_OF_TARGET(target, set_hash_loops_of_target); }

}  // namespace lockstep::numeric
#endif
