// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/option_repairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "src/base/budget.h"
#include "src/diagnosis/other_tests.h"
#include "src/diagnosis/shrink.h"
#include "src/diagnosis/step_list.h"
#include "src/diagnosis/verify_repair.h"
#include "src/expression/parsed_once.h"
#include "src/scenario/framework_options.h"

namespace lockstep::diagnosis {

namespace {

using scenario::FrameworkOption;

bool is_among(const Json& value, const std::vector<Json>& values) {
  return std::any_of(values.begin(), values.end(), [&](const Json& other) { return other.same_as(value); });
}

/// The framework's default first.
std::vector<Json> other_values(const FrameworkOption& option) {
  std::vector<Json> values = {option.default_value};
  values.insert(values.end(), option.allowed.begin(), option.allowed.end());
  if (option.type == "boolean") {
    values.push_back(Json::boolean(true));
    values.push_back(Json::boolean(false));
  }
  if (option.allowed.empty() && (option.type == "integer" || option.type == "number")) {
    for (const char* number : {"1", "2", "3"}) values.push_back(Json::number(number));
  }
  std::vector<Json> others;
  for (Json& value : values) {
    if (!value.same_as(option.value) && !is_among(value, others)) others.push_back(std::move(value));
  }
  return others;
}

std::vector<ActingStep> of_op(const Schedule& schedule, Op op) {
  std::vector<ActingStep> steps;
  for (const ListedStep& step : listed_steps(schedule.steps)) {
    if (step.op() == op) steps.emplace_back(*step.step);
  }
  return steps;
}

/// Whether every gradient that a norm counts or a clip changes before is one for which that holds after, too.
bool keeps_norms(const Schedule& before, const Schedule& after) {
  const std::vector<Parameter>& parameters = before.model.parameters();
  for (const Op op : {Op::norm, Op::clip}) {
    const std::vector<ActingStep> those_before = of_op(before, op), those_after = of_op(after, op);
    for (const Parameter& parameter : parameters) {
      const auto acts = [&](const ActingStep& step) { return step.acts_on(parameter); };
      if (parameter.frozen || std::none_of(those_before.begin(), those_before.end(), acts)) continue;
      if (std::none_of(those_after.begin(), those_after.end(), acts)) return false;
    }
  }
  return true;
}

/// Steps that only one of them has, or that they have otherwise.
std::size_t steps_changed(const Schedule& before, const Schedule& after) {
  const std::vector<ListedStep> now = listed_steps(before.steps), then = listed_steps(after.steps);
  std::size_t same = 0;
  for (const ListedStep& step : then) {
    const ListedStep* other = find_listed(now, step.name());
    // What is in a loop is listed by itself.
    if (other != nullptr && (*other->step == *step.step || (step.op() == Op::each && other->op() == Op::each))) ++same;
  }
  return now.size() + then.size() - 2 * same;
}

/// The file with another value, where the framework does not refuse it.
std::optional<Scenario> read_with(const Scenario& scenario, const std::string& option, const Json& value) {
  Json document = scenario::with_option(scenario.document, option, value);
  document.remove("expect");
  try {
    return read_scenario(document, scenario.file);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// How it fares at the sizes around those at which it was found.
void try_around(const Scenario& scenario, const FileSizes& smallest, Repair& repair) {
  for (const OtherSize& other : sizes_around(scenario, smallest)) {
    const auto there = check_at(scenario, other.sizes);
    if (there == nullptr || there->verdict == Verdict::error) continue;
    ++repair.sizes;
    if (there->verdict == Verdict::match) {
      ++repair.right_sizes;
    } else {
      if (repair.wrong_at.empty()) repair.wrong_at = other.sizes.to_string();
      repair.wrong_with.insert(other.of);
    }
  }
}

class OptionSearch {
 public:
  /// Of a result that is wrong; what it finds is in `found` as soon as it is known.
  OptionSearch(const CheckResult& result, OptionRepairs& found)
      : result_(result), small_(smallest_layout(result)), found_(found) {}

  void run() {
    for (const FrameworkOption& option : scenario::framework_options(*result_.scenario)) try_values(option);
  }

 private:
  void try_values(const FrameworkOption& option) {
    bool tried = false, found = false;
    for (const Json& value : other_values(option)) {
      const std::optional<Scenario> changed = read_with(*result_.scenario, option.name, value);
      if (!changed) continue;
      found_.options += tried ? 0 : 1;
      tried = true;
      ++found_.values;
      if (!is_right(*changed)) continue;
      if (found && is_right_here(*changed)) found_.repairs.back().right.push_back(value);
      if (found) continue;
      if (std::optional<OptionRepair> first = verified(option, value, *changed)) {
        found_.repairs.push_back(std::move(*first));
        found = true;
      }
    }
  }

  std::optional<OptionRepair> verified(const FrameworkOption& option, const Json& value,
                                       const Scenario& changed) const {
    OptionRepair one;
    one.option = option.name;
    one.value = option.value;
    one.given = option.given;
    one.right = {value};
    one.to_default = value.same_as(option.default_value);
    try_around(changed, small_.sizes, one.repair);
    const auto change = [&](const Json& document) { return scenario::with_option(document, option.name, value); };
    if (!verify_change(result_, change, one.repair)) return std::nullopt;
    const Schedule &before = *result_.scenario->schedule, &after = *changed.schedule;
    one.steps_changed = steps_changed(before, after);
    one.asks_otherwise = !(before.batch == after.batch) || before.model.parameters() != after.model.parameters();
    return one;
  }

  /// At the small sizes, where much is tried, and with all norms that there were.
  bool is_right(const Scenario& changed) const {
    if (!keeps_norms(*result_.scenario->schedule, *changed.schedule)) return false;
    const auto there = check_at(changed, small_.sizes);
    return there != nullptr && there->verdict == Verdict::match;
  }

  static bool is_right_here(const Scenario& changed) {
    CheckOptions options;
    options.host = options.blame = options.divergences = false;
    return check_scenario(std::make_shared<const Scenario>(changed), options).verdict == Verdict::match;
  }

  const CheckResult& result_;
  SmallLayout small_;
  OptionRepairs& found_;
};

}  // namespace

OptionRepairs option_repairs(const CheckResult& result) {
  if (result.scenario == nullptr || result.scenario->schedule == nullptr || result.verdict == Verdict::match ||
      result.verdict == Verdict::error || wrong_in_model_alone(result) || !result.scenario->edits.empty())
    return {};
  const expression::ParsedOnce parsed_once;
  OptionRepairs found;
  try {
    const Budget budget(Budget::search);
    OptionSearch(result, found).run();
  } catch (const OverBudget& over) {
    found.cut_off = over.what();
  } catch (const InputError& error) {
    found.cut_off = fmt::format("of a scenario that it made it says \"{}\"", error.diagnostics().front().message);
  }
  std::stable_sort(found.repairs.begin(), found.repairs.end(), [](const OptionRepair& a, const OptionRepair& b) {
    const auto key = [](const OptionRepair& one) {
      return std::tuple(one.asks_otherwise, !one.given, one.repair.reach, one.steps_changed, !one.to_default);
    };
    return key(a) < key(b);
  });
  return found;
}

}  // namespace lockstep::diagnosis
