// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/mutation.h"

#include <algorithm>

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

diagnosis::Mutation mutate_text(const std::string& text) {
  return diagnosis::mutate(
      std::make_shared<const Scenario>(read_scenario(std::make_shared<const Source>(Source{"test.json", text}))), {});
}

/// The mutant of one edit; fails where there is none.
const diagnosis::Mutant& find(const diagnosis::Mutation& mutation, const std::string& edit) {
  Diagnostics diagnostics;
  const Json wanted = parse_json(std::make_shared<const Source>(Source{"edit", edit}), diagnostics);
  const auto found = std::find_if(mutation.mutants.begin(), mutation.mutants.end(),
                                  [&](const diagnosis::Mutant& mutant) { return mutant.edit.same_as(wanted); });
  INFO(edit);
  REQUIRE(found != mutation.mutants.end());
  return *found;
}

}  // namespace

TEST_CASE("a mutant is killed by both engines, or proved equivalent for every size") {
  const diagnosis::Mutation mutation = mutate_text(two_ranks(mean_step));
  CHECK(mutation.base == "right for every dp, with the number of micro-batches of the file");  // a sum of means
  CHECK(mutation.sizes == "dp 2, 1 micro-batch");
  const diagnosis::Mutant& dropped = find(mutation, R"({ "drop": "mean" })");
  CHECK((dropped.fate == diagnosis::Mutant::Fate::killed && dropped.symbolic && dropped.parametric));
  CHECK((dropped.verdict == Verdict::mismatch && dropped.replicas_differ && dropped.beyond_tolerance));
  const diagnosis::Mutant& sum = find(mutation, R"({ "set": "mean", "reduce": "sum" })");
  CHECK((sum.fate == diagnosis::Mutant::Fate::killed && sum.symbolic && sum.parametric));
  CHECK(!sum.replicas_differ);  // both ranks hold twice the gradient
  CHECK(sum.beyond_tolerance);
  CHECK(find(mutation, R"({ "duplicate": "mean" })").fate ==
        diagnosis::Mutant::Fate::equivalent);  // the mean of equal values
  const diagnosis::MutantCounts counts = diagnosis::counts_of(mutation.mutants);
  CHECK(counts.mutants == counts.killed + counts.equivalent + counts.unproved);
  CHECK(counts.unproved == 0);
}

TEST_CASE("what stops is killed by the symbolic engine, whatever the parametric engine cannot follow") {
  const diagnosis::Mutation mutation = mutate_text(two_ranks(mean_step));
  const diagnosis::Mutant& stuck = find(mutation, R"({ "set": "mean", "only": { "dp": [0] } })");
  CHECK((stuck.fate == diagnosis::Mutant::Fate::killed && stuck.symbolic && stuck.verdict == Verdict::deadlock));
  const diagnosis::Mutant& race = find(mutation, R"({ "set": "mean", "async": true })");
  CHECK((race.symbolic && race.parametric && race.verdict == Verdict::race));
}

TEST_CASE("what is right at the file's layout alone is killed at the smallest sizes at which it is wrong") {
  // One rank: a sum over one is its mean.
  const diagnosis::Mutation mutation = mutate_text(scenario_text(
      R"({ "dp": 1 })", R"([ { "name": "weight", "shape": [8] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
          mean_step + " ]"));
  const diagnosis::Mutant& sum = find(mutation, R"({ "set": "mean", "reduce": "sum" })");
  CHECK((sum.fate == diagnosis::Mutant::Fate::killed && !sum.symbolic && sum.parametric));
  CHECK(sum.sizes.find("dp 2") != std::string::npos);
  CHECK(sum.beyond_tolerance);
  CHECK(sum.document.find("layout")->find("dp")->text() == "2");
}

TEST_CASE("a large layout is made small, and edits that say the same are one mutant") {
  const std::string large = scenario_text(R"({ "dp": 8 })", R"([ { "name": "weight", "shape": [8] } ])",
                                          R"([ { "name": "micro_batches", "op": "each", "steps": [
                                            { "name": "backward", "op": "backward" } ] },
                                          { "name": "a", "op": "all_reduce", "over": "dp", "reduce": "avg" },
                                          { "name": "b", "op": "scale", "by": "1" } ])");
  const diagnosis::Mutation mutation = mutate_text(large);
  CHECK(mutation.sizes == "dp 2, 1 micro-batch");
  CHECK(mutation.same > 0);
  find(mutation, R"({ "move": "a", "after": "b" })");
  const auto same = std::find_if(mutation.mutants.begin(), mutation.mutants.end(), [](const diagnosis::Mutant& mutant) {
    return mutant.kind == "moved" && mutant.step == "b" && mutant.edit.find("after") != nullptr &&
           mutant.edit.find("after")->text() == "micro_batches";
  });
  CHECK(same == mutation.mutants.end());
}
