// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/live/cell_formulas.h"
#include "src/live/region_overlaps.h"
#include "src/symbolic/program_forms.h"

namespace lockstep::live {

/// A contribution on one rank.
struct Contributor {
  int rank = 0, source = 0;  ///< of its program
  int micro_batch = 0;
  std::uint32_t partial = 0;
  int line = 0;  ///< of its event
};

/// Contributions of one optimizer step to the same elements.
struct ContributionGroup {
  int step = 0, region = 0;
  std::int64_t first = 0, elements = 0;
  std::vector<Contributor> who;  ///< by rank
};

/// All contributions of an extraction.
class ExtractedContributions {
 public:
  explicit ExtractedContributions(const Extraction& extraction);

  /// Numbers of the groups that contribute to a parameter, ascending.
  const std::vector<int>& of_parameter(int parameter) const { return of_parameter_[at(parameter)]; }
  const ContributionGroup& group(int number) const { return groups_[at(number)]; }

 private:
  std::vector<ContributionGroup> groups_;
  std::vector<std::vector<int>> of_parameter_;
};

/// What contributes to some elements of a parameter, as columns: a rank's contributions of a micro-batch, or those of
/// all ranks that the run says to be replicas.
class ExtractedColumns {
 public:
  /// `groups`: of one parameter, that all contribute to these elements. `replicas`: by bit, axes of which the run does
  /// not say whether ranks along them yield one gradient or shares of one, and which are taken to yield one.
  ExtractedColumns(const Extraction& extraction, const ExtractedContributions& contributions,
                   const std::vector<int>& groups, const std::map<int, Expected>& expected, int parameter,
                   std::uint32_t replicas);

  const std::vector<Column>& columns() const { return columns_; }
  /// Where a rank's contribution stands; none where it is not among them.
  struct Slot {
    int column = 0, member = 0;
  };
  const Slot* slot(int rank, int source) const;
  /// What entered, by the coefficients of contributions that are among them. Those of one member that differ from each
  /// other are left to `uneven`.
  Explanation explain(const std::vector<symbolic::ComposedTerm>& terms, bool& uneven) const;
  /// Axes along which ranks contribute, and nothing says whether they yield one thing or shares of it; by bit.
  std::uint32_t unsaid() const { return unsaid_; }

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<int>> contributions_of_;  // by column: how many each member has
  std::unordered_map<std::uint64_t, Slot> slots_;
  std::uint32_t unsaid_ = 0;
};

}  // namespace lockstep::live
