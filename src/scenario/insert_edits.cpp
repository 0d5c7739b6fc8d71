// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/insert_edits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "src/scenario/moved_references.h"

namespace lockstep::scenario {

namespace {

struct Replacement {
  std::size_t begin = 0, end = 0;
  std::string text;
};

/// What stands in front of the first word of the line that `at` is in.
std::string indentation(const std::string& text, std::size_t at) {
  const std::size_t newline = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  const std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
  return text.substr(begin, text.find_first_not_of(" \t", begin) - begin);
}

bool on_one_line(const std::string& text, const Place& place) { return text.find('\n', place.begin) >= place.end; }

Replacement edits_into(const std::string& text, const Json& schedule, const std::vector<std::string>& edits) {
  const Json* written = schedule.find("edits");
  if (written != nullptr && !written->items().empty()) {
    const Place& last = written->items().back().place();
    const std::string between =
        on_one_line(text, written->place()) ? ", " : ",\n" + indentation(text, written->items().front().place().begin);
    return {last.end, last.end, fmt::format("{}{}", between, fmt::join(edits, between))};
  }
  const Json::Member& member = schedule.members().back();
  const bool one_line = on_one_line(text, schedule.place());
  const std::string indent = indentation(text, member.key_place.begin);
  const std::string inner = indent + "  ";
  const std::string list = one_line ? fmt::format("[ {} ]", fmt::join(edits, ", "))
                                    : fmt::format("[\n{}{}\n{}]", inner, fmt::join(edits, ",\n" + inner), indent);
  if (written != nullptr) return {written->place().begin, written->place().end, list};
  const std::size_t end = member.value.place().end;
  return {end, end, fmt::format(",{}\"edits\": {}", one_line ? " " : "\n" + indent, list)};
}

}  // namespace

std::string text_with_edits(const Scenario& scenario, const std::vector<std::string>& edits,
                            const std::filesystem::path& folder) {
  std::string text = scenario.document.place().source->text;
  std::vector<Replacement> replacements = {edits_into(text, *scenario.document.find("schedule"), edits)};
  if (const Json* expect = scenario.document.find("expect"))
    replacements.push_back({expect->place().begin, expect->place().end, "{ \"verdict\": \"match\" }"});
  for (const MovedReference& one : moved_references(scenario.document, scenario.file, folder)) {
    std::string path = write_json(one.path);
    path.pop_back();  // the newline
    replacements.push_back({one.path.place().begin, one.path.place().end, std::move(path)});
  }
  std::sort(replacements.begin(), replacements.end(),
            [](const Replacement& a, const Replacement& b) { return a.begin > b.begin; });
  for (const Replacement& one : replacements) text.replace(one.begin, one.end - one.begin, one.text);
  return text;
}

}  // namespace lockstep::scenario
