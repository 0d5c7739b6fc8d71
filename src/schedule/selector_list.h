// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "lockstep/schedule.h"

namespace lockstep::schedule {

/// One item of a list of selectors, taken apart.
struct SelectorItem {
  enum class Kind { name, tag, tied, shard, partial, numel, chunk };
  bool excludes = false;
  Kind kind = Kind::name;
  std::string pattern;          ///< a glob
  std::string_view comparison;  ///< of static storage
  std::int64_t number = 0;

  static SelectorItem read(std::string_view text);
  /// Whether it can mean nothing but a parameter whose name is the pattern.
  bool is_plain_name() const;
  /// `excludes` aside. `numel` is the local element count.
  bool fits(const Parameter& parameter, std::int64_t numel, int chunk) const;
};

/// Selectors that are read once, for many parameters: choosing takes no longer for a long list of names. Chooses what
/// Selectors does.
class SelectorList {
 public:
  explicit SelectorList(const std::vector<std::string>& items);
  bool chooses(const Model& model, const LocalBuffer& buffer) const;
  bool chooses(const Parameter& parameter, std::int64_t numel) const;
  bool chooses(const Parameter& parameter, std::int64_t numel, int chunk) const;

 private:
  std::vector<SelectorItem> others_;
  std::unordered_set<std::string> names_, excluded_names_;
  bool has_inclusion_ = false;
};

}  // namespace lockstep::schedule
