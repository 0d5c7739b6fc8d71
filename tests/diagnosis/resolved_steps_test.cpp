// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/resolved_steps.h"

#include <map>

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Two ranks, two micro-batches, and two parameters of unequal sizes.
Scenario with_steps(const std::string& inside, const std::string& behind) {
  std::string text = scenario_text(
      R"({ "dp": 2, "tp": 1 })",
      R"([ { "name": "w", "shape": [8], "tags": ["big"], "uses": ["main", "aux"] }, { "name": "v", "shape": [4] } ])",
      R"([ { "name": "each", "op": "each", "steps": [ { "name": "add", "op": "backward" } )" + inside + " ] }" +
          behind + " ]");
  const std::string old = R"("micro_batches": 1, "tokens": "even")";
  return read_scenario(std::make_shared<const Source>(
      Source{"test.json", text.replace(text.find(old), old.size(), R"("micro_batches": 2, "steps": 2)")}));
}

/// Whether two lists of steps are taken for one, by an object that has seen others.
bool same(const std::string& one, const std::string& other, bool in_each = false) {
  const auto read = [&](const std::string& step) {
    const std::string named = R"(, { "name": "s", )" + step + " }";
    return in_each ? with_steps(named, "") : with_steps("", named);
  };
  const Scenario first = read(one), second = read(other);
  schedule::WalkMemory memory(*first.schedule);
  diagnosis::ResolvedSteps resolved(*first.schedule, memory);
  const std::uint64_t hash = resolved.hash(first.schedule->steps);
  const bool result = hash == resolved.hash(second.schedule->steps);
  CHECK(hash == resolved.hash(first.schedule->steps));
  return result;
}

const std::string scale = R"("op": "scale", )", sum = R"("op": "all_reduce", )";

}  // namespace

TEST_CASE("steps that say the same in other words at these sizes are one") {
  CHECK(same(scale + R"("by": "1 / dp")", scale + R"("by": "1/2")"));
  CHECK(same(scale + R"("by": "1 / dp")", scale + R"("by": "1 / micro_batches")"));
  CHECK(same(scale + R"("by": 1)", scale + R"("by": "tp")"));
  CHECK(same(scale + R"("by": 2)", scale + R"("by": 2, "when": "true")"));
  CHECK(same(scale + R"("by": 2, "params": ["w"])", scale + R"("by": 2, "params": ["tag:big"])"));
  CHECK(same(scale + R"("by": 2, "params": ["w", "v"])", scale + R"("by": 2)"));
  CHECK(same(scale + R"("by": 2, "when": "micro_batch == 1")",
             scale + R"("by": 2, "when": "micro_batch == micro_batches - 1")", true));
  CHECK(same(sum + R"("over": "dp")", sum + R"("over": ["dp", "tp"])"));
  CHECK(same(sum + R"("over": "dp")", sum + R"("over": "dp", "reduce": "sum", "buffer": "grad")"));
  // Names aside, and what is waited for is a place.
  CHECK(same(scale + R"("by": 2 }, { "name": "t", "op": "norm")", scale + R"("by": 2 }, { "name": "u", "op": "norm")"));
  const auto waits = [](const std::string& name) {
    return R"(, { "name": ")" + name +
           R"(", "op": "all_reduce", "over": "dp", "async": true }, { "op": "wait", "for": ")" + name + "\" }";
  };
  const Scenario a = with_steps("", waits("a")), b = with_steps("", waits("b"));
  schedule::WalkMemory memory(*a.schedule);
  diagnosis::ResolvedSteps resolved(*a.schedule, memory);
  CHECK(resolved.hash(a.schedule->steps) == resolved.hash(b.schedule->steps));
}

TEST_CASE("steps that a replay may tell apart are not one") {
  const std::string all = sum + R"("over": "dp")", cut = R"("op": "reduce_scatter", "over": "dp")";
  const std::string two = scale + R"("by": 2)";
  const std::vector<std::string> different = {
      two,
      scale + R"("by": "1/2")",
      scale + R"("by": "1 + rank.dp")",
      scale + R"("by": "1 + step")",
      two + R"(, "params": ["w"])",
      two + R"(, "params": ["v"])",
      two + R"(, "buffer": "other")",
      two + R"(, "on": "owned")",
      two + R"(, "only": { "dp": [0] })",
      two + R"(, "only": { "dp": [1] })",
      two + R"(, "when": "rank.dp == 0")",
      two + R"(, "when": "step == 0")",
      all,
      all + R"(, "reduce": "avg")",
      all + R"(, "async": true)",
      sum + R"("over": "tp")",
      R"("op": "broadcast", "over": "dp", "root": 0)",
      R"("op": "broadcast", "over": "dp", "root": 1)",
      R"("op": "reduce", "over": "dp", "root": 0)",
      cut,
      cut + R"(, "geometry": { "kind": "flat" })",
      cut + R"(, "geometry": { "kind": "bucket" })",
      cut + R"(, "geometry": { "kind": "bucket", "size": 8 })",
      cut + R"(, "geometry": { "kind": "bucket", "align_parameter": 2 })",
      cut + R"(, "geometry": { "kind": "bucket", "separate": ["w"] })",
      R"("op": "backward")",
      R"("op": "backward", "uses": ["aux"])",
      R"("op": "backward", "by": 2)",
      R"("op": "copy", "from": "grad", "to": "other")",
      R"("op": "accumulate", "from": "grad", "to": "other")",
      R"("op": "leftover", "what": "momentum")",
      R"("op": "leftover", "what": "state")",
      R"("op": "leftover", "what": "state", "per": "rank")",
      R"("op": "norm")",
      R"("op": "norm", "over": "dp")",
      R"("op": "norm", "over": "dp", "combine": "mean_of_norms")",
      R"("op": "norm", "count": "rank.dp == 0")",
      R"("op": "clip")",
      R"("op": "zero")",
  };
  std::vector<Scenario> scenarios;
  for (const std::string& step : different) {
    // A backward has its place in the loop.
    const std::string named = R"(, { "name": "s", )" + step + " }";
    scenarios.push_back(step.starts_with(R"("op": "backward")") ? with_steps(named, "") : with_steps("", named));
  }
  schedule::WalkMemory memory(*scenarios.front().schedule);
  diagnosis::ResolvedSteps resolved(*scenarios.front().schedule, memory);
  std::map<std::uint64_t, std::string> seen;
  for (std::size_t at = 0; at < scenarios.size(); ++at) {
    const auto [known, is_new] = seen.emplace(resolved.hash(scenarios[at].schedule->steps), different[at]);
    INFO(different[at] << " and " << known->second);
    CHECK(is_new);
  }
  // In the loop and behind it; in another order.
  const std::string scaled = R"(, { "name": "s", )" + two + " }", summed = R"(, { "name": "t", )" + all + " }";
  const auto hash_of = [&](const std::string& inside, const std::string& behind) {
    return resolved.hash(with_steps(inside, behind).schedule->steps);
  };
  CHECK(hash_of(scaled, "") != hash_of("", scaled));
  CHECK(hash_of("", scaled + summed) != hash_of("", summed + scaled));
}
