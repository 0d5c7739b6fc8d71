// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/numeric/host_tasks.h"

namespace lockstep::numeric {

/// What is decided before an element is replayed, the same in every engine that replays numbers: which components and
/// which of their elements, in which arithmetic, and who hashes which piece of the reference.
///
/// First look_at() of each of chosen(), in any order, from any threads; then decide(); then make_tasks().
class Preparation {
 public:
  /// The schedule and the timeline must outlive it. `force_all`, `seed`: as in HostOptions.
  Preparation(const Schedule& schedule, const Timeline& timeline, bool force_all, std::uint64_t seed);

  /// Numbers of the components that are to be replayed, ascending.
  std::vector<std::size_t> chosen() const;
  /// Plans a component and fills need, cost and cuts of its Prepared, and the plan itself where all plans together are
  /// small. Another process may do that as well: whoever fills these fields otherwise need not call it.
  void look_at(std::size_t component);
  /// Chooses the arithmetic, and writes down notes.
  void decide();
  std::vector<Task> tasks() const { return make_tasks(components_, prepared_, sample_, seed_); }

  const Components& components() const { return components_; }
  const Planner& planner() const { return planner_; }
  std::vector<Prepared>& prepared() { return prepared_; }
  const std::vector<Prepared>& prepared() const { return prepared_; }
  bool sampled() const { return sample_.sampled; }
  /// Sentences for the user.
  const std::vector<std::string>& notes() const { return notes_; }

  const LocalBuffer& buffer(const BufferNode& node) const;
  /// How a component is called in a sentence.
  const std::string& name_of(const Component& component) const;
  /// Elements of gradient buffers that the task replays, summed over ranks.
  std::int64_t elements_of(const Task& task) const;

 private:
  void note_what_is_left_out();
  void skip_what_is_too_large();
  void share_out_references();
  void explain_arithmetic();

  const Schedule& schedule_;
  std::uint64_t seed_;
  Components components_;
  Planner planner_;
  std::vector<Prepared> prepared_;
  Sample sample_;
  std::vector<std::string> notes_;
};

}  // namespace lockstep::numeric
