// SPDX-License-Identifier: Apache-2.0
#include "src/symbolic/contents.h"

#include <algorithm>

#include "lockstep/diagnostic.h"

namespace lockstep::symbolic {

namespace {

using Segment = Contents::Segment;
using Content = Contents::Content;

void append(Content& content, std::int64_t end, int form) {
  if (!content.empty() && content.back().end >= end) return;
  if (!content.empty() && content.back().form == form) {
    content.back().end = end;
  } else {
    content.push_back({end, form});
  }
}

// Appends what `source` holds up to `end`; `at` is the first segment that reaches beyond the end of `target`.
void append_until(Content& target, const Content& source, std::size_t& at, std::int64_t end) {
  const std::int64_t begin = target.empty() ? 0 : target.back().end;
  while (at < source.size() && source[at].end <= begin) ++at;
  for (; at < source.size() && source[at].end <= end; ++at) append(target, source[at].end, source[at].form);
  if (at < source.size()) append(target, end, source[at].form);
}

}  // namespace

std::size_t Contents::Hash::operator()(const Content& content) const {
  std::uint64_t hash = 0x9E3779B97F4A7C15u + content.size();
  for (const Segment& segment : content) {
    hash = (hash ^ static_cast<std::uint64_t>(segment.end)) * 0xD6E8FEB86659FD93u;
    hash = ((hash >> 32) ^ hash ^ static_cast<std::uint64_t>(segment.form)) * 0x9E3779B97F4A7C15u;
  }
  return static_cast<std::size_t>(hash ^ (hash >> 32));
}

int Contents::uniform(std::int64_t numel, int form) { return intern(numel == 0 ? Content{} : Content{{numel, form}}); }

int Contents::add(int a, int b) {
  const std::uint64_t key =
      (static_cast<std::uint64_t>(std::min(a, b)) << 32) | static_cast<std::uint32_t>(std::max(a, b));
  const auto found = sums_.find(key);
  if (found != sums_.end()) return found->second;
  const Content x = content(a), y = content(b);
  Content result;
  for (std::size_t i = 0, j = 0; i < x.size() && j < y.size();) {
    const std::int64_t end = std::min(x[i].end, y[j].end);
    append(result, end, forms_->add(x[i].form, y[j].form));
    if (x[i].end == end) ++i;
    if (y[j].end == end) ++j;
  }
  const int number = intern(std::move(result));
  sums_.emplace(key, number);
  return number;
}

int Contents::scale(int number, const Rational& factor) {
  Content result;
  for (const Segment& segment : Content(content(number)))
    append(result, segment.end, forms_->scale(segment.form, factor));
  return intern(std::move(result));
}

int Contents::clip(int number, int factor) {
  Content result;
  for (const Segment& segment : Content(content(number)))
    append(result, segment.end, forms_->clip(segment.form, factor));
  return intern(std::move(result));
}

int Contents::add_form(int number, const Intervals& where, int form) {
  if (content(number).empty() || where.empty()) return number;
  const Content old = content(number);
  if (old.size() == 1 && where.size() == 1 && where[0].begin == 0 && where[0].end >= old[0].end) {
    return intern(Content{{old[0].end, forms_->add(old[0].form, form)}});
  }
  Content added;
  for (const Interval& interval : where) {
    if (interval.begin > 0) append(added, interval.begin, 0);
    append(added, interval.end, form);
  }
  append(added, old.back().end, 0);
  return add(number, intern(std::move(added)));
}

int Contents::reduce(const std::vector<int>& members, bool average) {
  std::vector<int> key = members;
  key.push_back(average ? 1 : 0);
  const auto found = reductions_.find(key);
  if (found != reductions_.end()) return found->second;
  const Rational factor = average ? Rational(1, static_cast<std::int64_t>(members.size())) : Rational(1);
  std::vector<std::int64_t> ends;
  for (int member : members) {
    for (const Segment& segment : content(member)) ends.push_back(segment.end);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  Content result;
  std::vector<std::size_t> at(members.size(), 0);
  std::vector<int> forms(members.size());
  for (std::int64_t end : ends) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Content& member = content(members[i]);
      while (member[at[i]].end < end) ++at[i];
      forms[i] = member[at[i]].form;
    }
    append(result, end, forms_->scale(forms_->sum(forms), factor));
  }
  const int number = intern(std::move(result));
  reductions_.emplace(std::move(key), number);
  return number;
}

void Contents::place(int& target, const Intervals& where, int source) {
  if (target == source || where.empty()) return;
  const Content& old = content(target);
  const Content& fresh = content(source);
  if (where.size() == 1 && where[0].begin == 0 && !old.empty() && where[0].end == old.back().end) {
    target = source;
    return;
  }
  Content result;
  std::size_t in_old = 0, in_fresh = 0;
  for (const Interval& interval : where) {
    if (interval.begin > 0) append_until(result, old, in_old, interval.begin);
    append_until(result, fresh, in_fresh, interval.end);
  }
  if (!old.empty()) append_until(result, old, in_old, old.back().end);
  target = intern(std::move(result));
}

int Contents::extract(int number, const Intervals& view, const Frame& own) {
  const Content old = content(number);
  Content result;
  std::size_t at = 0;
  std::int64_t before = 0;
  for (const Interval& interval : view) {
    const std::int64_t shift = interval.begin - before;  // local index = position + shift
    while (at < old.size() && old[at].end <= interval.begin) ++at;
    for (; at < old.size(); ++at) {
      const std::int64_t end = std::min(old[at].end, interval.end);
      append(result, end - shift, forms_->leave(old[at].form, own, shift));
      if (old[at].end >= interval.end) break;
    }
    before += interval.size();
  }
  return intern(std::move(result));
}

int Contents::insert(int target, const Intervals& view, int stretch, const Frame& own) {
  const Content fresh = content(stretch);
  Content spread;  // the stretch at its local elements, anything in between
  std::size_t at = 0;
  std::int64_t before = 0;
  for (const Interval& interval : view) {
    const std::int64_t shift = interval.begin - before;
    if (interval.begin > 0) append(spread, interval.begin, 0);
    const std::int64_t last = before + interval.size();
    while (at < fresh.size() && fresh[at].end <= before) ++at;
    for (; at < fresh.size(); ++at) {
      const std::int64_t end = std::min(fresh[at].end, last);
      append(spread, end + shift, forms_->enter(fresh[at].form, own, shift));
      if (fresh[at].end >= last) break;
    }
    before = last;
  }
  const Content& old = content(target);
  if (!old.empty()) append(spread, old.back().end, 0);
  int result = target;
  place(result, view, intern(std::move(spread)));
  return result;
}

}  // namespace lockstep::symbolic
