// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/intervals.h"
#include "src/base/budget.h"
#include "src/symbolic/forms.h"
#include "src/symbolic/interned.h"

namespace lockstep::symbolic {

/// What a buffer holds: element intervals mapped to forms, interned like forms. A content covers
/// [0, numel) without gaps, and neighbours differ. All operations give interned contents.
class Contents {
 public:
  struct Segment {
    std::int64_t end = 0;  ///< begins where the one before ends
    int form = 0;
    friend bool operator==(const Segment&, const Segment&) = default;
  };
  using Content = std::vector<Segment>;

  explicit Contents(Forms& forms) : forms_(&forms) {}

  const Content& content(int number) const { return contents_[number]; }
  std::size_t size() const { return contents_.size(); }
  int uniform(std::int64_t numel, int form);
  int intern(Content content) {
    Budget::spend(2 + static_cast<std::int64_t>(content.size() / 2));
    return contents_.number_of(std::move(content));
  }
  int add(int a, int b);
  int scale(int content, const Rational& factor);
  int clip(int content, int factor);
  /// `form` added where `where` holds.
  int add_form(int content, const Intervals& where, int form);

  // The algebra of collective.h: values are content numbers of one length.
  int reduce(const std::vector<int>& members, bool average);
  void place(int& target, const Intervals& where, int source);

  /// The part of a content at `view`, as one stretch seen from outside (Forms::leave).
  int extract(int content, const Intervals& view, const Frame& own);
  /// Puts such a stretch back into `target` at `view` (Forms::enter).
  int insert(int target, const Intervals& view, int stretch, const Frame& own);

 private:
  struct Hash {
    std::size_t operator()(const Content& content) const;
  };
  Forms* forms_;
  Interned<Content, Hash> contents_;
  std::unordered_map<std::vector<int>, int, ListHash> reductions_;  // members, then 1 for an average
  std::unordered_map<std::uint64_t, int> sums_;
};

}  // namespace lockstep::symbolic
