// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parametric.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/symbolic/forms.h"
#include "src/symbolic/parametric/evaluation.h"
#include "src/symbolic/parametric/rank_totals.h"
#include "src/symbolic/parametric/samples.h"
#include "src/symbolic/parametric/values.h"

namespace lockstep {

using parametric::Cell;
using parametric::Class;
using parametric::ClassResult;
using parametric::ClassValues;
using parametric::Evaluation;
using parametric::Fault;
using parametric::Open;
using parametric::OutOfReach;
using parametric::Polynomials;
using parametric::RankTotals;
using parametric::run_class;
using parametric::Sample;
using parametric::samples_of;
using parametric::StepSelections;
using parametric::Stretch;
using parametric::Stretches;
using parametric::Variable;
using parametric::Verdicts;
using parametric::World;

namespace {

/// Ranks that are shown of one parameter; tied ones share theirs.
constexpr std::size_t most_samples = 16;
/// That are looked at one by one to tell what every rank owns: a second or two.
constexpr std::int64_t most_stretches = 2'000'000;

bool same(const Term& a, const Term& b) {
  return a.rank == b.rank && a.micro_batch == b.micro_batch && a.site_use == b.site_use && a.leftover == b.leftover &&
         a.foreign == b.foreign && a.logical == b.logical && a.piece == b.piece && a.offset == b.offset &&
         a.coefficient == b.coefficient;
}

/// got/expected, where it is one number.
std::optional<Rational> ratio_of(const std::vector<Term>& got, const std::vector<Term>& expected) {
  if (got.size() != expected.size() || got.empty()) {
    return got.empty() && !expected.empty() ? std::optional<Rational>(0) : std::nullopt;
  }
  const Rational ratio = got.front().coefficient / expected.front().coefficient;
  for (std::size_t i = 0; i < got.size(); ++i) {
    Term scaled = expected[i];
    scaled.coefficient *= ratio;
    if (!same(got[i], scaled)) return std::nullopt;
  }
  return ratio;
}

}  // namespace

struct ParametricEngine::State {
  explicit State(const Schedule& its_schedule) : schedule(its_schedule) {}

  struct FollowedClass {  ///< a class, and what it takes to ask about it
    ClassResult result;
    std::unique_ptr<Evaluation> evaluation;
    std::unique_ptr<Stretches> stretches;
    std::unique_ptr<ClassValues> values;
  };

  void run();
  FollowedClass& class_of(int logical);
  int form(std::vector<Term> terms);
  std::vector<int> wrong_of(FollowedClass& one);
  void sample(FollowedClass& one, ParametricSample& sample);
  std::int64_t counted_like(FollowedClass& one, const Sample& sample, int logical);
  void add(FollowedClass& one, const Sample& sample, int logical, ParametricSample& all);
  const BufferResult& buffer(int rank, int buffer, int optimizer_step);
  BufferResult looked_at(int rank, int buffer, int optimizer_step);
  int expected(FollowedClass& one, int optimizer_step, int logical, int piece,
               const std::vector<parametric::Coordinates>& owners);

  const Schedule& schedule;
  ParametricResult result;
  std::unique_ptr<World> world;
  std::unique_ptr<StepSelections> selections;
  std::vector<FollowedClass> classes;
  std::map<int, std::size_t> class_of_logical;
  std::vector<std::vector<Term>> forms;
  std::unordered_map<std::size_t, std::vector<int>> forms_by_hash;
  // Many faults are of the same buffer, and many ranks have the same reference: by rank, buffer and optimizer step; by
  // optimizer step, logical parameter, piece and owners.
  std::map<std::tuple<int, int, int>, BufferResult> buffers;
  std::map<std::tuple<int, int, int, std::vector<parametric::Coordinates>>, int> references;
};

void ParametricEngine::State::run() {
  world = std::make_unique<World>(schedule, Open{});
  selections = std::make_unique<StepSelections>(*world);
  result.classes = static_cast<int>(selections->classes().size());
  for (const Class& members : selections->classes()) {
    for (const int logical : members.logicals) class_of_logical.emplace(logical, classes.size());
    FollowedClass& one = classes.emplace_back();
    one.result = run_class(*world, *selections, members, false);
    result.operations += one.result.steps;
    result.nodes += one.result.diagrams->nodes();
  }
  Verdicts verdicts(schedule.batch.steps());
  for (FollowedClass& one : classes) {
    const Class& members = *one.result.members;
    one.evaluation = std::make_unique<Evaluation>(*world, *world, one.result, members);
    one.stretches = std::make_unique<Stretches>(*world, *world, one.result);
    one.values = std::make_unique<ClassValues>(*world, one.result, *one.stretches);
    verdicts.add(one.evaluation->first(), members.logicals.front());
  }
  verdicts.write(result);
}

ParametricEngine::State::FollowedClass& ParametricEngine::State::class_of(int logical) {
  const auto found = class_of_logical.find(logical);
  if (found == class_of_logical.end()) throw OutOfReach("", "the parameter is frozen");
  return classes[found->second];
}

int ParametricEngine::State::form(std::vector<Term> terms) {
  std::size_t hash = terms.size();
  for (const Term& term : terms) {
    hash = hash * 0x9E3779B97F4A7C15U + static_cast<std::size_t>(term.rank * 31 + term.micro_batch);
    hash = hash * 0x9E3779B97F4A7C15U + term.coefficient.hash();
  }
  std::vector<int>& candidates = forms_by_hash[hash];
  for (const int candidate : candidates) {
    const std::vector<Term>& other = forms[at(candidate)];
    if (std::equal(terms.begin(), terms.end(), other.begin(), other.end(), same)) return candidate;
  }
  candidates.push_back(static_cast<int>(forms.size()));
  forms.push_back(std::move(terms));
  return candidates.back();
}

const BufferResult& ParametricEngine::State::buffer(int rank, int buffer, int optimizer_step) {
  const std::tuple key(rank, buffer, optimizer_step);
  const auto known = buffers.find(key);
  if (known != buffers.end()) return known->second;
  return buffers.emplace(key, looked_at(rank, buffer, optimizer_step)).first->second;
}

int ParametricEngine::State::expected(FollowedClass& one, int optimizer_step, int logical, int piece,
                                      const std::vector<parametric::Coordinates>& owners) {
  std::tuple key(optimizer_step, logical, piece, owners);
  const auto known = references.find(key);
  if (known != references.end()) return known->second;
  const int found = form(one.values->expected(optimizer_step, logical, piece, owners));
  return references.emplace(std::move(key), found).first->second;
}

BufferResult ParametricEngine::State::looked_at(int rank, int buffer, int optimizer_step) {
  const LocalBuffer& local = schedule.model.local(rank).buffers[at(buffer)];
  FollowedClass& one = class_of(local.logical);
  if (static_cast<std::size_t>(optimizer_step) >= one.result.handed.size())
    throw OutOfReach("", "the optimizer step is not reached");
  BufferResult found;
  found.rank = rank;
  found.buffer = buffer;
  const int piece = world->even(local.logical) ? 0 : local.piece;
  const auto by_owner = [](const Stretch& a, const Stretch& b) { return a.owners < b.owners; };
  std::map<Stretch, PieceResult, decltype(by_owner)> known(by_owner);
  one.stretches->visit(local.logical, piece, [&](const Stretch& stretch) {
    if (!one.values->owned(optimizer_step, rank, stretch.owners)) return;
    found.owned = unite(found.owned, {stretch.elements});
    const auto [place, is_new] = known.emplace(stretch, PieceResult());
    PieceResult& own = place->second;
    if (is_new) {
      const std::vector<Term> got = one.values->held(optimizer_step, rank, buffer, stretch.owners);
      own.form = form(got);
      own.reference = expected(one, optimizer_step, local.logical, local.piece, stretch.owners);
      own.right = own.form == own.reference;
      own.ratio = own.right ? std::optional(Rational(1)) : ratio_of(got, forms[at(own.reference)]);
    }
    own.elements = stretch.elements;
    if (!found.pieces.empty() && found.pieces.back().elements.end == own.elements.begin &&
        found.pieces.back().form == own.form && found.pieces.back().reference == own.reference) {
      found.pieces.back().elements.end = own.elements.end;
    } else {
      found.pieces.push_back(own);
    }
  });
  return found;
}

/// The parameters of a class in which something of it is wrong.
std::vector<int> ParametricEngine::State::wrong_of(FollowedClass& one) {
  std::vector<int> wrong;
  for (const int logical : one.result.members->logicals) {
    for (const Cell& cell : one.result.cells) {
      if (cell.fault == Fault::race || cell.optimizer_step != result.step) continue;
      if (!one.evaluation->applies(cell, logical)) continue;
      wrong.push_back(logical);
      break;
    }
  }
  return wrong;
}

/// How many elements of a parameter without shards the rank counts as it counts those of the sample.
std::int64_t ParametricEngine::State::counted_like(FollowedClass& one, const Sample& sample, int logical) {
  const std::vector<int> coordinates = world->coordinates(sample.rank);
  std::map<std::vector<parametric::Coordinates>, bool> known;
  std::int64_t elements = 0;
  one.stretches->visit(logical, 0, [&](const Stretch& stretch) {
    const auto [place, is_new] = known.try_emplace(stretch.owners, false);
    const Evaluation::Elements here{stretch.owners, parametric::Coordinates(coordinates.size(), -1), coordinates};
    if (is_new) place->second = one.evaluation->tells(*sample.cell, here);
    if (place->second) elements += stretch.elements.size();
  });
  return elements;
}

void ParametricEngine::State::add(FollowedClass& one, const Sample& sample, int logical, ParametricSample& all) {
  const Model& model = schedule.model;
  const auto parameter = [&] {
    return sample.buffer >= 0 ? model.local(sample.rank).buffers[at(sample.buffer)].parameters.front()
                              : model.trained(logical).front();
  };
  switch (sample.cell->fault) {
    case Fault::value:
      all.found.buffers.push_back(buffer(sample.rank, sample.buffer, result.step));
      break;
    case Fault::unowned:
      all.found.unowned.push_back({sample.rank, sample.buffer, {sample.elements}});
      all.found.buffers.push_back(buffer(sample.rank, sample.buffer, result.step));
      break;
    case Fault::norm:
    case Fault::norm_averaged:
    case Fault::norm_too_early: {
      NormResult norm;
      norm.parameter = parameter();
      norm.rank = sample.rank;
      norm.expected = norm.counted = "1";
      norm.of = model.logicals()[at(logical)].numel;
      if (model.pieces(logical).size() == 1)
        norm.elements = one.result.owners.empty() ? norm.of : counted_like(one, sample, logical);
      const Polynomials& polynomials = world->polynomials();
      if (sample.cell->fault == Fault::norm) {
        const Rational more = polynomials.evaluate(sample.cell->value, [&](const Variable& variable) {
          return world->value(variable, world->coordinates(sample.rank), 0);
        });
        norm.counted = (more + Rational(1)).to_string();
      } else if (sample.cell->fault == Fault::norm_averaged) {
        norm.counted = "mean_of_norms";
      }
      all.found.norm.push_back(norm);
      break;
    }
    case Fault::race:
      break;
  }
}

void ParametricEngine::State::sample(FollowedClass& one, ParametricSample& all) {
  const Model& model = schedule.model;
  std::optional<int> shown;
  for (const int logical : wrong_of(one)) {
    const std::vector<int> names = model.trained(logical);
    // One of several names has other names on other ranks.
    if (shown && names.size() == 1 && world->even(logical)) {
      all.like.emplace(names.front(), model.trained(*shown).front());
      continue;
    }
    const auto none_shown = [&](const std::string& why) {
      for (const int name : names) all.not_shown.emplace(name, why);
    };
    const std::size_t before = all.found.buffers.size();
    try {
      const std::vector<Sample> samples = samples_of(*world, one.result, *one.evaluation, *one.stretches, logical,
                                                     result.step, most_samples * names.size());
      for (const Sample& sample : samples) add(one, sample, logical, all);
      if (!samples.empty() && names.size() == 1 && !shown) shown = logical;
      if (samples.empty()) none_shown("no rank of that kind was found");
    } catch (const OutOfReach& limit) {
      none_shown(limit.what());
    } catch (const OverBudget& over) {
      // That it is wrong is known. The ranks whose formulas were written by then are shown.
      if (all.found.buffers.size() == before) none_shown(over.what());
    }
  }
}

ParametricEngine::ParametricEngine(const Schedule& schedule) : state_(std::make_unique<State>(schedule)) {
  try {
    state_->run();
  } catch (const OutOfReach& limit) {
    state_->result.verdict = ParametricResult::Verdict::undecided;
    state_->result.undecided_step = limit.step;
    state_->result.why = limit.what();
  } catch (const OverBudget& over) {
    state_->result.verdict = ParametricResult::Verdict::undecided;
    state_->result.why = over.what();
  }
}

ParametricEngine::~ParametricEngine() = default;

const ParametricResult& ParametricEngine::result() const { return state_->result; }

ParametricSample ParametricEngine::sample() {
  ParametricSample sample;
  sample.found.step = state_->result.step;
  sample.found.match = state_->result.verdict == ParametricResult::Verdict::match;
  if (state_->result.verdict != ParametricResult::Verdict::mismatch) return sample;
  const Budget budget(Budget::run);
  for (State::FollowedClass& one : state_->classes) state_->sample(one, sample);
  const auto order = [](const auto& a, const auto& b) {
    return std::pair(a.rank, a.buffer) < std::pair(b.rank, b.buffer);
  };
  std::vector<BufferResult>& buffers = sample.found.buffers;
  std::stable_sort(buffers.begin(), buffers.end(), order);
  const auto same_buffer = [](const auto& a, const auto& b) { return a.rank == b.rank && a.buffer == b.buffer; };
  buffers.erase(std::unique(buffers.begin(), buffers.end(), same_buffer), buffers.end());
  return sample;
}

BufferResult ParametricEngine::buffer(int rank, int buffer, int optimizer_step) {
  try {
    if (state_->result.verdict == ParametricResult::Verdict::undecided)
      throw OutOfReach(state_->result.undecided_step, state_->result.why);
    return state_->buffer(rank, buffer, optimizer_step);
  } catch (const OutOfReach& limit) {
    throw InputError({Diagnostic{{}, limit.what()}});
  }
}

ParametricRanks ParametricEngine::ranks() {
  const std::size_t world = static_cast<std::size_t>(state_->schedule.mesh.world());
  std::int64_t stretches = most_stretches;
  ParametricRanks ranks{std::vector<bool>(world, false), std::vector<std::int64_t>(world, 0)};
  try {
    const ParametricResult& result = state_->result;
    if (result.verdict != ParametricResult::Verdict::match && result.verdict != ParametricResult::Verdict::mismatch)
      throw OutOfReach(result.undecided_step, "the optimizer step is not reached");
    for (State::FollowedClass& one : state_->classes) {
      if (static_cast<std::size_t>(result.step) >= one.result.handed.size())
        throw OutOfReach("", "the optimizer step is not reached");
      RankTotals totals(*state_->world, one.result, *one.evaluation, *one.stretches, *one.values, result.step);
      for (const int logical : one.result.members->logicals) totals.add(logical, ranks.wrong, ranks.owned, stretches);
    }
  } catch (const OutOfReach& limit) {
    throw InputError({Diagnostic{{}, limit.what()}});
  }
  return ranks;
}

std::vector<Term> ParametricEngine::terms(int form, int, int) const { return state_->forms[at(form)]; }

int ParametricEngine::reference(int logical, int piece, int optimizer_step) {
  try {
    State::FollowedClass& one = state_->class_of(logical);
    const std::vector<Stretch>& stretches = one.stretches->kinds(logical, state_->world->even(logical) ? 0 : piece);
    if (stretches.empty()) return state_->form({});
    return state_->expected(one, optimizer_step, logical, piece, stretches.front().owners);
  } catch (const OutOfReach& limit) {
    throw InputError({Diagnostic{{}, limit.what()}});
  }
}

ParametricResult run_parametric(const Schedule& schedule) { return ParametricEngine(schedule).result(); }

}  // namespace lockstep
