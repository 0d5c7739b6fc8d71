// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/edit.h"
#include "src/diagnosis/candidate_values.h"
#include "src/diagnosis/step_list.h"

namespace lockstep::diagnosis {

/// One edit of a schedule, or several that are one, and what it is for.
struct Candidate {
  enum class Kind {
    restore,  ///< what the framework has at this place
    drop,
    duplicate,
    move,
    group,
    factor,
    reduction,
    geometry,
    parameters,
    timing,
    ranks,
    operation,
    buffer,
    insert,
    placement  ///< of a parameter, or a flag of it
  };
  Kind kind = Kind::drop;
  std::string step;  ///< that it changes, removes or adds; "" for a parameter
  Edit edit;
  /// What goes with it, such as the same of a step that belongs to this one. Applied behind it.
  std::vector<Candidate> together = {};
  /// In a list of edits one by one: it goes with the one before.
  bool is_with_previous = false;
};
inline constexpr int candidate_kind_count = 15;
/// "dropped", "other group", …: for tables.
std::string_view name_of(Candidate::Kind kind);

/// Every single edit of plain steps that the values can say: each step dropped, doubled, moved to each other place,
/// over each other group, times and divided by each size, with the other reduction, geometry, parameters, timing,
/// ranks, and what may be missing inserted at each place. Edits that repeat what is there are left out where that can
/// be seen without applying them. In the order of the steps.
std::vector<Candidate> single_edits(const std::vector<Step>& steps, const CandidateValues& values);

/// Those of them that need no new step.
std::vector<Candidate> edits_of_steps(const std::vector<Step>& steps, const CandidateValues& values);

/// Of steps in an `each` the weight of a contribution in the whole step's loss, times the size that an average takes
/// away again: "dp / sum(tokens, dp, micro_batch)".
std::vector<Candidate> normalizing_edits(const std::vector<Step>& steps, const CandidateValues& values);

/// Each norm in two: of what is sharded along an axis every rank's part, of what every rank there has that of one rank;
/// and the same of what is counted right and of what is counted wrong, whatever keeps that apart: shards of a
/// reduce-scatter, copies of what is tied, an axis of experts.
std::vector<Candidate> norm_splits(const std::vector<Step>& steps, const CandidateValues& values,
                                   const std::vector<Parameter>& parameters);

/// Two changes of one step at once, each of which takes a key away or is another reduction: where it is wrong in two
/// ways. `singles` are edits of single steps.
std::vector<Candidate> two_keys_at_once(const std::vector<Candidate>& singles);

/// Edits that give a parameter a wrong flag or placement: a tag less or more of those that the plain steps speak of,
/// its share of a sum (`partial`) forgotten, or claimed where every rank computes the same.
std::vector<Candidate> placement_edits(const Schedule& schedule);

/// The same changes of all steps that belong together (step_list.h): other parameters, ranks or micro-batches, another
/// buffer, another place; and a parameter that goes from one step to its neighbour. `singles` are edits of single
/// steps, of which those of the first of them are taken.
std::vector<Candidate> edits_together(const std::vector<Step>& steps, const std::vector<Candidate>& singles);

/// What makes a step act on what another one of its op acts on and it leaves out ("tag:norm" and "!tag:norm"); nothing
/// where they are no such steps.
std::optional<Candidate> merged_into(const ListedStep& one, const ListedStep& other);

/// Edits that bring back what `right` has and `steps` does not: a step that is missing, that is different, or that is
/// inside of `each` and not outside; each by itself, without a step of its op that was added for some of its
/// `parameters`, and those of steps that belong together at once.
std::vector<Candidate> restoring_edits(const std::vector<Step>& steps, const std::vector<Step>& right,
                                       const std::vector<Parameter>& parameters);
/// All of it as one edit, after which the steps are those of `right`, other places in a list included; nothing where
/// nothing is to be done. As few steps move as can be.
std::optional<Candidate> all_back(const std::vector<Step>& steps, const std::vector<Step>& right);

/// Every edit in the order in which they apply, with what goes with it behind it, without what a later one says
/// otherwise, and with each new step as it is in the end.
std::vector<Candidate> one_by_one(const std::vector<const Candidate*>& candidates);
/// The same as plain edits, which point into the candidates.
std::vector<const Edit*> edits_of(const std::vector<const Candidate*>& candidates);

}  // namespace lockstep::diagnosis
