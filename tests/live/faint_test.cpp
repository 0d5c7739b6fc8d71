// SPDX-License-Identifier: Apache-2.0
// Results of which nothing is left.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/live.h"
#include "tests/catch.h"
#include "tests/live/run_writer.h"

using namespace lockstep;
using PieceVerdict = VerifiedPiece::Verdict;

namespace {

/// Two ranks whose averages are reduced in these types, each with what its line has besides; `bias` is what is recorded
/// of the second parameter, and nothing of it arrives.
VerifyResult with_bias(double bias, const std::vector<std::pair<std::string, std::string>>& calls) {
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
    for (const auto& [dtype, carried] : calls)
      writer.line(rank,
                  R"({{"event":"collective","step":0,"op":"all_reduce","group":[0,1],"elements":1,"dtype":"{}"{}}})",
                  dtype, carried);
    writer.result(rank, 0, 0, 0, sum);
    writer.result(rank, 0, 1, 0, std::vector<double>(300));
    writer.step(rank, 0, 1);
  }
  writer.finish();
  return verify_run(folder.path());
}

}  // namespace

TEST_CASE("what float16 rounds to zero where it is reduced is undecided, and what it does not is missing") {
  const VerifyResult faint = with_bias(1e-9, {{"float16", ""}});
  REQUIRE(faint.findings.size() == 1);
  CHECK(faint.verdict() == PieceVerdict::undecided);
  CHECK(faint.findings.at(0).parameters == std::vector<int>{1});
  CHECK(faint.findings.at(0).what ==
        "nothing arrived, and what is expected is so small that float16, in which gradients were reduced, rounds it to "
        "zero");
  for (const auto& [size, dtype] :
       {std::pair(1e-6, "float16"), std::pair(1e-9, "bfloat16"), std::pair(1e-9, "float32")}) {
    const VerifyResult missing = with_bias(size, {{dtype, ""}});
    CHECK(missing.verdict() == PieceVerdict::wrong);
    CHECK(missing.findings.at(0).what == "nothing arrived");
  }
}

TEST_CASE("parameters that another rank declares otherwise are told apart all the same") {
  // Rank 0 has one more, which comes first: the numbers of both ranks' own differ.
  const test::Folder folder;
  test::RunWriter writer(folder.path(), {});
  const auto declare = [&](int rank, int id, const std::string& name) {
    writer.line(rank,
                R"({{"event":"parameter","id":{},"name":"{}","shape":[300],"dtype":"float32","frozen":false,)"
                R"("aliases":[],"placed":["dp"],"pieces":[{{"range":[0,300]}}]}})",
                id, name);
  };
  for (const auto& [rank, id, name] :
       {std::tuple(0, 0, "bias"), std::tuple(0, 1, "weight"), std::tuple(1, 0, "weight"), std::tuple(1, 1, "bias")})
    declare(rank, id, name);
  for (int rank = 0; rank < 2; ++rank) {
    const int bias = rank, weight = 1 - rank;
    std::vector<double> faint = test::drawn(300, static_cast<std::uint64_t>(3 + rank));
    for (double& one : faint) one *= 1e-9;
    writer.contribution(rank, 0, 0, bias, 0, faint);
    writer.contribution(rank, 0, 0, weight, 0, test::drawn(300, 1));
    for (const auto& [dtype, carried] : {std::pair("float16", weight), std::pair("float32", bias)})
      writer.line(rank,
                  R"({{"event":"collective","step":0,"op":"all_reduce","group":[0,1],"elements":1,"dtype":"{}",)"
                  R"("parameters":[{}]}})",
                  dtype, carried);
    writer.result(rank, 0, weight, 0, test::drawn(300, 1));
    writer.result(rank, 0, bias, 0, std::vector<double>(300));
    writer.step(rank, 0, 1);
  }
  writer.finish();
  const VerifyResult found = verify_run(folder.path());
  CHECK(std::any_of(found.findings.begin(), found.findings.end(),
                    [](const VerifyFinding& one) { return one.what == "nothing arrived"; }));
}

TEST_CASE("what was reduced in float32 is not rounded by float16 that carries others") {
  const std::string weight = R"(,"parameters":[0])", bias = R"(,"parameters":[1])";
  CHECK(with_bias(1e-9, {{"float32", weight}, {"float16", bias}}).findings.at(0).what ==
        "nothing arrived, and what is expected is so small that float16, in which it was reduced, rounds it to zero");
  const VerifyResult missing = with_bias(1e-9, {{"float16", weight}, {"float32", bias}});
  CHECK(missing.verdict() == PieceVerdict::wrong);
  CHECK(missing.findings.at(0).what == "nothing arrived");
}

namespace {

/// Two ranks, the second of which yields so much less. What arrives of each is times that, and an all-gather of what
/// each has reduced comes in that type.
VerifyResult beside(double size, double first, double second, const std::string& dtype, bool with_other = false) {
  const test::Folder folder;
  test::RunWriter writer(folder.path(), {});
  for (int parameter = 0; parameter < 1 + (with_other ? 1 : 0); ++parameter) {
    writer.parameter(parameter, parameter == 0 ? "weight" : "other", 3000);
    const auto a = test::drawn(3000, 1), drawn = test::drawn(3000, 2);
    auto b = drawn;
    std::vector<double> sum(3000);
    const Dtype type = dtype == "bfloat16" ? Dtype::bfloat16 : Dtype::float32;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      b[i] *= parameter == 0 ? size : 1;
      sum[i] = test::rounded(parameter == 0 ? first * a[i] + second * b[i] : (a[i] + b[i]) / 2, type);
    }
    for (int rank = 0; rank < 2; ++rank) {
      writer.contribution(rank, 0, 0, parameter, 0, rank == 0 ? a : b);
      writer.line(rank,
                  R"({{"event":"collective","step":0,"op":"all_gather","group":[0,1],"elements":1,"dtype":"{}",)"
                  R"("parameters":[{}]}})",
                  dtype, parameter);
      writer.result(rank, 0, parameter, 0, sum);
    }
  }
  for (int rank = 0; rank < 2; ++rank) writer.step(rank, 0, 1);
  writer.finish();
  return verify_run(folder.path());
}

}  // namespace

TEST_CASE("gradients that an all-gather brings are rounded as its type is") {
  CHECK(beside(1, 0.5, 0.5, "bfloat16").verdict() == PieceVerdict::right);
  CHECK(beside(1, 0.5, 0.25, "bfloat16").verdict() == PieceVerdict::wrong);
}

TEST_CASE("a rank whose share rounding would hide in every result is not said to have arrived") {
  for (const double second : {0.5, 0.0, -0.5}) {
    const VerifyResult hidden = beside(1e-4, 0.5, second, "bfloat16");
    CHECK(hidden.verdict() == PieceVerdict::undecided);
    CHECK(hidden.findings.at(0).what ==
          "what rank 1 yields is so small beside the others' gradients that rounding hides whether it arrived");
  }
  CHECK(beside(1e-4, 0.5, 0.5, "float32").verdict() == PieceVerdict::right);
  CHECK(beside(1e-4, 0.5, 0, "float32").verdict() == PieceVerdict::wrong);
  CHECK(beside(1e-4, 0.5, 0.5, "bfloat16", true).verdict() == PieceVerdict::right);
}
