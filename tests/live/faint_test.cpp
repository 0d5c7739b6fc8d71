// SPDX-License-Identifier: Apache-2.0
// Results of which little is left to tell coefficients by.
#include <algorithm>
#include <cmath>

#include "lockstep/live.h"
#include "tests/catch.h"
#include "tests/live/run_writer.h"

using namespace lockstep;
using PieceVerdict = VerifiedPiece::Verdict;

namespace {

/// Two ranks whose averages are reduced in that type; `bias` is what is recorded of the second parameter, and nothing
/// of it arrives.
VerifyResult with_bias(double bias, const std::string& dtype) {
  const test::Folder folder;
  test::RunWriter writer(folder.path(), {});
  writer.parameter(0, "weight", 3000);
  writer.parameter(1, "bias", 300);
  std::vector<double> sum(3000);
  const auto a = test::drawn(3000, 1), b = test::drawn(3000, 2);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = 0.5 * (a[i] + b[i]);
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<double> faint = test::drawn(300, static_cast<std::uint64_t>(3 + rank));
    for (double& one : faint) one *= bias;
    writer.contribution(rank, 0, 0, 0, 0, rank == 0 ? a : b);
    writer.contribution(rank, 0, 0, 1, 0, faint);
    writer.line(rank, R"({{"event":"collective","step":0,"op":"all_reduce","group":[0,1],"elements":1,"dtype":"{}"}})",
                dtype);
    writer.result(rank, 0, 0, 0, sum);
    writer.result(rank, 0, 1, 0, std::vector<double>(300));
    writer.step(rank, 0, 1);
  }
  writer.finish();
  return verify_run(folder.path());
}

}  // namespace

TEST_CASE("what float16 rounds to zero where it is reduced is undecided, and what it does not is missing") {
  const VerifyResult faint = with_bias(1e-9, "float16");
  REQUIRE(faint.findings.size() == 1);
  CHECK(faint.verdict() == PieceVerdict::undecided);
  CHECK(faint.findings.at(0).parameters == std::vector<int>{1});
  CHECK(faint.findings.at(0).what ==
        "nothing arrived, and what is expected is so small that float16, in which it was reduced, rounds it to zero");
  for (const auto& [size, dtype] :
       {std::pair(1e-6, "float16"), std::pair(1e-9, "bfloat16"), std::pair(1e-9, "float32")}) {
    const VerifyResult missing = with_bias(size, dtype);
    CHECK(missing.verdict() == PieceVerdict::wrong);
    CHECK(missing.findings.at(0).what == "nothing arrived");
  }
}

TEST_CASE("contributions that are nearly one get a formula of other parameters, or none") {
  // Rank 1's bias is rank 0's but for roundings: the optimizer of rank 0 gets rank 0's alone.
  const auto run = [](bool with_weight) {
    const test::Folder folder;
    test::RunWriter writer(folder.path(), {});
    writer.parameter(0, "weight", 3000);
    writer.parameter(1, "bias", 300);
    const auto a = test::drawn(3000, 1), b = test::drawn(3000, 2), bias = test::drawn(300, 3),
               apart = test::drawn(300, 4);
    std::vector<double> other(300);
    for (std::size_t i = 0; i < other.size(); ++i) other[i] = test::rounded(bias[i] + 2e-6 * apart[i], Dtype::float32);
    for (int rank = 0; rank < 2; ++rank) {
      if (with_weight) writer.contribution(rank, 0, 0, 0, 0, rank == 0 ? a : b);
      writer.contribution(rank, 0, 0, 1, 0, rank == 0 ? bias : other);
      if (with_weight) writer.result(rank, 0, 0, 0, rank == 0 ? a : b);
      writer.result(rank, 0, 1, 0, rank == 0 ? bias : other);
      writer.step(rank, 0, 1);
    }
    writer.finish();
    return verify_run(folder.path());
  };
  for (const VerifyFinding& finding : run(true).findings)
    CHECK(finding.what.find("uniform factor 1,") == std::string::npos);
  for (const VerifiedPiece& piece : run(true).pieces) CHECK(piece.formula == (piece.ranks.front() == 0 ? "g0" : "g1"));
  for (const VerifyFinding& finding : run(false).findings)
    CHECK(finding.what.find("uniform factor 1,") == std::string::npos);
}
