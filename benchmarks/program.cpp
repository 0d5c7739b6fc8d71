// SPDX-License-Identifier: Apache-2.0
// The program as a whole, as a shell or a CI job starts it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "benchmarks/goal.h"
#include "benchmarks/measure.h"
#include "lockstep/scenario.h"

namespace lockstep::bench {

namespace {

/// A folder that is gone at the end.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::temp_directory_path() / fmt::format("lockstep-bench-{}", static_cast<int>(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  /// The path that it was written to.
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// `lockstep check` of a folder with `files` scenarios.
void check_folder(benchmark::State& state, const std::string& folder, int files, int expected_status) {
  BestTime time(state);
  double megabytes = 0;
  for ([[maybe_unused]] const auto iteration : state) {
    const Process process = run_process({LOCKSTEP_PROGRAM, "check", folder});
    time.add(process.seconds);
    if (!WIFEXITED(process.status) || WEXITSTATUS(process.status) != expected_status) {
      state.SkipWithError("the exit status is another");
    }
    megabytes = std::max(megabytes, process.megabytes);
  }
  state.counters[peak_memory] = megabytes;
  state.counters["files_per_s"] = files / time.seconds();
}

void start(benchmark::State& state) {
  const TemporaryFolder folder;
  folder.write("empty.json", R"json({"lockstep": 1, "name": "empty", "layout": {"dp": 2},
    "model": {"parameters": [{"name": "w", "shape": [1]}]},
    "schedule": {"steps": [
      {"name": "micro_batches", "op": "each", "steps": [
        {"name": "backward", "op": "backward", "by": "1 / sum(tokens, dp, micro_batch)"}]},
      {"name": "dp_all_reduce", "op": "all_reduce", "over": "dp"}]}})json");
  check_folder(state, folder.path(), 1, 0);
}
const bool added_start = add_benchmark("start", start, {{"start of the program, one trivial scenario", 20, "ms"}});

/// A layout, a few parameters and Megatron's schedule, with a bug or without.
std::string small_scenario(int number, bool wrong) {
  const int tp = 1 + number % 2, pp = 1 + number / 2 % 2, dp = 2 + number / 4 % 3;
  const std::string edit = wrong ? R"({"set": "dp_all_reduce", "reduce": "avg"})" : "";
  return fmt::format(R"({{"lockstep": 1, "name": "small-{}", "layout": {{"tp": {}, "pp": {}, "dp": {}}},
    "model": {{"preset": "gpt2", "layers": 4, "hidden": 32, "vocab": {}}},
    "schedule": {{"framework": "megatron", "edits": [{}]}}}})",
                     number, tp, pp, dp, 96 + 2 * number, edit);
}

/// How long all cores take to read and expand the files: what no check can do without.
double seconds_to_read(const std::vector<std::string>& files) {
  const Stopwatch stopwatch;
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (std::size_t at = next++; at < files.size(); at = next++)
        benchmark::DoNotOptimize(read_scenario_file(files[at]));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return stopwatch.seconds();
}

/// A thousand files in one call, of which one in `wrong_every` has a bug (0: none), against the reading of them in the
/// same iteration, so that what else the machine does takes from both.
void thousand_files(benchmark::State& state, int wrong_every) {
  constexpr int files = 1000;
  const TemporaryFolder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < files; ++i) {
    paths.push_back(
        folder.write(fmt::format("{:03}.json", i), small_scenario(i, wrong_every > 0 && i % wrong_every == 0)));
  }
  BestTime time(state);
  double ratio = std::numeric_limits<double>::infinity(), megabytes = 0;
  for ([[maybe_unused]] const auto iteration : state) {
    const double reading = seconds_to_read(paths);
    const Process process = run_process({LOCKSTEP_PROGRAM, "check", folder.path()});
    time.add(process.seconds);
    if (!WIFEXITED(process.status) || WEXITSTATUS(process.status) != (wrong_every > 0 ? 1 : 0))
      state.SkipWithError("the exit status is another");
    ratio = std::min(ratio, process.seconds / reading);
    megabytes = std::max(megabytes, process.megabytes);
  }
  state.counters[peak_memory] = megabytes;
  state.counters["files_per_s"] = files / time.seconds();
  state.counters["of_reading"] = ratio;
}

void right_files(benchmark::State& state) { thousand_files(state, 0); }
void mixed_files(benchmark::State& state) { thousand_files(state, 10); }

std::vector<Goal> goals_of_thousand(const std::string& what, double most_of_reading) {
  return {{what, 200, "files/s", Comparison::at_least, "files_per_s"},
          {"its time, of that to read the files alone", most_of_reading, "×", Comparison::at_most, "of_reading"}};
}
const bool added_right =
    add_benchmark("right_files", right_files, goals_of_thousand("1,000 small files in one call, all right", 5));
const bool added_mixed =
    add_benchmark("mixed_files", mixed_files, goals_of_thousand("1,000 small files, one in ten wrong", 8));

}  // namespace

}  // namespace lockstep::bench
