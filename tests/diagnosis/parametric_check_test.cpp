// SPDX-License-Identifier: Apache-2.0
//
// check, decided by the parametric engine: the same as the symbolic engine finds, rank by rank.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

CheckOptions only(bool symbolic) {
  CheckOptions options;
  options.symbolic = symbolic;
  options.host = false;
  options.parametric = !symbolic;
  options.blame = options.divergences =
      false;  // verdicts and values are compared, and the search takes most of a check
  return options;
}

bool same(const std::vector<Term>& a, const std::vector<Term>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Term& x, const Term& y) {
    return x.rank == y.rank && x.micro_batch == y.micro_batch && x.site_use == y.site_use && x.leftover == y.leftover &&
           x.foreign == y.foreign && x.logical == y.logical &&
           (!x.foreign || (x.piece == y.piece && x.offset == y.offset)) && x.coefficient == y.coefficient;
  });
}

std::set<int> wrong_logicals(const CheckResult& result) {
  std::set<int> logicals;
  for (const int parameter : wrong_set(result).parameters)
    logicals.insert(result.scenario->schedule->model.logical_of(parameter));
  return logicals;
}

/// What the two engines say of one buffer; "" where it is the same.
std::string difference(const CheckResult& exact, ParametricEngine& engine, const BufferResult& expected) {
  const BufferResult found = engine.buffer(expected.rank, expected.buffer, symbolic_of(exact)->step);
  if (found.owned != expected.owned) return "owned elements";
  // Neighbours with equal formulas are one piece in both, but where a cut lies between them.
  for (const PieceResult& piece : expected.pieces) {
    for (const PieceResult& own : found.pieces) {
      if (intersect(piece.elements, own.elements).empty()) continue;
      if (piece.right != own.right) return "verdict";
      if (piece.ratio != own.ratio) return "ratio";
      const auto terms = [&](const FormReader& reader, int form) {
        return reader.terms(form, expected.rank, expected.buffer);
      };
      if (!same(terms(*forms_of(exact), piece.form), terms(engine, own.form))) return "formula";
      if (!same(terms(*forms_of(exact), piece.reference), terms(engine, own.reference))) return "reference";
    }
  }
  return "";
}

/// #844 on thousands of ranks.
std::string large_844(const std::string& expect) {
  std::string text = megatron_844(expect);
  const std::string layout = R"({ "pp": 2, "dp": 2 })";
  return text.replace(text.find(layout), layout.size(), R"({ "pp": 2, "dp": 2048 })");
}

/// One parameter of 48 elements, on a layout of these sizes, with these steps after a backward.
std::string simple(const std::string& layout, const std::string& steps) {
  return scenario_text(
      layout, R"([ { "name": "weight", "shape": [48] } ])",
      R"([ { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" + steps + " ]");
}

/// Counts in norms that every rank does not have: parameter, rank, count and, where it is known, how many elements.
std::vector<std::string> norms_unlike(const SymbolicResult& exact, const std::vector<NormResult>& by_classes) {
  std::vector<std::string> unlike;
  for (const NormResult& one : by_classes) {
    const bool found = std::any_of(exact.norm.begin(), exact.norm.end(), [&](const NormResult& other) {
      return other.parameter == one.parameter && other.rank == one.rank && other.counted == one.counted &&
             other.of == one.of && (one.elements == 0 || other.elements == one.elements);
    });
    if (!found)
      unlike.push_back("parameter " + std::to_string(one.parameter) + " on rank " + std::to_string(one.rank) + ": " +
                       std::to_string(one.elements) + " elements " + one.counted + " times");
  }
  return unlike;
}

/// Files of the corpus that expect a mismatch, in the order of their names, so that a part of them is the same on every
/// machine.
std::vector<std::string> expected_to_mismatch() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(LOCKSTEP_SOURCE_DIR "/scenarios")) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".json" || path.find("/scale/") != std::string::npos) continue;
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (text.find("\"mismatch\"") != std::string::npos) files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("the corpus: what each rank holds, by classes and by every rank", "[parametric][oracle]") {
  int scenarios = 0, buffers = 0, out_of_reach = 0;
  const std::vector<std::string> files = expected_to_mismatch();
  for (std::size_t file = 0; file < files.size(); file += one_in) {
    const std::string& path = files[file];
    const CheckResult found = check_file(path, only(false));
    if (found.verdict != Verdict::mismatch) continue;
    INFO(path);
    const CheckResult exact = check_file(path, only(true));
    CHECK(exact.verdict == found.verdict);
    if (exact.verdict != found.verdict) continue;
    CHECK(exact.step == found.step);
    CHECK(wrong_logicals(exact) == wrong_logicals(found));
    ++scenarios;
    const SymbolicResult by_classes = parametric_engine_of(found)->sample().found;
    CHECK(norms_unlike(*symbolic_of(exact), by_classes.norm).empty());
    CHECK(by_classes.norm.empty() == symbolic_of(exact)->norm.empty());
    for (std::size_t i = 0; i < symbolic_of(exact)->buffers.size(); ++i) {
      const BufferResult& buffer = symbolic_of(exact)->buffers[i];
      const bool wrong = std::any_of(buffer.pieces.begin(), buffer.pieces.end(),
                                     [](const PieceResult& piece) { return !piece.right; });
      if (!wrong && i % 13 != 0) continue;
      const LocalBuffer& local =
          exact.scenario->schedule->model.local(buffer.rank).buffers[static_cast<std::size_t>(buffer.buffer)];
      if (exact.scenario->schedule->model.logicals()[static_cast<std::size_t>(local.logical)].frozen) continue;
      try {
        INFO("rank " << buffer.rank << ", buffer " << buffer.buffer);
        const std::string unlike = difference(exact, *parametric_engine_of(found), buffer);
        INFO(unlike);
        CHECK(unlike.empty());
        ++buffers;
      } catch (const InputError&) {
        ++out_of_reach;
      }
    }
  }
  std::cout << "parametric engine, single ranks: " << buffers << " buffers of " << scenarios
            << " wrong scenarios as the symbolic engine has them, " << out_of_reach << " out of its reach\n";
  CHECK(scenarios * static_cast<int>(one_in) >= 200);
  CHECK(out_of_reach * 20 < buffers);
}

TEST_CASE("a large layout is decided by classes", "[parametric]") {
  const CheckResult result = check_text(large_844(
      R"({ "verdict": "mismatch", "parameters": ["tied:embedding"],
           "formula": { "word": { "1": "g2049 + sum(g, dp)/2048" } } })"));
  CHECK(result.verdict == Verdict::mismatch);
  REQUIRE(parametric_of(result) != nullptr);
  CHECK(symbolic_of(result) == nullptr);
  CHECK(result.timeline == nullptr);
  CHECK(engine_of(result, "host")->left_out.find("the verdict is the parametric engine's") != std::string::npos);
  REQUIRE(sample_of(result) != nullptr);
  CHECK_FALSE(sample_of(result)->found.buffers.empty());
}

TEST_CASE("a small layout is replayed unless the parametric engine is asked for", "[parametric]") {
  CHECK(parametric_of(check_text(megatron_844())) == nullptr);
  CheckOptions both;
  both.parametric = true;
  const CheckResult result = check_text(megatron_844(), both);
  REQUIRE(parametric_of(result) != nullptr);
  CHECK(symbolic_of(result) != nullptr);
  CHECK(result.disagreement.empty());
}

TEST_CASE("expectations that take every rank are not met by a large layout", "[parametric]") {
  const CheckResult result = check_text(large_844(
      R"({ "verdict": "mismatch", "parameters": ["tied:embedding"], "ranks": [1, 2], "replicas_agree": false,
           "formula": { "word": { "1": "g2" } } })"));
  const std::vector<std::string> unmet = unmet_expectations(result);
  REQUIRE(unmet.size() == 3);
  CHECK(unmet[0].find("ranks: not known") == 0);
  CHECK(unmet[1].find("formula of word on rank 1: expected g2, found ") == 0);
  CHECK(unmet[2].find("replicas_agree: not known") == 0);
}

TEST_CASE("what is too large to be replayed and cannot be followed is refused by its step", "[parametric]") {
  std::string text =
      simple(R"({ "dp": 65536 })", R"x({ "name": "odd", "op": "all_reduce", "over": "dp", "when": "rank.dp > 0" })x");
  const std::string one = R"("micro_batches": 1,)";
  const CheckResult result = check_text(text.replace(text.find(one), one.size(), R"("micro_batches": 10000,)"));
  CHECK(result.verdict == Verdict::error);
  REQUIRE(result.errors.size() == 1);
  CHECK(result.errors.front().message.find("step \"odd\": not all ranks of a group reach it") != std::string::npos);
}

TEST_CASE("norms and elements without an owner on a large layout", "[parametric]") {
  const CheckResult twice =
      check_text(simple(R"({ "dp": 4096 })", R"({ "name": "mean", "op": "all_reduce", "over": "dp", "reduce": "avg" },
                                     { "name": "norm", "op": "norm", "over": "dp" })"));
  CHECK(twice.verdict == Verdict::mismatch);
  REQUIRE(sample_of(twice) != nullptr);
  REQUIRE_FALSE(sample_of(twice)->found.norm.empty());
  CHECK(sample_of(twice)->found.norm.front().counted == "4096");
  // Each rank owns two elements, and those of two ranks are not counted.
  const CheckResult left_out = check_text(
      scenario_text(R"({ "dp": 4096 })", R"([ { "name": "w", "shape": [8192] } ])",
                    R"([ { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
           { "name": "scatter", "op": "reduce_scatter", "over": "dp", "reduce": "avg",
             "geometry": { "kind": "bucket", "align_parameter": 1, "align_bucket": "n" } },
           { "name": "norm", "op": "norm", "over": "dp", "count": "rank.dp > 1" } ])"));
  REQUIRE(sample_of(left_out) != nullptr);
  REQUIRE_FALSE(sample_of(left_out)->found.norm.empty());
  const auto& norm = sample_of(left_out)->found.norm.front();
  CHECK(norm.counted == "0");
  CHECK(norm.elements == 2);
  CHECK(norm.of == 8192);
}

TEST_CASE("of a parameter that a norm leaves out where its stage is not, such a rank is shown", "[parametric]") {
  const CheckResult result = check_text(
      scenario_text(R"({ "pp": 2 })",
                    R"([ { "name": "w", "shape": [8] }, { "name": "v", "shape": [8], "stage": -1 } ])",
                    R"([ { "name": "each", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] },
                    { "name": "norm", "op": "norm", "over": "tp" } ])"),
      only(false));
  REQUIRE(sample_of(result) != nullptr);
  const auto& norms = sample_of(result)->found.norm;
  REQUIRE(norms.size() == 2);
  CHECK(norms[0].rank == 1);
  CHECK(norms[1].rank == 0);
  CHECK(norms[0].counted == "0");
  CHECK(norms[1].counted == "0");
}
