// SPDX-License-Identifier: Apache-2.0
#include "src/report/repair_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/report/blame_text.h"
#include "src/report/text_report.h"

namespace lockstep {

namespace {

std::string sizes_text(const Repair& repair) {
  if (repair.sizes == 0) return "tried at the file's sizes alone";
  if (repair.right_sizes == repair.sizes) return fmt::format("right at {} other sizes as well", repair.sizes);
  return fmt::format("right at {} of {} other sizes", repair.right_sizes, repair.sizes);
}

}  // namespace

void repair_text(const CheckResult& result, const RepairFindings& findings, bool color, const Write& write) {
  const Style style(color);
  write(verdict_line(result, style));
  if (result.verdict == Verdict::match) return write("  there is nothing to repair\n");
  if (findings.repairs.empty()) {
    write(fmt::format("  no edit makes it right, and no two edits do; {} schedules were tried\n", findings.tried));
    return;
  }
  int number = 0;
  for (const Repair& repair : findings.repairs) {
    write(fmt::format("\n  {}. {}; {}; {}{}\n", ++number, fmt::join(repair.steps, ", "),
                      added_bytes_text(repair.added_bytes), sizes_text(repair),
                      repair.other_owners ? "; other ranks own the gradient" : ""));
    for (const Json& edit : repair.edits) write("     " + one_line(edit) + "\n");
    write(fmt::format("     verified at the file's sizes by {}\n", fmt::join(repair.verified, " and ")));
  }
  write(fmt::format("\n  {} of {} schedules that were tried match\n", findings.found, findings.tried));
}

void repair_json(const CheckResult& result, const RepairFindings& findings, const Write& write) {
  JsonWriter json(write);
  json.begin_object();
  json.key("lockstep");
  json.number(1);
  json.key("file");
  json.string(result.file);
  json.key("verdict");
  json.string(name_of(result.verdict));
  json.key("repairs");
  json.begin_array();
  for (const Repair& repair : findings.repairs) write_json_repair(repair, json);
  json.end_array();
  json.key("found");
  json.number(findings.found);
  json.key("tried");
  json.number(findings.tried);
  json.key("time");
  json.begin_object(true);
  json.key("repair_s");
  json.seconds(findings.seconds);
  json.end_object();
  json.end_object();
  json.finish();
}

}  // namespace lockstep
