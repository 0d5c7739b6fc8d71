// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/candidate_values.h"

#include <algorithm>

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;
using diagnosis::CandidateValues;

namespace {

using Words = std::vector<std::string>;

Scenario file_of(const std::string& layout, const std::string& parameters, const std::string& steps = "",
                 const std::string& batch = R"({ "micro_batches": 1, "tokens": "even" })") {
  std::string text = scenario_text(
      layout, "[" + parameters + "]",
      R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] })" + steps +
          " ]");
  const std::string old = R"("batch": { "micro_batches": 1, "tokens": "even" })";
  text.replace(text.find(old), old.size(), "\"batch\": " + batch);
  return read_scenario(std::make_shared<const Source>(Source{"test.json", text}));
}

Words words_in(const std::vector<diagnosis::Product>& products) {
  Words list;
  for (const diagnosis::Product& product : products) list.push_back(product.to_string());
  return list;
}

/// "dp", "dp cp", "pp ends".
Words words_in(const std::vector<Over>& groups) {
  Words list;
  for (const Over& over : groups) {
    std::string text;
    for (const Over::Pick& pick : over.picks) {
      text += (text.empty() ? "" : " ") + std::string(name_of(pick.axis));
      if (pick.coordinates) {
        for (const int coordinate : *pick.coordinates) text += " " + std::to_string(coordinate);
      }
    }
    list.push_back(text);
  }
  return list;
}

Words words_in(const std::vector<Selectors>& selections) {
  Words list;
  for (const Selectors& selection : selections) {
    std::string text;
    for (const std::string& item : selection.items()) text += (text.empty() ? "" : " ") + item;
    list.push_back(text);
  }
  return list;
}

const std::string one = R"({ "name": "w", "shape": [16] })";

CandidateValues values_of(const Scenario& scenario, const std::set<std::string>& wrong = {}) {
  return diagnosis::candidate_values(*scenario.schedule, {wrong});
}

}  // namespace

TEST_CASE("axes of several ranks can be named, each as one set of groups with others") {
  const CandidateValues values = values_of(file_of(R"({ "dp": 2, "cp": 2, "tp": 1 })", one));
  CHECK(values.dense_axes == Words{"cp", "dp"});
  CHECK(values.expert_axes.empty());
  CHECK(words_in(values.groups) == Words{"cp", "dp", "cp dp"});
  const CandidateValues split = values_of(file_of(R"({ "dp_shard": 2, "dp_replicate": 3 })", one));
  CHECK(split.dense_axes == Words{"dp", "dp_shard", "dp_replicate"});
  CHECK(words_in(split.groups) == Words{"dp", "dp_shard", "dp_replicate"});
  CHECK(words_in(values_of(file_of(R"({ "dp_shard": 2 })", one)).groups) == Words{"dp"});
}

TEST_CASE("experts have groups of their own where their mesh differs") {
  const CandidateValues values = values_of(file_of(R"({ "dp": 4, "ep": 2 })", one));
  CHECK(values.dense_axes == Words{"dp"});
  CHECK(values.expert_axes == Words{"ep", "edp"});
  CHECK(words_in(values.groups) == Words{"dp", "ep", "edp"});
  CHECK(words_in(values.expert_groups) == Words{"ep edp", "ep", "edp"});
}

TEST_CASE("the ends of a pipeline are a group, and so are stages that share a parameter or that a step picks") {
  CHECK(words_in(values_of(file_of(R"({ "pp": 4, "dp": 2 })", one)).groups) ==
        Words{"dp", "pp", "dp pp", "pp 0 3", "pp 0 3 dp"});
  CHECK(words_in(values_of(file_of(R"({ "pp": 4 })",
                                   R"({ "name": "a", "shape": [4], "stage": 1, "tied": "t" },
                                      { "name": "b", "shape": [4], "stage": 2, "tied": "t" })"))
                     .groups) == Words{"pp", "pp 0 3", "pp 1 2"});
  CHECK(words_in(
            values_of(
                file_of(R"({ "pp": 4 })", one,
                        R"(, { "name": "s", "op": "all_reduce", "over": { "pp": [0, 2] }, "only": { "pp": [0, 2] } })"))
                .groups) == Words{"pp", "pp 0 3", "pp 0 2"});
  // Of two stages the ends are all of them.
  CHECK(words_in(values_of(file_of(R"({ "pp": 2 })", one)).groups) == Words{"pp", "pp 0 1"});
}

TEST_CASE("sizes are single ones, products of up to three, and quotients") {
  const CandidateValues values =
      values_of(file_of(R"({ "dp": 2, "cp": 2 })", one, "", R"({ "micro_batches": 2, "tokens": "even" })"));
  CHECK(words_in(values.axis_sizes) == Words{"cp", "dp", "micro_batches", "dp * cp"});
  CHECK(words_in(values.sizes) == Words{"cp", "dp", "micro_batches", "cp * dp", "cp * micro_batches",
                                        "dp * micro_batches", "cp * dp * micro_batches", "cp / dp",
                                        "cp / micro_batches", "dp / cp", "dp / micro_batches", "micro_batches / cp",
                                        "micro_batches / dp"});
  CHECK(words_in(values_of(file_of(R"({ "dp": 2 })", one)).sizes) == Words{"dp"});
  const Words four = words_in(values_of(file_of(R"({ "dp": 2, "cp": 2, "tp": 2, "pp": 2 })", one)).sizes);
  CHECK(std::find(four.begin(), four.end(), "tp * cp * dp") != four.end());
  CHECK(std::find(four.begin(), four.end(), "tp * cp * dp * pp") == four.end());
  // dp is dp_shard times dp_replicate.
  const Words split = words_in(values_of(file_of(R"({ "dp_shard": 2, "dp_replicate": 3 })", one)).sizes);
  CHECK(std::find(split.begin(), split.end(), "dp_shard * dp_replicate") != split.end());
  CHECK(std::find(split.begin(), split.end(), "dp * dp_shard") == split.end());
}

TEST_CASE("tokens are those of a rank, and sums over the data axes and over all micro-batches") {
  const CandidateValues values = values_of(file_of(R"({ "dp": 2, "cp": 2, "tp": 2 })", one));
  CHECK(words_in(values.token_counts) == Words{"tokens", "sum(tokens, cp)", "sum(tokens, dp)", "sum(tokens, cp, dp)"});
  CHECK(words_in(values.token_totals) == Words{"sum(tokens, micro_batch)", "sum(tokens, cp, micro_batch)",
                                               "sum(tokens, dp, micro_batch)", "sum(tokens, cp, dp, micro_batch)"});
  CHECK(values.loss_weights.empty());
}

TEST_CASE(
    "buffers and selectors are those that steps name, tags and ties of parameters, and what describes the wrong") {
  const Scenario scenario = file_of(
      R"({ "dp": 2, "tp": 2 })",
      R"({ "name": "l.0.w", "shape": [4], "shard": { "tp": 0 } }, { "name": "l.1.w", "shape": [4], "shard": { "tp": 0 } },
         { "name": "norm", "shape": [4], "tags": ["n"] }, { "name": "cold", "shape": [4], "frozen": true, "tags": ["f"] })",
      R"(, { "name": "copy", "op": "copy", "from": "grad", "to": "main" },
          { "name": "s", "op": "scale", "by": 1, "params": ["!l.0.w", "numel<8"] })");
  const CandidateValues values = values_of(scenario);
  CHECK(values.buffers == Words{"grad", "main"});
  CHECK(values.selectors == Words{"l.0.w", "tag:f", "tag:n"});
  CHECK(words_in(values.selections) == Words{"l.0.w", "tag:f", "tag:n", "*"});
  // Wrong ones are said by a tag, a glob or a name, and others are of no interest.
  CHECK(words_in(values_of(scenario, {"norm"}).selections) == Words{"tag:n"});
  CHECK(words_in(values_of(scenario, {"l.0.w", "l.1.w"}).selections) == Words{"shard:tp", "l.0.w"});
  CHECK(values_of(scenario, {"l.0.w", "l.1.w"}).selectors.front() == "shard:tp");
  CHECK(words_in(values_of(scenario, {"l.0.w", "norm"}).selections) == Words{"l.0.w norm", "l.0.w", "tag:n"});
  CHECK(values_of(scenario, {"l.1.w", "norm"}).selectors == values.selectors);  // one item alone is a word
  CHECK(words_in(values_of(scenario, {"l.0.w", "l.1.w", "norm"}).selections).front() == "*");
}

TEST_CASE("parameters are described by a tie or a tag, by a glob, by what they are not, or by their names") {
  const Scenario scenario = file_of(
      R"({ "dp": 2, "tp": 2 })",
      R"({ "name": "l.0.w", "shape": [4] }, { "name": "l.1.w", "shape": [4] }, { "name": "l.0.b", "shape": [4], "tags": ["b"] },
         { "name": "l.1.b", "shape": [4], "tags": ["b"] }, { "name": "up", "shape": [4], "shard": { "tp": 0 }, "tags": ["u"] },
         { "name": "x", "shape": [4] }, { "name": "cold", "shape": [4], "frozen": true })");
  const auto describe = [&](const std::set<std::string>& names) {
    return diagnosis::selectors_for(scenario.schedule->model, names);
  };
  CHECK(describe({"l.0.w", "l.1.w", "l.0.b", "l.1.b", "up", "x"}) == Words{"*"});
  CHECK(describe({}) == Words{"*"});
  CHECK(describe({"l.0.b", "l.1.b"}) == Words{"tag:b"});
  CHECK(describe({"l.0.w", "l.1.w"}) == Words{"l.*.w"});
  CHECK(describe({"up"}) == Words{"tag:u"});
  CHECK(describe({"x"}) == Words{"x"});
  CHECK(describe({"l.0.w", "l.1.w", "up", "x"}) == Words{"!tag:b"});
  CHECK(describe({"l.0.w", "l.1.w", "x"}) == Words{"l.*.w", "x"});
  CHECK(describe({"l.0.w", "x"}) == Words{"l.0.w", "x"});
}

TEST_CASE("of a list of many selectors those of wrong parameters stay, and a description of too many is none") {
  std::string parameters, names;
  std::set<std::string> even;
  for (int i = 0; i < 100; ++i) {
    const std::string name = "p" + std::to_string(i);
    parameters += std::string(i > 0 ? ", " : "") + R"({ "name": ")" + name + R"(", "shape": [2] })";
    names += std::string(i > 0 ? ", " : "") + "\"" + name + "\"";
    if (i % 2 == 0) even.insert(name);
  }
  const Scenario scenario =
      file_of(R"({ "dp": 2 })", parameters, R"(, { "name": "s", "op": "scale", "by": 1, "params": [)" + names + "] }");
  CHECK(values_of(scenario).selectors.size() == diagnosis::most_single_items);
  CHECK(values_of(scenario, {"p7"}).selectors == Words{"p7"});
  CHECK(diagnosis::selectors_for(scenario.schedule->model, even).empty());
  CHECK(words_in(values_of(scenario, even).selections).back() == "*");
}

TEST_CASE("sizes are kept that multiply or divide to one of the factors") {
  const Scenario scenario = file_of(R"({ "dp": 3, "tp": 2 })", one);
  const auto kept = [&](const std::set<Rational>& factors) {
    CandidateValues values = values_of(scenario);
    Environment environment;
    environment.mesh = &scenario.schedule->mesh;
    diagnosis::keep_sizes(values, environment, factors);
    return words_in(values.sizes);
  };
  CHECK(kept({Rational(3)}) == kept({Rational(1, 3)}));
  CHECK(kept({Rational(6)}) == Words{"edp", "tp * dp"});
  CHECK(kept({Rational(2, 3)}) == Words{"tp / dp", "dp / tp"});
  CHECK(kept({Rational(7)}).empty());
  CHECK(kept({}).empty());
}
