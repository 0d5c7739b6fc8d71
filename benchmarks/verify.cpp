// SPDX-License-Identifier: Apache-2.0
// lockstep verify of a run with thousands of parameters on eight ranks, half of them wrong, and of one in which each of
// 96 ranks keeps its own gradient, against what it cannot do without, measured in the same run on one core: parsing the
// lines of all ranks, and one factorization for each result, or for each parameter.
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

constexpr int sums = 128;
constexpr const char* of_bare_work = "of_bare_work";

/// How large a run is.
struct Size {
  int parameters, elements, world, micro_batches;
};
constexpr Size many_parameters = {2000, 96, 8, 2}, many_ranks = {24, 1000, 96, 1};

test::SimpleRun run_of(const Size& size) {
  test::SimpleRun run;
  run.settings.mesh = {{"dp", size.world}};
  run.settings.sums = sums;
  run.micro_batches = size.micro_batches;
  run.parameters.clear();
  for (int i = 0; i < size.parameters; ++i)
    run.parameters.emplace_back(fmt::format("layers.{}.weight", i), size.elements);
  return run;
}

/// Half of the parameters miss one rank's share.
void write_half_wrong(const std::string& folder) {
  test::SimpleRun run = run_of(many_parameters);
  run.coefficient = [](const std::string& name, int, int rank, int, int) {
    const bool wrong = (name[name.size() - 8] - '0') % 2 == 1;
    return wrong && rank == 3 ? 0.0 : 1.0 / many_parameters.world;
  };
  run.write(folder);
}

/// Nobody reduces, and every rank's optimizer gets something else.
void write_not_reduced(const std::string& folder) {
  test::SimpleRun run = run_of(many_ranks);
  run.coefficient = [](const std::string&, int owner, int rank, int, int) { return owner == rank ? 1.0 : 0.0; };
  run.write(folder);
}

/// Seconds for parsing every line, and for a QR factorization of each parameter's contributions.
double bare_work(const std::string& folder, const Size& size) {
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
  const Eigen::MatrixXd columns = Eigen::MatrixXd::Random(sums, size.world * size.micro_batches);
  const Eigen::VectorXd result = Eigen::VectorXd::Random(sums);
  for (int i = 0; i < size.parameters; ++i) kept += columns.colPivHouseholderQr().solve(result).sum();
  benchmark::DoNotOptimize(kept);
  return watch.seconds();
}

void verify_and_compare(benchmark::State& state, const std::string& folder, const Size& size, int wrong) {
  VerifyOptions options;
  options.threads = 1;
  const PeakMemory memory;
  BestTime best(state);
  double bare = 0;
  for (auto _ : state) {
    const double here = bare_work(folder, size);
    bare = bare == 0 ? here : std::min(bare, here);
    const Stopwatch watch;
    const VerifyResult result = verify_run(folder, options);
    best.add(watch.seconds());
    if (result.count(VerifiedPiece::Verdict::wrong) != static_cast<std::size_t>(wrong) || result.findings.size() != 1)
      state.SkipWithError("what is wrong was not found");
  }
  state.counters[of_bare_work] = best.seconds() / bare;
  state.counters[peak_memory] = memory.megabytes();
}

void verify_many(benchmark::State& state) {
  const test::Folder folder;
  write_half_wrong(folder.path());
  verify_and_compare(state, folder.path(), many_parameters, many_parameters.parameters / 2);
}

void verify_ranks(benchmark::State& state) {
  const test::Folder folder;
  write_not_reduced(folder.path());
  verify_and_compare(state, folder.path(), many_ranks, many_ranks.parameters * many_ranks.world);
}

// All formats of a run are linear in its parameters: eight times as many take about eight times as long.
void write_reports(benchmark::State& state) {
  VerifyResult result;
  result.run = "run";
  constexpr int world = many_parameters.world;
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
      one.parameters.push_back({fmt::format("layers.{}.w{}", i % 100, i), {}, {8}, "float32", false, false, {""}});
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
  const PeakMemory memory;
  BestTime best(state);
  double least = 0;
  for (auto _ : state) {
    const double here = seconds(small);
    least = least == 0 ? here : std::min(least, here);
    best.add(seconds(large));
  }
  state.counters["growth"] = best.seconds() / least;
  state.counters[peak_memory] = memory.megabytes();
}

const bool verified =
    add_benchmark("verify_many", verify_many,
                  {{"verify, 2,000 parameters on 8 ranks: times parsing and one factorization each, one core", 4, "×",
                    Comparison::at_most, of_bare_work}});
const bool of_ranks =
    add_benchmark("verify_ranks", verify_ranks,
                  {{"verify, 24 parameters with other results on each of 96 ranks: times parsing and one factorization "
                    "for each parameter, one core",
                    20, "×", Comparison::at_most, of_bare_work}});
const bool reported = add_benchmark(
    "verify_reports", write_reports,
    {{"every report of a run with 8 times the parameters (20,000)", 12, "× the time", Comparison::at_most, "growth"}});

}  // namespace

}  // namespace lockstep::bench
