// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "lockstep/live.h"
#include "tests/catch.h"
#include "tests/live/run_writer.h"

using namespace lockstep;
using test::Folder;
using test::RunWriter;
using test::SimpleRun;
using PieceVerdict = VerifiedPiece::Verdict;

namespace {

VerifyResult verified(const SimpleRun& run, const VerifyOptions& options = {}) {
  const Folder folder;
  run.write(folder.path());
  return verify_run(folder.path(), options);
}

/// Ranks of which nobody else's gradients come to any, or all of them to each.
SimpleRun run_on(int ranks, bool reduced, const std::function<int(int rank)>& data) {
  SimpleRun run;
  run.settings.mesh = {{"dp", ranks}};
  run.data = data;
  run.coefficient = [=](const std::string&, int owner, int rank, int step, int) {
    return step != 0 ? 0 : reduced ? 1.0 / ranks : owner == rank ? 1.0 : 0;
  };
  return run;
}

std::string only_finding(const VerifyResult& result) {
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings.front().verdict == PieceVerdict::undecided);
  CHECK(result.findings.front().pieces == result.pieces.size());
  return result.findings.front().what;
}

}  // namespace

TEST_CASE("where every rank reads the same data nobody can say whether gradients were reduced") {
  for (const bool reduced : {true, false}) {
    const VerifyResult result = verified(run_on(3, reduced, [](int) { return 0; }));
    CHECK(result.verdict() == PieceVerdict::undecided);
    CHECK(only_finding(result) ==
          "every data-parallel rank yielded the same gradients: they read the same data, or the gradients were reduced "
          "before; whether they were added up cannot be seen");
    CHECK(result.blame.empty());
  }
}

TEST_CASE("what is wrong is wrong although every rank reads the same data") {
  SimpleRun run = run_on(2, false, [](int) { return 0; });
  run.settings.loss = "\"sum\"";
  CHECK(verified(run).verdict() == PieceVerdict::wrong);
}

TEST_CASE("ranks along one of two data axes that read the same data are named") {
  for (const bool reduced : {true, false}) {
    SimpleRun run = run_on(4, true, [](int rank) { return rank % 2; });
    run.settings.mesh = {{"dp_replicate", 2}, {"dp_shard", 2}};
    run.settings.data_axes = {"dp_replicate", "dp_shard"};
    if (!reduced) {
      run.coefficient = [](const std::string&, int owner, int rank, int step, int) {
        return step == 0 && owner / 2 == rank / 2 ? 0.5 : 0;  // nothing goes over replicas
      };
    }
    CHECK(
        only_finding(verified(run))
            .starts_with(
                "data-parallel ranks 0 and 2 yielded the same gradients, and so did 1 and 3: they read the same data"));
  }
}

TEST_CASE("gradients of the same data that other orders of summation tell apart by roundings are the same") {
  SimpleRun run = run_on(2, false, [](int) { return 0; });
  run.settings.dtype = run.settings.result_dtype = Dtype::bfloat16;
  const Folder folder;
  RunWriter writer(folder.path(), run.settings);
  writer.parameter(0, "weight", 3000);
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<double> values = run.gradient(0, 0, 0, 0);
    for (std::size_t i = 0; rank == 1 && i < values.size(); i += 5)
      values[i] = test::rounded(values[i] * (1 + 0x1p-8), Dtype::bfloat16);
    writer.contribution(rank, 0, 0, 0, 0, values);
    writer.result(rank, 0, 0, 0, values);
    writer.step(rank, 0, 1);
  }
  writer.finish();
  const VerifyResult result = verify_run(folder.path());
  CHECK(result.verdict() == PieceVerdict::undecided);
}

TEST_CASE("a parameter whose gradient is the same on all ranks is right where others say that their data differ") {
  SimpleRun run = run_on(2, true, [](int rank) { return rank; });
  const Folder folder;
  RunWriter writer(folder.path(), run.settings);
  writer.parameter(0, "weight", 3000);
  writer.parameter(1, "bias", 1);
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<double> one = run.gradient(0, rank, 0, 0), other = run.gradient(0, 1 - rank, 0, 0);
    std::vector<double> mean;
    for (std::size_t i = 0; i < one.size(); ++i) mean.push_back(test::rounded((one[i] + other[i]) / 2, Dtype::float32));
    writer.contribution(rank, 0, 0, 0, 0, one);
    writer.contribution(rank, 0, 0, 1, 0, {1.5});
    writer.result(rank, 0, 0, 0, mean);
    writer.result(rank, 0, 1, 0, {1.5});
    writer.step(rank, 0, 1);
  }
  writer.finish();
  CHECK(verify_run(folder.path()).verdict() == PieceVerdict::right);
  VerifyOptions alone;
  alone.parameters = Selectors(std::vector<std::string>{"bias"});
  CHECK(verify_run(folder.path(), alone).verdict() == PieceVerdict::right);
}

TEST_CASE("experts that a rank has alone do not say that all ranks' data differ") {
  for (const bool same : {true, false}) {
    SimpleRun run = run_on(2, false, [=](int rank) { return same ? 0 : rank; });
    const Folder folder;
    RunWriter writer(folder.path(), run.settings);
    writer.parameter(0, "weight", 3000);
    for (int rank = 0; rank < 2; ++rank) {
      writer.line(rank,
                  R"({{"event":"parameter","id":{0},"name":"experts.{1}","shape":[2000],"dtype":"float32",)"
                  R"("frozen":false,"pieces":[{{"range":[0,2000]}}]}})",
                  1, rank);
      std::vector<double> mean = run.gradient(0, 0, 0, 0), half = run.gradient(1, 10 + rank, 0, 0);
      const std::vector<double> other = run.gradient(0, 1, 0, 0);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] = test::rounded((mean[i] + other[i]) / 2, Dtype::float32);
      writer.contribution(rank, 0, 0, 0, 0, run.gradient(0, rank, 0, 0));
      writer.contribution(rank, 0, 0, 1, 0, half);
      writer.result(rank, 0, 0, 0, mean);
      for (double& value : half) value /= 2;
      writer.result(rank, 0, 1, 0, half);
      writer.step(rank, 0, 1);
    }
    writer.finish();
    const VerifyResult result = verify_run(folder.path());
    CHECK(result.count(PieceVerdict::wrong) == 0);
    CHECK(result.count(PieceVerdict::undecided) == (same ? 1 : 0));
  }
}

TEST_CASE("a step whose gradients are all zero says nothing, one of others does") {
  const auto nothing = [](int steps, int zeros) {
    const Folder folder;
    RunWriter writer(folder.path(), {});
    writer.parameter(0, "weight", 300);
    writer.parameter(1, "unused", 300);
    for (int step = 0; step < steps; ++step) {
      for (int rank = 0; rank < 2; ++rank) {
        std::vector<double> own = test::drawn(300, static_cast<std::uint64_t>(10 * step + rank)), sum(300);
        const std::vector<double> other = test::drawn(300, static_cast<std::uint64_t>(10 * step + 1 - rank));
        for (std::size_t i = 0; i < own.size(); ++i) {
          sum[i] = step < zeros ? 0 : test::rounded((own[i] + other[i]) / 2, Dtype::float32);
          if (step < zeros) own[i] = 0;
        }
        writer.contribution(rank, step, 0, 0, 0, own);
        writer.result(rank, step, 0, 0, sum);
        writer.line(rank, R"({{"event":"result","step":{},"parameter":1,"piece":0,"row":null}})", step);
        writer.step(rank, step, 1);
      }
    }
    writer.finish();
    return verify_run(folder.path());
  };
  const VerifyResult all = nothing(2, 2);
  CHECK(all.verdict() == PieceVerdict::undecided);
  CHECK(only_finding(all).starts_with("no rank's backward yielded anything but zeros"));
  CHECK(nothing(2, 1).verdict() == PieceVerdict::right);
}

TEST_CASE("a rank by itself, and replicas over tp, are judged") {
  SimpleRun run = run_on(1, true, [](int) { return 0; });
  CHECK(verified(run).verdict() == PieceVerdict::right);
  run = run_on(2, false, [](int) { return 0; });
  run.settings.mesh = {{"tp", 2}};
  run.settings.data_axes = {};
  CHECK(verified(run).verdict() == PieceVerdict::right);
}

TEST_CASE("plain tensors that differ along tp are not judged, and no repair of them is offered") {
  const auto run_with = [](const std::string& axis, const std::string& more) {
    const Folder folder;
    RunWriter::Settings settings;
    settings.mesh = {{"dp", 2}, {axis, 2}};
    settings.collectives = true;
    RunWriter writer(folder.path(), settings);
    for (int rank = 0; rank < 4; ++rank) {
      for (int id = 0; id < 2; ++id)
        writer.line(rank,
                    R"({{"event":"parameter","id":{0},"name":"{1}","shape":[2000],"dtype":"float32",)"
                    R"("frozen":false,{2}"pieces":[{{"range":[0,2000]}}]}})",
                    id, id == 0 ? "embedding" : "norm", more);
    }
    for (int rank = 0; rank < 4; ++rank) {
      for (int id = 0; id < 2; ++id) {
        const auto of = [&](int dp) {  // a part of the vocabulary for each rank along tp, and all of the norm
          return test::drawn(2000, static_cast<std::uint64_t>(100 + 10 * id + 2 * dp + (id == 0 ? rank % 2 : 0)));
        };
        std::vector<double> mean = of(0);
        const std::vector<double> other = of(1);
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] = test::rounded((mean[i] + other[i]) / 2, Dtype::float32);
        writer.contribution(rank, 0, 0, id, 0, of(rank / 2));
        writer.result(rank, 0, id, 0, mean);
      }
      writer.step(rank, 0, 1);
    }
    writer.finish();
    VerifyResult result = verify_run(folder.path());
    if (result.verdict() == PieceVerdict::undecided) CHECK_THROWS_AS(record_run(folder.path()), InputError);
    return result;
  };
  for (const std::string axis : {"tp", "ep"}) {
    const VerifyResult result = run_with(axis, "");
    CHECK(result.verdict() == PieceVerdict::undecided);
    CHECK(result.count(PieceVerdict::right) == 1);
    REQUIRE(result.findings.size() == 1);
    CHECK(result.findings[0].what == "ranks along " + axis +
                                         " yield different gradients of it, and nothing says whether they hold "
                                         "different parts of it or shares of one gradient");
    CHECK(result.findings[0].parameters == std::vector<int>{0});
    CHECK(result.blame.empty());
    CHECK(result.repair.empty());
  }
  // A DTensor's placement, or a framework, says that they are shares: now one is missing.
  CHECK(run_with("tp", R"("placed":["dp","tp"],)").verdict() == PieceVerdict::wrong);
}

TEST_CASE("sketches that are all zero beside hashes that are not are no match") {
  SimpleRun run = run_on(2, true, [](int rank) { return rank; });
  const Folder folder;
  run.write(folder.path());
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".safetensors") continue;
    std::string bytes = test::read_all(entry.path());
    const auto begin = static_cast<std::ptrdiff_t>(8 + static_cast<unsigned char>(bytes[0]) +
                                                   256 * static_cast<unsigned char>(bytes[1]));
    std::fill(bytes.begin() + begin, bytes.end(), '\0');
    test::write_all(entry.path(), bytes);
  }
  const VerifyResult result = verify_run(folder.path());
  CHECK(result.verdict() == PieceVerdict::undecided);
  CHECK(result.count(PieceVerdict::right) == 0);
  CHECK(only_finding(result).find("has no sum that is not zero, and its hash is not that of zeros") !=
        std::string::npos);
}

TEST_CASE("a run with more wrong results than fit in memory keeps some coefficients, and all formulas") {
  SimpleRun run = run_on(4, false, [](int rank) { return rank; });
  VerifyOptions options;
  const VerifyResult whole = verified(run, options);
  options.most_coefficients = 3 * 8 * 2;  // of three parameters, whose results have eight contributions, two each
  const VerifyResult result = verified(run, options);
  REQUIRE(result.pieces.size() == 12);
  REQUIRE(result.findings.size() == whole.findings.size());
  for (std::size_t i = 0; i < result.pieces.size(); ++i) {
    const VerifiedPiece& piece = result.pieces[i];
    CHECK(piece.formula == whole.pieces[i].formula);
    CHECK(piece.verdict == PieceVerdict::wrong);
    CHECK(piece.coefficients.size() == (i % 4 < 2 ? 8 : 0));
    CHECK(piece.left_out == (i % 4 < 2 ? 0 : 8));
  }
  REQUIRE_FALSE(result.notes.empty());
  CHECK(result.notes.back() ==
        "the coefficients of 6 results are left out, for more than 48 are not kept; --step and --parameter look at "
        "fewer.");
}
