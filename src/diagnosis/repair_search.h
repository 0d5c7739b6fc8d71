// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/diagnosis/neighbours.h"
#include "src/diagnosis/own_sizes.h"
#include "src/diagnosis/repairs.h"
#include "src/diagnosis/search_space.h"

namespace lockstep::diagnosis {

/// One search over the edits of a small layout: single ones, then pairs. Refers to all that it is given.
class SearchForRepairs {
 public:
  /// `small` as smallest_layout() finds it, or an empty one for the file's own sizes.
  SearchForRepairs(const CheckResult& result, const RepairOptions& options, const SmallLayout& small)
      : result_(result),
        options_(options),
        space_(result, small),
        neighbours_(*result.scenario, small.sizes),
        nearest_only_(options.nearest_only) {}
  RepairSearch run();

 private:
  void search();
  /// A first edit of two, that makes something better.
  struct FirstEdit {
    Candidate candidate;
    OracleAnswer answer;
  };

  std::optional<OracleAnswer> answer_to(const std::vector<const Candidate*>& edits);
  FoundRepair repair_of(const std::vector<const Candidate*>& edits, double added_bytes, bool other_owners) const;
  bool runs_fewer_norms(const std::vector<Candidate>& edits) const;
  bool is_wanted(const FoundRepair& repair) const;
  bool has_ordinary_repair() const;
  bool has_good_repair(int distance);
  void look_for_idle();
  void look_for_idle(FoundRepair& repair);
  bool does_nothing(const ListedStep& step, const std::vector<Edit>& edits, const OracleAnswer& otherwise);
  bool did_nothing(const ListedStep& step);
  void keep_right_here();
  void drop_wrong_here();
  void try_around();
  std::map<int, std::vector<Candidate>> other_candidates() const;
  void single();
  void single(std::vector<Candidate> candidates);
  void look_at_all_back(const std::vector<Step>& steps, const std::vector<Step>& right);
  void complementary();
  void sequential();
  void seconds(const Candidate& first, bool inserts);
  bool is_at_limit();
  void drop_what_loses_norms();
  void count_not_tried();

  const CheckResult& result_;
  const RepairOptions& options_;
  SearchSpace space_;
  Neighbours neighbours_;
  std::optional<OwnSizes> own_sizes_;  // where they are not those of the space
  bool nearest_only_, stopped_ = false;
  std::vector<FirstEdit> firsts_, plain_firsts_;
  std::vector<Candidate> taking_back_;                   // restored or dropped, whether that alone is better or not
  std::unordered_map<std::uint64_t, std::size_t> seen_;  // steps, with their repair
  std::map<std::string, bool> did_nothing_;              // by the name of a step of the wrong schedule
  std::optional<Candidate> all_back_;                    // where no part of it is enough
  std::optional<FoundRepair> all_back_is_;               // where that is right
  bool pairs_begun_ = false;
  std::optional<std::size_t> singles_left_, firsts_left_;  // to be tried; nothing where they are not known yet
  bool inserts_are_known_ = false;                         // and counted
  RepairSearch found_;
};

}  // namespace lockstep::diagnosis
