// SPDX-License-Identifier: Apache-2.0
#include "lockstep/flight_recorder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/catch.h"

namespace lockstep {
namespace {

using PieceVerdict = VerifiedPiece::Verdict;

/// An entry of a dump, with what else it holds.
std::string entry(int record, int number, const std::string& op = "all_reduce", const std::string& state = "completed",
                  const std::string& group = "0", const std::string& types = R"("Float")") {
  return fmt::format(
      R"({{"record_id":{},"process_group":["{}","group {}"],"collective_seq_id":{},"profiling_name":"nccl:{}",)"
      R"("input_sizes":[[5]],"input_dtypes":[{}],"state":"{}","is_p2p":false}})",
      record, group, group, number, op, types, state);
}

/// A dump of each of the ranks, whose groups are 0 of them all and 1 of ranks 0 and 1.
FlightResult result_of(const std::vector<std::vector<std::string>>& ranks) {
  std::vector<std::string> all, files;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    all.push_back(fmt::format("{}", rank));
    files.push_back(fmt::format("trace_{}.json", rank));
  }
  return read_flight_recorder(files, [&](const std::string& file) {
    const auto rank = static_cast<std::size_t>(std::find(files.begin(), files.end(), file) - files.begin());
    return std::make_shared<const Source>(Source{
        file,
        fmt::format(
            R"({{"version":"2.10","pg_config":{{"0":{{"ranks":"[{}]"}},"1":{{"ranks":"[0, 1]"}}}},"entries":[{}]}})",
            fmt::join(all, ", "), fmt::join(ranks[rank], ","))});
  });
}

using Sentences = std::vector<std::string>;

}  // namespace

TEST_CASE("a call that is over on one rank was made by all only where it waits for all") {
  for (const std::string op : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"}) {
    const FlightResult early = result_of({{entry(0, 1), entry(1, 2, op)}, {entry(0, 1)}});
    CHECK(early.collectives.empty());
    CHECK(early.gaps == Sentences{"the dump of rank 1 was written before others: collectives of ranks 0 and 1 (group "
                                  "0) that it lacks are over elsewhere."});
    CHECK(early.verdict() == PieceVerdict::undecided);
  }
  for (const std::string op : {"broadcast", "reduce", "gather", "scatter"}) {
    const FlightResult alone = result_of({{entry(0, 1), entry(1, 2, op)}, {entry(0, 1)}});
    CHECK(alone.collectives == Sentences{fmt::format("collective 2 of ranks 0 and 1 (group 0): rank 0 calls {} of 5 "
                                                     "float32 elements, and rank 1 nothing.",
                                                     op)});
    CHECK(alone.gaps.empty());
    // One that comes later tells it.
    const FlightResult early = result_of({{entry(0, 1), entry(1, 2, op), entry(2, 3)}, {entry(0, 1)}});
    CHECK(early.collectives.empty());
    CHECK(early.verdict() == PieceVerdict::undecided);
  }
}

TEST_CASE("a group in which nobody called anything stands with its ranks") {
  const FlightResult result = result_of({{entry(0, 1)}, {entry(0, 1)}, {entry(0, 1)}});
  CHECK(result.verdict() == PieceVerdict::right);
  REQUIRE(result.groups.size() == 2);
  CHECK(result.groups[1].name == "1");
  CHECK(result.groups[1].ranks == std::vector<int>{0, 1});
  CHECK(result.groups[1].members_known);
  CHECK(result.groups[1].last == 0);
}

TEST_CASE("a dump that one group shows to be early is early for all groups") {
  const std::string pair = entry(2, 1, "broadcast", "completed", "1");
  const FlightResult early = result_of({{entry(0, 1), entry(1, 2), pair}, {entry(0, 1)}});
  CHECK(early.collectives.empty());
  CHECK(early.verdict() == PieceVerdict::undecided);
  CHECK(result_of({{entry(0, 1), entry(1, 2), pair}, {entry(0, 1), entry(1, 2)}}).collectives.size() == 1);
}

TEST_CASE("a member whose dump lost its start and has no call of a group is told") {
  const auto call = [](int record) { return entry(record, record + 1); };
  const auto pair = entry(3, 1, "all_reduce", "completed", "1");
  const FlightResult lost =
      result_of({{call(3), call(4), entry(5, 1, "all_reduce", "completed", "1")}, {call(3), call(4)}});
  CHECK(lost.gaps ==
        Sentences{"the dump of rank 1 begins too late to tell what it called in ranks 0 and 1 (group 1): a "
                  "larger TORCH_FR_BUFFER_SIZE keeps it."});
  CHECK(lost.verdict() == PieceVerdict::undecided);
  // A dump that is whole tells that the rank called nothing.
  const FlightResult none = result_of({{call(0), call(1), call(2), pair}, {call(0), call(1), call(2)}});
  CHECK(none.gaps == Sentences{"the dump of rank 1 was written before others: collectives of ranks 0 and 1 (group 1) "
                               "that it lacks are over elsewhere."});
}

TEST_CASE("calls that are numbered from 0 are compared") {
  const FlightResult right = result_of({{entry(0, 0), entry(1, 1)}, {entry(0, 0), entry(1, 1)}});
  CHECK(right.verdict() == PieceVerdict::right);
  CHECK(right.groups.front().first == 0);
  const Sentences wrong = {
      "collective 0 of ranks 0 and 1 (group 0): rank 0 calls all_reduce of 5 float32 elements, and rank 1 broadcast of "
      "5 float32 elements."};
  CHECK(result_of({{entry(0, 0)}, {entry(0, 0, "broadcast")}}).collectives == wrong);
  CHECK(result_of({{entry(0, 0), entry(1, 1)}, {entry(0, 0, "broadcast"), entry(1, 1)}}).collectives == wrong);
}

TEST_CASE("calls with different numbers do not meet") {
  const FlightResult skipped =
      result_of({{entry(0, 1), entry(1, 2), entry(2, 3)}, {entry(0, 1), entry(1, 3), entry(2, 4)}});
  CHECK(skipped.collectives ==
        Sentences{"collective 2 of ranks 0 and 1 (group 0): rank 0 calls all_reduce of 5 float32 elements, and rank 1 "
                  "all_reduce of 5 float32 elements as collective 3."});
}

TEST_CASE("a call of a rank that is not in the group is a mistake of the file") {
  const std::string call = entry(0, 1), foreign = entry(1, 1, "all_reduce", "completed", "1");
  CHECK_THROWS_WITH(result_of({{call}, {call}, {call, foreign, foreign}}),
                    Catch::Contains("the dump of rank 2 has a call of a process group that is of ranks 0 and 1: is the "
                                    "dump rank 2's?"));
  CHECK(result_of({{call, foreign}, {call, foreign}, {call}}).verdict() == PieceVerdict::right);
}

TEST_CASE("of a call with many types the first are named") {
  std::string types = R"("Float")";
  for (int i = 0; i < 50000; ++i) types += fmt::format(R"(,"Type{}")", i);
  const std::string many = entry(0, 1, "all_reduce", "completed", "0", types);
  CHECK(result_of({{many}, {many}}).verdict() == PieceVerdict::right);
  const std::string more = entry(0, 1, "all_reduce", "completed", "0", types + R"(,"Float","Half")");
  CHECK(result_of({{many}, {more}}).collectives ==
        Sentences{"collective 1 of ranks 0 and 1 (group 0): rank 0 calls all_reduce of 5 "
                  "float32+Type0+Type1+Type2+Type3+Type4+Type5+Type6+Type7+Type… elements, and rank 1 all_reduce of 5 "
                  "float32+Type0+Type1+Type2+Type3+Type4+Type5+Type6+Type7+Type… elements."});
}

}  // namespace lockstep
