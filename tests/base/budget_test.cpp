// SPDX-License-Identifier: Apache-2.0
#include "src/base/budget.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/base/allocations.h"
#include "tests/catch.h"

using lockstep::allocations_of_thread;
using lockstep::Budget;
using lockstep::OverBudget;
using lockstep::Rational;

namespace {

/// What the budget says when it is used up, "" where it is not. What the test itself allocates does not count.
std::string said_of(std::int64_t units) {
  try {
    allocations_of_thread.units = 0;
    Budget::spend(units);
  } catch (const OverBudget& over) {
    std::string said = over.what();
    allocations_of_thread.units = 0;
    return said;
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
    CHECK(inner.spent() >= 11);
    allocations_of_thread.units = 0;
  }
  CHECK(outer.spent() >= 11);
  {
    const Budget inner(Budget::file);
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
  const auto cost_of = [&](const Rational& number) {
    const std::int64_t before = budget.spent();
    allocations_of_thread.units = 0;
    spend_on(number);
    return budget.spent() - before;
  };
  CHECK(cost_of(Rational(1, 3)) == 0);
  const Rational large = *Rational::parse("1e300");
  const std::int64_t once = cost_of(large);
  CHECK(once > 0);
  CHECK(cost_of(Rational(1) / large) == once);
  CHECK(cost_of(large * large) > 3 * once);
}

TEST_CASE("an allocation costs a unit, and one of many bytes more") {
  const Budget budget(1'000'000);
  Budget::checkpoint();
  const std::int64_t before = budget.spent();
  const auto small = std::make_unique<int>(1);
  Budget::checkpoint();
  CHECK(budget.spent() == before + 1);
  const std::vector<char> large(64'000);
  Budget::checkpoint();
  CHECK(budget.spent() == before + 1 + 1001);
}

TEST_CASE("what was allocated before a budget began is not paid by it") {
  std::vector<std::unique_ptr<int>> many(200);
  for (std::unique_ptr<int>& one : many) one = std::make_unique<int>(1);
  const Budget budget(100);
  CHECK_NOTHROW(Budget::checkpoint());
  CHECK(budget.spent() < 100);
}

TEST_CASE("what was allocated is paid at the next checkpoint, and not where it was allocated") {
  const Budget budget(100);
  Budget::checkpoint();
  std::vector<std::unique_ptr<int>> many(10);
  CHECK_NOTHROW([&] {
    for (int i = 0; i < 200; ++i) many[static_cast<std::size_t>(i % 10)] = std::make_unique<int>(i);
  }());
  CHECK_THROWS_AS(Budget::checkpoint(), OverBudget);
}

TEST_CASE("memory that lives counts from the begin of the outermost budget, until it is given back") {
  // Not written to, so that no page of it is taken.
  const auto taken = [](std::size_t bytes) {
    std::vector<char> memory;
    memory.reserve(bytes);
    return memory;
  };
  constexpr std::size_t most = 2'999'000'000;
  const std::vector<char> before = taken(most);
  const Budget outer(Budget::file);
  CHECK(said_of(0).empty());
  const std::string name = "mean";
  const Budget::Place place("step", name);
  {
    const std::vector<char> first = taken(most);
    CHECK(said_of(0).empty());
    const Budget inner(Budget::file);
    const std::vector<char> second = taken(2'000'000);
    CHECK(said_of(0) == "it would take more than 3 GB of memory in step \"mean\"");
  }
  CHECK(said_of(0).empty());
}

TEST_CASE("a budget inside may allow less memory, which counts from the begin of the outermost one as well") {
  const auto taken = [](std::size_t bytes) {
    std::vector<char> memory;
    memory.reserve(bytes);
    return memory;
  };
  const Budget outer(Budget::file);
  const std::vector<char> before = taken(600'000'000);
  {
    const Budget proof(Budget::proof, Budget::memory_of_a_proof);
    CHECK(said_of(0).empty());
    const std::vector<char> more = taken(600'000'000);
    CHECK(said_of(0) == "it would take more than 1 GB of memory");
  }
  const std::vector<char> more = taken(600'000'000);
  CHECK(said_of(0).empty());
}

TEST_CASE("whole millions of units are told as such") {
  CHECK(lockstep::units_text(999'999) == "999999");
  CHECK(lockstep::units_text(20'000'000) == "20 million");
  CHECK(lockstep::units_text(1'500'000) == "1500000");
  CHECK(lockstep::units_text(0) == "0");
}
