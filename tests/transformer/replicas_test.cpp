// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/replicas.h"

#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::transformer;

TEST_CASE("owners agree as far as the larger of their bounds allows") {
  LocalBuffer buffer;
  buffer.numel = 2;
  const auto agree = [&](double first_bound, double second_bound) {
    Replicas replicas(1);
    replicas.add(buffer, 1, 3, first_bound, true);
    CHECK(replicas.agree().at(0));
    replicas.add(buffer, 1, 3.5, second_bound, true);
    CHECK_FALSE(replicas.replicated().at(0));
    return replicas.agree().at(0);
  };
  CHECK(agree(0.1, 1));
  CHECK(agree(1, 0.1));
  CHECK_FALSE(agree(0.1, 0.1));
}
