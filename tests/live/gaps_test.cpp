// SPDX-License-Identifier: Apache-2.0
// What a capture says that it does not know is never judged.
#include <algorithm>
#include <array>

#include "lockstep/diagnostic.h"
#include "lockstep/live.h"
#include "tests/catch.h"
#include "tests/live/run_writer.h"

using namespace lockstep;
using test::Folder;
using test::read_all;
using test::write_all;
using PieceVerdict = VerifiedPiece::Verdict;

namespace {

/// Two ranks and three optimizer steps of two parameters; "b" comes with `of_b` in the place of 1/2 in step 1.
void write_run(const std::string& folder, double of_b = 0.5) {
  test::SimpleRun run;
  run.settings.sums = 64;
  run.steps = 3;
  run.parameters = {{"a", 300}, {"b", 200}};
  run.coefficient = [&](const std::string& name, int, int, int step, int) {
    return step != 0 ? 0 : name == "b" ? of_b : 0.5;
  };
  run.write(folder);
}

/// Puts a line before the last one of a rank's file.
void add(const Folder& folder, int rank, const std::string& line) {
  const std::string name = fmt::format("rank-{:05}.jsonl", rank);
  std::string text = read_all(folder / name);
  write_all(folder / name, text.insert(text.rfind("{\"event\":\"end\""), line + "\n"));
}

void change(const Folder& folder, int rank, const std::string& from, const std::string& to) {
  const std::string name = fmt::format("rank-{:05}.jsonl", rank);
  std::string text = read_all(folder / name);
  const std::size_t place = text.find(from);
  REQUIRE(place != std::string::npos);
  write_all(folder / name, text.replace(place, from.size(), to));
}

std::string refusal(const Folder& folder) {
  try {
    verify_run(folder.path());
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("results of which the capture says that it does not know are undecided, and no others") {
  const Folder folder;
  write_run(folder.path(), 1);
  CHECK(verify_run(folder.path()).verdict() == PieceVerdict::wrong);
  add(folder, 1, R"({"event":"gap","step":1,"parameters":[1],"why":"somebody is late"})");
  add(folder, 1, R"({"event":"gap","step":2,"parameters":[1],"why":"somebody is late"})");
  VerifyResult result = verify_run(folder.path());
  CHECK(result.verdict() == PieceVerdict::wrong);  // step 0 is what it was
  CHECK(result.count(PieceVerdict::wrong) == 1);
  CHECK(result.count(PieceVerdict::undecided) == 2);
  CHECK(result.count(PieceVerdict::right) == 3);
  REQUIRE(result.gaps.size() == 1);
  CHECK(result.gaps[0] ==
        "on rank 1, in optimizer steps 1 and 2, somebody is late: what the optimizers get of b is not judged.");
  for (const VerifiedPiece& piece : result.pieces) {
    if (piece.verdict == PieceVerdict::undecided)
      CHECK((piece.parameter == 1 && piece.step > 0 && piece.formula.empty()));
  }
  VerifyOptions first;
  first.step = 0;
  CHECK(verify_run(folder.path(), first).gaps.empty());
  VerifyOptions other;
  other.parameters = Selectors({"a"});
  CHECK(verify_run(folder.path(), other).verdict() == PieceVerdict::right);
}

TEST_CASE("a gap may be in all parameters, in all steps, or in no parameter that was recorded") {
  const Folder folder;
  write_run(folder.path());
  add(folder, 0, R"({"event":"gap","step":null,"parameters":[],"why":"another thread trains"})");
  VerifyResult result = verify_run(folder.path());
  CHECK(result.verdict() == PieceVerdict::undecided);
  CHECK(result.count(PieceVerdict::right) == 6);
  CHECK(result.gaps == std::vector<std::string>{"on rank 0, another thread trains."});
  add(folder, 0, R"({"event":"gap","step":1,"why":"it is dark"})");
  add(folder, 1, R"({"event":"gap","step":1,"why":"it is dark"})");
  result = verify_run(folder.path());
  CHECK(result.count(PieceVerdict::undecided) == 2);
  REQUIRE(result.gaps.size() == 2);
  CHECK(result.gaps[1] == "in optimizer step 1, it is dark: what the optimizers get is not judged.");
  add(folder, 1, R"({"event":"gap","step":null,"why":"it is night"})");
  CHECK(verify_run(folder.path()).count(PieceVerdict::undecided) == 6);
  CHECK(contains(
      [&] {
        try {
          record_run(folder.path());
        } catch (const InputError& error) {
          return std::string(error.what());
        }
        return std::string();
      }(),
      "no schedule is recorded of a run that is not complete"));
}

TEST_CASE("contributions and results of a gap are not compared with a reference") {
  const Folder folder, one;
  write_run(folder.path());
  test::SimpleRun alone;
  alone.settings.sums = 64;
  alone.settings.mesh = {{"dp", 1}};
  alone.parameters = {{"a", 300}, {"b", 200}};
  alone.coefficient = [](const std::string&, int, int, int, int) { return 1; };
  alone.write(one.path());
  VerifyOptions options;
  options.reference = one.path();
  CHECK(verify_run(folder.path(), options).reference->count(PieceVerdict::wrong) == 2);  // other data
  add(folder, 1, R"({"event":"gap","step":0,"parameters":[1],"why":"it is dark"})");
  CHECK(verify_run(folder.path(), options).reference->count(PieceVerdict::wrong) == 1);
  add(one, 0, R"({"event":"gap","step":0,"why":"it is dark"})");
  CHECK(verify_run(folder.path(), options).reference->count(PieceVerdict::wrong) == 0);
}

TEST_CASE("gaps that are none are told with file, line and column") {
  for (const auto& [line, said] : std::vector<std::pair<std::string, std::string>>{
           {R"({"event":"gap","why":"x"})", "missing key \"step\" in a \"gap\" line"},
           {R"({"event":"gap","step":"1","why":"x"})", "\"step\" of a \"gap\" line: expected a whole number"},
           {R"({"event":"gap","step":-1,"why":"x"})", "\"step\" of a \"gap\" line: expected a whole number"},
           {R"({"event":"gap","step":1})", "missing key \"why\" in a \"gap\" line"},
           {R"({"event":"gap","step":1,"why":3})", "\"why\" of a \"gap\" line: expected a string"},
           {R"({"event":"gap","step":1,"why":""})", "\"why\" of a \"gap\" line: expected a sentence without a period"},
           {R"({"event":"gap","step":1,"why":"x","parameters":7})",
            "\"parameters\" of a \"gap\" line: expected a list"},
           {R"({"event":"gap","step":1,"why":"x","parameters":[7]})", "parameter 7 was not declared"},
           {R"({"event":"gap","step":1,"why":"x","parameters":[null]})", "expected whole numbers from 0"}}) {
    const Folder folder;
    write_run(folder.path());
    add(folder, 1, line);
    INFO(line);
    CHECK(contains(refusal(folder), said));
    CHECK(contains(refusal(folder), "rank-00001.jsonl:25:"));
  }
  const Folder folder;
  write_run(folder.path());
  change(folder, 1, R"("event":"step",)", R"("event":"step","waiting":[9],)");
  CHECK(contains(refusal(folder), "parameter 9 was not declared"));
}

TEST_CASE("a step that loss scalers skip on some ranks alone is wrong") {
  const Folder folder;
  write_run(folder.path());
  change(folder, 1, R"("event":"step","step":1,)", R"("event":"step","step":1,"skipped":true,)");
  const VerifyResult result = verify_run(folder.path());
  CHECK(result.verdict() == PieceVerdict::wrong);
  CHECK(result.gaps.empty());
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].what ==
        "rank 1 skipped the optimizer step, for its loss scaler found infinite gradients, and rank 0 stepped");
  CHECK(result.findings[0].steps == std::vector<int>{1});
  CHECK(result.findings[0].parameters == std::vector<int>{0, 1});
  CHECK(result.count(PieceVerdict::right) == 4);
}

TEST_CASE("micro-batches before which gradients were set to zero are judged, left out or not known") {
  const auto zeroed = [](const Folder& folder, int rank, int step) {
    change(folder, rank, fmt::format(R"("event":"step","step":{},)", step),
           fmt::format(R"("event":"step","step":{},"zeroed":[1],)", step));
  };
  test::SimpleRun run;
  run.steps = 3;
  run.coefficient = [](const std::string&, int, int, int step, int micro_batch) {
    return step == 0 && micro_batch == 1 ? 0.5 : 0;
  };
  const Folder folder;
  run.write(folder.path());
  CHECK(verify_run(folder.path()).verdict() == PieceVerdict::wrong);
  CHECK(verify_run(folder.path()).findings.at(0).what == "the last micro-batch alone arrived");
  for (int step = 0; step < 2; ++step) zeroed(folder, 0, step);
  VerifyResult result = verify_run(folder.path());
  CHECK(result.count(PieceVerdict::undecided) == 6);
  CHECK(result.gaps.at(0) == "in optimizer step 0, ranks set their gradients to zero before different micro-batches.");
  for (int step = 0; step < 2; ++step) zeroed(folder, 1, step);
  result = verify_run(folder.path());
  CHECK(result.count(PieceVerdict::undecided) == 6);
  CHECK(result.count(PieceVerdict::wrong) == 3);  // of step 2
  CHECK(result.gaps.at(0) ==
        "in optimizer step 0, gradients were set to zero before micro-batch 1, and in others not: nobody knows whether "
        "what came before is to be in it.");
  // In one step alone of a contribution that is no number.
  const std::string from = R"("nonfinite":0)", to = R"("nonfinite":1)";
  change(folder, 1, from, to);
  result = verify_run(folder.path());
  CHECK(result.count(PieceVerdict::right) == 3);
  CHECK(result.gaps.size() == 1);
  CHECK(std::find(result.notes.begin(), result.notes.end(),
                  "in optimizer step 0, micro-batches with elements that are infinite or no numbers were left out: "
                  "gradients were set to zero after them.") != result.notes.end());
  // In every step it is a mistake.
  change(folder, 1, to, from);
  for (int rank = 0; rank < 2; ++rank) zeroed(folder, rank, 2);
  result = verify_run(folder.path());
  CHECK(result.count(PieceVerdict::wrong) == 9);
  CHECK(result.gaps.empty());
}

namespace {

/// Ranks average "a" in each step; the optimizer of "b" steps in step 2 alone, and gets what came since step `since`.
void write_waiting(const std::string& folder, int since, bool says = true, double coefficient = 0.5) {
  const test::SimpleRun run;
  test::RunWriter::Settings settings;
  settings.collectives = true;
  test::RunWriter writer(folder, settings);
  writer.parameter(0, "embedding.weight", 4000);
  writer.parameter(1, "layers.0.weight", 2000);
  std::vector<double> whole(2000);
  for (int step = 0; step < 3; ++step) {
    for (std::size_t p = 0; p < 2; ++p) {
      std::vector<double> sum(run.parameters[p].second);
      for (int rank = 0; rank < 2; ++rank) {
        const std::vector<double> own = run.gradient(p, rank, step, 0);
        writer.contribution(rank, step, 0, static_cast<int>(p), 0, own);
        for (std::size_t i = 0; i < own.size(); ++i)
          sum[i] = test::rounded(sum[i] + (p == 0 ? 0.5 : coefficient) * own[i], Dtype::float32);
      }
      for (std::size_t i = 0; p == 1 && i < sum.size(); ++i)
        sum[i] = whole[i] = step < since ? 0 : test::rounded(whole[i] + sum[i], Dtype::float32);
      for (int rank = 0; rank < 2 && (p == 0 || step == 2); ++rank)
        writer.result(rank, step, static_cast<int>(p), 0, sum);
    }
    for (int rank = 0; rank < 2; ++rank)
      writer.line(rank, R"({{"event":"step","step":{},"micro_batches":1,"tokens":null{}}})", step,
                  step < 2 && says ? R"(,"waiting":[1])" : "");
  }
  writer.finish();
}

}  // namespace

TEST_CASE("a parameter whose optimizer does not step waits, with its gradient or without it") {
  for (const int since : {0, 1, 2}) {
    const Folder folder;
    write_waiting(folder.path(), since);
    VerifyResult result = verify_run(folder.path());
    CAPTURE(since);
    CHECK(result.verdict() == PieceVerdict::right);
    REQUIRE(result.pieces.size() == 4);
    CHECK(result.pieces[3].step == 2);
    CHECK(result.pieces[3].parameter == 1);
    CHECK(result.pieces[3].formula == result.pieces[3].expected);
    CHECK(contains(
        [&] {
          try {
            record_run(folder.path());
          } catch (const InputError& error) {
            return std::string(error.what());
          }
          return std::string();
        }(),
        "in optimizer step 0 the optimizer of layers.0.weight did not step, and others did"));
    const Folder silent;
    write_waiting(silent.path(), since, false);
    CHECK(verify_run(silent.path()).verdict() == PieceVerdict::wrong);
    const Folder wrong;
    write_waiting(wrong.path(), since, true, 1);
    result = verify_run(wrong.path());
    CHECK(result.count(PieceVerdict::wrong) == 1);
    REQUIRE(result.findings.size() == 1);
    CHECK(result.findings[0].what ==
          "every contribution came with 1 where 1/2 was expected: uniform factor 2, invisible to Adam");
    const std::array<const char*, 3> formulas = {"g0.0 + g0.1 + g0.2 + g1.0 + g1.1 + g1.2", "g0.1 + g0.2 + g1.1 + g1.2",
                                                 "g0 + g1"};
    CHECK(result.pieces.back().formula == formulas[static_cast<std::size_t>(since)]);
    CHECK(result.pieces.back().coefficients.size() == static_cast<std::size_t>(6 - 2 * since));
    for (const RecoveredCoefficient& one : result.pieces.back().coefficients) CHECK(one.expected == Rational(1, 2));
  }
}

TEST_CASE("where one rank's optimizer steps and another's does not, the step is judged") {
  const Folder folder;
  write_waiting(folder.path(), 0);
  change(folder, 1, R"("step":0,"micro_batches":1,"tokens":null,"waiting":[1])",
         R"("step":0,"micro_batches":1,"tokens":null)");
  change(folder, 1, R"({"event":"step","step":0)", R"({"event":"result","step":0,"parameter":1,"piece":0,"row":null}
{"event":"step","step":0)");
  CHECK(verify_run(folder.path()).verdict() == PieceVerdict::wrong);
}

TEST_CASE("micro-batches after the last optimizer step are a note where every rank has ended") {
  const Folder folder;
  write_run(folder.path());
  for (int rank = 0; rank < 2; ++rank) {
    const std::string name = fmt::format("rank-{:05}.jsonl", rank);
    std::string text = read_all(folder / name);
    const std::size_t begin = text.find(R"({"event":"step","step":2)"), end = text.find('\n', begin);
    write_all(folder / name, text.erase(begin, end + 1 - begin));
  }
  VerifyResult result = verify_run(folder.path());
  CHECK(result.verdict() == PieceVerdict::right);
  CHECK(result.steps == std::vector<int>{0, 1});
  CHECK(std::find(result.notes.begin(), result.notes.end(),
                  "2 micro-batches after the last optimizer step: no optimizer got what they yielded.") !=
        result.notes.end());
  const std::string text = read_all(folder / "rank-00001.jsonl");
  write_all(folder / "rank-00001.jsonl", text.substr(0, text.rfind("{\"event\":\"end\"")));
  CHECK(verify_run(folder.path()).verdict() == PieceVerdict::undecided);
}

TEST_CASE("a rank that is left behind is told of a step by itself, though the run has gaps in others") {
  const Folder folder;
  test::RunWriter::Settings settings;
  settings.collectives = true;
  test::RunWriter writer(folder.path(), settings);
  const std::vector<double> values = test::drawn(500, 1);
  for (int id = 0; id < 2; ++id) writer.parameter(id, id == 0 ? "a" : "b", 500);
  for (int rank = 0; rank < 2; ++rank) {
    for (int step = 0; step < 3; ++step) {
      for (int id = 0; id < 2; ++id) {
        writer.contribution(rank, step, 0, id, 0, values);
        if (rank == 0 || id == 0) writer.result(rank, step, id, 0, values);
      }
      writer.step(rank, step, 1);
    }
  }
  writer.finish();
  const std::string behind =
      "the optimizer of rank 1 never gets b, others' do, and nothing that was recorded brings it the new values.";
  CHECK(verify_run(folder.path()).gaps == std::vector<std::string>{behind});
  const std::string name = "rank-00001.jsonl", text = read_all(folder / name);
  write_all(folder / name, text.substr(0, text.find('\n', text.find(R"("micro_batch":0,"step":2)")) + 1));
  VerifyOptions options;
  options.step = 1;
  CHECK(verify_run(folder.path(), options).gaps == std::vector<std::string>{behind});
}

TEST_CASE("captured ranks are left behind where no call brings them what other ranks' optimizers get") {
  const std::vector<std::vector<double>> halves_of_rank = {test::drawn(250, 1), test::drawn(250, 2)};
  std::vector<double> mean(250);
  for (std::size_t i = 0; i < mean.size(); ++i)
    mean[i] = test::rounded(0.5 * halves_of_rank[0][i] + 0.5 * halves_of_rank[1][i], Dtype::float32);
  // `gets`: by rank, pieces of the one parameter. A call stands before all else or behind it.
  const auto gaps = [&](const std::vector<std::vector<int>>& gets, const std::string& call, bool before = false) {
    const Folder folder;
    test::RunWriter::Settings settings;
    settings.collectives = true;
    test::RunWriter writer(folder.path(), settings);
    writer.parameter(0, "a", 500, {0, 250, 500});
    for (const int rank : {0, 1}) {
      const auto own = static_cast<std::size_t>(rank);
      const auto add_call = [&] {
        if (!call.empty())
          writer.line(rank, R"({{"event":"collective","step":0,{},"elements":1,"dtype":"float32"}})", call);
      };
      if (before) add_call();
      for (int piece = 0; piece < 2; ++piece) writer.contribution(rank, 0, 0, 0, piece, halves_of_rank[own]);
      for (const int piece : gets[own]) writer.result(rank, 0, 0, piece, mean);
      if (!before) add_call();
      writer.step(rank, 0, 1);
    }
    writer.finish();
    const VerifyResult result = verify_run(folder.path());
    CHECK(result.count(PieceVerdict::right) == result.pieces.size());
    return result.gaps;
  };
  const auto behind = [](const std::string& who) {
    return std::vector<std::string>{"the optimizer of " + who +
                                    ", and nothing that was recorded brings it the new values."};
  };
  const std::vector<std::vector<int>> one = {{0, 1}, {}}, halves = {{0}, {1}};
  const std::string never = "rank 1 never gets a, others' do";
  CHECK(gaps(one, "") == behind(never));
  CHECK(gaps(one, R"("op":"broadcast","group":[0,1],"root":0)").empty());
  CHECK(gaps(one, R"("op":"broadcast","group":[0,1],"root":0)", true) == behind(never));
  CHECK(gaps(one, R"("op":"broadcast","group":[0,1],"root":1)") == behind(never));
  CHECK(gaps(one, R"("op":"all_gather","group":[0,1])", true).empty());
  CHECK(gaps(halves, R"("op":"all_gather","group":[0,1])").empty());
  CHECK(gaps(halves, "") == behind("ranks 0 and 1 gets only a part of a, others' get the rest"));
  CHECK(gaps(halves, R"("op":"broadcast","group":[0,1],"root":0)") ==
        behind("rank 0 gets only a part of a, others' get the rest"));
}

TEST_CASE("what is right before clipping is undecided where the optimizer steps with something else, and wrong stays") {
  const std::string line = R"("event":"result","step":1,"parameter":1)";
  const auto judged = [&](double of_b, const std::string& key, const std::vector<int>& ranks) {
    const Folder folder;
    write_run(folder.path(), of_b);
    for (const int rank : ranks) change(folder, rank, line, key + "," + line);
    return verify_run(folder.path());
  };
  const std::string left = R"("clipped":"0123456789abcdef0123456789abcdef")";
  CHECK(judged(0.5, left, {0, 1}).verdict() == PieceVerdict::right);
  CHECK(judged(0.5, R"("changed":false)", {0}).verdict() == PieceVerdict::right);
  CHECK(judged(1, R"("changed":true)", {0}).verdict() == PieceVerdict::wrong);
  for (const VerifyResult& result : {judged(0.5, R"("changed":true)", {0}), judged(0.5, left, {1})}) {
    CHECK(result.verdict() == PieceVerdict::undecided);
    CHECK(result.count(PieceVerdict::undecided) == 1);
    CHECK(result.count(PieceVerdict::right) == 5);
  }
}

TEST_CASE("what comes after the last step is undecided where the capture does not know who has stepped with it") {
  const auto judged = [](const std::string& more) {
    const Folder folder;
    test::SimpleRun run;
    run.settings.sums = 64;
    run.steps = 3;
    run.parameters = {{"a", 300}};
    run.coefficient = [](const std::string&, int, int, int step, int) { return step == 0 ? 0.5 : 0; };
    run.write(folder.path());
    for (const int rank : {0, 1}) {
      const std::string name = fmt::format("rank-{:05}.jsonl", rank);
      std::string text = read_all(folder / name);
      for (const char* const event : {R"({"event":"result","step":2)", R"({"event":"step","step":2)"}) {
        const std::size_t place = text.find(event);
        text.erase(place, text.find('\n', place) + 1 - place);
      }
      write_all(folder / name, text);
      if (!more.empty()) add(folder, rank, more);
    }
    return verify_run(folder.path());
  };
  CHECK(judged("").verdict() == PieceVerdict::right);
  const VerifyResult result = judged(R"({"event":"gap","step":2,"parameters":[0],"why":"somebody has stepped"})");
  CHECK(result.verdict() == PieceVerdict::undecided);
  REQUIRE(result.gaps.size() == 1);
  CHECK(result.gaps[0] ==
        "2 micro-batches after the last optimizer step that was captured: somebody has stepped: what an optimizer got "
        "of what they yielded is not judged.");
}
