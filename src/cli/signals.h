// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstddef>

namespace lockstep::cli {

/// While it lives, the signals that end a program go to `handler`.
class EndingSignals {
 public:
  explicit EndingSignals(void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    for (std::size_t i = 0; i < count; ++i) sigaction(signals[i], &action, &before_[i]);
  }
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;
  ~EndingSignals() {
    for (std::size_t i = 0; i < count; ++i) sigaction(signals[i], &before_[i], nullptr);
  }

 private:
  static constexpr std::size_t count = 3;
  static constexpr int signals[count] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction before_[count]{};
};

}  // namespace lockstep::cli
