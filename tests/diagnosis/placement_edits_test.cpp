// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/candidates.h"
#include "src/diagnosis/mutation.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

const char* const sequence_parallel = R"x({
  "lockstep": 1, "layout": { "tp": 2 }, "batch": { "micro_batches": 1 },
  "model": { "parameters": [
    { "name": "norm", "shape": [4], "tags": ["norm"], "partial": ["tp"] },
    { "name": "bias", "shape": [4] },
    { "name": "linear", "shape": [4, 4], "shard": { "tp": 0 } } ] },
  "schedule": { "steps": [ { "name": "zero", "op": "zero" },
    { "name": "micro_batches", "op": "each", "steps": [
      { "name": "backward", "op": "backward", "by": "1/sum(tokens, micro_batch)" } ] },
    { "name": "norms", "op": "all_reduce", "over": "tp", "params": ["tag:norm"] } ] } })x";

diagnosis::Mutation mutation_of(const std::string& text) {
  return diagnosis::mutate(
      std::make_shared<const Scenario>(read_scenario(std::make_shared<const Source>(Source{"test.json", text}))));
}

}  // namespace

TEST_CASE("a parameter's flags and placement are mutated, and what that does is seen") {
  std::vector<std::string> killed;
  for (const diagnosis::Mutant& mutant : mutation_of(sequence_parallel).mutants) {
    if (mutant.kind != name_of(diagnosis::Candidate::Kind::placement)) continue;
    CHECK(mutant.fate == diagnosis::Mutant::Fate::killed);
    const char* key = mutant.edit.find("tags") != nullptr ? "tags" : "partial";
    killed.push_back(mutant.edit.find("parameter")->text() + " " + key + " " +
                     (mutant.edit.find(key)->is_null() ? "none" : mutant.edit.find(key)->items().front().text()));
  }
  // The norm's shares stay apart or are said to be whole; what every rank has whole is summed, or said to be a share;
  // so is what the ranks share out. Without its tag the norm's step has no parameter at all, and the file is refused.
  CHECK(killed ==
        std::vector<std::string>{"norm partial none", "bias tags norm", "bias partial tp", "linear tags norm"});
}

TEST_CASE("a frozen parameter has no flags that matter, and a tag that no step names is none") {
  std::string text = sequence_parallel;
  text.replace(text.find(R"("name": "bias")"), 14, R"("name": "bias", "frozen": true)");
  text.replace(text.find(R"("shard": {)"), 10, R"("tags": ["unused"], "shard": {)");
  for (const diagnosis::Mutant& mutant : mutation_of(text).mutants) {
    if (mutant.kind != name_of(diagnosis::Candidate::Kind::placement)) continue;
    CHECK(mutant.edit.find("parameter")->text() != "bias");
    const Json* tags = mutant.edit.find("tags");
    if (tags != nullptr && mutant.edit.find("parameter")->text() == "linear") CHECK(tags->items().size() == 2);
  }
}
