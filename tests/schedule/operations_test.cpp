// SPDX-License-Identifier: Apache-2.0
//
// Every row of the operation table proves itself: its effect on whole buffers against its
// decomposition into sends and local sums, for group sizes 1 to 8 and sizes 0, 1 and a prime.
#include <algorithm>

#include "lockstep/collective.h"
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

std::vector<Interval> cut(int n, std::int64_t numel) {
  const std::int64_t length = (numel + n - 1) / n;
  std::vector<Interval> slices;
  for (int i = 0; i < n; ++i) slices.push_back({std::min(i * length, numel), std::min((i + 1) * length, numel)});
  return slices;
}

std::vector<Buffer> by_effect(const Operation& row, int n, std::int64_t numel, int root, bool average) {
  std::vector<Buffer> members = start(n, numel);
  std::vector<Intervals> slices;
  for (const Interval& slice : cut(n, numel)) slices.push_back(slice.empty() ? Intervals{} : Intervals{slice});
  Plain algebra;
  apply_collective(row, algebra, members, slices, numel ? Intervals{{0, numel}} : Intervals{}, root, average);
  return members;
}

std::vector<Buffer> by_decomposition(const Operation& row, int n, std::int64_t numel, int root, bool average,
                                     std::int64_t& sent) {
  std::vector<Buffer> members = start(n, numel);
  std::vector<Buffer> scratch = members;
  const std::vector<Interval> slices = cut(n, numel);
  const auto elements = [&](int slice) { return slice < 0 ? Interval{0, numel} : slices[at(slice)]; };
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

}  // namespace

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
            if (average && row.value != Operation::Value::reduction) continue;
            std::int64_t sent = 0;
            INFO(row.name << " n=" << n << " numel=" << numel << " root=" << root << " average=" << average);
            CHECK(by_effect(row, n, numel, root, average) == by_decomposition(row, n, numel, root, average, sent));
            CHECK(sent == row.ring_sends * (n - 1) * numel);
            ++checked;
          }
        }
      }
    }
  }
  CHECK(checked == 5 * 3 * 36 + 3 * 3 * 36);
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

TEST_CASE("ownership narrows only where a row says that elements become stale") {
  for (const Operation& row : operations()) {
    if (row.writes == Operation::Writes::own_slice) CHECK(row.ownership == Operation::Ownership::intersects_own_slice);
    if (row.writes == Operation::Writes::everywhere) CHECK(row.ownership != Operation::Ownership::intersects_own_slice);
    CHECK(row.joins_family == (row.ownership == Operation::Ownership::intersects_own_slice ||
                               row.ownership == Operation::Ownership::root_keeps_others_lose ||
                               row.ownership == Operation::Ownership::sets_own_slice));
  }
}
