// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/parametric/overlaps.h"

#include <algorithm>
#include <optional>

#include "lockstep/rational.h"
#include "src/base/at.h"

namespace lockstep::parametric {

Overlaps::Overlaps(const std::vector<Cut>& cuts, std::int64_t numel)
    : cuts_(cuts), numel_(numel), members_(cuts.size(), 0) {
  go_to(0);
}

void Overlaps::go_to(std::int64_t element) {
  begin_ = element;
  end_ = numel_;
  if (done()) return;
  for (std::size_t i = 0; i < cuts_.size(); ++i) {
    members_[i] = (begin_ + cuts_[i].offset) / cuts_[i].length;
    end_ = std::min(end_, (members_[i] + 1) * cuts_[i].length - cuts_[i].offset);
  }
}

void Overlaps::skip_to(std::int64_t element) {
  if (element < end_) return;
  go_to(element);
  if (done()) return;
  for (std::size_t i = 0; i < cuts_.size(); ++i)
    begin_ = i == 0 ? members_[i] * cuts_[i].length - cuts_[i].offset
                    : std::max(begin_, members_[i] * cuts_[i].length - cuts_[i].offset);
  begin_ = std::max<std::int64_t>(begin_, 0);
}

namespace {

bool alike(const Cut& a, const Cut& b) { return a.offset == b.offset && a.length == b.length; }

/// Where the member of `a`, taken as the real number (x + offset) / length, is `more` ahead of that of `b`.
std::optional<std::int64_t> crossing(const Cut& a, const Cut& b, int more) {
  if (a.length == b.length) return std::nullopt;
  const Rational x = (Rational(more) - Rational(a.offset, a.length) + Rational(b.offset, b.length)) /
                     (Rational(1, a.length) - Rational(1, b.length));
  return x.floor().to_int64();
}

}  // namespace

// The member of a cut is the integer part of a line in x. As long as two lines differ by 1 or more, so do the members,
// always in the same direction. While they differ by less, the boundaries of the two cuts alternate, so that in every
// slice the members are one for a part of it and neighbours for the rest; three lines that are close to each other pass
// integers in a fixed order, which decides what occurs in every slice. All this changes only where the difference of
// two lines passes -1, 0 or 1, or a line passes a member that is asked for. It is enough to look at the beginning, and
// around these places: a slice of each before, and two behind. With four cuts, two pairs could be close, and then it
// would matter how the slices of one lie to those of the other.
Intervals telling(const std::vector<Cut>& cuts, const std::vector<Comparison>& comparisons, std::int64_t numel) {
  std::size_t compared = 0;
  std::int64_t longest = 1;
  std::vector<std::int64_t> places = {0};
  for (const Comparison& comparison : comparisons) {
    std::vector<Cut> distinct;
    for (const int number : comparison.cuts) {
      const Cut& cut = cuts[at(number)];
      const auto known = [&](const Cut& other) { return alike(cut, other); };
      if (std::none_of(distinct.begin(), distinct.end(), known)) distinct.push_back(cut);
    }
    if (distinct.size() < 2 && comparison.members.empty()) continue;
    compared += distinct.size();
    for (const Cut& cut : distinct) {
      longest = std::max(longest, cut.length);
      for (const std::int64_t member : comparison.members) {
        for (const std::int64_t boundary : {member, member + 1}) {
          if (boundary <= (numel + cut.offset) / cut.length + 1) places.push_back(boundary * cut.length - cut.offset);
        }
      }
      for (const Cut& other : distinct) {
        for (const int more : {0, 1}) {  // -1 is that of `other` to `cut`
          if (const std::optional<std::int64_t> place = crossing(cut, other, more)) places.push_back(*place);
        }
      }
    }
  }
  if (compared > 3 || longest > numel / 4) return {{0, numel}};
  const std::int64_t before = 2 * longest, behind = 3 * longest;
  Intervals parts;
  std::sort(places.begin(), places.end());
  for (const std::int64_t place : places) {
    if (place < -behind || place > numel + before) continue;
    const Interval part{std::max<std::int64_t>(place - before, 0), std::min(place + behind, numel)};
    if (part.empty()) continue;
    if (!parts.empty() && part.begin <= parts.back().end) {
      parts.back().end = std::max(parts.back().end, part.end);
    } else {
      parts.push_back(part);
    }
  }
  return parts;
}

}  // namespace lockstep::parametric
