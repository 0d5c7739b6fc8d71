// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/moved_references.h"

#include <fmt/format.h>

#include "lockstep/diagnostic.h"
#include "lockstep/scenario.h"
#include "src/scenario/allowed_files.h"
#include "src/scenario/named_file.h"

namespace lockstep::scenario {

namespace {

namespace fs = std::filesystem;

/// The same file as seen from another folder.
std::string path_from(const fs::path& folder, const fs::path& file) {
  std::error_code error;
  const std::string path = fs::relative(file, folder.empty() ? "." : folder, error).generic_string();
  if (error || path.empty()) return fs::absolute(file).generic_string();
  return path.starts_with("../") ? path : "./" + path;
}

}  // namespace

std::vector<MovedReference> moved_references(const Json& document, const std::string& file, const fs::path& folder) {
  const fs::path home = file == standard_input_name ? fs::path() : fs::path(file).parent_path();
  std::error_code error;
  if (fs::equivalent(home.empty() ? "." : home, folder.empty() ? "." : folder, error)) return {};
  std::vector<MovedReference> moved;
  for (const auto& [part, key] : {std::pair("schedule", "framework"), {"model", "preset"}}) {
    const Json* written = document.find(part);
    const Json* reference = written == nullptr ? nullptr : written->find(key);
    if (reference == nullptr || !reference->is_string() || !is_path(reference->text())) continue;
    const fs::path there = home / reference->text();
    std::string why;
    if (access_to(there, folder, why) == FileAccess::refused)
      throw InputError(
          {Diagnostic{reference->place(), fmt::format("a scenario in \"{}\" could not name the file \"{}\", which {}",
                                                      folder.empty() ? "." : folder.string(), there.string(), why)}});
    if (fs::path(reference->text()).is_absolute()) continue;
    moved.push_back({part, key, Json::string(path_from(folder, there), reference->place())});
  }
  // Which editors alone read.
  const Json* schema = document.find("$schema");
  if (schema != nullptr && schema->is_string() && !schema->text().empty() && !schema->text().starts_with('#') &&
      fs::path(schema->text()).is_relative() && schema->text().find(':') == std::string::npos)
    moved.push_back({"", "$schema", Json::string(path_from(folder, home / schema->text()), schema->place())});
  return moved;
}

Json with_references_from(const Json& document, const std::string& file, const fs::path& folder) {
  Json result = document;
  for (const MovedReference& one : moved_references(document, file, folder)) {
    if (one.part.empty()) {
      result.set(one.key, one.path);
      continue;
    }
    Json changed = *result.find(one.part);
    changed.set(one.key, one.path);
    result.set(one.part, changed);
  }
  return result;
}

}  // namespace lockstep::scenario
