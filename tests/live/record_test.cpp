// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "lockstep/diagnostic.h"
#include "lockstep/live.h"
#include "tests/catch.h"
#include "tests/live/loop.h"

namespace lockstep {
namespace {

using test::both;
using test::call;
using test::checked;
using test::Loop;
using test::recorded;
using test::RunWriter;
using test::says;
using test::words;

std::string refusal(const Loop& loop, const RecordOptions& options = {}) {
  try {
    recorded(loop, options);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

const std::string backward = "backward by=\"1 / (tokens * micro_batches)\"";

}  // namespace

TEST_CASE("what none of the contributions is no schedule predicts") {
  Loop loop;
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector{call("all_reduce", both, 1200, "null", "0,1", "avg")} : std::vector<std::string>{};
  };
  loop.noise = 0.3;
  RecordedRun run = recorded(loop);
  REQUIRE(run.unmet.size() == 1);
  CHECK(says(run.unmet[0], "b on ranks 0 and 1: the schedule predicts (g0+g1)/2, and "));
  CHECK(says(run.unmet[0], " % that is none of the recorded contributions."));
  loop.noise = 0;
  CHECK(recorded(loop).unmet.empty());
  loop.silent = true;
  run = recorded(loop);
  REQUIRE(run.unmet.size() == 1);
  CHECK(
      says(run.unmet[0], "b on ranks 0 and 1: the schedule predicts 0, and no formula was recovered, with 100 % that"));
  loop.coefficient = [](const std::string& name, int, int, int) { return name == "b" ? 0.0 : 0.5; };
  CHECK(recorded(loop).unmet.empty());  // zeros, of what nobody has used
}

TEST_CASE("a factor that one of the ranks has alone is no step") {
  Loop loop;
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector{call("all_reduce", both, 1200, "null", "0,1", "avg")} : std::vector<std::string>{};
  };
  loop.coefficient = [](const std::string& name, int owner, int, int) { return name == "b" && owner == 1 ? 1.0 : 0.5; };
  const RecordedRun run = recorded(loop);
  CHECK(run.unmet ==
        std::vector<std::string>{"b on rank 1: the schedule predicts (g0+g1)/2, and g0 + g1 was measured."});
  CHECK(run.notes.empty());
  CHECK(!says(words(run), "scale"));
}

TEST_CASE("an all-reduce after the last micro-batch stands behind the loop") {
  Loop loop;
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector{call("all_reduce", both, 600, "null", "0", "avg"),
                                call("all_reduce", both, 600, "null", "1", "avg")}
                  : std::vector<std::string>{};
  };
  const RecordedRun run = recorded(loop);
  CHECK(run.unmet.empty());
  CHECK(run.notes.empty());
  CHECK(words(run) == "zero; micro_batches(" + backward + "); dp_all_reduce/train.py:9 over=\"dp\" reduce=\"avg\"");
  CHECK(checked(run).verdict == Verdict::match);
}

TEST_CASE("a rank that has no gradient of a parameter puts zeros into what others reduce") {
  Loop loop;
  loop.lines = [](int rank, int m) {
    return m == 1 ? std::vector{call("all_reduce", both, 1200, "null", rank == 0 ? "0,1" : "0", "avg")}
                  : std::vector<std::string>{};
  };
  const RecordedRun run = recorded(loop);
  CHECK(run.unmet.empty());
  CHECK(words(run).ends_with("dp_all_reduce/train.py:9 over=\"dp\" reduce=\"avg\""));
}

TEST_CASE("one in every backward pass stands in the loop, and one in some has a condition") {
  Loop loop;
  loop.micro_batches = 4;
  loop.lines = [](int, int m) { return std::vector{call("all_reduce", both, 1200, std::to_string(m), "0,1", "avg")}; };
  CHECK(words(recorded(loop)) ==
        "zero; micro_batches(" + backward + "; dp_all_reduce/train.py:9 over=\"dp\" reduce=\"avg\")");
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector{call("all_reduce", both, 1200, "1", "0,1", "avg")} : std::vector<std::string>{};
  };
  loop.coefficient = [](const std::string&, int owner, int rank, int m) {
    return m < 2 ? 0.5 : owner == rank ? 1.0 : 0.0;
  };
  const RecordedRun run = recorded(loop);
  CHECK(run.unmet.empty());
  CHECK(words(run) == "zero; micro_batches(" + backward +
                          "; dp_all_reduce/train.py:9 over=\"dp\" reduce=\"avg\" when=\"micro_batch == 1\")");
  CHECK(checked(run).verdict == Verdict::mismatch);
}

TEST_CASE("what a collective is said to carry is believed only where the formulas meet") {
  Loop loop;  // both are reduced, and the line says that one is
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector{call("all_reduce", both, 600, "null", "0", "avg")} : std::vector<std::string>{};
  };
  const RecordedRun run = recorded(loop);
  REQUIRE(run.unmet.size() == 1);
  CHECK(run.unmet[0] == "b on ranks 0 and 1: the schedule predicts g0, and (g0+g1)/2 was measured.");
}

TEST_CASE("a division that no collective shows is found in the coefficients and said") {
  Loop loop;
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector{call("all_reduce", both, 1200, "1", "0,1")} : std::vector<std::string>{};
  };
  RecordedRun run = recorded(loop);  // DDP's own
  CHECK(run.unmet.empty());
  CHECK(words(run) == "zero; micro_batches(" + backward +
                          "); dp_scale/train.py:9 by=\"1 / dp\"; dp_all_reduce/train.py:9 over=\"dp\"");
  REQUIRE(run.notes.size() == 1);
  CHECK(run.notes[0] ==
        "all parameters: divided by the group's size before a sum, which no collective shows; the coefficients do.");
  loop.coefficient = [](const std::string& name, int, int, int) { return name == "a" ? 0.5 : 1.0 / 6; };
  run = recorded(loop);
  CHECK(run.unmet.empty());
  CHECK(words(run).ends_with("dp_all_reduce/train.py:9 over=\"dp\"; scale params=[\"b\"] by=\"1/3\""));
  CHECK(checked(run).verdict == Verdict::mismatch);
}

TEST_CASE("a line that may be right is not blamed alone") {
  Loop loop;  // whether b is not divided, or all are and something doubles b, the coefficients do not say
  loop.coefficient = [](const std::string& name, int, int, int) { return name == "a" ? 0.5 : 1.0; };
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector{call("all_reduce", both, 1200, "null", "0,1")} : std::vector<std::string>{};
  };
  const auto blamed = [&] {
    const test::Folder folder;
    loop.write(folder.path());
    return verify_run(folder.path()).blame;
  };
  const std::string doubted = "and another one multiplies what came out: no collective shows which";
  CHECK(blamed().at(0).why.starts_with("acts on a and should act on all parameters; "));
  CHECK(blamed().at(0).why.ends_with("; or that line is right, " + doubted));
  // Where the collective leaves b out as well, that call is at fault.
  loop.coefficient = [](const std::string& name, int owner, int rank, int) {
    return name == "a" ? 0.5 : owner == rank ? 1.0 : 0.0;
  };
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector{call("all_reduce", both, 600, "null", "0")} : std::vector<std::string>{};
  };
  for (const StepAtFault& one : blamed()) CHECK_FALSE(one.why.ends_with(doubted));
}

TEST_CASE("what clears a gradient between micro-batches is found in the coefficients") {
  Loop loop;
  loop.micro_batches = 3;
  loop.lines = [](int, int m) {
    return m == 2 ? std::vector{call("all_reduce", both, 1200, "null", "0,1", "avg")} : std::vector<std::string>{};
  };
  loop.coefficient = [](const std::string&, int, int, int m) { return m == 2 ? 0.5 : 0.0; };
  const RecordedRun run = recorded(loop);
  CHECK(run.unmet.empty());
  CHECK(words(run).starts_with("zero; micro_batches(zero_between when=\"micro_batch != first\"; backward"));
}

TEST_CASE("shards that are reduced in each micro-batch are added up beside the gradient") {
  Loop loop;
  loop.settings.mesh = {{"dp_shard", 2}};
  loop.settings.data_axes = {"dp_shard"};
  loop.cuts = {0, 300, 600};
  loop.lines = [](int, int m) {
    return std::vector{call("all_gather", both, 300, "null", ""),
                       call("reduce_scatter", both, 1200, std::to_string(m), "0,1", "avg")};
  };
  const RecordedRun run = recorded(loop);
  CHECK(run.unmet.empty());
  CHECK(run.notes.empty());
  CHECK(words(run) == "zero; micro_batches(" + backward +
                          " buffer=\"unreduced\"; dp_shard_reduce_scatter/train.py:9 over=\"dp_shard\" "
                          "reduce=\"avg\" geometry={ \"kind\": \"rows\" } buffer=\"unreduced\"; accumulate "
                          "from=\"unreduced\" to=\"grad\" "
                          "on=\"owned\"; zero_unreduced buffer=\"unreduced\")");
  CHECK(checked(run).verdict == Verdict::match);
}

TEST_CASE("ranks that own other elements than the schedule gives them are told") {
  Loop loop;
  loop.settings.mesh = {{"dp_shard", 2}};
  loop.settings.data_axes = {"dp_shard"};
  loop.cuts = {0, 200, 600};
  loop.lines = [](int, int m) {
    return std::vector{call("reduce_scatter", both, 1200, std::to_string(m), "0,1", "avg")};
  };
  const RecordedRun run = recorded(loop);
  REQUIRE_FALSE(run.unmet.empty());
  CHECK(std::any_of(run.unmet.begin(), run.unmet.end(), [](const std::string& sentence) {
    return sentence == "a and b on ranks 0 and 1: the schedule's optimizers get other elements of it than the run's.";
  }));
}

TEST_CASE("ranks that see the same tokens and yield different gradients have shares of a sum") {
  Loop loop;
  loop.settings.mesh = {{"tp", 2}};
  loop.settings.data_axes = {};
  loop.replicated = true;
  loop.coefficient = [](const std::string&, int owner, int rank, int) { return owner == rank ? 1.0 : 0.0; };
  RecordedRun run = recorded(loop);
  CHECK(run.unmet.empty());
  CHECK(run.scenario.find("model")->find("parameters")->items()[0].find("partial") == nullptr);
  CHECK(checked(run).verdict == Verdict::match);
  loop.shares = true;
  run = recorded(loop);
  CHECK(run.unmet.empty());
  CHECK(run.scenario.find("model")->find("parameters")->items()[0].find("partial")->items()[0].text() == "tp");
  CHECK(checked(run).verdict == Verdict::mismatch);
}

TEST_CASE("what carries parts of gradients, or comes when they were looked at, is left out with a note") {
  Loop loop;
  loop.coefficient = [](const std::string&, int owner, int rank, int) { return owner == rank ? 1.0 : 0.0; };
  loop.lines = [](int, int m) {
    return m == 1
               ? std::vector{call("all_reduce", both, 100, "null", "0"), call("send", both, 600, "null", "0"),
                             call("all_reduce", both, 1, "null", ""), call("all_reduce", both, 600, "null", "0", "max")}
               : std::vector<std::string>{};
  };
  loop.results = {call("all_reduce", both, 600, "null", "0")};
  const RecordedRun run = recorded(loop);
  CHECK(run.unmet.empty());
  CHECK(words(run) == "zero; micro_batches(" + backward + ")");
  const std::set<std::string> notes(run.notes.begin(), run.notes.end());
  CHECK(notes == std::set<std::string>{
                     "all_reduce of 100 float32 at train.py:9 in main: it carries 100 of 600 elements of the gradients "
                     "that went into it, and a step takes whole ones.",
                     "all_reduce of 600 float32 at train.py:9 in main: it comes after what the optimizer gets was "
                     "looked at, which is before clipping or the step.",
                     "all_reduce of 600 float32 at train.py:9 in main: it takes the max of gradients, which no step of "
                     "a schedule does."});
}

TEST_CASE("a run that says too little for a scenario is refused in a sentence") {
  Loop loop;
  loop.lines = [](int rank, int m) {
    return m == 1 && rank == 0 ? std::vector{call("all_reduce", both, 600, "null", "0", "avg")}
                               : std::vector<std::string>{};
  };
  CHECK(says(refusal(loop), "collectives that do not meet"));
  loop.settings.mesh = {{"dp", 2}, {"tp", 2}};
  loop.lines = [](int rank, int m) {
    return m == 1 && rank < 2 ? std::vector{call("all_reduce", both, 600, "null", "0", "avg")}
                              : std::vector<std::string>{};
  };
  CHECK(says(refusal(loop), "rank 2 calls other collectives for the gradient of a than rank 0"));
  loop = Loop();
  loop.settings.loss = "null";
  CHECK(says(refusal(loop), "expected --loss local_mean, sum, token_mean or token_sum"));
  RecordOptions options;
  options.loss = CapturedLoss::local_mean;
  CHECK(refusal(loop, options).empty());
  loop = Loop();
  loop.settings.collectives = false;
  CHECK(says(refusal(loop), "whose gradients the collectives carried"));
  loop = Loop();
  loop.settings.mesh = {{"data", 2}, {"model", 1}};
  loop.settings.data_axes = {"data"};
  CHECK(says(refusal(loop), "the axes of the mesh are data, model"));
  loop = Loop();
  loop.settings.mesh = {{"dp", 4}};
  loop.lines = [](int rank, int m) {
    const std::vector<int> group = {0, 1, 2};
    return m == 1 && rank < 3 ? std::vector{call("all_reduce", group, 600, "null", "0", "avg")}
                              : std::vector<std::string>{};
  };
  CHECK(says(refusal(loop), "which are no whole axes of the mesh"));
  loop = Loop();
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector{call("all_reduce", {0, 1, 7}, 600, "null", "0", "avg")} : std::vector<std::string>{};
  };
  CHECK(says(refusal(loop), "is among ranks 0, 1 and 7, and the run has 2 ranks"));
  loop.lines = [](int, int m) {
    std::string line = call("broadcast", both, 600, "null", "0");
    line.insert(line.size() - 1, R"(,"root":5)");
    return m == 1 ? std::vector{line} : std::vector<std::string>{};
  };
  CHECK(says(refusal(loop), "has rank 5 as its root, which is not in its group"));
}

TEST_CASE("verify names the step at fault and its repair where the schedule predicts what was measured") {
  Loop loop;
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector{call("all_reduce", both, 600, "null", "0", "avg")} : std::vector<std::string>{};
  };
  loop.coefficient = [](const std::string& name, int owner, int rank, int) {
    return name == "a" ? 0.5 : owner == rank ? 1.0 : 0.0;
  };
  const test::Folder folder;
  loop.write(folder.path());
  const VerifyResult verified = verify_run(folder.path());
  REQUIRE(verified.blame.size() == 1);
  CHECK(verified.blame[0].step == "dp_all_reduce/train.py:9");
  REQUIRE_FALSE(verified.repair.empty());
  CHECK(verified.not_blamed.empty());
  VerifyOptions options;
  options.blame = false;
  CHECK(verify_run(folder.path(), options).blame.empty());
  loop.lines = [](int, int) { return std::vector<std::string>{}; };
  loop.coefficient = [](const std::string&, int, int, int) { return 0.25; };
  loop.write(folder.path());
  const VerifyResult other = verify_run(folder.path());
  CHECK(other.blame.empty());
  CHECK_THAT(other.not_blamed,
             Catch::Matchers::StartsWith("no step is named: a and b on ranks 0 and 1: the schedule "));
}

}  // namespace lockstep
