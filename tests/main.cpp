// SPDX-License-Identifier: Apache-2.0
// Compiled once: the main function, and with Catch2 version 2 its whole implementation.
#define CATCH_CONFIG_RUNNER
#include "tests/catch.h"

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
