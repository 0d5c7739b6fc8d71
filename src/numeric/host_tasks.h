// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/numeric.h"
#include "src/numeric/replay.h"
#include "src/numeric/sample.h"

namespace lockstep::numeric {

/// What is decided about a component before anything is replayed.
struct Prepared {
  Need need;
  Choice choice;
  double cost_per_element = 0;
  std::vector<std::int64_t> cuts;
  std::vector<char> hashed;    ///< by piece of the plan: this component hashes the logical reference
  std::unique_ptr<Plan> plan;  ///< kept for the replay where all plans together are small
  bool skipped = false;        ///< it is not in the sample, or cannot be replayed
};

/// A part of a component, replayed by one thread in one go.
struct Task {
  std::size_t component = 0;
  Intervals elements;
  bool in_field = false;  ///< a second replay modulo 2^61 - 1, compared only
  double cost = 0;
};

/// Bytes that one component may take which has to be replayed in one block.
inline constexpr double block_limit = 268435456;

/// Divides the replay into tasks, in descending order of cost.
std::vector<Task> make_tasks(const Components& components, const std::vector<Prepared>& prepared, const Sample& sample,
                             std::uint64_t seed);

/// Elements that a block of this component has.
std::int64_t block_elements(const Component& component);

/// How a task is replayed; nothing where it cannot be: modulo 2^61 - 1, while a factor of its plan has no value there.
std::optional<ReplayOptions> replay_options(const Task& task, const Prepared& prepared, bool has_residues);

/// Keeps the plan of a component as long as it has tasks left.
class PlanStore {
 public:
  /// Takes the plans that were kept in `prepared`.
  PlanStore(const Planner& planner, const Components& components, std::vector<Prepared>& prepared,
            const std::vector<Task>& tasks);

  struct Bound {
    Plan plan;
    bool has_residues = true;
  };
  std::shared_ptr<const Bound> get(std::size_t component);
  void release(std::size_t component);

 private:
  struct Entry {
    std::mutex mutex;
    std::shared_ptr<const Bound> bound;
    int tasks_left = 0;
  };
  const Planner& planner_;
  const Components& components_;
  std::vector<Prepared>& prepared_;
  std::vector<Entry> entries_;
};

}  // namespace lockstep::numeric
