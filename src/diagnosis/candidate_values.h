// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "lockstep/schedule.h"
#include "src/diagnosis/product.h"

namespace lockstep::diagnosis {

/// Of a longer list of selectors, as a recorded schedule has, only items that may matter are edited one by one: so
/// many.
inline constexpr std::size_t most_single_items = 32;

/// The words that edits of one scenario can be made of: its axes, their products, its selectors and its buffers.
struct CandidateValues {
  std::vector<std::string> dense_axes;   ///< of a size above 1
  std::vector<std::string> mixed_axes;   ///< of these where some parameters are sharded and others are whole
  std::vector<std::string> expert_axes;  ///< likewise, where the expert mesh differs from the dense one
  std::vector<Over> groups;              ///< each another set of groups
  std::vector<Over> expert_groups;       ///< the same, one by one, in axes of the expert mesh where they can be
  std::vector<Product> sizes;            ///< dp, cp, dp * cp, micro_batches, …: numbers that a divisor may forget
  std::vector<Product> axis_sizes;       ///< single ones and products of data axes, whatever keep_sizes() leaves
  std::vector<Product> loss_weights;     ///< what the loss multiplies contributions with, by use
  std::vector<Product> token_counts;     ///< tokens, sum(tokens, cp), …: inside `each`
  std::vector<Product> token_totals;     ///< sum(tokens, dp, micro_batch), …: outside
  std::vector<Selectors> selections;     ///< lists of selectors
  std::vector<bool> selects_experts;     ///< by selection: parameters of the expert mesh alone
  std::vector<Geometry> geometries;      ///< of steps, those that a kind alone does not say: `counts`
  std::vector<std::string> selectors;    ///< single ones without "!"; of long lists those that choose what is wrong
  /// What norms count wrong, where a part of the model is counted right; none where that takes more than a few.
  std::vector<std::string> counted_wrong;
  std::vector<std::string> buffers, uses;
  bool replaces_numbers = true;  ///< plain numbers in factors, by sizes that they may stand for
  /// The groups that a step has.
  struct Written {
    std::string step;
    Op op;
    bool of_experts;           ///< it acts on parameters of the expert mesh alone
    std::optional<Over> over;  ///< none for a step without
    std::size_t group;         ///< index of the same among `groups`
  };
  std::vector<Written> written;

  /// Whether a step acts on parameters of the expert mesh alone.
  bool is_of_experts(const Step& step) const;
  /// `sizes`; for parameters of experts those of the axes of their mesh first.
  std::vector<Product> sizes_for(bool of_experts) const;
  /// A group as a new step would have it: as another step of its op has it, of an all_gather as a
  /// reduce_scatter, else in axes of its mesh.
  const Over& group_of_new(Op op, bool of_experts, std::size_t group) const;
  /// A group as the step would have it: as another one of its op has it, else in axes of the mesh of its parameters,
  /// with what it lists of axes of one rank. Nothing where it has the same groups.
  std::optional<Over> group_for(const Step& step, std::size_t group) const;
};

/// Names of parameters that are wrong, in one way or the other.
struct WrongNames {
  std::set<std::string> all = {};
  std::set<std::string> in_value = {};  ///< whatever they are clipped by
  std::set<std::string> counted = {};   ///< in a norm
};

/// Those of a schedule. `wrong` is described by tags or globs where these say the same; none for a schedule that is
/// right.
CandidateValues candidate_values(const Schedule& schedule, const WrongNames& wrong);

/// Leaves of the sizes those of which multiplying or dividing by them gives one of `factors`.
void keep_sizes(CandidateValues& values, const Environment& environment, const std::set<Rational>& factors);

/// Selectors that choose exactly `names` of the model: nothing for all, a tag, globs, or names; empty where it would
/// take more than a few.
std::vector<std::string> selectors_for(const Model& model, const std::set<std::string>& names);

}  // namespace lockstep::diagnosis
