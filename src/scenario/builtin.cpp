// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/builtin.h"

#include "lockstep/scenario.h"
#include "src/base/budget.h"

namespace lockstep {

namespace {

const std::string* find(const std::map<std::string, std::string>& files, std::string_view name) {
  const auto found = files.find(std::string(name));
  return found != files.end() ? &found->second : nullptr;
}

std::vector<std::string> names_of(const std::map<std::string, std::string>& files) {
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const auto& file : files) names.push_back(file.first);
  return names;
}

/// They are unpacked when they are first asked for.
const std::map<std::string, std::string>& frameworks() {
  const Budget::Uncounted for_none;
  return scenario::embedded_frameworks();
}
const std::map<std::string, std::string>& models() {
  const Budget::Uncounted for_none;
  return scenario::embedded_models();
}

}  // namespace

const std::string* builtin_framework(std::string_view name) { return find(frameworks(), name); }
const std::string* builtin_model(std::string_view name) { return find(models(), name); }
std::vector<std::string> builtin_frameworks() { return names_of(frameworks()); }
std::vector<std::string> builtin_models() { return names_of(models()); }

}  // namespace lockstep
