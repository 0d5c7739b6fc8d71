// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/generator.h"

#include <algorithm>

#include "tests/catch.h"

using namespace lockstep::transformer;

TEST_CASE("as many tokens are drawn as are asked for, each of the vocabulary, others for each sequence") {
  Config config;
  config.vocab = 32;
  const std::vector<int> tokens = random_tokens(config, 1, 0, 100);
  CHECK(tokens.size() == 100);
  CHECK(std::all_of(tokens.begin(), tokens.end(), [](int token) { return token >= 0 && token < 32; }));
  CHECK(random_tokens(config, 1, 0, 100) == tokens);
  CHECK(random_tokens(config, 1, 1, 100) != tokens);
  CHECK(random_tokens(config, 1, 0, 0).empty());
}
