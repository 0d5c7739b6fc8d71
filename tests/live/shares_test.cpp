// SPDX-License-Identifier: Apache-2.0
// What ranks share: parts of sums, tied parameters, replicas that drift, backward calls of one micro-batch, other axes.
#include <algorithm>

#include "lockstep/live.h"
#include "tests/catch.h"
#include "tests/live/run_writer.h"

using namespace lockstep;
using test::Folder;
using PieceVerdict = VerifiedPiece::Verdict;

namespace {

std::vector<double> added(const std::vector<double>& a, const std::vector<double>& b, double factor = 1) {
  std::vector<double> sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = test::rounded(factor * (a[i] + b[i]), Dtype::float32);
  return sum;
}

/// Replaces in all ranks' files.
void replace_all(const Folder& folder, int world, const std::string& from, const std::string& to) {
  for (int rank = 0; rank < world; ++rank) {
    const auto file = folder / fmt::format("rank-{:05}.jsonl", rank);
    std::string text = test::read_all(file);
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
    test::write_all(file, text);
  }
}

}  // namespace

TEST_CASE("shares of a sum are contributions of their own, even equal ones, and their results are added up") {
  const Folder folder;
  test::RunWriter::Settings settings;
  settings.mesh = {{"tp", 2}};
  settings.data_axes = {};
  test::RunWriter writer(folder.path(), settings);
  writer.parameter(0, "apart", 1000);
  writer.parameter(1, "equal", 1000);
  const std::vector<double> equal = test::drawn(1000, 9);
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<double> share = test::drawn(1000, static_cast<std::uint64_t>(rank));
    writer.contribution(rank, 0, 0, 0, 0, share);
    writer.contribution(rank, 0, 0, 1, 0, equal);
    writer.result(rank, 0, 0, 0, share);  // what torch's optimizer adds up
    writer.result(rank, 0, 1, 0, rank == 0 ? added(equal, equal) : std::vector<double>(1000));
    writer.step(rank, 0, 1);
  }
  writer.finish();
  replace_all(folder, 2, "\"nonfinite\":0}", "\"nonfinite\":0,\"partial\":[\"tp\"]}");
  const VerifyResult result = verify_run(folder.path());
  CHECK(result.verdict() == PieceVerdict::right);
  REQUIRE(result.pieces.size() == 2);
  CHECK(result.pieces[0].formula == "g0 + g1");
  CHECK(result.pieces[0].ranks == std::vector<int>{0, 1});
  CHECK(result.pieces[1].formula == "2*g0");
  replace_all(folder, 2, "\"partial\":[\"tp\"]", "\"partial\":[\"tq\"]");
  CHECK_THROWS_WITH(verify_run(folder.path()),
                    Catch::Contains("\"partial\" names \"tq\", which is no axis of the mesh"));
}

TEST_CASE("the ends of a pipeline's tied embedding are one tensor") {
  const Folder folder;
  test::RunWriter::Settings settings;
  settings.mesh = {{"pp", 2}};
  settings.data_axes = {};
  test::RunWriter writer(folder.path(), settings);
  const auto declare = [&](int rank, const char* name, const char* alias) {
    writer.line(rank,
                R"({{"event":"parameter","id":4,"name":"{}","shape":[1000],"dtype":"float32","aliases":["{}"],)"
                R"("pieces":[{{"box":[[0,1000]]}}]}})",
                name, alias);
  };
  declare(0, "embedding.weight", "head.weight");
  declare(1, "head.weight", "embedding.weight");
  std::vector<std::vector<double>> own;
  for (std::uint64_t rank = 0; rank < 2; ++rank) own.push_back(test::drawn(1000, rank));
  for (int rank = 0; rank < 2; ++rank) {
    writer.contribution(rank, 0, 0, 4, 0, own[static_cast<std::size_t>(rank)]);
    writer.result(rank, 0, 4, 0, rank == 0 ? added(own[0], own[1]) : own[1]);
    writer.step(rank, 0, 1);
  }
  writer.finish();
  const VerifyResult result = verify_run(folder.path());
  REQUIRE(result.parameters.size() == 1);
  REQUIRE(result.pieces.size() == 2);
  CHECK(result.pieces[0].verdict == PieceVerdict::right);
  CHECK(result.pieces[1].verdict == PieceVerdict::wrong);
  CHECK(result.pieces[1].difference == "the share of pp 0 is missing");
}

TEST_CASE("several backward calls of one micro-batch add up") {
  const Folder folder;
  test::RunWriter writer(folder.path(), {});
  writer.parameter(0, "weight", 1000);
  std::vector<std::vector<double>> sums;
  for (int rank = 0; rank < 2; ++rank) {
    const auto first = test::drawn(1000, 2 * static_cast<std::uint64_t>(rank)),
               second = test::drawn(1000, 2 * static_cast<std::uint64_t>(rank) + 1);
    writer.contribution(rank, 0, 0, 0, 0, first);
    writer.contribution(rank, 0, 0, 0, 0, second);
    sums.push_back(added(first, second));
  }
  for (int rank = 0; rank < 2; ++rank) {
    writer.result(rank, 0, 0, 0, added(sums[0], sums[1], 0.5));
    writer.step(rank, 0, 1);
  }
  writer.finish();
  VerifyOptions options;
  options.coefficients = true;
  const VerifyResult result = verify_run(folder.path(), options);
  CHECK(result.verdict() == PieceVerdict::right);
  CHECK(result.pieces.at(0).coefficients.size() == 2);
}

TEST_CASE("replicas that hold other bits, each right within rounding, get a note") {
  const Folder folder;
  test::RunWriter writer(folder.path(), {});
  writer.parameter(0, "weight", 1000);
  const auto a = test::drawn(1000, 1), b = test::drawn(1000, 2);
  for (int rank = 0; rank < 2; ++rank) {
    writer.contribution(rank, 0, 0, 0, 0, rank == 0 ? a : b);
    std::vector<double> sum = added(a, b, 0.5);
    if (rank == 1) sum[3] = test::rounded(sum[3] * (1 + 0x1p-23), Dtype::float32);
    writer.result(rank, 0, 0, 0, sum);
    writer.step(rank, 0, 1);
  }
  writer.finish();
  const VerifyResult result = verify_run(folder.path());
  CHECK(result.verdict() == PieceVerdict::right);
  CHECK(result.pieces.size() == 2);
  REQUIRE(result.notes.size() == 1);
  CHECK(result.notes[0] == "ranks hold other bits of weight, each right within rounding: replicas drift apart.");
}

TEST_CASE("axes that lockstep does not know count as one, and what is expected does not change") {
  test::SimpleRun run;
  run.settings.mesh = {{"data", 2}, {"tensor", 1}};
  run.settings.data_axes = {"data"};
  run.coefficient = [](const std::string&, int, int rank, int step, int) { return step == 0 && rank == 1 ? 0.5 : 0; };
  const Folder folder;
  run.write(folder.path());
  const VerifyResult result = verify_run(folder.path());
  CHECK(result.findings.at(0).what == "the share of dp 0 is missing");
  CHECK(result.pieces.at(0).expected == "(g0+g1)/2");
  CHECK(result.notes.at(0).find("the mesh's axes data, tensor are not lockstep's") == 0);
}

TEST_CASE("wrong normalizations by long token counts are recognized as fractions") {
  const int tokens[2][2] = {{40'961, 33'011}, {28'657, 17}};
  test::SimpleRun run;
  run.settings.loss = "\"token_mean\"";
  run.settings.result_dtype = Dtype::float64;
  run.tokens = [&](int rank, int) { return fmt::format("[{},{}]", tokens[rank][0], tokens[rank][1]); };
  run.coefficient = [&](const std::string&, int, int rank, int step, int m) {
    return step == 0 ? tokens[rank][m] / 2.0 / (tokens[rank][0] + tokens[rank][1]) : 0;
  };
  const Folder folder;
  run.write(folder.path());
  const VerifyResult result = verify_run(folder.path());
  CHECK(result.verdict() == PieceVerdict::wrong);
  for (const RecoveredCoefficient& one : result.pieces.at(0).coefficients) {
    const auto& own = tokens[one.rank];
    CHECK(one.exact == Rational(own[one.micro_batch], 2 * (own[0] + own[1])));
  }
}
