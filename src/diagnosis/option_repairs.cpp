// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/option_repairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "lockstep/scenario.h"
#include "src/base/budget.h"
#include "src/diagnosis/kept_norms.h"
#include "src/diagnosis/other_tests.h"
#include "src/diagnosis/shrink.h"
#include "src/diagnosis/step_list.h"
#include "src/diagnosis/verify_repair.h"
#include "src/diagnosis/workload.h"
#include "src/expression/parsed_once.h"
#include "src/scenario/framework_options.h"

namespace lockstep::diagnosis {

namespace {

using scenario::FrameworkOption;

bool is_among(const Json& value, const std::vector<Json>& values) {
  return std::any_of(values.begin(), values.end(), [&](const Json& other) { return other.same_as(value); });
}

/// What defaults and divisors often are: the size of each axis, the product of each two, and all ranks.
std::set<int> sizes_of(const Layout& layout) {
  std::set<int> sizes = {layout.dp_shard, layout.dp_replicate, layout.ep, layout.etp, layout.world()};
  const int axes[] = {1, layout.tp, layout.cp, layout.sp, layout.dp, layout.pp};
  for (const int& one : axes) {
    for (const int* other = &one + 1; other != std::end(axes); ++other) sizes.insert(one * *other);
  }
  return sizes;
}

/// The framework's default first.
std::vector<Json> other_values(const FrameworkOption& option, const Layout& layout) {
  std::vector<Json> values = {option.default_value};
  values.insert(values.end(), option.allowed.begin(), option.allowed.end());
  if (option.type == "boolean") {
    values.push_back(Json::boolean(true));
    values.push_back(Json::boolean(false));
  }
  if (option.allowed.empty() && (option.type == "integer" || option.type == "number")) {
    for (const char* number : {"1", "2", "3"}) values.push_back(Json::number(number));
    for (const int size : sizes_of(layout)) values.push_back(Json::number(std::to_string(size)));
  }
  std::vector<Json> others;
  for (Json& value : values) {
    if (!value.same_as(option.value) && !is_among(value, others)) others.push_back(std::move(value));
  }
  return others;
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

/// The file with another value of an option.
WhatIf with_value(const std::string& option, const Json& value) { return {.options = {{option, {}, value}}}; }

/// The sizes that a value brings with it, where they are others than the file's: "dp 1, micro-batches 2".
std::string other_sizes(const Scenario& before, const Scenario& after) {
  FileSizes sizes;
  const Mesh &now = before.schedule->mesh, &then = after.schedule->mesh;
  const auto compare = [&](Axis axis) {
    if (now.size(axis) != then.size(axis)) sizes.axes.emplace_back(name_of(axis), then.size(axis));
  };
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::sp, Axis::dp, Axis::pp, Axis::ep, Axis::etp}) compare(axis);
  if (now.size(Axis::dp) == then.size(Axis::dp)) {
    compare(Axis::dp_shard);
    compare(Axis::dp_replicate);
  }
  if (before.schedule->batch.micro_batch_counts != after.schedule->batch.micro_batch_counts)
    sizes.micro_batches = most_micro_batches(after);
  return sizes.to_string();
}

/// How it fares at the sizes around these.
void try_around(const Scenario& scenario, const FileSizes& sizes, Repair& repair) {
  for (const OtherSize& other : sizes_around(scenario, sizes)) {
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
  OptionSearch(const CheckResult& result, OptionRepairs& found) : result_(result), found_(found) {}

  void run() {
    const std::vector<FrameworkOption> options = scenario::framework_options(*result_.scenario);
    found_.options_left = static_cast<int>(options.size());
    for (const FrameworkOption& option : options) {
      try_values(option);
      --found_.options_left;
    }
  }

 private:
  void try_values(const FrameworkOption& option) {
    bool tried = false;
    OptionRepair one;
    for (const Json& value : other_values(option, result_.scenario->layout)) {
      const auto changed = read_if_allowed(*result_.scenario, with_value(option.name, value));
      if (changed == nullptr || changed->schedule == nullptr) continue;
      // A value that brings other micro-batches to the tokens that the file lists asks another question.
      const bool otherwise = reads_tokens_otherwise(*result_.scenario, *changed);
      const Verdict verdict = otherwise ? Verdict::error : verdict_of(changed);
      if (verdict == Verdict::error) {
        ++found_.without_verdict;
        continue;
      }
      found_.options += tried ? 0 : 1;
      tried = true;
      ++found_.values;
      if (verdict != Verdict::match) continue;
      const std::optional<bool> keeps = keeps_norms_of_file(*changed);
      if (keeps == false) {
        found_.without_norm.push_back({option.name, value});
      } else {
        take(option, value, *changed, keeps, one);
      }
    }
    if (!one.right.empty()) found_.repairs.push_back(std::move(one));
  }

  /// A value that is right at the file's own sizes.
  void take(const FrameworkOption& option, const Json& value, const Scenario& changed, std::optional<bool> keeps,
            OptionRepair& one) {
    const std::string sizes = other_sizes(*result_.scenario, changed);
    if (!one.right.empty()) {
      one.right.push_back(value);
      if (!keeps) one.repair.keeps_norms.reset();
      one.sizes_differ = one.sizes_differ || sizes != one.sizes;
      return;
    }
    OptionRepair first;
    first.option = option.name;
    first.value = option.value;
    first.given = option.given;
    first.right = {value};
    first.to_default = value.same_as(option.default_value);
    first.sizes = sizes;
    const Schedule &before = *result_.scenario->schedule, &after = *changed.schedule;
    try_around(changed, is_quickly_replayed(after) ? FileSizes() : small().sizes, first.repair);
    if (!verify_change(result_, with_value(option.name, value), first.repair)) {
      if (is_undecided(option, value)) {
        --found_.values;
        ++found_.without_verdict;
      }
      return;
    }
    first.repair.keeps_norms = keeps;
    first.steps_changed = steps_changed(before, after);
    first.asks_otherwise = !(before.batch == after.batch) || before.model.parameters() != after.model.parameters();
    one = std::move(first);
  }

  /// At the file's own sizes; where that takes much and classes of ranks do not decide, what is wrong at the small ones
  /// is left at that.
  Verdict verdict_of(const std::shared_ptr<const Scenario>& scenario) {
    CheckOptions options = CheckOptions::verdict_alone();
    if (is_quickly_replayed(*scenario->schedule)) return check_scenario(scenario, options).verdict;
    CheckOptions by_classes = options;
    by_classes.symbolic = false;
    by_classes.parametric = true;
    const Verdict here = check_scenario(scenario, by_classes).verdict;
    if (here != Verdict::error) return here;
    const auto there = check_at(*scenario, small().sizes);
    if (there == nullptr) return Verdict::error;
    if (there->verdict == Verdict::match) return check_scenario(scenario, options).verdict;
    if (there->verdict != Verdict::error && !small().sizes.empty()) {
      ++found_.at_small;
      found_.small = small().sizes.to_string();
    }
    return there->verdict;
  }

  /// At the file's own sizes, and where that takes much by what is run at the small ones.
  std::optional<bool> keeps_norms_of_file(const Scenario& changed) {
    const Scenario& file = *result_.scenario;
    const std::optional<bool> keeps = keeps_norms(*file.schedule, *changed.schedule);
    if (keeps) return keeps;
    const auto before = read_at(file, small().sizes), after = read_at(changed, small().sizes);
    if (before == nullptr || after == nullptr) return std::nullopt;
    try {
      return says_norms(*before->schedule, *after->schedule) && runs_norms(*before->schedule, *after->schedule);
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  /// Whether a file with sizes that are "any" has no verdict with that value, though numbers in their place have one.
  bool is_undecided(const FrameworkOption& option, const Json& value) const {
    if (!result_.written) return false;
    const auto changed = read_if_allowed(*result_.written, with_value(option.name, value));
    return changed == nullptr || check_scenario(changed, CheckOptions::verdict_alone()).verdict == Verdict::error;
  }

  const SmallLayout& small() {
    if (!small_) small_ = smallest_layout(result_);
    return *small_;
  }

  const CheckResult& result_;
  OptionRepairs& found_;
  std::optional<SmallLayout> small_;  // once it is asked for
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
      return std::tuple(one.asks_otherwise, !one.given, one.repair.keeps_norms != true, one.repair.reach,
                        one.steps_changed, !one.to_default);
    };
    return key(a) < key(b);
  });
  return found;
}

}  // namespace lockstep::diagnosis
