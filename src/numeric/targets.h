// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/numeric/loops.h"

namespace lockstep::numeric {

/// The instruction sets that Highway's loops are built for; of one family the fastest first.
enum class Target { avx512, avx2, sse4, neon };

/// Sets what is faster on a target than the portable loops.
using SetLoops = void (*)(Loops&);

// Null where this build has no loops for the target.
SetLoops hash_loops_of(Target target);
SetLoops arithmetic_loops_of(Target target);
SetLoops residue_loops_of(Target target);

}  // namespace lockstep::numeric
