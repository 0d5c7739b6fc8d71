// SPDX-License-Identifier: Apache-2.0
#include "lockstep/live.h"
#include "tests/catch.h"
#include "tests/live/run_writer.h"

namespace lockstep {
namespace {

using test::RunWriter;

/// A call, with what else its line holds.
std::string call(const std::string& op, int elements, const std::string& where, const std::string& more = "") {
  return fmt::format(
      R"({{"event":"collective","step":0,"micro_batch":0,"op":"{}","group":[0,1],"elements":{},"dtype":"float32",)"
      R"("reduce":"sum","async":false,"call":"{}"{}}})",
      op, elements, where, more);
}

/// A right run of two ranks with these calls.
VerifyResult verified(const std::vector<std::string>& first, const std::vector<std::string>& second, bool ends = true) {
  const test::Folder folder;
  RunWriter writer(folder.path(), {});
  writer.parameter(0, "weight", 500);
  const std::vector<std::string>* calls[] = {&first, &second};
  std::vector<double> sum(500);
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<double> values(500);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<double>((i * 7919 + static_cast<std::size_t>(rank) * 104729) % 251) - 125;
      sum[i] += values[i] / 2;
    }
    writer.contribution(rank, 0, 0, 0, 0, values);
    for (const std::string& line : *calls[rank]) writer.line(rank, "{}", line);
  }
  for (int rank = 0; rank < 2; ++rank) {
    writer.result(rank, 0, 0, 0, sum);
    writer.step(rank, 0, 1);
  }
  writer.finish();
  if (!ends) {
    // As a rank leaves it that is killed: without the line at its end.
    const auto file = folder / "rank-00001.jsonl";
    const std::string text = test::read_all(file);
    test::write_all(file, text.substr(0, text.rfind("{\"event\":\"end\"")));
  }
  return verify_run(folder.path());
}

std::vector<std::string> sentences(const VerifyResult& result) {
  std::vector<std::string> texts;
  texts.reserve(result.collectives.size());
  for (const VerifiedCollective& one : result.collectives) texts.push_back(one.what);
  return texts;
}

}  // namespace

TEST_CASE("of a scatter the root alone puts something in, and a type") {
  const auto scatter = [](int elements, const std::string& type, int root) {
    return fmt::format(
        R"({{"event":"collective","step":0,"micro_batch":0,"op":"scatter","group":[0,1],"elements":{},"dtype":{},)"
        R"("reduce":null,"async":false,"root":{},"call":"train.py:9 in main"}})",
        elements, type, root);
  };
  const std::string other = scatter(0, "null", 0);
  CHECK(sentences(verified({scatter(500, R"("float32")", 0)}, {other})).empty());
  CHECK(sentences(verified({scatter(500, R"("float32")", 1)}, {other})).size() == 1);
  CHECK(sentences(verified({scatter(500, R"("float32")", 0)}, {scatter(500, R"("float16")", 0)})).size() == 1);
}

TEST_CASE("collectives that meet are right, wherever they are called from") {
  const auto same =
      verified({call("all_reduce", 500, "train.py:9 in main")}, {call("all_reduce", 500, "train.py:9 in main")});
  CHECK(same.verdict() == VerifiedPiece::Verdict::right);
  CHECK(same.collectives.empty());
  CHECK(same.notes.empty());
  const auto other =
      verified({call("all_reduce", 500, "train.py:9 in main")}, {call("all_reduce", 500, "train.py:12 in main")});
  CHECK(other.verdict() == VerifiedPiece::Verdict::right);
  CHECK(other.notes ==
        std::vector<std::string>{
            "collective 1 of ranks 0 and 1, in optimizer step 0: rank 0 calls all_reduce of 500 float32 elements at "
            "train.py:9 in main, and rank 1 from train.py:12 in main. Were these different gradients, they "
            "would be mixed."});
  const auto of_root = verified({call("scatter", 500, "train.py:9 in main", R"(,"root":0)")},
                                {call("scatter", 500, "train.py:12 in main", R"(,"root":0)")});
  CHECK(of_root.notes.empty());
  const auto elsewhere = verified({call("scatter", 500, "train.py:9 in main", R"(,"root":0)")},
                                  {call("scatter", 500, "train.py:12 in other", R"(,"root":0)")});
  CHECK(elsewhere.notes.size() == 1);
  // The pieces of an all_gather may differ.
  CHECK(verified({call("all_gather", 300, "a")}, {call("all_gather", 200, "a")}).collectives.empty());
}

TEST_CASE("the first collective that does not meet is named with both calls") {
  const std::string reduce = call("all_reduce", 500, "train.py:9 in main");
  const auto crossed = verified({reduce, call("broadcast", 500, "train.py:10 in main", R"(,"root":0)"), reduce},
                                {reduce, call("all_reduce", 500, "train.py:11 in main"), reduce});
  CHECK(crossed.verdict() == VerifiedPiece::Verdict::wrong);
  CHECK(sentences(crossed) ==
        std::vector<std::string>{
            "collective 2 of ranks 0 and 1, in optimizer step 0: rank 0 calls broadcast of 500 float32 elements "
            "from or to rank 0 at train.py:10 in main, and rank 1 all_reduce of 500 float32 elements at "
            "train.py:11 in main."});
  // The line of the call that is told first: after those of the run, the parameter, the contribution and one call.
  CHECK(crossed.collectives.front().place.rank == 0);
  CHECK(crossed.collectives.front().place.line == 5);
  const auto one = verified({call("all_reduce", 1, "")}, {call("all_reduce", 2, "")});
  CHECK(sentences(one) ==
        std::vector<std::string>{
            "collective 1 of ranks 0 and 1, in optimizer step 0: rank 0 calls all_reduce of 1 float32 "
            "element, and rank 1 all_reduce of 2 float32 elements."});
  CHECK(verified({reduce}, {call("all_reduce", 400, "train.py:9 in main")}).collectives.size() == 1);
  CHECK(verified({reduce}, {call("all_reduce", 500, "train.py:9 in main", R"(,"dtype2":1)")}).collectives.empty());
}

TEST_CASE("a collective that a rank leaves out is named, unless its record just ends") {
  const std::string reduce = call("all_reduce", 500, "train.py:9 in main");
  const auto missing = verified({reduce, reduce}, {reduce});
  CHECK(sentences(missing) ==
        std::vector<std::string>{"collective 2 of ranks 0 and 1, in optimizer step 0: rank 0 calls "
                                 "all_reduce of 500 float32 elements at train.py:9 in main, and rank 1 nothing."});
  CHECK(sentences(verified({reduce}, {reduce, reduce})) ==
        std::vector<std::string>{
            "collective 2 of ranks 0 and 1, in optimizer step 0: rank 1 calls all_reduce of 500 float32 elements at "
            "train.py:9 in main, and rank 0 nothing."});
  CHECK(verified({reduce, reduce}, {reduce}, false).collectives.empty());
  // Where a rank recorded none at all, they were left out of the capture.
  CHECK(verified({reduce}, {}).collectives.empty());
}

TEST_CASE("a collective is missed in a step after which the rank went on, though it died later") {
  const auto verified = [](const std::string& last) {
    const test::Folder folder;
    RunWriter writer(folder.path(), {});
    writer.parameter(0, "weight", 500);
    const std::vector<double> values = test::drawn(500, 1);
    for (int rank = 0; rank < 2; ++rank) {
      for (int step = 0; step < 3; ++step) {
        writer.contribution(rank, step, 0, 0, 0, values);
        for (int i = 0; i < (rank == 0 && step == 1 ? 2 : 1); ++i)
          writer.line(
              rank,
              R"({{"event":"collective","step":{},"op":"all_reduce","group":[0,1],"elements":{},"dtype":"float32"}})",
              step, 500 + step);
        writer.result(rank, step, 0, 0, values);
        writer.step(rank, step, 1);
      }
    }
    writer.finish();
    const auto file = folder / "rank-00001.jsonl";
    const std::string text = test::read_all(file);
    test::write_all(file, text.substr(0, text.find('\n', text.find(last)) + 1));
    VerifyOptions options;
    options.step = 1;
    return verify_run(folder.path(), options);
  };
  const VerifyResult went_on = verified(R"("event":"contribution","micro_batch":0,"step":2)");
  CHECK(sentences(went_on) ==
        std::vector<std::string>{"collective 3 of ranks 0 and 1, in optimizer step 1: rank 0 calls "
                                 "all_reduce of 501 float32 elements, and rank 1 nothing."});
  CHECK(went_on.gaps.empty());
  const VerifyResult just_ends = verified(R"("event":"step","step":1)");
  CHECK(just_ends.collectives.empty());
  CHECK(just_ends.verdict() == VerifiedPiece::Verdict::undecided);
}

TEST_CASE("collectives of optimizer steps that a rank did not capture are not missed") {
  const test::Folder folder;
  RunWriter writer(folder.path(), {});
  writer.parameter(0, "weight", 500);
  const std::vector<double> values = test::drawn(500, 1);
  for (int rank = 0; rank < 2; ++rank) {
    for (int step = 0; step < 2 - rank; ++step) {
      writer.contribution(rank, step, 0, 0, 0, values);
      writer.line(
          rank,
          R"({{"event":"collective","step":{},"op":"all_reduce","group":[0,1],"elements":500,"dtype":"float32"}})",
          step);
      writer.result(rank, step, 0, 0, values);
      writer.step(rank, step, 1);
    }
  }
  writer.finish();
  const VerifyResult result = verify_run(folder.path());
  CHECK(result.collectives.empty());
  CHECK(result.gaps == std::vector<std::string>{"rank 1 did not capture optimizer step 1, which others did."});
}

}  // namespace lockstep
