// SPDX-License-Identifier: Apache-2.0
#include "src/report/mutation_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/base/counted.h"
#include "src/diagnosis/candidates.h"
#include "src/report/blame_text.h"
#include "src/report/clean_text.h"
#include "src/report/json_writer.h"
#include "src/report/plain_table.h"
#include "src/report/style.h"
#include "src/report/text_report.h"

namespace lockstep::report {

namespace {

using diagnosis::Mutant, diagnosis::Mutation;

struct Counts {
  int mutants = 0, killed = 0, equivalent = 0, unproved = 0;
  int elsewhere = 0;  ///< killed, but right at the small layout

  void add(const Mutant& mutant) {
    ++mutants;
    ++(mutant.fate == Mutant::Fate::killed ? killed : mutant.fate == Mutant::Fate::equivalent ? equivalent : unproved);
    if (!mutant.sizes.empty()) ++elsewhere;
  }
};

Counts counts_of(const Mutation& mutation) {
  Counts counts;
  for (const Mutant& mutant : mutation.mutants) counts.add(mutant);
  return counts;
}

/// A row for each kind of edit that there is, and one for all.
void write_table(const std::vector<Mutation>& all, const Write& write) {
  std::map<std::string_view, Counts> counts;
  for (const Mutation& one : all) {
    for (const Mutant& mutant : one.mutants) {
      counts[mutant.kind].add(mutant);
      counts["all"].add(mutant);
    }
  }
  std::vector<std::vector<std::string>> rows = {
      {"", "", "mutants", "killed", "at other sizes", "equivalent", "not proved"}};
  const auto add = [&](std::string_view kind) {
    if (!counts.contains(kind)) return;
    const Counts& row = counts[kind];
    rows.push_back({"", std::string(kind)});
    for (const int count : {row.mutants, row.killed, row.elsewhere, row.equivalent, row.unproved})
      rows.back().push_back(fmt::format("{:>{}}", count, text_width(rows.front()[rows.back().size()])));
  };
  for (int kind = 0; kind < diagnosis::candidate_kind_count; ++kind)
    add(name_of(static_cast<diagnosis::Candidate::Kind>(kind)));
  add("all");
  plain_table(rows, write);
}

std::string fate_text(const Mutant& mutant) {
  if (mutant.fate == Mutant::Fate::equivalent) return "equivalent";
  if (mutant.fate == Mutant::Fate::unproved) return "not proved: " + mutant.why;
  return std::string(name_of(mutant.verdict)) + (mutant.sizes.empty() ? "" : " at " + mutant.sizes);
}

void write_mutation(const Mutation& mutation, const ReportOptions& options, const Write& write) {
  write(fmt::format("  {}{}; the schedule itself: {}\n\n", layout_text(*mutation.small),
                    mutation.as_in_file ? ", as in the file" : "", mutation.base));
  write_table({mutation}, write);
  constexpr int most_survivors = 10;
  int survivors = 0;
  for (const Mutant& mutant : mutation.mutants) {
    const bool survives = mutant.fate == Mutant::Fate::unproved;
    if (!options.verbose && (!survives || ++survivors > most_survivors)) continue;
    if (options.verbose ? &mutant == &mutation.mutants.front() : survivors == 1) write("\n");
    write(fmt::format("  {}\n    {}\n", one_line(mutant.edit), fate_text(mutant)));
  }
  if (survivors > most_survivors)
    write(fmt::format("  and {} more not proved; -v shows them\n", survivors - most_survivors));
  if (!mutation.cut_off.empty())
    write(fmt::format("\n  not tried: {}: {}\n", counted(mutation.untried, "edit"), one_line_text(mutation.cut_off)));
  write(fmt::format("\n  edits that change nothing or repeat another one: {}; that cannot be applied: {}\n",
                    mutation.same, mutation.invalid));
}

void write_json_mutant(const Mutant& mutant, JsonWriter& json) {
  json.begin_object(true);
  json.key("kind").string(mutant.kind);
  json.key("step").string_or_null(mutant.step);
  json.key("edit").value(mutant.edit, true);
  const bool killed = mutant.fate == Mutant::Fate::killed, unproved = mutant.fate == Mutant::Fate::unproved;
  json.key("fate").string(killed ? "killed" : unproved ? "not proved" : "equivalent");
  if (unproved) json.key("why").string(mutant.why);
  if (killed) {
    json.key("verdict").string(name_of(mutant.verdict));
    json.key("engines").strings(mutant.engines, true);
    json.key("sizes").string_or_null(mutant.sizes);
  }
  json.end_object();
}

}  // namespace

void mutation_text(const std::vector<Mutation>& all, const ReportOptions& options, const Write& write) {
  const Style style(options.color);
  const bool one_line_each = options.quiet || (all.size() > 1 && !options.verbose);
  for (const Mutation& one : all) {
    if (!one_line_each && &one != &all.front()) write("\n");
    const Counts counts = counts_of(one);
    write(fmt::format("{}  {}  {}: {} killed, {} equivalent, {} not proved\n",
                      one.unproved > 0       ? style.bad("survivors")
                      : !one.cut_off.empty() ? style.bad("cut off")
                                             : style.good("explained"),
                      one_line_text(one.scenario->file), counted(counts.mutants, "mutant"), counts.killed,
                      counts.equivalent, counts.unproved));
    if (!one_line_each) write_mutation(one, options, write);
  }
  if (all.size() < 2 || options.quiet) return;
  write("\n");
  write_table(all, write);
}

void mutation_json(const std::vector<Mutation>& all, const Write& write) {
  JsonWriter json(write);
  double seconds = 0;
  json.begin_object();
  json.key("lockstep").number(1);
  json.key("files").begin_array();
  for (const Mutation& one : all) {
    seconds += one.seconds;
    const Counts counts = counts_of(one);
    json.begin_object();
    json.key("file").string(one.scenario->file);
    json.key("layout").string(layout_text(*one.small));
    json.key("schedule").string(one.base);
    json.key("counts").begin_object(true);
    json.key("mutants").number(counts.mutants);
    json.key("killed").number(counts.killed);
    json.key("other_sizes").number(counts.elsewhere);
    json.key("equivalent").number(counts.equivalent);
    json.key("not_proved").number(counts.unproved);
    json.end_object();
    json.key("same").number(one.same);
    json.key("not_applicable").number(one.invalid);
    if (!one.cut_off.empty()) {
      json.key("not_tried").number(one.untried);
      json.key("cut_off").string(one.cut_off);
    }
    json.key("mutants").begin_array();
    for (const Mutant& mutant : one.mutants) write_json_mutant(mutant, json);
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.key("time").begin_object(true);
  json.key("mutate_s").seconds(seconds);
  json.end_object();
  json.end_object();
  json.finish();
}

}  // namespace lockstep::report
