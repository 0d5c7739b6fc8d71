// SPDX-License-Identifier: Apache-2.0
#include "src/live/extraction.h"

#include "lockstep/diagnostic.h"
#include "lockstep/live.h"
#include "src/live/region_overlaps.h"
#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::live;

namespace {

const std::string right_extraction = R"({
  "lockstep_extract": 1,
  "world": 2,
  "mesh": {"axes": ["dp"], "sizes": [2]},
  "data_axes": ["dp"],
  "loss": "local_mean", // of each rank
  "programs": [
    {"ranks": [[0, 2]], "played": [0], "events": [
      {"event": "parameter", "id": 7, "name": "a", "shape": [4], "pieces": [{"range": [0, 4]}]},
      {"event": "contribution", "step": 0, "micro_batch": 0, "parameter": 7, "piece": 0, "source": 0},
      {"event": "collective", "step": 0, "op": "all_reduce", "group": {"axes": ["dp"]}, "elements": 4, "dtype": "float32", "reduce": "sum", "input": [[0, 4, [["1/2", 0, 0]]]], "output": {"source": 1, "elements": 4}},
      {"event": "weather"},
      {"event": "result", "step": 0, "parameter": 7, "piece": 0, "content": [[0, 4, [["1", 1, 0]]]]},
      {"event": "step", "step": 0, "micro_batches": 1, "tokens": [null]},
      {"event": "end"}
    ]}
  ]
})";

std::shared_ptr<const Source> extraction_source(const std::string& text) {
  return std::make_shared<const Source>(Source{"step.json", text});
}

/// What is said of a text that is not valid; "" where it is.
std::string extraction_refusal(const std::string& text) {
  try {
    read_extraction(extraction_source(text));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// The same of the right one with a replacement, whose place the message must point at: `at` is the text under the
/// caret.
std::string refusal_at(const std::string& from, const std::string& to, const std::string& at) {
  std::string text = right_extraction;
  const std::size_t place = text.find(from);
  REQUIRE(place != std::string::npos);
  text.replace(place, from.size(), to);
  try {
    read_extraction(extraction_source(text));
  } catch (const InputError& error) {
    const Diagnostic& first = error.diagnostics().front();
    CHECK(first.place.source->text.substr(first.place.begin, at.size()) == at);
    CHECK(first.place.source->text == text);
    return first.message;
  }
  return "";
}

}  // namespace

TEST_CASE("null is no operation") {
  std::string text = right_extraction;
  text.replace(text.find("\"op\": \"all_reduce\""), 18, "\"op\": null");
  const std::string said = extraction_refusal(text);
  CHECK(said.find("\"op\" of a \"collective\" event: expected a string, found null") != std::string::npos);
}

TEST_CASE("an extraction is read") {
  const Extraction extraction = read_extraction(extraction_source(right_extraction));
  CHECK(extraction.run.header.world == 2);
  CHECK(extraction.run.header.mesh_ranks == std::vector<int>{0, 1});
  CHECK(extraction.run.steps == std::vector<int>{0});
  CHECK(extraction.run.gaps.empty());
  CHECK(extraction.run.ranks.size() == 2);
  REQUIRE(extraction.details.size() == 1);
  CHECK(extraction.details[0].ranks == std::vector<int>{0, 1});
  CHECK(extraction.details[0].calls.at(0).line == 11);
  CHECK(extraction.details[0].results.at(0).line == 13);
  CHECK(extraction.details[0].contributions.at(0).line == 10);
  CHECK(extraction.programs.programs.at(0).order == std::vector<int>{0, ~0});
  CHECK(extraction.programs.members == std::vector<std::vector<int>>{{0, 1}});
}

TEST_CASE("a program names events that stand before all by their numbers") {
  const std::string yields =
      R"({"event": "contribution", "step": 0, "micro_batch": 0, "parameter": 7, "piece": 0, "source": 0})";
  const std::string ends = R"({"event": "end"})";
  const auto with = [&](const std::string& events, const std::string& first, const std::string& last) {
    std::string text = right_extraction;
    text.replace(text.find(yields), yields.size(), first);
    text.replace(text.find(ends), ends.size(), last);
    return text.insert(text.find("\"programs\""), "\"events\": " + events + ", ");
  };
  const std::string shared = with("[" + ends + ", " + yields + "]", "1", "0");
  const Extraction extraction = read_extraction(extraction_source(shared));
  CHECK(extraction.details.at(0).contributions.at(0).line == 7);  // where it stands
  CHECK(extraction.details.at(0).calls.at(0).line == 11);
  const VerifyResult whole = verify_extraction(extraction_source(right_extraction), {});
  const VerifyResult result = verify_extraction(extraction_source(shared), {});
  CHECK(result.count(VerifiedPiece::Verdict::right) == whole.count(VerifiedPiece::Verdict::right));
  CHECK(result.count(VerifiedPiece::Verdict::right) == result.pieces.size());

  const auto refusal = [&](const std::string& text, const std::string& at) {
    try {
      read_extraction(extraction_source(text));
    } catch (const InputError& error) {
      const Diagnostic& first = error.diagnostics().front();
      CHECK(first.place.source->text.substr(first.place.begin, at.size()) == at);
      return first.message;
    }
    return std::string();
  };
  CHECK(refusal(with("[" + yields + "]", "1", ends), "1,") ==
        "expected an event, or the number of one of the file's \"events\", of which there is 1, found the number 1");
  CHECK(refusal(with("[]", "-1", ends), "-1,") ==
        "expected an event, or the number of one of the file's \"events\", of which there are 0, found the number -1");
  CHECK(refusal(with("{}", yields, ends), "{}") == "\"events\": expected a list, found an object");
  std::string wrong = yields;
  wrong.replace(wrong.find("\"piece\": 0"), 10, "\"piece\": 8");
  CHECK(refusal(with("[" + wrong + "]", "0", ends), "8, \"source\"") == "piece 8 of \"a\", which has 1");
  // A result of a step that does not end is told where it stands, too.
  const std::string result_event =
      R"({"event": "result", "step": 0, "parameter": 7, "piece": 0, "content": [[0, 4, [["1", 1, 0]]]]})";
  std::string unended = with("[" + result_event + "]", yields, ends);
  unended.replace(unended.rfind(result_event), result_event.size(), "0");
  const std::string step = R"({"event": "step", "step": 0, "micro_batches": 1, "tokens": [null]},)";
  unended.replace(unended.find(step), step.size(), "");
  CHECK(refusal(unended, "[[0, 4, [[\"1\"") == "a result of optimizer step 0, which has no \"step\" event");
}

TEST_CASE("of many results about so many coefficients are kept as the options say") {
  std::string text = right_extraction;
  const auto replace = [&](const std::string& from, const std::string& to) {
    const std::size_t place = text.find(from);
    REQUIRE(place != std::string::npos);
    text.replace(place, from.size(), to);
  };
  replace("\"world\": 2", "\"world\": 8");
  replace("\"sizes\": [2]", "\"sizes\": [8]");
  replace("[[0, 2]]", "[[0, 8]]");
  replace("[[\"1\", 1, 0]]", "[[\"1\", 0, 0]]");  // each rank gets its own contribution
  const auto kept = [&](std::size_t most, bool of_right) {
    VerifyOptions options;
    options.most_coefficients = most;
    options.coefficients = of_right;
    const VerifyResult result = verify_extraction(extraction_source(text), options);
    CHECK(result.findings.size() == 1);
    CHECK(result.pieces.size() == 8);
    std::vector<std::size_t> counts;
    for (const VerifiedPiece& piece : result.pieces) {
      CHECK(piece.coefficients.size() + piece.left_out == 8);
      counts.push_back(piece.coefficients.size());
    }
    return counts;
  };
  CHECK(kept(1000, false) == std::vector<std::size_t>(8, 8));
  CHECK(kept(25, false) == std::vector<std::size_t>{8, 8, 8, 0, 0, 0, 0, 0});
  CHECK(kept(1, true) == std::vector<std::size_t>{8, 0, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("what is no extraction is not taken for one") {
  CHECK(is_extraction(right_extraction));
  CHECK(is_extraction("// first\n{ /* {\"a\" */ \"x\": [\"}\"], \"lockstep_extract\" : 1}"));
  CHECK(!is_extraction("{\"lockstep\": 1}"));
  CHECK(!is_extraction("{\"lockstep\": 1, \"name\": \"lockstep_extract\"}"));
  CHECK(!is_extraction("{\"lockstep\": {\"lockstep_extract\": 1}}"));
  CHECK(!is_extraction("[{\"lockstep_extract\": 1}]"));
  CHECK(!is_extraction("// \"lockstep_extract\": 1\n{}"));
  CHECK(!is_extraction("\"lockstep_extract\""));
}

TEST_CASE("mistakes in an extraction are told at their place in the file") {
  CHECK(refusal_at("\"lockstep_extract\": 1", "\"lockstep_extract\": 2", "2,") ==
        "it is of version 2 of the format; this program reads 1: a newer one is needed");
  CHECK(refusal_at("\"world\": 2", "\"world\": 3", "{\"axes\"") ==
        "the sizes of the mesh make 2 ranks, and \"world\" is 3");
  CHECK(refusal_at("\"world\": 2", "\"world\": \"x\"", "\"x\"") ==
        "\"world\" of a \"lockstep_extract\" file: expected a whole number from 1 to 1048576, found the string \"x\"");
  CHECK(refusal_at("\"local_mean\"", "\"local_maen\"", "\"local_maen\"") ==
        "unknown loss \"local_maen\"; did you mean \"local_mean\"?");
  CHECK(refusal_at("[[0, 2]]", "[[0, 3]]", "[0, 3]") ==
        "\"ranks\": expected [first, end) within 0 and 2, found an array");
  CHECK(refusal_at("[[0, 2]]", "[[0, 1]]", "[\n") == "no program is that of rank 1");
  CHECK(refusal_at("[[0, 2]]", "[[0, 2], [1, 2]]", "[1, 2]") == "rank 1 has a program already");
  CHECK(refusal_at("[[0, 2]]", "[[1, 2], [0, 1]]", "[0, 1]") ==
        "\"ranks\": expected intervals that ascend, found rank 0 after 1");
  CHECK(refusal_at("\"played\": [0]", "\"played\": []", "[]") ==
        "\"played\": expected some of the program's own ranks, each once");
  CHECK(refusal_at("\"world\": 2", "\"extended\": 3, \"world\": 2", "3,") ==
        "\"extended\": expected an object, found the number 3");
  const auto extended = [](const std::string& object) {
    return refusal_at("\"world\": 2", "\"extended\": " + object + ", \"world\": 2", object);
  };
  CHECK(extended(R"({ "even": ["dq"] })") ==
        "\"extended\" names \"dq\", which is no axis of the mesh; did you mean \"dp\"?");
  CHECK(extended(R"({ "complete": ["dp"] })") ==
        "\"extended\": expected an axis in \"even\", along which programs were told");
  CHECK(refusal_at("{\"event\": \"weather\"}", "{\"event\": 3}", "{\"event\": 3}") ==
        "expected an object with the key \"event\", found one without it");
  CHECK(refusal_at("\"id\": 7", "\"id\": -1", "-1") ==
        "\"id\" of a \"parameter\" event: expected a whole number from 0 to 4611686018427387903, found the number -1");
  CHECK(refusal_at("\"piece\": 0, \"source\"", "\"piece\": 1, \"source\"", "1, \"source\"") ==
        "piece 1 of \"a\", which has 1");
  CHECK(refusal_at("\"parameter\": 7, \"piece\": 0, \"source\"", "\"parameter\": 6, \"piece\": 0, \"source\"", "6") ==
        "parameter 6 was not declared by a \"parameter\" event before");
  CHECK(refusal_at("\"source\": 0}", "\"source\": 1}", "1}") == "expected source 0, the next one, found the number 1");
  CHECK(refusal_at("\"all_reduce\"", "\"all_redcue\"", "\"all_redcue\"") ==
        "unknown operation \"all_redcue\"; did you mean \"all_reduce\"?");
  CHECK(refusal_at("{\"axes\": [\"dp\"]}, \"elements\"", "{\"axes\": [\"pd\"]}, \"elements\"",
                   "{\"axes\": [\"pd\"]}") == "\"pd\" is no axis of the mesh; did you mean \"dp\"?");
  CHECK(refusal_at("{\"axes\": [\"dp\"]}, \"elements\"", "[0], \"elements\"", "[0]") ==
        "the group is called by ranks 0 and 1, which are not all in it");
  CHECK(refusal_at("{\"axes\": [\"dp\"]}, \"elements\"", "[1, 0, 1], \"elements\"", "[1, 0, 1]") ==
        "a rank stands in the group twice");
  CHECK(refusal_at("[[0, 4, [[\"1/2\"", "[[0, 5, [[\"1/2\"", "5") ==
        "how many elements: expected a whole number from 1 to 4, found the number 5");
  CHECK(refusal_at("[[\"1/2\", 0, 0]]", "[[\"1/0\", 0, 0]]", "\"1/0\"") ==
        "a coefficient: expected a fraction such as \"1/8\", found the string \"1/0\"");
  CHECK(refusal_at("[[\"1/2\", 0, 0]]", "[[\"1/2\", 1, 0]]", "1, 0") ==
        "expected a source that was defined before, found the number 1");
  CHECK(refusal_at("[[\"1/2\", 0, 0]]", "[[\"1/2\", 0, 1]]", "1]]") ==
        "an offset: expected a whole number from 0 to 0, found the number 1");
  CHECK(refusal_at("[[\"1/2\", 0, 0]]", "[[\"1/2\", 0]]", "[\"1/2\", 0]") ==
        "a term: expected [coefficient, source, offset], found an array");
  CHECK(refusal_at("[[0, 4, [[\"1\", 1, 0]]]]", "[[2, 2, []], [0, 2, []]]", "0, 2") ==
        "the first element: expected a whole number from 4 to 4, found the number 0");
  CHECK(refusal_at("[[0, 4, [[\"1\", 1, 0]]]]", "[[0, 4, \"\"]]", "\"\"") ==
        "expected why nobody knows it, found an empty string");
  CHECK(refusal_at("\"micro_batches\": 1", "\"micro_batches\": 0", "{\"event\": \"step\"") ==
        "the step has 0 micro-batches, and micro-batch 0 yielded a contribution");
  CHECK(refusal_at(",\n      {\"event\": \"end\"}", "", "[\n") ==
        "the program has no \"end\": what it does after its last event is not known");
  CHECK(refusal_at("{\"event\": \"step\", \"step\": 0, \"micro_batches\": 1, \"tokens\": [null]},", "",
                   "[[0, 4, [[\"1\"") == "a result of optimizer step 0, which has no \"step\" event");
  CHECK(refusal_at("{\"event\": \"weather\"}", "{\"event\": \"end\"}", "{\"event\": \"result\"") ==
        "an event after the \"end\" of the program");
  CHECK(refusal_at("{\"axes\": [\"dp\"], \"sizes\": [2]}", "{\"axes\": [\"dp\", \"dp\"], \"sizes\": [1, 2]}",
                   "{\"axes\"") == "the mesh has two axes \"dp\"");
  CHECK(refusal_at("{\"event\": \"end\"}", "{\"event\": \"end\", \"steps\": 2}", "2}") ==
        "\"steps\" is 2, and the program has 1 \"step\" event");
  CHECK(refusal_at("{\"event\": \"end\"}", "{\"event\": \"end\", \"steps\": 1}", "").empty());
  CHECK(refusal_at("\"reduce\": \"sum\"", "\"reduce\": \"premul_sum\"", "{\"event\": \"collective\"") ==
        "missing key \"factor\" in a \"collective\" event");
  CHECK(refusal_at("\"reduce\": \"sum\"", "\"reduce\": \"premul_sum\", \"factor\": \"1/2\"", "").empty());
  CHECK(refusal_at("\"contribution\", \"step\": 0", "\"contribution\", \"step\": 1", "{\"event\": \"step\"") ==
        "the \"step\" event of optimizer step 0 after a contribution to optimizer step 1");
}

TEST_CASE("roots, peers and splits that cannot be are refused") {
  const auto call = [](const std::string& keys) {
    return refusal_at("{\"event\": \"weather\"}", "{\"event\": \"collective\", \"step\": 0, " + keys + "}", "");
  };
  const std::string both = "\"group\": {\"axes\": [\"dp\"]}, \"elements\": 4, \"op\": ";
  CHECK(call(both + "\"broadcast\", \"root\": 1").empty());
  CHECK(call(both + "\"broadcast\", \"root\": {\"position\": 1}").empty());
  CHECK(call(both + "\"broadcast\", \"root\": {\"position\": 2}") ==
        "the root is not one member of all groups in which ranks 0 and 1 call it");
  CHECK(call(both + "\"broadcast\"") == "missing key \"root\" in a \"collective\" event");
  CHECK(call("\"group\": {\"axes\": []}, \"elements\": 4, \"op\": \"broadcast\", \"root\": 1") ==
        "the root is not one member of all groups in which ranks 0 and 1 call it");
  CHECK(call("\"elements\": 4, \"op\": \"send\", \"peer\": 1") == "rank 1 is the peer of itself");
  CHECK(call(both + "\"all_to_all\", \"input_splits\": [1, 1, 2]") ==
        "\"input_splits\" has 3 numbers, and there are 2 ranks");
  CHECK(call(both + "\"barrier\", \"elements\": 5").find("twice") != std::string::npos);
}

TEST_CASE("what is no JSON, or is cut off anywhere, is told and nothing else happens") {
  for (std::size_t length = 0; length < right_extraction.size(); ++length) {
    INFO("cut off after " << length);
    CHECK(!extraction_refusal(right_extraction.substr(0, length)).empty());
  }
  const std::string cut_off = extraction_refusal(right_extraction.substr(0, right_extraction.size() - 1));
  INFO(cut_off);
  CHECK(cut_off.starts_with("step.json:17:4: error: "));
  CHECK(extraction_refusal(
            "{\"lockstep_extract\": 1, \"world\": 1, \"mesh\": {\"axes\": [], \"sizes\": []}, \"programs\": [3]}")
            .find("expected a program, found the number 3") != std::string::npos);
}

TEST_CASE("regions have elements in common as their indices have") {
  Extraction extraction;
  RunParameter parameter;
  parameter.declared.shape = {3, 4, 2};
  extraction.run.parameters = {parameter};
  const std::vector<std::vector<Interval>> pieces = {{{0, 24}},
                                                     {{5, 17}},
                                                     {{0, 3}, {0, 4}, {0, 2}},
                                                     {{1, 3}, {1, 3}, {0, 2}},
                                                     {{0, 2}, {2, 4}, {1, 2}},
                                                     {{2, 3}, {0, 4}, {0, 2}}};
  const auto indices = [&](const std::vector<Interval>& piece) {
    std::vector<std::int64_t> all;
    if (piece.size() == 1) {
      for (std::int64_t i = piece[0].begin; i < piece[0].end; ++i) all.push_back(i);
      return all;
    }
    for (std::int64_t i = piece[0].begin; i < piece[0].end; ++i)
      for (std::int64_t j = piece[1].begin; j < piece[1].end; ++j)
        for (std::int64_t k = piece[2].begin; k < piece[2].end; ++k) all.push_back((i * 4 + j) * 2 + k);
    return all;
  };
  for (const auto& piece : pieces) {
    Region region;
    region.piece = piece;
    const std::vector<std::int64_t> all = indices(piece);
    region.elements = std::ssize(all);
    if (all.back() - all.front() + 1 == std::ssize(all)) region.begin = all.front();
    extraction.regions.push_back(region);
  }
  RegionOverlaps overlaps(extraction);
  for (std::size_t a = 0; a < pieces.size(); ++a) {
    for (std::size_t b = 0; b < pieces.size(); ++b) {
      const std::vector<std::int64_t> own = indices(pieces[a]), theirs = indices(pieces[b]);
      const std::vector<Overlap>* found = overlaps.of(static_cast<int>(a), static_cast<int>(b));
      REQUIRE(found != nullptr);
      std::size_t common = 0;
      for (const Overlap& one : *found) {
        for (std::int64_t i = one.elements.begin; i < one.elements.end; ++i, ++common)
          CHECK(own.at(static_cast<std::size_t>(i)) == theirs.at(static_cast<std::size_t>(i + one.move)));
      }
      std::size_t expected = 0;
      for (const std::int64_t index : own)
        expected += static_cast<std::size_t>(std::count(theirs.begin(), theirs.end(), index));
      CHECK(common == expected);
    }
  }
  CHECK(overlaps.distance(1, 2, 0, 3) == 3 - 7);
  CHECK(overlaps.distance(3, 0, 4, 1) == 7 - 10);
  CHECK(overlaps.distance(4, 3, 3, 5) == 19 - 15);
  const auto covered = overlaps.covered({0, 4, 12}, {{1, 0, 3}, {1, 6, 6}, {3, 0, 2}});
  CHECK(covered.compared);
  CHECK(covered.elements == Intervals{{5, 8}, {10, 16}});
  extraction.run.parameters[0].declared.shape = {1 << 24, 2};
  extraction.regions = {{0, {{0, 1 << 24}, {0, 1}}, 1 << 24, {}}, {0, {{0, 1 << 25}}, 1 << 25, 0}};
  CHECK(RegionOverlaps(extraction).of(0, 1) == nullptr);
}

TEST_CASE("what is no sum of gradients is wrong, and so is what a gap says is") {
  const auto verified = [](const std::string& from, const std::string& to) {
    std::string text = right_extraction;
    text.replace(text.find(from), from.size(), to);
    return verify_extraction(extraction_source(text), {});
  };
  const std::string result = "[[0, 4, [[\"1\", 1, 0]]]]", step = "{\"event\": \"step\"";
  VerifyResult found = verified(result, "[[0, 4, {\"never\": \"memory that nobody has written\"}]]");
  CHECK(found.verdict() == VerifiedPiece::Verdict::wrong);
  CHECK(found.findings.at(0).what == "what the optimizer gets is no sum of gradients: memory that nobody has written");
  CHECK(found.findings.at(0).kind == Mistake::leftover);
  found = verified(result, "[[0, 4, {\"in_flight\": \"nobody has waited\"}]]");
  CHECK(found.findings.at(0).kind == Mistake::race);
  found = verified(result, "[[0, 4, \"nobody knows\"]]");
  CHECK(found.verdict() == VerifiedPiece::Verdict::undecided);
  const std::string gap = R"({"event": "gap", "step": 0, "why": "no backward pass", "wrong": )";
  found = verified(step, gap + "true}, " + step);
  CHECK(found.verdict() == VerifiedPiece::Verdict::wrong);
  CHECK(found.findings.at(0).what == "no backward pass");
  CHECK(found.gaps.empty());
  CHECK(verified(step, gap + "false}, " + step).verdict() == VerifiedPiece::Verdict::undecided);
  CHECK(refusal_at(result, "[[0, 4, {\"nevr\": \"x\"}]]", "{\"nevr\"") ==
        "expected why it is no sum: {\"never\": why} or {\"in_flight\": why}");
}

TEST_CASE("what is wrong with one rank says nothing of what others get of other elements") {
  // Rank 0 has yielded no gradient. Each rank has so many elements of a parameter.
  const auto judged = [](const std::string& axis, const std::string& first, const std::string& second,
                         const std::string& yielded, const std::string& gap) {
    const auto program = [](int rank, const std::string& name, const std::string& piece, const std::string& events) {
      return R"({"ranks": [[)" + std::to_string(rank) + ", " + std::to_string(rank + 1) + R"(]], "played": [)" +
             std::to_string(rank) + R"(], "events": [{"event": "parameter", "id": 7, "name": ")" + name +
             R"(", "shape": [4], "pieces": [{"range": )" + piece + "}]}, " + events +
             R"({"event": "step", "step": 0, "micro_batches": 1, "tokens": [null]}, {"event": "end"}]})";
    };
    const auto contribution = [](const std::string& range) {
      return R"({"event": "contribution", "step": 0, "micro_batch": 0, "parameter": 7, "range": )" + range +
             R"(, "source": 0}, )";
    };
    const std::string result = R"({"event": "result", "step": 0, "parameter": 7, "piece": 0, "content": )";
    const std::string name = second == "[0, 4]" ? "b" : "a";
    return verify_extraction(
        extraction_source(
            R"({"lockstep_extract": 1, "world": 2, "mesh": {"axes": [")" + axis +
            R"("], "sizes": [2]}, "data_axes": [], "loss": "local_mean", "programs": [)" +
            program(0, "a", first,
                    (yielded.empty() ? "" : contribution(yielded)) + result + "null}, " +
                        R"({"event": "gap", "step": 0, "why": "nothing was yielded", "wrong": true)" + gap + "}, ") +
            ", " +
            program(1, name, second,
                    contribution(second) + result + (name == "b" ? "[[0, 4," : "[[0, 2,") + R"( [["1", 0, 0]]]]}, )") +
            "]}"),
        {});
  };
  const auto said = [](const VerifyResult& found) {
    std::vector<std::string> all;
    for (const VerifiedPiece& one : found.pieces) {
      std::string text = one.verdict == VerifiedPiece::Verdict::right ? "right" : "wrong";
      for (const int rank : one.ranks) text += " " + std::to_string(rank);
      all.push_back(text);
    }
    return all;
  };
  // Another parameter, whether the gap names this one or none, and other elements of the same.
  CHECK(said(judged("pp", "[0, 4]", "[0, 4]", "", "")) == std::vector<std::string>{"wrong 0", "right 1"});
  CHECK(said(judged("pp", "[0, 4]", "[0, 4]", "", R"(, "parameters": [7])")) ==
        std::vector<std::string>{"wrong 0", "right 1"});
  CHECK(said(judged("tp", "[0, 2]", "[2, 4]", "", "")) == std::vector<std::string>{"wrong 0", "right 1"});
  // Elements that the rank has as well, or to which it contributes, are not right.
  CHECK(said(judged("tp", "[1, 3]", "[2, 4]", "", "")) == std::vector<std::string>{"wrong 0"});
  CHECK(said(judged("tp", "[0, 2]", "[2, 4]", "[0, 2]", "")) == std::vector<std::string>{"wrong 0", "right 1"});
  CHECK(said(judged("tp", "[0, 2]", "[2, 4]", "[0, 4]", "")) == std::vector<std::string>{"wrong 0"});
}
