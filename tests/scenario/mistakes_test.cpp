// SPDX-License-Identifier: Apache-2.0
// Error texts are an interface: mistakes.txt holds scenarios with mistakes and, to the character, what is said about
// them.
#include "tests/scenario/mistakes.h"

#include <cstdlib>
#include <fstream>

#include "tests/catch.h"

namespace {

struct Case {
  std::string title;
  std::map<std::string, std::string> parts;
  std::string expected;
};

/// Blocks of "# title", "part: JSON" and "> message" lines.
std::vector<Case> read_cases(const std::string& path) {
  std::ifstream stream(path);
  std::vector<Case> cases;
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind("# ", 0) == 0) {
      cases.push_back({line.substr(2), {}, ""});
    } else if (line.rfind("> ", 0) == 0) {
      cases.back().expected += line.substr(2) + "\n";
    } else if (!line.empty()) {
      const std::size_t colon = line.find(": ");
      REQUIRE(colon != std::string::npos);
      cases.back().parts[line.substr(0, colon)] = line.substr(colon + 2);
    }
  }
  return cases;
}

}  // namespace

TEST_CASE("the scenario that the mistakes are put into has none") { CHECK(mistakes_in(scenario_with({})) == ""); }

TEST_CASE("each mistake is reported at its place, in full, and once") {
  const std::string path = LOCKSTEP_SOURCE_DIR "/tests/scenario/mistakes.txt";
  const std::vector<Case> cases = read_cases(path);
  REQUIRE(cases.size() >= 40);
  for (const Case& test : cases) {
    INFO(test.title);
    CHECK(mistakes_in(scenario_with(test.parts)) == test.expected);
  }
  // With LOCKSTEP_UPDATE=1 the file is written anew, for a person to look at the difference.
  if (std::getenv("LOCKSTEP_UPDATE") == nullptr) return;
  std::ofstream stream(path);
  for (const Case& test : cases) {
    stream << "# " << test.title << "\n";
    for (const auto& [name, json] : test.parts) stream << name << ": " << json << "\n";
    std::string messages = mistakes_in(scenario_with(test.parts));
    for (std::size_t end = messages.find('\n'); end != std::string::npos; end = messages.find('\n')) {
      stream << "> " << messages.substr(0, end) << "\n";
      messages.erase(0, end + 1);
    }
    stream << "\n";
  }
}
