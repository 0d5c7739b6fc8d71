// SPDX-License-Identifier: Apache-2.0
#include "src/cli/corpus_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/base/counted.h"
#include "src/cli/table.h"
#include "src/diagnosis/other_tests.h"
#include "src/report/clean_text.h"
#include "src/report/style.h"

namespace lockstep::cli {

namespace {

using Sources = std::set<std::pair<std::string, std::string>>;

bool is_mistake(const ScenarioRow& row) { return row.verdict != "match" && row.verdict != "error"; }

std::vector<ScenarioRow> without_repairs(const std::vector<ScenarioRow>& rows) {
  Sources mistaken;
  for (const ScenarioRow& row : rows) {
    if (is_mistake(row)) mistaken.insert(row.source());
  }
  std::vector<ScenarioRow> kept;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(kept), [&](const ScenarioRow& row) {
    return is_mistake(row) || (row.verdict == "match" && !row.project.empty() && !mistaken.contains(row.source()) &&
                               row.name.find("-fixed") == std::string::npos);
  });
  return kept;
}

/// The number as a link, where the project and the number say where to.
std::string linked(const std::string& project, const std::string& number) {
  const std::size_t digits = number.find_first_of("0123456789");
  const bool is_number = digits != std::string::npos && (number.starts_with("#") || number.starts_with("PR ")) &&
                         number.find_first_not_of("0123456789", digits) == std::string::npos;
  const bool is_repository = project.find('/') != std::string::npos && report::url_text(project) == project;
  if (!is_number || !is_repository) return report::markdown_text(number);
  return fmt::format("[{}](https://github.com/{}/{}/{})", number, project, number[0] == '#' ? "issues" : "pull",
                     number.substr(digits));
}

/// One sentence a line.
std::string summary(const std::vector<ScenarioRow>& rows) {
  int mistakes = 0, mismatches = 0, controls = 0, agree = 0, alone = 0, passes = 0;
  std::map<std::string, int> kinds;
  std::set<std::string> projects;
  // Some sources have many files, which would outvote the others.
  Sources sources, mismatching, seen_by_replicas, seen_by_tolerance;
  for (const ScenarioRow& row : rows) {
    const auto note = [&](Sources& list) {
      if (!row.project.empty()) list.insert(row.source());  // what is made up has none
    };
    if (!is_mistake(row)) {
      ++controls;
      continue;
    }
    ++mistakes;
    ++kinds[row.mistake];
    if (!row.project.empty()) projects.insert(row.project);
    note(sources);
    if (row.tolerance == "-") continue;
    ++mismatches;
    note(mismatching);
    if (row.replicas == diagnosis::name_of(diagnosis::Replicas::agree)) ++agree;
    if (row.replicas == diagnosis::name_of(diagnosis::Replicas::alone)) ++alone;
    if (row.replicas == diagnosis::name_of(diagnosis::Replicas::differ)) note(seen_by_replicas);
    if (row.tolerance == "passes") ++passes;
    if (row.tolerance == "fails") note(seen_by_tolerance);
  }
  const std::string right = counted(controls, "control") + (controls == 1 ? " that is right" : " that are right");
  if (mistakes == 0) return fmt::format("No mistakes; {}.\n", right);
  std::vector<std::string> words;
  for (const auto& [kind, count] : kinds) words.push_back(fmt::format("{} {}", kind, count));
  const auto count_of = [](const auto& all, const char* noun) { return counted(all.size(), noun); };
  const std::string counted_mismatches = counted(mismatches, "mismatch");
  return fmt::format(
      "{} from {} in {}; {}.\n"
      "Kinds: {}.\n"
      "Of the {} a comparison of replicas misses {}: in {} all owners agree, in {} there is nothing to "
      "compare. Of their {} it misses {} in every file.\n"
      "A comparison with one device that accepts a relative error of 8 % misses {} of the mismatches, and {} of the "
      "sources in every file.\n"
      "The other {} stop, race, or are too large for every rank to be looked at: there are no values to compare.\n",
      counted(mistakes, "mistake"), count_of(sources, "source"), count_of(projects, "project"), right,
      fmt::join(words, ", "), counted_mismatches, agree + alone, agree, alone, count_of(mismatching, "source"),
      mismatching.size() - seen_by_replicas.size(), passes, mismatching.size() - seen_by_tolerance.size(),
      mistakes - mismatches);
}

}  // namespace

void write_corpus(Output& output, const std::string& format, const std::vector<ScenarioRow>& all) {
  const std::vector<ScenarioRow> rows = without_repairs(all);
  Table table({{"project", "project"},
               {"number", "number"},
               {"axes", "axes"},
               {"mistake", "mistake"},
               {"replicas", "replicas"},
               {"8 %", "tolerance"},
               {"scenario", "scenario"},
               {"title", "title"}});
  const bool markdown = format == "markdown";
  for (const ScenarioRow& row : rows) {
    table.add({markdown ? report::markdown_text(row.project) : row.project,
               markdown ? linked(row.project, row.number) : row.number, row.axes, row.mistake, row.replicas,
               row.tolerance, markdown ? report::markdown_cell(row.name) : row.name,
               markdown ? report::markdown_text(row.title) : row.title});
  }
  table.write(output, format);
  if (format == "text") output.write("\n" + summary(rows));
  if (!markdown) return;
  std::string text = "\n- " + summary(rows);
  for (std::size_t at = text.find('\n', 1); at + 1 < text.size(); at = text.find('\n', at + 1)) {
    text.insert(at + 1, "- ");
  }
  output.write(text);
}

}  // namespace lockstep::cli
