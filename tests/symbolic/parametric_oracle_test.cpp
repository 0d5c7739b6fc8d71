// SPDX-License-Identifier: Apache-2.0
//
// The parametric engine against the symbolic one, which replays every rank: of what both decide, every verdict must be
// the same. How many there were is printed.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>

#include "lockstep/parametric.h"
#include "lockstep/prove.h"
#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/numeric/random_schedule.h"
#include "tests/symbolic/by_all_ranks.h"
#include "tests/symbolic/corpus.h"
#include "tests/symbolic/random_scenario.h"
#include "tests/symbolic/statement.h"

using namespace lockstep;
using test::by_all_ranks;

namespace {

std::string name(ParametricResult::Verdict verdict) {
  switch (verdict) {
    case ParametricResult::Verdict::match:
      return "match";
    case ParametricResult::Verdict::mismatch:
      return "mismatch";
    case ParametricResult::Verdict::race:
      return "race";
    case ParametricResult::Verdict::undecided:
      break;
  }
  return "undecided";
}

std::vector<std::string> part_of_corpus() {
  const std::vector<std::string> files = test::corpus();
  std::vector<std::string> part;
  for (std::size_t i = 0; i < files.size(); i += test::one_in) part.push_back(files[i]);
  return part;
}

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

/// How many verdicts were compared.
struct Counts {
  int proofs = 0, right = 0, wrong = 0, undecided = 0;  // statements for every size
  int statements = 0;
  int decided = 0, open = 0, refused = 0, disagree = 0;  // layouts
  std::map<std::string, int> found;                      // by verdict

  std::string text() const {
    std::string result = std::to_string(proofs) + " proofs (" + std::to_string(right) + " right, " +
                         std::to_string(wrong) + " wrong, " + std::to_string(undecided) + " undecided) at " +
                         std::to_string(decided) + " layouts that both decide";
    for (const auto& [verdict, count] : found) result += ", " + std::to_string(count) + " " + verdict;
    return result + "; " + std::to_string(statements) + " of them said by statements, " + std::to_string(open) +
           " out of reach, " + std::to_string(disagree) + " disagree\n";
  }
};

/// Every layout with these sizes on each open axis, in the order of an odometer.
std::vector<Sizes> layouts_of(const Proof& proof, int largest) {
  std::vector<Sizes> all(1);
  const auto each = [&](const auto& set, int most) {
    std::vector<Sizes> more;
    for (const Sizes& sizes : all) {
      for (int size = 1; size <= most; ++size) {
        more.push_back(sizes);
        set(more.back(), size);
      }
    }
    all = std::move(more);
  };
  for (const Axis axis : proof.axes) each([&](Sizes& sizes, int size) { sizes.axes[axis] = size; }, largest);
  if (proof.micro_batches) each([](Sizes& sizes, int count) { sizes.micro_batches = count; }, 3);
  return all;
}

/// Compares a proof with a replay of every rank, at all sizes to 4 and now and then one to 7; `most` of them, drawn
/// from `seed`, where there are more.
void compare(const Scenario& scenario, int most, unsigned seed, Counts& counts) {
  const Prover prover(scenario);
  const Proof& proof = prover.proof();
  ++counts.proofs;
  (proof.verdict == Proof::Verdict::right   ? counts.right
   : proof.verdict == Proof::Verdict::wrong ? counts.wrong
                                            : counts.undecided)++;
  std::vector<Sizes> layouts = layouts_of(proof, 4);
  std::mt19937 random(seed);
  std::shuffle(layouts.begin(), layouts.end(), random);
  if (layouts.size() > static_cast<std::size_t>(most)) layouts.resize(static_cast<std::size_t>(most));
  if (!proof.axes.empty()) {
    layouts.push_back(layouts.front());
    layouts.back().axes[proof.axes[random() % proof.axes.size()]] = 5 + static_cast<int>(random() % 3);
  }
  for (const Sizes& sizes : layouts) {
    const auto target = prover.scenario_at(sizes);
    if (!target) {
      ++counts.refused;
      continue;
    }
    if (target->schedule->mesh.world() > 64) continue;
    INFO(scenario.file << " at " << describe(sizes));
    ParametricResult result;
    try {
      result = *prover.at(sizes);
    } catch (const InputError&) {
      CHECK(by_all_ranks(*target->schedule) == "error");
      continue;
    }
    if (result.verdict == ParametricResult::Verdict::undecided) {
      ++counts.open;
      // What is right for every size is right at each, whether or not the proof is evaluated there.
      if (proof.verdict == Proof::Verdict::right) CHECK(by_all_ranks(*target->schedule) == "match");
      continue;
    }
    ++counts.decided;
    const std::string expected = by_all_ranks(*target->schedule);
    ++counts.found[expected];
    if (name(result.verdict) != expected) ++counts.disagree;
    CHECK(name(result.verdict) == expected);
    // The statement says the same as the proof at single sizes. Counts of tokens are unknowns in it.
    if (proof.verdict == Proof::Verdict::undecided) continue;
    Sizes all = sizes;
    if (proof.micro_batches && !all.micro_batches) all.micro_batches = 2;
    const test::Statement::Says says = test::Statement(proof.statement).at(all);
    INFO(proof.statement);
    const auto& tokens = target->schedule->batch.tokens_of_use;
    const bool even = !tokens.empty() && std::all_of(tokens.begin(), tokens.end(), [](const auto& use) {
      return use.second.kind == Batch::Tokens::Kind::even;
    });
    ++counts.statements;
    if (expected == "match") CHECK((says != test::Statement::Says::wrong || !even));
    if (expected == "mismatch") CHECK(says != test::Statement::Says::right);
  }
}

}  // namespace

TEST_CASE("the corpus: one verdict by classes and by every rank", "[parametric][oracle]") {
  int decided = 0, open = 0, wrong = 0;
  for (const std::string& file : part_of_corpus()) {
    Scenario scenario;
    try {
      scenario = read_scenario_file(file);
    } catch (const InputError&) {
      continue;
    }
    if (!scenario.schedule || scenario.schedule->mesh.world() > 256) continue;
    ParametricResult result;
    try {
      result = run_parametric(*scenario.schedule);
    } catch (const InputError&) {
      CHECK(by_all_ranks(*scenario.schedule) == "error");
      continue;
    }
    if (result.verdict == ParametricResult::Verdict::undecided) {
      ++open;
      continue;
    }
    ++decided;
    INFO(file);
    const std::string expected = by_all_ranks(*scenario.schedule);
    if (name(result.verdict) != expected) ++wrong;
    CHECK(name(result.verdict) == expected);
  }
  std::cout << "parametric engine on the corpus: " << decided << " decided, " << open << " out of its reach, " << wrong
            << " disagree\n";
  CHECK(decided >= static_cast<int>(540 / test::one_in));
}

TEST_CASE("proofs of the corpus, evaluated at other sizes", "[parametric][oracle]") {
  Counts counts;
  const int rounds = from_environment("LOCKSTEP_TEST_ROUNDS", 1);
  const std::vector<std::string> files = part_of_corpus();
  const std::size_t step = rounds > 1 ? 1 : 4 * test::one_in;
  for (std::size_t i = 0; i < files.size(); i += step) {
    try {
      compare(read_scenario_file(files[i]), 5 * rounds, static_cast<unsigned>(i), counts);
    } catch (const InputError&) {
      continue;
    }
  }
  std::cout << "the corpus: " << counts.text();
  // Under sanitizers of one file in ten, and there at one in ten layouts.
  CHECK(counts.decided >= static_cast<int>(400 / (test::one_in * test::one_in)));
}

TEST_CASE("random schedules at their own sizes", "[parametric][oracle]") {
  int decided = 0, open = 0, matching = 0;
  const auto seeds = static_cast<int>(test::cases(10000));
  for (int seed = 0; seed < seeds; ++seed) {
    const Schedule schedule = test::RandomSchedule(static_cast<unsigned>(seed)).make();
    const ParametricResult result = run_parametric(schedule);
    if (result.verdict == ParametricResult::Verdict::undecided) {
      ++open;
      continue;
    }
    ++decided;
    INFO("seed " << seed);
    const std::string expected = by_all_ranks(schedule);
    matching += expected == "match" ? 1 : 0;
    CHECK(name(result.verdict) == expected);
  }
  std::cout << "random schedules: " << decided << " decided alike, " << matching << " of them right; " << open
            << " out of reach\n";
  CHECK(decided >= seeds * 6 / 10);
  CHECK(matching >= seeds * 15 / 100);
}

TEST_CASE("random schedules for every size", "[parametric][oracle]") {
  Counts counts;
  const auto seeds = static_cast<int>(test::cases(100, 10));
  for (int seed = 0; seed < seeds; ++seed) {
    const std::string text = test::RandomScenario(static_cast<unsigned>(seed)).make();
    Scenario scenario;
    try {
      scenario = read_scenario(std::make_shared<const Source>(Source{"seed " + std::to_string(seed), text}));
    } catch (const InputError&) {
      continue;  // a step names a parameter that is not there
    }
    compare(scenario, 12, static_cast<unsigned>(seed), counts);
  }
  std::cout << "random schedules for every size: " << counts.text();
  CHECK(counts.decided >= 4 * seeds);
  CHECK(counts.found["match"] >= seeds);
}

// Of tools/proofs --oracle: a list of files, whose number is no matter of the tests.
TEST_CASE("proofs of listed files, evaluated at other sizes", "[.listed]") {
  const char* list = std::getenv("LOCKSTEP_PROOF_FILES");
  REQUIRE(list != nullptr);
  const int most = from_environment("LOCKSTEP_PROOF_SIZES", 1 << 20);
  Counts counts;
  std::ifstream lines(list);
  for (std::string file; std::getline(lines, file);) {
    try {
      compare(read_scenario_file(file), most, static_cast<unsigned>(counts.proofs), counts);
    } catch (const InputError&) {
      continue;  // a file of the corpus that is meant to be no scenario
    }
  }
  std::cout << counts.text();
}
