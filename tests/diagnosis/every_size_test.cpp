// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comparison.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

EverySize at_every_size(const std::string& before, const std::string& after) {
  const auto read = [](const std::string& text) {
    return read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
  };
  return compare_every_size(read(before), read(after));
}

std::string scaled_sum(const std::string& by) {
  return two_ranks(R"({ "name": "sum", "op": "all_reduce", "over": "dp" }, { "name": "s", "op": "scale", "by": ")" +
                   by + "\" }");
}

}  // namespace

TEST_CASE("where two schedules differ at some size the smallest is shown, with what is got there") {
  const EverySize found = at_every_size(two_ranks(mean_step), scaled_sum("1/2"));
  CHECK(found.proof.verdict == SameProof::Verdict::other);
  REQUIRE(found.smallest);
  CHECK(found.smallest->axes.at(Axis::dp) == 1);
  CHECK(found.difference.parameter == "weight");
  CHECK(found.difference.before == "g0");
  CHECK(found.difference.after == "g0/2");
  REQUIRE(found.difference.where.size() == 1);
  CHECK(found.difference.where.front().elements == Interval{0, 8});
  const EverySize third = at_every_size(two_ranks(mean_step), scaled_sum("1 / min(dp, 2)"));
  REQUIRE(third.smallest);
  CHECK(third.smallest->axes.at(Axis::dp) == 3);
  CHECK(third.difference.after == "(g0+g1+g2)/2");
}

TEST_CASE("what is the same at every size has no smallest one") {
  const EverySize found = at_every_size(two_ranks(mean_step), scaled_sum("1 / dp"));
  CHECK(found.proof.verdict == SameProof::Verdict::same);
  CHECK_FALSE(found.smallest);
}
