// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "lockstep/rational.h"
#include "src/live/recorded_experts.h"

namespace lockstep::live {

/// A collective on gradients, as a step of a schedule may say it.
struct GradientCall {
  std::string op;                 ///< all_reduce, reduce_scatter, all_gather, broadcast, reduce, or scale by each rank
  std::vector<std::string> axes;  ///< of the layout, that its groups run over, the slowest first
  std::vector<int> stages;        ///< pipeline stages, where the groups have not all of them
  int members = 1;                ///< of a group
  bool average = false;
  int root = -1;        ///< position in the group; -1: none
  Rational factor = 1;  ///< of a scale
  std::string site;     ///< "train.py:9", on the lowest rank; "" where it is not known

  bool scales() const { return op == "scale"; }
  /// Everything but the site.
  bool same_kind(const GradientCall& other) const;
  friend bool operator==(const GradientCall&, const GradientCall&) = default;
};

/// A call that a parameter met, in the same micro-batches of every optimizer step.
struct ParameterCall {
  int call = 0;              ///< index into GradientCalls::calls
  std::set<int> passes;      ///< after the backward passes of these micro-batches, or within them
  bool in_backward = false;  ///< of the last one
  bool whole = false;        ///< it carries what the rank holds, not only what a reduce-scatter left of it
  std::size_t order = 0;     ///< of the first, among all calls of its rank
};

/// The collectives of a run that carry gradients, and what is seen of ranks that scale them.
struct GradientCalls {
  std::vector<GradientCall> calls;                       ///< each once
  std::vector<std::vector<ParameterCall>> of_parameter;  ///< by the run's number, in the order in which it met them
  std::vector<std::string> left_out;                     ///< what the schedule has not, and why: sentences
};

/// The run's own axes as the layout names them, by axis of the mesh.
using AxisNames = std::vector<std::string>;

/// Finds what each parameter met in these optimizer steps. Throws InputError where ranks, or steps, treat a parameter
/// differently, so that no one step of a schedule says it. Complexity: near linear in the collectives and what they
/// carry.
GradientCalls find_gradient_calls(const CapturedRun& run, const std::vector<int>& steps, const AxisNames& axes,
                                  const Experts& experts);

}  // namespace lockstep::live
