// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lockstep/numeric.h"
#include "lockstep/symbolic.h"
#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/numeric/random_schedule.h"

using namespace lockstep;
using namespace lockstep::test;

// Random schedules, sensible and not: the host engine and the symbolic engine must find the same
// buffers wrong in the same optimizer step.

TEST_CASE("host and symbolic engine agree on random schedules") {
  int compared = 0, matches = 0, not_complete = 0, refused = 0, in_field = 0;
  const unsigned seeds = cases(1500);
  for (unsigned seed = 0; seed < seeds; ++seed) {
    INFO("seed " << seed);
    const Schedule built = RandomSchedule(seed, true).make();
    Timeline timeline;
    try {
      timeline = walk(built);
    } catch (const InputError&) {
      ++refused;
      continue;
    }
    not_complete += timeline.outcome.kind != Outcome::Kind::complete;
    const HostResult host = run_host(built, timeline);
    const SymbolicResult symbolic = SymbolicEngine(built, timeline).run();
    REQUIRE(host.buffers.size() == symbolic.buffers.size());
    if (host.buffers.empty()) continue;
    if (!symbolic.unowned.empty() && host.step > symbolic.step) {
      // Elements that nobody owns are wrong too, and the host engine does not look at those.
      for (const BufferResult& each : symbolic.buffers)
        REQUIRE(
            std::all_of(each.pieces.begin(), each.pieces.end(), [](const PieceResult& piece) { return piece.right; }));
      continue;
    }
    REQUIRE(host.step == symbolic.step);
    for (std::size_t i = 0; i < host.buffers.size(); ++i) {
      const BufferResult& expected = symbolic.buffers[i];
      const HostBuffer& found = host.buffers[i];
      REQUIRE(found.rank == expected.rank);
      REQUIRE(found.buffer == expected.buffer);
      const bool right = std::all_of(expected.pieces.begin(), expected.pieces.end(),
                                     [](const PieceResult& piece) { return piece.right; });
      INFO("rank " << found.rank << " buffer " << found.buffer);
      REQUIRE(found.right == right);
      REQUIRE((found.hash == found.expected_hash) == right);
      in_field += found.arithmetic == Arithmetic::prime61;
    }
    ++compared;
    matches += host.match;
  }
  constexpr int part = one_in;
  // Both verdicts and every arithmetic must have occurred, or this shows nothing.
  CHECK(compared > 700 / part);
  CHECK(matches > 250 / part);
  CHECK(compared - matches > 300 / part);
  CHECK(in_field > 100 / part);
  INFO("compared " << compared << ", of these right " << matches << ", not complete " << not_complete << ", refused "
                   << refused);
  CHECK(refused < 700 / part);
}
