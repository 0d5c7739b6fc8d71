// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/unnoticed.h"

#include "tests/catch.h"
#include "tests/diagnosis/small.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// What is said where these steps follow the mean of a gradient of 30 elements and one of 10; a third is frozen.
std::vector<std::string> said(const std::string& steps, const std::string& mean = mean_step) {
  CheckOptions options;
  options.host = options.blame = options.divergences = false;
  return diagnosis::who_would_not_notice(check_text(
      scenario_text(
          R"({ "dp": 2 })",
          R"([ { "name": "a", "shape": [30] }, { "name": "b", "shape": [10] },
                         { "name": "c", "shape": [500], "frozen": true } ])",
          R"([ { "name": "micro_batches", "op": "each", "steps": [ { "name": "backward", "op": "backward" } ] }, )" +
              mean + steps + " ]"),
      options));
}

const std::string agree = "All replicas agree: a comparison of ranks with each other shows nothing.";
const std::string adam =
    "Adam does not notice a constant factor: its update does not depend on the size of the gradient.";
const std::string accepts = "A comparison with one device that accepts 8 % passes.";

std::string behind(const std::string& by, const std::string& more = "") {
  return R"(, { "name": "s", "op": "scale", "by": ")" + by + "\"" + more + " }";
}

using Sentences = std::vector<std::string>;

}  // namespace

TEST_CASE("of a factor on every gradient it is said that the norm has it, and that Adam and a clip hide it") {
  CHECK(said(behind("3")) ==
        Sentences{agree, "Every gradient is 3 times the right one, and so is the gradient norm.", adam,
                  "Where clipping acts with the factor and without it, nothing of the factor is left after the clip."});
  CHECK(said("").empty());  // nothing is wrong
}

TEST_CASE("of a factor on some gradients the norm is reckoned over all that are trained") {
  // sqrt((30 + 9 · 10) / 40) and sqrt((9 · 30 + 10) / 40)
  CHECK(said(behind("3", R"(, "params": ["b"])")) ==
        Sentences{agree,
                  "What is wrong is 3 times the right gradient; the gradient norm is 1.73 times the right one if all "
                  "elements have the same size.",
                  adam});
  CHECK(said(behind("3", R"(, "params": ["a"])")).at(1) ==
        "What is wrong is 3 times the right gradient; the gradient norm is 2.65 times the right one if all elements "
        "have the same size.");
  // sqrt((30 + 10 / 4) / 40)
  CHECK(said(behind("1/2", R"(, "params": ["b"])")).at(1).find("the gradient norm is 0.901 times") !=
        std::string::npos);
}

TEST_CASE("where the norm counts wrongly nothing is said of what it is of the right one") {
  const std::string norm = R"(, { "name": "n", "op": "norm", "over": "dp" })";
  const Sentences all = said(behind("3") + norm);
  CHECK(all.at(1) == "Every gradient is 3 times the right one.");
  CHECK(all.at(2) == adam);
  CHECK(all.size() == 3);
  CHECK(said(behind("3", R"(, "params": ["b"])") + norm).at(1) == "What is wrong is 3 times the right gradient.");
  // The norm alone: replicas have nothing to do with it.
  CHECK(said(norm) == Sentences{"The square of the gradient norm is 2 times the right one."});
}

TEST_CASE("what is near passes a comparison with one device, and what replicas show is not hidden") {
  CHECK(said(behind("1.05")).back() == accepts);
  CHECK(said(behind("1.09")).back() != accepts);
  // One replica alone.
  CHECK(said(behind("1.05", R"(, "only": { "dp": [0] })")).front() != agree);
  CHECK(said(behind("2"), R"({ "name": "mean", "op": "reduce_scatter", "over": "dp", "reduce": "avg" })").front() ==
        "Every wrong element has one owner: there are no replicas to compare.");
  // Another factor on each, or none: there is no one factor.
  for (const std::string& sentence :
       said(behind("2", R"(, "params": ["a"])") + R"(, { "name": "t", "op": "scale", "by": 3, "params": ["b"] })"))
    CHECK(sentence.find("times the right") == std::string::npos);
  CHECK(said(behind("0")) == Sentences{agree});
}
