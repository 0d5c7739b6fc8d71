// SPDX-License-Identifier: Apache-2.0
// Results of which nothing is left.
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
