// SPDX-License-Identifier: Apache-2.0
//
// Two scenarios for all sizes: both go through each case together, class by class, and what they hand over is compared.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "lockstep/operation.h"
#include "lockstep/prove.h"
#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/symbolic/parametric/compare_classes.h"
#include "src/symbolic/parametric/counterexample.h"
#include "src/symbolic/parametric/find_cases.h"
#include "src/symbolic/parametric/names_seen.h"
#include "src/symbolic/parametric/stages_seen.h"

namespace lockstep {

using parametric::Case;
using parametric::check_levels;
using parametric::Class;
using parametric::ClassResult;
using parametric::compare_classes;
using parametric::for_each_case;
using parametric::Layouts;
using parametric::NeedsUnrolling;
using parametric::Open;
using parametric::OutOfReach;
using parametric::Reason;
using parametric::reasons_of;
using parametric::Representative;
using parametric::StagesSeen;
using parametric::statement_of;
using parametric::steps_text;
using parametric::StepSelections;
using parametric::World;

namespace {

std::string placement(const Model& model, int logical) {
  std::string text;
  for (const int number : model.logicals()[at(logical)].parameters) {
    const Parameter& site = model.parameters()[at(number)];
    text += site.name + (site.frozen ? "!" : "") + (site.stage ? std::to_string(*site.stage) : "*");
    for (const std::int64_t extent : site.shape) text += "x" + std::to_string(extent);
    for (const std::string& use : site.uses) text += "," + use;
    for (const Shard& shard : site.shard) text += fmt::format("|s{}{}{}", name_of(shard.axis), shard.dim, shard.uneven);
    for (const Axis axis : site.partial) text += fmt::format("|p{}", name_of(axis));
    for (const Axis axis : site.dispatch) text += fmt::format("|d{}", name_of(axis));
    for (const Parameter::Only& only : site.only)
      text += fmt::format("|o{}{}", name_of(only.axis), only.coordinates.size());
  }
  return text;
}

/// A schedule at one layout, entered for a case.
struct Side {
  Side(std::shared_ptr<const Scenario> the_scenario, const Open& open,
       std::shared_ptr<StepSelections::Contents> contents, const std::string& name)
      : scenario(std::move(the_scenario)),
        world(std::make_unique<World>(*scenario->schedule, open)),
        selections(std::make_unique<StepSelections>(*world, std::move(contents), name)) {
    parametric::require_decided(scenario->decided_conditions, *world);
  }
  std::shared_ptr<const Scenario> scenario;
  std::unique_ptr<World> world;
  std::unique_ptr<StepSelections> selections;
  const Model& model() const { return scenario->schedule->model; }
  const Logical& logical(int number) const { return model().logicals()[at(number)]; }
};

bool takes_norm(const std::vector<Step>& steps) {
  return std::any_of(steps.begin(), steps.end(),
                     [](const Step& step) { return operation(step.op).counts || takes_norm(step.steps); });
}

/// How the tokens of the uses are given; "main"'s alone where the others have the same.
Json tokens_of(const Scenario& scenario) {
  const Json* batch = scenario.resolved.find("batch");
  const Json* tokens = batch == nullptr ? nullptr : batch->find("tokens");
  if (tokens == nullptr) return Json::string("uneven");
  if (!tokens->is_object()) return *tokens;
  const Json* of_main = tokens->find("main");
  const Json main = of_main == nullptr ? Json::string("uneven") : *of_main;
  const auto same = [&](const Json::Member& member) { return member.value.same_as(main); };
  return std::all_of(tokens->members().begin(), tokens->members().end(), same) ? main : *tokens;
}

/// Whether the uses have the same tokens, however files say it: a list of one micro-batch that is used again is one of
/// all of them, one of ones is "even", and what one use has may be written for the other uses too.
bool same_tokens(const Side& before, const Side& after) {
  if (tokens_of(*before.scenario).same_as(tokens_of(*after.scenario))) return true;
  const Batch &one = before.scenario->schedule->batch, &other = after.scenario->schedule->batch;
  const Mesh& mesh = before.scenario->schedule->mesh;
  const int micro_batches = std::max(one.total_micro_batches(), other.total_micro_batches());
  const auto same_list = [&](const TokenTable& mine, const TokenTable& theirs) {
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      for (int dp = 0; dp < mesh.size(Axis::dp); ++dp) {
        for (int cp = 0; cp < mesh.size(Axis::cp); ++cp) {
          for (int sp = 0; sp < mesh.size(Axis::sp); ++sp) {
            if (mine.at(micro_batch, dp, cp, sp) != theirs.at(micro_batch, dp, cp, sp)) return false;
          }
        }
      }
    }
    return true;
  };
  const auto same_entry = [&](const auto& mine, const auto& theirs) {
    if (mine.first != theirs.first) return false;
    if (before.world->are_even(mine.first) && after.world->are_even(theirs.first)) return true;
    if (mine.second.kind != theirs.second.kind) return false;
    return mine.second.kind != Batch::Tokens::Kind::list || same_list(mine.second.list, theirs.second.list);
  };
  return std::equal(one.tokens_of_use.begin(), one.tokens_of_use.end(), other.tokens_of_use.begin(),
                    other.tokens_of_use.end(), same_entry);
}

/// "uneven" stands for any numbers.
bool leaves_tokens_open(const Scenario& scenario) {
  const auto& tokens = scenario.schedule->batch.tokens_of_use;
  return tokens.count("main") == 0 || std::any_of(tokens.begin(), tokens.end(), [](const auto& entry) {
           return entry.second.kind == Batch::Tokens::Kind::uneven;
         });
}

constexpr const char* other_parameters = "the two have other parameters, or place them otherwise";

/// The parameters that go through the schedule.
std::vector<int> held(const Side& side) {
  std::vector<int> all;
  for (const Class& members : side.selections->classes())
    all.insert(all.end(), members.logicals.begin(), members.logicals.end());
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

struct SameProver::State {
  State(const Scenario& before, const Scenario& after) : old_layouts(before), new_layouts(after) {
    try {
      const Budget budget(Budget::proof, Budget::memory_of_a_proof);
      find();
    } catch (const OverBudget& over) {
      // What was found in the cases before stands.
      cases.emplace_back().limit = Proof::Limit{"", "", over.what()};
    }
    conclude();
  }

  void find() {
    for (;;) {
      const std::optional<std::string> old_why = old_layouts.enter(), new_why = new_layouts.enter();
      if (old_why || new_why) {
        proof.limits.push_back({"", "", old_why ? *old_why : *new_why});
        break;
      }
      if (!find_open()) break;
      try {
        cases.clear();
        find_refused();
        for_each_case({{&old_layouts, &new_layouts}, proof.axes, proof.micro_batches, base}, cases,
                      [&](Case& one, const std::vector<Sizes>& sizes) { enter(one, sizes); });
        break;
      } catch (const NeedsUnrolling& need) {
        old_layouts.give_micro_batches(need.step, need.why);
        new_layouts.give_micro_batches(need.step, need.why);
      }
    }
  }

  /// The axes that are open in both; whether the others agree.
  bool find_open() {
    base = old_layouts.base();
    proof.axes.clear();
    proof.micro_batches = old_layouts.micro_batches() && new_layouts.micro_batches();
    const Sizes& other = new_layouts.base();
    for (const auto& [axis, size] : other.axes) {
      const auto is_open = [&, open = axis](const Layouts& layouts) {
        return std::find(layouts.axes().begin(), layouts.axes().end(), open) != layouts.axes().end();
      };
      const bool old_open = is_open(old_layouts), new_open = is_open(new_layouts);
      if (base.axes.count(axis) == 0 || (!old_open && !new_open && base.axes.at(axis) != size)) {
        proof.limits.push_back({"", "", "the two are not over the same axes"});
        return false;
      }
      if (old_open && new_open)
        proof.axes.push_back(axis);
      else if (old_open)
        base.axes[axis] = size;
    }
    if (base.axes.size() == other.axes.size()) return true;
    proof.limits.push_back({"", "", "the two are not over the same axes"});
    return false;
  }

  /// The smallest size of each axis that one of them refuses: the statement does not speak of it.
  void find_refused() {
    proof.refused.clear();
    for (const auto& [layouts, of] : {std::pair(&old_layouts, "old"), {&new_layouts, "new"}}) {
      for (const Proof::Refused& one : layouts->refused()) {
        const bool open = std::find(proof.axes.begin(), proof.axes.end(), one.axis) != proof.axes.end();
        const bool known = std::any_of(proof.refused.begin(), proof.refused.end(), [&](const auto& other) {
          const int smallest = other.refused.sizes.front();
          return other.refused.axis == one.axis &&
                 (smallest < one.sizes.front() || (smallest == one.sizes.front() && other.side == of));
        });
        if (open && !known) proof.refused.push_back({of, one});
      }
    }
  }

  void enter(Case& one, const std::vector<Sizes>& sizes_of_case) {
    parametric::take_as_far_as_can_be(one, [&] {
      std::map<std::string, const Class*> known;
      StagesSeen stages;
      parametric::NamesSeen old_names, new_names;
      for (const Sizes& sizes : sizes_of_case) {
        const auto old_scenario = old_layouts.read(sizes), new_scenario = new_layouts.read(sizes);
        const bool seen =
            std::any_of(one.representatives.begin(), one.representatives.end(),
                        [&](const Representative& representative) { return representative.sizes == sizes; });
        if (!old_scenario || !new_scenario || seen) continue;
        const std::string steps = steps_text(*old_scenario) + steps_text(*new_scenario);
        if (one.representatives.empty()) steps_of_case = steps;
        if (steps != steps_of_case) {
          throw OutOfReach("", fmt::format("a schedule has other steps at {} than at {}", lockstep::describe(sizes),
                                           lockstep::describe(one.representatives.front().sizes)));
        }
        Open open;
        open.least = one.least;
        open.most = one.most;
        open.least_micro_batches = one.least_micro_batches;
        open.most_micro_batches = one.most_micro_batches;
        open.for_every_size = true;
        const auto contents = std::make_shared<StepSelections::Contents>();
        Side before(old_scenario, open, contents, " in the old one"),
            after(new_scenario, open, contents, " in the new one");
        if (old_scenario->preset && one.least.contains(Axis::pp))
          stages.add({before.selections.get(), after.selections.get()});
        old_names.add(old_scenario->schedule);
        new_names.add(new_scenario->schedule);
        compare(std::move(before), std::move(after), one, sizes, known);
      }
      old_names.require_all();
      new_names.require_all();
      stages.require_all(old_layouts);
    });
  }

  void compare(Side before, Side after, Case& one, const Sizes& sizes, std::map<std::string, const Class*>& known) {
    check_levels(*before.world, *after.world);
    if (!same_tokens(before, after))
      throw OutOfReach("", leaves_tokens_open(*before.scenario) != leaves_tokens_open(*after.scenario)
                               ? "one of them leaves the numbers of tokens open, and the other gives them"
                               : "the two have other numbers of tokens");
    if (takes_norm(before.scenario->schedule->steps) != takes_norm(after.scenario->schedule->steps))
      throw OutOfReach("", "one of them takes a gradient norm, and the other does not");
    std::map<std::string, int> others;
    for (const int logical : held(after)) others[after.logical(logical).name] = logical;
    Representative representative;
    const std::vector<int> own = held(before);
    if (own.size() != others.size()) throw OutOfReach("", other_parameters);
    for (const int logical : own) {
      const auto found = others.find(before.logical(logical).name);
      if (found == others.end() || placement(before.model(), logical) != placement(after.model(), found->second))
        throw OutOfReach("", other_parameters);
      // Pairs that behave alike in both, and whose cuts are one in both for the same steps, are compared once.
      std::map<std::string, int> cut_numbers;
      Class& members = pairs.emplace_back(before.selections->alone(logical, cut_numbers));
      const Class other = after.selections->alone(found->second, cut_numbers);
      std::string key = members.key + " against " + other.key;
      if (!before.world->even(logical)) key += " uneven";
      const auto [alike, is_new] = known.emplace(std::move(key), &members);
      names_of[alike->second].insert(before.logical(logical).name);
      if (!is_new) {
        pairs.pop_back();
        continue;
      }
      ClassResult result =
          compare_classes({*before.world, *before.selections}, members, {*after.world, *after.selections}, other);
      result.members = &members;
      representative.results.push_back(std::move(result));
    }
    representative.sizes = sizes;
    representative.scenario = before.scenario;
    representative.world = std::move(before.world);
    representative.selections = std::move(before.selections);
    one.representatives.push_back(std::move(representative));
  }

  void conclude() {
    std::set<std::string> names;
    const bool whole = !proof.limits.empty();
    for (const Layouts* layouts : {&old_layouts, &new_layouts}) {
      for (const Proof::Limit& limit : layouts->limits()) proof.limits.push_back(limit);
    }
    for (const Case& one : cases) {
      if (one.limit) proof.limits.push_back(*one.limit);
      for (const Reason& reason : reasons_of(one)) reasons.push_back(reason);
      for (const Representative& representative : one.representatives) {
        for (const ClassResult& result : representative.results) {
          if (!result.cells.empty()) names.merge(std::set<std::string>(names_of[result.members]));
        }
      }
    }
    proof.parameters.assign(names.begin(), names.end());
    if (!reasons.empty()) {
      proof.verdict = SameProof::Verdict::other;
      proof.statement = statement_of(cases, reasons, proof.axes, proof.micro_batches,
                                     {"the same gradients", "other gradients", "a cut gives"});
      if (!proof.limits.empty()) proof.statement += ", of the sizes that could be followed";
    } else if (proof.limits.empty()) {
      proof.verdict = SameProof::Verdict::same;
      proof.statement = "the same gradients";
    } else {
      proof.statement = whole || proof.limits.size() == cases.size()
                            ? "no answer"
                            : "the same gradients where both could be followed";
    }
    std::vector<Proof::Kept> kept = old_layouts.kept();
    kept.insert(kept.end(), new_layouts.kept().begin(), new_layouts.kept().end());
    proof.statement += parametric::sizes_kept(kept);
    const auto refuses_more = [](const Layouts& layouts) {
      std::vector<Proof::Limit> unwritten;
      return !layouts.refused_together().empty() || !layouts.unlisted_rules(unwritten).empty() || !unwritten.empty();
    };
    const bool refuses = !proof.refused.empty() || refuses_more(old_layouts) || refuses_more(new_layouts);
    if (refuses && proof.verdict != SameProof::Verdict::undecided) proof.statement += ", of the sizes that both allow";
  }

  Layouts old_layouts, new_layouts;
  Sizes base;
  SameProof proof;
  std::string steps_of_case;
  std::deque<Class> pairs;
  std::map<const Class*, std::set<std::string>> names_of;  ///< of parameters that behave as the pair does
  std::vector<Case> cases;
  std::vector<Reason> reasons;
};

SameProver::SameProver(const Scenario& before, const Scenario& after)
    : state_(std::make_unique<State>(before, after)) {}
SameProver::~SameProver() = default;

const SameProof& SameProver::proof() const { return state_->proof; }

std::optional<SameProof::Pair> SameProver::at(const Sizes& sizes) const {
  Sizes all = state_->base;
  for (const auto& [axis, size] : sizes.axes) all.axes[axis] = size;
  if (sizes.micro_batches) all.micro_batches = sizes.micro_batches;
  SameProof::Pair pair{all, state_->old_layouts.read(all), state_->new_layouts.read(all)};
  if (!pair.before || !pair.after) return std::nullopt;
  return pair;
}

void SameProver::each_suspect(const std::function<bool(const SameProof::Pair&)>& visit) const {
  const State& state = *state_;
  parametric::each_suspect(state.reasons, state.base, state.proof.axes, state.proof.micro_batches,
                           [&](const Sizes& sizes) {
                             SameProof::Pair pair{sizes, state.old_layouts.read(sizes), state.new_layouts.read(sizes)};
                             return !pair.before || !pair.after || visit(pair);
                           });
}

}  // namespace lockstep
