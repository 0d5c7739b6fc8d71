// SPDX-License-Identifier: Apache-2.0
//
// Every row of the operation table proves itself: its effect on whole buffers against its
// decomposition into sends and local sums, for group sizes 1 to 8 and sizes 0, 1 and a prime.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "lockstep/collective.h"
#include "lockstep/local_step.h"
#include "lockstep/operation.h"
#include "lockstep/rational.h"
#include "src/base/at.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

using Buffer = std::vector<Rational>;

// The algebra of collective.h over plain element lists.
struct Plain {
  Buffer reduce(const std::vector<Buffer>& members, bool average) const {
    Buffer result(members.front().size());
    for (std::size_t e = 0; e < result.size(); ++e) {
      for (const Buffer& member : members) result[e] += member[e];
      if (average) result[e] = result[e] / Rational(static_cast<std::int64_t>(members.size()));
    }
    return result;
  }
  void place(Buffer& target, const Intervals& where, const Buffer& source) const {
    for (const Interval& interval : where) {
      for (std::int64_t e = interval.begin; e < interval.end; ++e) {
        target[at(e)] = source[at(e)];
      }
    }
  }
};

// Member m's element e: no two sums of different ones are equal.
std::vector<Buffer> start(int n, std::int64_t numel) {
  std::vector<Buffer> members(static_cast<std::size_t>(n));
  for (int m = 0; m < n; ++m) {
    for (std::int64_t e = 0; e < numel; ++e) {
      members[at(m)].push_back(Rational((std::int64_t{1} << (4 * m)) * (e + 1) + 7 * e));
    }
  }
  return members;
}

std::vector<Interval> cut(int n, std::int64_t numel, bool equal) {
  const std::int64_t length = (numel + n - 1) / n;
  std::vector<Interval> slices;
  if (!equal) {  // the first has nothing, and the last what is left
    for (std::int64_t i = 0; i < n; ++i)
      slices.push_back({std::min(i * i / 2, numel), i + 1 < n ? std::min((i + 1) * (i + 1) / 2, numel) : numel});
    return slices;
  }
  for (int i = 0; i < n; ++i) slices.push_back({std::min(i * length, numel), std::min((i + 1) * length, numel)});
  return slices;
}

std::vector<Buffer> by_effect(const Operation& row, int n, std::int64_t numel, int root, bool average, bool equal) {
  std::vector<Buffer> members = start(n, numel);
  std::vector<Intervals> slices;
  for (const Interval& slice : cut(n, numel, equal)) slices.push_back(slice.empty() ? Intervals{} : Intervals{slice});
  Plain algebra;
  apply_collective(row, algebra, members, slices, numel ? Intervals{{0, numel}} : Intervals{}, root, average);
  return members;
}

std::vector<Buffer> by_decomposition(const Operation& row, int n, std::int64_t numel, int root, bool average,
                                     bool equal, std::int64_t& sent) {
  std::vector<Buffer> members = start(n, numel);
  std::vector<Buffer> scratch = members;
  const std::vector<Interval> slices = cut(n, numel, equal);
  const auto elements = [&](int slice) {
    REQUIRE((slice >= -1 && slice < n));
    return slice == -1 ? Interval{0, numel} : slices[at(slice)];
  };
  const Decomposition decomposition = row.decompose(n, root);
  for (const Decomposition::Transfer& transfer : decomposition.transfers) {
    const Interval range = elements(transfer.slice);
    sent += std::max<std::int64_t>(range.size(), 0);
    for (std::int64_t e = range.begin; e < range.end; ++e) {
      const Rational value = scratch[at(transfer.from)][at(e)];
      Rational& target = scratch[at(transfer.to)][at(e)];
      target = transfer.add ? target + value : value;
    }
  }
  for (int m = 0; m < n; ++m) {
    for (int slice : decomposition.takes_over[at(m)]) {
      const Interval range = elements(slice);
      for (std::int64_t e = range.begin; e < range.end; ++e) {
        const Rational value = scratch[at(m)][at(e)];
        members[at(m)][at(e)] = average ? value / Rational(n) : value;
      }
    }
  }
  return members;
}

// A buffer of one element for apply_local().
struct OneElement {
  Rational value{7}, from{100}, by{3}, clipping{5}, gradient{1000}, unknown{10000};

  void clear() { value = Rational(0); }
  void multiply() { value = value * by; }
  void clip() { value = value * clipping; }
  void take_over() { value = from; }
  void add_buffer() { value = value + from; }
  void add_gradient() { value = value + by * gradient; }
  void add_leftover() { value = value + by * unknown; }
};

// A member for owned_after(): it owned the elements 0 to 6 of 10, and answers for 4 to 8.
struct OneMember {
  bool is_root = false;
  static Intervals owned() { return {{0, 6}}; }
  static Intervals slice() { return {{4, 8}}; }
  static Intervals in_slice() { return {{4, 6}}; }
  static Intervals and_view() { return {{0, 10}}; }
  Intervals if_root() const { return is_root ? owned() : Intervals{}; }
};

}  // namespace

TEST_CASE("every step of one rank does to its buffer what its row says") {
  const std::map<std::string_view, Rational> after = {{"backward", Rational(3007)}, {"scale", Rational(21)},
                                                      {"copy", Rational(100)},      {"accumulate", Rational(107)},
                                                      {"zero", Rational(0)},        {"leftover", Rational(30007)},
                                                      {"clip", Rational(35)}};
  std::size_t found = 0;
  for (const Operation& row : operations()) {
    INFO(row.name);
    REQUIRE(row.local() == (after.count(row.name) == 1));
    OneElement element;
    apply_local(row, element);
    CHECK(element.value == (row.local() ? after.at(row.name) : Rational(7)));
    CHECK_FALSE((row.local() && row.collective));
    CHECK((!row.reads_from() || row.keys.find("from") != std::string_view::npos));
    found += row.local() ? 1 : 0;
  }
  CHECK(found == after.size());
}

TEST_CASE("a member owns after each step what its row says, and no step without members changes that") {
  for (const Operation& row : operations()) {
    INFO(row.name);
    OneMember root{true}, other{false};
    if (row.name == "reduce_scatter" || row.name == "reduce_scatter_v") {
      CHECK(owned_after(row, other) == Intervals{{4, 6}});
    } else if (row.name == "own") {
      CHECK(owned_after(row, other) == Intervals{{4, 8}});
    } else if (row.name == "all_gather") {
      CHECK(owned_after(row, other) == Intervals{{0, 10}});
    } else if (row.name == "reduce") {
      CHECK(owned_after(row, root) == OneMember::owned());
      CHECK(owned_after(row, other).empty());
    } else {
      CHECK(owned_after(row, root) == OneMember::owned());
      CHECK(owned_after(row, other) == OneMember::owned());
      CHECK(row.ownership == Operation::Ownership::keeps);
    }
    CHECK((row.of_a_group() || row.ownership == Operation::Ownership::keeps));
  }
}

TEST_CASE("every collective that moves data does what its sends and local sums do") {
  int checked = 0;
  for (const Operation& row : operations()) {
    if (row.writes == Operation::Writes::nothing) {
      CHECK(row.decompose == nullptr);
      continue;
    }
    REQUIRE(row.decompose != nullptr);
    for (int n = 1; n <= 8; ++n) {
      for (const std::int64_t numel : {0, 1, 13}) {
        for (int root = 0; root < n; ++root) {
          for (const bool average : {false, true}) {
            for (const bool equal : {true, false}) {
              if ((average && !row.reduces()) || (row.equal_slices && !equal)) continue;
              std::int64_t sent = 0;
              INFO(row.name << " n=" << n << " numel=" << numel << " root=" << root << " average=" << average
                            << " equal=" << equal);
              CHECK(by_effect(row, n, numel, root, average, equal) ==
                    by_decomposition(row, n, numel, root, average, equal, sent));
              CHECK(sent == row.ring_sends * (n - 1) * numel);
              ++checked;
            }
          }
        }
      }
    }
  }
  CHECK(checked == (6 + 4) * 3 * 36 + (5 + 3) * 3 * 36);  // with equal slices, and with others
}

TEST_CASE("each row stands in its place under its own name") {
  REQUIRE(operations().size() == static_cast<std::size_t>(op_count));
  for (std::size_t i = 0; i < operations().size(); ++i) {
    CHECK(static_cast<std::size_t>(operations()[i].op) == i);
    CHECK(op_named(operations()[i].name) == operations()[i].op);
    CHECK_FALSE(operations()[i].help.empty());
  }
  CHECK_FALSE(op_named("allreduce").has_value());
}

TEST_CASE("each row says in words what it does, and which of its keys an op that may have been meant does not take") {
  const auto words_of = [](std::string_view keys) {
    std::set<std::string_view> words;
    while (!keys.empty()) {
      const std::size_t end = std::min(keys.find(' '), keys.size());
      words.insert(keys.substr(0, end));
      keys.remove_prefix(std::min(end + 1, keys.size()));
    }
    return words;
  };
  for (const Operation& row : operations()) {
    INFO(row.name);
    CHECK_FALSE(row.deed.empty());
    for (const Operation::Instead& instead : row.instead) {
      const Operation& other = operation(instead.op);
      INFO(other.name);
      CHECK(other.op != row.op);
      std::set<std::string_view> lost = words_of(row.keys);
      for (const std::string_view key : words_of(other.keys)) lost.erase(key);
      for (const std::string_view key : instead.without) {
        // Every op may act on what is owned alone, and this one need not.
        CHECK((lost.erase(key) == 1 || key == "on"));
      }
      CHECK(lost.empty());
    }
  }
}

TEST_CASE("ownership narrows only where a row says that elements become stale") {
  for (const Operation& row : operations()) {
    if (row.writes == Operation::Writes::own_slice) CHECK(row.ownership == Operation::Ownership::intersects_own_slice);
    CHECK((row.cuts == Operation::Cuts::nothing) == (row.keys.find("geometry") == std::string_view::npos));
    if (row.writes == Operation::Writes::everywhere) CHECK(row.ownership != Operation::Ownership::intersects_own_slice);
    CHECK(row.joins_family == (row.ownership == Operation::Ownership::intersects_own_slice ||
                               row.ownership == Operation::Ownership::root_keeps_others_lose ||
                               row.ownership == Operation::Ownership::sets_own_slice));
  }
}
