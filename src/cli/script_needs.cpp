// SPDX-License-Identifier: Apache-2.0
#include "src/cli/script_needs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>
#include <sstream>

namespace lockstep::cli {

namespace {

constexpr std::size_t most_arguments = 99, most_values = 4, most_variables = 5;

/// What nobody writes is left out: the patterns, which nest as deep as a line is long, are not for it.
constexpr std::size_t longest_line = 2000, most_lines = 5000;

/// The lines of a script but for comments.
std::vector<std::string> all_lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream lines(text);
  for (std::string line; result.size() < most_lines && std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin != std::string::npos && line[begin] != '#' && line.size() <= longest_line) result.push_back(line);
  }
  return result;
}

/// Of these, without functions and texts in single quotes, whose dollar signs are others'.
std::vector<std::string> own_lines(const std::string& text) {
  static const std::regex function(R"(^\s*(function\s+[\w:-]+\s*(\(\))?|[\w:-]+\s*\(\))\s*\{?\s*)");
  static const std::regex quoted("'[^']*'");
  std::vector<std::string> result;
  bool inside = false;
  for (const std::string& line : all_lines(text)) {
    if (!inside && std::regex_search(line, function, std::regex_constants::match_continuous)) {
      inside = line.find('}') == std::string::npos;
      continue;
    }
    if (inside) {
      inside = line[0] != '}';
      continue;
    }
    result.push_back(std::regex_replace(line, quoted, "''"));
  }
  return result;
}

/// All matches of a pattern in the lines, each handed to `use`.
template <typename Use>
void each_match(const std::vector<std::string>& lines, const std::regex& pattern, const Use& use) {
  for (const std::string& line : lines) {
    for (std::sregex_iterator match(line.begin(), line.end(), pattern), end; match != end; ++match) use(*match);
  }
}

std::size_t number_of_argument(const std::string& text) {
  constexpr std::size_t most_digits = 2;
  return text.empty() || text.size() > most_digits ? 0 : static_cast<std::size_t>(std::stoul(text));
}

}  // namespace

std::vector<ScriptArgument> script_arguments(const std::string& text) {
  const std::vector<std::string> lines = own_lines(text);
  std::vector<ScriptArgument> arguments;
  const auto argument = [&](const std::string& digits) -> ScriptArgument* {
    const std::size_t number = number_of_argument(digits);
    if (number == 0 || number > most_arguments) return nullptr;
    if (arguments.size() < number) arguments.resize(number);
    return &arguments[number - 1];
  };
  static const std::regex used(R"(\$([1-9])|\$\{([0-9]+)(?:\}|:?\?))");
  each_match(lines, used, [&](const std::smatch& match) {
    if (ScriptArgument* found = argument(match[1].str() + match[2].str())) found->is_used = true;
  });
  static const std::regex taken(R"((?:^|[\s;])([A-Za-z_]\w*)=["']?\$(?:([1-9])|\{([0-9]+)[:}=-])[^\s;]*)");
  each_match(lines, taken, [&](const std::smatch& match) {
    ScriptArgument* found = argument(match[2].str() + match[3].str());
    if (found != nullptr && found->name.empty()) found->name = match[1].str();
  });
  static const std::regex compared(R"(\[\[?\s+"?\$\{?(\w+)\}?"?\s+==?\s+["']?([\w.-]{1,16})["']?\s+\])");
  static const std::regex handed(R"((--[a-z][\w-]*)[\s=]+"?\$\{?(\w+)\}?)");
  const auto named = [&](const std::string& name) {
    return std::find_if(arguments.begin(), arguments.end(),
                        [&](const ScriptArgument& one) { return one.name == name; });
  };
  each_match(lines, compared, [&](const std::smatch& match) {
    const auto found = named(match[1].str());
    if (found == arguments.end() || match[2].str().empty()) return;
    if (std::find(found->values.begin(), found->values.end(), match[2].str()) == found->values.end())
      found->values.push_back(match[2].str());
  });
  each_match(lines, handed, [&](const std::smatch& match) {
    const auto found = named(match[2].str());
    if (found != arguments.end() && found->flag.empty()) found->flag = match[1].str();
  });
  return arguments;
}

bool shifts_arguments(const std::string& text) {
  static const std::regex shifts(R"((?:^|[\s;])shift(?:$|[\s;]))");
  const std::vector<std::string> lines = own_lines(text);
  return std::any_of(lines.begin(), lines.end(),
                     [](const std::string& line) { return std::regex_search(line, shifts); });
}

std::vector<std::string> unset_variables(const std::string& text, const std::vector<std::string>& given) {
  const std::vector<std::string> lines = own_lines(text);
  // What the shell and the run itself have set.
  std::set<std::string> known = {
      "HOME",         "PATH",          "PWD",         "OLDPWD",      "USER",      "LANG", "IFS",          "RANDOM",
      "SECONDS",      "HOSTNAME",      "BASH_SOURCE", "UID",         "EUID",      "PPID", "LINENO",       "OSTYPE",
      "HOSTTYPE",     "SHELL",         "OPTARG",      "OPTIND",      "REPLY",     "BASH", "BASH_VERSION", "FUNCNAME",
      "EPOCHSECONDS", "EPOCHREALTIME", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK", "LC_ALL"};
  for (const std::string& variable : given) known.insert(variable.substr(0, variable.find('=')));
  // Anything that looks like it may set one.
  static const std::regex set(
      R"(\b([A-Z][A-Z0-9_]*)(?:\+|:)?=|\b(?:for|read|select)\s+(?:-\w+\s+)*([A-Z][A-Z0-9_]*)|\b(?:getopts\s+\S+|mapfile|readarray|printf\s+-v)\s+(?:-\w+\s+)*([A-Z][A-Z0-9_]*))");
  each_match(all_lines(text), set,
             [&](const std::smatch& match) { known.insert(match[1].str() + match[2].str() + match[3].str()); });
  static const std::regex read(R"(\$(?:([A-Z][A-Z0-9_]*)|\{([A-Z][A-Z0-9_]*)\}))");
  std::vector<std::string> result;
  each_match(lines, read, [&](const std::smatch& match) {
    const std::string name = match[1].str() + match[2].str();
    if (known.insert(name).second && result.size() < most_variables) result.push_back(name);
  });
  return result;
}

bool reads_variable(const std::string& text, const std::string& name) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  // Only a line of its own sets it for sure, above all branches, functions and texts for others.
  static const std::regex branch(R"(^\s*(if|case|for|while|until|select|function)\b|(\(\)|&&|\|\||\{|\\)\s*$|<<)");
  const std::regex sets("^(?:export\\s+)?" + name +
                        R"(=("[^"]*"|'[^']*'|\$\([^()]*\)|`[^`]*`|[^\s"'`;|&()<>]*)\s*(;.*|#.*)?$)");
  bool in_branch = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || line[begin] == '#') continue;
    const bool is_short = line.size() <= longest_line;
    for (std::size_t at = line.find(name); at != std::string::npos; at = line.find(name, at + 1)) {
      const std::size_t end = at + name.size();
      const bool is_word = (at == 0 || !is_part(line[at - 1])) && (end == line.size() || !is_part(line[end]));
      const std::string_view rest = std::string_view(line).substr(end);
      const bool is_set =
          rest.starts_with("=") && !rest.starts_with("==") && (at == 0 || (line[at - 1] != '$' && line[at - 1] != '{'));
      if (is_word && !is_set) return true;
    }
    in_branch = in_branch || !is_short || std::regex_search(line, branch);
    if (!in_branch && std::regex_search(line, sets)) return false;
  }
  return false;
}

std::string text_of(const std::vector<ScriptArgument>& arguments, std::size_t first) {
  std::vector<std::string> words;
  for (std::size_t i = first; i < arguments.size(); ++i) {
    const ScriptArgument& argument = arguments[i];
    std::string word = argument.name.empty() ? fmt::format("${}", i + 1) : argument.name;
    std::vector<std::string> values = argument.values;
    const bool more = values.size() > most_values;
    if (more) values.resize(most_values);
    if (!values.empty() && more) {
      word += fmt::format(" ({} or others)", fmt::join(values, ", "));
    } else if (!values.empty()) {
      const std::string last = values.back();
      values.pop_back();
      word += values.empty() ? fmt::format(" ({} or not)", last)
                             : fmt::format(" ({} or {})", fmt::join(values, ", "), last);
    } else if (!argument.flag.empty()) {
      word += fmt::format(" ({})", argument.flag);
    }
    words.push_back(word);
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace lockstep::cli
