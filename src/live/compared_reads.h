// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/extraction_comparison.h"
#include "src/live/compared_contents.h"

namespace lockstep::live {

/// What one side says of the sums that its optimizers read of a parameter.
class SumWords {
 public:
  virtual ~SumWords() = default;
  /// Of a sum from 0 on. `rank`: one that reads it.
  virtual std::string formula(int sum, int rank) const = 0;
  /// Of one below ComparedSide::no_gradient: why nobody knows.
  virtual const std::string& reason(int sum) const = 0;
};

/// A formula of elements that no optimizer reads.
constexpr const char* nobody_reads = "nothing: no optimizer gets it";

/// Holds what optimizers read on two sides against each other, element by element, and says in a comparison what
/// differs.
class ReadComparison {
 public:
  /// It must outlive this.
  explicit ReadComparison(ExtractionComparison& result) : result_(result) {}

  /// Of one parameter in one step; indices count alike on both sides. Complexity: near linear in the stretches, times
  /// the ranks that read one where they get different sums.
  void compare(const std::string& name, const std::vector<ReadStretch>& before, const std::vector<ReadStretch>& after,
               const SumWords& old_words, const SumWords& new_words);
  /// Once for the same parameter and reason.
  void undecided(const std::string& name, const std::string& elements, const std::string& why);
  /// Says of which parameters ranks read other elements.
  void finish();

 private:
  /// Stretches of elements that several ranks read and in which they get one sum.
  struct ReadByRanks {
    Interval elements;
    int sum = 0;
    std::vector<int> ranks;  // ascending
  };
  using ByEnd = std::multimap<std::int64_t, const ReadByRanks*>;
  struct Found {
    GradientDifference difference;
    int old_rank = -1, new_rank = -1;
  };
  using FoundBySums = std::map<std::pair<int, int>, Found>;
  using ByRank = std::map<int, std::set<int>>;
  static constexpr int nobody = std::numeric_limits<int>::min();

  static std::vector<ReadByRanks> by_ranks(const std::vector<ReadStretch>& stretches);
  void compare_part(const std::string& name, const Interval& part, const ByEnd& before, const ByEnd& after,
                    const SumWords& old_words, const SumWords& new_words, FoundBySums& found);
  static std::set<int> readers(const ByRank& sums, int sum);
  static void add(GradientDifference& difference, const Interval& part, const std::set<int>& old_ranks,
                  const std::set<int>& new_ranks);
  void other_readers(const std::string& name, const std::vector<int>& before, const std::vector<int>& after);

  ExtractionComparison& result_;
  std::map<std::string, std::set<int>> other_readers_;
  std::set<std::pair<std::string, std::string>> undecided_;
};

}  // namespace lockstep::live
