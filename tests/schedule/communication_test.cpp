// SPDX-License-Identifier: Apache-2.0
#include "lockstep/communication.h"

#include "tests/catch.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Communication of(const Schedule& schedule, int optimizer_step = 0) {
  return communication(schedule, walk(schedule), optimizer_step);
}

}  // namespace

TEST_CASE("a ring sends 2·(n − 1) times the buffer for an all-reduce, and n − 1 times for the others") {
  // 6 elements of float32 are 24 bytes; three ranks.
  CHECK(of(schedule_of(dp(3), {parameter("w", {6})}, {backwards(), collective(Op::all_reduce, "sync", Axis::dp)}))
            .bytes == 2 * 2 * 24);
  for (const Op op : {Op::reduce_scatter, Op::all_gather, Op::reduce, Op::broadcast}) {
    Step step = collective(op, "sync", Axis::dp);
    if (op == Op::reduce || op == Op::broadcast) step.root = Root{0, {}};
    const Schedule s = schedule_of(dp(3), {parameter("w", {6})}, {backwards(), step});
    const Communication found = of(s);
    CHECK(found.bytes == 2 * 24);
    CHECK(found.calls == 1);
    // In slices each rank sends two of three; along a chain all but one send everything.
    CHECK(found.most_bytes_of_a_rank == (op == Op::reduce || op == Op::broadcast ? 24 : 2 * 24 / 3));
    REQUIRE(found.steps.size() == 1);
    CHECK(found.steps.front().largest_group == 3);
  }
}

TEST_CASE(
    "the rank that sends most is the one with the smallest slice, or the one in front of it where slices are "
    "gathered") {
  Step scatter = collective(Op::reduce_scatter_v, "scatter", Axis::dp),
       gather = collective(Op::all_gather, "g", Axis::dp);
  scatter.geometry.own().kind = gather.geometry.own().kind = Geometry::Kind::counts;
  scatter.geometry.own().counts = gather.geometry.own().counts = {5, 0, 1};
  const auto most = [](const Step& step) {
    const Communication found = of(schedule_of(dp(3), {parameter("w", {6})}, {backwards(), step}));
    CHECK(found.bytes == 2 * 24);
    return found.most_bytes_of_a_rank;
  };
  CHECK(most(scatter) == 24);
  CHECK(most(gather) == 24);
  // Those with slices of 5, 0 and 1 of 6 elements send 1, 6 and 5 of them to scatter, and 6, 5 and 1 to gather.
  CHECK(of(schedule_of(dp(3), {parameter("w", {6})}, {backwards(), scatter, gather})).most_bytes_of_a_rank == 11 * 4);
}

TEST_CASE("what moves no data, and a collective of one rank, is no communication") {
  const Step norm = collective(Op::norm, "norm", Axis::dp), wait = collective(Op::all_to_all, "meet", Axis::dp);
  CHECK(of(schedule_of(dp(2), {parameter("w", {6})}, {backwards(), norm, wait})).steps.empty());
  CHECK(of(schedule_of(dp(1), {parameter("w", {6})}, {backwards(), collective(Op::all_reduce, "sync", Axis::dp)}))
            .calls == 0);
}

TEST_CASE("collectives inside each count in every micro-batch, and those of other optimizer steps do not") {
  Step each = step(Op::each, "micro_batches");
  each.steps = {step(Op::backward, "backward"), collective(Op::all_reduce, "sync", Axis::dp)};
  const Schedule s = schedule_of(dp(2), {parameter("w", {6})}, {each}, 3, 2);
  for (const int optimizer_step : {0, 1}) {
    CHECK(of(s, optimizer_step).calls == 3);
    CHECK(of(s, optimizer_step).bytes == 3 * 2 * 24);
  }
  CHECK(of(s, 2).steps.empty());
}

TEST_CASE("bytes are those of the dtype and of what the step selects") {
  Parameter half = parameter("half", {6}), skipped = parameter("skipped", {1000});
  half.dtype = Dtype::bfloat16;
  Step sync = collective(Op::all_reduce, "sync", Axis::dp);
  sync.params = Selectors({"half"});
  CHECK(of(schedule_of(dp(2), {half, skipped}, {backwards(), sync})).bytes == 2 * 12);
}
