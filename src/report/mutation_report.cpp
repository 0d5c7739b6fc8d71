// SPDX-License-Identifier: Apache-2.0
#include "src/report/mutation_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/base/counted.h"
#include "src/report/blame_text.h"
#include "src/report/clean_text.h"
#include "src/report/json_writer.h"
#include "src/report/style.h"

namespace lockstep::report {

namespace {

constexpr std::size_t most_survivors = 3;  // of each reason, in a text that is not verbose

/// A table row: a head and numbers.
using Row = std::pair<std::string, diagnosis::MutantCounts>;

const std::vector<std::string>& heads() {
  static const std::vector<std::string> words = {"mutants",    "killed",     "symbolic", "parametric", "other sizes",
                                                 "equivalent", "not proved", "values",   "replicas",   "8 %"};
  return words;
}

std::vector<int> numbers(const diagnosis::MutantCounts& counts) {
  return {counts.mutants,    counts.killed,   counts.symbolic, counts.parametric, counts.elsewhere,
          counts.equivalent, counts.unproved, counts.values,   counts.replicas,   counts.tolerance};
}

/// One row for each kind of edit that there is, and one for all.
std::vector<Row> by_kind(const std::vector<const diagnosis::Mutant*>& mutants) {
  std::map<std::string_view, diagnosis::MutantCounts> kinds;
  diagnosis::MutantCounts all;
  for (const diagnosis::Mutant* mutant : mutants) {
    kinds[mutant->kind].add(*mutant);
    all.add(*mutant);
  }
  std::vector<Row> rows;
  for (const std::string_view kind : diagnosis::mutant_kinds()) {
    const auto found = kinds.find(kind);
    if (found != kinds.end()) rows.emplace_back(kind, found->second);
  }
  rows.emplace_back("all", all);
  return rows;
}

std::vector<const diagnosis::Mutant*> pointers(const std::vector<diagnosis::Mutation>& all) {
  std::vector<const diagnosis::Mutant*> list;
  for (const diagnosis::Mutation& one : all) {
    for (const diagnosis::Mutant& mutant : one.mutants) list.push_back(&mutant);
  }
  return list;
}

void write_table(const std::vector<Row>& rows, const Write& write) {
  std::size_t width = 0;
  for (const Row& row : rows) width = std::max(width, text_width(row.first));
  std::string line = "  " + std::string(width, ' ');
  for (const std::string& head : heads()) line += "  " + head;
  write(line + "\n");
  for (const Row& row : rows) {
    line = "  " + padded(row.first, width);
    const std::vector<int> values = numbers(row.second);
    for (std::size_t at = 0; at < values.size(); ++at)
      line += fmt::format("  {:>{}}", values[at], text_width(heads()[at]));
    write(line + "\n");
  }
}

void write_markdown_table(const char* head, const std::vector<Row>& rows, const Write& write) {
  std::string line = fmt::format("| {} |", head), rule = "|---|";
  for (const std::string& word : heads()) {
    line += " " + word + " |";
    rule += "--:|";
  }
  write(line + "\n" + rule + "\n");
  for (const Row& row : rows) {
    line = "| " + row.first + " |";
    for (const int value : numbers(row.second)) line += fmt::format(" {} |", value);
    write(line + "\n");
  }
}

/// Those that survive, by reason, in the order in which these come up.
std::vector<std::pair<std::string, std::vector<const diagnosis::Mutant*>>> survivors(
    const diagnosis::Mutation& mutation) {
  std::vector<std::pair<std::string, std::vector<const diagnosis::Mutant*>>> reasons;
  for (const diagnosis::Mutant& mutant : mutation.mutants) {
    if (mutant.fate != diagnosis::Mutant::Fate::unproved) continue;
    auto same = std::find_if(reasons.begin(), reasons.end(), [&](const auto& one) { return one.first == mutant.why; });
    if (same == reasons.end()) same = reasons.insert(reasons.end(), {mutant.why, {}});
    same->second.push_back(&mutant);
  }
  return reasons;
}

/// "20 edits were not tried: it would take more than …".
std::string untried_text(const diagnosis::Mutation& mutation) {
  return fmt::format("{} {} not tried: {}", counted(mutation.untried, "edit"), mutation.untried == 1 ? "was" : "were",
                     one_line_text(mutation.cut_off));
}

std::string fate_text(const diagnosis::Mutant& mutant) {
  if (mutant.fate == diagnosis::Mutant::Fate::equivalent) return "equivalent";
  if (mutant.fate == diagnosis::Mutant::Fate::unproved) return "not proved: " + mutant.why;
  const char* engines = mutant.symbolic     ? mutant.parametric ? "symbolic, parametric" : "symbolic"
                        : mutant.parametric ? "parametric"
                                            : "symbolic";
  return fmt::format("{} ({}){}", name_of(mutant.verdict), engines, mutant.sizes.empty() ? "" : " at " + mutant.sizes);
}

void write_json_counts(const diagnosis::MutantCounts& counts, JsonWriter& json) {
  const std::pair<const char*, int> members[] = {{"mutants", counts.mutants},       {"killed", counts.killed},
                                                 {"symbolic", counts.symbolic},     {"parametric", counts.parametric},
                                                 {"other_sizes", counts.elsewhere}, {"equivalent", counts.equivalent},
                                                 {"not_proved", counts.unproved},   {"values", counts.values},
                                                 {"replicas", counts.replicas},     {"tolerance", counts.tolerance}};
  json.begin_object(true);
  for (const auto& [key, number] : members) {
    json.key(key).number(number);
  }
  json.end_object();
}

void write_json_mutant(const diagnosis::Mutant& mutant, JsonWriter& json) {
  const bool killed = mutant.fate == diagnosis::Mutant::Fate::killed;
  json.begin_object(true);
  json.key("kind").string(mutant.kind);
  json.key("step").string_or_null(mutant.step);
  json.key("edit").value(mutant.edit, true);
  json.key("fate").string(killed                                               ? "killed"
                          : mutant.fate == diagnosis::Mutant::Fate::equivalent ? "equivalent"
                                                                               : "not proved");
  if (killed) {
    json.key("verdict").string(name_of(mutant.verdict));
    json.key("engines").begin_array(true);
    if (mutant.symbolic) json.string("symbolic");
    if (mutant.parametric) json.string("parametric");
    json.end_array();
    json.key("sizes").string_or_null(mutant.sizes);
    json.key("replicas_differ").boolean(mutant.replicas_differ);
    json.key("beyond_tolerance").boolean(mutant.beyond_tolerance);
  }
  if (mutant.fate == diagnosis::Mutant::Fate::unproved) {
    json.key("why").string(mutant.why);
  }
  json.end_object();
}

std::string percent(int part, int whole) { return whole == 0 ? "none" : fmt::format("{:.1f} %", 100.0 * part / whole); }

std::string summary(const diagnosis::MutantCounts& counts) {
  return fmt::format(
      "{}: {} killed, {} proved equivalent for every size, {} not proved.\n"
      "Of the {} with wrong values a comparison of replicas sees {} ({}), and a comparison with one device that "
      "accepts "
      "an error of 8 % sees {} ({}).\n",
      counted(counts.mutants, "mutant"), counts.killed, counts.equivalent, counts.unproved, counts.values,
      counts.replicas, percent(counts.replicas, counts.values), counts.tolerance,
      percent(counts.tolerance, counts.values));
}

}  // namespace

void mutation_text(const diagnosis::Mutation& mutation, const ReportOptions& options, const Write& write) {
  const Style style(options.color);
  const diagnosis::MutantCounts counts = diagnosis::counts_of(mutation.mutants);
  const std::string word = counts.unproved == 0 ? style.good("explained") : style.bad("survivors");
  write(fmt::format("{}  {}  {}: {} killed, {} equivalent, {} not proved\n", word,
                    one_line_text(mutation.scenario->file), counted(counts.mutants, "mutant"), counts.killed,
                    counts.equivalent, counts.unproved));
  if (options.quiet) return;
  write(fmt::format("  at {}{}; the schedule itself: {}\n\n", mutation.sizes,
                    mutation.as_in_file ? ", as in the file" : "", mutation.base));
  write_table(by_kind(pointers({mutation})), write);
  if (options.verbose) {
    write("\n");
    for (const diagnosis::Mutant& mutant : mutation.mutants)
      write(fmt::format("  {}\n    {}\n", one_line(mutant.edit), fate_text(mutant)));
  } else if (counts.unproved > 0) {
    write("\n  Right at every layout that was tried, and not proved for every size:\n");
    for (const auto& [why, mutants] : survivors(mutation)) {
      write("  - " + why + "\n");
      const std::size_t shown = mutants.size() <= most_survivors + 1 ? mutants.size() : most_survivors;
      for (std::size_t at = 0; at < shown; ++at) write("      " + one_line(mutants[at]->edit) + "\n");
      if (shown < mutants.size()) write(fmt::format("      and {} more; -v shows them\n", mutants.size() - shown));
    }
  }
  if (!mutation.cut_off.empty()) write(fmt::format("\n  {}\n", untried_text(mutation)));
  write(fmt::format("\n  {} nothing or {} another one, and {} cannot be applied\n",
                    counted(mutation.same, "more edit") + (mutation.same == 1 ? " changes" : " change"),
                    mutation.same == 1 ? "repeats" : "repeat", mutation.invalid));
}

void mutation_summary_text(const std::vector<diagnosis::Mutation>& all, const Write& write) {
  const std::vector<const diagnosis::Mutant*> mutants = pointers(all);
  write_table(by_kind(mutants), write);
  diagnosis::MutantCounts counts;
  for (const diagnosis::Mutant* mutant : mutants) counts.add(*mutant);
  write("\n" + summary(counts));
}

void mutation_markdown(const std::vector<diagnosis::Mutation>& all, const Write& write) {
  std::vector<Row> files;
  diagnosis::MutantCounts sum;
  for (const diagnosis::Mutation& one : all) {
    files.emplace_back(markdown_cell(one.scenario->file), diagnosis::counts_of(one.mutants));
    sum.add(files.back().second);
  }
  write(summary(sum) + "\n");
  write_markdown_table("edit", by_kind(pointers(all)), write);
  write("\n");
  write_markdown_table("schedule", files, write);
  bool first = true;
  for (const diagnosis::Mutation& one : all) {
    if (!one.cut_off.empty()) {
      if (first) write("\n");
      first = false;
      write(fmt::format("- {}: {}\n", markdown_code(one.scenario->file), untried_text(one)));
    }
    for (const auto& [why, mutants] : survivors(one)) {
      if (first) write("\n");
      first = false;
      write(fmt::format("- {}, {}: {}\n", markdown_code(one.scenario->file), counted(mutants.size(), "mutant"),
                        markdown_text(why)));
      for (const diagnosis::Mutant* mutant : mutants)
        write(fmt::format("  - {}\n", markdown_code(one_line(mutant->edit))));
    }
  }
}

void mutation_json(const std::vector<diagnosis::Mutation>& all, const Write& write) {
  JsonWriter json(write);
  diagnosis::MutantCounts sum;
  double seconds = 0;
  json.begin_object();
  json.key("lockstep").number(1);
  json.key("files").begin_array();
  for (const diagnosis::Mutation& one : all) {
    const diagnosis::MutantCounts counts = diagnosis::counts_of(one.mutants);
    sum.add(counts);
    seconds += one.seconds;
    json.begin_object();
    json.key("file").string(one.scenario->file);
    json.key("layout").string(one.sizes);
    json.key("schedule").string(one.base);
    json.key("counts");
    write_json_counts(counts, json);
    json.key("same").number(one.same);
    json.key("not_applicable").number(one.invalid);
    if (!one.cut_off.empty()) {
      json.key("not_tried").number(one.untried);
      json.key("cut_off").string(one.cut_off);
    }
    json.key("mutants").begin_array();
    for (const diagnosis::Mutant& mutant : one.mutants) write_json_mutant(mutant, json);
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.key("counts");
  write_json_counts(sum, json);
  json.key("time").begin_object(true);
  json.key("mutate_s").seconds(seconds);
  json.end_object();
  json.end_object();
  json.finish();
}

}  // namespace lockstep::report
