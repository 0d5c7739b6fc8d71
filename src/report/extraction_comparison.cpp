// SPDX-License-Identifier: Apache-2.0
#include "lockstep/extraction_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "lockstep/report.h"
#include "src/base/counted.h"
#include "src/report/clean_text.h"
#include "src/report/differing_gradients.h"
#include "src/report/json_writer.h"
#include "src/report/plain_table.h"
#include "src/report/style.h"

namespace lockstep {

namespace {

using CodeVerdict = ExtractionComparison::Verdict;

constexpr std::size_t most_listed = 6;

std::string layout_of_code(const ExtractionComparison& comparison) {
  std::string text;
  for (const auto& [axis, size] : comparison.axes)
    text += fmt::format("{}{} {}", text.empty() ? "" : " × ", axis, size);
  return text +
         fmt::format(" = {}, {}", counted(comparison.world, "rank"), counted(comparison.steps, "optimizer step"));
}

/// The first of them, a line each, and how many more there are.
template <typename Items, typename Line>
void some_lines(const Items& items, bool verbose, const Write& write, Line line) {
  std::size_t shown = 0;
  for (const auto& item : items) {
    if (!verbose && shown++ == most_listed) {
      write(fmt::format("  and {} more (-v shows all)\n", items.size() - most_listed));
      return;
    }
    write("  " + line(item) + "\n");
  }
}

std::string either(std::int64_t before, std::int64_t after) {
  const auto text = [](std::int64_t count) { return count == 0 ? std::string("-") : std::to_string(count); };
  return before == after ? text(before) : text(before) + " → " + text(after);
}

std::string_view verdict_name(CodeVerdict verdict) {
  return verdict == CodeVerdict::same ? "same" : verdict == CodeVerdict::other ? "other" : "undecided";
}

/// A scenario's steps are not the code's calls, which may take parts of a step, or several at once: neither is held
/// against the other.
void text_of_steps_and_calls(const ExtractionComparison& comparison, bool verbose, const report::Style& style,
                             const Write& write) {
  if (!verbose) return;
  std::vector<std::vector<std::string>> steps = {{"", "step", "", "ranks", "calls of all ranks"}};
  std::vector<std::vector<std::string>> calls = {{"", "call", "", "ranks", "calls of all ranks", "elements"}};
  for (const CallDifference& each : comparison.calls) {
    if (each.calls_before > 0)
      steps.push_back({"", report::one_line_text(each.call), each.op, std::to_string(each.group),
                       std::to_string(each.calls_before)});
    else
      calls.push_back({"", each.call.empty() ? "unknown place" : report::one_line_text(each.call), each.op,
                       each.group == 0 ? "" : std::to_string(each.group), std::to_string(each.calls_after),
                       std::to_string(each.elements_after)});
  }
  write(fmt::format("\n{} of the scenario in an optimizer step\n", style.bold("communication")));
  if (steps.size() > 1) report::plain_table(steps, write);
  write(fmt::format("\n{} of the code\n", style.bold("communication")));
  if (calls.size() > 1) report::plain_table(calls, write);
}

void text_of_calls(const ExtractionComparison& comparison, bool verbose, const report::Style& style,
                   const Write& write) {
  std::vector<std::vector<std::string>> rows = {{"", "call", "", "ranks", "calls of all ranks", "elements"}};
  for (const CallDifference& each : comparison.calls) {
    if (!verbose && !each.changed()) continue;
    rows.push_back({each.calls_before == 0  ? "+"
                    : each.calls_after == 0 ? "-"
                                            : "",
                    each.call.empty() ? "unknown place" : report::one_line_text(each.call), each.op,
                    each.group == 0 ? "" : std::to_string(each.group), either(each.calls_before, each.calls_after),
                    either(each.elements_before, each.elements_after)});
  }
  write(fmt::format("\n{} in all optimizer steps\n", style.bold("communication")));
  if (rows.size() > 1) report::plain_table(rows, write);
  if (std::none_of(comparison.calls.begin(), comparison.calls.end(), [](const auto& one) { return one.changed(); }))
    write("  The same functions call as often, in groups of the same sizes, with as many elements.\n");
}

}  // namespace

void comparison_text(const ExtractionComparison& comparison, bool verbose, bool color, const Write& write) {
  const report::Style style(color);
  const CodeVerdict verdict = comparison.verdict();
  const bool others = !comparison.gradients.empty() || !comparison.only_before.empty() ||
                      !comparison.only_after.empty() || !comparison.placements.empty() || !comparison.ties.empty();
  const report::SideNames names =
      comparison.with_scenario ? report::SideNames{"scenario", "code", "in the code"} : report::SideNames{};
  const std::string head = !comparison.apart.empty()       ? style.bad("cannot be compared")
                           : verdict == CodeVerdict::same  ? style.good("same gradients")
                           : verdict == CodeVerdict::other ? style.bad(others ? "other gradients" : "other calls")
                                                           : "undecided";
  write(fmt::format("{}  {} → {}\n", head, report::one_line_text(comparison.before),
                    report::one_line_text(comparison.after)));
  for (const std::string& reason : comparison.apart) write("  " + reason + "\n");
  if (!comparison.apart.empty()) return;
  write("  " + layout_of_code(comparison) + "\n");
  if (comparison.gradients.empty() && verdict == CodeVerdict::same)
    write(fmt::format("  {}, in {}{} of all ranks{} together.\n",
                      comparison.ownership.empty() || !comparison.with_scenario
                          ? "Every optimizer gets the same"
                          : "Whoever gets an element gets the same, some of them on other ranks",
                      comparison.with_scenario ? counted(comparison.parameters, "parameter") + ", " : "",
                      counted(comparison.elements, "element"), comparison.steps > 1 ? " and optimizer steps" : ""));
  for (const std::string& note : comparison.notes) write("  " + report::one_line_text(note) + "\n");
  report::differing_gradients(comparison.gradients,
                              comparison.step > 0 ? fmt::format(" in optimizer step {}", comparison.step) : "", verbose,
                              style, write, names);
  for (const auto& [only, side] :
       {std::pair(&comparison.only_before, names.before), std::pair(&comparison.only_after, names.after)}) {
    if (only->empty()) continue;
    write(fmt::format("\n{} of the {}{} alone\n", style.bold("parameters"), side,
                      comparison.with_scenario ? "" : " one"));
    some_lines(*only, verbose, write, [](const std::string& name) { return report::one_line_text(name); });
  }
  if (!comparison.ties.empty()) {
    write(fmt::format("\n{} that are tied in one alone\n", style.bold("parameters")));
    some_lines(comparison.ties, verbose, write,
               [](const std::string& sentence) { return report::one_line_text(sentence); });
  }
  if (!comparison.placements.empty()) {
    write(fmt::format("\n{} or shares of one\n", style.bold("one gradient")));
    some_lines(comparison.placements, verbose, write,
               [](const std::string& sentence) { return report::one_line_text(sentence); });
  }
  if (!comparison.unmet_before.empty() || !comparison.unmet_after.empty()) {
    write(fmt::format("\n{} that do not meet\n", style.bold("calls")));
    for (const auto& [unmet, side] :
         {std::pair(&comparison.unmet_before, names.before), std::pair(&comparison.unmet_after, names.after)}) {
      const std::string of(side);
      some_lines(*unmet, verbose, write,
                 [&](const std::string& what) { return fmt::format("{}  {}", of, report::one_line_text(what)); });
    }
  }
  if (!comparison.undecided.empty()) {
    write(fmt::format("\n{}\n", style.bold("not compared")));
    some_lines(comparison.undecided, verbose, write, [](const UndecidedGradient& one) {
      std::string where = one.parameter + (one.elements.empty() ? "" : " " + one.elements);
      return report::one_line_text(where.empty() ? one.why : where + ": " + one.why);
    });
  }
  if (!comparison.ownership.empty()) {
    write(fmt::format("\n{} of elements by ranks' optimizers\n", style.bold("ownership")));
    some_lines(comparison.ownership, verbose, write, [](const std::pair<std::string, int>& one) {
      return fmt::format("{}: {} other elements", report::one_line_text(one.first),
                         one.second == 1 ? "1 rank reads" : fmt::format("{} ranks read", one.second));
    });
  }
  if (comparison.with_scenario)
    text_of_steps_and_calls(comparison, verbose, style, write);
  else
    text_of_calls(comparison, verbose, style, write);
}

void comparison_json(const ExtractionComparison& comparison, const Write& write) {
  report::JsonWriter json(write);
  json.begin_object();
  json.key("lockstep").number(1);
  json.key("verdict");
  comparison.apart.empty() ? json.string(verdict_name(comparison.verdict())) : json.null();
  json.key("apart").strings(comparison.apart);
  json.key("old").string(comparison.before);
  json.key("new").string(comparison.after);
  json.key("ranks").number(comparison.world);
  json.key("steps").number(comparison.steps);
  json.key("step").number(comparison.step);
  if (comparison.with_scenario) json.key("parameters").number(comparison.parameters);
  json.key("elements").number(comparison.elements);
  json.key("notes").strings(comparison.notes);
  report::differing_gradients(comparison.gradients, json);
  json.key("only_old").strings(comparison.only_before);
  json.key("only_new").strings(comparison.only_after);
  if (comparison.with_scenario) {
    json.key("placements").strings(comparison.placements);
    json.key("ties").strings(comparison.ties);
  }
  json.key("unmet_old").strings(comparison.unmet_before);
  json.key("unmet_new").strings(comparison.unmet_after);
  json.key("undecided").begin_array();
  for (const UndecidedGradient& one : comparison.undecided) {
    json.begin_object(true);
    json.key("parameter").string_or_null(one.parameter);
    json.key("elements").string_or_null(one.elements);
    json.key("why").string(one.why);
    json.end_object();
  }
  json.end_array();
  json.key("ownership").begin_array();
  for (const auto& [name, ranks] : comparison.ownership) {
    json.begin_object(true);
    json.key("parameter").string(name);
    json.key("ranks").number(ranks);
    json.end_object();
  }
  json.end_array();
  json.key("calls").begin_array();
  for (const CallDifference& one : comparison.calls) {
    json.begin_object(true);
    json.key("call").string_or_null(one.call);
    json.key("op").string(one.op);
    json.key("group").number(one.group);
    json.key("old_calls").number(one.calls_before);
    json.key("new_calls").number(one.calls_after);
    json.key("old_elements").number(one.elements_before);
    json.key("new_elements").number(one.elements_after);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  json.finish();
}

}  // namespace lockstep
