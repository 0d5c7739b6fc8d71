// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>

#include "src/base/budget.h"
#include "src/symbolic/engine_state.h"

namespace lockstep {

std::vector<Term> SymbolicEngine::terms(int form, int rank, int buffer) const {
  const LocalBuffer& own = state_->local_buffer(rank, buffer);
  return state_->terms(form, state_->original_of(rank, buffer), own.piece);
}

std::vector<Term> SymbolicEngine::State::terms(int form, int logical, int piece) {
  std::vector<Term> result;
  Budget::spend(4 * static_cast<std::int64_t>(forms.form(form).size()));
  for (const symbolic::Forms::Term& item : forms.form(form)) {
    const symbolic::Atom& atom = forms.atom_at(item.atom);
    Term term;
    term.rank = atom.source;
    term.micro_batch = atom.micro_batch;
    term.site_use = atom.site_use;
    term.logical = logical;
    term.piece = piece;
    if (atom.frame != 0) {
      const symbolic::Frame& frame = forms.frame_at(atom.frame);
      term.foreign = true;
      term.logical = frame.logical;
      term.piece = frame.piece;
      term.offset = frame.offset;
    }
    term.coefficient = forms.coefficient_at(item.coefficient);
    for (const int factor : forms.clips_at(atom.clips)) term.clips.push_back(clip_names.at(factor));
    std::sort(term.clips.begin(), term.clips.end());
    if (atom.leftover >= 0) {
      term.leftover = forms.leftover_name(atom.leftover);
    } else {
      term.coefficient = term.coefficient / by(term);
    }
    result.push_back(std::move(term));
  }
  std::sort(result.begin(), result.end(), [](const Term& a, const Term& b) {
    const auto key = [](const Term& t) { return std::tuple(!t.leftover.empty(), t.foreign); };
    const auto rest = [](const Term& t) {
      return std::tie(t.rank, t.micro_batch, t.site_use, t.leftover, t.logical, t.piece, t.offset, t.clips);
    };
    return key(a) != key(b) ? key(a) < key(b) : rest(a) < rest(b);
  });
  return result;
}

// What `backward` multiplied a contribution with, read off the steps that ran: the last one on the
// rank that names it, else on the lowest rank that added it. Terms of reports are few, so this is
// looked up when asked for.
Rational SymbolicEngine::State::by(const Term& term) {
  if (!term.leftover.empty()) return Rational(1);
  Budget::spend(8);
  const auto [known, is_new] =
      factors_of_terms.emplace(std::tuple(term.logical, term.rank, term.micro_batch, term.site_use), Rational(1));
  if (!is_new) return known->second;
  if (backward_events.empty()) {
    for (std::size_t i = 0; i < timeline.events.size(); ++i) {
      const Event& event = timeline.events[i];
      if (operation(event.op).adds != Operation::Adds::gradient) continue;
      backward_events[{event.optimizer_step, event.micro_batch, event.calls.front().rank}].push_back(i);
    }
  }
  int optimizer_step = 0;
  while (optimizer_step + 1 < schedule.batch.steps() &&
         schedule.batch.first_micro_batch(optimizer_step + 1) <= term.micro_batch) {
    ++optimizer_step;
  }
  const int micro_batch = term.micro_batch - schedule.batch.first_micro_batch(optimizer_step);
  const auto added_on = [&](int rank) {
    const auto events = backward_events.find({optimizer_step, micro_batch, rank});
    const SiteUse& site = schedule.model.logicals()[at(term.logical)].uses[at(term.site_use)];
    const int buffer = schedule.model.buffer_of(rank, schedule.model.logical_of(site.parameter));
    if (events == backward_events.end() || buffer < 0) return false;
    for (auto event = events->second.rbegin(); event != events->second.rend(); ++event) {
      const Call& call = timeline.events[*event].calls.front();
      if (!std::binary_search(call.buffers->begin(), call.buffers->end(), buffer)) continue;
      for (const Contribution& contribution :
           contributions.of(rank, buffer, optimizer_step, micro_batch, call.step->uses)) {
        if (contribution.source != term.rank || contribution.site_use != term.site_use) continue;
        known->second = factors.by(*call.step, contribution.evaluated_on, optimizer_step, micro_batch);
        return true;
      }
    }
    return false;
  };
  if (added_on(term.rank)) return known->second;
  for (int rank = 0; rank < schedule.mesh.world(); ++rank) {
    if (added_on(rank)) break;
  }
  return known->second;
}

}  // namespace lockstep
