// SPDX-License-Identifier: Apache-2.0
#include "src/cli/glob.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>

namespace lockstep::cli {

namespace fs = std::filesystem;

namespace {

std::vector<std::string> parts_of(const std::string& pattern) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < pattern.size();) {
    const std::size_t end = std::min(pattern.find('/', begin), pattern.size());
    if (end > begin) parts.push_back(pattern.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  fs::directory_iterator entry(folder.empty() ? fs::path(".") : folder, error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) entries.push_back(*entry);
  return entries;
}

class Expansion {
 public:
  explicit Expansion(const std::string& pattern) : parts_(parts_of(pattern)) {
    below(pattern.front() == '/' ? fs::path("/") : fs::path(), 0);
  }

  std::vector<std::string> take() {
    std::sort(found_.begin(), found_.end());
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());  // `**/**` finds each in several ways
    return std::move(found_);
  }

 private:
  void below(const fs::path& folder, std::size_t part) {
    std::error_code error;
    if (part == parts_.size()) {
      found_.push_back(folder.string());
    } else if (parts_[part] == "**") {
      any_depth(folder, part);
    } else if (!is_glob(parts_[part])) {
      // Not by fnmatch: a folder that may be entered need not be one that may be listed.
      if (fs::exists(folder / parts_[part], error)) below(folder / parts_[part], part + 1);
    } else {
      for (const fs::directory_entry& entry : entries_of(folder)) {
        const std::string name = entry.path().filename().string();
        if (fnmatch(parts_[part].c_str(), name.c_str(), FNM_PERIOD) != 0) continue;
        if (part + 1 < parts_.size() && !entry.is_directory(error)) continue;
        below(folder / name, part + 1);
      }
    }
  }

  void any_depth(const fs::path& folder, std::size_t part) {
    std::error_code error;
    const bool last = part + 1 == parts_.size();
    if (!last) below(folder, part + 1);
    for (const fs::directory_entry& entry : entries_of(folder)) {
      const fs::path name = entry.path().filename();
      if (name.native().starts_with(".")) continue;
      const bool enters = entry.is_directory(error) && !entry.is_symlink(error);
      if (last && !enters) found_.push_back((folder / name).string());
      if (enters) any_depth(folder / name, part);
    }
  }

  std::vector<std::string> parts_, found_;
};

}  // namespace

bool is_glob(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }

std::vector<std::string> expand_glob(const std::string& pattern) {
  return pattern.empty() ? std::vector<std::string>{} : Expansion(pattern).take();
}

std::string fixed_part(const std::string& pattern) {
  const std::size_t wildcard = std::min(pattern.find_first_of("*?["), pattern.size());
  const std::size_t slash = pattern.rfind('/', wildcard);
  return slash == std::string::npos ? "" : pattern.substr(0, std::max<std::size_t>(slash, 1));
}

}  // namespace lockstep::cli
