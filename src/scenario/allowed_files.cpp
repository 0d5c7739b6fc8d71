// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/allowed_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <vector>

namespace lockstep::scenario {

namespace fs = std::filesystem;

namespace {

std::mutex included_mutex;
std::vector<fs::path> included;

/// Without links; what does not exist keeps its spelling.
fs::path followed(const fs::path& path, std::error_code& error) {
  const fs::path from_root = fs::absolute(path.empty() ? fs::path(".") : path, error);
  return error ? fs::path() : fs::weakly_canonical(from_root, error);
}

/// The part of `file` behind `folder`, "." for the folder; empty where it is not below it. Both without links.
fs::path below(const fs::path& file, const fs::path& folder) {
  const fs::path rest = file.lexically_relative(folder);
  return rest.empty() || *rest.begin() == ".." ? fs::path() : rest;
}

bool is_in_git(const fs::path& rest) { return std::find(rest.begin(), rest.end(), fs::path(".git")) != rest.end(); }

/// The nearest folder with ".git"; empty where there is none.
fs::path repository_of(fs::path folder) {
  std::error_code error;
  for (;; folder = folder.parent_path()) {
    if (fs::exists(folder / ".git", error)) return folder;
    if (folder == folder.parent_path()) return {};
  }
}

bool is_included(const fs::path& file) {
  const std::lock_guard lock(included_mutex);
  return std::any_of(included.begin(), included.end(),
                     [&](const fs::path& folder) { return !below(file, folder).empty(); });
}

}  // namespace

void include_files_below(const fs::path& folder) {
  std::error_code error;
  const fs::path whole = followed(folder, error);
  if (error) return;
  const std::lock_guard lock(included_mutex);
  included.push_back(whole);
}

bool is_of_the_system(const fs::path& path) {
  std::error_code error;
  const fs::path file = followed(path, error);
  if (error || !below(file, "/dev/shm").empty()) return false;  // that is memory for everybody
  static constexpr const char* folders[] = {"/dev", "/proc", "/sys"};
  return std::any_of(std::begin(folders), std::end(folders),
                     [&](const char* folder) { return !below(file, folder).empty(); });
}

FileAccess access_to(const fs::path& path, const fs::path& home, std::string& why) {
  std::error_code error;
  const fs::path file = followed(path, error);
  const fs::path folder = error ? fs::path() : followed(home, error);
  if (error) {
    why = fmt::format("cannot be found: {}", error.message());
    return FileAccess::refused;
  }
  if (is_of_the_system(file)) {
    why = "is a file of the system, which no scenario is made of";
    return FileAccess::refused;
  }
  const fs::path repository = repository_of(folder);
  for (const fs::path& root : {folder, repository}) {
    const fs::path rest = root.empty() ? fs::path() : below(file, root);
    if (rest.empty()) continue;
    if (!is_in_git(rest)) return FileAccess::own;
    why = "lies in \".git\", where no scenario may read";
    return FileAccess::refused;
  }
  if (is_included(file)) return FileAccess::included;
  why = fmt::format("lies outside of the scenario's folder{}; `--include FOLDER` allows the files below FOLDER",
                    repository.empty() ? "" : " and repository");
  return FileAccess::refused;
}

bool leads_outside(const fs::path& path) {
  // "/dev/stdin" and what a shell puts in place of "<(command)": a word of the user's own.
  if (is_of_the_system(path.parent_path())) return false;
  std::string why;
  return access_to(path, fs::path(path).parent_path(), why) != FileAccess::own;
}

}  // namespace lockstep::scenario
