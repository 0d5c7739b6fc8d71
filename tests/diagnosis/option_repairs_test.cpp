// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/option_repairs.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/diagnosis/kept_norms.h"
#include "src/scenario/framework_options.h"
#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::string deepspeed(const std::string& options, const std::string& layout = R"({ "dp": 4 })",
                      const std::string& more = "") {
  return R"({ "lockstep": 1, "layout": )" + layout +
         R"(, "model": { "parameters": [ { "name": "w", "shape": [16] } ] }, "batch": { "micro_batches": 2 },
             "schedule": { "framework": "deepspeed", "options": )" +
         options + more + " } }";
}

const OptionRepair* find(const diagnosis::OptionRepairs& found, const std::string& name) {
  const auto at = std::find_if(found.repairs.begin(), found.repairs.end(),
                               [&](const OptionRepair& one) { return one.option == name; });
  return at == found.repairs.end() ? nullptr : &*at;
}

std::string lines_of(const std::vector<Json>& values) {
  std::string lines;
  for (const Json& value : values) lines += one_line(value) + " ";
  return lines;
}

}  // namespace

TEST_CASE(
    "an option that divides twice is right at its default, which stands before options that the file does not give") {
  const CheckResult result =
      check_text(deepspeed(R"({ "zero_stage": 3, "reduce_scatter": false, "gradient_predivide_factor": 4 })"));
  REQUIRE(result.verdict == Verdict::mismatch);
  const diagnosis::OptionRepairs found = diagnosis::option_repairs(result);
  REQUIRE(!found.repairs.empty());
  const OptionRepair& first = found.repairs.front();
  CHECK(first.option == "gradient_predivide_factor");
  CHECK(one_line(first.value) == "4");
  CHECK(first.given);
  CHECK(lines_of(first.right) == "1 2 3 ");
  CHECK(first.to_default);
  CHECK(!first.asks_otherwise);
  CHECK(first.repair.reach == Repair::Reach::axes_in_play);
  CHECK(first.repair.verified == std::vector<std::string>{"symbolic", "host"});
  const OptionRepair* prescale = find(found, "prescale_gradients");
  REQUIRE(prescale != nullptr);
  CHECK(!prescale->given);
  CHECK(lines_of(prescale->right) == "true ");
  CHECK(!prescale->to_default);
  // What DeepSpeed refuses with this stage is neither right nor wrong: reduce_scatter with the factor.
  CHECK(find(found, "reduce_scatter") == nullptr);
  CHECK(find(found, "gradient_allreduce_op") == nullptr);
}

TEST_CASE("each value that is said to be right is right when the file is checked with it") {
  const std::vector<std::string> all = {
      R"({ "zero_stage": 3, "reduce_scatter": false, "gradient_predivide_factor": 4 })",
      R"({ "zero_stage": 1, "reduce_scatter": false, "gradient_predivide_factor": 4, "ulysses_loss": "local_mean_over_sp" })",
      R"({ "zero_stage": 3, "ulysses_loss": "local_mean_over_sp" })"};
  for (std::size_t number = 0; number < all.size(); ++number) {
    if (!is_tried(number)) continue;
    const std::string& options = all[number];
    INFO(options);
    const Scenario scenario =
        read_scenario(std::make_shared<Source>(Source{"test.json", deepspeed(options, R"({ "dp": 2, "sp": 2 })")}));
    const CheckResult result = check_scenario(std::make_shared<const Scenario>(scenario), {});
    REQUIRE(result.verdict == Verdict::mismatch);
    const diagnosis::OptionRepairs found = diagnosis::option_repairs(result);
    CHECK(!found.repairs.empty());
    for (const OptionRepair& one : found.repairs) {
      const auto verdict_with = [&](const Json& value) {
        Json document = scenario.document, schedule = *document.find("schedule"), given = *schedule.find("options");
        given.set(one.option, value);
        schedule.set("options", given);
        document.set("schedule", schedule);
        return check_scenario(std::make_shared<const Scenario>(read_scenario(document, "test.json")), {}).verdict;
      };
      INFO(one.option);
      for (const Json& value : one.right) CHECK(verdict_with(value) == Verdict::match);
    }
  }
}

namespace {

/// What a check of a file with another value of an option says; none where the framework refuses it, or nothing has a
/// verdict.
std::optional<CheckResult> with_value(const Scenario& file, const std::string& option, const Json& value) {
  try {
    CheckOptions options;
    options.blame = options.divergences = false;
    CheckResult result = check_scenario(
        std::make_shared<const Scenario>(read_scenario(file.document, "test.json", {.options = {{option, {}, value}}})),
        options);
    if (result.verdict == Verdict::error) return std::nullopt;
    return result;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

bool is_among(const Json& value, const std::vector<Json>& list) {
  return std::any_of(list.begin(), list.end(), [&](const Json& other) { return other.same_as(value); });
}

bool is_without_norm(const diagnosis::OptionRepairs& found, const std::string& option, const Json& value) {
  return std::any_of(found.without_norm.begin(), found.without_norm.end(), [&](const diagnosis::OptionValue& one) {
    return one.option == option && one.value.same_as(value);
  });
}

/// Each stage takes the norm of its own parameters alone, which is wrong; without a norm nothing is.
const std::string per_stage = R"({ "lockstep": 1, "layout": { "dp": 2, "pp": 2 },
  "model": { "parameters": [ { "name": "a", "shape": [4] }, { "name": "b", "shape": [4], "stage": 1 } ] },
  "batch": { "micro_batches": 2 }, "schedule": { "framework": "fsdp2", "options": { "max_norm": 1 } } })";

}  // namespace

TEST_CASE("each other value is wrong when the file is checked with it, or leaves out a norm that is taken now") {
  const std::vector<std::string> all = {
      per_stage, deepspeed(R"({ "zero_stage": 3, "reduce_scatter": false, "gradient_predivide_factor": 4 })"),
      deepspeed(
          R"({ "zero_stage": 1, "reduce_scatter": false, "gradient_predivide_factor": 4, "ulysses_loss": "local_mean_over_sp" })",
          R"({ "dp": 2, "sp": 2 })"),
      deepspeed(R"({ "zero_stage": 3, "ulysses_loss": "local_mean_over_sp" })", R"({ "dp": 2, "sp": 2 })")};
  std::size_t wrong = 0, without_norm = 0, texts = 0;
  for (const std::string& text : all) {
    if (one_in > 1 && texts++ > 0) break;  // those that take longest are the release build's
    INFO(text);
    const CheckResult result = check_text(text);
    REQUIRE(result.verdict == Verdict::mismatch);
    const diagnosis::OptionRepairs found = diagnosis::option_repairs(result);
    REQUIRE(found.cut_off.empty());
    int tried = 0;
    for (const scenario::FrameworkOption& option : scenario::framework_options(*result.scenario)) {
      std::vector<Json> values = option.allowed;
      values.push_back(option.default_value);
      if (option.type == "boolean") values.insert(values.end(), {Json::boolean(true), Json::boolean(false)});
      // Of numbers also such as nobody tries.
      if (option.allowed.empty() && (option.type == "integer" || option.type == "number"))
        for (int number = 1; number <= 8; ++number) values.push_back(Json::number(std::to_string(number)));
      const OptionRepair* repair = find(found, option.name);
      std::vector<Json> looked_at = {option.value};
      for (const Json& value : values) {
        if (is_among(value, looked_at)) continue;
        looked_at.push_back(value);
        const std::optional<CheckResult> there = with_value(*result.scenario, option.name, value);
        if (!there) continue;
        INFO(option.name << " " << one_line(value));
        const bool is_offered = repair != nullptr && is_among(value, repair->right);
        const bool is_left_out = is_without_norm(found, option.name, value);
        const std::optional<bool> keeps =
            diagnosis::keeps_norms(*result.scenario->schedule, *there->scenario->schedule);
        CHECK_FALSE((is_offered && is_left_out));
        if (is_offered) {
          ++tried;
          CHECK(there->verdict == Verdict::match);
          CHECK(keeps == true);
        } else if (is_left_out) {
          ++tried, ++without_norm;
          CHECK(there->verdict == Verdict::match);
          CHECK(keeps == false);
        } else if (option.allowed.empty() && option.type != "boolean" && there->verdict == Verdict::match) {
          // A number that is no size of the layout.
          CHECK(value.is_number());
          CHECK(std::stoi(value.text()) > 4);
        } else {
          ++tried, ++wrong;
          CHECK(there->verdict != Verdict::match);
        }
      }
    }
    CHECK(tried >= found.values);
  }
  CHECK(wrong > 10);
  CHECK(without_norm > 0);
}

TEST_CASE("an option that changes the loss changes what is right, and stands behind those that do not") {
  const CheckResult result =
      check_text(deepspeed(R"({ "zero_stage": 1, "ulysses_loss": "gathered" })", R"({ "dp": 2, "sp": 2 })"));
  REQUIRE(result.verdict == Verdict::mismatch);
  const diagnosis::OptionRepairs found = diagnosis::option_repairs(result);
  const OptionRepair* loss = find(found, "ulysses_loss");
  REQUIRE(loss != nullptr);
  CHECK(loss->asks_otherwise);
  CHECK(loss == &found.repairs.back());
}

TEST_CASE("no option is a repair that leaves the norm out") {
  const CheckResult result = check_text(per_stage);
  REQUIRE(result.verdict == Verdict::mismatch);
  const diagnosis::OptionRepairs found = diagnosis::option_repairs(result);
  CHECK(found.values > 0);
  CHECK(find(found, "max_norm") == nullptr);
  REQUIRE(!found.without_norm.empty());
  CHECK(found.without_norm.front().option == "max_norm");
}

TEST_CASE("a file with edits of its own, and one without a framework, have no other options") {
  const CheckResult edited =
      check_text(deepspeed(R"({ "zero_stage": 0 })", R"({ "dp": 4 })", R"(, "edits": [ { "drop": "dp_scale" } ])"));
  REQUIRE(edited.verdict == Verdict::mismatch);
  CHECK(diagnosis::option_repairs(edited).values == 0);
  const CheckResult listed = check_text(megatron_844());
  REQUIRE(listed.verdict == Verdict::mismatch);
  CHECK(diagnosis::option_repairs(listed).options == 0);
  CHECK(diagnosis::option_repairs(check_text(deepspeed(R"({ "zero_stage": 0 })"))).values == 0);
}
