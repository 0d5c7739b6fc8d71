// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/longest_run.h"

#include <algorithm>
#include <random>

#include "tests/catch.h"

using lockstep::diagnosis::in_longest_run;

TEST_CASE("what stays in a list that is put into another order is as much as can be, and ascends") {
  CHECK(in_longest_run({}).empty());
  CHECK(in_longest_run({2, 0, 1}) == std::vector<bool>{false, true, true});
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::size_t> numbers(random() % 8);
    for (std::size_t at = 0; at < numbers.size(); ++at) numbers[at] = at;
    std::shuffle(numbers.begin(), numbers.end(), random);
    // Every subset is tried.
    std::size_t most = 0;
    for (unsigned chosen = 0; chosen < 1U << numbers.size(); ++chosen) {
      std::vector<std::size_t> kept;
      for (std::size_t at = 0; at < numbers.size(); ++at) {
        if ((chosen >> at & 1U) != 0) kept.push_back(numbers[at]);
      }
      if (std::is_sorted(kept.begin(), kept.end())) most = std::max(most, kept.size());
    }
    const std::vector<bool> found = in_longest_run(numbers);
    std::vector<std::size_t> kept;
    for (std::size_t at = 0; at < numbers.size(); ++at) {
      if (found[at]) kept.push_back(numbers[at]);
    }
    CHECK(std::is_sorted(kept.begin(), kept.end()));
    CHECK(kept.size() == most);
  }
}
