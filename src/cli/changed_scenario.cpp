// SPDX-License-Identifier: Apache-2.0
#include "src/cli/changed_scenario.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/cli/options.h"

namespace lockstep::cli {

namespace {

/// What stands behind the sign of a change, which is what mistakes in it are mistakes of.
Json value_of(const std::string& change, const std::string& text) {
  Diagnostics diagnostics;
  const auto source = std::make_shared<const Source>(Source{change, text});
  Json value = parse_json(source, diagnostics);
  return diagnostics.empty() ? value : Json::string(text, Place{source, 0, text.size(), ""});
}

std::vector<std::string> path_of(const std::string& key) {
  if (key == "framework") return {"schedule", "framework"};
  if (key.find('.') == std::string::npos) return {"schedule", "options", key};
  std::vector<std::string> path;
  for (std::size_t begin = 0; begin <= key.size();) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    path.push_back(key.substr(begin, end - begin));
    begin = end + 1;
  }
  return path;
}

/// `json` with the member at `path` from `depth` on set.
Json with(const Json& json, const std::vector<std::string>& path, std::size_t depth, const Json& value,
          const std::string& change) {
  if (depth == path.size()) return value;
  if (path[depth].empty()) usage_error(fmt::format("\"{}\" has an empty name between its dots", change));
  if (!json.is_object()) {
    const std::vector<std::string> above(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(depth));
    usage_error(fmt::format("\"{}\" cannot be set: \"{}\" is {}, which has no members", change, fmt::join(above, "."),
                            json.describe()));
  }
  Json result = json;
  const Json* inner = json.find(path[depth]);
  result.set(path[depth], with(inner != nullptr ? *inner : Json::object(), path, depth + 1, value, change));
  return result;
}

}  // namespace

Scenario read_changed_scenario(const std::string& file, const std::vector<std::string>& changes) {
  Scenario scenario = read_scenario_file(file);
  if (changes.empty()) return scenario;
  Json document = scenario.document;
  for (const std::string& change : changes) {
    const std::size_t sign = change.find('=');
    if (sign == std::string::npos || sign == 0)
      usage_error(fmt::format("a change is KEY=VALUE, such as use_distributed_optimizer=true, found \"{}\"", change));
    document = with(document, path_of(change.substr(0, sign)), 0, value_of(change, change.substr(sign + 1)), change);
  }
  // Its own expectations are those of the file as it is.
  document.remove("expect");
  return read_scenario(document, file);
}

}  // namespace lockstep::cli
