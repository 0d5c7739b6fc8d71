// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include "lockstep/scenario.h"
#include "tests/cases.h"
#include "tests/device/equal_results.h"
#include "tests/numeric/random_schedule.h"

namespace lockstep::test {

/// On how much an engine was held against the host engine.
struct Compared {
  int schedules = 0, matches = 0, wrong = 0, in_field = 0, bfloat16 = 0;

  void add(const HostResult& host) {
    ++schedules;
    ++(host.match ? matches : wrong);
    for (const HostBuffer& buffer : host.buffers) {
      in_field += buffer.arithmetic == Arithmetic::prime61;
      bfloat16 += buffer.arithmetic == Arithmetic::bfloat16;
    }
  }
};

/// The engine; the number is the random schedule's seed, or the file's number.
using EngineRun = std::function<HostResult(unsigned number, const Schedule&, const Timeline&)>;

/// A parameter that tp cuts along `dim` and a replicated one of which each rank of tp has a share, averaged over dp:
/// large enough for many blocks.
inline Schedule cut_and_whole(const std::vector<std::int64_t>& cut_shape, int dim, std::int64_t elements,
                              Dtype dtype_of_whole = Dtype::float32) {
  Parameter cut = parameter("cut", cut_shape);
  Parameter whole = parameter("whole", {elements});
  whole.dtype = dtype_of_whole;
  Step mean = collective(Op::reduce_scatter, "mean", Axis::dp);
  mean.reduction = Reduction::average;
  Layout layout = dp(4);
  layout.tp = 2;
  cut.shard = {{Axis::tp, dim, false}};
  whole.partial = {Axis::tp};
  Step partial = collective(Op::all_reduce, "partial", Axis::tp);
  partial.params = Selectors({"whole"});
  return schedule_of(layout, {cut, whole}, {backwards(), partial, mean}, 2);
}

/// Nothing where the schedule is refused.
inline std::optional<Timeline> walk_if_possible(const Schedule& schedule) {
  try {
    return walk(schedule);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// Requires the same bits on random schedules, and that among them were both verdicts and every arithmetic.
inline void compare_on_random_schedules(unsigned all, const EngineRun& run) {
  Compared compared;
  const unsigned seeds = cases(all, 10);
  for (unsigned seed = 0; seed < seeds; ++seed) {
    const Schedule built = RandomSchedule(seed, true).make();
    const std::optional<Timeline> timeline = walk_if_possible(built);
    if (!timeline) continue;
    INFO("seed " << seed << ", " << built.mesh.world() << " ranks");
    const HostResult host = run_host(built, *timeline);
    require_equal(host, run(seed, built, *timeline));
    compared.add(host);
  }
  const int count = static_cast<int>(seeds);
  CHECK(compared.schedules > count / 2);
  CHECK(compared.matches > count / 7);
  CHECK(compared.wrong > count / 6);
  CHECK(compared.in_field > count / 16);
  CHECK(compared.bfloat16 > 0);
}

/// Requires the same bits on every seventh of the corpus's files without a preset, beginning at `first`; fewer under
/// sanitizers.
inline void compare_on_small_files(unsigned first, const EngineRun& run) {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LOCKSTEP_SOURCE_DIR "/scenarios")) {
    if (entry.path().extension() != ".json") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const bool small = text.str().find("\"preset\"") == std::string::npos;
    if (small && text.str().find("\"parameters\"") != std::string::npos) files.insert(entry.path());
  }
  Compared compared;
  unsigned number = 0;
  for (const std::filesystem::path& file : files) {
    if (number++ % (7 * one_in) != first) continue;
    const Scenario scenario = read_scenario_file(file.string());
    if (scenario.schedule == nullptr) continue;
    INFO(file.string());
    const std::optional<Timeline> timeline = walk_if_possible(*scenario.schedule);
    if (!timeline) continue;
    std::int64_t elements = 0;
    for (int rank = 0; rank < scenario.schedule->mesh.world(); ++rank) {
      for (const LocalBuffer& buffer : scenario.schedule->model.local(rank).buffers) elements += buffer.numel;
    }
    if (elements > 20'000) continue;
    const HostResult host = run_host(*scenario.schedule, *timeline);
    require_equal(host, run(number, *scenario.schedule, *timeline));
    compared.add(host);
  }
  CHECK(compared.schedules > 20 / static_cast<int>(one_in));
  CHECK(compared.wrong > 5 / static_cast<int>(one_in));
}

}  // namespace lockstep::test
