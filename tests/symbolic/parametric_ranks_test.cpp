// SPDX-License-Identifier: Apache-2.0
//
// What the parametric engine says of every rank, against a replay of every rank.
#include <filesystem>
#include <iostream>
#include <random>
#include <set>

#include "lockstep/parametric.h"
#include "lockstep/scenario.h"
#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/numeric/random_schedule.h"

using namespace lockstep;

namespace {

struct Compared {
  int compared = 0, wrong = 0, refused = 0, norms = 0;
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

/// One to three norms behind the other steps, which count some parameters over some axes, some of them a mean of norms.
Schedule with_norms(Schedule schedule, unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&](unsigned most) { return static_cast<int>(random() % most); };
  for (int i = 1 + draw(3); i > 0; --i) {
    Step norm;
    norm.name = "norm_" + std::to_string(i);
    norm.op = Op::norm;
    Over over;
    for (const Axis axis : {Axis::dp, Axis::cp, Axis::tp, Axis::pp}) {
      if (schedule.mesh.size(axis) > 1 && draw(2) == 0) over.picks.push_back({axis, std::nullopt});
    }
    if (!over.picks.empty()) norm.over = over;
    if (draw(2) == 0) norm.params = Selectors({draw(2) == 0 ? "p0" : "!p0"});
    norm.mean_of_norms = draw(2) == 0;
    schedule.steps.push_back(norm);
  }
  return schedule;
}

/// Whatever the parametric engine says of a wrong norm the symbolic one says too; returns how many it says.
int compare_norms(ParametricEngine& engine, const Schedule& schedule, const Timeline& timeline) {
  SymbolicEngine symbolic(schedule, timeline);
  std::set<std::string> expected;
  const auto text = [&](const NormResult& norm) {
    return schedule.model.parameters()[static_cast<std::size_t>(norm.parameter)].name + " on rank " +
           std::to_string(norm.rank) + ": " + norm.counted;
  };
  for (const NormResult& norm : symbolic.run().norm) expected.insert(text(norm));
  const ParametricSample sample = engine.sample();
  for (const NormResult& norm : sample.found.norm) {
    INFO(text(norm));
    CHECK(expected.count(text(norm)) == 1);
  }
  return static_cast<int>(sample.found.norm.size());
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
  const Timeline timeline = walk(schedule);
  const ParametricRanks expected = by_all_ranks(schedule, timeline);
  CHECK(ranks.owned == expected.owned);
  CHECK(ranks.wrong == expected.wrong);
  if (verdict != ParametricResult::Verdict::mismatch) return;
  ++counts.wrong;
  counts.norms += compare_norms(engine, schedule, timeline);
}

void print(const char* what, const Compared& counts) {
  std::cout << what << ": every rank of " << counts.compared << " schedules compared, " << counts.wrong
            << " of them wrong, " << counts.norms << " norms; " << counts.refused << " refused\n";
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

TEST_CASE("how often norms count an element, in random schedules", "[parametric][oracle]") {
  Compared counts;
  for (unsigned seed = 0; seed < test::cases(1000); ++seed) {
    INFO("seed " << seed);
    compare(with_norms(test::RandomSchedule(seed).make(), seed), counts);
  }
  print("random norms", counts);
  CHECK(counts.norms >= static_cast<int>(test::cases(1000)));
}
