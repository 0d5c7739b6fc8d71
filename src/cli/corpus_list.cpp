// SPDX-License-Identifier: Apache-2.0
#include "src/cli/corpus_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/diagnosis/mistake.h"
#include "src/diagnosis/other_tests.h"
#include "src/report/json_writer.h"
#include "src/report/style.h"

namespace lockstep::cli {

namespace {

/// Of a comparison with one device, in the summary and in the column.
const Rational tolerance(8, 100);

/// "NVIDIA/Megatron-LM#844", "deepspeedai/DeepSpeed PR 545" and "pytorch/pytorch, release 2.13.0 as run" taken apart.
std::pair<std::string, std::string> project_and_number(const std::string& source) {
  const std::size_t end = std::min(source.find_first_of(" #,;:"), source.size());
  std::string number = source.substr(end);
  const std::size_t begin = number.find_first_not_of(" ,;:");
  number = begin == std::string::npos ? "" : number.substr(begin);
  number = number.substr(0, number.find_first_of(",;:"));
  return {source.substr(0, end), number};
}

/// The axes larger than 1, slowest first: "pp 2, dp 2".
std::string axes_text(const Layout& layout) {
  std::vector<std::string> axes;
  const auto add = [&](Axis axis, int size) {
    if (std::find(layout.any.begin(), layout.any.end(), axis) != layout.any.end()) {
      axes.push_back(fmt::format("{} any", name_of(axis)));
    } else if (size > 1) {
      axes.push_back(fmt::format("{} {}", name_of(axis), size));
    }
  };
  add(Axis::pp, layout.pp);
  if (layout.dp_replicate > 1) {
    add(Axis::dp_replicate, layout.dp_replicate);
    add(Axis::dp_shard, layout.dp_shard);
  } else {
    add(Axis::dp, layout.dp);
  }
  add(Axis::sp, layout.sp);
  add(Axis::cp, layout.cp);
  add(Axis::tp, layout.tp);
  add(Axis::ep, layout.ep);
  if (layout.etp != layout.tp) add(Axis::etp, layout.etp);
  return axes.empty() ? "-" : fmt::format("{}", fmt::join(axes, ", "));
}

/// A cell of a Markdown table.
std::string cell(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '|' ? "\\|" : std::string(1, c);
  return result;
}

/// The number as a link, where the project and the number say where to.
std::string linked(const std::string& project, const std::string& number) {
  const std::size_t digits = number.find_first_of("0123456789");
  const bool is_number = digits != std::string::npos && (number.starts_with("#") || number.starts_with("PR ")) &&
                         number.find_first_not_of("0123456789", digits) == std::string::npos;
  if (!is_number || project.find('/') == std::string::npos) return cell(number);
  return fmt::format("[{}](https://github.com/{}/{}/{})", number, project, number[0] == '#' ? "issues" : "pull",
                     number.substr(digits));
}

}  // namespace

void CorpusList::add(const CheckResult& result) {
  if (result.verdict == Verdict::error || result.scenario == nullptr) return;
  const Scenario& scenario = *result.scenario;
  Row row;
  std::tie(row.project, row.number) = project_and_number(scenario.source_reference);
  row.title = scenario.title;
  row.axes = axes_text(scenario.layout);
  row.scenario = scenario.name;
  row.match = result.verdict == Verdict::match;
  row.mistake = row.match ? "none" : std::string(name_of(kind_of_mistake(result)));
  row.replicas = row.tolerance = "-";
  if (result.verdict == Verdict::mismatch && result.symbolic) {
    row.replicas = std::string(name_of(compare_replicas(result)));
    row.tolerance = within_tolerance(result, tolerance) ? "passes" : "fails";
  }
  all_.push_back(std::move(row));
}

std::vector<CorpusList::Row> CorpusList::rows() const {
  std::set<std::pair<std::string, std::string>> mistaken;
  for (const Row& row : all_) {
    if (!row.match) mistaken.insert(row.source());
  }
  std::vector<Row> kept;
  std::copy_if(all_.begin(), all_.end(), std::back_inserter(kept), [&](const Row& row) {
    return !row.match || (!row.project.empty() && !mistaken.contains(row.source()) &&
                          row.scenario.find("-fixed") == std::string::npos);
  });
  return kept;
}

std::string CorpusList::summary() const {
  int mistakes = 0, mismatches = 0, controls = 0, agree = 0, alone = 0, passes = 0;
  std::map<std::string, int> kinds;
  std::set<std::string> projects;
  // Some sources have many files, which would outvote the others.
  std::set<std::pair<std::string, std::string>> sources, mismatching, seen_by_replicas, seen_by_tolerance;
  for (const Row& row : rows()) {
    if (row.match) {
      ++controls;
      continue;
    }
    ++mistakes;
    ++kinds[row.mistake];
    projects.insert(row.project);
    sources.insert(row.source());
    if (row.tolerance == "-") continue;
    ++mismatches;
    mismatching.insert(row.source());
    if (row.replicas == name_of(Replicas::agree)) ++agree;
    if (row.replicas == name_of(Replicas::alone)) ++alone;
    if (row.replicas == name_of(Replicas::differ)) seen_by_replicas.insert(row.source());
    if (row.tolerance == "passes") ++passes;
    if (row.tolerance == "fails") seen_by_tolerance.insert(row.source());
  }
  std::vector<std::string> words;
  for (const auto& [kind, count] : kinds) words.push_back(fmt::format("{} {}", kind, count));
  return fmt::format(
      "{} mistakes from {} sources in {} projects; {} controls that are right.\n"
      "Kinds: {}.\n"
      "Of the {} mismatches a comparison of replicas misses {}: in {} all owners agree, in {} there is nothing to "
      "compare. Of their {} sources it misses {} in every file.\n"
      "A comparison with one device that accepts a relative error of 8 % misses {} of the mismatches, and {} of the "
      "sources in every file.\n"
      "The other {} stop or race: there are no values to compare.\n",
      mistakes, sources.size(), projects.size(), controls, fmt::join(words, ", "), mismatches, agree + alone, agree,
      alone, mismatching.size(), mismatching.size() - seen_by_replicas.size(), passes,
      mismatching.size() - seen_by_tolerance.size(), mistakes - mismatches);
}

void CorpusList::write(Output& output, const std::string& format) const {
  const std::vector<std::string> heads = {"project", "number",   "title", "axes",
                                          "mistake", "replicas", "8 %",   "scenario"};
  std::vector<std::vector<std::string>> lines;
  for (const Row& row : rows()) {
    lines.push_back(
        {row.project, row.number, row.title, row.axes, row.mistake, row.replicas, row.tolerance, row.scenario});
  }
  if (format == "json") {
    JsonWriter json(output.writer());
    json.begin_array();
    for (const std::vector<std::string>& line : lines) {
      json.begin_object(true);
      for (std::size_t column = 0; column < line.size(); ++column) {
        json.key(heads[column] == "8 %" ? "tolerance" : heads[column]);
        json.string_or_null(line[column] == "-" ? "" : line[column]);
      }
      json.end_object();
    }
    json.end_array();
    return json.finish();
  }
  if (format == "markdown") {
    output.write(fmt::format("| {} |\n|{}\n", fmt::join(heads, " | "), "---|---|---|---|---|---|---|---|"));
    for (const std::vector<std::string>& line : lines) {
      output.write(fmt::format("| {} | {} | {} | {} | {} | {} | {} | `{}` |\n", cell(line[0]), linked(line[0], line[1]),
                               cell(line[2]), line[3], line[4], line[5], line[6], line[7]));
    }
    std::string text = "\n- " + summary();
    for (std::size_t at = text.find('\n', 1); at + 1 < text.size(); at = text.find('\n', at + 1)) {
      text.insert(at + 1, "- ");
    }
    output.write(text);
    return;
  }
  lines.insert(lines.begin(), heads);
  std::vector<std::size_t> widths(heads.size(), 0);
  for (const std::vector<std::string>& line : lines) {
    for (std::size_t column = 0; column < line.size(); ++column) {
      widths[column] = std::max(widths[column], text_width(line[column]));
    }
  }
  for (const std::vector<std::string>& line : lines) {
    std::string text;
    for (const std::size_t column : {0, 1, 3, 4, 5, 6, 7}) text += padded(line[column], widths[column]) + "  ";
    output.write(text + line[2] + "\n");
  }
  output.write("\n" + summary());
}

}  // namespace lockstep::cli
