// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "src/transformer/config.h"
#include "src/transformer/rounding.h"

namespace lockstep::transformer {

/// Gradients of one device for the scenarios that are checked one after the other: a wrong scenario and its right twin
/// have the same. From any threads, of which one computes what several ask for at once.
class KnownReferences {
 public:
  /// Of the model's initial_parameters(). It costs a budget the same whether it was known or not.
  std::shared_ptr<const RoundedGradient> get(const Config& config, std::uint64_t seed,
                                             const std::vector<Sequence>& sequences);

 private:
  struct Known {
    Config config;
    std::uint64_t seed = 0;
    std::vector<Sequence> sequences;
    std::once_flag once;
    std::shared_ptr<const RoundedGradient> gradient;
    std::int64_t units = 0;  ///< of a budget, that it took
  };
  std::shared_ptr<Known> entry(const Config& config, std::uint64_t seed, const std::vector<Sequence>& sequences);

  std::mutex mutex_;
  std::deque<std::shared_ptr<Known>> known_;  // the last that was asked for in front
};

}  // namespace lockstep::transformer
