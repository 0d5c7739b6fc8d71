// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace lockstep {

/// Kinds of what is found, in scenarios and in captured runs: first those that have a rule, in the order of their ids.
enum class Mistake {
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
  undecided,
  clipping,
  // Told from the edit that makes them; a finding has the rule of what they do to the values.
  extra_reduction,
  wrong_place,
  wrong_group,
  wrong_placement
};
/// "missing reduction", "wrong factor", …: as `lockstep list` prints it.
std::string_view name_of(Mistake mistake);

/// A kind and its rule: the row behind all names, SARIF's list of rules and the pages in docs/rules/. Ids are stable: a
/// rule that is retired keeps its number, and no number is given twice.
struct Rule {
  Mistake mistake;
  std::string_view words;        ///< "missing reduction"
  std::string_view id;           ///< "LS001"; this and what follows is empty where a kind has no rule
  std::string_view name;         ///< "MissingReduction"
  std::string_view summary;      ///< one sentence: what is wrong
  std::string_view explanation;  ///< how it comes about, and what it does to the training
  std::string_view repair;       ///< what usually mends it
  std::string_view example;      ///< a file of the corpus in which it is found
};
/// All kinds, in the order of `Mistake`.
std::span<const Rule> rules();
const Rule& rule_of(Mistake mistake);

}  // namespace lockstep
