// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/class_run.h"

#include <algorithm>
#include <numeric>

#include "lockstep/local_step.h"
#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/symbolic/parametric/class_run_state.h"

namespace lockstep::parametric {

namespace {

/// Relations of names on one level that are followed; more are out of reach.
constexpr std::size_t most_partitions = 2500;

std::vector<Level> named_levels(const World& world, const Names& names) {
  std::vector<Level> levels = world.levels();
  for (std::size_t i = 0; i < levels.size(); ++i) {
    Level& level = levels[i];
    for (std::size_t owner = 0; owner < names.owners.size(); ++owner) {
      const std::vector<int>& on = names.owners[owner].levels;
      if (std::find(on.begin(), on.end(), static_cast<int>(i)) != on.end())
        level.owners.push_back(static_cast<int>(owner));
    }
    level.constants = names.constants[i];
    const int most_blocks = level.open ? std::min(level.names(), level.most.value_or(level.names())) : level.size;
    level.partitions = Partitions(static_cast<int>(level.owners.size()), static_cast<int>(level.constants.size()),
                                  most_blocks, most_partitions);
    if (level.partitions.size() == 0) {
      throw OutOfReach("", "along " + std::string(name_of(level.axis)) + " it tells apart " +
                               std::to_string(level.names()) + " coordinates, more than are followed");
    }
  }
  return levels;
}

}  // namespace

ClassResult run_class(World& world, const StepSelections& selections, const Class& members, bool record) {
  return run_class(world, selections, members, record, {}, false);
}

ClassResult run_class(World& world, const StepSelections& selections, const Class& members, bool record,
                      const Names& known, bool unrolled) {
  Names names = known;
  names.constants.resize(world.levels().size());
  for (;;) {
    try {
      return ClassRun(world, selections, members, names, unrolled, record).run();
    } catch (const NeedsConstant& need) {
      std::vector<int>& list = names.constants[at(need.level)];
      list.push_back(need.coordinate);
      std::sort(list.begin(), list.end());
    } catch (const NeedsOwner& need) {
      names.owners.push_back(need.owner);
    } catch (const NeedsUnrolling& need) {
      if (world.open().least_micro_batches) throw;  // their number must be given
      unrolled = true;
    }
  }
}

ClassRun::ClassRun(World& world, const StepSelections& selections, const Class& members, const Names& names,
                   bool unrolled, bool record)
    : world_(world),
      schedule_(world.schedule()),
      selections_(selections),
      members_(members),
      unrolled_(unrolled),
      recording_(record) {
  result_.members = &members;
  result_.owners = names.owners;
  result_.names = names;
  result_.unrolled = unrolled;
  result_.diagrams = std::make_unique<Diagrams>(world.polynomials(), named_levels(world, names));
  evaluator_ = std::make_unique<Evaluator>(world, *result_.diagrams);
  const bool everywhere =
      std::none_of(members.sites.begin(), members.sites.end(), [](const auto& sites) { return sites.empty(); });
  if (!everywhere) {
    domain_ = 0;
    for (std::size_t stage = 0; stage < members.sites.size(); ++stage) {
      if (!members.sites[stage].empty()) domain_ = result_.diagrams->either(domain_, is_stage(static_cast<int>(stage)));
    }
  }
  result_.domain = domain_;
  result_.cut_levels = cut_levels();
}

int ClassRun::is_stage(int stage) { return evaluator_->at(Axis::pp, stage, rank_name, ""); }

ClassRun::Values& ClassRun::buffer(const std::string& name) { return buffers_[name]; }

int& ClassRun::value(Values& values, std::size_t atom) {
  if (values.size() <= atom) values.resize(atom + 1, 0);
  return values[atom];
}

int ClassRun::atom(const Atom& wanted) {
  const auto [found, is_new] = atom_numbers_.emplace(wanted, static_cast<int>(result_.atoms.size()));
  if (is_new) result_.atoms.push_back(wanted);
  return found->second;
}

/// The steps of one optimizer step in order; those inside an `each` once, for every micro-batch, or once for each.
std::vector<ClassRun::Place> ClassRun::unroll(int step) const {
  std::vector<Place> places;
  for (const Step& outer : schedule_.steps) {
    if (outer.op != Op::each) {
      places.push_back({&outer, nullptr, {outer.name, step, -1, false}});
      continue;
    }
    const int iterations = unrolled_ ? schedule_.batch.micro_batches(step) : 1;
    for (int micro_batch = 0; micro_batch < iterations; ++micro_batch) {
      for (const Step& inner : outer.steps)
        places.push_back({&inner, &outer, {inner.name, step, micro_batch, !unrolled_}});
    }
  }
  return places;
}

ClassResult ClassRun::run() {
  for (int step = 0; step < schedule_.batch.steps() && !ended_; ++step) optimizer_step(step, unroll(step));
  result_.ended = ended_;
  return std::move(result_);
}

void ClassRun::optimizer_step(int step, const std::vector<Place>& places) {
  Diagrams& diagrams = *result_.diagrams;
  own_ = 1;
  scattered_.clear();
  joined_.clear();
  norms_.clear();
  outcome_ = {};
  outcome_.optimizer_step = step;
  for (const Place& place : places) {
    execute(place);
    if (ended_) return;
  }
  for (const Flight& flight : flights_) {
    outcome_.in_flight = diagrams.either(outcome_.in_flight, flight.where);
    add_cells(Fault::race, step, -1, flight.where);
  }
  if (!ended_) find_faults(step);
  if (recording_) result_.outcomes.push_back(outcome_);
}

/// Ranks on which the step runs, whatever they hold.
int ClassRun::runs(const Place& place) {
  Diagrams& diagrams = *result_.diagrams;
  const auto condition = [&](const Step& step, const EvaluationContext& context) {
    int all = evaluator_->among(step.only, rank_name, step.name);
    if (step.when && all != 0) all = diagrams.multiply(all, evaluator_->condition(*step.when, context));
    return all;
  };
  int all = condition(*place.step, place.context);
  if (place.each != nullptr) {
    const EvaluationContext entry{place.each->name, place.context.optimizer_step, -1, false};
    all = diagrams.multiply(all, condition(*place.each, entry));
  }
  return all;
}

/// Ranks that hold a buffer that the step chooses.
int ClassRun::chosen(const Step& step) {
  const int logical = members_.logicals.front();
  std::vector<int> stages;
  bool all = true;
  for (std::size_t stage = 0; stage < members_.sites.size(); ++stage) {
    if (members_.sites[stage].empty()) continue;
    if (selections_.chooses(step, static_cast<int>(stage), logical)) {
      stages.push_back(static_cast<int>(stage));
    } else {
      all = false;
    }
  }
  if (all) return domain_;
  int some = 0;
  for (const int stage : stages) some = result_.diagrams->either(some, is_stage(stage));
  return some;
}

void ClassRun::execute(const Place& place) {
  const Step& step = *place.step;
  const Operation& row = operation(step.op);
  const Budget::Place budget_place("step", step.name);
  Budget::spend(8);
  Diagrams& diagrams = *result_.diagrams;
  if (step.op == Op::wait) {
    const int where = runs(place);
    for (Flight& flight : flights_) {
      if (flight.step->name == step.wait_for)
        flight.where = diagrams.multiply(flight.where, diagrams.complement(where));
    }
    record(place, where);
    keep_record();
    return;
  }
  if (row.counts) return norm(place, runs(place));
  const int holds = chosen(step);
  if (holds == 0) return;
  if (place.context.any_micro_batch && row.acts() && row.adds != Operation::Adds::gradient) {
    const bool in_some = step.when || (place.each != nullptr && place.each->when);
    throw NeedsUnrolling{step.name, in_some
                                        ? "it acts in some micro-batches and not in others, on what is there by then"
                                        : "it acts in every micro-batch on what earlier ones have left"};
  }
  int where = diagrams.multiply(runs(place), holds);
  if (where == 0) return;
  ++result_.steps;
  if (row.of_a_group()) {
    if (row.acts()) selections_.check_lists(step);
    where = diagrams.multiply(where, membership(world_.group(step)));
    if (where == 0) return;
  }
  record(place, where);
  check_races(place, where, where);
  if (ended_) return keep_record();
  fly(place, where);
  row.of_a_group() ? in_group(place, where) : local(place, where);
  keep_record();
}

void ClassRun::record(const Place& place, int on) {
  record_ = {};
  record_.step = place.step;
  record_.context = place.context;
  record_.on = on;
}

void ClassRun::keep_record() {
  if (!recording_) return;
  record_.buffers = buffers_;
  record_.owned = own_;
  result_.recorded.push_back(record_);
}

void ClassRun::check_races(const Place& place, int where, int touches) {
  const Step& step = *place.step;
  const auto shares = [&](const Step& other) {
    if (!operation(step.op).touches() || !operation(other.op).touches()) return false;
    for (const std::string* name : {&step.buffer, &step.from}) {
      if (!name->empty() && (*name == other.buffer || *name == other.from)) return true;
    }
    return false;
  };
  for (const Flight& flight : flights_) {
    if (flight.step != &step && !shares(*flight.step)) continue;
    const int both = result_.diagrams->multiply(flight.where, flight.step == &step ? where : touches);
    record_.races = result_.diagrams->either(record_.races, both);
    add_cells(Fault::race, place.context.optimizer_step, -1, both);
  }
}

void ClassRun::fly(const Place& place, int where) {
  if (!place.step->async) return;
  if (place.context.any_micro_batch)
    throw NeedsUnrolling{place.step->name, "it is in flight from one micro-batch to the next"};
  flights_.push_back({place.step, where});
}

int ClassRun::rank_is_contributor(const std::vector<int>& levels) {
  int mask = 1;
  for (const int level : levels)
    mask = result_.diagrams->multiply(mask, result_.diagrams->equal(level, rank_name, contributor_name));
  return mask;
}

/// A factor with tokens or coordinates in it is one of the rank's. `values` must be 0 wherever the rank is not where
/// the contributor is on the levels that these depend on; else the factor has no name.
void ClassRun::check_factor(int factor, int values, const Place& place) {
  std::vector<int> levels;
  for (const auto& [monomial, coefficient] : world_.polynomials().terms(factor)) {
    for (const auto& [number, exponent] : monomial) {
      const Variable& variable = world_.polynomials().variable_at(number);
      for (const int level : world_.depends_on(variable)) levels.push_back(level);
    }
  }
  if (levels.empty()) return;
  Diagrams& diagrams = *result_.diagrams;
  if (diagrams.multiply(values, diagrams.complement(rank_is_contributor(levels))) != 0) {
    throw OutOfReach(place.step->name,
                     "it multiplies by " + world_.polynomials().to_string(factor) +
                         ", which differs from rank to rank, what was summed over these ranks before");
  }
}

/// The class's buffers of one name in a local step, for apply_local().
struct ClassRun::LocalChange {
  ClassRun& run;
  const Place& place;
  int where;  ///< ranks that do it, and elements
  Values& target;

  const Step& step() const { return *place.step; }
  Diagrams& diagrams() const { return *run.result_.diagrams; }
  template <class Change>
  void each_atom(const Change& change) {
    for (std::size_t i = 0; i < run.result_.atoms.size(); ++i) {
      int& old = run.value(target, i);
      old = diagrams().choose(where, change(i, old), old);
    }
  }

  void clear() {
    each_atom([](std::size_t, int) { return 0; });
  }
  void multiply() {
    const int by = step().by ? run.evaluator_->number(*step().by, place.context) : 1;
    run.record_.by = by;
    for (std::size_t i = 0; i < run.result_.atoms.size(); ++i)
      run.check_factor(by, diagrams().multiply(where, run.value(target, i)), place);
    each_atom([&](std::size_t, int old) { return diagrams().times(old, by); });
  }
  static void clip() { throw InternalError("a clip is refused before its class runs"); }
  void take_over() {
    Values from = run.buffer(step().from);
    each_atom([&](std::size_t i, int) { return run.value(from, i); });
  }
  void add_buffer() {
    Values from = run.buffer(step().from);
    each_atom([&](std::size_t i, int old) { return diagrams().add(old, run.value(from, i)); });
  }
  void add_gradient() { run.backward(place, where); }
  void add_leftover() {
    const int by = step().by ? run.evaluator_->number(*step().by, place.context) : 1;
    // Equal on all ranks that hold the same elements: where axes cut the parameter, the contributor stands for a piece.
    std::vector<int> levels = run.result_.cut_levels;
    if (step().per_rank) {
      levels.resize(diagrams().levels().size());
      std::iota(levels.begin(), levels.end(), 0);
    }
    const int mask = diagrams().multiply(where, run.rank_is_contributor(levels));
    run.check_factor(by, mask, place);
    const int number = run.atom({0, 0, -1, step().what, step().per_rank});
    run.record_.adds.push_back({number, mask, by});
    int& old = run.value(target, static_cast<std::size_t>(number));
    old = diagrams().add(old, diagrams().times(mask, by));
  }
};

void ClassRun::local(const Place& place, int where) {
  if (place.step->on_owned) where = result_.diagrams->multiply(where, own_);
  LocalChange change{*this, place, where, buffer(place.step->buffer)};
  apply_local(operation(place.step->op), change);
}

void ClassRun::backward(const Place& place, int where) {
  const Step& step = *place.step;
  Diagrams& diagrams = *result_.diagrams;
  Values& target = buffer(step.buffer);
  std::vector<int> done;
  for (const std::vector<int>& sites : members_.sites) {
    for (const int parameter : sites) {
      if (std::find(done.begin(), done.end(), parameter) != done.end()) continue;
      done.push_back(parameter);
      const Parameter& site = schedule_.model.parameters()[at(parameter)];
      if (site.frozen) continue;
      if (site.micro_batches) {
        if (place.context.any_micro_batch) throw NeedsUnrolling{step.name, some_micro_batches};
        const std::vector<int>& takes_part = *site.micro_batches;
        if (std::find(takes_part.begin(), takes_part.end(), place.context.micro_batch) == takes_part.end()) continue;
      }
      int mask = diagrams.multiply(where, contribution_levels_mask(parameter, false));
      mask = diagrams.multiply(mask, evaluator_->among(site.only, rank_name, step.name));
      if (site.stage) mask = diagrams.multiply(mask, is_stage(*site.stage));
      for (const std::string& use : site.uses) {
        if (!step.uses.empty() && std::find(step.uses.begin(), step.uses.end(), use) == step.uses.end()) continue;
        EvaluationContext context = place.context;
        context.use = use;
        const int by = step.by ? evaluator_->number(*step.by, context) : 1;
        if (site.dispatch.empty()) check_factor(by, mask, place);
        // Where it is 0 the scenario is refused, and nobody knows here at which sizes.
        if (step.by && mask != 0 && evaluator_->signs(by, context).zero) {
          throw OutOfReach(step.name, "\"by\" is " + world_.polynomials().to_string(by) +
                                          ", which may be 0, and a backward cannot be multiplied by 0");
        }
        const int micro_batch = place.context.any_micro_batch ? -1 : place.context.micro_batch;
        const Atom own{schedule_.model.site_use(parameter, use), place.context.optimizer_step, micro_batch, "", false};
        const int number = atom(own);
        record_.adds.push_back({number, mask, by});
        int& old = value(target, static_cast<std::size_t>(number));
        old = diagrams.add(old, diagrams.times(mask, by));
        int& factor = value(result_.factors, static_cast<std::size_t>(atom(own)));
        factor = diagrams.choose(mask, diagrams.constant(by), factor);
      }
    }
  }
}

}  // namespace lockstep::parametric
