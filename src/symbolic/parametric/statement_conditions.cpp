// SPDX-License-Identifier: Apache-2.0
//
// Box by box, each as wide as it can be. A value that is right where a product of several sizes is some number is not
// told by a grid of sizes: the statement names the product.
#include "src/symbolic/parametric/statement_conditions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "src/symbolic/parametric/by_value.h"
#include "src/symbolic/parametric/zero_condition.h"

namespace lockstep::parametric {

namespace {

/// Reasons that are all wrong unless one thing holds.
struct ReasonGroup {
  std::string unless;                      ///< "" for what is wrong in any case
  std::optional<ZeroCondition> condition;  ///< none where it is another thing
  std::vector<Box> boxes;
};

/// Where the value is zero, unless it never is.
std::optional<ZeroCondition> exception_of(const Reason& reason) {
  std::optional<ZeroCondition> condition = zero_condition(reason);
  if (condition && condition->never_holds(reason)) condition.reset();
  return condition;
}

bool is_always_wrong(const Reason& reason) {
  const std::optional<ZeroCondition> condition = zero_condition(reason);
  return always(reason) || (condition && condition->never_holds(reason));
}

/// What is asked of a reason again and again, for thousands of them and hundreds of conditions.
struct Examined {
  explicit Examined(const Reason& the_reason)
      : reason(&the_reason), is_always(is_always_wrong(the_reason)), zero(zero_condition(the_reason)) {
    if (!is_always) exception = exception_of(the_reason);
    if (is_always || exception) return;
    zeros = zeros_of_the_one_size(the_reason);
    is_always = zeros && zeros->empty() && reason->cell->fault != Fault::unowned;
  }
  const Reason* reason;
  bool is_always;
  std::optional<ZeroCondition> zero, exception;
  std::optional<std::vector<Sizes>> zeros;  ///< of what has no exception that is a product
};

/// Whether a value that is zero where `own` holds (never, where there is none) is zero there because `wider` holds.
bool is_part_of(const std::optional<ZeroCondition>& own, const ZeroCondition& wider, const Reason& reason) {
  return own ? wider.within(*reason.of) == own->within(*reason.of) : wider.never_holds(reason);
}

/// The sizes of a reason's case from its least ones on, wherever its value is zero.
Box box_of(const Reason& reason, const Grid& grid) {
  Box box;
  for (const Axis axis : grid.axes) {
    const auto exact = reason.of->exact.find(axis);
    const auto least = reason.least.find(axis);
    Bound& bound = box.emplace_back();
    if (exact != reason.of->exact.end()) bound.exact = exact->second;
    if (least != reason.least.end()) bound.least = least->second;
    if (const auto most = reason.of->most.find(axis); most != reason.of->most.end()) bound.most = most->second;
  }
  if (grid.micro_batches) {
    box.push_back({reason.of->exact_micro_batches,
                   reason.of->least_micro_batches.value_or(1),
                   {},
                   reason.of->most_micro_batches});
  }
  return box;
}

/// The conditions that are an exception to something, those of most sizes first: with an axis of one size a product
/// may have come to be a smaller one.
std::vector<ZeroCondition> conditions_of(const std::vector<Examined>& reasons) {
  std::vector<ZeroCondition> conditions, others;
  const auto is_exception = [&](const ZeroCondition& condition) {
    return std::any_of(reasons.begin(), reasons.end(), [&](const Examined& each) {
      return each.exception && is_part_of(each.exception, condition, *each.reason);
    });
  };
  const auto contains = [](const std::vector<ZeroCondition>& some, const ZeroCondition& condition) {
    return std::find(some.begin(), some.end(), condition) != some.end();
  };
  for (const Examined& one : reasons) {
    if (!one.zero) continue;
    for (const ZeroCondition& each : {*one.zero, one.zero->within(*one.reason->of)}) {
      if (!contains(conditions, each) && !contains(others, each))
        (is_exception(each) ? conditions : others).push_back(each);
    }
  }
  std::stable_sort(conditions.begin(), conditions.end(),
                   [](const auto& a, const auto& b) { return a.exponents.size() > b.exponents.size(); });
  return conditions;
}

/// "dp = 3 or dp = 7" where the value depends on one size alone, else "-6 + 8/dp + tp = 0".
std::string where_zero(const Reason& reason, const std::optional<std::vector<Sizes>>& zeros) {
  if (!zeros || zeros->empty())
    return reason.representative->world->polynomials().to_string(reason.cell->value) + " = 0";
  std::vector<std::string> sizes;
  for (const Sizes& zero : *zeros) {
    if (zero.micro_batches) sizes.push_back(fmt::format("micro_batches = {}", *zero.micro_batches));
    for (const auto& [axis, size] : zero.axes) sizes.push_back(fmt::format("{} = {}", name_of(axis), size));
  }
  return fmt::format("{}", fmt::join(sizes, " or "));
}

std::vector<ReasonGroup> groups_of(const std::vector<Reason>& reasons, const Grid& grid) {
  const std::vector<Examined> all(reasons.begin(), reasons.end());
  const std::vector<ZeroCondition> conditions = conditions_of(all);
  std::vector<ReasonGroup> groups;
  for (const Examined& examined : all) {
    const Reason& reason = *examined.reason;
    ReasonGroup found;
    if (examined.exception || examined.is_always) {
      const auto wider = std::find_if(conditions.begin(), conditions.end(), [&](const ZeroCondition& each) {
        return is_part_of(examined.exception, each, reason);
      });
      if (wider != conditions.end()) found.condition = *wider;
      if (found.condition) found.unless = "unless " + describe(*found.condition);
    } else {
      found.unless = fmt::format("{} {}", reason.cell->fault == Fault::unowned ? "where" : "unless",
                                 where_zero(reason, examined.zeros));
    }
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const ReasonGroup& each) { return each.unless == found.unless; });
    if (group == groups.end()) group = groups.insert(groups.end(), std::move(found));
    group->boxes.push_back(box_of(reason, grid));
  }
  return groups;
}

}  // namespace

std::string describe_condition(const Reason& reason) {
  std::string text = parametric::describe(*reason.of);
  for (const auto& [axis, least] : reason.least) {
    const auto of_case = reason.of->least.find(axis);
    if (of_case != reason.of->least.end() && of_case->second < least)
      text += fmt::format("{}{} ≥ {}", text.empty() ? "" : " and ", name_of(axis), least);
  }
  if (!is_always_wrong(reason))
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", reason.cell->fault == Fault::unowned ? "where" : "unless",
                        where_zero(reason, zeros_of_the_one_size(reason)));
  if (reason.by_cut) text += std::string(text.empty() ? "" : ", ") + "wherever its cuts give an element these owners";
  return text;
}

bool needs_conditions(const std::vector<Reason>& reasons) {
  return std::any_of(reasons.begin(), reasons.end(), [](const Reason& reason) {
    const auto exception = exception_of(reason);
    return !is_always_wrong(reason) && exception && exception->within(*reason.of).exponents.size() > 1;
  });
}

std::string statement_by_conditions(const std::vector<Reason>& reasons, const Grid& grid) {
  std::vector<std::string> texts;
  for (const ReasonGroup& group : groups_of(reasons, grid)) {
    WrongPoints points{grid.values, grid.known, {}, grid.wide, grid.open};
    const BoxesByValue boxes(group.boxes);
    for (const Point& point : grid.known) {
      const bool in_box = !boxes.at(point).empty();
      // Where the condition holds it may be said of any size.
      if (in_box || (group.condition && group.condition->holds(grid.sizes(point)))) points.wrong.insert(point);
    }
    std::vector<std::string> places;
    for (const Box& box : cover(points, group.boxes)) places.push_back(describe(box, grid.names(), points));
    if (group.unless.empty())
      texts.insert(texts.end(), places.begin(), places.end());
    else
      texts.push_back(fmt::format("{} {}", fmt::join(places, ", or "), group.unless));
  }
  return fmt::format("{} for {}", grid.words.wrong, fmt::join(texts, "; for "));
}

}  // namespace lockstep::parametric
