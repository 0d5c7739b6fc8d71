// SPDX-License-Identifier: Apache-2.0
#include "src/live/scheduled_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/base/budget.h"
#include "src/live/scenario_alignment.h"
#include "src/symbolic/formula_names.h"

namespace lockstep::live {

namespace {

constexpr std::int64_t most_runs = 1 << 20;
/// In ComparedTerm::number: nothing in the scenario is this contribution of the code's.
constexpr int not_in_scenario = -2;
/// What a buffer of the scenario held before, which no backward has yielded.
constexpr int left_over = -3;

}  // namespace

std::optional<std::vector<BoxRun>> runs_of_box(const std::vector<std::int64_t>& shape, const std::vector<Interval>& box,
                                               const Interval& part) {
  // A run spans the last dimension that the box has not whole, and all behind it.
  std::size_t last = shape.size();
  std::int64_t length = 1;
  while (last-- > 0) {
    length *= box[last].size();
    if (box[last].size() != shape[last]) break;
  }
  if (last > shape.size()) last = 0;  // it has all of them whole
  std::vector<BoxRun> runs;
  if (length == 0 || part.empty()) return runs;
  const std::int64_t first = part.begin / length, end = (part.end + length - 1) / length;
  if (end - first > most_runs) return std::nullopt;
  Budget::spend(1 + (end - first) / 4);
  for (std::int64_t number = first; number < end; ++number) {
    std::int64_t index = 0, stride = 1, left = number;
    for (std::size_t dim = shape.size(); dim-- > 0;) {
      std::int64_t place = box[dim].begin;
      if (dim < last) {
        place += left % box[dim].size();
        left /= box[dim].size();
      }
      index += place * stride;
      stride *= shape[dim];
    }
    const Interval own = intersect({number * length, (number + 1) * length}, part);
    runs.push_back({own, index + own.begin - number * length});
  }
  return runs;
}

namespace {

/// "a.0/2 + a.1/2".
std::string formula_of_leftovers(const std::vector<Term>& terms) {
  std::string text;
  for (const Term& term : terms) {
    const Rational& coefficient = term.coefficient;
    const Rational size = coefficient.is_negative() ? -coefficient : coefficient;
    text += text.empty() ? (coefficient.is_negative() ? "-" : "") : coefficient.is_negative() ? " - " : " + ";
    if (!size.numerator().is_one()) text += size.numerator().to_string() + "*";
    text += fmt::format("{}.{}", formula::quoted_unless_plain(term.leftover), term.rank);
    if (!size.denominator().is_one()) text += "/" + size.denominator().to_string();
  }
  return text.empty() ? "0" : text;
}

}  // namespace

ScheduledSide::ScheduledSide(const Scenario& scenario, const std::map<std::string, int>& logical_of,
                             const std::vector<int>& steps, std::optional<CapturedLoss> loss, ComparedSums& sums)
    : schedule_(*scenario.schedule),
      logical_of_(logical_of),
      run_steps_(steps),
      loss_(loss == CapturedLoss::sum ? std::nullopt : loss),
      sums_(sums),
      timeline_(walk(schedule_)),
      replayed_(diagnosis::replay_handed_over(schedule_, timeline_)),
      contributions_(schedule_),
      apart_(held_apart(schedule_.model)) {}

int ScheduledSide::buffer_of(int rank, int logical) const {
  const Model& model = schedule_.model;
  return apart_[at(logical)] != 0 ? model.buffer_of(rank, logical) : model.buffer_of_copy(rank, logical);
}

int ScheduledSide::step_of(int micro_batch) const {
  int step = 0;
  while (step + 1 < schedule_.batch.steps() && schedule_.batch.first_micro_batch(step + 1) <= micro_batch) ++step;
  return step;
}

std::optional<Rational> ScheduledSide::loss_factor(int source, int step, int micro_batch, int logical,
                                                   int site_use) const {
  if (!loss_) return std::nullopt;
  return loss_factor(source, step, micro_batch, schedule_.model.logicals()[at(logical)].uses[at(site_use)].use);
}

Rational ScheduledSide::loss_factor(int source, int step, int micro_batch, const std::string& use) const {
  if (*loss_ == CapturedLoss::token_sum) return Rational(1);
  const Mesh& mesh = schedule_.mesh;
  const std::int64_t tokens = schedule_.batch.tokens(
      use, schedule_.batch.first_micro_batch(step) + micro_batch, mesh.coordinate(source, Axis::dp),
      mesh.coordinate(source, Axis::cp), mesh.coordinate(source, Axis::sp));
  const Rational mean = Rational(1) / Rational(std::max<std::int64_t>(tokens, 1));
  return *loss_ == CapturedLoss::token_mean ? mean : mean / Rational(schedule_.batch.micro_batches(step));
}

Rational ScheduledSide::by(int source, int step, int micro_batch, int logical, int site_use) const {
  Term term;
  term.rank = source;
  term.micro_batch = schedule_.batch.first_micro_batch(step) + micro_batch;
  term.logical = logical;
  term.site_use = site_use;
  return replayed_.engine->by(term);
}

Rational ScheduledSide::scaled(const Rational& coefficient, bool of_schedule, int source, int step, int micro_batch,
                               int logical, int site_use) {
  const std::optional<Rational> factor = loss_factor(source, step, micro_batch, logical, site_use);
  const Rational own = by(source, step, micro_batch, logical, site_use);
  scales_ = scales_ || (of_schedule && !own.is_one());
  if (!factor) return coefficient;
  plain_ = plain_ || own != *factor;
  return coefficient * (of_schedule ? own : *factor);
}

/// Sums that have counted the loss are written without it where the scenario's `backward` multiplies as it does.
Rational ScheduledSide::written(const ComparedTerm& term) const {
  const Batch& batch = schedule_.batch;
  if (!loss_ || term.number == left_over) return term.coefficient;
  if (term.number == not_in_scenario) {
    const bool counts = plain_ && term.step < batch.steps() && term.micro_batch < batch.micro_batches(term.step);
    return counts ? term.coefficient * loss_factor(term.rank, term.step, term.micro_batch, "main") : term.coefficient;
  }
  if (plain_) return term.coefficient;
  const std::vector<Logical>& logicals = schedule_.model.logicals();
  const auto of =
      std::find_if(logicals.begin(), logicals.end(), [&](const Logical& one) { return one.name == term.parameter; });
  return term.coefficient /
         by(term.rank, term.step, term.micro_batch, static_cast<int>(of - logicals.begin()), term.number);
}

std::vector<ReadStretch> ScheduledSide::read(int logical, int step) {
  std::vector<ReadStretch> all;
  const Model& model = schedule_.model;
  for (int rank = 0; rank < schedule_.mesh.world(); ++rank) {
    const int buffer = buffer_of(rank, logical);
    if (buffer < 0) continue;
    const LocalBuffer& local = model.local(rank).buffers[at(buffer)];
    const Piece& piece = model.pieces(local.logical)[at(local.piece)];
    for (const SymbolicEngine::Content& content : replayed_.steps[at(step)].pieces[at(rank)][at(buffer)]) {
      const std::vector<std::int64_t>& shape = model.logicals()[at(logical)].shape;
      const auto runs = runs_of_box(shape, piece.dims, content.elements);
      if (!runs) {
        all.push_back({content.elements, unknown("it is cut into so many rows that they are not compared"), rank});
        continue;
      }
      const std::vector<Term> terms = replayed_.engine->terms(content.form, rank, buffer);
      const bool same_for_all = std::none_of(terms.begin(), terms.end(), [](const Term& one) { return one.foreign; });
      std::optional<int> of_all;
      for (const BoxRun& run : *runs) {
        const int sum = of_all ? *of_all : sum_of(terms, logical, local.piece, run);
        if (same_for_all) of_all = sum;
        const Interval elements{run.begin, run.begin + run.own.size()};
        if (!all.empty() && all.back().rank == rank && all.back().sum == sum &&
            all.back().elements.end == elements.begin)
          all.back().elements.end = elements.end;
        else
          all.push_back({elements, sum, rank});
      }
    }
  }
  return all;
}

int ScheduledSide::sum_of(const std::vector<Term>& terms, int logical, int piece, const BoxRun& run) {
  std::vector<ComparedTerm> sum;
  const Model& model = schedule_.model;
  for (const Term& term : terms) {
    if (!term.clips.empty())
      return unknown("the scenario's optimizers get it clipped, and what the code clips is looked at before that");
    const int own = model.original(logical);
    if (!term.leftover.empty()) {
      sum.push_back({"\"" + term.leftover + "\"", step_of(std::max(term.micro_batch, 0)), term.rank, 0, left_over, 0,
                     term.coefficient});
      continue;
    }
    const int step = step_of(term.micro_batch), source = term.foreign ? term.logical : own;
    const int micro_batch = term.micro_batch - schedule_.batch.first_micro_batch(step);
    std::int64_t move = 0;
    if (term.foreign) {
      const auto distance = [&](std::int64_t element) {
        return model.global_index(term.logical, term.piece, element + term.offset) -
               model.global_index(logical, piece, element);
      };
      move = distance(run.own.begin);
      if (move != distance(run.own.end - 1))
        return unknown("its elements are sums of elements of other boxes, which are not compared");
    }
    sum.push_back({model.logicals()[at(source)].name, step, term.rank, micro_batch, term.site_use, move,
                   scaled(term.coefficient, true, term.rank, step, micro_batch, source, term.site_use)});
  }
  return sums_.number(std::move(sum));
}

int ScheduledSide::of_code(const std::vector<ComparedTerm>& terms) {
  std::map<ComparedTerm, Rational> sum;  // the coefficients of keys are 0
  const auto add = [&](ComparedTerm key, const Rational& coefficient) {
    key.coefficient = Rational(0);
    const auto [place, is_new] = sum.try_emplace(std::move(key), coefficient);
    if (!is_new) place->second = place->second + coefficient;
  };
  for (const ComparedTerm& term : terms) {
    const auto known = logical_of_.find(term.parameter);
    const auto at_step = std::find(run_steps_.begin(), run_steps_.end(), term.step);
    const int step = static_cast<int>(at_step - run_steps_.begin());
    const int logical = known == logical_of_.end() ? -1 : known->second;
    const int buffer = logical < 0 ? -1 : buffer_of(term.rank, logical);
    const int own = logical < 0 ? -1 : schedule_.model.original(logical);  // in whose name copies get gradients
    std::vector<Contribution> yielded;
    // What a part of a backward alone comes to the scenario does not tell apart.
    if (buffer >= 0 && term.number < 0 && at_step != run_steps_.end() && step < schedule_.batch.steps())
      yielded = contributions_.of(term.rank, buffer, step, term.micro_batch, {});
    for (const Contribution& one : yielded)
      add({schedule_.model.logicals()[at(own)].name, step, one.source, term.micro_batch, one.site_use, term.move,
           Rational(0)},
          scaled(term.coefficient, false, one.source, step, term.micro_batch, own, one.site_use));
    if (yielded.empty())
      add({term.parameter, step, term.rank, term.micro_batch, not_in_scenario, term.move, Rational(0)},
          term.coefficient);
  }
  std::vector<ComparedTerm> all;
  for (const auto& [key, coefficient] : sum) {
    if (coefficient.is_zero()) continue;
    all.push_back(key);
    all.back().coefficient = coefficient;
  }
  return sums_.number(std::move(all));
}

int ScheduledSide::unknown(const std::string& reason) {
  const auto [found, is_new] = reason_numbers_.try_emplace(reason, -2 - static_cast<int>(reasons_.size()));
  if (is_new) reasons_.push_back(reason);
  return found->second;
}

std::string ScheduledSide::formula(int sum, int logical, int rank, int step) const {
  const Model& model = schedule_.model;
  for (int other = 0; model.buffer_of_copy(rank, logical) < 0 && other < schedule_.mesh.world(); ++other) {
    if (model.buffer_of_copy(other, logical) >= 0) rank = other;
  }
  const int buffer = model.buffer_of_copy(rank, logical);
  const std::string& name = model.logicals()[at(model.original(logical))].name;
  std::vector<Term> terms, others;
  for (const ComparedTerm& one : sums_.terms(sum)) {
    Term term;
    term.rank = one.rank;
    term.coefficient = written(one);
    if (one.parameter == name && one.move == 0 && one.number >= 0) {
      term.micro_batch = schedule_.batch.first_micro_batch(one.step) + one.micro_batch;
      term.site_use = one.number;
      term.logical = model.original(logical);
      terms.push_back(std::move(term));
      continue;
    }
    term.leftover = one.parameter;
    if (one.move != 0) term.leftover += fmt::format("{:+}", one.move);
    if (one.step != step) term.leftover += fmt::format(" of optimizer step {}", one.step);
    if (one.micro_batch != 0) term.leftover += fmt::format(" of micro-batch {}", one.micro_batch);
    others.push_back(std::move(term));
  }
  if (buffer < 0) return formula_of_leftovers(others);  // it is frozen in the scenario
  const LocalBuffer& local = model.local(rank).buffers[at(buffer)];
  std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) {
    return std::tie(a.rank, a.micro_batch, a.site_use) < std::tie(b.rank, b.micro_batch, b.site_use);
  });
  terms.insert(terms.end(), others.begin(), others.end());
  return print_formula(schedule_, rank, buffer, terms,
                       reference_terms(schedule_, model.original(logical), local.piece, step));
}

std::vector<std::string> ScheduledSide::step_names(int logical, int rank, int step) const {
  std::vector<std::string> names;
  const int buffer = buffer_of(rank, logical);
  if (buffer < 0) return names;
  for (const lockstep::Event& event : timeline_.events) {
    if (event.op == Op::zero || event.op == Op::norm || event.op == Op::wait) continue;
    for (const Call& call : event.calls) {
      if (call.rank != rank || call.optimizer_step != step || call.buffers == nullptr) continue;
      if (!std::binary_search(call.buffers->begin(), call.buffers->end(), buffer)) continue;
      if (std::find(names.begin(), names.end(), call.step->name) == names.end()) names.push_back(call.step->name);
    }
  }
  return names;
}

std::vector<std::pair<int, int>> ScheduledSide::contributors(int logical, int step) const {
  std::vector<std::pair<int, int>> all;
  for (int rank = 0; rank < schedule_.mesh.world(); ++rank) {
    const int buffer = buffer_of(rank, logical);
    for (int micro = 0; buffer >= 0 && micro < schedule_.batch.micro_batches(step); ++micro) {
      if (!contributions_.of(rank, buffer, step, micro, {}).empty()) all.emplace_back(rank, micro);
    }
  }
  return all;
}

std::optional<bool> ScheduledSide::one_gradient(int logical, int rank, int other) const {
  const Model& model = schedule_.model;
  const int own = buffer_of(rank, logical), theirs = buffer_of(other, logical);
  if (own < 0 || theirs < 0 || model.local(rank).buffers[at(own)].piece != model.local(other).buffers[at(theirs)].piece)
    return std::nullopt;
  std::set<int> sources;
  for (const auto& [who, buffer] : {std::pair(rank, own), std::pair(other, theirs)}) {
    const std::vector<Contribution> yielded = contributions_.of(who, buffer, 0, 0, {});
    if (yielded.empty()) return std::nullopt;
    sources.insert(yielded.front().source);
  }
  return sources.size() == 1;
}

}  // namespace lockstep::live
