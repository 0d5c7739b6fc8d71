// SPDX-License-Identifier: Apache-2.0
#include "lockstep/diagnostic.h"
#include "lockstep/extraction_comparison.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

using CodeVerdict = ExtractionComparison::Verdict;

const std::string code_head = R"({
  "lockstep_extract": 1, "world": 2, "mesh": {"axes": ["dp"], "sizes": [2]}, "data_axes": ["dp"], "loss": "local_mean",
  "programs": [)";

const std::string begin_of_program =
    R"({"event": "parameter", "id": 0, "name": "a", "shape": [4], "pieces": [{"range": [0, 4]}]},
    {"event": "contribution", "step": 0, "micro_batch": 0, "parameter": 0, "piece": 0, "source": 0},)";
const std::string end_of_program =
    R"({"event": "step", "step": 0, "micro_batches": 1, "tokens": [null]}, {"event": "end"})";

std::string program_of(const std::string& ranks, const std::string& events) {
  return R"({"ranks": )" + ranks + R"(, "played": )" + (ranks == "[[1, 2]]" ? "[1]" : "[0]") + R"(, "events": [)" +
         begin_of_program + events + end_of_program + "]}";
}

std::string all_reduced(const std::string& factor, const std::string& line, const std::string& after = "1") {
  return R"({"event": "collective", "step": 0, "op": "all_reduce", "group": {"axes": ["dp"]}, "elements": 4,
      "dtype": "float32", "reduce": "sum", "input": [[0, 4, [[")" +
         factor + R"(", 0, 0]]]],
      "output": {"source": 1, "elements": 4}, "call": "train.py:)" +
         line + R"( in main"},
    {"event": "result", "step": 0, "parameter": 0, "piece": 0, "content": [[0, 4, [[")" +
         after + R"(", 1, 0]]]]},)";
}

/// Each rank owns two elements.
std::string scattered(int rank, const std::string& factor = "1/2") {
  const std::string first = std::to_string(2 * rank), end = std::to_string(2 * rank + 2);
  return program_of(
      "[[" + std::to_string(rank) + ", " + std::to_string(rank + 1) + "]]",
      R"({"event": "collective", "step": 0, "op": "reduce_scatter", "group": {"axes": ["dp"]}, "elements": 4,
      "dtype": "float32", "reduce": "sum", "input": [[0, 4, [[")" +
          factor + R"(", 0, 0]]]],
      "output": {"source": 1, "elements": 2}, "call": "shard.py:5 in reduce"},
    {"event": "result", "step": 0, "parameter": 0, "range": [)" +
          first + ", " + end + R"(], "content": [[0, 2, [["1", 1, 0]]]]},
    {"event": "collective", "step": 0, "op": "all_gather", "group": {"axes": ["dp"]}, "elements": 2, "dtype": "float32",
      "parameters": [0]},)");
}

std::string replicated(const std::string& factor, const std::string& line = "9", const std::string& after = "1") {
  return code_head + program_of("[[0, 2]]", all_reduced(factor, line, after)) + "]}";
}

ExtractionComparison compared(const std::string& before, const std::string& after) {
  const auto source = [](const char* name, const std::string& text) {
    return std::make_shared<const Source>(Source{name, text});
  };
  return compare_extractions(source("old.json", before), source("new.json", after));
}

}  // namespace

TEST_CASE("code that moved and divides elsewhere hands out the same gradients") {
  const ExtractionComparison result = compared(replicated("1/2", "9"), replicated("1", "200", "1/2"));
  CHECK(result.verdict() == CodeVerdict::same);
  CHECK(result.elements == 8);
  REQUIRE(result.calls.size() == 1);  // whatever the line
  CHECK(result.calls.front().call == "train.py in main");
  CHECK_FALSE(result.calls.front().changed());
  CHECK(result.calls.front().calls_after == 2);
  CHECK(result.calls.front().elements_after == 8);
}

TEST_CASE("code that divides once more hands out other gradients, with both formulas") {
  const ExtractionComparison result = compared(replicated("1/2"), replicated("1/4"));
  CHECK(result.verdict() == CodeVerdict::other);
  REQUIRE(result.gradients.size() == 1);
  const GradientDifference& one = result.gradients.front();
  CHECK(one.parameter == "a");
  CHECK(one.before == "(g0+g1)/2");
  CHECK(one.after == "(g0+g1)/4");
  REQUIRE(one.where.size() == 1);
  CHECK(one.where.front().elements == Interval{0, 4});
  CHECK(one.where.front().ranks == std::vector<int>{0, 1});
  CHECK(one.where.front().new_ranks.empty());
}

TEST_CASE("a sharded optimizer gets what a replicated one got, element by element") {
  const std::string sharded = code_head + scattered(0) + ", " + scattered(1) + "]}";
  const ExtractionComparison result = compared(replicated("1/2"), sharded);
  CHECK(result.verdict() == CodeVerdict::same);
  CHECK(result.ownership == std::vector<std::pair<std::string, int>>{{"a", 2}});
  REQUIRE(result.calls.size() == 3);
  CHECK(result.calls[0].calls_after == 0);
  CHECK(result.calls[1].calls_before == 0);

  const std::string half = code_head + scattered(0) + ", " + scattered(1, "1/3") + "]}";
  // Rank 1 puts in a third: of elements of both owners.
  const ExtractionComparison other = compared(sharded, half);
  CHECK(other.verdict() == CodeVerdict::other);
  REQUIRE(other.gradients.size() == 1);
  CHECK(other.gradients.front().after == "g0/2 + g1/3");
  REQUIRE(other.gradients.front().where.size() == 2);
  CHECK(other.gradients.front().where[1].elements == Interval{2, 4});
  CHECK(other.gradients.front().where[1].ranks == std::vector<int>{1});
}

TEST_CASE("elements that no optimizer gets any more are a difference") {
  const std::string whole = code_head + scattered(0) + ", " + scattered(1) + "]}";
  std::string one = scattered(1);
  one.replace(one.find(R"({"event": "result")"), one.find(R"({"event": "step")") - one.find(R"({"event": "result")"),
              "");
  const ExtractionComparison result = compared(whole, code_head + scattered(0) + ", " + one + "]}");
  CHECK(result.verdict() == CodeVerdict::other);
  REQUIRE(result.gradients.size() == 1);
  CHECK(result.gradients.front().where.front().elements == Interval{2, 4});
  CHECK(result.gradients.front().after == "nothing: no optimizer gets it");
}

TEST_CASE("what is not known of either is not called the same") {
  std::string unknown = replicated("1/2");
  const std::string known = R"([[0, 4, [["1", 1, 0]]]]})";
  unknown.replace(unknown.find(known), known.size(),
                  R"([[0, 2, [["1", 1, 0]]], [2, 2, "a branch at train.py:7 in main"]]})");
  for (const auto& [before, after] : {std::pair(unknown, replicated("1/2")), std::pair(replicated("1/2"), unknown)}) {
    const ExtractionComparison result = compared(before, after);
    CHECK(result.verdict() == CodeVerdict::undecided);
    REQUIRE(result.undecided.size() == 1);
    CHECK(result.undecided.front().elements == "[2, 4)");
    CHECK(result.undecided.front().why == "a branch at train.py:7 in main");
  }
  CHECK(compared(unknown, replicated("1/4")).verdict() == CodeVerdict::other);  // in the others it is
}

TEST_CASE("extractions of other meshes are not compared") {
  std::string other = replicated("1/2");
  other.replace(other.find("\"dp\"], \"sizes\""), 4, "\"cp\"");
  for (std::size_t at = other.find("[\"dp\"]"); at != std::string::npos; at = other.find("[\"dp\"]"))
    other.replace(at, 6, "[\"cp\"]");
  const ExtractionComparison result = compared(replicated("1/2"), other);
  REQUIRE_FALSE(result.apart.empty());
  CHECK(result.apart.front() == "The old one is of dp 2 = 2 ranks, the new one of cp 2 = 2 ranks.");
  CHECK(result.verdict() == CodeVerdict::undecided);
}

TEST_CASE("a parameter of one side alone, or of another shape, is said") {
  std::string renamed = replicated("1/2");
  renamed.replace(renamed.find("\"name\": \"a\""), 11, "\"name\": \"b\"");
  const ExtractionComparison result = compared(replicated("1/2"), renamed);
  CHECK(result.only_before == std::vector<std::string>{"a"});
  CHECK(result.only_after == std::vector<std::string>{"b"});
  CHECK(result.verdict() == CodeVerdict::other);
  std::string reshaped = replicated("1/2");
  reshaped.replace(reshaped.find("\"shape\": [4]"), 12, "\"shape\": [2, 2]");
  CHECK(compared(replicated("1/2"), reshaped).verdict() == CodeVerdict::undecided);
}

TEST_CASE("ranks whose weights nobody brings up to date in one alone are no match, and in both are said") {
  std::string gathered = code_head + scattered(0) + ", " + scattered(1) + "]}", left = gathered;
  for (std::size_t at = left.find("all_gather"); at != std::string::npos; at = left.find("all_gather"))
    left.replace(at, 10, "all_reduce");
  const ExtractionComparison result = compared(gathered, left);
  CHECK(result.gradients.empty());
  CHECK(result.verdict() == CodeVerdict::undecided);
  const ExtractionComparison both = compared(left, left);
  CHECK(both.verdict() == CodeVerdict::same);
  REQUIRE(both.notes.size() == 1);
  CHECK(both.notes.front().starts_with("In both the optimizer of ranks 0 and 1 gets only a part of a"));
}

TEST_CASE("squares in a gradient are not compared, and of norms it is said that they are not") {
  const std::string square = R"({"event": "square", "step": 0, "parameter": 0, "source": 2},)";
  const std::string norm =
      R"({"event": "norm", "step": 0, "parameters": [0], "content": [[0, 1, [["1", 2, 0]]]], "call": "train.py:12 in main"},)";
  const auto with = [](std::string text, const std::string& event) {
    return text.insert(text.find(R"({"event": "step")"), event);
  };
  const ExtractionComparison norms = compared(replicated("1/2"), with(replicated("1/2"), square + norm));
  CHECK(norms.verdict() == CodeVerdict::same);
  REQUIRE(norms.notes.size() == 1);
  CHECK(norms.notes.front() ==
        "The norms by which gradients are clipped are not compared; `lockstep check` of each file judges them.");

  std::string added = replicated("1/2");
  const std::string result = R"({"event": "result")", known = R"([[0, 4, [["1", 1, 0]]]]})";
  added.insert(added.find(result), square);
  added.replace(added.find(known), known.size(), R"([[0, 1, [["1", 1, 0], ["1", 2, 0]]], [1, 3, [["1", 1, 1]]]]})");
  const ExtractionComparison other = compared(replicated("1/2"), added);
  CHECK(other.gradients.empty());
  REQUIRE(other.undecided.size() == 1);
  CHECK(other.undecided.front().why == "sums of squares are added to gradients");
}

TEST_CASE("calls of one alone that do not meet are a difference") {
  std::string hangs =
      code_head +
      program_of("[[0, 1]]", all_reduced("1/2", "9") + R"({"event": "collective", "step": 0, "op": "barrier",
      "elements": 0, "group": {"axes": ["dp"]}, "call": "train.py:20 in main"},)") +
      ", " + program_of("[[1, 2]]", all_reduced("1/2", "9")) + "]}";
  const ExtractionComparison result = compared(replicated("1/2"), hangs);
  CHECK(result.gradients.empty());
  CHECK(result.unmet_before.empty());
  REQUIRE(result.unmet_after.size() == 1);
  CHECK(result.verdict() == CodeVerdict::other);
  CHECK(compared(hangs, hangs).verdict() == CodeVerdict::undecided);
}

TEST_CASE("one contribution of a micro-batch or several are the same") {
  const std::string
      one = R"("source": 0},)",
      another = R"({"event": "contribution", "step": 0, "micro_batch": 0, "parameter": 0, "piece": 0, "source": 1},)";
  const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  std::string several = replaced(replicated("1/2"), one, one + another);
  several = replaced(several, R"(["1/2", 0, 0])", R"(["1/2", 0, 0], ["1/2", 1, 0])");
  several = replaced(several, R"("output": {"source": 1)", R"("output": {"source": 2)");
  several = replaced(several, R"([["1", 1, 0]])", R"([["1", 2, 0]])");
  CHECK(compared(replicated("1/2"), several).verdict() == CodeVerdict::same);
  std::string uneven = several;
  uneven.replace(uneven.find(R"(["1/2", 1, 0])"), 13, R"(["1/3", 1, 0])");
  const ExtractionComparison result = compared(several, uneven);
  CHECK(result.verdict() == CodeVerdict::other);
  CHECK(result.gradients.front().before != result.gradients.front().after);
}

TEST_CASE("where nothing is read nothing is the same") {
  std::string waits = replicated("1/2");
  waits.erase(waits.find(R"({"event": "result")"),
              waits.find(R"({"event": "step")") - waits.find(R"({"event": "result")"));
  waits.replace(waits.find(R"("tokens": [null]})"), 17, R"("tokens": [null], "waiting": [0]})");
  CHECK(compared(waits, waits).verdict() == CodeVerdict::undecided);
}

TEST_CASE("a function that calls in groups of another size is another call") {
  std::string alone = replicated("1/2");
  const std::string over = R"("group": {"axes": ["dp"]})";
  alone.replace(alone.find(over), over.size(), R"("group": {"axes": []})");
  const ExtractionComparison result = compared(replicated("1/2"), alone);
  REQUIRE(result.calls.size() == 2);
  CHECK(result.calls[0].group == 2);
  CHECK(result.calls[0].calls_after == 0);
  CHECK(result.calls[1].group == 1);
  CHECK(result.calls[1].calls_after == 2);
}

TEST_CASE("of many stretches the first are listed, and how many elements there are beyond") {
  const auto striped = [](const std::string& factor) {
    std::string text = replicated("1/2");
    const auto replace = [&](const std::string& from, const std::string& to) {
      for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
    };
    replace("[0, 4]", "[0, 400]");
    replace("[4]", "[400]");
    replace("\"elements\": 4", "\"elements\": 400");
    replace("[[0, 4, [[\"1/2\"", "[[0, 400, [[\"1/2\"");
    std::string content;
    for (int i = 0; i < 400; ++i)
      content += (i == 0 ? "[" : ", [") + std::to_string(i) + ", 1, [[\"" + (i % 4 == 0 ? factor : "1") + "\", 1, " +
                 std::to_string(i) + "]]]";
    replace("[[0, 4, [[\"1\", 1, 0]]]]", "[" + content + "]");
    return text;
  };
  const ExtractionComparison result = compared(striped("1"), striped("1/3"));
  REQUIRE(result.gradients.size() == 1);
  CHECK(result.gradients.front().where.size() == 64);
  CHECK(result.gradients.front().more == 36);
}

TEST_CASE("the sum of other elements is another sum") {
  const auto of_three = [](const std::string& first) {
    std::string text = replicated("1/2");
    const std::string known = R"([[0, 4, [["1", 1, 0]]]]})";
    return text.replace(text.find(known), known.size(),
                        "[[0, 3, [[\"1\", 1, " + first + "]]], [3, 1, [[\"1\", 1, 3]]]]}");
  };
  CHECK(compared(of_three("0"), replicated("1/2")).verdict() == CodeVerdict::same);
  const ExtractionComparison result = compared(of_three("0"), of_three("1"));
  CHECK(result.verdict() == CodeVerdict::other);
  REQUIRE(result.gradients.size() == 1);
  CHECK(result.gradients.front().where.front().elements == Interval{0, 3});
  CHECK(result.gradients.front().before != result.gradients.front().after);
}
