// SPDX-License-Identifier: Apache-2.0
#include <lockstep/check.h>

#include <iostream>

/// Prints the verdict on the scenario that is named by the first argument.
int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const lockstep::CheckResult result = lockstep::check_file(argv[1]);
  std::cout << lockstep::name_of(result.verdict) << '\n';
  return 0;
}
