// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/schedule.h"

namespace lockstep::diagnosis {

/// What checking a schedule costs, estimated from its numbers alone: within a small factor, and rather too much than
/// too little.
struct Workload {
  double ranks = 0;
  double buffers = 0;     ///< of all ranks together
  double elements = 0;    ///< in them
  double calls = 0;       ///< times that a rank runs a step on one of its buffers
  double terms = 0;       ///< that all formulas have together, long coefficients counted several times
  double bytes = 0;       ///< memory that the walk and the symbolic engine need
  double host_bytes = 0;  ///< memory that the host engine needs besides

  /// "16384 ranks hold 14.7 million gradient buffers together, their steps …"
  std::string describe() const;
};

/// Near linear in what is counted; gives up, with everything that it has so far, where `calls` or `terms` goes beyond
/// what any check may have.
Workload estimate_workload(const Schedule& schedule);

/// Whether a layout is so large that a check leaves its ranks alone, and takes parameters that behave alike together:
/// more than 2,048 ranks, steps that would be run more than 400,000 times, one
/// rank and buffer at a time, or formulas of more than 10 million terms.
bool is_large(const Schedule& schedule);

/// Whether every rank can be replayed for each of dozens of schedules: at most 10,000 calls.
bool is_quickly_replayed(const Schedule& schedule);

/// Why a check of this size is not begun; "" where it may be.
std::string too_large(const Workload& workload);
/// Why this machine cannot do it; "" where it can. `bytes` are those that are needed.
std::string too_large_here(const Workload& workload, double bytes);

/// Memory that this process can still get: the machine's, its control group's, its own limit.
double available_bytes();

}  // namespace lockstep::diagnosis
