// SPDX-License-Identifier: Apache-2.0
//
// What the optimizers get against what one device would have, who answers for what, and the norm.
#include <algorithm>
#include <set>

#include "src/base/at.h"
#include "src/symbolic/parametric/class_run_state.h"

namespace lockstep::parametric {

/// The levels on which the ranks that compute different contributions differ.
std::vector<int> ClassRun::contributor_levels(int parameter) const {
  const Parameter& site = schedule_.model.parameters()[at(parameter)];
  std::set<int> levels;
  const auto add = [&](Axis axis) {
    for (const int level : world_.levels_of(axis, "")) levels.insert(level);
  };
  for (const Axis axis : {Axis::dp, Axis::cp, Axis::sp}) add(axis);
  for (const Shard& shard : site.shard) add(shard.axis);
  for (const Axis axis : site.partial) add(axis);
  // A dispatched contribution is named by the rank whose tokens it stems from.
  if (!site.dispatch.empty()) {
    for (int level = 0; level < static_cast<int>(world_.levels().size()); ++level) levels.insert(level);
  }
  if (site.stage) {
    levels.erase(world_.pp_level());
  } else if (world_.pp_level() >= 0) {
    levels.insert(world_.pp_level());
  }
  return {levels.begin(), levels.end()};
}

/// The levels that cut the parameter into pieces.
std::vector<int> ClassRun::cut_levels() const {
  std::set<int> levels;
  for (const int parameter : schedule_.model.logicals()[at(members_.logicals.front())].parameters) {
    for (const Shard& shard : schedule_.model.parameters()[at(parameter)].shard) {
      for (const int level : world_.levels_of(shard.axis, "")) levels.insert(level);
    }
  }
  return {levels.begin(), levels.end()};
}

/// 1 where the rank computes the contribution; of the reference: where it is one to the piece that the rank holds.
int ClassRun::contribution_levels_mask(int parameter, bool of_reference) {
  const Parameter& site = schedule_.model.parameters()[at(parameter)];
  std::set<int> dispatched, sharded;
  for (const Axis axis : site.dispatch) {
    for (const int level : world_.levels_of(axis, "")) dispatched.insert(level);
  }
  for (const Shard& shard : site.shard) {
    for (const int level : world_.levels_of(shard.axis, "")) sharded.insert(level);
  }
  std::vector<int> levels;
  for (const int level :
       of_reference ? std::vector<int>(sharded.begin(), sharded.end()) : contributor_levels(parameter)) {
    if (dispatched.count(level) == 0) levels.push_back(level);
  }
  return rank_is_contributor(levels);
}

int ClassRun::loss_weight(const std::string& use, const EvaluationContext& context) {
  Polynomials& polynomials = world_.polynomials();
  const Batch& batch = schedule_.batch;
  const Loss& loss = batch.loss(use);
  const int factor = polynomials.constant(batch.weight(use));
  const int step = context.optimizer_step;
  const int counted =
      context.any_micro_batch || context.micro_batch < 0 ? -1 : batch.first_micro_batch(step) + context.micro_batch;
  const unsigned pieces = bit(Axis::cp) | bit(Axis::sp);
  const auto over = [&](int divisor) {
    const std::optional<int> inverse = polynomials.inverse(divisor);
    return inverse ? polynomials.multiply(factor, *inverse) : 0;
  };
  const int averaged = polynomials.multiply(world_.micro_batches(step), world_.size(Axis::dp, ""));
  switch (loss.kind) {
    case Loss::Kind::sum:
      return factor;
    case Loss::Kind::token_mean:
      return over(world_.tokens(use, bit(Axis::dp) | pieces | all_micro_batches, counted, step));
    case Loss::Kind::local_mean: {
      const int others = polynomials.multiply(world_.size(Axis::cp, ""), world_.size(Axis::sp, ""));
      return over(polynomials.multiply(polynomials.multiply(averaged, others), world_.tokens(use, 0, counted, step)));
    }
    case Loss::Kind::micro_batch_mean:
      return over(polynomials.multiply(averaged, world_.tokens(use, pieces, counted, step)));
    case Loss::Kind::weight:
      break;
  }
  EvaluationContext at = context;
  at.use = use;
  return polynomials.multiply(factor, evaluator_->number(loss.weight, at));
}

/// The coefficient that one device gives this contribution, in the piece that the rank holds.
int ClassRun::reference(const Atom& atom) {
  Diagrams& diagrams = *result_.diagrams;
  const Logical& logical = schedule_.model.logicals()[at(members_.logicals.front())];
  const SiteUse& use = logical.uses[at(atom.site_use)];
  const Parameter& site = schedule_.model.parameters()[at(use.parameter)];
  if (site.frozen) return 0;
  if (site.micro_batches && std::find(site.micro_batches->begin(), site.micro_batches->end(), atom.micro_batch) ==
                                site.micro_batches->end()) {
    if (atom.micro_batch < 0) throw NeedsUnrolling{"", some_micro_batches};
    return 0;
  }
  int mask = contribution_levels_mask(use.parameter, true);
  if (!site.only.empty() && !site.dispatch.empty()) throw OutOfReach("", "a parameter has \"only\" and \"dispatch\"");
  const std::vector<int> own = contributor_levels(use.parameter);
  for (const Parameter::Only& only : site.only) {
    if (only.axis == Axis::pp && site.stage) {
      if (std::find(only.coordinates.begin(), only.coordinates.end(), *site.stage) == only.coordinates.end()) return 0;
      continue;
    }
    const std::vector<int> levels = world_.levels_of(only.axis, "");
    const auto named = std::count_if(levels.begin(), levels.end(),
                                     [&](int level) { return std::find(own.begin(), own.end(), level) != own.end(); });
    if (named == 0) {  // all of these ranks compute the same
      if (only.coordinates.empty()) return 0;
      continue;
    }
    if (named != static_cast<std::ptrdiff_t>(levels.size()))
      throw OutOfReach("", "a parameter has \"only\" on a part of an axis");
    mask = diagrams.multiply(mask, evaluator_->among(std::vector<Parameter::Only>{only}, contributor_name, ""));
  }
  const EvaluationContext context{"", atom.optimizer_step, atom.micro_batch, atom.micro_batch < 0};
  return diagrams.times(mask, loss_weight(use.use, context));
}

void ClassRun::add_cells(Fault fault, int step, int atom, int diagram) {
  constexpr std::size_t most_cells = 200000;
  const auto span_of = [&](const Variable& variable) { return world_.span(variable); };
  result_.diagrams->visit(diagram, fault == Fault::unowned, [&](const Diagrams::Path& path) {
    if (fault == Fault::unowned && !world_.polynomials().signs(path.value, span_of).zero) return true;
    if (result_.cells.size() >= most_cells) throw OutOfReach("", "it is wrong in more ways than are followed");
    result_.cells.push_back({fault, step, atom, path.partitions, path.value});
    ended_ = ended_ || (fault == Fault::race && world_.open().least.empty());
    return true;
  });
}

void ClassRun::find_faults(int step) {
  Diagrams& diagrams = *result_.diagrams;
  const Logical& logical = schedule_.model.logicals()[at(members_.logicals.front())];
  for (int use = 0; use < static_cast<int>(logical.uses.size()); ++use) {
    if (!unrolled_) {
      atom({use, step, -1, "", false});
      continue;
    }
    for (int micro_batch = 0; micro_batch < schedule_.batch.micro_batches(step); ++micro_batch)
      atom({use, step, micro_batch, "", false});
  }
  Values& held = buffer(schedule_.result);
  const int compared = diagrams.multiply(own_, domain_);
  for (std::size_t i = 0; i < result_.atoms.size(); ++i) {
    const Atom own = result_.atoms[i];
    const bool expected = own.leftover.empty() && own.optimizer_step == step;
    const int reference = expected ? this->reference(own) : 0;
    const int differs = diagrams.multiply(compared, diagrams.subtract(value(held, i), reference));
    outcome_.references.push_back(reference);
    outcome_.differs.push_back(differs);
    add_cells(Fault::value, step, static_cast<int>(i), differs);
  }
  result_.handed.push_back({held, own_});
  result_.handed.back().held.resize(result_.atoms.size(), 0);
  find_unowned(step);
  find_norm_faults(step);
}

/// Of the ranks that were joined and hold the same piece on the same stage, somebody must own each element.
void ClassRun::find_unowned(int step) {
  Diagrams& diagrams = *result_.diagrams;
  if (diagrams.multiply(own_, domain_) == domain_) return;
  std::set<int> apart(result_.cut_levels.begin(), result_.cut_levels.end());
  apart.insert(world_.pp_level());
  std::vector<std::pair<int, std::set<int>>> regions = {{domain_, {}}};
  for (const auto& [where, levels] : joined_) {
    std::vector<std::pair<int, std::set<int>>> finer;
    for (const auto& [region, axes] : regions) {
      std::set<int> more = axes;
      more.insert(levels.begin(), levels.end());
      const int inside = diagrams.multiply(region, where),
                outside = diagrams.multiply(region, diagrams.complement(where));
      if (inside != 0) finer.emplace_back(inside, std::move(more));
      if (outside != 0) finer.emplace_back(outside, axes);
    }
    regions = std::move(finer);
  }
  for (const auto& [region, axes] : regions) {
    int count = own_;
    std::vector<int> together;
    for (const int level : axes) {
      if (diagrams.any(region, level) != region)
        throw OutOfReach("", "which ranks answer together for a parameter differs along an axis");
      if (apart.count(level) != 0) continue;
      together.push_back(level);
      count = diagrams.sum(count, level);
    }
    outcome_.families.push_back({region, together, count});
    add_cells(Fault::unowned, step, -1, diagrams.choose(region, count, 1));
  }
}

/// A norm adds up what its ranks own; what they own must be final, and every rank must count each element once.
void ClassRun::norm(const Place& place, int runs) {
  const Step& step = *place.step;
  Diagrams& diagrams = *result_.diagrams;
  const Group group = world_.group(step);
  runs = diagrams.multiply(runs, membership(group));
  if (runs == 0) return;
  if (place.context.any_micro_batch) throw NeedsUnrolling{step.name, "it adds up a norm in every micro-batch"};
  check_uniform(place, runs, group);
  int counted = diagrams.multiply(runs, diagrams.multiply(chosen(step), domain_));
  if (step.count) counted = diagrams.multiply(counted, evaluator_->condition(*step.count, place.context));
  record(place, runs);
  record_.group = group;
  record_.counts = counted;
  if (counted != 0) ++result_.steps;
  check_races(place, runs, counted);
  if (ended_) return keep_record();
  fly(place, runs);
  norms_.push_back({&step, runs, diagrams.multiply(counted, own_), buffer(step.buffer), group});
  record_.norm = summed(diagrams.multiply(norms_.back().counted, rank_is_contributor(result_.cut_levels)), group);
  keep_record();
}

void ClassRun::find_norm_faults(int step) {
  if (norms_.empty()) return;
  Diagrams& diagrams = *result_.diagrams;
  // Here the contributor's name stands for the piece that an element lies in.
  const int holds = rank_is_contributor(result_.cut_levels);
  Values& last = buffer(schedule_.result);
  int total = 0, averaged = 0;
  for (const NormCall& call : norms_) {
    const int here = diagrams.multiply(call.where, summed(diagrams.multiply(call.counted, holds), call.group));
    total = diagrams.add(total, here);
    int early = diagrams.multiply(call.counted, diagrams.complement(own_));
    if (call.step->mean_of_norms && !call.group.single()) {
      averaged = diagrams.either(averaged, diagrams.nonzero(here));
      early = diagrams.either(early, call.counted);
    }
    add_cells(Fault::norm_too_early, step, -1, early);
    Values held = call.held;
    for (std::size_t i = 0; i < result_.atoms.size(); ++i) {
      // What changed by 0 at some size, as by a factor that is 1 there, was not counted too early at this size.
      const int changed = diagrams.multiply(call.counted, diagrams.subtract(value(last, i), value(held, i)));
      add_cells(Fault::norm_too_early, step, static_cast<int>(i), changed);
      early = diagrams.either(early, diagrams.nonzero(changed));
    }
    outcome_.norm_too_early.push_back(early);
  }
  outcome_.has_norm = true;
  outcome_.norm = total;
  add_cells(Fault::norm_averaged, step, -1, averaged);
  add_cells(Fault::norm, step, -1, diagrams.multiply(diagrams.complement(averaged), diagrams.subtract(total, 1)));
}

}  // namespace lockstep::parametric
