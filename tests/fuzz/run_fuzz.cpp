// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::fuzz::read_runs({reinterpret_cast<const char*>(data), size});
  return 0;
}
