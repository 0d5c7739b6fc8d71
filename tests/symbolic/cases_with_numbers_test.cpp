// SPDX-License-Identifier: Apache-2.0
//
// What proofs rest on: for files of frameworks and of the corpus, and for schedules at random, with options at random,
// the sizes that a file allows lie in one case each, and the case with these numbers put in is the file read with them.
// LOCKSTEP_TEST_SEED draws others; it is printed.
#include "tests/symbolic/cases_with_numbers.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>

#include "src/base/budget.h"
#include "src/expression/parsed_once.h"
#include "src/scenario/framework_options.h"
#include "src/symbolic/parametric/find_cases.h"
#include "tests/cases.h"
#include "tests/catch.h"
#include "tests/symbolic/corpus.h"
#include "tests/symbolic/random_scenario.h"

using namespace lockstep;
using parametric::Case;
using parametric::CaseSizes;
using parametric::Layouts;

namespace {

constexpr int largest_size = 4096;
/// Ranks of a layout that is read, and micro-batches.
constexpr std::int64_t most_ranks = 100'000;
constexpr int most_micro_batches = 512;

unsigned drawn_seed() {
  const char* text = std::getenv("LOCKSTEP_TEST_SEED");
  return text == nullptr ? 1 : static_cast<unsigned>(std::stoul(text));
}

struct Totals {
  int files = 0, cases = 0, limits = 0, layouts = 0, refused = 0, outside = 0, without_classes = 0;
  int guards = 0, steps = 0, parameters = 0, classes = 0, largest = 0;

  void print(const std::string& what) const {
    std::cout << what << " (LOCKSTEP_TEST_SEED=" << drawn_seed() << "): " << files << " files, " << cases << " cases, "
              << limits << " of them out of reach; " << layouts << " layouts (sizes to " << largest << ") with "
              << guards << " guards, " << steps << " steps, " << parameters << " parameters and " << classes
              << " classes compared; " << refused << " layouts refused, " << outside << " of cases out of reach, "
              << without_classes << " without classes\n";
  }
};

/// Sizes drawn from the file's open ones: primes, powers and their neighbours, and now and then a large one.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }

  int size(int least, int most) {
    static const std::vector<int> special = {2,   3,   4,    5,    7,    8,    11,   12,   13,  16,
                                             17,  31,  32,   37,   48,   64,   97,   127,  128, 256,
                                             257, 509, 1021, 1024, 2039, 2048, 3001, 4093, 4096};
    std::vector<int> fitting;
    for (const int one : special) {
      if (one >= least && one <= most) fitting.push_back(one);
    }
    if (fitting.empty() || below(4) == 0) return least + below(std::min(most - least + 1, 6));
    if (below(4) == 0) return least + below(most - least + 1);
    return fitting[static_cast<std::size_t>(below(static_cast<int>(fitting.size())))];
  }

  /// Sizes of a case, or of any: at most one of them large.
  Sizes of(const CaseSizes& sizes, const Sizes& base) {
    Sizes drawn = base;
    for (const auto& [axis, size] : sizes.exact) drawn.axes[axis] = size;
    const int large = sizes.least.empty() ? 0 : below(static_cast<int>(sizes.least.size()));
    int number = 0;
    for (const auto& [axis, least] : sizes.least) {
      const auto most = sizes.most.find(axis);
      const int end = std::min(most == sizes.most.end() ? largest_size : most->second,
                               number++ == large ? largest_size : least + 6);
      drawn.axes[axis] = size(least, std::max(least, end));
    }
    if (sizes.exact_micro_batches) drawn.micro_batches = sizes.exact_micro_batches;
    if (sizes.least_micro_batches)
      drawn.micro_batches =
          size(*sizes.least_micro_batches,
               std::max(*sizes.least_micro_batches, sizes.most_micro_batches.value_or(most_micro_batches)));
    return drawn;
  }

 private:
  std::mt19937 random_;
};

std::int64_t ranks_at(const Sizes& sizes) {
  std::int64_t ranks = 1;
  for (const auto& [axis, size] : sizes.axes) ranks *= size;
  return ranks;
}

/// The cases of a file, as Prover finds them; nothing where it is out of reach as a whole.
std::optional<std::vector<Case>> cases_of(Layouts& layouts) {
  const Budget budget(Budget::proof, Budget::memory_of_a_proof);
  for (;;) {
    try {
      if (layouts.enter()) return std::nullopt;
      return parametric::find_cases(layouts, false);
    } catch (const parametric::NeedsUnrolling& need) {
      layouts.give_micro_batches(need.step, need.why);
    } catch (const OverBudget&) {
      return std::nullopt;
    }
  }
}

/// Looks at one layout: whether it lies in one case, and what the case says of it.
void look_at(const Scenario& scenario, const std::vector<Case>& cases, const Sizes& sizes, Totals& totals) {
  if (ranks_at(sizes) > most_ranks) return;
  Scenario plain;
  try {
    plain = read_scenario(test::with_numbers(scenario.document, sizes), scenario.file);
  } catch (const InputError&) {
    ++totals.refused;
    return;
  }
  INFO(scenario.file << " at " << describe(sizes) << ": " << write_json(scenario.document));
  // Half of what the expert mesh comes to is what the dense one has: a case may not speak of it.
  for (const auto& [axis, size] : sizes.axes) {
    if (plain.schedule->mesh.size(axis) != size) return;
  }
  const Case* holding = nullptr;
  int count = 0;
  for (const Case& one : cases) {
    if (!one.holds(sizes)) continue;
    holding = &one;
    ++count;
  }
  CHECK(count == 1);
  if (count == 0) return;
  if (holding->limit) {
    ++totals.outside;
    return;
  }
  const test::Comparison found = test::compare_with_numbers(*holding, sizes, plain, scenario.file);
  for (const std::string& difference : found.differences) {
    INFO(difference);
    CHECK(found.differences.empty());
  }
  ++totals.layouts;
  totals.guards += found.guards;
  totals.steps += found.steps;
  totals.parameters += found.parameters;
  totals.classes += found.classes;
  if (!found.out_of_reach.empty()) ++totals.without_classes;
  for (const auto& [axis, size] : sizes.axes) totals.largest = std::max(totals.largest, size);
}

/// Sizes of some of the cases, and others drawn from all of them.
void compare(const Scenario& scenario, int most_cases, Draw& draw, Totals& totals) {
  const expression::ParsedOnce parsed_once;
  Layouts layouts(scenario);
  std::optional<std::vector<Case>> cases;
  try {
    cases = cases_of(layouts);
  } catch (const InputError&) {
    return;
  }
  if (!cases) return;
  ++totals.files;
  totals.cases += static_cast<int>(cases->size());
  std::vector<const Case*> followed;
  for (const Case& one : *cases) {
    if (one.limit)
      ++totals.limits;
    else
      followed.push_back(&one);
  }
  // The case of the largest sizes, of which there are most, and some of the others.
  const int count = std::min(most_cases, static_cast<int>(followed.size()));
  for (int i = 0; i < count; ++i) {
    const std::size_t number =
        i == 0 ? followed.size() - 1 : static_cast<std::size_t>(draw.below(static_cast<int>(followed.size())));
    for (int again = 0; again < 2; ++again)
      look_at(scenario, *cases, draw.of(*followed[number], layouts.base()), totals);
  }
  CaseSizes any;
  for (const Axis axis : layouts.axes()) any.least[axis] = 1;
  if (layouts.micro_batches()) any.least_micro_batches = 1;
  for (int i = 0; i < most_cases; ++i) look_at(scenario, *cases, draw.of(any, layouts.base()), totals);
}

std::optional<Scenario> read(const std::string& name, const std::string& text) {
  try {
    return read_scenario(std::make_shared<const Source>(Source{name, text}));
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// The scenario with other values for some options of its framework, as far as it allows them.
Scenario with_drawn_options(Scenario scenario, Draw& draw) {
  for (const scenario::FrameworkOption& option : scenario::framework_options(scenario)) {
    if (draw.below(3) != 0) continue;
    Json value = option.value;
    if (!option.allowed.empty()) {
      value = option.allowed[static_cast<std::size_t>(draw.below(static_cast<int>(option.allowed.size())))];
    } else if (option.type == "boolean") {
      value = Json::boolean(draw.below(2) == 0);
    } else if (option.type == "integer") {
      value = Json::number(std::to_string(draw.below(5)));
    } else {
      continue;
    }
    // One may not be allowed beside the others.
    if (const auto changed = read_if_allowed(scenario, {.options = {{option.name, {}, value}}})) scenario = *changed;
  }
  return scenario;
}

}  // namespace

TEST_CASE("random schedules with numbers put in are those that are read with them", "[parametric][expansion]") {
  Totals totals;
  Draw draw(drawn_seed());
  const auto seeds = static_cast<int>(test::cases(60));
  for (int seed = 0; seed < seeds; ++seed) {
    const unsigned number = drawn_seed() * 100'000 + static_cast<unsigned>(seed);
    if (const auto scenario = read("random " + std::to_string(number), test::RandomScenario(number).make()))
      compare(*scenario, 3, draw, totals);
  }
  totals.print("random schedules");
  CHECK(totals.layouts >= seeds);
}

TEST_CASE("frameworks with random options and numbers put in are those that are read with them",
          "[parametric][expansion]") {
  Totals totals;
  Draw draw(drawn_seed());
  const std::vector<std::string> models = {
      R"({ "preset": "gpt", "layers": 4, "hidden": 16, "heads": 4, "vocab": 32, "positions": 64 })",
      R"({ "preset": "llama", "layers": 4, "hidden": 16, "heads": 4, "query_groups": 2, "ffn": 24, "vocab": 32 })",
      R"({ "preset": "moe", "layers": 2, "hidden": 16, "heads": 4, "query_groups": 2, "ffn": 24, "moe_ffn": 8,
           "vocab": 32, "experts": 4 })",
      R"({ "parameters": [ { "name": "embed.weight", "shape": [48, 12], "stage": 0, "tied": "t" },
           { "name": "layer.weight", "shape": [24, 5], "stage": 0, "tags": ["layernorm"] },
           { "name": "head.weight", "shape": [48, 12], "stage": -1, "tied": "t" } ] })"};
  const std::vector<std::string> layouts = {R"({ "dp": 2 })", R"({ "dp": 2, "tp": 2 })", R"({ "dp": 2, "pp": 2 })",
                                            R"({ "dp_shard": 2, "dp_replicate": 2 })", R"({ "dp": 4, "cp": 2 })"};
  const auto rounds = static_cast<int>(test::cases(4, 4));
  for (const std::string& framework : builtin_frameworks()) {
    for (int round = 0; round < rounds; ++round) {
      const std::string& model = models[static_cast<std::size_t>(draw.below(static_cast<int>(models.size())))];
      const std::string& layout = layouts[static_cast<std::size_t>(draw.below(static_cast<int>(layouts.size())))];
      const auto scenario = read(framework, R"({ "lockstep": 1, "layout": )" + layout + R"(, "model": )" + model +
                                                R"(, "schedule": { "framework": ")" + framework + R"(" } })");
      if (scenario) compare(with_drawn_options(*scenario, draw), 3, draw, totals);
    }
  }
  totals.print("frameworks");
  CHECK(totals.layouts >= rounds);
}

TEST_CASE("files of the corpus with numbers put in are those that are read with them", "[parametric][expansion]") {
  Totals totals;
  Draw draw(drawn_seed());
  std::vector<std::string> files = test::corpus();
  std::shuffle(files.begin(), files.end(), std::mt19937(drawn_seed()));
  files.resize(std::min<std::size_t>(files.size(), test::cases(60)));
  for (const std::string& file : files) {
    try {
      compare(with_drawn_options(read_scenario_file(file), draw), 3, draw, totals);
    } catch (const InputError&) {
      continue;  // a file that is meant to be no scenario
    }
  }
  totals.print("the corpus");
  CHECK(totals.layouts >= static_cast<int>(files.size()) / 2);
}
