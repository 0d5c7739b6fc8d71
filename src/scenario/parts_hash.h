// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/expression.h"

namespace lockstep::scenario {

/// One number for parts that are added one after the other; of a list its length as well, so that lists which follow
/// each other do not run into one. Equal within one process alone.
class PartsHash {
 public:
  template <std::integral Number>
  void add(Number part) {
    hash_ = (hash_ ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15U;
    hash_ ^= hash_ >> 29U;
  }
  void add(std::string_view text) { add(std::hash<std::string_view>()(text)); }
  /// As it is written; one that is absent is an empty text.
  void add(const std::optional<Expression>& expression) {
    if (expression && !expression->was_parsed()) return add(std::string_view(expression->to_string()));
    add(expression ? std::string_view(expression->parsed_text()) : std::string_view());
  }
  template <class Item>
  void add(const std::vector<Item>& items) {
    for (const Item& item : items) add(item);
    add(items.size());
  }

  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 1;
};

}  // namespace lockstep::scenario
