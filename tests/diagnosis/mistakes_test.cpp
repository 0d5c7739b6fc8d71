// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include "lockstep/mistake.h"
#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("kinds of mistakes stand in the order of the enumeration, each with a name of its own") {
  std::set<std::string_view> names;
  int number = 0;
  for (const Rule& rule : rules()) {
    CHECK(static_cast<int>(rule.mistake) == number++);
    CHECK(names.insert(rule.words).second);
    CHECK(name_of(rule.mistake) == rule.words);
  }
  CHECK(name_of(Mistake::wrong_placement) == "wrong placement");
}

TEST_CASE("rules have ids in order, names of their own, and sentences that fit where they are shown") {
  std::set<std::string_view> names;
  int number = 0;
  bool has_rule = true;
  for (const Rule& rule : rules()) {
    has_rule = has_rule && !rule.id.empty();
    CHECK(rule.id.empty() != has_rule);  // those without stand at the end
    if (!has_rule) continue;
    const std::string digits = std::to_string(++number);
    CHECK(rule.id == "LS" + std::string(3 - digits.size(), '0') + digits);
    CHECK(names.insert(rule.name).second);
    for (const std::string_view text : {rule.summary, rule.explanation, rule.repair}) {
      CHECK(text.size() > 10);
      CHECK(text.size() <= 1024);
      CHECK(text.ends_with('.'));
    }
  }
  CHECK(rule_of(Mistake::undecided).id == "LS017");
  CHECK(rule_of(Mistake::clipping).id == "LS018");
  CHECK(rule_of(Mistake::missing_reduction).id == "LS001");
  CHECK(rule_of(Mistake::race).name == "Race");
}
