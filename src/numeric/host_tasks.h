// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/numeric.h"
#include "src/numeric/replay.h"

namespace lockstep::numeric {

/// What run_host decided about a component before anything is replayed.
struct Prepared {
  Need need;
  Choice choice;
  double cost_per_element = 0;
  std::vector<std::int64_t> cuts;
  std::vector<char> hashed;  ///< by piece of the plan: this component hashes the logical reference
  std::string skipped;       ///< why it cannot be replayed; empty: it can
};

/// A part of a component, replayed by one thread in one go.
struct Task {
  std::size_t component = 0;
  Intervals elements;
  bool in_field = false;  ///< a second replay modulo 2^61 - 1, compared only
  double cost = 0;
};

/// Element-steps above which not every element is replayed, unless all are asked for.
inline constexpr double cost_limit = 2e9;
/// Bytes that one component may take which has to be replayed in one block.
inline constexpr double block_limit = 268435456;

struct TaskList {
  std::vector<Task> tasks;
  bool sampled = false;
};

/// Divides the replay into tasks, in descending order of cost. `cost` is host_cost().
TaskList make_tasks(const Components& components, const std::vector<Prepared>& prepared, double cost,
                    const HostOptions& options);

/// Elements that a block of this component has.
std::int64_t block_elements(const Component& component);

/// Keeps the plan of a component as long as it has tasks left.
class PlanStore {
 public:
  PlanStore(const Planner& planner, const Components& components, const std::vector<Prepared>& prepared,
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
  const std::vector<Prepared>& prepared_;
  std::vector<Entry> entries_;
};

}  // namespace lockstep::numeric
