// SPDX-License-Identifier: Apache-2.0
// What fuzzing has found, kept: every file of regressions/ is run again. NAME.parse, NAME.engine and NAME.run say by
// which target.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/fuzz/fuzz.h"

namespace {

void replay(const std::string& extension, void (*run)(std::string_view)) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/tests/fuzz/regressions")) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  REQUIRE(!files.empty());
  for (const std::filesystem::path& file : files) {
    INFO(file.filename().string());
    std::ifstream stream(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    CHECK_NOTHROW(run(bytes));
  }
}

}  // namespace

TEST_CASE("what fuzzing of the parsers found stays mended") { replay(".parse", lockstep::fuzz::parse); }

TEST_CASE("what fuzzing of captured runs found stays mended") { replay(".run", lockstep::fuzz::read_runs); }

TEST_CASE("what fuzzing of the engines found stays mended") { replay(".engine", lockstep::fuzz::run_engines); }
