// SPDX-License-Identifier: Apache-2.0
//
// What the parametric engine says of every rank, against a replay of every rank.
#include <filesystem>
#include <iostream>
#include <set>

#include "lockstep/parametric.h"
#include "lockstep/scenario.h"
#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/numeric/random_schedule.h"

using namespace lockstep;

namespace {

struct Compared {
  int compared = 0, wrong = 0, refused = 0;
};

bool is_wrong(const BufferResult& buffer) {
  return std::any_of(buffer.pieces.begin(), buffer.pieces.end(), [](const PieceResult& piece) { return !piece.right; });
}

ParametricRanks by_all_ranks(const Schedule& schedule, const Timeline& timeline) {
  SymbolicEngine engine(schedule, timeline);
  const SymbolicResult result = engine.run();
  const auto world = static_cast<std::size_t>(schedule.mesh.world());
  ParametricRanks ranks{std::vector<bool>(world, false), std::vector<std::int64_t>(world, 0)};
  for (const BufferResult& buffer : result.buffers) {
    const auto rank = static_cast<std::size_t>(buffer.rank);
    ranks.owned[rank] += size(buffer.owned);
    if (is_wrong(buffer)) ranks.wrong[rank] = true;
  }
  for (const UnownedResult& unowned : result.unowned) ranks.wrong[static_cast<std::size_t>(unowned.rank)] = true;
  for (const NormResult& norm : result.norm) ranks.wrong[static_cast<std::size_t>(norm.rank)] = true;
  return ranks;
}

void compare(const Schedule& schedule, Compared& counts) {
  ParametricEngine engine(schedule);
  const ParametricResult::Verdict verdict = engine.result().verdict;
  if (verdict != ParametricResult::Verdict::match && verdict != ParametricResult::Verdict::mismatch) return;
  ParametricRanks ranks;
  try {
    ranks = engine.ranks();
  } catch (const InputError&) {
    ++counts.refused;
    return;
  }
  ++counts.compared;
  const ParametricRanks expected = by_all_ranks(schedule, walk(schedule));
  CHECK(ranks.owned == expected.owned);
  CHECK(ranks.wrong == expected.wrong);
  if (verdict == ParametricResult::Verdict::mismatch) ++counts.wrong;
}

void print(const char* what, const Compared& counts) {
  std::cout << what << ": every rank of " << counts.compared << " schedules compared, " << counts.wrong
            << " of them wrong; " << counts.refused << " refused\n";
}

}  // namespace

TEST_CASE("what every rank owns and who is wrong, in the corpus", "[parametric][oracle]") {
  Compared counts;
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "scenarios"))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (std::size_t index = 0; index < files.size(); index += test::one_in) {
    try {
      const Scenario scenario = read_scenario_file(files[index]);
      INFO(files[index]);
      if (scenario.schedule && scenario.schedule->mesh.world() <= 64) compare(*scenario.schedule, counts);
    } catch (const InputError&) {
      continue;  // a file of the corpus that is meant to be no scenario
    }
  }
  print("the corpus", counts);
  CHECK(counts.compared >= static_cast<int>(500 / test::one_in));
  CHECK(counts.wrong >= static_cast<int>(200 / test::one_in));
}

TEST_CASE("what every rank owns and who is wrong, in random schedules", "[parametric][oracle]") {
  Compared counts;
  for (unsigned seed = 0; seed < test::cases(2000); ++seed) {
    INFO("seed " << seed);
    compare(test::RandomSchedule(seed).make(), counts);
  }
  print("random schedules", counts);
  CHECK(counts.compared >= static_cast<int>(test::cases(2000) / 2));
}
