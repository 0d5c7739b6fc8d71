// SPDX-License-Identifier: Apache-2.0
// What a scenario that was imported is refused for, in terms of the configuration that it stems from.
#include "src/importers/origins.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <set>

#include "lockstep/importer.h"

namespace lockstep {

namespace {

bool is_word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::size_t word_length(std::string_view text) {
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_word_character) - text.begin());
}

/// Whether `word` stands in `text` by itself: not inside of another word, and no part of a parameter's name.
bool has_word(std::string_view text, std::string_view word) {
  const auto separates = [&](std::size_t i) { return i >= text.size() || !is_word_character(text[i]); };
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool dotted = (at > 0 && text[at - 1] == '.') ||
                        (end + 1 < text.size() && text[end] == '.' && is_word_character(text[end + 1]));
    if ((at == 0 || separates(at - 1)) && separates(end) && !dotted) return true;
  }
  return false;
}

/// Whether the message names the number of a size. Numbers of one digit are too common to tell where they come from,
/// and what is said of the layout is not about sizes of the model.
bool has_number(const Diagnostic& diagnostic, const ImportedOrigin& origin) {
  const bool of_layout = diagnostic.place.pointer.text().starts_with("/layout");
  const bool is_size = origin.pointer.starts_with("/layout/") || (origin.pointer.starts_with("/model/") && !of_layout);
  return is_size && origin.number.size() > 1 && has_word(diagnostic.message, origin.number);
}

std::string last_part(const std::string& pointer) { return pointer.substr(pointer.rfind('/') + 1); }

/// The message with every number and every name in quotes as one sign: equal for mistakes that differ in the parameter
/// alone.
std::string pattern_of(const std::string& message) {
  std::string pattern;
  bool quoted = false;
  for (const char c : message) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (!digit) pattern += c;
    if (digit && !pattern.ends_with('#')) pattern += '#';
  }
  return pattern;
}

/// The origins of what a diagnostic is about: those of the value where it stands, then those that its message names.
std::vector<const ImportedOrigin*> origins_of(const Diagnostic& diagnostic, const Imported& imported,
                                              const Source* scenario) {
  std::vector<const ImportedOrigin*> here, named;
  const std::string& pointer = diagnostic.place.pointer.text();
  for (const ImportedOrigin& origin : imported.origins) {
    const bool same = diagnostic.place.source.get() == scenario &&
                      (pointer == origin.pointer || pointer.starts_with(origin.pointer + "/"));
    if (same) {
      here.push_back(&origin);
    } else if (has_word(diagnostic.message, last_part(origin.pointer)) || has_number(diagnostic, origin)) {
      named.push_back(&origin);
    }
  }
  here.insert(here.end(), named.begin(), named.end());
  return here;
}

bool has_world_size(const Imported& imported) {
  return std::any_of(imported.origins.begin(), imported.origins.end(),
                     [](const ImportedOrigin& origin) { return origin.key == "--world-size"; });
}

Diagnostic translated(const Diagnostic& diagnostic, const Imported& imported, const Source* scenario) {
  std::string message = diagnostic.message;
  if (message.ends_with('.')) message.pop_back();
  const std::vector<const ImportedOrigin*> origins = origins_of(diagnostic, imported, scenario);
  if (origins.empty()) return {{}, "the scenario of this configuration is refused: " + message};
  const ImportedOrigin& first = *origins.front();
  // Axes have other names in the configuration; a number that is told already needs no second origin.
  std::set<std::string> told = {first.key, first.number};
  for (const ImportedOrigin* origin : origins) {
    const std::string name = last_part(origin->pointer);
    if (origin->key == name || !told.insert(origin->key).second) continue;
    if (origin->pointer.starts_with("/layout/") && has_word(diagnostic.message, name)) {
      message += fmt::format("; {} is {}", name, origin->key);
      told.insert(origin->number);
    } else if (has_number(diagnostic, *origin) && told.insert(origin->number).second) {
      message += fmt::format("; {} is of {}", origin->number, origin->key);
    }
  }
  if (has_word(diagnostic.message, "world") && !has_world_size(imported))
    message += "; --world-size N says how many ranks there are";
  return {first.place, first.key + ": " + message};
}

}  // namespace

namespace importers {

std::vector<std::string> scenario_pointers(std::string_view meaning) {
  std::vector<std::string> pointers;
  for (std::string_view rest = meaning; !rest.empty();) {
    for (const auto& [prefix, pointer] : {std::pair<std::string_view, const char*>("layout.", "/layout/"),
                                          {"model.", "/model/"},
                                          {"batch.", "/batch/"},
                                          {"option ", "/schedule/options/"}}) {
      if (!rest.starts_with(prefix)) continue;
      const std::string_view name = rest.substr(prefix.size());
      pointers.push_back(pointer + std::string(name.substr(0, word_length(name))));
    }
    const std::size_t comma = rest.find(", ");
    rest = comma != std::string_view::npos ? rest.substr(comma + 2) : std::string_view();
  }
  return pointers;
}

}  // namespace importers

Scenario read_imported(const Imported& imported, const std::string& name) {
  const auto source = std::make_shared<const Source>(Source{name, write_json(imported.scenario)});
  try {
    return read_scenario(source);
  } catch (const InputError& error) {
    // A mistake in one size is one in every layer.
    std::map<std::string, std::pair<std::size_t, std::size_t>> seen;  // → which one, and how often
    std::vector<Diagnostic> result;
    for (const Diagnostic& diagnostic : error.diagnostics()) {
      const auto [found, is_new] = seen.emplace(pattern_of(diagnostic.message), std::pair(result.size(), 1));
      if (is_new) {
        result.push_back(translated(diagnostic, imported, source.get()));
      } else {
        ++found->second.second;
      }
    }
    for (const auto& [pattern, entry] : seen) {
      if (entry.second > 1) result[entry.first].message += fmt::format(" (and {} more like this)", entry.second - 1);
    }
    throw InputError(std::move(result));
  }
}

}  // namespace lockstep
