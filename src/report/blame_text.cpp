// SPDX-License-Identifier: Apache-2.0
#include "src/report/blame_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/report/elide.h"

namespace lockstep::report {

std::string one_line(const Json& value) {
  std::string text;
  JsonWriter writer([&text](std::string_view part) { text += part; });
  writer.value(value, true);
  writer.finish();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string added_bytes_text(double bytes) {
  const double size = std::abs(bytes);
  if (size < 0.5) return "no additional communication";
  std::string amount;
  if (size < 1e3) {
    amount = fmt::format("{:.0f} bytes", size);
  } else if (size < 1e6) {
    amount = fmt::format("{:.1f} kB", size / 1e3);
  } else if (size < 1e9) {
    amount = fmt::format("{:.1f} MB", size / 1e6);
  } else {
    amount = fmt::format("{:.1f} GB", size / 1e9);
  }
  return fmt::format("{} {} sent per rank", amount, bytes > 0 ? "more" : "less");
}

std::string at_fault_text(const Blame& blame, bool verbose, const Style& style) {
  std::string text = fmt::format("  {} {}\n", style.bold("at fault:"), blame.step);
  if (verbose) return fmt::format("{}    it {}\n", text, blame.why);
  std::string why;
  std::size_t begin = 0;
  for (const std::string& formula : blame.formulas) {
    const std::size_t at = blame.why.find(formula, begin);
    if (at == std::string::npos) break;
    why += blame.why.substr(begin, at - begin) + unbroken(elided(formula, widest_in_sentence));
    begin = at + formula.size();
  }
  why = "it " + why + blame.why.substr(begin);
  // What it does wrong, what comes of it on one rank: one clause a line.
  begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 2) {
    end = why.find("; ", begin);
    text += wrapped("    " + why.substr(begin, end == std::string::npos ? end : end - begin), 6) + "\n";
  }
  return text;
}

namespace {

/// Whether the scenario chose options of a framework and edited nothing.
bool has_options_alone(const CheckResult& result) {
  const Json* schedule = result.scenario->document.find("schedule");
  if (schedule == nullptr || !result.scenario->edits.empty()) return false;
  const Json* options = schedule->find("options");
  return schedule->find("framework") != nullptr && options != nullptr && !options->members().empty();
}

/// The search replays a small layout, and where no engine decides this one, what is right there need not be right here.
bool is_right_when_small(const CheckResult& result) { return result.repairs.front().verified.empty(); }

}  // namespace

std::string blame_text(const CheckResult& result, bool verbose, const Style& style) {
  if (result.repairs.empty()) return "";
  std::string text = "\n";
  for (const Blame& blame : result.blame) text += at_fault_text(blame, verbose, style);
  for (const std::string& line : right_with(result)) text += fmt::format("    {}\n", line);
  if (result.repairs.front().keeps_norms == false) text += "    (which takes a gradient out of a norm or a clip)\n";
  // Where sizes are "any", what is right at the layout that is shown need not be among what is right at all.
  text += fmt::format("    `lockstep repair {}` {}{}\n", arguments_for(result.file),
                      result.written != nullptr     ? "looks for what is right for every size"
                      : is_right_when_small(result) ? "looks for what is right at these sizes"
                                                    : "shows this repair and others",
                      has_options_alone(result) ? ", and tries other values of the framework's options" : "");
  for (const std::string& sentence : result.unnoticed)
    text += (verbose ? "    " + sentence : wrapped("    " + sentence, 6)) + "\n";
  return text;
}

std::vector<std::string> right_with(const std::vector<Edit>& edits, const std::string& where) {
  std::vector<std::string> lines;
  lines.reserve(edits.size());
  for (const Edit& edit : edits)
    lines.push_back((lines.empty() ? "right " + where + "with " : "together with ") + one_line(to_json(edit)));
  return lines;
}

std::vector<std::string> right_with(const CheckResult& result) {
  return right_with(result.repairs.front().edits, result.written != nullptr     ? "at this layout "
                                                  : is_right_when_small(result) ? "at a small layout "
                                                                                : "");
}

void write_json_repair(const Repair& repair, JsonWriter& json) {
  json.begin_object();
  json.key("edits").begin_array();
  for (const Edit& edit : repair.edits) json.value(to_json(edit), true);
  json.end_array();
  json.key("steps").strings(repair.steps, true);
  json.key("verified").strings(repair.verified, true);
  if (!repair.verified_at.empty()) json.key("verified_at").string(repair.verified_at);
  json.key("sizes").begin_object(true);
  json.key("tried").number(repair.sizes);
  json.key("right").number(repair.right_sizes);
  json.key("wrong_at").string(repair.wrong_at);
  json.end_object();
  json.key("reach").string(reach_of(repair));
  json.key("proof").string(repair.proof);
  json.key("other_owners").boolean(repair.other_owners);
  if (repair.keeps_norms) json.key("keeps_norms").boolean(*repair.keeps_norms);
  if (repair.bytes_known) json.key("added_bytes_per_rank").number(std::llround(repair.added_bytes));
  json.end_object();
}

}  // namespace lockstep::report
