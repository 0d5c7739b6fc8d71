// SPDX-License-Identifier: Apache-2.0
#include "src/base/counted.h"

#include "tests/catch.h"

using lockstep::counted;
using lockstep::listed_words;

TEST_CASE("A noun is counted in its number") {
  CHECK(counted(1, "element") == "1 element");
  CHECK(counted(0, "more case") == "0 more cases");
  CHECK(counted(2, "micro-batch") == "2 micro-batches");
  CHECK(counted(3, "process") == "3 processes");
  CHECK(counted(2, "axis") == "2 axes");
  CHECK(counted(2, "entry") == "2 entries");
  CHECK(counted(2, "way") == "2 ways");
}

TEST_CASE("a list of words is told with commas and an and") {
  CHECK(listed_words({}).empty());
  CHECK(listed_words({"a"}) == "a");
  CHECK(listed_words({"a", "b"}) == "a and b");
  CHECK(listed_words({"a", "b", "c"}) == "a, b and c");
}
