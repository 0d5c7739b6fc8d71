// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "lockstep/schedule.h"
#include "src/diagnosis/candidates.h"
#include "src/diagnosis/step_list.h"

namespace lockstep::diagnosis {

/// What right schedules do, whatever the framework: of edits that make the gradients equal, those that leave it alone
/// are likelier to be what is meant. Refers to the steps and the schedule.
class Idioms {
 public:
  /// `steps` are those that edits apply to, `schedule` says of which model and mesh.
  Idioms(const std::vector<Step>& steps, const Schedule& schedule);

  /// Takes away a norm or a clip, and no other one counts, or clips, all that it did.
  bool loses_norm(const std::vector<Candidate>& edits) const;
  /// Takes away what hands elements on, so that who owns them is again what the reductions say.
  bool leaves_owners_to_reductions(const std::vector<Candidate>& edits) const;
  /// Moves the one backward of its parameters, which is where the model has it.
  bool moves_only_backward(const std::vector<Candidate>& edits) const;
  /// Takes away a step in which ranks meet.
  bool drops_meeting(const std::vector<Candidate>& edits) const;
  /// Adds a second reduction over the groups of one that acts on all that the new one is for.
  bool repeats(const std::vector<Candidate>& edits) const;
  /// So many steps are changed with the first, which is of their op: each of them is a place more that is wrong.
  int alike(const std::vector<Candidate>& edits) const;
  /// Moves a step into an `each`, out of it or into another.
  bool leaves_loop(const std::vector<Candidate>& edits) const;
  /// Adds the sum of what each rank's backward of one micro-batch has a share of, in the buffer of that.
  bool ends_backward(const std::vector<Candidate>& edits) const;
  /// As distance_of(), but what breaks an idiom is as far as a new step, and a backward elsewhere as far as a changed
  /// one.
  int distance(const std::vector<Candidate>& edits) const;
  /// Where it adds a reduction, the lower the later: behind other sums, but before each rank is left with a slice and
  /// before a norm. 0 for other edits.
  int place(const std::vector<Candidate>& edits) const;
  /// Sets a factor that counts tokens otherwise than the loss does.
  bool counts_otherwise(const std::vector<Candidate>& edits) const;
  /// Where a wrong factor is looked for, first to last: in a backward that has one, which is the loss's own; in a
  /// scale; in a reduction that averages, and in a backward without one; in a new scale. Of several edits the last of
  /// these places; 0 for edits of other things, and of steps that are changed together.
  int factor_place(const std::vector<Candidate>& edits) const;

 private:
  int factor_place(const Candidate& candidate) const;
  void find_means(const Schedule& schedule);

  std::vector<ListedStep> list_;
  const Mesh& mesh_;
  const std::vector<Parameter>& parameters_;
  const std::string& result_;
  std::string loss_tokens_;               // what the loss divides by, as factors say it; "" where it is no mean
  std::set<std::string> completes_mean_;  // scales that make a mean of the one sum beside them
};

}  // namespace lockstep::diagnosis
