// SPDX-License-Identifier: Apache-2.0
// With LOCKSTEP_FUZZ_PRINT set, a finding can be looked at: the scenario is printed before it is run.
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (std::getenv("LOCKSTEP_FUZZ_PRINT") != nullptr) std::puts(lockstep::fuzz::scenario_from(input).c_str());
  lockstep::fuzz::run_engines(input);
  return 0;
}
