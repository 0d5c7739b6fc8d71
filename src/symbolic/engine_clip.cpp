// SPDX-License-Identifier: Apache-2.0
//
// Clipping: a `clip` multiplies by a factor that depends on the rank's norm and on nothing else. Which number that is
// nobody needs to know: ranks whose norms count the same, element by element, have the same factor, and there is one
// that is right, that of a norm which counts every element of the gradient of one device once.
#include <algorithm>

#include "src/base/at.h"
#include "src/base/budget.h"
#include "src/symbolic/engine_state.h"

namespace lockstep {

namespace {

using symbolic::ClipNorm;

/// Elements of a piece of a logical parameter, with what a norm counts there.
struct CountedStretch {
  int logical = 0;
  int piece = 0;
  Interval elements;
  int form = 0;
};

/// The same runs for all that count the same, each as long as it can be.
ClipNorm::Runs runs_of(std::vector<CountedStretch> stretches) {
  ClipNorm::Runs runs;
  // What is 0 adds nothing to a norm.
  std::erase_if(stretches, [](const CountedStretch& stretch) { return stretch.form == 0; });
  std::sort(stretches.begin(), stretches.end(), [](const CountedStretch& a, const CountedStretch& b) {
    return std::pair(a.logical, a.piece) < std::pair(b.logical, b.piece);
  });
  for (auto begin = stretches.begin(); begin != stretches.end();) {
    const auto end = std::find_if(begin, stretches.end(), [&](const CountedStretch& other) {
      return other.logical != begin->logical || other.piece != begin->piece;
    });
    struct Change {
      std::vector<int> begin, end;
    };
    std::map<std::int64_t, Change> changes;
    for (auto one = begin; one != end; ++one) {
      changes[one->elements.begin].begin.push_back(one->form);
      changes[one->elements.end].end.push_back(one->form);
    }
    std::multiset<int> now;
    for (const auto& [place, change] : changes) {
      for (const int form : change.end) now.erase(now.find(form));
      now.insert(change.begin.begin(), change.begin.end());
      std::vector<int> forms(now.begin(), now.end());
      if (place == changes.begin()->first || forms != runs.back().forms)
        runs.push_back({begin->logical, begin->piece, place, std::move(forms)});
    }
    begin = end;
  }
  return runs;
}

}  // namespace

void SymbolicEngine::State::keep_norm(const Event& event) {
  const int number = static_cast<int>(norm_calls.size());
  NormCall call;
  call.event = static_cast<std::size_t>(&event - timeline.events.data());
  for (const Call& member : event.calls) {
    std::vector<int>& row = call.held.emplace_back();
    const int from = slot(member.step->buffer);
    for (int buffer : *member.buffers) row.push_back(held(from, member.rank, buffer));
    NormsOfRank& norms = norms_of[at(member.rank)];
    if (norms.optimizer_step != member.optimizer_step) norms = {member.optimizer_step, {}};
    norms.calls.push_back(number);
  }
  norm_calls.push_back(std::move(call));
}

int SymbolicEngine::State::clip_factor(const Call& clip) {
  NormsOfRank& norms = norms_of[at(clip.rank)];
  if (norms.optimizer_step != clip.optimizer_step) norms = {clip.optimizer_step, {}};
  const auto [known, is_new] = clip_factor_of.emplace(norms.calls, 0);
  if (!is_new) return known->second;
  right_clip_factor(clip.optimizer_step);  // which has its name first
  const int factor = factor_of(counts_of(norms.calls));
  if (clip_names.emplace(factor, ClipFactor{clip.rank, other_norms[clip.rank]}).second) ++other_norms[clip.rank];
  return known->second = factor;
}

int SymbolicEngine::State::right_clip_factor(int optimizer_step) {
  for (int step = static_cast<int>(right_factors.size()); step < schedule.batch.steps(); ++step) {
    right_factors.push_back(factor_of({counts_of_one_device(step), {}}));
    clip_names.emplace(right_factors.back(), ClipFactor{-1, step});
  }
  return right_factors[at(optimizer_step)];
}

int SymbolicEngine::State::factor_of(ClipNorm norm) {
  return memory.clip_factors.emplace(std::move(norm), static_cast<int>(memory.clip_factors.size())).first->second;
}

/// What norm calls count together.
ClipNorm SymbolicEngine::State::counts_of(const std::vector<int>& calls) {
  ClipNorm result;
  std::vector<CountedStretch> summed;
  for (const int number : calls) {
    const NormCall& norm = norm_calls[at(number)];
    const Event& event = timeline.events[norm.event];
    const bool is_mean =
        event.calls.size() > 1 &&
        std::any_of(event.calls.begin(), event.calls.end(), [](const Call& call) { return call.step->mean_of_norms; });
    std::vector<ClipNorm::Runs> members;
    for (std::size_t member = 0; member < event.calls.size(); ++member) {
      const Call& call = event.calls[member];
      std::vector<CountedStretch> own;
      for (std::size_t i = 0; i < call.buffers->size(); ++i) {
        const int buffer = (*call.buffers)[i];
        const int original = original_of(call.rank, buffer), piece = local_buffer(call.rank, buffer).piece;
        std::int64_t begin = 0;
        for (const symbolic::Contents::Segment& segment : contents.content(norm.held[member][i])) {
          Budget::spend(2);
          for (const Interval& part : intersect(call.owned[i], Intervals{{begin, segment.end}}))
            own.push_back({original, piece, part, segment.form});
          begin = segment.end;
        }
      }
      if (is_mean) {
        members.push_back(runs_of(std::move(own)));
      } else {
        summed.insert(summed.end(), own.begin(), own.end());
      }
    }
    if (!is_mean) continue;
    std::sort(members.begin(), members.end());
    result.means.push_back(std::move(members));
  }
  std::sort(result.means.begin(), result.means.end());
  result.summed = runs_of(std::move(summed));
  return result;
}

ClipNorm::Runs SymbolicEngine::State::counts_of_one_device(int optimizer_step) {
  std::vector<CountedStretch> stretches;
  const auto& logicals = schedule.model.logicals();
  for (int logical = 0; logical < static_cast<int>(logicals.size()); ++logical) {
    if (!schedule.model.is_trained_tensor(logical)) continue;
    const auto& pieces = schedule.model.pieces(logical);
    for (int piece = 0; piece < static_cast<int>(pieces.size()); ++piece) {
      const std::int64_t numel = pieces[at(piece)].numel;
      if (numel > 0) stretches.push_back({logical, piece, {0, numel}, reference(logical, piece, optimizer_step)});
    }
  }
  return runs_of(std::move(stretches));
}

int SymbolicEngine::State::expected(int logical, int piece, int optimizer_step) {
  const int form = reference(logical, piece, optimizer_step);
  return clipped_steps.contains(optimizer_step) ? forms.clip(form, right_clip_factor(optimizer_step)) : form;
}

NormCounts SymbolicEngine::counts_of(const ClipFactor& factor) const {
  const auto runs = [this](const ClipNorm::Runs& list) {
    std::vector<NormCounts::Run> result;
    for (const ClipNorm::Run& run : list) {
      NormCounts::Run& one = result.emplace_back(NormCounts::Run{run.logical, run.piece, run.begin, {}});
      for (const int form : run.forms) one.counted.push_back(state_->terms(form, run.logical, run.piece));
    }
    return result;
  };
  const auto named = std::find_if(state_->clip_names.begin(), state_->clip_names.end(),
                                  [&](const auto& name) { return name.second == factor; });
  const auto found = std::find_if(state_->memory.clip_factors.begin(), state_->memory.clip_factors.end(),
                                  [&](const auto& norm) { return norm.second == named->first; });
  const ClipNorm& norm = found->first;
  NormCounts result{runs(norm.summed), {}};
  for (const std::vector<ClipNorm::Runs>& members : norm.means) {
    auto& mean = result.means.emplace_back();
    for (const ClipNorm::Runs& member : members) mean.push_back(runs(member));
  }
  return result;
}

}  // namespace lockstep
