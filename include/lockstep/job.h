// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace lockstep {

namespace device {
class Messenger;
}

/// A job of processes that run this program together. What says "all processes" below is a collective: each makes the
/// same calls in the same order. Of one job at a time, from one thread.
class Job {
 public:
  /// Works over any messenger.
  explicit Job(std::unique_ptr<device::Messenger> messenger);
  /// Leaves the job; all processes.
  virtual ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int process() const;
  int processes() const;
  /// Processes of the job on this machine.
  int processes_here() const;
  device::Messenger& messenger() { return *messenger_; }

  /// What each process says, by process; all processes.
  std::vector<std::string> exchange(const std::string& text);
  /// Ends all processes with this exit status, at once; for failures of one process alone.
  [[noreturn]] void abort(int status);

 private:
  std::unique_ptr<device::Messenger> messenger_;
};

}  // namespace lockstep
