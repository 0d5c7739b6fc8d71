// SPDX-License-Identifier: Apache-2.0
#include "lockstep/live.h"
#include "tests/catch.h"
#include "tests/live/loop.h"

namespace lockstep {
namespace {

using test::both;
using test::call;
using test::Loop;
using test::says;
using test::verified;
using Result = VerifiedPiece::Verdict;

std::string losses(const std::string& times, const std::string& more = "", int elements = 64) {
  return fmt::format(R"({{"times":{},"elements":{},"call":"train.py:7 in main","why":"calls backward on 2 means"{}}})",
                     times, elements, more);
}

/// What both optimizers get of each contribution, and what the ranks say of their losses.
Loop with(double coefficient, std::string first, std::string second) {
  Loop loop;
  loop.coefficient = [=](const std::string&, int, int, int) { return coefficient; };
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector<std::string>{call("all_reduce", both, 1200, "1", "0,1", "avg")}
                  : std::vector<std::string>{};
  };
  loop.losses = [=](int rank) { return rank == 0 ? first : second; };
  return loop;
}

}  // namespace

TEST_CASE("what comes of losses that nothing divides is expected with that much less") {
  const VerifyResult result = verified(with(0.5, losses("2"), losses("2")));
  CHECK(result.count(Result::wrong) == 2);
  for (const VerifiedPiece& piece : result.pieces) {
    CHECK(piece.formula == "(g0+g1)/2");
    CHECK(piece.expected == "(g0+g1)/4");
  }
  REQUIRE(result.blame.size() == 1);
  CHECK(result.blame[0].step == "loss/train.py:7");
  CHECK(result.blame[0].why ==
        "calls backward on 2 means: what the optimizers get is, of every rank, 2 times its share of the mean over the "
        "batch");
  REQUIRE(result.notes.size() == 1);
  CHECK(
      says(result.notes[0], "on every rank, train.py:7 in main calls backward on 2 means: the gradients are 2 times"));
}

TEST_CASE("losses that nothing divides are right where their gradients are divided, and where the loss is another") {
  CHECK(verified(with(0.25, losses("2"), losses("2"))).verdict() == Result::right);
  const test::Folder folder;
  with(1, losses("2"), losses("2")).write(folder.path());
  VerifyOptions options;
  options.loss = CapturedLoss::sum;
  const VerifyResult result = verify_run(folder.path(), options);
  CHECK(result.verdict() == Result::right);
  CHECK(result.gaps.empty());
}

TEST_CASE("nothing is known where one rank alone says what its losses are times a mean") {
  const VerifyResult result = verified(with(0.5, losses("2"), ""));
  CHECK(result.verdict() == Result::undecided);
  CHECK(result.count(Result::right) == 2);
  REQUIRE(result.gaps.size() == 1);
  CHECK(says(result.gaps[0],
             "on rank 0, in optimizer step 0, train.py:7 in main calls backward on 2 means, and whether"));
}

TEST_CASE("a weight counts where ranks with as many elements have different ones") {
  const std::string weight = R"(,"weight":true)";
  CHECK(verified(with(0.5, losses("2", weight), losses("2", weight))).verdict() == Result::right);
  CHECK(verified(with(0.5, losses("2", weight, 32), losses("1"))).verdict() == Result::right);
  CHECK(verified(with(0.5, losses("2", weight), "")).verdict() == Result::right);
  CHECK(verified(with(0.5, losses("0.70710678", weight), losses("1"))).verdict() == Result::right);
  const VerifyResult result = verified(with(0.5, losses("2", weight), losses("1")));
  CHECK(result.count(Result::wrong) == 2);
  CHECK(result.pieces[0].expected == "g1/2 + g0/4");
  REQUIRE(result.blame.size() == 1);
  CHECK(says(result.blame[0].why, "of rank 0, and not on rank 1, 2 times"));
}

TEST_CASE("another mistake is told beside losses that nothing divides") {
  Loop loop = with(0.5, losses("2"), losses("2"));
  loop.coefficient = [](const std::string&, int owner, int source, int) { return owner == source ? 1.0 : 0.0; };
  loop.lines = [](int, int) { return std::vector<std::string>{}; };
  const VerifyResult result = verified(loop);
  CHECK(result.pieces[0].formula == "g0");
  REQUIRE_FALSE(result.blame.empty());
  CHECK(says(result.blame[0].step, "all_reduce"));
}

TEST_CASE("losses that nothing divides are recorded as means over their own tokens") {
  const test::Folder folder;
  with(0.5, losses("2"), losses("2")).write(folder.path());
  const RecordedRun run = record_run(folder.path());
  CHECK(run.unmet.empty());
  CHECK(run.scenario.find("batch")->find("loss")->text() == "token_mean");
  CHECK(test::checked(run).verdict == Verdict::mismatch);
  with(0.5, losses("0.5"), losses("0.5")).write(folder.path());
  CHECK_THROWS_AS(record_run(folder.path()), InputError);
}

TEST_CASE("what a step line says of losses is checked") {
  for (const std::string said : {"2", R"({"times":0,"elements":1,"why":""})", R"({"times":2,"elements":0,"why":""})",
                                 R"({"elements":1,"why":""})", R"({"times":2,"elements":1})"})
    CHECK_THROWS_AS(verified(with(0.5, said, losses("1"))), InputError);
}

}  // namespace lockstep
