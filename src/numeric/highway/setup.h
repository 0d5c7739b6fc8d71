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
