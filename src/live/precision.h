// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/model.h"

namespace lockstep::live {

/// Largest relative error of rounding to nearest.
inline double unit_roundoff(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32:
      return 0x1p-24;
    case Dtype::float64:
      return 0x1p-53;
    case Dtype::bfloat16:
      return 0x1p-9;
    case Dtype::float16:
      return 0x1p-11;
  }
  return 0x1p-9;
}

inline double squared(double value) { return value * value; }

/// The one with fewer digits.
inline Dtype coarser(Dtype a, Dtype b) { return unit_roundoff(a) < unit_roundoff(b) ? b : a; }

/// Distance of the smallest numbers, below which a gradient fades to nothing.
inline double smallest_spacing(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32:
      return 0x1p-149;
    case Dtype::float64:
      return 0x1p-1074;
    case Dtype::bfloat16:
      return 0x1p-133;
    case Dtype::float16:
      return 0x1p-24;
  }
  return 0;
}

}  // namespace lockstep::live
