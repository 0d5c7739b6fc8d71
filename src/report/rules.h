// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// One kind of finding. Ids are stable: a rule that is retired keeps its number, and no number is given twice.
struct Rule {
  std::string_view id;           ///< "LS001"
  std::string_view name;         ///< "MissingReduction"
  std::string_view summary;      ///< one sentence: what is wrong
  std::string_view explanation;  ///< how it comes about, and what it does to the training
  std::string_view repair;       ///< what usually mends it
  std::string_view example;      ///< a file of the corpus in which it is found
};

/// What is found, in the order of the ids.
enum class RuleKind {
  missing_reduction,
  wrong_factor,
  wrong_weights,
  stale_slices,
  wrong_cut,
  leftover,
  no_owner,
  norm_count,
  wrong_values,
  deadlock,
  invalid_collective,
  race,
  in_the_model,
  invalid_file,
  unmet_expectation,
  not_checked,
  undecided
};

/// All rules, by id: the one table behind SARIF's list of rules and the pages in docs/rules/.
const std::vector<Rule>& rules();
const Rule& rule_of(RuleKind kind);
/// Where the page of a rule can be read; "" where `docs_url` (ReportOptions) is.
std::string rule_url(const Rule& rule, std::string_view docs_url);

}  // namespace lockstep
