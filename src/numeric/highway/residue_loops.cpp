// SPDX-License-Identifier: Apache-2.0
// Residues modulo 2^61 - 1 for each of Highway's targets.
#include "src/numeric/highway/setup.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/numeric/highway/residue_loops.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "src/numeric/loops.h"
#include "src/numeric/prime61.h"
#include "src/numeric/targets.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::numeric::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
void set_residue_loops_of_target(Loops&) {}
#else

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<std::uint64_t>;
using V = hn::Vec<D>;

/// From a number below 2^63 that is less than twice the prime. Differences of such numbers have a sign.
HWY_INLINE V reduce_once(V number) {
  const hn::RebindToSigned<D> d;
  const auto less = hn::Sub(hn::BitCast(d, number), hn::Set(d, static_cast<std::int64_t>(prime61)));
  return hn::BitCast(D(), hn::IfNegativeThenElse(less, hn::BitCast(d, number), less));
}

void add_residues(std::uint64_t* out, const std::uint64_t* a, const std::uint64_t* b, std::size_t count) {
  const D d;
  const std::size_t step = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + step <= count; i += step)
    hn::StoreU(reduce_once(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i))), d, out + i);
  if (i < count) portable_loops().add_residues(out + i, a + i, b + i, count - i);
}

/// low half × low half of 64-bit lanes.
HWY_INLINE V multiply_low(V a, V b) {
  const hn::Repartition<std::uint32_t, D> d;
  return hn::MulEven(hn::BitCast(d, a), hn::BitCast(d, b));
}

/// With a = a1 · 2^32 + a0 and b alike, a1 and b1 below 2^29: a · b = a1 b1 · 2^64 + (a1 b0 + a0 b1) · 2^32 + a0 b0,
/// where 2^64 = 8 and 2^32 · 2^29 = 1 modulo the prime. No sum passes 2^63.
HWY_INLINE V multiply61(V a, V factor_low, V factor_high) {
  const D d;
  const V prime = hn::Set(d, prime61);
  const V high = hn::ShiftRight<32>(a);
  const V middle = hn::Add(multiply_low(high, factor_low), multiply_low(a, factor_high));  // below 2^62
  const V low = multiply_low(a, factor_low);
  const V top = hn::ShiftLeft<3>(multiply_low(high, factor_high));  // below 2^61
  const V shifted = hn::ShiftLeft<32>(hn::And(middle, hn::Set(d, (std::uint64_t{1} << 29) - 1)));
  V sum = hn::Add(hn::And(low, prime), hn::ShiftRight<61>(low));
  sum = hn::Add(sum, hn::Add(shifted, hn::ShiftRight<29>(middle)));
  sum = hn::Add(sum, top);
  return reduce_once(hn::Add(hn::And(sum, prime), hn::ShiftRight<61>(sum)));
}

void multiply_residues(std::uint64_t* values, std::uint64_t factor, std::size_t count) {
  const D d;
  const std::size_t step = hn::Lanes(d);
  const V low = hn::Set(d, factor), high = hn::Set(d, factor >> 32);
  std::size_t i = 0;
  for (; i + step <= count; i += step) hn::StoreU(multiply61(hn::LoadU(d, values + i), low, high), d, values + i);
  if (i < count) portable_loops().multiply_residues(values + i, factor, count - i);
}

void generate_residues(std::uint64_t key, std::uint64_t first, std::size_t count, std::uint64_t* out) {
  const D d;
  const std::size_t step = hn::Lanes(d);
  constexpr std::uint64_t stride = 0x9E3779B97F4A7C15u;
  const V prime = hn::Set(d, prime61), one = hn::Set(d, 1);
  V position = hn::Add(hn::Mul(hn::Iota(d, first + 1), hn::Set(d, stride)), hn::Set(d, key));
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    V z = position;
    position = hn::Add(position, hn::Set(d, stride * step));
    z = hn::Mul(hn::Xor(z, hn::ShiftRight<30>(z)), hn::Set(d, 0xBF58476D1CE4E5B9u));
    z = hn::Mul(hn::Xor(z, hn::ShiftRight<27>(z)), hn::Set(d, 0x94D049BB133111EBu));
    z = hn::ShiftRight<3>(hn::Xor(z, hn::ShiftRight<31>(z)));
    const auto zero = hn::Or(hn::Eq(z, hn::Zero(d)), hn::Eq(z, prime));
    hn::StoreU(hn::IfThenElse(zero, one, z), d, out + i);
  }
  if (i < count) portable_loops().generate_residues(key, first + i, count - i, out + i);
}

void set_residue_loops_of_target(Loops& loops) {
  loops.add_residues = add_residues;
  loops.multiply_residues = multiply_residues;
  loops.generate_residues = generate_residues;
}

#endif

}  // namespace lockstep::numeric::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::numeric {

SetLoops residue_loops_of(Target target) { return LOCKSTEP_OF_TARGET(target, set_residue_loops_of_target); }

}  // namespace lockstep::numeric
#endif
