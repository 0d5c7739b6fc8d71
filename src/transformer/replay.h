// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "src/base/at.h"
#include "src/transformer/contribution_table.h"

namespace lockstep::transformer {

/// The schedule's steps over the gradients that the sharded model really computed, in float64.
class Replay {
 public:
  Replay(const Schedule& schedule, const Timeline& timeline, const ContributionTable& table, std::uint64_t seed)
      : schedule_(schedule), timeline_(timeline), table_(table), seed_(seed) {}

  /// Replays the events up to the end of an optimizer step. Steps are taken in order.
  void run_to(std::size_t event);

  /// What a rank's buffer holds now.
  const std::vector<double>& values(const std::string& name, int rank, int buffer);
  /// By element, the sum of the absolute values of everything that was added to it, through the collectives.
  const std::vector<double>& magnitudes(const std::string& name, int rank, int buffer);
  /// Local elements at which something was cut on the way, besides the ends.
  const std::set<std::int64_t>& cuts(int rank, int buffer) { return cuts_[{rank, buffer}]; }

 private:
  struct Content {
    std::vector<double> values, magnitudes;
  };
  Content& held(const std::string& name, int rank, int buffer);
  const LocalBuffer& local(int rank, int buffer) const { return schedule_.model.local(rank).buffers[at(buffer)]; }
  Intervals view(const Call& call, std::size_t position) const;
  struct LocalChange;
  void local_step(const Event& event);
  void collective(const Event& event);

  const Schedule& schedule_;
  const Timeline& timeline_;
  const ContributionTable& table_;
  std::uint64_t seed_;
  std::size_t next_ = 0;
  std::map<std::tuple<std::string, int, int>, Content> contents_;
  std::map<std::pair<int, int>, std::set<std::int64_t>> cuts_;
};

}  // namespace lockstep::transformer
