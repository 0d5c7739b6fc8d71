// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "src/device/folding.h"
#include "src/device/messenger.h"
#include "src/numeric/replay_results.h"

namespace lockstep::device {

/// A replay that the processes of a job do together, each for the buffers of its ranks. All processes make the same
/// calls, with the same schedule and options: first prepare(), then run().
class SharedRun {
 public:
  /// Schedule, timeline and messenger must outlive it.
  SharedRun(const Schedule& schedule, const Timeline& timeline, const HostOptions& options, Messenger& messenger);

  /// Decides which elements are replayed, and in which arithmetic; each process looks at a part of the components.
  void prepare();

  /// Replays a task for which a rank of this process holds a buffer, and finds what concerns these buffers.
  using Perform = std::function<numeric::Findings(const numeric::Task& task, const numeric::Plan& plan,
                                                  const numeric::ReplayOptions& options)>;
  /// Performs the tasks in order. What was found is returned in process 0, and elsewhere an empty result.
  HostResult run(const Perform& perform);

  const Folding& folding() const { return folding_; }
  const numeric::Preparation& preparation() const { return preparation_; }
  const std::vector<numeric::Task>& tasks() const { return tasks_; }

 private:
  bool any_rank_here(std::size_t component) const;
  void gather();
  void read(int process, const std::string& text);
  std::pair<std::size_t, std::size_t> buffers_of(int process) const;

  Messenger& messenger_;
  Folding folding_;
  numeric::Preparation preparation_;
  numeric::ReplayResults results_;
  std::vector<numeric::Task> tasks_;
};

}  // namespace lockstep::device
