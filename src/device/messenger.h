// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep::device {

/// Numbers of processes, ascending.
using Processes = std::vector<int>;

/// How the processes of a job tell each other texts. gather() and all_gather() are collectives of all processes: each
/// makes the same calls in the same order.
class Messenger {
 public:
  virtual ~Messenger() = default;

  virtual int process() const = 0;
  virtual int processes() const = 0;
  /// Processes of the job on this machine.
  virtual int processes_here() const = 0;

  /// What each process of the job says, by process: at process 0; elsewhere nothing.
  virtual std::vector<std::string> gather(const std::string& text) = 0;
  /// The same, everywhere.
  virtual std::vector<std::string> all_gather(const std::string& text) = 0;

  /// Ends all processes of the job with this exit status, whatever they are doing.
  [[noreturn]] virtual void abort(int status) = 0;
};

}  // namespace lockstep::device
