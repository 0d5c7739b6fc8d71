// SPDX-License-Identifier: Apache-2.0
#include "src/base/budget.h"

#include <string>
#include <thread>

#include "tests/catch.h"

using lockstep::Budget;
using lockstep::OverBudget;
using lockstep::Rational;

namespace {

/// What the budget says when it is used up, "" where it is not.
std::string said_of(std::int64_t units) {
  try {
    Budget::spend(units);
  } catch (const OverBudget& over) {
    return over.what();
  }
  return "";
}

}  // namespace

TEST_CASE("without a budget all may be spent") { CHECK(said_of(std::int64_t{1} << 62).empty()); }

TEST_CASE("a budget is used up by the first unit that it does not have, and stays so") {
  const Budget budget(1500);
  CHECK(said_of(1500).empty());
  CHECK(said_of(1) == "it would take more than 1500 units of work");
  CHECK(said_of(0) == "it would take more than 1500 units of work");
  CHECK(said_of(std::int64_t{1} << 62) == "it would take more than 1500 units of work");
  CHECK(said_of(std::int64_t{1} << 62) == "it would take more than 1500 units of work");
}

TEST_CASE("what is spent in a budget is spent of those around it, and no more once it is gone") {
  const Budget outer(20'000'000);
  {
    const Budget inner(10);
    CHECK(said_of(11) == "it would take more than 10 units of work");
    CHECK(inner.spent() == 11);
  }
  CHECK(outer.spent() == 11);
  {
    const Budget inner(Budget::proof);
    CHECK(said_of(20'000'000) == "it would take more than 20 million units of work");
  }
  CHECK_FALSE(said_of(0).empty());
}

TEST_CASE("the innermost place is told") {
  const Budget budget(1);
  const std::string outer = "mean", inner = "\"a\"";
  const Budget::Place mean("step", outer);
  {
    const Budget::Place a("step", inner);
    CHECK(said_of(2) == "it would take more than 1 units of work in step \"\"a\"\"");
  }
  CHECK(said_of(0) == "it would take more than 1 units of work in step \"mean\"");
}

TEST_CASE("each thread has its own budgets") {
  const Budget budget(1);
  std::string said = "nothing";
  std::thread([&] { said = said_of(100); }).join();
  CHECK(said.empty());
  CHECK(budget.spent() == 0);
}

TEST_CASE("work with a long number costs its digits squared") {
  const Budget budget(1'000'000);
  spend_on(Rational(1, 3));
  CHECK(budget.spent() == 0);
  spend_on(*Rational::parse("1e300"));
  const std::int64_t once = budget.spent();
  CHECK(once > 0);
  spend_on(Rational(1) / *Rational::parse("1e300"));
  CHECK(budget.spent() == 2 * once);
  spend_on(*Rational::parse("1e300") * *Rational::parse("1e300"));
  CHECK(budget.spent() > 5 * once);
}
