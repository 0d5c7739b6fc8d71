// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/builtin.h"

#include "lockstep/scenario.h"

namespace lockstep {

namespace {

const std::string* find(const std::map<std::string, std::string>& files, std::string_view name) {
  const auto found = files.find(std::string(name));
  return found != files.end() ? &found->second : nullptr;
}

std::vector<std::string> names_of(const std::map<std::string, std::string>& files) {
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.first);
  return names;
}

}  // namespace

const std::string* builtin_framework(std::string_view name) { return find(scenario::embedded_frameworks(), name); }
const std::string* builtin_model(std::string_view name) { return find(scenario::embedded_models(), name); }
std::vector<std::string> builtin_frameworks() { return names_of(scenario::embedded_frameworks()); }
std::vector<std::string> builtin_models() { return names_of(scenario::embedded_models()); }

}  // namespace lockstep
