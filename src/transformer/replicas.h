// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/model.h"

namespace lockstep::transformer {

/// What a comparison of replicas would see: the owners of an element against each other, and not against one device.
class Replicas {
 public:
  explicit Replicas(std::size_t logicals) : agree_(logicals, true), replicated_(logicals, false) {}

  /// An owner's value of a local element of a buffer, with the bound on its rounding error.
  void add(const LocalBuffer& buffer, std::int64_t element, double value, double bound, bool right);

  /// By logical parameter: all owners of an element agree; some wrong element has several owners.
  const std::vector<bool>& agree() const { return agree_; }
  const std::vector<bool>& replicated() const { return replicated_; }

 private:
  struct Element {
    double value = 0, bound = 0;
    bool right = true, held = false;
  };
  std::map<std::pair<int, int>, std::vector<Element>> held_;  ///< by logical and piece
  std::vector<bool> agree_, replicated_;
};

}  // namespace lockstep::transformer
