// SPDX-License-Identifier: Apache-2.0
#include "src/base/shell_quoted.h"

#include "tests/catch.h"

using lockstep::shell_quoted;

TEST_CASE("a word that means nothing to a shell stays as it is", "[shell_quoted]") {
  CHECK(shell_quoted("scenarios/megatron/844-tied.json") == "scenarios/megatron/844-tied.json");
  CHECK(shell_quoted("größe=3,@:%+") == "größe=3,@:%+");
}

TEST_CASE("a word that a shell would take apart is put in single quotes", "[shell_quoted]") {
  CHECK(shell_quoted("") == "''");
  CHECK(shell_quoted("a b") == "'a b'");
  CHECK(shell_quoted("$(reboot)") == "'$(reboot)'");
  CHECK(shell_quoted("it's") == "'it'\\''s'");
}

TEST_CASE("a word with control characters or bytes that are no text stays on one line", "[shell_quoted]") {
  CHECK(shell_quoted("a\nb") == "$'a\\012b'");
  CHECK(shell_quoted("\xff'\\") == "$'\\377\\'\\\\'");
}
