// SPDX-License-Identifier: Apache-2.0
//
// What one device would have computed: every contribution to a piece, with the weight of the loss.
// Knows the parameters, the tokens and the loss, and nothing of the schedule; shares no code with
// the replay (lockstep/timeline.h names contributions there).
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/symbolic.h"
#include "src/base/at.h"
#include "src/base/budget.h"

namespace lockstep {

namespace {

struct Origin {
  int rank = 0;
  int micro_batch = 0;  // from 0 in the optimizer step
  bool operator<(const Origin& other) const {
    return std::pair(rank, micro_batch) < std::pair(other.rank, other.micro_batch);
  }
};

class Device {
 public:
  Device(const Schedule& schedule, int optimizer_step) : schedule_(schedule), optimizer_step_(optimizer_step) {}

  // The weight with which one device's loss counts the summed loss of the piece of `source`.
  Rational weight(const std::string& use, const Origin& source) const {
    const Batch& batch = schedule_.batch;
    const Mesh& mesh = schedule_.mesh;
    const int dp = mesh.size(Axis::dp), cp = mesh.size(Axis::cp), sp = mesh.size(Axis::sp);
    const int d = mesh.coordinate(source.rank, Axis::dp), c = mesh.coordinate(source.rank, Axis::cp),
              s = mesh.coordinate(source.rank, Axis::sp);
    const int micro_batches = batch.micro_batches(optimizer_step_);
    const int counted = batch.first_micro_batch(optimizer_step_) + source.micro_batch;
    Rational factor = batch.weight(use);
    const Loss& loss = batch.loss(use);
    switch (loss.kind) {
      case Loss::Kind::sum:
        return factor;
      case Loss::Kind::token_mean:
        return factor / total_tokens(use);
      case Loss::Kind::local_mean:
        return factor / (Rational(micro_batches) * Rational(dp) * Rational(cp) * Rational(sp) *
                         Rational(batch.tokens(use, counted, d, c, s)));
      case Loss::Kind::micro_batch_mean: {
        std::int64_t sequence = 0;
        for (int i = 0; i < cp; ++i) {
          for (int j = 0; j < sp; ++j) sequence += batch.tokens(use, counted, d, i, j);
        }
        return factor / (Rational(micro_batches) * Rational(dp) * Rational(sequence));
      }
      case Loss::Kind::weight:
        break;
    }
    Environment environment;
    environment.mesh = &mesh;
    environment.counts = &batch;
    environment.rank = source.rank;
    environment.step = optimizer_step_;
    environment.micro_batch = source.micro_batch;
    return factor * loss.weight_of(environment);
  }

  std::int64_t tokens(const std::string& use, const Origin& source) const {
    const Mesh& mesh = schedule_.mesh;
    return schedule_.batch.tokens(use, schedule_.batch.first_micro_batch(optimizer_step_) + source.micro_batch,
                                  mesh.coordinate(source.rank, Axis::dp), mesh.coordinate(source.rank, Axis::cp),
                                  mesh.coordinate(source.rank, Axis::sp));
  }

  // Who computes something for this site of the piece, under the name that it goes by.
  std::set<Origin> sources(int parameter, int piece) const {
    const Mesh& mesh = schedule_.mesh;
    const Parameter& site = schedule_.model.parameters()[at(parameter)];
    std::set<Origin> result;
    std::map<std::vector<int>, int> lowest;
    std::map<std::vector<int>, std::vector<int>> dispatched;
    if (!site.dispatch.empty()) {
      for (int rank = 0; rank < mesh.world(); ++rank) dispatched[fixed_coordinates(site, rank)].push_back(rank);
    }
    std::vector<int> holders;
    const int logical = schedule_.model.logical_of(parameter);
    Budget::spend(mesh.world());
    for (int rank = 0; rank < mesh.world(); ++rank) {
      if (site.stage && mesh.coordinate(rank, Axis::pp) != *site.stage) continue;
      const int held = schedule_.model.buffer_of(rank, logical);
      if (held < 0 || schedule_.model.local(rank).buffers[at(held)].piece != piece) continue;
      holders.push_back(rank);
    }
    for (int micro_batch = 0; micro_batch < schedule_.batch.micro_batches(optimizer_step_); ++micro_batch) {
      lowest.clear();
      for (int rank : holders) {
        if (!schedule_.model.takes_part(mesh, parameter, rank, micro_batch)) continue;
        if (!site.dispatch.empty()) {
          const std::vector<int>& sources = dispatched[fixed_coordinates(site, rank)];
          Budget::spend(2 * static_cast<std::int64_t>(sources.size()));
          for (const int source : sources) result.insert({source, micro_batch});
          continue;
        }
        // Ranks that see the same tokens compute the same, unless each has only its share.
        std::vector<int> key = {mesh.coordinate(rank, Axis::dp), mesh.coordinate(rank, Axis::cp),
                                mesh.coordinate(rank, Axis::sp), mesh.coordinate(rank, Axis::pp)};
        for (Axis axis : site.partial) key.push_back(mesh.coordinate(rank, axis));
        lowest.emplace(key, rank);
      }
      Budget::spend(static_cast<std::int64_t>(4 * holders.size() + 2 * lowest.size()));
      for (const auto& entry : lowest) result.insert({entry.second, micro_batch});
    }
    return result;
  }

 private:
  Rational total_tokens(const std::string& use) const {
    const auto [found, is_new] = totals_.emplace(use, 0);
    if (!is_new) return found->second;
    const Batch& batch = schedule_.batch;
    const Mesh& mesh = schedule_.mesh;
    Rational total;
    const int first = batch.first_micro_batch(optimizer_step_);
    for (int m = first; m < first + batch.micro_batches(optimizer_step_); ++m) {
      for (int d = 0; d < mesh.size(Axis::dp); ++d) {
        for (int c = 0; c < mesh.size(Axis::cp); ++c) {
          for (int s = 0; s < mesh.size(Axis::sp); ++s) total += Rational(batch.tokens(use, m, d, c, s));
        }
      }
    }
    return found->second = total;
  }

  // The coordinates of the expert mesh along which tokens are not exchanged.
  std::vector<int> fixed_coordinates(const Parameter& site, int rank) const {
    std::vector<int> key = {schedule_.mesh.coordinate(rank, Axis::pp)};
    for (Axis axis : {Axis::etp, Axis::ep, Axis::edp_shard, Axis::edp_replicate}) {
      const bool exchanged = std::any_of(site.dispatch.begin(), site.dispatch.end(),
                                         [axis](Axis named) { return named == axis || is_part_of(axis, named); });
      if (!exchanged) key.push_back(schedule_.mesh.coordinate(rank, axis));
    }
    return key;
  }

  const Schedule& schedule_;
  int optimizer_step_;
  mutable std::map<std::string, Rational> totals_;
};

}  // namespace

std::vector<Term> reference_terms(const Schedule& schedule, int logical, int piece, int optimizer_step) {
  const Device device(schedule, optimizer_step);
  const int original = schedule.model.original(logical);
  const Logical& tensor = schedule.model.logicals()[at(original)];
  std::vector<Term> terms;
  for (std::size_t site_use = 0; site_use < tensor.uses.size(); ++site_use) {
    const SiteUse& site = tensor.uses[site_use];
    if (schedule.model.parameters()[at(site.parameter)].frozen) continue;
    for (const Origin& source : device.sources(site.parameter, piece)) {
      Budget::spend(4);
      if (device.tokens(site.use, source) == 0) continue;
      Term term;
      term.rank = source.rank;
      term.micro_batch = schedule.batch.first_micro_batch(optimizer_step) + source.micro_batch;
      term.site_use = static_cast<int>(site_use);
      term.logical = original;
      term.piece = piece;
      term.coefficient = device.weight(site.use, source);
      terms.push_back(term);
    }
  }
  std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) {
    return std::tuple(a.rank, a.micro_batch, a.site_use) < std::tuple(b.rank, b.micro_batch, b.site_use);
  });
  return terms;
}

}  // namespace lockstep
