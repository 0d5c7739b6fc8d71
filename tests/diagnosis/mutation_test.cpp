// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/mutation.h"

#include <algorithm>
#include <set>
#include <string>

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

const std::vector<std::string> both = {"symbolic", "parametric"};

diagnosis::Mutation mutate_text(const std::string& text) {
  return diagnosis::mutate(
      std::make_shared<const Scenario>(read_scenario(std::make_shared<const Source>(Source{"test.json", text}))));
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
  CHECK(mutation.small == mutation.scenario);
  const diagnosis::Mutant& dropped = find(mutation, R"({ "drop": "mean" })");
  CHECK((dropped.fate == diagnosis::Mutant::Fate::killed && dropped.engines == both));
  CHECK(dropped.verdict == Verdict::mismatch);
  const diagnosis::Mutant& sum = find(mutation, R"({ "set": "mean", "reduce": "sum" })");
  CHECK((sum.fate == diagnosis::Mutant::Fate::killed && sum.engines == both));
  CHECK(find(mutation, R"({ "duplicate": "mean" })").fate ==
        diagnosis::Mutant::Fate::equivalent);  // the mean of equal values
  CHECK(std::none_of(mutation.mutants.begin(), mutation.mutants.end(),
                     [](const diagnosis::Mutant& mutant) { return mutant.fate == diagnosis::Mutant::Fate::unproved; }));
}

TEST_CASE("what stops is killed by the symbolic engine, whatever the parametric engine cannot follow") {
  const diagnosis::Mutation mutation = mutate_text(two_ranks(mean_step));
  const diagnosis::Mutant& stuck = find(mutation, R"({ "set": "mean", "only": { "dp": [0] } })");
  CHECK((stuck.fate == diagnosis::Mutant::Fate::killed && stuck.engines.front() == "symbolic" &&
         stuck.verdict == Verdict::deadlock));
  const diagnosis::Mutant& race = find(mutation, R"({ "set": "mean", "async": true })");
  CHECK((race.engines == both && race.verdict == Verdict::race));
}

TEST_CASE("what is right at the file's layout alone is killed at the smallest sizes at which it is wrong") {
  // One rank: a sum over one is its mean.
  const diagnosis::Mutation mutation = mutate_text(scenario_text(
      R"({ "dp": 1 })", R"([ { "name": "weight", "shape": [8] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
          mean_step + " ]"));
  const diagnosis::Mutant& sum = find(mutation, R"({ "set": "mean", "reduce": "sum" })");
  CHECK((sum.fate == diagnosis::Mutant::Fate::killed && sum.engines == std::vector<std::string>{"parametric"}));
  CHECK(sum.sizes.find("dp 2") != std::string::npos);
  CHECK(sum.document.find("layout")->find("dp")->text() == "2");
}

TEST_CASE("engines that disagree about a mutant end the search, with the edit and with what each says") {
  using Found = ParametricResult::Verdict;
  const auto said = [](const std::string& text, const diagnosis::MutationEngines& engines) -> std::string {
    try {
      diagnosis::mutate(
          std::make_shared<const Scenario>(read_scenario(std::make_shared<const Source>(Source{"test.json", text}))),
          engines);
    } catch (const InternalError& error) {
      return error.what();
    }
    return "";
  };
  const auto always = [](Found verdict) {
    return [verdict](const Schedule&) {
      ParametricResult result;
      result.verdict = verdict;
      return result;
    };
  };
  const std::string two = two_ranks(mean_step);
  CHECK(said(two, {}).empty());
  diagnosis::MutationEngines blind;
  blind.symbolic = [](const Schedule&) { return Verdict::match; };
  const std::string missed = said(two, blind);
  CHECK(missed.find("test.json with the edit {") == 0);
  CHECK(missed.find("the parametric engine says mismatch, the symbolic engine match") != std::string::npos);
  for (const auto& [found, name] :
       {std::pair(Found::match, "match"), {Found::mismatch, "mismatch"}, {Found::race, "race"}}) {
    diagnosis::MutationEngines wrong;
    wrong.parametric = always(found);
    INFO(name);
    CHECK(said(two, wrong).find(std::string("the parametric engine says ") + name + ", the symbolic engine ") !=
          std::string::npos);
  }
  // Where it has no answer at these sizes, its proofs are held against replays all the same.
  diagnosis::MutationEngines only_here;
  only_here.parametric = always(Found::undecided);
  CHECK(said(two, only_here).empty());
  only_here.symbolic = [](const Schedule& schedule) {
    return schedule.mesh.size(Axis::dp) == 2 ? diagnosis::replayed_verdict(schedule) : Verdict::deadlock;
  };
  const std::string elsewhere = said(two, only_here);
  INFO(elsewhere);
  CHECK(elsewhere.find("the parametric engine proves it right for every size, and at dp 1 it is deadlock") !=
        std::string::npos);
  blind.parametric = always(Found::undecided);
  CHECK(
      said(
          scenario_text(
              R"({ "dp": 1 })", R"([ { "name": "weight", "shape": [8] } ])",
              R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
                  mean_step + " ]"),
          blind)
          .find("the parametric engine proves it wrong at ") != std::string::npos);
}

TEST_CASE("a large layout is made small, and edits that say the same are one mutant") {
  const std::string large = scenario_text(R"({ "dp": 32 })", R"([ { "name": "weight", "shape": [8] } ])",
                                          R"([ { "name": "micro_batches", "op": "each", "steps": [
                                            { "name": "backward", "op": "backward" } ] },
                                          { "name": "a", "op": "all_reduce", "over": "dp", "reduce": "avg" },
                                          { "name": "b", "op": "scale", "by": "1" } ])");
  const diagnosis::Mutation mutation = mutate_text(large);
  CHECK(mutation.small->layout.dp == 2);
  CHECK(mutation.same > 0);
  find(mutation, R"({ "move": "a", "after": "b" })");
  const auto same = std::find_if(mutation.mutants.begin(), mutation.mutants.end(), [](const diagnosis::Mutant& mutant) {
    return mutant.kind == "moved" && mutant.step == "b" && mutant.edit.find("after") != nullptr &&
           mutant.edit.find("after")->text() == "micro_batches";
  });
  CHECK(same == mutation.mutants.end());
}

TEST_CASE("what is wrong with one parameter of a class is killed with all of them as well") {
  const diagnosis::Mutation mutation = mutate_text(scenario_text(
      R"({ "dp": 2 })", R"([ { "name": "layers.0.w", "shape": [8] }, { "name": "layers.1.w", "shape": [8] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
          mean_step + R"(, { "name": "again", "op": "all_reduce", "over": "dp", "reduce": "avg" } ])"));
  for (const char* edit : {R"({ "set": "mean", "reduce": "sum" })", R"({ "set": "again", "reduce": "sum" })"}) {
    const diagnosis::Mutant& sum = find(mutation, edit);
    CHECK((sum.fate == diagnosis::Mutant::Fate::killed && sum.engines.front() == "symbolic" &&
           sum.verdict == Verdict::mismatch));
  }
  CHECK(find(mutation, R"({ "drop": "again" })").fate == diagnosis::Mutant::Fate::equivalent);
  CHECK(find(mutation, R"({ "drop": "mean" })").fate == diagnosis::Mutant::Fate::equivalent);
  CHECK(mutation.untried == 0);
  CHECK(mutation.cut_off.empty());
}

TEST_CASE("selectors that choose nothing make no mutant, and every edit is counted once") {
  const diagnosis::Mutation mutation = mutate_text(scenario_text(
      R"({ "dp": 2, "tp": 2 })",
      R"([ { "name": "w", "shape": [8], "partial": ["tp"], "tags": ["t"] }, { "name": "v", "shape": [4], "shard": { "tp": 0 } } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "shares", "op": "all_reduce", "over": "tp", "params": ["tag:t"] }, )" +
          mean_step + " ]"));
  CHECK(mutation.invalid > 0);
  CHECK(mutation.untried == 0);
  std::set<std::string> edits;
  for (const diagnosis::Mutant& mutant : mutation.mutants) {
    CHECK(edits.insert(one_line(mutant.edit)).second);
    const Json* params = mutant.step == "shares" ? mutant.edit.find("params") : nullptr;
    if (params != nullptr && params->is_array()) CHECK(one_line(*params) != R"(["tag:t", "!tag:t"])");
  }
}

TEST_CASE("a layout is made as small as the schedule stays right") {
  const auto smallest = [](const std::string& by) {
    return mutate_text(scenario_text(R"({ "dp": 17 })", R"([ { "name": "w", "shape": [8] } ])",
                                     R"([ { "name": "m", "op": "each", "steps": [ { "name": "b", "op": "backward" } ] },
                     { "name": "sum", "op": "all_reduce", "over": "dp" }, { "name": "s", "op": "scale", "by": ")" +
                                         by + "\" } ]"))
        .small->layout.dp;
  };
  CHECK(smallest("1 / dp") == 2);
  CHECK(smallest("1 / max(dp, 3)") == 3);
  CHECK(smallest("1/17") == 17);
}

TEST_CASE("an edit that leaves a step with nothing but frozen parameters is none") {
  const diagnosis::Mutation mutation = mutate_text(scenario_text(
      R"({ "dp": 2 })",
      R"([ { "name": "w", "shape": [8] }, { "name": "cold", "shape": [8], "frozen": true, "tags": ["f"] } ])",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
          mean_step + " ]"));
  CHECK(mutation.mutants.size() > 10);
  for (const diagnosis::Mutant& mutant : mutation.mutants)
    CHECK(one_line(mutant.edit) != R"({ "set": "mean", "params": ["tag:f"] })");
}
