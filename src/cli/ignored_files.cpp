// SPDX-License-Identifier: Apache-2.0
#include "src/cli/ignored_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <optional>

#include "src/scenario/named_file.h"

namespace lockstep::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t most_bytes_of_rules = 256 << 10;

/// Where the bracket that opens at `begin` ends, one behind its "]"; npos for a "[" that is never closed, which fits
/// nothing.
std::size_t end_of_bracket(std::string_view pattern, std::size_t begin) {
  std::size_t at = begin + 1;
  if (at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^')) ++at;
  if (at < pattern.size() && pattern[at] == ']') ++at;  // one that comes first is a letter
  while (at < pattern.size() && pattern[at] != ']') {
    const std::size_t end = pattern.substr(at, 2) == "[:" ? pattern.find(":]", at + 2) : std::string_view::npos;
    at = end == std::string_view::npos ? at + 1 : end + 2;
  }
  return at < pattern.size() ? at + 1 : std::string_view::npos;
}

/// How much of the pattern from `at` on stands for one letter; 0 where it does not fit `letter`.
std::size_t fitting_letter(std::string_view pattern, std::size_t at, char letter) {
  if (at >= pattern.size()) return 0;
  if (pattern[at] == '?') return 1;
  if (pattern[at] == '\\' && at + 1 < pattern.size()) return pattern[at + 1] == letter ? 2 : 0;
  if (pattern[at] == '[') {
    const std::size_t end = end_of_bracket(pattern, at);
    if (end == std::string_view::npos) return 0;
    const std::string bracket(pattern.substr(at, end - at));
    return fnmatch(bracket.c_str(), std::string(1, letter).c_str(), 0) == 0 ? end - at : 0;
  }
  return pattern[at] == letter ? 1 : 0;
}

/// A part of a pattern and a name. fnmatch(3) tries each way in which several stars can share a name, and a stranger's
/// pattern may have many; here only the last star that was met takes one letter more.
bool fits_name(std::string_view pattern, std::string_view name) {
  std::size_t at = 0, letter = 0;
  std::optional<std::size_t> star;
  std::size_t after_star = 0;
  while (letter < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      after_star = letter;
    } else if (const std::size_t length = fitting_letter(pattern, at, name[letter]); length > 0) {
      at += length;
      ++letter;
    } else if (star) {
      at = *star + 1;
      letter = ++after_star;
    } else {
      return false;
    }
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

/// Blanks at the end do not count, unless a backslash stands in front.
std::string_view without_blanks(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  while (line.ends_with(' ') && !line.ends_with("\\ ")) line.remove_suffix(1);
  return line;
}

std::optional<IgnoreRule> rule_of(std::string_view line) {
  line = without_blanks(line);
  if (line.empty() || line.front() == '#') return std::nullopt;
  IgnoreRule rule{{}, line.front() == '!', false};
  if (rule.negated) line.remove_prefix(1);
  rule.folders_only = line.ends_with('/');
  if (rule.folders_only) line.remove_suffix(1);
  // A slash at the beginning or in the middle binds the pattern to this folder.
  const bool bound = line.find('/') != std::string_view::npos;
  if (!bound) rule.parts.push_back("**");
  if (line.starts_with('/')) line.remove_prefix(1);
  // Nothing between two slashes is a name that no file has.
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find('/', begin), line.size());
    const std::string_view part = line.substr(begin, end - begin);
    const bool is_any = part.size() > 2 && part.find_first_not_of('*') == std::string_view::npos;
    rule.parts.emplace_back(is_any ? "**" : part);
    begin = end + 1;
  }
  return rule;
}

}  // namespace

std::vector<IgnoreRule> ignore_rules(std::string_view text) {
  std::vector<IgnoreRule> rules;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (std::optional<IgnoreRule> rule = rule_of(text.substr(begin, end - begin))) rules.push_back(*std::move(rule));
    begin = end + 1;
  }
  return rules;
}

bool fits(const IgnoreRule& rule, const std::vector<std::string>& path, bool is_folder) {
  if (rule.folders_only && !is_folder) return false;
  // reached[n]: the parts so far fit the first n names.
  std::vector<bool> reached(path.size() + 1, false);
  reached[0] = true;
  for (std::size_t part = 0; part < rule.parts.size(); ++part) {
    std::vector<bool> next(path.size() + 1, false);
    if (rule.parts[part] == "**") {
      // At the end it stands for all that is inside, and not for the folder itself.
      const bool last = part + 1 == rule.parts.size();
      bool any = false;
      for (std::size_t names = 0; names <= path.size(); ++names) {
        next[names] = last ? any : any || reached[names];
        any = any || reached[names];
      }
    } else {
      for (std::size_t names = 0; names < path.size(); ++names)
        next[names + 1] = reached[names] && fits_name(rule.parts[part], path[names]);
    }
    reached = std::move(next);
  }
  return reached[path.size()];
}

IgnoredFiles::IgnoredFiles(const fs::path& folder) : folder_(folder) {
  std::error_code error;
  whole_ = fs::weakly_canonical(fs::absolute(folder, error), error);
  top_ = whole_;
  for (fs::path above = whole_;; above = above.parent_path()) {
    if (fs::exists(above / ".git", error)) {
      top_ = above;
      break;
    }
    if (above == above.parent_path()) break;
  }
}

bool IgnoredFiles::ignores(const fs::path& entry, bool is_folder) {
  const fs::path here = whole_ / entry.lexically_relative(folder_);
  std::vector<std::string> path;  // below the folder whose rules are looked at
  // The nearest .gitignore that says something decides, and in it the last line that does.
  for (fs::path at = here; at != top_;) {
    path.insert(path.begin(), at.filename().string());
    at = at.parent_path();
    const std::vector<IgnoreRule>& rules = rules_of(at);
    const auto last =
        std::find_if(rules.rbegin(), rules.rend(), [&](const IgnoreRule& rule) { return fits(rule, path, is_folder); });
    if (last != rules.rend()) return !last->negated;
    std::error_code error;
    if (at == at.parent_path() || fs::exists(at / ".git", error)) break;  // another repository, in this one
  }
  return false;
}

const std::vector<IgnoreRule>& IgnoredFiles::rules_of(const fs::path& folder) {
  const auto [found, is_new] = rules_.try_emplace(folder);
  if (!is_new) return found->second;
  const fs::path file = folder / ".gitignore";
  std::error_code error;
  std::string why;
  if (fs::symlink_status(file, error).type() == fs::file_type::regular &&
      fs::file_size(file, error) <= most_bytes_of_rules) {
    if (const std::optional<std::string> text = scenario::read_text_file(file, why))
      found->second = ignore_rules(*text);
  }
  return found->second;
}

}  // namespace lockstep::cli
