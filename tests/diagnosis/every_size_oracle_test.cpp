// SPDX-License-Identifier: Apache-2.0
//
// What diff says of two schedules for every size against replays of both at single sizes.
#include <iostream>
#include <random>

#include "lockstep/comparison.h"
#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/symbolic/random_scenario.h"
#include "tests/symbolic/statement.h"

using namespace lockstep;
using test::Statement;

namespace {

std::optional<Scenario> read_text(const std::string& name, const std::string& text) {
  try {
    return read_scenario(std::make_shared<const Source>(Source{name, text}));
  } catch (const InputError&) {
    return std::nullopt;  // an edit that leaves no valid schedule
  }
}

/// The same schedule with an edit at random, which may change no gradient.
std::string edited(const std::string& text, std::mt19937& random) {
  const auto number = [&](std::size_t below) { return random() % static_cast<unsigned>(below); };
  const auto one_of = [&](const std::vector<std::string>& list) { return list[number(list.size())]; };
  std::vector<std::string> steps = {"backward"};
  for (int i = 0; text.find("\"s" + std::to_string(i) + "\"") != std::string::npos; ++i)
    steps.push_back("s" + std::to_string(i));
  const std::string step = "\"" + one_of(steps) + "\"", other = "\"" + one_of(steps) + "\"";
  const std::string by = one_of({"1/dp", "dp", "1/2", "dp/2", "1/(dp*cp)", "cp*cp", "1", "micro_batches", "tp/3"});
  std::string edit;
  switch (number(10)) {
    case 0:
      edit = R"({ "drop": )" + step + " }";
      break;
    case 1:
      edit = R"({ "duplicate": )" + step + " }";
      break;
    case 2:
      edit = R"({ "move": )" + step + ", \"" + one_of({"before", "after"}) + "\": " + other + " }";
      break;
    case 3:
      edit = R"({ "set": )" + step + R"(, "reduce": ")" + one_of({"sum", "avg"}) + "\" }";
      break;
    case 4:
      edit = R"({ "set": )" + step + R"(, "geometry": { "kind": ")" + one_of({"rows", "flat", "parameter"}) + "\" } }";
      break;
    case 5:
      edit = R"({ "set": )" + step + R"(, "over": )" + one_of({R"("dp")", R"(["dp", "cp"])", R"("cp")"}) + " }";
      break;
    case 6:
      edit = R"({ "insert": { "name": "all", "op": "all_gather", "over": )" + one_of({R"("dp")", R"(["dp", "cp"])"}) +
             R"( }, "after": )" + other + " }";
      break;
    case 7:
      edit = R"({ "set": )" + step + R"(, "params": )" + one_of({R"(["a"])", R"(["!b"])", R"(["b"])"}) + " }";
      break;
    case 8:
      edit = R"({ "set": )" + step +
             R"(, "geometry": { "kind": "bucket", "align_parameter": 1, "align_bucket": "n", )" +
             one_of({R"("separate": ["a"])", R"("separate": [])", R"("size": 100)"}) + " } }";
      break;
    default:
      edit = R"({ "insert": { "name": "factor", "op": "scale", "by": ")" + by + "\"" +
             one_of({"", "", R"(, "on": "owned")", R"(, "when": "rank.pp == last")", R"(, "when": "dp > 1")"}) +
             R"( }, "after": )" + other + " }";
  }
  const std::size_t end = text.rfind(" } }");
  return text.substr(0, end) + R"(, "edits": [ )" + edit + " ]" + text.substr(end);
}

std::vector<Sizes> sizes_of(const SameProof& proof, int largest) {
  std::vector<Sizes> all(1);
  const auto each = [&](const auto& set) {
    std::vector<Sizes> more;
    for (const Sizes& sizes : all) {
      for (int size = 1; size <= largest; ++size) {
        more.push_back(sizes);
        set(more.back(), size);
      }
    }
    all = std::move(more);
  };
  for (const Axis axis : proof.axes) each([axis](Sizes& sizes, int size) { sizes.axes[axis] = size; });
  if (proof.micro_batches) each([](Sizes& sizes, int size) { sizes.micro_batches = size; });
  return all;
}

}  // namespace

TEST_CASE("pairs of random schedules at every size and at single ones", "[comparison][oracle]") {
  constexpr int most_layouts = 12;
  int same = 0, other = 0, undecided = 0, agree = 0, equal = 0, either = 0, left = 0, disagree = 0;
  const auto pairs = static_cast<int>(test::cases(150));
  for (int seed = 0; seed < pairs; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const std::string old_text = test::RandomScenario(static_cast<unsigned>(seed)).make();
    const std::string new_text = edited(old_text, random);
    const auto before = read_text("old", old_text), after = read_text("new", new_text);
    if (!before || !after) continue;
    const EverySize every = compare_every_size(*before, *after);
    const SameProof& proof = every.proof;
    (proof.verdict == SameProof::Verdict::same    ? same
     : proof.verdict == SameProof::Verdict::other ? other
                                                  : undecided)++;
    const bool of_some = proof.statement == "the same gradients where both could be followed";
    if (proof.verdict == SameProof::Verdict::undecided && !of_some) continue;
    const Statement statement(of_some ? "right" : proof.statement);
    const bool even = old_text.find(R"("tokens": "even")") != std::string::npos;
    const SameProver prover(*before, *after);
    std::vector<Sizes> layouts = sizes_of(proof, 3);
    std::shuffle(layouts.begin(), layouts.end(), random);
    if (layouts.size() > most_layouts) layouts.resize(most_layouts);
    for (const Sizes& sizes : layouts) {
      const bool open = std::any_of(proof.limits.begin(), proof.limits.end(),
                                    [&](const Proof::Limit& limit) { return Statement::holds(limit.sizes, sizes); });
      const auto pair = prover.at(sizes);
      if (open || !pair || pair->before->schedule->mesh.world() > 40) {
        ++left;
        continue;
      }
      const ScheduleComparison comparison = compare(pair->before, pair->after);
      const bool found = comparison.gradients.empty();
      const Statement::Says says = statement.at(sizes);
      INFO(old_text << "\n" << new_text << "\n" << proof.statement << "\nat " << describe(pair->sizes));
      // Counts of tokens are unknowns in a statement: the pattern of this size may hide a difference.
      const bool right =
          comparison.complete && (says == Statement::Says::either || (says == Statement::Says::right) == found ||
                                  (!even && says == Statement::Says::wrong));
      (right ? agree : disagree)++;
      equal += found ? 1 : 0;
      either += says == Statement::Says::either ? 1 : 0;
      CHECK(right);
    }
    // The statement is not one of other gradients where there are none.
    if (proof.verdict == SameProof::Verdict::other) CHECK(every.smallest);
  }
  std::cout << "pairs of random schedules: " << same << " same for every size, " << other << " not, " << undecided
            << " undecided; at " << agree + disagree << " layouts, " << equal << " of them the same and " << either
            << " that the statement leaves to the cuts, " << disagree << " disagree; " << left << " left out\n";
  // Of pairs with norms few are decided: those where both count each element once.
  CHECK(same >= pairs / 20);
  CHECK(other >= pairs / 6);
  CHECK(agree >= pairs * 3);
}
