// SPDX-License-Identifier: Apache-2.0
#include "src/cli/watched_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>

#include "lockstep/diagnostic.h"
#include "lockstep/json.h"
#include "src/cli/files.h"
#include "src/scenario/named_file.h"

namespace lockstep::cli {

namespace {

constexpr std::int64_t second_ns = 1'000'000'000;

/// Paths of a scenario's own framework and model files. A file with mistakes names what can be made out.
std::vector<std::string> named_by(const std::string& file) {
  std::string error;
  const std::optional<std::string> text = scenario::read_text_file(file, error);
  if (!text) return {};
  Diagnostics ignored;
  const Json document = parse_json(std::make_shared<const Source>(Source{file, *text}), ignored);
  std::vector<std::string> paths;
  const auto add = [&](const char* section, const char* key) {
    const Json* part = document.is_object() ? document.find(section) : nullptr;
    const Json* name = part != nullptr && part->is_object() ? part->find(key) : nullptr;
    if (name == nullptr || !name->is_string()) return;
    const std::string& reference = name->text();
    if (reference.find('/') == std::string::npos && !reference.ends_with(".json") && !reference.ends_with(".jsonc"))
      return;
    paths.push_back((std::filesystem::path(file).parent_path() / reference).lexically_normal().string());
  };
  add("schedule", "framework");
  add("model", "preset");
  return paths;
}

}  // namespace

FileState state_of(const std::string& path) {
  FileState state;
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return state;
  if (!S_ISREG(status.st_mode)) return state;  // a pipe: reading it would wait for whoever writes
  state.exists = true;
  state.modified_ns = std::int64_t{status.st_mtim.tv_sec} * second_ns + status.st_mtim.tv_nsec;
  state.size = static_cast<std::uint64_t>(status.st_size);
  state.inode = status.st_ino;
  // Two changes within one tick of the file system's clock leave the same time.
  if (std::time(nullptr) - status.st_mtim.tv_sec > 2) return state;
  std::string error;
  const std::optional<std::string> text = scenario::read_text_file(path, error);
  if (text) state.content = std::hash<std::string>()(*text) | 1U;
  return state;
}

void WatchedFiles::look() {
  files_.clear();
  for (const std::string& argument : arguments_) {
    try {
      for (std::string& file : scenario_files({argument})) {
        std::error_code error;
        if (std::filesystem::is_other(file, error)) continue;  // a pipe came in its place
        if (std::find(files_.begin(), files_.end(), file) == files_.end()) files_.push_back(std::move(file));
      }
    } catch (const InputError&) {
      // Gone, perhaps for the moment in which an editor puts another in its place.
    }
  }
  std::map<std::string, Watched> now;
  for (const std::string& file : files_) {
    Watched& watched = now[file];
    const auto before = watched_.find(file);
    const FileState state = state_of(file);
    const bool same = before != watched_.end() && before->second.states.front() == state;
    watched.named = same ? before->second.named : named_by(file);
    watched.states = {state};
    for (const std::string& path : watched.named) watched.states.push_back(state_of(path));
  }
  watched_ = std::move(now);
}

}  // namespace lockstep::cli
