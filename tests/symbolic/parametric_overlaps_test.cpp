// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <random>

#include "src/symbolic/parametric/overlaps.h"
#include "tests/cases.h"
#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::parametric;

namespace {

/// For each comparison and cut in it, the first that has the same member, of those asked for and the cuts before.
std::vector<int> answers(const std::vector<Comparison>& comparisons, const std::vector<std::int64_t>& members) {
  std::vector<int> answers;
  for (const Comparison& comparison : comparisons) {
    std::vector<std::int64_t> numbers = comparison.members;
    for (const int cut : comparison.cuts) {
      numbers.push_back(members[static_cast<std::size_t>(cut)]);
      answers.push_back(static_cast<int>(std::find(numbers.begin(), numbers.end(), numbers.back()) - numbers.begin()));
    }
  }
  return answers;
}

struct First {
  Interval elements;
  std::vector<std::int64_t> members;
  bool operator==(const First&) const = default;
};
struct Found {
  std::map<std::vector<int>, First> firsts;  ///< by answers
  int stretches = 0;
};

Found look(const std::vector<Cut>& cuts, const std::vector<Comparison>& comparisons, std::int64_t numel,
           const Intervals& parts) {
  Found found;
  Overlaps overlaps(cuts, numel);
  for (const Interval& part : parts) {
    for (overlaps.skip_to(part.begin); !overlaps.done() && overlaps.elements().begin < part.end; overlaps.next()) {
      ++found.stretches;
      found.firsts.try_emplace(answers(comparisons, overlaps.members()),
                               First{overlaps.elements(), overlaps.members()});
    }
  }
  return found;
}

}  // namespace

TEST_CASE("overlaps of cuts come in order and leave nothing out", "[parametric]") {
  const std::vector<Cut> cuts = {{3, 10, 27}, {0, 4, 27}};
  std::vector<Interval> stretches;
  std::vector<std::int64_t> first, second;
  for (Overlaps overlaps(cuts, 27); !overlaps.done(); overlaps.next()) {
    stretches.push_back(overlaps.elements());
    first.push_back(overlaps.members()[0]);
    second.push_back(overlaps.members()[1]);
  }
  CHECK(stretches ==
        std::vector<Interval>{{0, 4}, {4, 7}, {7, 8}, {8, 12}, {12, 16}, {16, 17}, {17, 20}, {20, 24}, {24, 27}});
  CHECK(first == std::vector<std::int64_t>{0, 0, 1, 1, 1, 1, 2, 2, 2});
  CHECK(second == std::vector<std::int64_t>{0, 1, 1, 2, 3, 4, 4, 5, 6});

  Overlaps overlaps(cuts, 27);
  overlaps.skip_to(18);
  CHECK(overlaps.elements() == Interval{17, 20});
  overlaps.skip_to(19);  // in it
  CHECK(overlaps.elements() == Interval{17, 20});
  overlaps.skip_to(27);
  CHECK(overlaps.done());
}

TEST_CASE("which members of cuts are one is seen in the parts that tell", "[parametric]") {
  std::mt19937 random(8);
  const auto below = [&](std::int64_t end) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(end)); };
  int skipped = 0, kinds = 0;
  const int rounds = static_cast<int>(test::cases(4000));
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t numel = 1 + below(round % 2 == 0 ? 400 : 4000);
    const std::int64_t usual = 1 + below(12);
    std::vector<Cut> cuts;
    std::vector<Comparison> comparisons(static_cast<std::size_t>(1 + below(2)));
    const std::int64_t count = 1 + below(4);
    for (std::int64_t i = 0; i < count; ++i) {
      // Lengths that are equal, next to each other, or far from each other; offsets that are equal or not.
      const std::int64_t length =
          std::max<std::int64_t>(1, usual + (below(2) == 0 ? 0 : below(4) - 1) * (1 + below(2)));
      cuts.push_back({below(2) == 0 ? 0 : below(40), length, numel});
      comparisons[static_cast<std::size_t>(below(static_cast<std::int64_t>(comparisons.size())))].cuts.push_back(
          static_cast<int>(i));
    }
    for (Comparison& comparison : comparisons) {
      for (std::int64_t i = below(3); i > 0; --i) comparison.members.push_back(below(3) == 0 ? 0 : below(60));
    }
    const Found all = look(cuts, comparisons, numel, {{0, numel}});
    const Found some = look(cuts, comparisons, numel, telling(cuts, comparisons, numel));
    CAPTURE(round, numel, cuts.size());
    REQUIRE(some.firsts == all.firsts);
    skipped += all.stretches > 2 * some.stretches ? 1 : 0;
    kinds += static_cast<int>(all.firsts.size());
  }
  CHECK(skipped > rounds / 4);
  CHECK(kinds > 2 * rounds);
}

TEST_CASE("how much tells does not depend on the number of members", "[parametric]") {
  // An embedding at the end of one stage's buffer and at the beginning of another's, cut for n ranks.
  const std::int64_t embedding = std::int64_t{50304} * 768 * 64;
  const auto stretches = [&](std::int64_t n) {
    const std::vector<Cut> cuts = {{7 * embedding / 10 / n * n, embedding * 17 / 10 / n, embedding},
                                   {0, embedding * 18 / 10 / n, embedding},
                                   {12345, embedding * 18 / 10 / n, embedding}};
    const std::vector<Comparison> comparisons = {{{0, 1, 2}, {0, n - 1}}};
    return look(cuts, comparisons, embedding, telling(cuts, comparisons, embedding)).stretches;
  };
  const int at_1024 = stretches(1024);
  CHECK(at_1024 < 300);
  CHECK(stretches(std::int64_t{1} << 20) <= at_1024 + 10);
}
