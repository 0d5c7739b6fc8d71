// SPDX-License-Identifier: Apache-2.0
#include "src/report/rules.h"

#include <set>

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("rules have ids in order, names of their own, and sentences that fit where they are shown") {
  std::set<std::string_view> names;
  int number = 0;
  for (const Rule& rule : rules()) {
    const std::string digits = std::to_string(++number);
    CHECK(rule.id == "LS" + std::string(3 - digits.size(), '0') + digits);
    CHECK(names.insert(rule.name).second);
    for (const std::string_view text : {rule.summary, rule.explanation, rule.repair}) {
      CHECK(text.size() > 10);
      CHECK(text.size() <= 1024);
      CHECK(text.ends_with('.'));
    }
  }
  CHECK(rule_of(RuleKind::undecided).id == rules().back().id);
  CHECK(rule_of(RuleKind::missing_reduction).id == "LS001");
  CHECK(rule_of(RuleKind::race).name == "Race");
}

TEST_CASE("the page of a rule is looked up where the documents are, and nowhere without") {
  CHECK(rule_url(rules().front(), "https://host/docs") == "https://host/docs/rules/LS001.md");
  CHECK(rule_url(rules().front(), "").empty());
}
