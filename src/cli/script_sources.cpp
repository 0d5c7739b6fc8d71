// SPDX-License-Identifier: Apache-2.0
#include "src/cli/script_sources.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_read = 2000, most_read = 5000, most_sourced = 20, most_candidates = 200;
constexpr std::uintmax_t largest_sourced = 1 << 20;

/// What may be paths behind the commands that read a script, as far as they are written out.
std::vector<std::string> named_paths(const std::string& text) {
  static const std::regex reads(R"((?:^|[\s;&|(){])(?:source|\.|bash|sh)\s+([^;&|#]*))");
  static const std::regex literal(R"([A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_.+-]+)*)");
  std::vector<std::string> paths;
  std::istringstream lines(text);
  std::string line;
  for (std::size_t number = 0; number < most_read && std::getline(lines, line); ++number) {
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || line[begin] == '#' || line.size() > longest_read) continue;
    for (std::sregex_iterator found(line.begin(), line.end(), reads), end; found != end; ++found) {
      const std::string words = (*found)[1].str();
      for (std::sregex_iterator path(words.begin(), words.end(), literal); path != end; ++path) {
        if (path->length() > 0 && paths.size() < most_candidates) paths.push_back(path->str());
      }
    }
  }
  return paths;
}

bool is_below(const fs::path& file, const fs::path& folder) {
  const fs::path inner = file.lexically_relative(folder);
  // What is hidden at the top of the folder is hidden from the script, too.
  return !inner.empty() && !inner.begin()->string().starts_with('.');
}

/// The file of that name beside the script or in the folder, else that with the same end of two names or more.
std::optional<fs::path> file_named(const std::string& name, const fs::path& folder, const fs::path& visible) {
  for (std::string rest = name.substr(std::min(name.find_first_not_of('/'), name.size())); !rest.empty();) {
    for (const fs::path& place : {folder, visible}) {
      std::error_code error;
      const fs::path file = fs::canonical(place / rest, error);
      if (!error && fs::is_regular_file(file, error) && fs::file_size(file, error) <= largest_sourced &&
          is_below(file, visible))
        return file;
    }
    const std::size_t slash = rest.find('/');
    if (slash == std::string::npos || rest.find('/', slash + 1) == std::string::npos) break;
    rest.erase(0, slash + 1);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> sourced_texts(const std::string& text, const fs::path& folder, const fs::path& visible) {
  std::vector<std::string> texts;
  std::set<fs::path> known;
  std::vector<std::pair<std::string, fs::path>> open = {{text, folder}};
  while (!open.empty()) {
    const auto [script, beside] = open.back();
    open.pop_back();
    for (const std::string& name : named_paths(script)) {
      const std::optional<fs::path> file = file_named(name, beside, visible);
      if (!file || texts.size() == most_sourced || !known.insert(*file).second) continue;
      std::ifstream input(*file, std::ios::binary);
      std::ostringstream content;
      content << input.rdbuf();
      texts.push_back(content.str());
      open.emplace_back(texts.back(), file->parent_path());
    }
  }
  return texts;
}

}  // namespace lockstep::cli
