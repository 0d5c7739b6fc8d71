// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/engines.h"

#include <set>

#include "lockstep/diagnostic.h"
#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("every engine has one row, is asked for by its name alone, and can be compared with one above it") {
  std::set<std::string_view> names;
  bool first = true;
  for (const diagnosis::EngineRow& row : diagnosis::engine_table()) {
    INFO(row.name);
    CHECK(names.insert(row.name).second);
    CHECK_FALSE(row.help.empty());
    REQUIRE(row.run != nullptr);
    CHECK((row.compare == nullptr) == first);  // nothing stands above the first
    first = false;
    if (row.ask == nullptr) continue;
    CheckOptions options;
    options.symbolic = options.host = false;
    row.ask(options);
    for (const diagnosis::EngineRow& other : diagnosis::engine_table())
      CHECK(other.is_asked(options) == (&other == &row));
  }
  CHECK_THROWS_AS(diagnosis::engine_row("device"), InternalError);
}

TEST_CASE("the engines of a check without options are those that run by default") {
  for (const diagnosis::EngineRow& row : diagnosis::engine_table()) {
    INFO(row.name);
    CHECK(row.is_asked(CheckOptions{}) == row.by_default);
  }
}

TEST_CASE("names that need processes or GPUs come last") {
  const std::vector<std::string> here = diagnosis::engine_names(false), all = diagnosis::engine_names(true);
  REQUIRE(all.size() == diagnosis::engine_table().size());
  REQUIRE(here.size() < all.size());
  CHECK(std::vector<std::string>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(here.size())) == here);
}

TEST_CASE("what engines found stands in the order of the table, once each, and what was left out outlives it") {
  CheckResult result;
  diagnosis::leave_out(result, "host", "too much");
  for (const char* name : {"transformer", "symbolic", "mpi", "symbolic"}) {
    EngineResult found;
    found.name = name;
    found.seconds = static_cast<double>(result.engines.size());
    diagnosis::keep(result, found);
  }
  std::vector<std::string_view> names;
  names.reserve(result.engines.size());
  for (const EngineResult& engine : result.engines) names.push_back(engine.name);
  CHECK(names == std::vector<std::string_view>{"symbolic", "host", "mpi", "transformer"});
  CHECK(result.engines.front().seconds == 4);  // the second one is kept
  diagnosis::forget_engines(result);
  REQUIRE(result.engines.size() == 1);
  CHECK(result.engines.front().left_out == "too much");
}
