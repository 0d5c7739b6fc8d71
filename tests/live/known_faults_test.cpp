// SPDX-License-Identifier: Apache-2.0
#include "lockstep/live.h"
#include "tests/catch.h"
#include "tests/live/loop.h"

namespace lockstep {
namespace {

using test::both;
using test::call;
using test::Loop;
using test::RunWriter;
using test::says;
using test::scaled;
using test::verified;

/// Two optimizer steps of one parameter of 600 elements, whose optimizers get `of_step` of the ranks' mean in the
/// second step, and `left` of that of the first.
struct TwoSteps {
  double of_step = 1, left = 0;
  bool none = false;  ///< the optimizers get no gradient in the second step
  std::vector<std::string> calls[2];

  VerifyResult verified() const {
    const test::Folder folder;
    RunWriter::Settings settings;
    settings.collectives = true;
    RunWriter writer(folder.path(), settings);
    writer.parameter(0, "a", 600);
    std::vector<double> mean[2];
    for (int step = 0; step < 2; ++step) {
      std::vector<double> own[2];
      for (int rank = 0; rank < 2; ++rank) {
        own[rank] = test::drawn(600, static_cast<std::uint64_t>(10 * step + rank + 1));
        writer.contribution(rank, step, 0, 0, 0, own[rank]);
        for (const std::string& line : calls[step]) writer.line(rank, "{}", line);
      }
      mean[step].resize(600);
      for (std::size_t i = 0; i < 600; ++i) {
        const double value = of_step * (own[0][i] + own[1][i]) / 2;
        mean[step][i] = test::rounded(step == 0 ? value : value + left * mean[0][i], Dtype::float32);
      }
      for (int rank = 0; rank < 2; ++rank) {
        if (step == 1 && none)
          writer.line(rank, R"({{"event":"result","step":1,"parameter":0,"piece":0,"row":null}})");
        else
          writer.result(rank, step, 0, 0, mean[step]);
        writer.step(rank, step, 1);
      }
    }
    writer.finish();
    return verify_run(folder.path());
  }
};

std::string all_reduce(int step) {
  std::string line = call("all_reduce", both, 600, "null", "0", "avg");
  return line.replace(line.find("\"step\":0"), 8, fmt::format("\"step\":{}", step));
}

}  // namespace

TEST_CASE("gradients that were clipped, and zeroed by nobody, lack a zero") {
  TwoSteps run;
  run.calls[0] = {all_reduce(0)};
  run.calls[1] = {all_reduce(1)};
  CHECK(run.verified().verdict() == VerifiedPiece::Verdict::right);
  run.left = 0.539036;  // no small fraction
  const VerifyResult result = run.verified();
  REQUIRE(result.blame.size() == 1);
  CHECK(result.blame[0].step == "zero");
  CHECK(result.blame[0].why.starts_with("is missing before micro_batches: nothing clears the gradients of a, and"));
  CHECK(result.not_blamed.empty());
}

TEST_CASE("what no collective carries and no optimizer gets lacks the collective of other steps") {
  TwoSteps run;
  run.none = true;
  run.calls[0] = {all_reduce(0)};
  VerifyResult result = run.verified();
  REQUIRE(result.blame.size() == 1);
  CHECK(result.blame[0].step == "dp_all_reduce/train.py:9");
  CHECK(says(result.blame[0].why, "carries the gradients of a in optimizer step 0, and nothing does in step 1"));
  run.calls[1] = {all_reduce(1)};  // it is carried, and something else is wrong
  result = run.verified();
  for (const StepAtFault& one : result.blame) CHECK_FALSE(says(one.why, "and nothing does in step 1"));
}

TEST_CASE("where optimizer steps met other collectives, the first that is wrong is looked at by itself") {
  TwoSteps run;
  run.of_step = 2;
  run.calls[0] = {all_reduce(0)};
  run.calls[0].push_back(scaled("mul", 2, "0"));
  const VerifyResult result = run.verified();
  REQUIRE(result.blame.size() == 1);
  CHECK(result.blame[0].step == "scale/train.py:11");
  CHECK(result.blame[0].why.ends_with("; in optimizer step 0, looked at by itself"));
}

TEST_CASE("a factor of one rank alone is named with its line and the ranks") {
  Loop loop;
  loop.coefficient = [](const std::string&, int owner, int, int) { return owner == 1 ? 1.0 : 0.5; };
  loop.lines = [](int rank, int m) {
    std::vector<std::string> lines;
    if (m == 1) lines = {call("all_reduce", both, 1200, "1", "0,1")};
    if (m == 1 && rank == 1) lines.push_back(scaled("mul", 2, "0,1"));
    return lines;
  };
  VerifyResult result = verified(loop);
  REQUIRE(result.blame.size() == 1);
  CHECK(result.blame[0].step == "scale/train.py:11");
  CHECK(result.blame[0].why == "multiplies the gradients of a and 1 more by 2 on rank 1, and not on rank 0");
  // Where it is said of both, that does not tell them apart.
  const auto of_one = loop.lines;
  loop.lines = [&](int, int m) { return of_one(1, m); };
  result = verified(loop);
  CHECK(result.blame.empty());
  CHECK_FALSE(result.not_blamed.empty());
}

TEST_CASE("a factor that one rank alone multiplies its share by, before all is added up, is named") {
  Loop loop;
  loop.coefficient = [](const std::string&, int, int rank, int) { return rank == 1 ? 1.0 : 0.5; };
  loop.lines = [](int rank, int m) {
    std::vector<std::string> lines;
    if (m == 1 && rank == 1) lines.push_back(scaled("mul", 2, "0,1"));
    if (m == 1) lines.push_back(call("all_reduce", both, 1200, "1", "0,1"));
    return lines;
  };
  VerifyResult result = verified(loop);
  REQUIRE(result.blame.size() == 1);
  CHECK(result.blame[0].step == "scale/train.py:11");
  CHECK(result.blame[0].why == "multiplies the gradients of a and 1 more by 2 on rank 1, and not on rank 0");
  // Another number than what was measured explains nothing, and no collective is another one.
  loop.coefficient = [](const std::string&, int, int rank, int) { return rank == 1 ? 3.0 : 0.5; };
  result = verified(loop);
  CHECK(result.blame.empty());
  CHECK(says(result.not_blamed, "no step is"));
  CHECK_FALSE(says(result.not_blamed, "collectives"));
}

TEST_CASE("where both ranks multiply by one number at lines of their own, neither is at fault") {
  Loop loop;
  loop.coefficient = [](const std::string&, int owner, int, int) { return owner == 1 ? 1.0 : 0.5; };
  loop.lines = [](int rank, int m) {
    std::vector<std::string> lines;
    if (m == 1) lines = {call("all_reduce", both, 1200, "1", "0,1")};
    if (m == 1) {
      std::string line = scaled("div", 2, "0,1");
      lines.push_back(rank == 0 ? line : line.replace(line.find("train.py:11"), 11, "train.py:13"));
    }
    return lines;
  };
  const VerifyResult result = verified(loop);
  CHECK(result.count(VerifiedPiece::Verdict::wrong) > 0);
  for (const StepAtFault& one : result.blame) CHECK_FALSE(says(one.why, "rank 1"));
}

TEST_CASE("where something multiplies that nobody has seen, no line that was seen is at fault") {
  Loop loop;
  loop.coefficient = [](const std::string&, int, int, int) { return 1.0; };
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector{call("all_reduce", both, 1200, "1", "0,1"), scaled("div", 2, "0,1")}
                  : std::vector<std::string>{};
  };
  const VerifyResult result = verified(loop);
  CHECK(result.blame.empty());
  CHECK(says(result.not_blamed, "gradients are multiplied with other numbers than the capture has seen"));
}

TEST_CASE("a number that is not right is no count of tokens where nobody counts any") {
  Loop loop;
  loop.coefficient = [](const std::string&, int, int, int) { return -0.5; };
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector{call("all_reduce", both, 1200, "1", "0,1")} : std::vector<std::string>{};
  };
  const VerifyResult result = verified(loop);
  REQUIRE_FALSE(result.blame.empty());
  for (const StepAtFault& one : result.blame) CHECK_FALSE(says(one.why, "tokens"));
  CHECK(write_json(to_json(result.repair)).find("tokens") == std::string::npos);
}

TEST_CASE("an all-reduce of different parts adds up gradients of different elements") {
  Loop loop;
  loop.settings.mesh = {{"dp_shard", 2}};
  loop.settings.data_axes = {"dp_shard"};
  loop.cuts = {0, 300, 600};
  loop.lines = [](int, int m) {
    std::vector lines = {call("reduce_scatter", both, 1200, std::to_string(m), "0,1", "avg")};
    if (m == 1) lines.push_back(call("all_reduce", both, 300, "null", "1", "sum", "train.py:30 in main"));
    return lines;
  };
  loop.noise = 0.3;  // of "b"
  VerifyResult result = verified(loop);
  REQUIRE(result.blame.size() == 1);
  CHECK(result.blame[0].step == "dp_shard_all_reduce/train.py:30");
  CHECK(result.blame[0].why == "adds up what ranks 0 and 1 hold of b, which are different parts");
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].what ==
        "the all_reduce at train.py:30 in main adds up gradients of different elements: its ranks hold different parts "
        "of it");
  loop.noise = 0;  // whatever was said to be carried: what is right stays right
  result = verified(loop);
  CHECK(result.count(VerifiedPiece::Verdict::right) == 4);
  CHECK(result.blame.empty());
}

}  // namespace lockstep
