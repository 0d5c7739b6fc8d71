// SPDX-License-Identifier: Apache-2.0
#pragma once

// Included before any header of Highway, so that all sources agree on the targets: each costs another compilation of
// every loop. What comes after plain AVX-512 and after NEON has nothing that the loops would use; of older processors
// than those with SSE4 few are left. Where vectors have no known size, the portable loops run.
#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS ((HWY_AVX3 - 1) | HWY_SSSE3)
#elif defined(__aarch64__)
#define HWY_DISABLED_TARGETS (HWY_NEON - 1)
#else
#define HWY_DISABLED_TARGETS ~(HWY_SCALAR | HWY_EMU128)
#endif

// The function of that name in the namespace of a Target; null where this build has none. Highway's own dispatch would
// need its library, which measures the processor's clock whenever a program starts that is linked with it.
#define LOCKSTEP_OF_TARGET(target, function)              \
  ((target) == Target::avx512 ? HWY_CHOOSE_AVX3(function) \
   : (target) == Target::avx2 ? HWY_CHOOSE_AVX2(function) \
   : (target) == Target::sse4 ? HWY_CHOOSE_SSE4(function) \
   : (target) == Target::neon ? HWY_CHOOSE_NEON(function) \
                              : static_cast<SetLoops>(nullptr))
