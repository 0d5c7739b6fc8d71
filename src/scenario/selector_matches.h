// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "lockstep/schedule.h"

namespace lockstep::scenario {

/// Which selectors choose anything in a model, on any rank, which must outlive it. Remembers its answers.
class SelectorMatches {
 public:
  explicit SelectorMatches(const Model& model);

  /// Whether one item, without its `!`, fits a parameter, frozen ones included.
  bool fits_any(const std::string& item);
  /// Whether a list chooses a buffer. No items choose all.
  bool chooses_any(const std::vector<std::string>& items) const;
  /// Nearest thing that could have been meant: a parameter name, "tag:NAME" or "tied:NAME".
  std::string suggestion(const std::string& item) const;

 private:
  bool find_fit(const std::string& item) const;
  const Model* model_;
  std::unordered_set<std::string_view> names_;  // of parameters; the model's own texts
  std::map<std::string, bool> known_;
};

}  // namespace lockstep::scenario
