// SPDX-License-Identifier: Apache-2.0
#include "lockstep/diagnostic.h"
#include "tests/catch.h"

using lockstep::did_you_mean;
using lockstep::nearest_word;

TEST_CASE("The nearest word is found through one wrong, missing, added or swapped letter") {
  const std::vector<std::string> known = {"tp", "cp", "dp", "pp", "micro_batches", "tokens", "geometry"};
  CHECK(nearest_word("micro_batch", known) == "micro_batches");
  CHECK(nearest_word("token", known) == "tokens");
  CHECK(nearest_word("tokesn", known) == "tokens");
  CHECK(nearest_word("geomtery", known) == "geometry");
  CHECK(nearest_word("geographies", known).empty());
  CHECK(nearest_word("optimizer", known).empty());
  CHECK(nearest_word("", known).empty());
  CHECK(nearest_word("dp", {}).empty());
}

TEST_CASE("One letter of an axis' name may be wrong") {
  CHECK(nearest_word("dq", {"tp", "cp", "sp", "dp", "pp"}) == "dp");
  CHECK(nearest_word("d", {"tp", "dp"}) == "dp");
  CHECK(nearest_word("x", {"y"}).empty());
  CHECK(nearest_word("xy", {"dp"}).empty());
}

TEST_CASE("Swapped letters count as one mistake, and none is touched twice") {
  CHECK(nearest_word("pd", {"dx", "dp"}) == "dp");
  CHECK(nearest_word("ca", {"abc"}).empty());
}

TEST_CASE("Case does not matter") {
  CHECK(nearest_word("DP", {"tp", "dp"}) == "dp");
  CHECK(nearest_word("layernorm", {"LayerNorm"}) == "LayerNorm");
}

TEST_CASE("Of equally near words the first is taken") {
  CHECK(nearest_word("xp", {"tp", "cp", "dp"}) == "tp");
  CHECK(nearest_word("xp", {"dp", "cp", "tp"}) == "dp");
}

TEST_CASE("A third of the letters may be wrong, not more") {
  CHECK(nearest_word("abcxyz", {"abcdef"}).empty());
  CHECK(nearest_word("abcdxy", {"abcdef"}) == "abcdef");
}

TEST_CASE("The question is asked only where a word is near") {
  CHECK(did_you_mean("dq", {"dp"}) == "; did you mean \"dp\"?");
  CHECK(did_you_mean("layers", {"dp"}).empty());
}
