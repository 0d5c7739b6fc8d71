// SPDX-License-Identifier: Apache-2.0
// lockstep verify of a run with thousands of parameters on eight ranks, half of them wrong, against what it cannot do
// without, measured in the same run on one core: parsing the lines of all ranks, and one factorization for each result.
#include <fmt/format.h>

#include <Eigen/QR>
#include <filesystem>

#include "benchmarks/goal.h"
#include "benchmarks/measure.h"
#include "lockstep/json.h"
#include "lockstep/report.h"
#include "tests/live/run_writer.h"

namespace lockstep::bench {

namespace {

constexpr int parameters = 2000, world = 8, micro_batches = 2, sums = 128;
constexpr const char* of_bare_work = "of_bare_work";

void write_run(const std::string& folder) {
  test::SimpleRun run;
  run.settings.mesh = {{"dp", world}};
  run.settings.sums = sums;
  run.micro_batches = micro_batches;
  run.parameters.clear();
  for (int i = 0; i < parameters; ++i) run.parameters.emplace_back(fmt::format("layers.{}.weight", i), 96);
  // Half of the parameters miss one rank's share.
  run.coefficient = [](const std::string& name, int, int rank, int, int) {
    const bool wrong = (name[name.size() - 8] - '0') % 2 == 1;
    return wrong && rank == 3 ? 0.0 : 1.0 / world;
  };
  run.write(folder);
}

/// Seconds for parsing every line, and for a QR factorization of each parameter's contributions.
double bare_work(const std::string& folder) {
  const Stopwatch watch;
  double kept = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jsonl") continue;
    const std::string text = test::read_all(entry.path());
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      Diagnostics mistakes;
      const Json json =
          parse_json(std::make_shared<const Source>(Source{"", text.substr(begin, end - begin)}), mistakes);
      kept += json.is_object() ? 1 : 0;
      begin = end + 1;
    }
  }
  const Eigen::MatrixXd columns = Eigen::MatrixXd::Random(sums, world * micro_batches);
  const Eigen::VectorXd result = Eigen::VectorXd::Random(sums);
  for (int i = 0; i < parameters; ++i) kept += columns.colPivHouseholderQr().solve(result).sum();
  benchmark::DoNotOptimize(kept);
  return watch.seconds();
}

void verify_many(benchmark::State& state) {
  const test::Folder folder;
  write_run(folder.path());
  VerifyOptions options;
  options.threads = 1;
  BestTime best(state);
  double bare = 0;
  for (auto _ : state) {
    const double here = bare_work(folder.path());
    bare = bare == 0 ? here : std::min(bare, here);
    const Stopwatch watch;
    const VerifyResult result = verify_run(folder.path(), options);
    best.add(watch.seconds());
    if (result.count(VerifiedPiece::Verdict::wrong) != parameters / 2 || result.findings.size() != 1)
      state.SkipWithError("the wrong half was not found");
  }
  state.counters[of_bare_work] = best.seconds() / bare;
}

// All formats of a run are linear in its parameters: eight times as many take about eight times as long.
void write_reports(benchmark::State& state) {
  VerifyResult result;
  result.run = "run";
  result.world = world;
  result.axes = {{"dp", world}};
  result.files.assign(world, "run/rank-00000.jsonl");
  for (int rank = 0; rank < world; ++rank) result.ranks.push_back(rank);
  result.steps = {0};
  const auto fill = [&](int count) {
    VerifyResult one = result;
    one.findings.resize(1);
    one.findings.front().what = "the share of dp 3 is missing";
    for (int i = 0; i < count; ++i) {
      one.parameters.push_back({fmt::format("layers.{}.w{}", i % 100, i), {}, {8}, "float32", false, {""}});
      VerifiedPiece piece;
      piece.parameter = i;
      piece.ranks = result.ranks;
      piece.verdict = VerifiedPiece::Verdict::wrong;
      piece.finding = 0;
      one.pieces.push_back(piece);
      one.findings.front().parameters.push_back(i);
    }
    one.findings.front().pieces = static_cast<std::size_t>(count);
    return one;
  };
  const VerifyResult small = fill(2500), large = fill(20000);
  const auto seconds = [&](const VerifyResult& run) {
    const Stopwatch watch;
    std::size_t written = 0;
    for (const std::string& kind : report_kinds()) {
      const auto reporter = make_reporter(kind, {}, [&](std::string_view text) { written += text.size(); });
      reporter->add(run);
      reporter->finish();
    }
    benchmark::DoNotOptimize(written);
    return watch.seconds();
  };
  BestTime best(state);
  double least = 0;
  for (auto _ : state) {
    const double here = seconds(small);
    least = least == 0 ? here : std::min(least, here);
    best.add(seconds(large));
  }
  state.counters["growth"] = best.seconds() / least;
}

const bool verified =
    add_benchmark("verify_many", verify_many,
                  {{"verify, 2,000 parameters on 8 ranks: times parsing and one factorization each, one core", 4, "×",
                    Comparison::at_most, of_bare_work}});
const bool reported = add_benchmark(
    "verify_reports", write_reports,
    {{"every report of a run with 8 times the parameters (20,000)", 12, "× the time", Comparison::at_most, "growth"}});

}  // namespace

}  // namespace lockstep::bench
