// SPDX-License-Identifier: Apache-2.0
#include "tests/symbolic/formula_world.h"

using namespace formula_test;

namespace {

std::string describe(const Schedule& all, const std::string& got, const std::string& expected, int rank = 0) {
  const Buffer buffer(all, rank);
  return describe_difference(all, buffer.parse(got), buffer.parse(expected));
}

}  // namespace

TEST_CASE("multiples of the right gradient") {
  const Schedule all = schedule_of(layout(1, 2, 1), {parameter("weight")});
  CHECK(describe(all, "g0+g1", "(g0+g1)/2") == "2 × the right gradient");
  CHECK(describe(all, "(g0+g1)/4", "(g0+g1)/2") == "half of the right gradient");
  CHECK(describe(all, "(g0+g1)/8", "(g0+g1)/2") == "1/4 of the right gradient");
  CHECK(describe(all, "3*(g0+g1)/4", "(g0+g1)/2") == "3/2 × the right gradient");
  CHECK(describe(all, "(g0+g1)/2", "(g0+g1)/2") == "");
  CHECK(describe(all, "0", "(g0+g1)/2") == "nothing arrived");
  CHECK(describe(all, "g0/2 + g1/3", "(g0+g1)/2") == "");
}

TEST_CASE("missing shares are told by the axis along which they lie") {
  Parameter norm = parameter("norm");
  norm.partial = {Axis::tp};
  const Schedule all = schedule_of(layout(2, 2, 1), {norm}, {2});
  CHECK(describe(all, "g0+g2", "g0+g1+g2+g3") == "the share of tp 1 is missing");
  CHECK(describe(all, "g0+g1", "g0+g1+g2+g3") == "the share of dp 1 is missing");
  CHECK(describe(all, "g0+g1+g2", "g0+g1+g2+g3") == "the share of rank 3 is missing");
  CHECK(describe(all, "g0", "g0+g1+g2+g3") == "the shares of ranks 1, 2 and 3 are missing");
  CHECK(describe(all, "(g0+g2)/2", "g0+g1+g2+g3") == "the share of tp 1 is missing, the other shares count 1/2 ×");
  CHECK(describe(all, "g0.1+g1.1+g2.1+g3.1", "g0+g1+g2+g3") == "micro-batch 0 is missing");
  // Parts of dp are named where there are two of them.
  Layout hybrid = layout(1, 4, 1);
  hybrid.dp_shard = 2;
  hybrid.dp_replicate = 2;
  const Schedule parts = schedule_of(hybrid, {parameter("weight")});
  CHECK(describe(parts, "g0+g2", "sum(g, dp)") == "the share of dp_shard 1 is missing");
  CHECK(describe(parts, "g0+g1", "sum(g, dp)") == "the share of dp_replicate 1 is missing");
  Layout replicated = layout(1, 2, 1);
  replicated.dp_shard = 1;
  replicated.dp_replicate = 2;
  CHECK(describe(schedule_of(replicated, {parameter("weight")}), "g0", "sum(g, dp)") == "the share of dp 1 is missing");
  const Schedule wide = schedule_of(layout(1, 16, 1), {parameter("weight")});
  CHECK(describe(wide, "g5", "sum(g, dp)") == "the shares of 15 of 16 dp ranks are missing");
}

TEST_CASE("missing uses and sites are named") {
  Parameter embedding = parameter("embedding"), head = parameter("head");
  embedding.tied = head.tied = "words";
  head.uses = {"main", "mtp"};
  const Schedule all = schedule_of(layout(1, 2, 1), {embedding, head});
  CHECK(describe(all, "g0[head]+g1[head]", "g0+g1") == "the share of embedding is missing");
  CHECK(describe(all, "g0.main+g1.main", "g0+g1") == "the use mtp of head is missing");
}

TEST_CASE("what is clipped otherwise is told after what else is wrong") {
  const Schedule all = schedule_of(layout(1, 2, 1), {parameter("weight")});
  CHECK(describe(all, "g0+g1", "clip(g0+g1)") == "not clipped");
  CHECK(describe(all, "clip(clip(g0+g1))", "clip(g0+g1)") == "clipped 2 times");
  CHECK(describe(all, "clip1(g0+g1)", "clip(g0+g1)") == "clipped by another norm");
  CHECK(describe(all, "clip0(g0)+clip1(g1)", "clip(g0+g1)") == "its shares are clipped by different factors");
  CHECK(describe(all, "(g0+g1)/2", "clip(g0+g1)") == "half of the right gradient, not clipped");
  CHECK(describe(all, "clip(g0)", "clip(g0+g1)") == "the share of dp 1 is missing");
  CHECK(describe(all, "clip(g0+g1)", "clip(g0+g1)") == "");
  CHECK(describe(all, "g0/2+g1/3", "clip(g0+g1)") == "");
  CHECK(describe(all, "0", "clip(g0+g1)") == "nothing arrived");
}
