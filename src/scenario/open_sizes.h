// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/diagnostic.h"
#include "lockstep/scenario.h"

namespace lockstep::scenario {

class KnownModels;

/// Sizes that a scenario does not allow. `rules` are the conditions of files that refused, as expressions of nothing
/// but sizes, each with what the rule says; none where something else did.
struct RefusedSizes : InputError {
  RefusedSizes(std::vector<Diagnostic> diagnostics, TextsOfExpressions the_rules)
      : InputError(std::move(diagnostics)), rules(std::move(the_rules)) {}
  TextsOfExpressions rules;
};

/// read_scenario() for a reader to whom these are one example of many: where a framework derives a number
/// from sizes, steps hold the expression in place of its value. The verdict is the same.
/// `known`: models of the same scenario that were read at other sizes. One that is the same here is not read again, and
/// `resolved` has none then.
Scenario read_scenario_of_open_sizes(const Json& document, const std::string& file, const WhatIf& what_if,
                                     KnownModels* known = nullptr);
/// Whether a key of the layout that is no size has the same value at all of them: it is written as one, or neither the
/// scenario nor its framework gives it.
bool has_one_value_at_all_sizes(const Scenario& scenario, std::string_view key);
/// Whether "micro_batches" is "any" in what was read, by the scenario or its framework.
bool has_any_micro_batches(const Scenario& scenario);

}  // namespace lockstep::scenario
