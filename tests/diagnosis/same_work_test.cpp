// SPDX-License-Identifier: Apache-2.0
//
// The same file is cut off at the same place whatever was checked before it.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "lockstep/check.h"
#include "lockstep/scenario.h"
#include "src/base/budget.h"
#include "tests/cases.h"
#include "tests/catch.h"

// Under sanitizers what the C library takes for itself counts too: 32 bytes, once, for each variable of a thread that
// it has to destroy.
#if !LOCKSTEP_HAS_SANITIZERS

using namespace lockstep;

namespace {

/// Units of work that a check of the file's text takes.
std::int64_t work_for(const std::string& name, const std::string& text) {
  const Budget budget(std::int64_t{1} << 40);
  CheckOptions options;
  options.host = false;
  const auto source = std::make_shared<const Source>(Source{name, text});
  check_scenario(std::make_shared<const Scenario>(read_scenario(source)), options);
  return budget.spent();
}

}  // namespace

TEST_CASE("a check takes the same work whatever was checked before") {
  const std::filesystem::path root = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "scenarios";
  for (const char* name :
       {"megatron/844.json", "ddp/norm-of-a-shard.json", "deepspeed/8475-mean-of-expert-norms.json"}) {
    std::ifstream stream(root / name);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    REQUIRE_FALSE(text.empty());
    const std::int64_t first = work_for((root / name).string(), text);
    CHECK(work_for((root / name).string(), text) == first);
  }
}

#endif
