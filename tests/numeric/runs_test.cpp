// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/runs.h"

#include "tests/catch.h"
#include "tests/schedule/builder.h"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("runs cover the elements in order and follow the logical tensor, however it is cut") {
  Layout layout = dp(2);
  layout.tp = 3;
  std::vector<Parameter> parameters = {parameter("whole", {6, 6, 6}),  parameter("first", {6, 6, 6}),
                                       parameter("middle", {6, 6, 6}), parameter("last", {6, 6, 6}),
                                       parameter("both", {6, 6, 6}),   parameter("scalar", {})};
  for (int dim = 0; dim < 3; ++dim) parameters[static_cast<std::size_t>(dim + 1)].shard = {{Axis::tp, dim, false}};
  parameters[4].shard = {{Axis::tp, 0, false}, {Axis::dp, 2, false}};
  const Schedule built = schedule_of(layout, parameters, {});
  const std::vector<std::size_t> expected_runs = {1, 1, 6, 36, 12, 1};
  for (std::size_t logical = 0; logical < parameters.size(); ++logical) {
    const auto& pieces = built.model.pieces(static_cast<int>(logical));
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
      const auto runs_in = [&](Interval elements) {
        return numeric::find_runs(built.model, static_cast<int>(logical), static_cast<int>(piece), elements);
      };
      CHECK(runs_in({0, pieces[piece].numel}).size() == expected_runs[logical]);
      for (std::int64_t begin = 0; begin <= pieces[piece].numel; begin += 5) {
        std::int64_t next = begin;
        const std::int64_t end = std::min(begin + 23, pieces[piece].numel);
        for (const numeric::Run& run : runs_in({begin, end})) {
          REQUIRE(run.local == next);
          for (std::int64_t i = 0; i < run.count; ++i) {
            const std::int64_t global =
                built.model.global_index(static_cast<int>(logical), static_cast<int>(piece), run.local + i);
            REQUIRE(run.global + static_cast<std::uint64_t>(i) == static_cast<std::uint64_t>(global));
          }
          next += run.count;
        }
        REQUIRE(next == end);
      }
    }
  }
}
