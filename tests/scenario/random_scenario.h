// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>
#include <string>
#include <vector>

#include "lockstep/json.h"

namespace lockstep::test {

/// Scenarios from one source of random numbers: every framework with its options, every spelling of a layout, presets
/// and lists of parameters, batches, lists of steps, and edits of all of them. Much of it is no valid scenario: what is
/// wrong with it is for the reader to say.
class RandomScenario {
 public:
  explicit RandomScenario(unsigned seed) : random_(seed) {}

  /// Without edits.
  Json document();
  /// The document with some edits of the steps and parameters of these names.
  Json with_edits(Json document, const std::vector<std::string>& steps, const std::vector<std::string>& parameters);

 private:
  bool chance(int percent) { return below(100) < percent; }
  int below(int end) { return std::uniform_int_distribution<int>(0, end - 1)(random_); }
  template <typename Item>
  const Item& one_of(const std::vector<Item>& items) {
    return items[static_cast<std::size_t>(below(static_cast<int>(items.size())))];
  }
  /// JSON text, of a few.
  Json any_of(const std::vector<const char*>& texts);

  Json layout();
  Json preset();
  Json parameters();
  Json parameter(const std::string& name);
  Json batch();
  Json framework();
  Json steps();
  Json step(const std::string& name, bool in_each);
  Json edit(const std::vector<std::string>& steps, const std::vector<std::string>& parameters);
  void maybe(Json& object, const char* key, int percent, const std::vector<const char*>& texts);

  std::mt19937 random_;
};

}  // namespace lockstep::test
