// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/live/captured_run.h"

namespace lockstep::live {

/// A collective in a rank's dump.
struct FlightCall {
  std::string group;        ///< name of its process group
  CapturedCollective call;  ///< of no optimizer step and no group yet, with its number
  std::string state;        ///< "scheduled", "started", "completed"
  bool done = false;
};

/// A process group as a rank's dump names it.
struct FlightGroupNames {
  std::string description;
  std::vector<int> ranks;  ///< ascending; empty: the dump does not say
};

/// What one rank's dump says. Sends and receives are left out: they meet in pairs.
struct FlightDump {
  std::string file;
  int rank = 0;
  std::string version;
  bool lost_start = false;                         ///< the ring was full: what came first is gone
  std::map<std::string, FlightGroupNames> groups;  ///< by name
  std::vector<FlightCall> calls;                   ///< in the order of the rank's calls
};

/// Throws InputError with everything that is wrong with the dump.
FlightDump read_flight_dump(const std::shared_ptr<const Source>& dump);

}  // namespace lockstep::live
