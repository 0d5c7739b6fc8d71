// SPDX-License-Identifier: Apache-2.0
#include "src/importers/shell_variables.h"

#include <fmt/format.h>

#include <cctype>

#include "src/importers/redact.h"

namespace lockstep::importers {

namespace {

std::size_t bytes_of(const Word& word) {
  std::size_t bytes = sizeof(Word) + word.text.size() + word.unresolved.size();
  for (const std::string& reason : word.reasons) bytes += sizeof(std::string) + reason.size();
  for (const std::string& name : word.defaults) bytes += 2 * sizeof(std::string) + name.size();
  return bytes;
}

}  // namespace

void ShellBudget::spend(const Word& word) { spend(bytes_of(word)); }

void ShellBudget::copy(const std::vector<Word>& words) {
  constexpr std::size_t cheaper = 64;
  std::size_t bytes = 0;
  for (const Word& word : words) bytes += bytes_of(word);
  spend(bytes / cheaper);
}

void ShellBudget::spend(std::size_t bytes) {
  constexpr std::size_t mebibytes = 64;  // scripts that people write need less than one
  spent_ += bytes;
  if (spent_ > mebibytes << 20) {
    throw ShellLimit(fmt::format(
        "the variables of this script stand for more than {} MiB of text; give the arguments after --", mebibytes));
  }
}

ShellVariables::ShellVariables(const std::map<std::string, std::string>& given) {
  for (const auto& [name, value] : given) variables_[name] = {{{value, {}, ""}}, false, true};
}

void ShellVariables::set(const std::string& name, std::vector<Word> words, bool is_array) {
  Variable& variable = variables_[name];
  if (variable.is_given) return;
  written_.push_back(name);
  if (words.size() > most_shell_words) words = {unknown_word(words.front().place, name + " has too many elements")};
  variable.words = std::move(words);
  variable.is_array = is_array;
}

void ShellVariables::append(const std::string& name, std::vector<Word> words, bool is_array) {
  const auto found = variables_.find(name);
  if (found == variables_.end()) {
    // It may have been set outside of the script, but then nobody could read the script.
    set(name, std::move(words), is_array);
    return;
  }
  // In place: a script may append ten thousand times.
  Variable& variable = found->second;
  if (variable.is_given) return;
  written_.push_back(name);
  if (is_array || variable.is_array) {
    variable.is_array = true;
    variable.words.insert(variable.words.end(), words.begin(), words.end());
    if (variable.words.size() > most_shell_words) set(name, std::move(variable.words), true);
  } else if (!words.empty()) {
    if (variable.words.empty()) variable.words.emplace_back();
    join(variable.words.front(), words.front());
  }
}

ShellVariables::State ShellVariables::state(const std::string& name) const {
  const auto found = variables_.find(name);
  if (found != variables_.end()) budget_->copy(found->second.words);
  return found != variables_.end() ? State(found->second) : std::nullopt;
}

void ShellVariables::restore(const std::string& name, const State& state) {
  if (state) {
    variables_[name] = *state;
  } else {
    variables_.erase(name);
  }
}

void ShellVariables::forget(const std::string& name) {
  const auto found = variables_.find(name);
  if (found == variables_.end() || found->second.is_given) return;
  variables_.erase(found);
  written_.push_back(name);
}

bool ShellVariables::is_of_function(const std::string& name) const {
  const bool digit = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) != 0 && name != "0";
  return !function_.empty() && (digit || name == "@" || name == "*" || name == "#");
}

bool ShellVariables::is_set(const std::string& name) const {
  read_.insert(name);
  return is_of_function(name) || variables_.contains(name);
}

Word ShellVariables::scalar(const std::string& name) const {
  read_.insert(name);
  if (is_of_function(name)) {
    return unknown_word({}, fmt::format("${} is an argument of the function {}; give --run, which lets bash run the "
                                        "script, or the arguments after --",
                                        name, is_environment_name(function_) ? function_ : "that it stands in"));
  }
  const auto found = variables_.find(name);
  if (found != variables_.end()) {
    if (found->second.words.empty()) return {};
    budget_->spend(found->second.words.front());
    return found->second.words.front();
  }
  const bool argument = !name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) == 0 && name[0] != '_';
  if (!argument && !is_environment_name(name)) {
    return unknown_word({},
                        "this variable is not set in this script, and its name is hidden, for it may be a part of a "
                        "secret; give --set NAME=VALUE");
  }
  if (name == "@" || name == "*")
    return unknown_word({}, fmt::format("${} are the arguments of the script; give --run, and them after --", name));
  return unknown_word(
      {}, argument ? fmt::format("${} is an argument of the script; give --set {}=VALUE", name, name)
                   : fmt::format("the variable {} is not set in this script; give --set {}=VALUE", name, name));
}

std::vector<Word> ShellVariables::elements(const std::string& name) const {
  read_.insert(name);
  const auto found = variables_.find(name);
  if (found == variables_.end()) return {scalar(name)};
  for (const Word& word : found->second.words) budget_->spend(word);
  return found->second.words;
}

void join(Word& a, const Word& b) {
  if (a.text.size() + b.text.size() > longest_shell_text) {
    a = unknown_word(a.place, "this text is longer than 1 MiB");
    return;
  }
  const bool adjacent = a.place.source == b.place.source && a.place.end == b.place.begin;
  if (adjacent) {
    a.place.end = b.place.end;
  } else if (a.text.empty() && a.place.source == nullptr) {
    a.place = b.place;
  }
  if (a.unresolved.empty()) a.unresolved = b.unresolved;
  a.text += b.text;
  a.reasons.insert(a.reasons.end(), b.reasons.begin(), b.reasons.end());
  a.defaults.insert(b.defaults.begin(), b.defaults.end());
}

void check_word_count(std::size_t words) {
  if (words > most_shell_words) {
    throw ShellLimit(
        fmt::format("expected at most {} words in a command or an array, found more; give the arguments "
                    "after --",
                    most_shell_words));
  }
}

}  // namespace lockstep::importers
