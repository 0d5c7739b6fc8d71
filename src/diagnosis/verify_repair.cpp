// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/verify_repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <future>
#include <optional>
#include <tuple>
#include <utility>

#include "lockstep/communication.h"
#include "lockstep/prove.h"
#include "src/base/budget.h"
#include "src/base/counted.h"
#include "src/diagnosis/kept_norms.h"
#include "src/diagnosis/repair_order.h"
#include "src/diagnosis/shrink.h"
#include "src/diagnosis/workload.h"
#include "src/expression/parsed_once.h"
#include "src/scenario/editable_steps.h"
#include "src/scenario/open_sizes.h"

namespace lockstep {

namespace {

constexpr std::size_t most_words = 160;  // a longer statement says less than one layout at which it is wrong

/// "cp, dp and micro_batches"
std::string open_names(const Proof& proof) {
  std::vector<std::string> names;
  names.reserve(proof.axes.size() + 1);
  for (const Axis axis : proof.axes) names.emplace_back(name_of(axis));
  if (proof.micro_batches) names.emplace_back("micro_batches");
  return listed_words(std::move(names));
}

/// A scenario whose steps speak of axes that the parametric engine keeps, such as ep, may have none.
bool has_open_sizes(const Proof& proof) { return !proof.axes.empty() || proof.micro_batches; }

/// "wrong as soon as dp ≥ 3; the smallest wrong layout has dp 3, 1 micro-batch". Of a repair that is right at the
/// file's own sizes: a proof that says "every size" did not look at these.
std::string where_wrong(const Proof& proof) {
  const bool has_own =
      proof.statement == "wrong for every size" || proof.statement.starts_with("wrong for every size, ");
  std::string statement = has_own || proof.statement.size() > most_words ? "wrong at other sizes" : proof.statement;
  if (!proof.counterexample) return statement;
  Sizes sizes = proof.counterexample->sizes;
  std::erase_if(sizes.axes, [&](const auto& entry) {
    return std::find(proof.axes.begin(), proof.axes.end(), entry.first) == proof.axes.end();
  });
  return fmt::format("{}; the smallest wrong layout has {}", statement, describe(sizes));
}

std::string why_undecided(const Proof& proof) {
  if (proof.limits.empty()) return proof.statement;
  const Proof::Limit& limit = proof.limits.front();
  return fmt::format("not decided by the parametric engine{}: {}{}", limit.sizes.empty() ? "" : " for " + limit.sizes,
                     limit.step.empty() ? "" : limit.step + ": ", limit.why);
}

/// The scenario with "any" for each axis that the file has above 1; nothing where there is none, or where a file of
/// this kind cannot have it.
std::shared_ptr<const Scenario> with_any(const Scenario& scenario) {
  Sizes sizes;
  const Json* layout = scenario.document.find("layout");
  for (const Json::Member& member : layout != nullptr ? layout->members() : std::vector<Json::Member>()) {
    const std::optional<Axis> axis = axis_named(member.key);
    if (axis && member.value.is_number() && member.value.text() != "1") sizes.any.push_back(*axis);
  }
  return sizes.any.empty() ? nullptr : read_if_allowed(scenario, {sizes});
}

/// Whether each axis that a layout of the scenario may have is among those that the proof leaves open. What one of them
/// does that the scenario says nothing of, the proof does not know.
bool opens_every_axis(const Scenario& scenario, const Proof& proof) {
  const auto is_open = [&](Axis axis) { return std::ranges::count(proof.axes, axis) > 0; };
  const auto may_be = [&](Axis axis, int size) {
    Sizes sizes;
    sizes.axes[axis] = size;
    return read_if_allowed(scenario, {sizes}) != nullptr;
  };
  const bool dp = is_open(Axis::edp) || (is_open(Axis::dp_shard) && is_open(Axis::dp_replicate));
  return std::ranges::all_of(std::array{Axis::tp, Axis::cp, Axis::sp, Axis::dp, Axis::pp}, [&](Axis axis) {
    return is_open(axis) || (axis == Axis::dp && dp) || (!may_be(axis, 2) && !may_be(axis, 3));
  });
}

void prove(const Scenario& scenario, Repair& repair) {
  const bool tried_right = repair.sizes == repair.right_sizes;
  try {
    const Prover all(scenario);
    const Proof& proof = all.proof();
    if (proof.verdict == Proof::Verdict::right && has_open_sizes(proof) && !tried_right) {
      // It speaks of fewer sizes than were tried: of one number of micro-batches, say.
      repair.reach = Repair::Reach::some_sizes;
      repair.proof = fmt::format("right for every size of {} alone", open_names(proof));
      return;
    }
    if (proof.verdict == Proof::Verdict::right && has_open_sizes(proof)) {
      repair.reach = Repair::Reach::every_size;
      repair.every_axis = opens_every_axis(scenario, proof);
      repair.proof = fmt::format("right for every size of {}", open_names(proof));
      return;
    }
    if (const auto open = with_any(scenario)) {
      const Prover in_play(*open);
      const Proof& narrow = in_play.proof();
      if (narrow.verdict == Proof::Verdict::right && has_open_sizes(narrow) && tried_right) {
        repair.reach = Repair::Reach::axes_in_play;
        repair.proof = fmt::format("right for every size of {}", open_names(narrow));
        return;
      }
      if (narrow.verdict == Proof::Verdict::wrong) {
        repair.reach = Repair::Reach::some_sizes;
        repair.proof = where_wrong(narrow);
        return;
      }
    }
    repair.reach = reach_of_layouts(repair);
    if (has_open_sizes(proof))
      repair.proof = proof.verdict == Proof::Verdict::wrong ? where_wrong(proof) : why_undecided(proof);
  } catch (const InputError&) {
    repair.reach = reach_of_layouts(repair);
  }
}

/// One parameter of each class: the others go through the same steps, and a search has no time for all of them.
bool replay_on_host(const Scenario& scenario, Repair& repair) {
  Scenario reduced = scenario;
  reduced.schedule = std::make_shared<const Schedule>(
      scenario::with_parameters(*scenario.schedule, diagnosis::one_of_each_class(*scenario.schedule)));
  reduced.preset.reset();
  const auto classes = std::make_shared<const Scenario>(std::move(reduced));
  constexpr double most_bytes = 5e8;
  const diagnosis::Workload workload = diagnosis::estimate_workload(*classes->schedule);
  if (workload.bytes + workload.host_bytes > most_bytes) {
    repair.host_left_out = "the host engine was left out: the layout is too large for it";
    return true;
  }
  CheckOptions options;
  options.symbolic = options.blame = options.divergences = false;
  const CheckResult there = check_scenario(classes, options);
  if (there.verdict == Verdict::error) {
    repair.host_left_out = "the host engine was left out: the layout is too large for it";
    return true;
  }
  if (there.verdict != Verdict::match) return false;
  if (const EngineResult* host = engine_of(there, "host"); host != nullptr) {
    if (host->ran()) repair.verified.emplace_back(host->name);
    repair.host_left_out = host->left_out;
  }
  return true;
}

/// That the rank that sends most sends in an optimizer step, with each race waited for; nothing of a large layout,
/// which is not walked, and where ranks wait for each other.
std::optional<double> most_bytes(const CheckResult& result) {
  if (!result.timeline) return std::nullopt;
  const Schedule& schedule = *result.scenario->schedule;
  const auto bytes_of = [&](const Timeline& timeline) {
    return static_cast<double>(communication(schedule, timeline).most_bytes_of_a_rank);
  };
  if (result.timeline->outcome.kind == Outcome::Kind::complete) return bytes_of(*result.timeline);
  if (result.timeline->outcome.kind != Outcome::Kind::race) return std::nullopt;
  return bytes_of(walk(schedule, AtRace::waits));
}

/// Whether a repair of a file with sizes that are "any" is right for what the file asks, and not only at the sizes that
/// stand for them here. Where that is not decided the repair says so.
bool answers_file(const CheckResult& result, const WhatIf& change, Repair& repair) {
  if (!result.written) return true;
  const auto changed =
      std::make_shared<const Scenario>(read_scenario(result.written->document, result.written->file, change));
  const CheckResult there = check_scenario(changed, CheckOptions::verdict_alone());
  if (there.verdict != Verdict::error) return there.verdict == Verdict::match;
  // Not decided; but other sizes were tried, and the file may ask for these.
  if (scenario::has_any_micro_batches(*result.written) && repair.wrong_with.contains("micro_batches")) return false;
  for (const Axis axis : result.written->layout.any) {
    if (repair.wrong_with.contains(std::string(name_of(axis)))) return false;
  }
  repair.reach = std::max(repair.reach, reach_of_layouts(repair));
  if (!there.errors.empty()) repair.proof = there.errors.front().message;
  return true;
}

}  // namespace

Repair::Reach reach_of_layouts(const Repair& repair) {
  if (repair.sizes == 0) return Repair::Reach::own_sizes;
  return repair.right_sizes == repair.sizes ? Repair::Reach::layouts_tried : Repair::Reach::some_sizes;
}

std::string_view name_of(Repair::Reach reach) {
  switch (reach) {
    case Repair::Reach::every_size:
      return "every size";
    case Repair::Reach::axes_in_play:
      return "every size of the axes in play";
    case Repair::Reach::layouts_tried:
      return "the layouts tried";
    case Repair::Reach::own_sizes:
      return "its own sizes";
    case Repair::Reach::some_sizes:
      return "some sizes";
  }
  return "";
}

std::string_view reach_of(const Repair& repair) {
  const bool narrower = repair.reach == Repair::Reach::every_size && !repair.every_axis;
  return name_of(narrower ? Repair::Reach::axes_in_play : repair.reach);
}

namespace diagnosis {

bool verify_repair(const CheckResult& result, Repair& repair) {
  return verify_change(result, {.edits = repair.edits}, repair);
}

bool verify_change(const CheckResult& result, const WhatIf& change, Repair& repair) {
  const expression::ParsedOnce parsed_once;
  repair.verified.clear();
  try {
    const Budget budget(Budget::search);
    const auto repaired = read_if_allowed(*result.scenario, change);
    if (repaired == nullptr) return false;
    const CheckResult there = check_scenario(repaired, CheckOptions::verdict_alone());
    if (there.verdict != Verdict::match) return false;
    repair.verified.emplace_back(symbolic_of(there) != nullptr ? "symbolic" : "parametric");
    repair.keeps_norms = keeps_norms(*result.scenario->schedule, *repaired->schedule);
    if (!replay_on_host(*repaired, repair)) return false;
    const std::optional<double> before = most_bytes(result), after = most_bytes(there);
    repair.bytes_known = before && after;
    if (repair.bytes_known) repair.added_bytes = *after - *before;
    prove(*repaired, repair);
    return answers_file(result, change, repair);
  } catch (const InputError&) {
    return false;
  } catch (const OverBudget&) {
    // The rest of it is not known.
    return !repair.verified.empty();
  }
}

std::vector<Repair> best_repairs(const CheckResult& result, const RepairSearch& search, std::size_t most,
                                 std::size_t* without_norm) {
  constexpr std::size_t most_at_once = 4;
  struct Verified {
    Repair repair;
    bool strange, idle, restored, alike, stands;
    /// A norm may be lost by an edit that drops no step.
    bool loses_norm() const { return repair.keeps_norms == false && !restored; }
    bool is_whole_restoration() const { return restored && !idle && repair.reach != Repair::Reach::some_sizes; }
  };
  const std::vector<FoundRepair> candidates = distinct_repairs(search.repairs);
  std::vector<Verified> list;
  std::size_t good = 0, next = 0;
  while (good < most && list.size() < 2 * most && next < candidates.size()) {
    // As many as are needed in any case: what comes out does not depend on the machine.
    std::vector<std::future<Verified>> running;
    for (std::size_t left = std::min(most - good, most_at_once); left > 0 && next < candidates.size(); --left) {
      running.push_back(std::async(std::launch::async, [&result, &found = candidates[next++]] {
        Verified one{found.plain(), is_strange(found), found.leaves_idle, is_restored(found), found.is_alike, false};
        one.stands = verify_repair(result, one.repair);
        return one;
      }));
    }
    for (std::future<Verified>& future : running) {
      Verified one = future.get();
      if (one.stands && one.loses_norm() && without_norm != nullptr) ++*without_norm;
      if (!one.stands || one.loses_norm()) continue;
      if (!one.strange && one.repair.reach != Repair::Reach::some_sizes) ++good;
      list.push_back(std::move(one));
    }
  }
  // Where all that was changed has to be taken back for other sizes, a part of it is a repair like others.
  const bool any_whole = std::any_of(list.begin(), list.end(), std::mem_fn(&Verified::is_whole_restoration));
  std::stable_sort(list.begin(), list.end(), [any_whole](const Verified& a, const Verified& b) {
    const auto key = [any_whole](const Verified& one) {
      const bool restores = any_whole ? one.is_whole_restoration() : one.restored && !one.idle;
      return std::tuple(one.strange, !restores, one.repair.reach, one.idle, one.alike);
    };
    return key(a) < key(b);
  });
  if (list.size() > most) list.erase(list.begin() + static_cast<std::ptrdiff_t>(most), list.end());
  std::vector<Repair> best;
  best.reserve(list.size());
  for (Verified& one : list) best.push_back(std::move(one.repair));
  return best;
}

}  // namespace diagnosis

}  // namespace lockstep
