// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lockstep/diagnostic.h"
#include "src/live/captured_run.h"
#include "tests/catch.h"
#include "tests/live/run_writer.h"

using namespace lockstep;
using test::Folder;
using test::read_all;
using test::write_all;
using PieceVerdict = VerifiedPiece::Verdict;

namespace {

void write_right_run(const std::string& folder, const std::vector<int>& without = {}, int steps = 1,
                     bool shortened = false) {
  test::SimpleRun run;
  run.settings.sums = 64;
  run.settings.shortened = shortened;
  run.steps = steps;
  run.parameters = {{"a", 300}, {"b", 200}};
  run.coefficient = [](const std::string&, int, int, int step, int) { return step == 0 ? 0.5 : 0; };
  run.write(folder, without);
}

bool has_text(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool has_gap(const VerifyResult& result, const std::string& part) {
  return std::any_of(result.gaps.begin(), result.gaps.end(),
                     [&](const std::string& gap) { return has_text(gap, part); });
}

/// What verify_run throws as a rendered text; "" where it throws nothing.
std::string refusal(const std::string& folder) {
  try {
    verify_run(folder);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// A right run with one replacement in a file, and what is said of it.
std::string refusal_of(const std::string& from, const std::string& to, const std::string& name = "rank-00001.jsonl",
                       bool shortened = false) {
  const Folder folder;
  write_right_run(folder.path(), {}, 1, shortened);
  std::string text = read_all(folder / name);
  const std::size_t place = text.find(from);
  REQUIRE(place != std::string::npos);
  write_all(folder / name, text.replace(place, from.size(), to));
  return refusal(folder.path());
}

}  // namespace

TEST_CASE("the older name of the loss local_mean is read") {
  const Folder folder;
  write_right_run(folder.path());
  for (const char* rank : {"rank-00000.jsonl", "rank-00001.jsonl"}) {
    std::string text = read_all(folder / rank);
    const std::string now = "\"loss\":\"local_mean\"";
    REQUIRE(text.find(now) != std::string::npos);
    write_all(folder / rank, text.replace(text.find(now), now.size(), "\"loss\":\"mean\""));
  }
  const VerifyResult result = verify_run(folder.path());
  CHECK(result.loss == CapturedLoss::local_mean);
  CHECK(result.verdict() == VerifiedPiece::Verdict::right);
  CHECK(name_of(*result.loss) == "local_mean");
}

TEST_CASE("mistakes in a line are told with file, line and caret, all of them at once") {
  const std::string text = refusal_of(R"("micro_batch":0)", R"("micro_batch":"x")");
  CHECK(has_text(text, "rank-00001.jsonl:4:"));
  CHECK(has_text(
      text,
      "\"micro_batch\" of a \"contribution\" line: expected a whole number from 0 to 1048576, found the string \"x\""));
  CHECK(has_text(text, "^"));
  CHECK(has_text(refusal_of("\"event\":\"contribution\"", "\"event\":\"contribution\",,"), "rank-00001.jsonl:4:"));
  CHECK(has_text(refusal_of("\"lockstep_capture\":1", "\"lockstep_capture\":3"), "version 3"));
  CHECK(has_text(refusal_of("\"lockstep_capture\":1,", ""), "missing key \"lockstep_capture\""));
  CHECK(has_text(refusal_of("\"loss\":\"local_mean\"", "\"loss\":\"local_maen\""), "did you mean \"local_mean\"?"));
  CHECK(has_text(refusal_of("\"dtype\":\"float32\",\"nonfinite\"", "\"dtype\":\"int8\",\"nonfinite\""),
                 "float32, float64, bfloat16 or float16"));
  CHECK(has_text(refusal_of("\"parameter\":1", "\"parameter\":7"), "parameter 7 was not declared"));
  CHECK(has_text(refusal_of("\"piece\":0", "\"piece\":3"), "piece 3 of \"a\", which has 1"));
  CHECK(has_text(refusal_of("\"row\":0", "\"row\":77"), "names row 77"));
  CHECK(has_text(refusal_of("\"world\":2", "\"world\":4"), "the sizes of the mesh make 2 ranks"));
  CHECK(has_text(refusal_of("\"seed\":0", "\"seed\":1"), "\"seed\" is not that of"));
  CHECK(has_text(refusal_of("\"event\":\"run\"", "\"event\":\"rnu\""), "expected \"run\" as the first event"));
  CHECK(has_text(refusal_of("\"shape\":[300]", "\"shape\":[301]"), "has the shape [301]"));
  CHECK(has_text(refusal_of("\"range\":[0,300]", "\"range\":[0,301]"), "within 0 and 300"));
  CHECK(has_text(refusal_of("\"data_axes\":[\"dp\"]", "\"data_axes\":[\"pd\"]"), "no axis of the mesh"));
  CHECK(has_text(refusal_of("\"rank\":1", "\"rank\":0"), "and so is"));
  CHECK(has_text(refusal_of("F64", "F32", "rank-00001.step-00000.safetensors"), "rank-00001.step-00000.safetensors"));
}

TEST_CASE("sketches of whole numbers times powers of two are those of float64 but for rounding") {
  VerifyOptions options;
  options.coefficients = true;
  std::vector<VerifyResult> found;
  for (const bool shortened : {false, true}) {
    const Folder folder;
    write_right_run(folder.path(), {}, 1, shortened);
    found.push_back(verify_run(folder.path(), options));
    CHECK(found.back().verdict() == PieceVerdict::right);
  }
  for (std::size_t piece = 0; piece < 2; ++piece) {
    for (std::size_t i = 0; i < 4; ++i) {
      const double wide = found[0].pieces.at(piece).coefficients.at(i).value,
                   narrow = found[1].pieces.at(piece).coefficients.at(i).value;
      CHECK(std::abs(wide - narrow) < 1e-8);
      CHECK(wide != narrow);
    }
  }
}

TEST_CASE("ranks may keep other digits of one gradient, which is one contribution all the same") {
  const Folder folder, other;
  for (const bool shortened : {false, true}) {
    test::SimpleRun run;
    run.settings.sums = 64;
    run.settings.shortened = shortened;
    run.parameters = {{"a", 300}};
    run.coefficient = [](const std::string&, int, int, int, int) { return 0.5; };
    run.data = [](int) { return 0; };
    run.write(shortened ? other.path() : folder.path());
  }
  const std::string sketches = "rank-00001.step-00000.safetensors";
  std::filesystem::copy_file(other / sketches, folder / sketches, std::filesystem::copy_options::overwrite_existing);
  VerifyOptions options;
  options.coefficients = true;
  const VerifyResult result = verify_run(folder.path(), options);
  REQUIRE(result.pieces.size() == 1);
  REQUIRE(result.pieces[0].coefficients.size() == 2);  // of two micro-batches
  for (const RecoveredCoefficient& one : result.pieces[0].coefficients) CHECK(one.alike == std::vector<int>{1});
}

TEST_CASE("a file of shortened sketches that is not valid is told what it should have") {
  const std::string file = "rank-00001.step-00000.safetensors";
  const auto refused = [&](const std::string& from, const std::string& to) { return refusal_of(from, to, file, true); };
  CHECK(has_text(refused("\"exponents\"", "\"exponentz\""), "alone or with \"exponents\"; found \"exponentz\""));
  CHECK(has_text(refused("\"sketches\"", "\"sketchez\""), "expected a tensor \"sketches\""));
  CHECK(has_text(refused("I32", "F32"), "expected \"sketches\" to be I32 beside \"exponents\", with rows of 64 sums"));
  CHECK(has_text(refused("\"exponents\":{\"dtype\":\"I32\"", "\"exponents\":{\"dtype\":\"F32\""),
                 "expected \"exponents\" to be I32"));
}

TEST_CASE("contributions with one hash are one only if their sketches are") {
  const Folder folder;
  write_right_run(folder.path());
  const std::string text = read_all(folder / "rank-00001.jsonl"), key = "\"hash\":\"";
  std::string same = text;
  for (std::size_t at = same.find(key); at != std::string::npos; at = same.find(key, at + 1))
    same.replace(at + key.size(), 32, std::string(32, 'a'));
  write_all(folder / "rank-00001.jsonl", same);
  VerifyOptions options;
  options.coefficients = true;
  const VerifyResult result = verify_run(folder.path(), options);
  CHECK(result.verdict() == PieceVerdict::right);
  CHECK(result.pieces.at(0).coefficients.size() == 4);
}

TEST_CASE("unknown keys and events of newer writers are passed over") {
  CHECK(
      refusal_of(R"({"event":"step")", "{\"event\":\"weather\",\"rain\":[1,{}]}\n{\"event\":\"step\",\"new\":{\"a\":1}")
          .empty());
}

TEST_CASE("runs that are not complete are never right, and say what is missing") {
  const Folder folder;
  write_right_run(folder.path(), {}, 2);
  const std::string file = "rank-00001.jsonl", whole = read_all(folder / file);
  CHECK(verify_run(folder.path()).verdict() == PieceVerdict::right);

  std::filesystem::remove(folder / file);
  VerifyResult result = verify_run(folder.path());
  CHECK(result.verdict() == PieceVerdict::undecided);
  CHECK(has_gap(result, "rank 1 of 2 left no file"));
  CHECK(result.count(PieceVerdict::wrong) == 0);

  write_all(folder / file, "");
  CHECK(has_gap(verify_run(folder.path()), "died as it began"));

  write_all(folder / file, whole.substr(0, whole.rfind("{\"event\":\"end\"")));
  result = verify_run(folder.path());
  CHECK(result.verdict() == PieceVerdict::undecided);
  CHECK(has_gap(result, "rank 1 did not end the capture"));

  write_all(folder / file, whole.substr(0, whole.rfind("\"steps\"")));
  CHECK(has_gap(verify_run(folder.path()), "the last line is not complete"));

  const std::size_t second = whole.find("{\"event\":\"contribution\",\"micro_batch\":0,\"step\":1");
  REQUIRE(second != std::string::npos);
  write_all(folder / file, whole.substr(0, second) + "{\"event\":\"end\",\"steps\":1,\"seconds\":1}\n");
  result = verify_run(folder.path());
  CHECK(has_gap(result, "rank 1 did not capture optimizer step 1, which others did"));
  CHECK(result.count(PieceVerdict::wrong) == 0);
  CHECK(result.count(PieceVerdict::right) == 2);

  write_all(folder / file, whole);
  std::filesystem::remove(folder / "rank-00001.step-00001.safetensors");
  result = verify_run(folder.path());
  CHECK(result.verdict() == PieceVerdict::undecided);
  CHECK(has_gap(result, "rank-00001.step-00001.safetensors is missing"));
  CHECK(result.count(PieceVerdict::wrong) == 0);
}

TEST_CASE("what is no captured run is said to be none") {
  const Folder folder;
  CHECK(has_text(refusal(folder.path()), "there is no rank-*.jsonl in it"));
  CHECK(has_text(refusal(folder.path() + "/nowhere"), "there is no such folder"));
  std::filesystem::create_directory(folder / "run");
  CHECK_FALSE(has_text(refusal(folder.path()), "did you mean"));
  write_all(folder / "run" / "rank-00000.jsonl", "hello\n");
  CHECK(has_text(refusal(folder.path()), "(docs/verify.md); did you mean " + (folder / "run").string() + "?"));
  write_all(folder / "rank-00000.jsonl", "hello\n");
  CHECK(has_text(refusal(folder.path()), "rank-00000.jsonl:1:1"));
  CHECK(has_text(refusal((folder / "rank-00000.jsonl").string()), "it is a file"));
}

TEST_CASE("a file that was cut off or damaged anywhere is refused, or the run is not right, or nothing was lost") {
  const Folder folder;
  write_right_run(folder.path());
  const std::vector<std::string> names = {"rank-00000.jsonl", "rank-00001.jsonl", "rank-00001.step-00000.safetensors"};
  std::mt19937_64 generator(5);
  int refused = 0, undecided = 0, others = 0;
  for (int round = 0; round < 600; ++round) {
    const std::string& name = names[generator() % names.size()];
    const std::string whole = read_all(folder / name);
    std::string damaged = whole;
    const int kind = static_cast<int>(generator() % 4);
    const std::size_t place = generator() % whole.size();
    if (kind == 0) {
      damaged.resize(place);
    } else if (kind == 1) {
      damaged[place] = static_cast<char>(generator());
    } else if (kind == 2) {
      damaged.erase(place, 1 + generator() % 40);
    } else {
      damaged.insert(place, whole.substr(generator() % whole.size(), generator() % 60));
    }
    write_all(folder / name, damaged);
    try {
      const VerifyResult result = verify_run(folder.path());
      (result.verdict() == PieceVerdict::undecided ? undecided : others) += 1;
      // What was cut off is never right, and never blamed on a rank.
      const bool lost = kind == 0 && damaged.find_last_not_of('\n') != whole.find_last_not_of('\n');
      if (lost) CHECK(result.verdict() == PieceVerdict::undecided);
    } catch (const InputError& error) {
      ++refused;
      CHECK(std::string(error.what()).size() > 20);
    }
    write_all(folder / name, whole);
  }
  CHECK(refused > 100);
  CHECK(undecided > 30);
  CHECK(verify_run(folder.path()).verdict() == PieceVerdict::right);
}

TEST_CASE("numbers that no run has are refused, or counted as missing") {
  for (const char* number : {"1e400", "-1", "99999999999999999999", "2147483648", "0.5", "null", "[]"}) {
    CHECK_FALSE(refusal_of("\"row\":0", fmt::format("\"row\":{}", number)).empty());
    CHECK_FALSE(refusal_of("\"step\":0", fmt::format("\"step\":{}", number)).empty());
    CHECK_FALSE(refusal_of("\"sums\":64", fmt::format("\"sums\":{}", number)).empty());
  }
  CHECK_FALSE(refusal_of("\"shape\":[300]", "\"shape\":[4294967296,4294967296]").empty());
  const Folder folder;
  write_right_run(folder.path());
  std::string text = read_all(folder / "rank-00001.jsonl");
  for (int step = 1; step < 3000; ++step)
    text += fmt::format("{{\"event\":\"step\",\"step\":{},\"micro_batches\":1048576}}\n", step);
  write_all(folder / "rank-00001.jsonl", text);
  CHECK(has_text(refusal(folder.path()), "more micro-batches than can be counted"));
}

TEST_CASE("a step after which all ranks went on is complete, whatever became of them") {
  const Folder folder;
  write_right_run(folder.path(), {}, 3);
  const std::string file = "rank-00001.jsonl", whole = read_all(folder / file);
  const std::size_t last = whole.find("{\"event\":\"contribution\",\"micro_batch\":1,\"step\":2");
  REQUIRE(last != std::string::npos);
  VerifyOptions second, third;
  second.step = 1;
  third.step = 2;
  for (const std::size_t end : {last, last + 20}) {  // after a line, and within one
    write_all(folder / file, whole.substr(0, end));
    CHECK(verify_run(folder.path()).verdict() == PieceVerdict::undecided);
    CHECK(verify_run(folder.path(), second).verdict() == PieceVerdict::right);
    CHECK(verify_run(folder.path(), second).gaps.empty());
    const VerifyResult result = verify_run(folder.path(), third);
    CHECK(result.verdict() == PieceVerdict::undecided);
    CHECK(has_gap(result, "rank 1 did not end the capture"));
    CHECK(has_gap(result, "the last line is not complete") == (end > last));
    CHECK(has_gap(result, "rank 1 did not finish optimizer step 2"));
  }
  // Lines of step 1 may have followed that of its end.
  write_all(folder / file, whole.substr(0, whole.find("{\"event\":\"contribution\",\"micro_batch\":0,\"step\":2")));
  CHECK(has_gap(verify_run(folder.path(), second), "rank 1 did not end the capture"));
  VerifyOptions first;
  first.step = 0;
  CHECK(verify_run(folder.path(), first).verdict() == PieceVerdict::right);
  std::filesystem::remove(folder / file);
  CHECK(has_gap(verify_run(folder.path(), second), "rank 1 of 2 left no file"));
}
