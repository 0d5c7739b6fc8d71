// SPDX-License-Identifier: Apache-2.0
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
using test::says;
using test::scaled;
using test::verified;
using test::words;

/// DDP's all-reduce of the last micro-batch and what else ranks do after it.
std::function<std::vector<std::string>(int, int)> reduced_and(const std::vector<std::string>& more) {
  return [more](int, int m) {
    std::vector<std::string> lines;
    if (m == 1) lines = {call("all_reduce", both, 1200, "1", "0,1")};
    if (m == 1) lines.insert(lines.end(), more.begin(), more.end());
    return lines;
  };
}

}  // namespace

TEST_CASE("a factor that was seen is the step at fault, at its line, and not the sum before it") {
  Loop loop;
  loop.coefficient = [](const std::string&, int, int, int) { return 1.0; };
  loop.lines = reduced_and({scaled("mul", 2, "0,1")});
  const RecordedRun run = recorded(loop);
  CHECK(run.unmet.empty());
  CHECK(
      words(run).ends_with("dp_scale/train.py:9 by=\"1 / dp\"; dp_all_reduce/train.py:9 over=\"dp\"; "
                           "scale/train.py:11 by=\"2\""));
  const VerifyResult result = verified(loop);
  REQUIRE(result.blame.size() == 1);
  CHECK(result.blame[0].step == "scale/train.py:11");
  CHECK_FALSE(says(result.blame[0].why, "or that line is right"));
}

TEST_CASE("a division that was seen is the step, of the parameters that it divides") {
  Loop loop;
  loop.settings.adapter = "torch";
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector{call("all_reduce", both, 1200, "null", "0,1"), scaled("div", 2, "0,1")}
                  : std::vector<std::string>{};
  };
  RecordedRun run = recorded(loop);
  CHECK(run.unmet.empty());
  CHECK(run.notes.empty());
  CHECK(words(run).ends_with("dp_all_reduce/train.py:9 over=\"dp\"; scale/train.py:11 by=\"1 / dp\""));
  CHECK(checked(run).verdict == Verdict::match);
  loop.coefficient = [](const std::string& name, int, int, int) { return name == "a" ? 0.5 : 1.0; };
  loop.lines = [](int, int m) {
    return m == 1 ? std::vector{call("all_reduce", both, 1200, "null", "0,1"), scaled("div", 2, "0")}
                  : std::vector<std::string>{};
  };
  const VerifyResult result = verified(loop);
  REQUIRE(result.blame.size() == 1);
  CHECK(result.blame[0].step == "scale/train.py:11");
  CHECK(result.blame[0].why.starts_with("acts on a and should act on all parameters"));
}

TEST_CASE("what was seen is of no account where the formulas do not meet with it") {
  Loop loop;  // a copy was scaled, or it was given up
  loop.lines = reduced_and({scaled("mul", 2, "0,1")});
  RecordedRun run = recorded(loop);
  CHECK(run.unmet.empty());
  CHECK(words(run).ends_with("dp_scale/train.py:9 by=\"1 / dp\"; dp_all_reduce/train.py:9 over=\"dp\""));
  loop.lines = reduced_and({scaled("mul", 0.6180339887498949, "0,1")});
  run = recorded(loop);
  CHECK(run.unmet.empty());
  REQUIRE_FALSE(run.notes.empty());
  CHECK(says(run.notes.front(), "at train.py:11 in main: gradients are multiplied with a number that is no small"));
}

TEST_CASE("what a rank scales before it reduces, and in a micro-batch, stands there") {
  Loop loop;
  loop.settings.adapter = "torch";
  loop.coefficient = [](const std::string&, int, int, int m) { return m == 0 ? 0.75 : 0.5; };
  loop.lines = [](int, int m) {
    return m == 0 ? std::vector{scaled("mul", 1.5, "0,1")}
                  : std::vector{scaled("mul", 0.5, "0,1", "train.py:8 in main"),
                                call("all_reduce", both, 1200, "null", "0,1")};
  };
  const RecordedRun run = recorded(loop);
  CHECK(run.unmet.empty());
  CHECK(says(words(run), "scale/train.py:11 by=\"3/2\" when=\"micro_batch == first\")"));
  CHECK(words(run).ends_with("scale/train.py:8 by=\"1 / dp\"; dp_all_reduce/train.py:9 over=\"dp\""));
  CHECK(verified(loop).blame.at(0).step == "scale/train.py:11");
}

}  // namespace lockstep
