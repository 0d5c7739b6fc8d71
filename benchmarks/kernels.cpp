// SPDX-License-Identifier: Apache-2.0
// The kernels, as a fraction of the bandwidth at which all cores read memory, measured in the same iteration: this says
// how far they are from a limit of the machine, whatever the machine is and whatever else runs on it.
#include <algorithm>

#include "benchmarks/goal.h"
#include "benchmarks/measure.h"
#include "lockstep/numeric.h"
#include "lockstep/scenario.h"
#include "src/numeric/parallel.h"

namespace lockstep::bench {

namespace {

constexpr double giga = 1e9;

/// Runs `work`, which returns how many bytes of gradients it went through.
template <class Work>
void measure(benchmark::State& state, const Work& work) {
  const ReadBandwidth reader;
  const PeakMemory memory;
  BestTime time(state);
  double bytes = 0, bandwidth = 0;
  for ([[maybe_unused]] const auto iteration : state) {
    bandwidth = std::max(bandwidth, reader.measure());
    const Stopwatch stopwatch;
    bytes = work();
    time.add(stopwatch.seconds());
  }
  const double best = bytes / time.seconds();
  state.counters["read_gb_per_s"] = bandwidth / giga;
  state.counters["gb_per_s"] = best / giga;
  state.counters["percent"] = 100 * best / bandwidth;
  state.counters[peak_memory] = memory.megabytes() - reader.megabytes();
}

/// Gradients of all ranks, each counted once, however many steps act on it.
void host_replay(benchmark::State& state) {
  const Scenario scenario = read_scenario_file(LOCKSTEP_SOURCE_DIR "/scenarios/megatron/844.json");
  const Timeline timeline = walk(*scenario.schedule);
  measure(state, [&] {
    const HostResult result = run_host(*scenario.schedule, timeline, {.force_all = true});
    return static_cast<double>(result.elements) * sizeof(float);
  });
}
const bool added_replay =
    add_benchmark("host_replay", host_replay,
                  {{"host replay of #844, of the read bandwidth", 60, "%", Comparison::at_least, "percent"}});

}  // namespace

}  // namespace lockstep::bench
