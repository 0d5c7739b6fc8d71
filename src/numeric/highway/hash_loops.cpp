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
#include <type_traits>

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

/// Whole blocks are hashed together with those a page of memory behind: memory is asked for in two places at once, and
/// each key is loaded once for both. Of an Intel Emerald Rapids' read bandwidth, float32 reaches 92 % so with AVX-512
/// and 85 % with AVX2; 82 and 80 % with two blocks of one page, 88 and 82 % with one.
constexpr std::size_t page = 4096;
template <class Element>
constexpr std::size_t next_page = page / sizeof(Element);

/// Asks for the line of elements that these two pages will have next, into the second-level cache. Without, float64
/// reached 64 % of the read bandwidth of an Intel Sapphire Rapids, and 6 % less with a request into the first level.
template <class Element>
HWY_INLINE void ask_ahead(const Element* at) {
  constexpr int read = 0, second_level = 2;
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(at) + 2 * page), read,
                     second_level);
}

constexpr std::size_t line32 = KeyLines<std::uint32_t>::line, line64 = KeyLines<std::uint64_t>::line;

/// The sums of `blocks` blocks, in each lane of the hash. `key` is an index into KeyLines.
template <std::size_t blocks>
struct Sums {
  V64 lanes[blocks][2];

  HWY_INLINE Sums() {
    for (auto& block : lanes) block[0] = block[1] = hn::Zero(D64());
  }
  HWY_INLINE void add(const V32 (&bits)[blocks], std::size_t key) {
    const D32 d;
    for (std::size_t lane = 0; lane < 2; ++lane) {
      const V32 low = hn::Load(d, hash_key_lines.low[lane].at(key));
      const V32 high = hn::Load(d, hash_key_lines.high[lane].at(key));
      const V32 next_high = hn::Load(d, hash_key_lines.next_high[lane].at(key));
      for (std::size_t block = 0; block < blocks; ++block) {
        const V32 mixed = hn::Xor(bits[block], low);
        const V32 above = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(D64(), mixed)));
        lanes[block][lane] = hn::Add(lanes[block][lane], hn::MulEven(mixed, high));
        lanes[block][lane] = hn::Add(lanes[block][lane], hn::MulEven(above, next_high));
      }
    }
  }
  HWY_INLINE void add(const V64 (&bits)[blocks], std::size_t key) {
    const D32 d;
    for (std::size_t lane = 0; lane < 2; ++lane) {
      const V64 whole = hn::Load(D64(), hash_key_lines.whole[lane].at(key));
      for (std::size_t block = 0; block < blocks; ++block) {
        const V64 mixed = hn::Xor(bits[block], whole);
        const V64 above = hn::ShiftRight<32>(mixed);
        lanes[block][lane] = hn::Add(lanes[block][lane], hn::MulEven(hn::BitCast(d, mixed), hn::BitCast(d, above)));
      }
    }
  }
};

HWY_INLINE GradientHash total(const V64 (&lanes)[2]) {
  GradientHash hash;
  for (std::size_t lane = 0; lane < 2; ++lane) hash.lanes[lane] = hn::GetLane(hn::SumOfLanes(D64(), lanes[lane]));
  return hash;
}

/// Elements in front of the first whole group of `group` places are left to the portable loop `rest`, and so are those
/// behind the last; `add_groups(sums, values, place, groups)` adds what is between.
template <std::size_t group, class Element, class Rest, class AddGroups>
HWY_INLINE GradientHash sum_in_groups(const Element* values, std::size_t count, std::size_t place, const Rest& rest,
                                      const AddGroups& add_groups) {
  const std::size_t before = std::min(count, (group - place % group) % group);
  const std::size_t groups = (count - before) / group, end = before + groups * group;
  Sums<1> sums;
  add_groups(sums, values + before, place + before, groups);
  GradientHash hash = total(sums.lanes[0]);
  if (before > 0) hash += rest(values, before, place);
  if (end < count) hash += rest(values + end, count - end, place + end);
  return hash;
}

/// The sums of a block and of that a page behind. Elements are taken as they are while `as_they_are`, which becomes
/// false at the first block in which that is another hash.
template <std::size_t group, class Element, class AddGroups>
HWY_INLINE Sums<2> sum_two_blocks(const Element* values, const AddGroups& add_groups, bool& as_they_are) {
  Sums<2> sums;
  if constexpr (requires { typename AddGroups::AsTheyAre; }) {
    if (as_they_are) as_they_are = typename AddGroups::AsTheyAre()(sums, values);
    if (as_they_are) return sums;
    sums = Sums<2>();
  }
  add_groups(sums, values, 0, hash_block / group);
  return sums;
}

/// Whole blocks, whose sums stay in vectors until the end.
template <std::size_t group, class Element, class AddGroups>
HWY_INLINE GradientHash sum_whole_blocks(const Element* values, std::size_t blocks, const HashFactors* factors,
                                         const AddGroups& add_groups) {
  constexpr std::size_t apart = next_page<Element> / hash_block;
  V64 totals[2] = {hn::Zero(D64()), hn::Zero(D64())};
  const auto add = [&](const V64(&sums)[2], const HashFactors& of_block) {
    for (std::size_t lane = 0; lane < 2; ++lane)
      totals[lane] = hn::Add(totals[lane], hn::Mul(sums[lane], hn::Set(D64(), of_block[lane])));
  };
  bool as_they_are = true;
  for (; blocks >= 2 * apart; blocks -= 2 * apart, factors += 2 * apart, values += 2 * apart * hash_block) {
    for (std::size_t block = 0; block < apart; ++block) {
      const Sums<2> sums = sum_two_blocks<group>(values + block * hash_block, add_groups, as_they_are);
      add(sums.lanes[0], factors[block]);
      add(sums.lanes[1], factors[block + apart]);
    }
  }
  for (; blocks > 0; --blocks, ++factors, values += hash_block) {
    Sums<1> sums;
    add_groups(sums, values, 0, hash_block / group);
    add(sums.lanes[0], *factors);
  }
  return total(totals);
}

/// Adds elements as they are, which is their hash where none of them is -0 or NaN: to find that out takes two
/// instructions, and to make an element canonical five.
template <class Real, class Load>
struct AddAsTheyAre {
  using D = hn::ScalableTag<std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t> >;
  using Bits = hn::TFromD<D>;

  /// Whether none is among them. False as well where infinities of both signs are, or a double between -2^-1042 and -0.
  HWY_INLINE bool operator()(Sums<2>& sums, const Real* at) const {
    const D d;
    const hn::ScalableTag<Real> real;
    const hn::ScalableTag<std::int32_t> ordered;
    constexpr std::size_t line = KeyLines<Bits>::line;
    auto sum = hn::Zero(real);       // NaN once an element is
    auto least = hn::Zero(ordered);  // the upper half of -0 is less than all others
    std::size_t key = KeyLines<Bits>::index(0);
    for (std::size_t lines = hash_block / line; lines > 0; --lines, at += line, key -= line) {
      ask_ahead(at);
      ask_ahead(at + next_page<Real>);
      for (std::size_t i = 0; i < line; i += hn::MaxLanes(d)) {
        const auto here = Load()(at + i), behind = Load()(at + i + next_page<Real>);
        sum = hn::Add(sum, hn::Add(here, behind));
        least = hn::Min(least, hn::Min(hn::BitCast(ordered, here), hn::BitCast(ordered, behind)));
        sums.add({hn::BitCast(d, here), hn::BitCast(d, behind)}, key + i);
      }
    }
    constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1),
                   upper = static_cast<Bits>(~Bits{0} << (8 * sizeof(Bits) - 32));
    return hn::AllTrue(real, hn::Eq(sum, sum)) &&
           hn::AllFalse(d, hn::Eq(hn::And(hn::BitCast(d, least), hn::Set(d, upper)), hn::Set(d, sign)));
  }
};

struct LoadFloat32 {
  /// With AVX-512 the two halves one after the other: of lines that are each read by one load, Zen 4 asks memory for
  /// the next ones too late, and beside six loads of keys it came from there at 76 % of what this does, or less.
  HWY_INLINE hn::Vec<hn::ScalableTag<float> > operator()(const float* at) const {
    const hn::ScalableTag<float> real;
#if HWY_TARGET == HWY_AVX3
    const hn::Half<hn::ScalableTag<float> > half;
    return hn::Combine(real, hn::LoadU(half, at + hn::MaxLanes(half)), hn::LoadU(half, at));
#else
    return hn::LoadU(real, at);
#endif
  }
};

struct AddFloat32 {
  using AsTheyAre = AddAsTheyAre<float, LoadFloat32>;

  template <std::size_t blocks>
  HWY_INLINE void operator()(Sums<blocks>& sums, const float* at, std::size_t first, std::size_t lines) const {
    const hn::ScalableTag<float> real;
    std::size_t key = KeyLines<std::uint32_t>::index(first);
    for (; lines > 0; --lines, at += line32, key -= line32) {
      for (std::size_t block = 0; block < blocks; ++block) ask_ahead(at + block * next_page<float>);
      for (std::size_t i = 0; i < line32; i += hn::MaxLanes(real)) {
        V32 bits[blocks];
        for (std::size_t block = 0; block < blocks; ++block)
          bits[block] =
              canonical(D32(), hn::BitCast(D32(), LoadFloat32()(at + block * next_page<float> + i)), 0x7F800000u);
        sums.add(bits, key + i);
      }
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
  template <std::size_t blocks>
  HWY_INLINE void operator()(Sums<blocks>& sums, const std::uint16_t* at, std::size_t first, std::size_t pairs) const {
    const D16 d;
    const hn::Half<D16> half;
    const D32 wide;
    constexpr std::size_t step = hn::MaxLanes(D32());
    std::size_t key = KeyLines<std::uint32_t>::index(first);
    for (; pairs > 0; --pairs, at += 2 * line32, key -= 2 * line32) {
      for (std::size_t block = 0; block < blocks; ++block) ask_ahead(at + block * next_page<std::uint16_t>);
      for (std::size_t i = 0; i < 2 * line32; i += 2 * step) {
        V32 lower[blocks], upper[blocks];
        for (std::size_t block = 0; block < blocks; ++block) {
          const auto bits = canonical(d, hn::LoadU(d, at + block * next_page<std::uint16_t> + i), infinity);
          lower[block] = hn::PromoteTo(wide, hn::LowerHalf(half, bits));
          upper[block] = hn::PromoteTo(wide, hn::UpperHalf(half, bits));
        }
        const auto key_of = [&](std::size_t place) { return key + place % line32 - place / line32 * line32; };
        sums.add(lower, key_of(i));
        sums.add(upper, key_of(i + step));
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

struct LoadFloat64 {
  HWY_INLINE hn::Vec<hn::ScalableTag<double> > operator()(const double* at) const {
    return hn::LoadU(hn::ScalableTag<double>(), at);
  }
};

HWY_INLINE V64 canonical_bits(const double* at) {
  return canonical(D64(), hn::BitCast(D64(), LoadFloat64()(at)), 0x7FF0000000000000u);
}
HWY_INLINE V64 canonical_bits(const std::uint64_t* at) { return hn::LoadU(D64(), at); }

struct AddLines64 {
  template <std::size_t blocks, class Element>
  HWY_INLINE void operator()(Sums<blocks>& sums, const Element* at, std::size_t first, std::size_t lines) const {
    std::size_t key = KeyLines<std::uint64_t>::index(first);
    for (; lines > 0; --lines, at += line64, key -= line64) {
      for (std::size_t block = 0; block < blocks; ++block) ask_ahead(at + block * next_page<Element>);
      for (std::size_t i = 0; i < line64; i += hn::MaxLanes(D64())) {
        V64 pattern[blocks];
        for (std::size_t block = 0; block < blocks; ++block)
          pattern[block] = canonical_bits(at + block * next_page<Element> + i);
        sums.add(pattern, key + i);
      }
    }
  }
};

struct AddFloat64 : AddLines64 {
  using AsTheyAre = AddAsTheyAre<double, LoadFloat64>;
};

GradientHash sum_float64(const double* values, std::size_t count, std::size_t place) {
  return sum_in_groups<line64>(values, count, place, portable_loops().sum_float64, AddFloat64());
}

GradientHash sum_blocks_float64(const double* values, std::size_t blocks, const HashFactors* factors) {
  return sum_whole_blocks<line64>(values, blocks, factors, AddFloat64());
}

GradientHash sum_residues(const std::uint64_t* values, std::size_t count, std::size_t place) {
  return sum_in_groups<line64>(values, count, place, portable_loops().sum_residues, AddLines64());
}

GradientHash sum_blocks_residues(const std::uint64_t* values, std::size_t blocks, const HashFactors* factors) {
  return sum_whole_blocks<line64>(values, blocks, factors, AddLines64());
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
