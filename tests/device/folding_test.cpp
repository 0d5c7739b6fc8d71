// SPDX-License-Identifier: Apache-2.0
#include "src/device/folding.h"

#include "tests/catch.h"

using lockstep::Interval;
using lockstep::device::Folding;

TEST_CASE("ranks are folded on processes evenly, in order, and each on one") {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    for (int processes = 1; processes <= 12; ++processes) {
      INFO(ranks << " ranks on " << processes << " processes");
      const Folding folding(ranks, processes);
      std::int64_t next = 0;
      for (int process = 0; process < processes; ++process) {
        const Interval held = folding.ranks_of(process);
        CHECK(held.begin == next);
        CHECK(held.size() >= ranks / processes);
        CHECK(held.size() <= (ranks + processes - 1) / processes);
        for (std::int64_t rank = held.begin; rank < held.end; ++rank)
          CHECK(folding.process_of(static_cast<int>(rank)) == process);
        next = held.end;
      }
      CHECK(next == ranks);
    }
  }
}

TEST_CASE("folding does not overflow for the largest worlds") {
  const Folding folding(2'000'000'000, 4096);
  CHECK(folding.process_of(1'999'999'999) == 4095);
  CHECK(folding.ranks_of(4095).end == 2'000'000'000);
}
