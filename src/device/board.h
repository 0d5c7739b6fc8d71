// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/device/gpu_network.h"

namespace lockstep::device {

/// A page on which each process of a job writes where it is and why it failed, and on which any of them can read it, at
/// any time and whatever the others do. Texts that are too long are cut.
class Board {
 public:
  /// Of this program alone, for processes that are threads, or where there is no memory that all share.
  explicit Board(int processes);
  /// In memory that a file of at least bytes_for(processes) zeros stands for; processes that open the same share it.
  /// Throws GpuFailure where it cannot be mapped.
  Board(int file, int processes);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  static std::size_t bytes_for(int processes);
  int processes() const { return processes_; }

  enum class State : std::uint64_t { unknown, works, waits, ended };
  struct Entry {
    State state = State::unknown;
    ReplayPlace place;
  };
  void write(int process, State state, const ReplayPlace& place);
  Entry read(int process) const;
  /// Grows whenever any process writes.
  std::uint64_t moves() const;

  /// How a failure is known: by whom it met, or because another process failed.
  enum class Cause : std::uint64_t { none, own, another };
  /// The first of each process counts.
  void fail(int process, Cause cause, const std::string& sentence);
  /// The sentence that says most: of the first that met a failure itself, else of the first that heard of one.
  std::optional<std::string> failure() const;
  /// Whether any process met a failure itself.
  bool failed_by_itself() const;

 private:
  struct Page;
  Page& page(int process) const;
  void* memory_ = nullptr;
  std::size_t mapped_ = 0;  ///< 0: owned
  int processes_;
};

}  // namespace lockstep::device
