// SPDX-License-Identifier: Apache-2.0
#include "src/cli/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "lockstep/diagnostic.h"
#include "lockstep/json.h"
#include "src/scenario/named_file.h"

namespace lockstep::cli {

namespace fs = std::filesystem;

namespace {

/// Whether it is a framework or model file, which scenarios name and nobody checks by itself.
bool is_named_by_scenarios(const fs::path& path) {
  std::string error;
  const std::optional<std::string> text = read_text_file(path, error);
  const auto has = [&](const char* word) { return text->find(word) != std::string::npos; };
  if (!text || (!has("\"lockstep_framework\"") && !has("\"lockstep_model\""))) return false;
  Diagnostics diagnostics;
  const Json document = parse_json(std::make_shared<const Source>(Source{path.string(), *text}), diagnostics);
  return document.find("lockstep_framework") != nullptr || document.find("lockstep_model") != nullptr;
}

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> files;
  for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry) {
    const fs::path& path = entry->path();
    const bool hidden = path.filename().native().starts_with(".");
    if (entry->is_directory()) {
      if (hidden) entry.disable_recursion_pending();
      continue;
    }
    if (entry->is_other()) continue;  // a pipe, which nobody may ever write to
    const fs::path extension = path.extension();
    if (hidden || (extension != ".json" && extension != ".jsonc") || is_named_by_scenarios(path)) continue;
    files.push_back(path.lexically_normal().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// A name in the same folder that was perhaps meant.
std::string near_name(const fs::path& path, const std::vector<std::string>& endings) {
  const fs::path folder = path.parent_path().empty() ? fs::path(".") : path.parent_path();
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  // Endings are easily left out.
  for (const std::string& ending : endings) {
    const std::string whole = path.filename().string() + ending;
    if (std::find(names.begin(), names.end(), whole) != names.end())
      return fmt::format("; did you mean \"{}\"?", whole);
  }
  return did_you_mean(path.filename().string(), names);
}

}  // namespace

std::vector<std::string> scenario_files(const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  std::set<std::string> seen;
  std::vector<Diagnostic> missing;
  for (const std::string& argument : arguments) {
    std::error_code error;
    const fs::file_status status = fs::status(argument, error);
    if (!fs::exists(status)) {
      missing.push_back({{},
                         argument.empty()  ? "an empty name was given where a file or folder was expected"
                         : argument == "-" ? "there is no file or folder -; standard input is called /dev/stdin"
                                           : fmt::format("there is no file or folder {}{}", argument,
                                                         near_name(argument, {".json", ".jsonc"}))});
      continue;
    }
    std::vector<std::string> found;
    try {
      found = fs::is_directory(status) ? files_in(argument) : std::vector<std::string>{argument};
    } catch (const fs::filesystem_error& failure) {
      missing.push_back({{}, fmt::format("cannot read the folder {}: {}", argument, failure.code().message())});
    }
    for (std::string& file : found) {
      if (seen.insert(file).second) files.push_back(std::move(file));
    }
  }
  if (!missing.empty()) throw InputError(std::move(missing));
  return files;
}

void check_files_exist(const std::vector<std::string>& files, const std::vector<std::string>& endings) {
  std::vector<Diagnostic> missing;
  for (const std::string& file : files) {
    std::error_code error;
    if (!fs::exists(fs::status(file, error)) && !file.empty())
      missing.push_back({{}, fmt::format("{}: there is no such file{}", file, near_name(file, endings))});
  }
  if (!missing.empty()) throw InputError(std::move(missing));
}

}  // namespace lockstep::cli
