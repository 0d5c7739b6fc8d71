// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/contribution_table.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "lockstep/expression.h"
#include "src/base/at.h"
#include "src/schedule/walk_memory.h"

namespace lockstep::transformer {

namespace {

/// `by` of a backward step, in two parts: a weight of tokens in the loss, which the ranks that share those tokens (tp,
/// pp) have to agree on, and what a rank's own `by` is to it. Ranks that the step leaves out take part in the
/// communication all the same: a backward pass is no pass without them.
class StepFactors {
 public:
  using Calls = std::set<std::pair<int, int>>;  ///< rank, micro-batch

  StepFactors(const Schedule& schedule, const Step& step, int optimizer_step, const Calls& calls)
      : mesh_(schedule.mesh), factors_(schedule), step_(step), optimizer_step_(optimizer_step) {
    for (const auto& [rank, m] : calls) of_tokens_.try_emplace({tokens_of(rank), m}, by(rank, m));
    // A source of an expert's tokens that is left out itself has its `by` evaluated (docs/transformer.md).
    for (int m = 0; m < schedule.batch.micro_batches(optimizer_step); ++m) {
      for (int rank = 0; rank < mesh_.world(); ++rank) {
        if (of_tokens_.count({tokens_of(rank), m}) == 0) of_tokens_.emplace(Key{tokens_of(rank), m}, by(rank, m));
      }
    }
  }

  const Rational& of_tokens(int rank, int m) const { return of_tokens_.at({tokens_of(rank), m}); }

  void scale(std::vector<std::vector<LocalGradients>>& run) const {
    std::map<std::pair<int, int>, double> known;
    for (auto& of_rank : run) {
      for (std::size_t m = 0; m < of_rank.size(); ++m) {
        for (auto& [place, gradient] : of_rank[m]) {
          const std::pair<int, int> at{place.second, static_cast<int>(m)};
          const auto [found, is_new] = known.try_emplace(at, 1);
          if (is_new) found->second = to_double(by(at.first, at.second) / of_tokens(at.first, at.second));
          if (found->second != 1) gradient *= found->second;
        }
      }
    }
  }

 private:
  using Tokens = std::tuple<int, int, int>;  ///< coordinates along dp, cp and sp
  using Key = std::pair<Tokens, int>;

  Tokens tokens_of(int rank) const {
    return {mesh_.coordinate(rank, Axis::dp), mesh_.coordinate(rank, Axis::cp), mesh_.coordinate(rank, Axis::sp)};
  }
  /// 1 where a rank that the step leaves out has none: `when` may keep away from a division by 0.
  Rational by(int rank, int m) const {
    try {
      const Rational by = factors_.by(step_, rank, optimizer_step_, m);
      return by.is_zero() ? Rational(1) : by;
    } catch (const ExpressionError&) {
      return Rational(1);
    }
  }

  const Mesh& mesh_;
  Factors factors_;
  const Step& step_;
  int optimizer_step_;
  std::map<Key, Rational> of_tokens_;
};

}  // namespace

ContributionTable::ContributionTable(const Config& config, const Schedule& schedule, const Timeline& timeline,
                                     const Data& data, const ShardedRun& options)
    : schedule_(schedule), contributions_(timeline.memory->contributions()) {
  for (const Event& event : timeline.events) {
    if (operation(event.op).adds != Operation::Adds::gradient) continue;
    const Call& call = event.calls.front();
    called_[{call.step, event.optimizer_step}].insert({call.rank, event.micro_batch});
    order_.erase(std::remove(order_.begin(), order_.end(), call.step), order_.end());
    order_.push_back(call.step);
  }
  for (const auto& [key, calls] : called_) {
    const auto [step, optimizer_step] = key;
    const StepFactors factors(schedule, *step, optimizer_step, calls);
    const auto weight = [&](int rank, int m) { return to_double(factors.of_tokens(rank, m)); };
    for (const std::string& use : config.uses()) {
      const std::vector<std::string>& of_step = step->uses;
      if (!of_step.empty() && std::find(of_step.begin(), of_step.end(), use) == of_step.end()) continue;
      auto run = run_sharded(config, schedule, data, optimizer_step, use, weight, options);
      factors.scale(run);
      runs_.emplace(Key{step, optimizer_step, use}, std::move(run));
    }
  }
}

std::vector<ContributionTable::Share> ContributionTable::shares(const Step& step, int optimizer_step, int micro_batch,
                                                                int rank, int buffer) const {
  const Model& model = schedule_.model;
  std::vector<Share> result;
  for (auto run = runs_.lower_bound({&step, optimizer_step, ""}); run != runs_.end(); ++run) {
    const auto& [of_step, counted, use] = run->first;
    if (of_step != &step || counted != optimizer_step) break;
    const LocalGradients& gradients = run->second[at(rank)][at(micro_batch)];
    for (const int parameter : model.local(rank).buffers[at(buffer)].parameters) {
      const std::string& name = model.parameters()[at(parameter)].name;
      for (auto entry = gradients.lower_bound({name, -1}); entry != gradients.end() && entry->first.first == name;
           ++entry)
        result.push_back({parameter, use, entry->first.second, &entry->second});
    }
  }
  return result;
}

std::vector<ContributionTable::Named> ContributionTable::named(int logical, int piece, int optimizer_step) const {
  const Model& model = schedule_.model;
  const int first = schedule_.batch.first_micro_batch(optimizer_step);
  std::map<std::tuple<int, int, int>, Named> found;  // source, micro-batch, use
  // Where several steps add a contribution, its coefficient is relative to the last of them: that one comes first.
  std::vector<const Step*> steps;
  for (auto step = order_.rbegin(); step != order_.rend(); ++step) {
    if (called_.count({*step, optimizer_step}) > 0) steps.push_back(*step);
  }
  for (const Step* step : steps) {
    for (int rank = 0; rank < schedule_.mesh.world(); ++rank) {
      const int buffer = model.buffer_of(rank, logical);
      if (buffer < 0 || model.local(rank).buffers[at(buffer)].piece != piece) continue;
      for (int m = 0; m < schedule_.batch.micro_batches(optimizer_step); ++m) {
        // With `when` and `only` a step adds nothing here; it may do so on other ranks.
        const auto& calls = called_.at({step, optimizer_step});
        const bool adds = calls.count({rank, m}) > 0;
        const std::vector<Share> parts = shares(*step, optimizer_step, m, rank, buffer);
        for (const Contribution& contribution : contributions_.of(rank, buffer, optimizer_step, m, step->uses)) {
          const SiteUse& site = model.logicals()[at(logical)].uses[at(contribution.site_use)];
          const auto part = std::find_if(parts.begin(), parts.end(), [&](const Share& share) {
            return share.parameter == site.parameter && share.use == site.use &&
                   share.source == contribution.evaluated_on;
          });
          Named entry;
          entry.term.rank = contribution.source;
          entry.term.micro_batch = first + m;
          entry.term.site_use = contribution.site_use;
          entry.term.logical = logical;
          entry.term.piece = piece;
          entry.values = part == parts.end() || !adds ? nullptr : part->values;
          Named& kept = found.try_emplace({contribution.source, first + m, contribution.site_use}, entry).first->second;
          if (kept.values == nullptr) kept.values = entry.values;
        }
      }
    }
  }
  std::vector<Named> result;
  for (const auto& entry : found) result.push_back(entry.second);
  return result;
}

}  // namespace lockstep::transformer
