// SPDX-License-Identifier: Apache-2.0
#include "lockstep/shared.h"

#include <string>
#include <vector>

#include "tests/catch.h"

using lockstep::Shared;

TEST_CASE("A shared value that was given none is the default one") {
  const Shared<std::string> nothing;
  CHECK(nothing->empty());
  CHECK(&*nothing == &*Shared<std::string>());
  CHECK(nothing == Shared<std::string>(std::string()));
}

TEST_CASE("Copies share a value until one of them is changed") {
  Shared<std::vector<int>> one(std::vector<int>{1});
  Shared<std::vector<int>> other = one;
  CHECK(&*one == &*other);
  other.own().push_back(2);
  CHECK(*one == std::vector<int>{1});
  CHECK(*other == std::vector<int>{1, 2});
  CHECK_FALSE(one == other);
  const std::vector<int>* alone = &*other;
  other.own().push_back(3);
  CHECK(&*other == alone);
  one.own() = {1, 2, 3};
  CHECK(one == other);
}

TEST_CASE("A change of a default value leaves other defaults as they are") {
  Shared<std::string> one;
  one.own() = "changed";
  CHECK(Shared<std::string>()->empty());
}
