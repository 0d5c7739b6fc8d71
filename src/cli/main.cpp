// SPDX-License-Identifier: Apache-2.0
#include "src/cli/command.h"

int main(int count, char** values) {
  return lockstep::cli::run_program({values + 1, values + (count > 0 ? count : 1)});
}
