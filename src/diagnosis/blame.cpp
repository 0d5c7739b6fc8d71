// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/blame.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "src/diagnosis/mechanism.h"
#include "src/diagnosis/own_sizes.h"
#include "src/diagnosis/repair_order.h"
#include "src/diagnosis/repairs.h"
#include "src/diagnosis/step_list.h"
#include "src/diagnosis/unnoticed.h"

namespace lockstep::diagnosis {

namespace {

/// How many of the steps that are changed act on right parameters too: a step that does well by these explains less
/// than one that acts on wrong ones alone.
int steps_on_right(const CheckResult& result, const FoundRepair& repair) {
  const std::vector<ListedStep> steps = listed_steps(result.scenario->schedule->steps);
  const Model& model = result.scenario->schedule->model;
  std::set<int> wrong;
  for (const int parameter : wrong_set(result).parameters) wrong.insert(model.original(model.logical_of(parameter)));
  const auto is_on_right = [&](const Candidate& edit) {
    const ListedStep* step = find_listed(steps, edit.step);
    if (step == nullptr || edit.edit.action != Edit::Action::set) return false;
    const ActingStep acting(*step->step);
    for (std::size_t at = 0; at < model.parameters().size(); ++at) {
      const bool right =
          !model.parameters()[at].frozen && !wrong.contains(model.original(model.logical_of(static_cast<int>(at))));
      if (right && acting.acts_on(model.parameters()[at])) return true;
    }
    return false;
  };
  return static_cast<int>(std::count_if(repair.edits.begin(), repair.edits.end(), is_on_right));
}

/// The repair that explains most is the first in this order: the nearest, and of equally small ones that of a step that
/// a first divergence names.
RepairOptions::Order order_of(const CheckResult& result, const FoundRepair& repair,
                              const std::set<std::string>& divergence_steps) {
  const bool named = std::any_of(repair.edits.begin(), repair.edits.end(),
                                 [&](const Candidate& edit) { return divergence_steps.contains(edit.step); });
  const auto number = [](auto value) { return static_cast<double>(value); };
  return {number(is_strange(repair)),
          number(repair.count()),
          number(is_restored(repair) ? 0 : repair.sizes - repair.right_sizes),
          number(repair.leaves_idle || repair.moves_only_backward),
          number(!is_restored(repair)),
          number(repair.repeats),
          number(repair.touches_right),
          number(repair.alike + (repair.edits.front().kind == Candidate::Kind::insert ? 1 : 0)),
          number(!named),
          number(repair.distance),
          number(repair.sizes - repair.right_sizes),
          number(is_restored(repair) ? -static_cast<int>(repair.edits.size()) : 0),
          number(repair.acts_elsewhere),
          number(steps_on_right(result, repair)),
          std::max(repair.added_bytes, 0.0)};
}

/// The first that is not wrong at the file's own sizes; null where none of the best is.
const FoundRepair* explaining(const CheckResult& result, RepairSearch& search, const RepairOptions& options) {
  constexpr std::size_t most_looked_at = 8;
  std::vector<std::pair<RepairOptions::Order, FoundRepair*>> list;
  list.reserve(search.repairs.size());
  for (FoundRepair& repair : search.repairs) list.emplace_back(options.order(repair), &repair);
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (list.size() > most_looked_at) list.resize(most_looked_at);
  std::optional<OwnSizes> own_sizes;
  for (const auto& [order, repair] : list) {
    if (!repair->looked_at_own_sizes) {
      if (!own_sizes) own_sizes.emplace(result);
      own_sizes->look_at(*repair);
    }
    if (repair->right_at_own_sizes.value_or(true)) return repair;
    ++search.wrong_at_own_sizes;
  }
  return nullptr;
}

/// A step that mixes what it should not explains more than one that could be added to mend it, or than two edits. A
/// repair that hands elements to other owners mends something, and explains nothing.
bool explains_better(const FoundRepair& repair, std::set<std::string> divergence_steps,
                     const std::vector<ListedStep>& steps) {
  if (is_strange(repair)) return divergence_steps.empty();
  // A backward adds what is its own, whatever it adds that to, and a clip multiplies by what was counted before it.
  std::erase_if(divergence_steps, [&](const std::string& name) {
    const ListedStep* step = find_listed(steps, name);
    return step != nullptr && (step->op() == Op::backward || operation(step->op()).clips());
  });
  if (divergence_steps.empty()) return true;
  const bool named = std::any_of(repair.edits.begin(), repair.edits.end(),
                                 [&](const Candidate& edit) { return divergence_steps.contains(edit.step); });
  if (repair.count() == 1) return named || repair.edits.front().kind != Candidate::Kind::insert;
  // No value diverges at a norm.
  const auto counts = [&](const Candidate& edit) {
    const ListedStep* step = find_listed(steps, edit.step);
    return operation(step == nullptr ? edit.edit.values.op : step->op()).counts;
  };
  return std::all_of(repair.edits.begin(), repair.edits.end(),
                     [&](const Candidate& edit) { return divergence_steps.contains(edit.step) || counts(edit); });
}

/// A new step for what the edit before it takes out of another one: only that one is at fault. `rest` has the steps
/// that are such ones so far, of which a part may be taken again.
bool takes_the_rest(const Candidate& edit, const std::vector<ListedStep>& steps, const std::set<std::string>& rest) {
  if (edit.edit.action != Edit::Action::insert || !operation(edit.edit.values.op).counts) return false;
  if (rest.contains(edit.edit.beside.name)) return true;
  if (!edit.is_with_previous || edit.kind != Candidate::Kind::insert) return false;
  const ListedStep* beside = find_listed(steps, edit.edit.beside.name);
  return beside != nullptr && beside->op() == edit.edit.values.op;
}

/// Steps that belong to the one that is blamed last leave out what that leaves out.
void add_partners(const std::vector<ListedStep>& steps, const std::string& name, std::vector<Blame>& blame) {
  for (const std::vector<const ListedStep*>& together : steps_together(steps)) {
    const auto is_one = [&](const ListedStep* step) { return step->name() == name; };
    if (std::none_of(together.begin(), together.end(), is_one)) continue;
    for (const ListedStep* partner : together) {
      if (!is_one(partner)) blame.push_back({partner->name(), fmt::format("goes with {}", name)});
    }
  }
}

}  // namespace

void search_blame(CheckResult& result, bool for_blame_alone) {
  result.unnoticed = who_would_not_notice(result);
  std::set<std::string> divergence_steps;
  for (const Blame& blame : result.blame) divergence_steps.insert(blame.step);
  RepairOptions options;
  options.nearest_only = true;
  options.wanted = divergence_steps;
  options.order = [&](const FoundRepair& repair) { return order_of(result, repair, divergence_steps); };
  options.alone_around = !for_blame_alone;
  RepairSearch search = find_repairs(result, options);
  if (!search.cut_off.empty()) {
    // The nearest repair may be among those that were not tried.
    result.notes.push_back(fmt::format("The search for the step at fault was cut off: {}.", search.cut_off));
    return;
  }
  const FoundRepair* repair = explaining(result, search, options);
  if (repair == nullptr && search.wrong_at_own_sizes > 0) {
    result.notes.push_back(fmt::format(
        "Edits make the file right at {}, and not at its own sizes: something goes wrong here that does not "
        "go wrong there.",
        search.at));
  }
  if (repair == nullptr) return;
  Repair plain = repair->plain();
  if (repair->right_at_own_sizes) {
    plain.verified = {repair->verified_by};
  } else {
    plain.verified_at = search.at;
  }
  const std::vector<ListedStep> steps = listed_steps(result.scenario->schedule->steps);
  std::vector<Blame> blame;
  const bool explains = explains_better(*repair, divergence_steps, steps);
  std::set<std::string> rest;
  for (const Candidate& edit : repair->edits) {
    if (!explains) continue;
    if (takes_the_rest(edit, steps, rest)) {
      rest.insert(edit.step);
      continue;
    }
    Blame found = mechanism_of(result, edit);
    const bool known =
        std::any_of(blame.begin(), blame.end(), [&](const Blame& other) { return other.step == found.step; });
    const std::string name = found.step;
    if (!known) blame.push_back(std::move(found));
    if (edit.kind == Candidate::Kind::insert && name != edit.step) add_partners(steps, name, blame);
  }
  // All at once: what comes before may be cut off.
  result.repairs = {std::move(plain)};
  if (!blame.empty()) result.blame = std::move(blame);
}

}  // namespace lockstep::diagnosis
