// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <set>
#include <vector>

#include "src/live/recorded_schedule.h"

namespace lockstep::live {

/// A collective as a step of the scenario: what it does, when, and to which buffer.
struct SharedStep {
  int call = 0;              ///< index into GradientCalls::calls
  bool in_tail = false;      ///< after all micro-batches
  std::set<int> passes;      ///< as of ParameterCall
  bool owned = false;        ///< on what a reduce-scatter has left
  bool aside = false;        ///< in another buffer than the optimizer's
  Cut cut;                   ///< of a reduce-scatter
  bool in_backward = false;  ///< as of ParameterCall
  int occurrence = 0;        ///< a parameter may meet the same one several times
  int sequence = -1;         ///< of parameters whose order of steps is not the common one; -1: the common one

  friend auto operator<=>(const SharedStep&, const SharedStep&) = default;
};

/// What several parameters share, in the order of the run.
struct SharedSteps {
  struct Entry {
    SharedStep step;
    std::vector<int> parameters;  ///< ascending
  };
  std::vector<Entry> each;  ///< in the loop over micro-batches
  std::vector<Entry> tail;  ///< after it
};

/// The steps that these parameters, ascending, take part in.
SharedSteps shared_steps(const Recording& recording, const std::vector<LocalSteps>& local_steps,
                         const std::vector<int>& parameters);

int most_micro_batches(const Recording& recording);

/// How many of the calls that a parameter meets come before those that stand after all micro-batches.
std::size_t calls_in_loop(const Recording& recording, int parameter);

}  // namespace lockstep::live
