// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "src/device/board.h"

namespace lockstep::device {

/// Watches over one wait of a process for others: the schedule says who should be where, and the board who is.
class Watch {
 public:
  using Clock = std::chrono::steady_clock;

  /// `names`: how the processes are called, "process 2 (GPU 2)".
  Watch(Board& board, int process, const std::vector<std::string>& names, std::chrono::milliseconds patience)
      : board_(board), process_(process), names_(names), patience_(patience) {}

  /// This process waits for the others of `group` from here on, at `place`.
  void begin(const Processes& group, const ReplayPlace& place);
  /// Looks around. Throws OtherFailure where another process has failed, and NetworkFailure, which says who is where,
  /// where
  /// nobody has moved for too long.
  void look();
  void end();

 private:
  std::string who_is_where() const;

  Board& board_;
  int process_;
  const std::vector<std::string>& names_;
  std::chrono::milliseconds patience_;
  Processes group_;
  ReplayPlace place_;
  std::uint64_t moves_ = 0;
  Clock::time_point since_;
};

}  // namespace lockstep::device
