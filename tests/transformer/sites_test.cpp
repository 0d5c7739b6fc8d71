// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/sites.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "tests/catch.h"

using lockstep::transformer::Site;
using lockstep::transformer::sites;

namespace {

const char* name_of(Site::Kind kind) {
  switch (kind) {
    case Site::Kind::sum:
      return "sum";
    case Site::Kind::gather:
      return "gather";
    case Site::Kind::exchange:
      return "exchange";
    case Site::Kind::message:
      return "message";
    case Site::Kind::positions:
      return "positions";
    case Site::Kind::part:
      return "part";
  }
  return "";
}

}  // namespace

TEST_CASE("docs/transformer.md lists the communication sites as they are") {
  std::string table = "| site | kind | what it is |\n|---|---|---|\n";
  for (const Site& site : sites())
    table += fmt::format("| `{}` | {} | {} |\n", site.name, name_of(site.kind), site.help);
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/docs/transformer.md");
  std::stringstream text;
  text << file.rdbuf();
  INFO("the table should be:\n" << table);
  CHECK(text.str().find("\n" + table) != std::string::npos);
}
