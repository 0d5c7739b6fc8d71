// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/oracle.h"

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;
using diagnosis::OracleAnswer;

namespace {

Scenario scenario_of(const std::string& text) {
  return read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
}

OracleAnswer answer(const std::string& steps, const std::vector<Edit>& edits = {}) {
  const Scenario scenario = scenario_of(two_ranks(steps));
  diagnosis::SymbolicOracle oracle(*scenario.schedule, scenario.schedule->model.parameters());
  return oracle.answer(edits);
}

std::string scaled_by(const std::string& by, const std::string& more = "") {
  return mean_step + R"(, { "name": "s", "op": "scale", "by": ")" + by + "\"" + more + " }";
}

}  // namespace

TEST_CASE("a multiple of what is right is nearer than anything else that is wrong, a norm than what nobody owns") {
  using State = OracleAnswer::State;
  CHECK(answer(mean_step).right());
  CHECK(answer(mean_step).count == 0);
  const auto is = [](const OracleAnswer& found, int count, int distance) {
    CHECK(found.state == State::wrong);
    CHECK(found.count == count);
    CHECK(found.distance == distance);
    CHECK(found.wrong_buffers == std::vector<int>{count});
  };
  is(answer(scaled_by("2")), 2, 2);
  is(answer(scaled_by("2", R"(, "only": { "dp": [0] })")), 1, 1);
  is(answer(R"({ "name": "half", "op": "scale", "by": "1/2" })"), 2, 4);
  // One half of each is right, or right but for a factor.
  const std::string own = R"(, { "name": "own", "op": "own", "over": "dp" })",
                    all = R"(, { "name": "g", "op": "all_gather", "over": "dp" })";
  is(answer(mean_step + own + R"(, { "name": "s", "op": "scale", "by": 2, "on": "owned", "only": { "dp": [0] } })" +
            all),
     2, 2);
  is(answer(mean_step + R"(, { "name": "n", "op": "norm", "over": "dp" })"), 2, 2);
  // Right, but clipped by another norm.
  const std::string clip = R"(, { "name": "n", "op": "norm", "over": "dp" }, { "name": "c", "op": "clip" })";
  is(answer(mean_step + clip), 4, 4);
  CHECK(answer(mean_step + clip).wrong_clips == std::vector<int>{2});
  is(answer(scaled_by("2") + clip), 4, 6);
  CHECK(answer(scaled_by("2") + clip).wrong_clips == std::vector<int>{0});
  // The middle is nobody's.
  is(answer(
         mean_step +
         R"(, { "name": "first", "op": "own", "over": "dp", "geometry": { "kind": "counts", "counts": [2, 6] }, "when": "rank.dp == 0" },
                { "name": "last", "op": "own", "over": "dp", "geometry": { "kind": "counts", "counts": [6, 2] }, "when": "rank.dp == 1" })"),
     2, 4);
  CHECK(answer(R"({ "name": "mean", "op": "all_reduce", "over": "dp", "when": "rank.dp == 0" })").state ==
        State::failed);
  CHECK(answer(R"({ "name": "s", "op": "scale", "by": "1 / rank.dp" })").state == State::not_applicable);
  CHECK(answer(mean_step, {Edit::drop("nothing")}).state == State::not_applicable);
  CHECK(answer(mean_step, {Edit::drop("mean")}).state == State::wrong);
}

TEST_CASE("what is sent and who owns what in the end is told of each schedule") {
  const OracleAnswer mean = answer(mean_step), twice = answer(mean_step, {Edit::duplicate("mean")});
  CHECK(mean.sent_bytes > 0);
  CHECK(twice.sent_bytes == 2 * mean.sent_bytes);
  CHECK(twice.owners == mean.owners);
  CHECK(answer(mean_step + R"(, { "name": "own", "op": "own", "over": "dp" })").owners != mean.owners);
}
