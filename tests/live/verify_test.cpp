// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>

#include "lockstep/diagnostic.h"
#include "lockstep/live.h"
#include "src/live/expected.h"
#include "tests/catch.h"
#include "tests/live/run_writer.h"

using namespace lockstep;
using test::Folder;
using test::SimpleRun;
using PieceVerdict = VerifiedPiece::Verdict;

namespace {

SimpleRun run_with(const std::function<double(int owner, int rank, int step, int micro_batch)>& coefficient) {
  SimpleRun run;
  run.coefficient = [coefficient](const std::string&, int owner, int rank, int step, int micro_batch) {
    return coefficient(owner, rank, step, micro_batch);
  };
  return run;
}

VerifyResult verified_run(const SimpleRun& run, const VerifyOptions& options = {}) {
  const Folder folder;
  run.write(folder.path());
  VerifyOptions all = options;
  all.coefficients = true;
  return verify_run(folder.path(), all);
}

std::set<std::string> formulas(const VerifyResult& result) {
  std::set<std::string> all;
  for (const VerifiedPiece& piece : result.pieces) all.insert(piece.formula);
  return all;
}

using Texts = std::set<std::string>;

}  // namespace

TEST_CASE("a right run is right, with the formula and the words of check") {
  const VerifyResult result = verified_run(run_with([](int, int, int step, int) { return step == 0 ? 0.5 : 0; }));
  CHECK(result.verdict() == PieceVerdict::right);
  CHECK(result.findings.empty());
  CHECK(result.gaps.empty());
  REQUIRE(result.pieces.size() == 3);
  for (const VerifiedPiece& piece : result.pieces) {
    CHECK(piece.formula == "(g0+g1)/2");
    CHECK(piece.expected == "(g0+g1)/2");
    CHECK(piece.ranks == std::vector<int>{0, 1});
    CHECK(piece.unexplained <= piece.noise);
    REQUIRE(piece.coefficients.size() == 4);
    for (const RecoveredCoefficient& one : piece.coefficients) CHECK(one.exact == Rational(1, 2));
  }
}

TEST_CASE("a wrong factor on everything is one finding") {
  const VerifyResult result = verified_run(run_with([](int, int, int step, int) { return step == 0 ? 0.25 : 0; }));
  CHECK(result.verdict() == PieceVerdict::wrong);
  REQUIRE(result.findings.size() == 1);
  const VerifyFinding& finding = result.findings.front();
  CHECK(finding.what ==
        "every contribution came with 1/4 where 1/2 was expected: uniform factor 1/2, invisible to Adam");
  CHECK(finding.kind == Mistake::wrong_factor);
  CHECK(finding.parameters == std::vector<int>{0, 1, 2});
  CHECK(finding.ranks == std::vector<int>{0, 1});
  CHECK(formulas(result) == Texts{"(g0+g1)/4"});
  CHECK(result.pieces.front().difference == "half of the right gradient");
}

TEST_CASE("a rank whose contributions are missing in one parameter is named") {
  SimpleRun run;
  run.coefficient = [](const std::string& name, int, int rank, int step, int) {
    return step != 0 || (name == "layers.1.weight" && rank == 1) ? 0 : 0.5;
  };
  const VerifyResult result = verified_run(run);
  CHECK(result.verdict() == PieceVerdict::wrong);
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].what == "the share of dp 1 is missing");
  CHECK(result.findings[0].kind == Mistake::missing_reduction);
  CHECK(result.findings[0].parameters == std::vector<int>{2});
  CHECK(formulas(result) == Texts{"(g0+g1)/2", "g0/2"});
}

TEST_CASE("what arrives from a part of the micro-batches, or from nobody else, is said so") {
  const VerifyResult last =
      verified_run(run_with([](int, int, int step, int m) { return step == 0 && m == 1 ? 0.5 : 0; }));
  REQUIRE(last.findings.size() == 1);
  CHECK(last.findings[0].what == "the last micro-batch alone arrived");
  CHECK(last.findings[0].kind == Mistake::missing_reduction);
  CHECK(formulas(last) == Texts{"(g0.1+g1.1)/2"});

  const VerifyResult first =
      verified_run(run_with([](int, int, int step, int m) { return step == 0 && m == 0 ? 0.5 : 0; }));
  REQUIRE(first.findings.size() == 1);
  CHECK(first.findings[0].what == "micro-batch 1 is missing");

  const VerifyResult own =
      verified_run(run_with([](int owner, int rank, int step, int) { return step == 0 && owner == rank ? 1 : 0; }));
  REQUIRE(own.findings.size() == 1);
  CHECK(own.findings[0].what ==
        "no other data-parallel rank's contribution arrived, and its own came with 1 where 1/2 was expected");
  CHECK(own.findings[0].ranks == std::vector<int>{0, 1});
  CHECK(formulas(own) == Texts{"g0", "g1"});

  const VerifyResult nothing = verified_run(run_with([](int, int, int, int) { return 0; }));
  REQUIRE(nothing.findings.size() == 1);
  CHECK(nothing.findings[0].what == "nothing arrived");
  CHECK(nothing.findings[0].kind == Mistake::missing_reduction);
  CHECK(formulas(nothing) == Texts{"0"});

  const VerifyResult early = verified_run(run_with([](int, int, int step, int m) {
    return step != 0 ? 0 : m == 0 ? 1 : 0.5;
  }));
  REQUIRE(early.findings.size() == 1);
  CHECK(formulas(early) == Texts{"g0.0 + g1.0 + (g0.1+g1.1)/2"});
}

TEST_CASE("micro-batches that were not reduced are named") {
  const auto said = [](const std::function<bool(int micro_batch)>& reduced, double own, int micro_batches) {
    SimpleRun run = run_with([=](int owner, int rank, int step, int m) {
      return step != 0 ? 0 : reduced(m) ? 0.5 : owner == rank ? own : 0;
    });
    run.micro_batches = micro_batches;
    const VerifyResult result = verified_run(run);
    CHECK(result.findings.size() == 1);
    return result.findings.at(0).what;
  };
  CHECK(said([](int m) { return m == 0; }, 1, 2) ==
        "micro-batch 1 was not reduced: only the data-parallel rank's own contribution is in it, with 1 where 1/2 was "
        "expected");
  CHECK(said([](int m) { return m == 0; }, 1, 4) ==
        "micro-batches 1 to 3 were not reduced: only the data-parallel rank's own contribution is in it, with 1 where "
        "1/2 was expected");
  CHECK(said([](int m) { return m == 1; }, 0.5, 3) ==
        "micro-batches 0 and 2 were not reduced: only the data-parallel rank's own contribution is in it");
  // A factor on what was reduced is another mistake.
  SimpleRun run = run_with([](int owner, int rank, int step, int m) {
    return step != 0 ? 0 : m == 0 ? 0.25 : owner == rank ? 1 : 0;
  });
  CHECK(verified_run(run).findings.at(0).what == "contributions come with other coefficients than expected");
}

TEST_CASE("gradients that nobody zeroed are recognized through several optimizer steps") {
  SimpleRun run = run_with([](int, int, int, int) { return 0.5; });
  run.steps = 3;
  const VerifyResult result = verified_run(run);
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].what == "what earlier optimizer steps left is still in it: nobody zeroed the gradient");
  CHECK(result.findings[0].kind == Mistake::leftover);
  CHECK(result.findings[0].steps == std::vector<int>{1, 2});
  CHECK(formulas(result) ==
        Texts{"(g0+g1)/2", "(g0+g0.0+g0.1+g1+g1.0+g1.1)/2", "(g0+g0.0+g0.1+g0.2+g0.3+g1+g1.0+g1.1+g1.2+g1.3)/2"});
  VerifyOptions options;
  options.step = 1;
  const VerifyResult alone = verified_run(run, options);
  CHECK(formulas(alone) == Texts{"(g0+g0.0+g0.1+g1+g1.0+g1.1)/2"});
}

TEST_CASE("small parameters that nobody zeroed are told by the formula of large ones, or by the usual one") {
  SimpleRun run = run_with([](int, int, int, int) { return 0.5; });
  run.steps = 2;
  run.parameters = {{"norm", 10}, {"weight", 300}};
  const Texts both = {"(g0+g1)/2", "(g0+g0.0+g0.1+g1+g1.0+g1.1)/2"};
  VerifyResult result = verified_run(run);
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].parameters == std::vector<int>{0, 1});
  CHECK(formulas(result) == both);
  run.parameters = {{"norm", 10}};
  result = verified_run(run);
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].what == "what earlier optimizer steps left is still in it: nobody zeroed the gradient");
  CHECK(formulas(result) == both);
}

TEST_CASE("gradients that nobody zeroed are recognized past optimizer steps in which backward yielded none") {
  const std::vector<double> values = test::drawn(400, 1);
  for (const bool large : {true, false}) {
    const Folder folder;
    test::RunWriter run(folder.path(), {.mesh = {{"dp", 1}}});
    run.parameter(0, "expert", large ? 400 : 10);
    run.parameter(1, "other", 400);
    const std::vector<double> own(values.begin(), values.begin() + (large ? 400 : 10));
    for (int step = 0; step < 4; ++step) {
      if (step == 0) run.contribution(0, step, 0, 0, 0, own);
      if (step == 0 || step == 3) run.result(0, step, 0, 0, own);
      run.contribution(0, step, 0, 1, 0, values);
      run.result(0, step, 1, 0, values);
      run.step(0, step, 1);
    }
    run.finish();
    const VerifyResult result = verify_run(folder.path());
    REQUIRE(result.count(PieceVerdict::wrong) == 1);
    const auto stale = std::find_if(result.pieces.begin(), result.pieces.end(),
                                    [](const VerifiedPiece& one) { return one.verdict == PieceVerdict::wrong; });
    CHECK(stale->step == 3);
    CHECK(stale->formula == "g0.0");
    CHECK(result.findings.at(0).what == "what earlier optimizer steps left is still in it: nobody zeroed the gradient");
  }
}

TEST_CASE("gradients that were clipped before nobody zeroed them are recognized by no fraction") {
  SimpleRun run = run_with([](int, int, int step, int) { return step == 0 ? 0.5 : 0.00528959; });
  run.steps = 2;
  const VerifyResult result = verified_run(run);
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].what == "what earlier optimizer steps left is still in it: nobody zeroed the gradient");
  CHECK(result.findings[0].kind == Mistake::leftover);
  CHECK(result.findings[0].steps == std::vector<int>{1});
}

TEST_CASE("uneven tokens are counted as the loss says") {
  const int tokens[2][2] = {{120, 88}, {200, 17}};
  const auto told = [&](int rank, int) { return fmt::format("[{},{}]", tokens[rank][0], tokens[rank][1]); };
  SimpleRun run = run_with([&](int, int rank, int step, int m) { return step == 0 ? tokens[rank][m] / 425.0 : 0; });
  run.tokens = told;
  run.settings.loss = "\"token_mean\"";
  CHECK(verified_run(run).verdict() == PieceVerdict::right);
  run.settings.loss = "\"local_mean\"";
  CHECK(verified_run(run).verdict() == PieceVerdict::wrong);
  run.settings.loss = "\"token_mean\"";
  run.coefficient = [](const std::string&, int, int, int step, int) { return step == 0 ? 0.5 : 0; };
  CHECK(verified_run(run).findings.at(0).what == "every contribution came with 1/2, whatever its tokens");
  CHECK(verified_run(run).findings.at(0).kind == Mistake::wrong_weights);
  run.coefficient = [&](const std::string&, int, int rank, int step, int m) {
    return step == 0 ? tokens[rank][m] / 850.0 : 0;
  };
  CHECK(verified_run(run).findings.at(0).what ==
        "every contribution came with 1/2 of its weight: uniform factor 1/2, invisible to Adam");
  run.coefficient = [&](const std::string&, int, int rank, int step, int m) {
    return step == 0 ? tokens[rank][m] / 425.0 : 0;
  };
  run.settings.loss = "\"local_mean\"";
  VerifyOptions options;
  options.loss = CapturedLoss::token_mean;
  CHECK(verified_run(run, options).verdict() == PieceVerdict::right);

  // A mean over ranks of each rank's own token mean, which one device does not have.
  run = run_with([&](int, int rank, int step, int m) {
    return step == 0 ? tokens[rank][m] / 2.0 / (tokens[rank][0] + tokens[rank][1]) : 0;
  });
  run.tokens = told;
  run.settings.loss = "\"token_mean\"";
  const VerifyResult wrong = verified_run(run);
  CHECK(wrong.verdict() == PieceVerdict::wrong);
  REQUIRE(!wrong.pieces.front().coefficients.empty());
  CHECK(wrong.pieces.front().coefficients[0].exact == Rational(120, 416));
  CHECK(wrong.pieces.front().coefficients[3].exact == Rational(17, 434));

  run = run_with([&](int, int, int step, int) { return step == 0 ? 1 / 425.0 : 0; });
  run.tokens = told;
  run.settings.loss = "\"token_sum\"";
  CHECK(verified_run(run).verdict() == PieceVerdict::right);
  run.tokens = [](int, int) { return std::string("[120,null]"); };
  const VerifyResult unknown = verified_run(run);
  CHECK(unknown.verdict() == PieceVerdict::undecided);
  CHECK_FALSE(unknown.gaps.empty());
}

TEST_CASE("more tokens than can be counted are no number of tokens") {
  live::CapturedRun run;
  run.data_coordinates = {0};
  run.ranks.resize(1);
  run.ranks[0].steps[0].tokens = {INT64_MAX, 1};
  const live::Expected expected(run, CapturedLoss::token_mean, 0);
  CHECK_FALSE(expected.total());
  CHECK_FALSE(expected.of(0, 0));
  CHECK_FALSE(expected.likely(0, 0, 0));
  CHECK(expected.unknown() == "in optimizer step 0, there are more tokens than can be counted");
}

TEST_CASE("where the loss is not known, ranks and parameters are compared with each other") {
  SimpleRun run = run_with([](int, int, int step, int) { return step == 0 ? 0.125 : 0; });
  run.settings.loss = "null";
  CHECK(verified_run(run).verdict() == PieceVerdict::right);
  run.coefficient = [](const std::string& name, int, int, int step, int) {
    return step != 0 ? 0 : name == "layers.0.weight" ? 0.25 : 0.125;
  };
  const VerifyResult other = verified_run(run);
  CHECK(other.verdict() == PieceVerdict::wrong);
  REQUIRE(other.findings.size() == 1);
  CHECK(other.findings[0].what == "every contribution came with 1/4, and in most parameters with 1/8");
  CHECK(other.findings[0].kind == Mistake::wrong_factor);
  CHECK(other.findings[0].parameters == std::vector<int>{1});
  run = run_with([](int, int rank, int step, int) { return step == 0 && rank == 0 ? 0.5 : 0; });
  run.settings.loss = "null";
  CHECK(verified_run(run).findings.at(0).what == "contributions are missing");
  CHECK(verified_run(run).findings.at(0).kind == Mistake::missing_reduction);
}

TEST_CASE("coefficients are found through the noise of bfloat16") {
  for (const Dtype dtype : {Dtype::bfloat16, Dtype::float32}) {
    SimpleRun run = run_with([](int, int, int step, int) { return step == 0 ? 0.25 : 0; });
    run.settings.mesh = {{"dp", 4}};
    run.settings.dtype = run.settings.result_dtype = dtype;
    run.micro_batches = 4;
    CHECK(verified_run(run).verdict() == PieceVerdict::right);
    run.coefficient = [](const std::string&, int, int rank, int step, int) {
      return step != 0 ? 0 : rank == 2 ? 1.0 / 3 : 0.25;
    };
    const VerifyResult wrong = verified_run(run);
    CHECK(wrong.verdict() == PieceVerdict::wrong);
    CHECK(formulas(wrong) == Texts{"g2/3 + (g0+g1+g3)/4"});
  }
}

TEST_CASE("replicas over tensor-parallel ranks are one contribution, partial ones are several") {
  const Folder folder;
  test::RunWriter::Settings settings;
  settings.mesh = {{"dp", 2}, {"tp", 2}};
  test::RunWriter writer(folder.path(), settings);
  writer.parameter(0, "replicated", 2000);
  writer.parameter(1, "nearly", 2000);
  writer.parameter(2, "partial", 2000);
  const auto sum = [](const std::vector<std::vector<double>>& all, double factor) {
    std::vector<double> result(all[0].size());
    for (const auto& one : all) {
      for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = test::rounded(result[i] + factor * one[i], Dtype::float32);
    }
    return result;
  };
  std::vector<std::vector<double>> replicated, nearly, partial;
  for (int rank = 0; rank < 4; ++rank) {
    replicated.push_back(test::drawn(2000, 10 + static_cast<std::uint64_t>(rank) / 2));
    nearly.push_back(test::drawn(2000, 20 + static_cast<std::uint64_t>(rank) / 2));
    if (rank % 2 == 1) {
      for (double& value : nearly.back()) value = test::rounded(value * (1 + 0x1p-24), Dtype::float32);
      nearly.back()[7] = test::rounded(nearly.back()[7] * (1 + 0x1p-22), Dtype::float32);
    }
    partial.push_back(test::drawn(2000, 30 + static_cast<std::uint64_t>(rank)));
    writer.contribution(rank, 0, 0, 0, 0, replicated.back());
    writer.contribution(rank, 0, 0, 1, 0, nearly.back());
    writer.contribution(rank, 0, 0, 2, 0, partial.back());
  }
  for (int rank = 0; rank < 4; ++rank) {
    writer.result(rank, 0, 0, 0, sum({replicated[0], replicated[2]}, 0.5));
    writer.result(rank, 0, 1, 0, sum({nearly[0], nearly[2]}, 0.5));
    // Each tensor-parallel rank keeps its own part.
    writer.result(
        rank, 0, 2, 0,
        sum({partial[static_cast<std::size_t>(rank % 2)], partial[static_cast<std::size_t>(2 + rank % 2)]}, 0.5));
    writer.step(rank, 0, 1);
  }
  writer.finish();
  VerifyOptions options;
  options.coefficients = true;
  const VerifyResult result = verify_run(folder.path(), options);
  CHECK(result.verdict() == PieceVerdict::wrong);
  REQUIRE(result.pieces.size() == 4);
  CHECK(result.pieces[0].formula == "(g0+g2)/2");
  CHECK(result.pieces[0].verdict == PieceVerdict::right);
  CHECK(result.pieces[0].coefficients[0].alike == std::vector<int>{1});
  CHECK(result.pieces[1].formula == "(g0+g2)/2");
  CHECK(result.pieces[1].verdict == PieceVerdict::right);
  CHECK(result.pieces[2].formula == "(g0+g2)/2");
  CHECK(result.pieces[2].ranks == std::vector<int>{0, 2});
  CHECK(result.pieces[2].expected == "(g0+g1+g2+g3)/2");
  REQUIRE(result.findings.size() == 2);
  CHECK(result.findings[0].what == "the share of tp 1 is missing");
  CHECK(result.findings[1].what == "the share of tp 0 is missing");
}

TEST_CASE("what is no sum of the contributions is not explained away") {
  const Folder folder;
  test::RunWriter writer(folder.path(), {});
  writer.parameter(0, "weight", 3000);
  for (int rank = 0; rank < 2; ++rank) {
    writer.contribution(rank, 0, 0, 0, 0, test::drawn(3000, static_cast<std::uint64_t>(rank)));
    std::vector<double> sum = test::drawn(3000, 0);
    const std::vector<double> other = test::drawn(3000, 1), foreign = test::drawn(3000, 99);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = 0.5 * (sum[i] + other[i]) + 0.1 * foreign[i];
    writer.result(rank, 0, 0, 0, sum);
    writer.step(rank, 0, 1);
    if (rank == 0) continue;
  }
  writer.finish();
  const VerifyResult result = verify_run(folder.path());
  REQUIRE(result.pieces.size() == 1);
  CHECK(result.pieces[0].verdict == PieceVerdict::wrong);
  CHECK(result.findings[0].what == "a part of it is none of the recorded contributions");
  CHECK(result.findings[0].kind == Mistake::leftover);
  CHECK(result.pieces[0].unexplained > 0.1);
  CHECK(result.pieces[0].unexplained < 0.2);
}

TEST_CASE("infinities and elements that are no numbers are counted and named") {
  const auto written = [](bool in_contribution) {
    const Folder folder;
    test::RunWriter writer(folder.path(), {});
    writer.parameter(0, "weight", 3000);
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<double> own = test::drawn(3000, static_cast<std::uint64_t>(rank));
      if (in_contribution && rank == 1) own[5] = own[6] = NAN;
      writer.contribution(rank, 0, 0, 0, 0, own);
      std::vector<double> sum = test::drawn(3000, 0);
      const std::vector<double> other = test::drawn(3000, 1);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = 0.5 * (sum[i] + other[i]);
      sum[5] = sum[6] = INFINITY;
      writer.result(rank, 0, 0, 0, sum);
      writer.step(rank, 0, 1);
    }
    writer.finish();
    return verify_run(folder.path());
  };
  const VerifyResult both = written(true);
  CHECK(both.verdict() == PieceVerdict::undecided);
  CHECK(both.pieces.at(0).why ==
        "backward yields 2 elements that are infinite or no number on rank 1, and the optimizer gets 2");
  const VerifyResult after = written(false);
  CHECK(after.verdict() == PieceVerdict::wrong);
  CHECK(after.findings.at(0).what ==
        "the optimizer gets elements that are infinite or no numbers, and backward yields none");
  CHECK(after.findings.at(0).kind == Mistake::wrong_values);
}

TEST_CASE("parameters without a gradient, and gradients without an optimizer, are told apart") {
  const Folder folder;
  test::RunWriter writer(folder.path(), {});
  writer.parameter(0, "unused", 100);
  writer.parameter(1, "lost", 100);
  writer.parameter(2, "nobody", 100);
  for (int rank = 0; rank < 2; ++rank) {
    writer.contribution(rank, 0, 0, 1, 0, test::drawn(100, static_cast<std::uint64_t>(rank)));
    writer.contribution(rank, 0, 0, 2, 0, test::drawn(100, 5 + static_cast<std::uint64_t>(rank)));
    for (const int id : {0, 1})
      writer.line(rank, R"({{"event":"result","step":0,"parameter":{},"piece":0,"row":null}})", id);
    writer.step(rank, 0, 1);
  }
  writer.finish();
  const VerifyResult result = verify_run(folder.path());
  REQUIRE(result.pieces.size() == 3);
  CHECK(result.pieces[0].verdict == PieceVerdict::right);
  CHECK(result.pieces[1].verdict == PieceVerdict::wrong);
  CHECK(result.pieces[1].why == "backward yields a gradient on ranks 0 and 1");
  CHECK(result.pieces[2].verdict == PieceVerdict::wrong);
  CHECK(result.pieces[2].ranks.empty());
  REQUIRE(result.findings.size() == 2);
  CHECK(result.findings[0].what == "the optimizer gets no gradient, and backward yields one");
  CHECK(result.findings[0].kind == Mistake::no_owner);
  CHECK(result.findings[1].what == "no rank's optimizer gets it, and backward yields a gradient");
  CHECK(result.findings[1].kind == Mistake::no_owner);
}

TEST_CASE("pieces of a sharded parameter are judged one by one") {
  const Folder folder;
  test::RunWriter writer(folder.path(), {});
  writer.parameter(0, "weight", 3000, {0, 1500, 3000});
  const std::vector<double> drawn[2][2] = {{test::drawn(1500, 0), test::drawn(1500, 1)},
                                           {test::drawn(1500, 2), test::drawn(1500, 3)}};
  constexpr std::int64_t first[2] = {0, 1500};
  for (int rank = 0; rank < 2; ++rank) {
    for (int piece = 0; piece < 2; ++piece) writer.contribution(rank, 0, 0, 0, piece, drawn[rank][piece], first[piece]);
  }
  for (int rank = 0; rank < 2; ++rank) {  // rank 1 does not divide
    std::vector<double> sum = drawn[0][rank];
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = (rank == 0 ? 0.5 : 1) * (sum[i] + drawn[1][rank][i]);
    writer.result(rank, 0, 0, rank, sum, first[rank]);
    writer.step(rank, 0, 1);
  }
  writer.finish();
  const VerifyResult result = verify_run(folder.path());
  REQUIRE(result.pieces.size() == 2);
  CHECK(result.pieces[0].verdict == PieceVerdict::right);
  CHECK(result.pieces[1].formula == "g0 + g1");
  CHECK(result.pieces[1].ranks == std::vector<int>{1});
  CHECK(result.parameters[0].pieces[1] == "[1500, 3000)");
}

TEST_CASE("contributions that cannot be told apart get a formula of other parameters, and right ones are right") {
  SimpleRun run;
  run.parameters = {{"weight", 4000}, {"scale", 1}, {"bias", 3}};
  run.micro_batches = 3;
  run.coefficient = [](const std::string&, int, int, int step, int) { return step == 0 ? 0.5 : 0; };
  CHECK(verified_run(run).verdict() == PieceVerdict::right);
  run.coefficient = [](const std::string&, int, int rank, int step, int) { return step == 0 && rank == 0 ? 0.5 : 0; };
  const VerifyResult result = verified_run(run);
  CHECK(formulas(result) == Texts{"g0/2"});
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].parameters.size() == 3);
  CHECK(result.pieces[1].from_others);
  run.coefficient = [](const std::string& name, int, int rank, int step, int) {
    return step != 0 ? 0 : name == "scale" && rank == 0 ? 0.7 : 0.5;
  };
  const VerifyResult alone = verified_run(run);
  CHECK(alone.pieces[0].verdict == PieceVerdict::right);
  CHECK(alone.pieces[1].verdict == PieceVerdict::wrong);
  CHECK(alone.pieces[1].why.find("cannot be told apart") != std::string::npos);
}

TEST_CASE("where no other parameter helps, the mistakes that are made everywhere are tried") {
  SimpleRun run = run_with([](int owner, int rank, int step, int) { return step == 0 && owner == rank ? 1 : 0; });
  run.parameters = {{"scale", 1}};
  const VerifyResult own = verified_run(run);
  CHECK(formulas(own) == Texts{"g0", "g1"});
  CHECK_FALSE(own.pieces.at(0).from_others);
  run = run_with([](int, int, int step, int m) { return step == 0 && m == 1 ? 0.5 : 0; });
  run.parameters = {{"bias", 2}};
  CHECK(verified_run(run).findings.at(0).what == "the last micro-batch alone arrived");
}

TEST_CASE("rounding to 16 bits on the way is undecided, and right where a reduction of that type was recorded") {
  const auto written = [](const std::string& reduction) {
    const Folder folder;
    test::RunWriter writer(folder.path(), {});
    writer.parameter(0, "weight", 3000);
    std::vector<double> sum(3000);
    const auto a = test::drawn(3000, 1), b = test::drawn(3000, 2);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = test::rounded(0.5 * (a[i] + b[i]), Dtype::bfloat16);
    for (int rank = 0; rank < 2; ++rank) {
      writer.contribution(rank, 0, 0, 0, 0, rank == 0 ? a : b);
      writer.line(rank, R"({{"event":"collective","step":0,"op":"{}","group":[0,1],"elements":1,"dtype":"bfloat16"}})",
                  reduction);
      writer.result(rank, 0, 0, 0, sum);
      writer.step(rank, 0, 1);
      // What is issued after the last step begins no other.
      writer.line(
          rank, R"({{"event":"collective","step":1,"op":"all_gather","group":[0,1],"elements":1,"dtype":"float32"}})");
    }
    writer.finish();
    return verify_run(folder.path());
  };
  for (const char* reduction : {"all_reduce", "reduce_scatter"}) {
    CHECK(written(reduction).verdict() == PieceVerdict::right);
    CHECK(written(reduction).steps == std::vector<int>{0});
  }
  const VerifyResult undecided = written("all_gather");
  CHECK(undecided.verdict() == PieceVerdict::undecided);
  CHECK(undecided.findings.at(0).what ==
        "the coefficients are right within noise, and the noise is more than the recorded types leave");
}

TEST_CASE("more contributions than sums are explained by factors of ranks and micro-batches") {
  SimpleRun run = run_with([](int, int, int step, int) { return step == 0 ? 1.0 / 16 : 0; });
  run.settings.mesh = {{"dp", 16}};
  run.settings.sums = 64;
  run.micro_batches = 8;
  run.parameters = {{"weight", 3000}};
  CHECK(verified_run(run).verdict() == PieceVerdict::right);
  run.coefficient = [](const std::string&, int, int rank, int step, int) {
    return step == 0 && rank != 3 ? 1.0 / 16 : 0;
  };
  const VerifyResult result = verified_run(run);
  CHECK(result.findings.at(0).what == "the share of dp 3 is missing");
  CHECK(formulas(result) == Texts{"(sum(g, dp, micro_batch) - g3)/16"});
}

TEST_CASE("formulas that mistakes have everywhere are tried on results of any size") {
  // The last micro-batch alone: added up for the first half of the ranks, averaged for the others.
  SimpleRun run = run_with([](int owner, int, int step, int m) {
    return step != 0 || m != 7 ? 0 : owner < 8 ? 1 : 1.0 / 16;
  });
  run.settings.mesh = {{"dp", 16}};
  run.settings.sums = 64;
  run.micro_batches = 8;
  run.parameters = {{"weight", 3000}};
  const VerifyResult result = verified_run(run);
  CHECK(formulas(result) == Texts{"sum(g.7, dp)", "sum(g.7, dp)/16"});
  for (const VerifiedPiece& piece : result.pieces)
    CHECK(piece.why == "128 contributions cannot be told apart here; this formula fits, and others do as well");
}

TEST_CASE("coefficients that are no fractions are printed with the names of single contributions") {
  const double roots[] = {std::sqrt(1.0 / 7919), std::sqrt(1.0 / 6277), std::sqrt(1.0 / 5101), std::sqrt(1.0 / 3001)};
  const VerifyResult result =
      verified_run(run_with([&](int, int rank, int step, int m) { return step == 0 ? roots[2 * rank + m] : 0; }));
  CHECK(formulas(result) == Texts{"0.0112374*g0.0 + 0.0126219*g0.1 + 0.0140014*g1.0 + 0.0182544*g1.1"});
}

TEST_CASE("parameters are chosen by their names, and what fits nothing is an error") {
  const SimpleRun run = run_with([](int, int, int step, int) { return step == 0 ? 0.5 : 0; });
  VerifyOptions options;
  options.parameters = Selectors({"layers.*"});
  CHECK(verified_run(run, options).pieces.size() == 2);
  options.parameters = Selectors({"layer"});
  CHECK_THROWS_AS(verified_run(run, options), InputError);
  options = {};
  options.step = 3;
  CHECK_THROWS_AS(verified_run(run, options), InputError);
}
