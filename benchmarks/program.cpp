// SPDX-License-Identifier: Apache-2.0
// The program as a whole, as a shell or a CI job starts it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "benchmarks/goal.h"
#include "benchmarks/measure.h"

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

  void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }
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

/// A layout, a few parameters and Megatron's schedule; every other file has a bug.
std::string small_scenario(int number) {
  const int tp = 1 + number % 2, pp = 1 + number / 2 % 2, dp = 2 + number / 4 % 3;
  const std::string edit = number % 2 == 0 ? "" : R"({"set": "dp_all_reduce", "reduce": "avg"})";
  return fmt::format(R"({{"lockstep": 1, "name": "small-{}", "layout": {{"tp": {}, "pp": {}, "dp": {}}},
    "model": {{"preset": "gpt2", "layers": 4, "hidden": 32, "vocab": {}}},
    "schedule": {{"framework": "megatron", "edits": [{}]}}}})",
                     number, tp, pp, dp, 96 + 2 * number, edit);
}

void small_files(benchmark::State& state) {
  constexpr int files = 200;
  const TemporaryFolder folder;
  for (int i = 0; i < files; ++i) folder.write(fmt::format("{:03}.json", i), small_scenario(i));
  check_folder(state, folder.path(), files, 1);
}
const bool added_files = add_benchmark(
    "small_files", small_files, {{"200 small files in one call", 100, "files/s", Comparison::at_least, "files_per_s"}});

}  // namespace

}  // namespace lockstep::bench
