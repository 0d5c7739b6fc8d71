// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/known_references.h"

#include <limits>
#include <thread>

#include "src/base/budget.h"
#include "src/transformer/generator.h"
#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::transformer;

namespace {

std::vector<Sequence> one_sequence(double weight) {
  Sequence sequence;
  sequence.tokens = {1, 2, 3};
  sequence.weights = {weight, 1};
  return {sequence};
}

}  // namespace

TEST_CASE("the gradient of one device is computed once for each model, seed and data") {
  KnownReferences references;
  const Config config;
  Config other = config;
  other.tied = false;
  const std::vector<Sequence> sequences = one_sequence(1);
  const auto first = references.get(config, 0, sequences);
  CHECK(first->gradient == rounded_gradient(config, initial_parameters(config, 0), sequences).gradient);
  CHECK(references.get(config, 0, sequences) == first);
  CHECK(references.get(config, 1, sequences) != first);
  CHECK(references.get(other, 0, sequences) != first);
  CHECK(references.get(config, 0, one_sequence(2)) != first);
}

TEST_CASE("threads that ask at once for the same gradient get the same") {
  KnownReferences references;
  std::shared_ptr<const RoundedGradient> found;
  std::thread thread([&] { found = references.get(Config(), 0, one_sequence(1)); });
  const auto own = references.get(Config(), 0, one_sequence(1));
  thread.join();
  CHECK(found == own);
}

TEST_CASE("a gradient that was known costs a budget what it took to compute") {
  KnownReferences references;
  std::vector<std::int64_t> spent;
  for (int time = 0; time < 2; ++time) {
    const Budget budget(std::numeric_limits<std::int64_t>::max());
    references.get(Config(), 0, one_sequence(1));
    Budget::checkpoint();
    spent.push_back(budget.spent());
  }
  CHECK(spent[0] > 1000);
  // But for what it takes to look it up.
  CHECK(static_cast<double>(spent[1]) > 0.9 * static_cast<double>(spent[0]));
  CHECK(spent[1] <= spent[0]);
}

TEST_CASE("of many gradients the last ones are known") {
  KnownReferences references;
  const auto first = references.get(Config(), 0, one_sequence(1));
  for (int other = 2; other < 40; ++other) references.get(Config(), 0, one_sequence(other));
  const auto again = references.get(Config(), 0, one_sequence(1));
  CHECK(again != first);
  CHECK(again->gradient == first->gradient);
}
