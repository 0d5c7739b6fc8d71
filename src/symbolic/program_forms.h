// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/symbolic/forms.h"
#include "src/symbolic/program_meetings.h"

namespace lockstep::symbolic {

/// Why nothing is known of elements that no content covers.
inline constexpr std::string_view not_followed = "what is there was not followed";

/// Elements [begin, end) that all hold one sum of contributions. Element e holds the sum of coefficient times element
/// e + shift + ComposedTerm::offset of a contribution.
struct Stretch {
  std::int64_t begin = 0, end = 0;
  int form = 0;  ///< for terms_of(); below 0: nobody knows, and why: for reason_of()
  std::int64_t shift = 0;
  friend bool operator==(const Stretch&, const Stretch&) = default;
};
using Stretches = std::vector<Stretch>;  // ascending; between them is what was not followed

/// A term of a composed form.
struct ComposedTerm {
  int rank = 0, source = 0;  ///< a contribution of that rank's program
  std::int64_t offset = 0;   ///< see Stretch
  Rational coefficient;
};

/// Programs composed: what each rank's optimizer reads as a sum of the contributions of all ranks, exactly. What a
/// group's members get alike is kept once. `programs` and `meetings` must outlive it.
class ProgramForms {
 public:
  ProgramForms(const RankPrograms& programs, const Meetings& meetings);

  /// What a result of a rank's program holds. Of elements that are known, stretches with one form and one shift hold
  /// the same.
  Stretches result(int rank, int result);
  /// By rank and source, ascending; no coefficient is zero.
  std::vector<ComposedTerm> terms_of(int form) const;
  const std::string& reason_of(int form) const { return reason(form).why; }
  /// Of one that nobody knows: whether it is known to be no sum.
  NoSum no_sum(int form) const { return reason(form).no_sum; }

 private:
  struct View;
  /// Why there is no form.
  struct Reason {
    std::string why;
    NoSum no_sum = NoSum::perhaps;
    int rank = -1;  ///< of what is known to be no sum: that it comes from, if it is one
    int curve = 0;  ///< of that: 1 where it is convex, as a maximum is, -1 where it is concave
    friend auto operator<=>(const Reason&, const Reason&) = default;
  };
  const Reason& reason(int form) const { return reasons_[at(-1 - form)]; }
  void compose(int meeting);
  Stretches evaluate(int rank, const ProgramContent& content);
  /// Where the terms are the rank's own contributions, element by element: their sum, made at once. The form of each
  /// and of each times its coefficient would be kept as well: of many ranks they are most of all forms.
  std::optional<Stretch> sum_of_own(int rank, const ContentPart& part);
  /// Its atom.
  int contribution(int rank, int source);
  View view(int rank, const SourceTerm& term, std::int64_t first);
  /// The sum of what the views show of [begin, end).
  void add_sum(std::vector<View>& views, std::int64_t begin, std::int64_t end, Stretches& sum);
  /// What another reduction than a sum makes of the members' inputs.
  void add_other(const ProgramCall& call, const std::vector<Stretches>& inputs, Stretches& output);
  int other(const ProgramCall& call, const std::vector<Stretch>& held);
  /// Whether one of two forms depends on data that the other does not depend on.
  bool is_apart(int form, int other) const;
  void add(Stretches& stretches, const Stretch& next) const;
  int unknown(Reason reason);
  int scaled(int form, const Rational& factor);
  /// A sum in which these have no form.
  int unknown_sum(const std::vector<int>& forms);

  const RankPrograms& programs_;
  const Meetings& meetings_;
  GroupPositions positions_;
  Forms forms_;
  std::vector<std::vector<Stretches>> outputs_;  // by meeting; one for all members, or one for each
  std::vector<Reason> reasons_;
  std::map<Reason, int> reason_numbers_;
};

}  // namespace lockstep::symbolic
