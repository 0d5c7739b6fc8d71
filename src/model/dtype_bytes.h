// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "lockstep/model.h"

namespace lockstep::model {

/// Of an element in memory.
constexpr std::size_t bytes_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bfloat16:
    case Dtype::float16:
      return 2;
    case Dtype::float32:
      return 4;
    case Dtype::float64:
      break;
  }
  return 8;
}

}  // namespace lockstep::model
