// SPDX-License-Identifier: Apache-2.0
#include "src/report/repair_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/base/counted.h"
#include "src/report/blame_text.h"
#include "src/report/clean_text.h"
#include "src/report/text_report.h"

namespace lockstep::report {

namespace {

/// "1 schedule that was", "3 schedules that were"; without `that` "1 schedule was".
std::string were(int count, const std::string& noun, const std::string& that = "") {
  return fmt::format("{} {}{}", counted(count, noun), that, count == 1 ? "was" : "were");
}

/// For which sizes it is right, and who says so.
std::string reach_text(const Repair& repair) {
  const std::string layouts = were(repair.sizes, "other layout", "that ") + " tried";
  const std::string tried =
      repair.sizes == 0 ? "no other layout was tried"
      : repair.right_sizes == repair.sizes
          ? fmt::format("right at {}", layouts)
          : fmt::format("right at {} of {}, wrong at {}", repair.right_sizes, layouts, repair.wrong_at);
  switch (repair.reach) {
    case Repair::Reach::every_size:
    case Repair::Reach::axes_in_play:
      return fmt::format("{} (parametric)", repair.proof);
    case Repair::Reach::own_sizes:
      return repair.proof.empty() ? tried : fmt::format("{}; {}", tried, repair.proof);
    case Repair::Reach::layouts_tried:
      return repair.proof.empty() ? tried + " (symbolic)" : fmt::format("{} (symbolic); {}", tried, repair.proof);
    case Repair::Reach::some_sizes:
      return repair.proof.empty() ? tried + " (symbolic)" : fmt::format("{} (parametric); {}", repair.proof, tried);
  }
  return "";
}

/// Where a repair was replayed: a file with sizes that are "any" has none of its own.
std::string own_sizes(const CheckResult& result) {
  return result.written ? "sizes in place of \"any\"" : "the file's own sizes";
}

std::string replay_text(const std::string& sizes, const Repair& repair) {
  // The parametric engine decides, and replays nothing.
  std::vector<std::string> replaying = repair.verified;
  const bool decided = std::erase(replaying, "parametric") > 0;
  const std::string replayed = listed_words(std::move(replaying));
  return fmt::format("{} at {} by {}{}", decided ? "decided" : "replayed", sizes,
                     !decided ? replayed : "parametric" + (replayed.empty() ? "" : ", replayed by " + replayed),
                     repair.host_left_out.empty() ? "" : " (" + repair.host_left_out + ")");
}

/// What becomes of norms and clips, where that is not what was; "" else.
std::string norms_text(const Repair& repair) {
  return repair.keeps_norms == false ? "; takes a gradient out of a norm or a clip" : "";
}

std::string option_text(const CheckResult& result, const OptionRepair& option) {
  std::string text = fmt::format("  option {}: {}{} in place of {}{}", option.option, one_line(option.right.front()),
                                 option.to_default ? ", its default," : "", one_line(option.value),
                                 option.given ? "" : ", its default");
  if (option.asks_otherwise) text += "; what is right changes with it";
  if (!option.sizes.empty()) text += fmt::format("; the sizes are then {}", option.sizes);
  if (!option.repair.keeps_norms) text += "; whether norms and clips take what they take now was not looked at";
  const std::string sizes = option.sizes.empty() ? own_sizes(result) : "these sizes";
  text += fmt::format("\n     {}\n     {}\n", reach_text(option.repair), replay_text(sizes, option.repair));
  std::vector<std::string> others;
  for (std::size_t at = 1; at < option.right.size(); ++at) others.push_back(one_line(option.right[at]));
  if (!others.empty())
    text += fmt::format("     right at {} as well, and proved for no others: {}\n",
                        option.sizes_differ ? "the sizes that each brings" : sizes, listed_words(std::move(others)));
  return "\n" + text;
}

/// What matches and is no repair: "; 2 match only as a norm or a clip loses a gradient"; "" where there is nothing.
std::string without_norm_text(std::size_t count) {
  return count == 0
             ? ""
             : fmt::format("; {} match{} only as a norm or a clip loses a gradient", count, count == 1 ? "es" : "");
}

/// "15 other values of 8 options were tried, one at a time; 1 option has a value that is right"
std::string tried_text(const diagnosis::OptionRepairs& options) {
  std::string text = fmt::format("{} of {} {} tried, one at a time", counted(options.values, "other value"),
                                 counted(options.options, "option"), options.values == 1 ? "was" : "were");
  if (options.at_small > 0)
    text += fmt::format(", {} at {} alone, where the same goes wrong",
                        options.at_small == options.values ? "all" : fmt::format("{} of them", options.at_small),
                        options.small);
  const int right = static_cast<int>(options.repairs.size());
  text += right == 0
              ? "; none was found to be right"
              : fmt::format("; {} {} a value that is right", counted(right, "option"), right == 1 ? "has" : "have");
  return text + without_norm_text(options.without_norm.size());
}

/// What a search that was cut off left out: "; 3 single edits were not tried, and no two together"; "" else.
std::string not_tried_text(const diagnosis::NotTried& left) {
  std::vector<std::string> parts;
  if (left.uncounted)
    parts.emplace_back("single edits too many to be counted were not tried");
  else if (left.edits > 0)
    parts.push_back(were(static_cast<int>(left.edits), "single edit") + " not tried");
  if (left.pairs) parts.emplace_back("no two edits together");
  if (left.first_edits > 0)
    parts.push_back(fmt::format("not all second edits behind {}", counted(left.first_edits, "first one")));
  return parts.empty() ? "" : "; " + listed_words(std::move(parts));
}

/// What comes before edits of steps: nobody has to change code for it.
void options_text(const CheckResult& result, const diagnosis::OptionRepairs& options, const Write& write) {
  if (!options.cut_off.empty())
    write(
        fmt::format("\n  the options of the framework were not tried to the end: {}; {} {} left out in part or whole\n",
                    one_line_text(options.cut_off), counted(options.options_left, "option"),
                    options.options_left == 1 ? "is" : "are"));
  for (const OptionRepair& option : options.repairs) write(option_text(result, option));
  if (options.values > 0) write(fmt::format("\n  {}\n", tried_text(options)));
  if (options.without_verdict > 0)
    write(fmt::format("{}  with {} there is no verdict, right or wrong\n", options.values > 0 ? "" : "\n",
                      counted(options.without_verdict, "other value")));
}

void write_json_option(const OptionRepair& option, JsonWriter& json) {
  json.begin_object();
  json.key("option").string(option.option);
  json.key("value").value(option.value, true);
  json.key("given").boolean(option.given);
  json.key("right").begin_array(true);
  for (const Json& value : option.right) json.value(value, true);
  json.end_array();
  json.key("to_default").boolean(option.to_default);
  json.key("asks_otherwise").boolean(option.asks_otherwise);
  if (option.repair.keeps_norms) json.key("keeps_norms").boolean(*option.repair.keeps_norms);
  if (!option.sizes.empty()) json.key("sizes").string(option.sizes);
  json.key("verified").strings(option.repair.verified, true);
  json.key("reach").string(reach_of(option.repair));
  json.key("proof").string(option.repair.proof);
  json.end_object();
}

}  // namespace

void repair_text(const CheckResult& result, const RepairFindings& findings, bool color, const Write& write) {
  const Style style(color);
  write(verdict_line(result, style));
  if (result.verdict == Verdict::match) return write("  there is nothing to repair\n");
  options_text(result, findings.options, write);
  if (!findings.lost_ties.empty()) write("  " + one_line_text(findings.lost_ties) + "\n");
  const std::string cut_off = findings.cut_off.empty()
                                  ? ""
                                  : fmt::format("  the search was cut off: {}{}\n", one_line_text(findings.cut_off),
                                                not_tried_text(findings.not_tried));
  if (findings.repairs.empty() && findings.found > 0) {
    const std::string found =
        findings.found == 1
            ? "the one schedule that matches at a small layout was not seen to match"
            : fmt::format("none of the {} schedules that match at a small layout was seen to match", findings.found);
    write(fmt::format("  {} at {}; {} tried{}\n{}", found, own_sizes(result), were(findings.tried, "schedule"),
                      without_norm_text(findings.without_norm), cut_off));
    return;
  }
  const std::optional<Preset>& preset = result.scenario ? result.scenario->preset : std::nullopt;
  if (findings.repairs.empty() && findings.tried == 0 && preset && !preset->edits.empty())
    return write(
        "  no schedule was tried: the edits of the model (\"edits\" in \"model\") make it wrong, and no edit of the "
        "schedule takes them back\n");
  if (findings.repairs.empty()) {
    write(cut_off.empty()
              ? fmt::format("  no repair was found among the {} tried; docs/repair.md says which{}\n",
                            were(findings.tried, "schedule", "that "), without_norm_text(findings.without_norm))
              : fmt::format("  no repair was found; {} tried{}\n{}", were(findings.tried, "schedule"),
                            without_norm_text(findings.without_norm), cut_off));
    return;
  }
  int number = 0;
  for (const Repair& repair : findings.repairs) {
    std::vector<std::string> steps;  // two edits may be of one
    for (const std::string& step : repair.steps) {
      if (std::find(steps.begin(), steps.end(), step) == steps.end()) steps.push_back(step);
    }
    write(fmt::format("\n  {}. {}{}{}{}\n", ++number, fmt::join(steps, ", "),
                      repair.bytes_known ? "; " + added_bytes_text(repair.added_bytes) : "",
                      repair.other_owners ? "; changes which ranks own the gradient" : "", norms_text(repair)));
    for (const Edit& edit : repair.edits) write("     " + one_line(to_json(edit)) + "\n");
    write(fmt::format("     {}\n     {}\n", reach_text(repair), replay_text(own_sizes(result), repair)));
  }
  write(fmt::format("\n  {} tried; {} of them {}{}\n{}", were(findings.tried, "schedule"), findings.found,
                    findings.found == 1 ? "matches" : "match", without_norm_text(findings.without_norm), cut_off));
}

void repair_json(const CheckResult& result, const RepairFindings& findings, const Write& write) {
  JsonWriter json(write);
  json.begin_object();
  json.key("lockstep").number(1);
  json.key("file").string(result.file);
  json.key("verdict").string(name_of(result.verdict));
  const diagnosis::OptionRepairs& options = findings.options;
  if (options.values + options.without_verdict > 0 || !options.cut_off.empty()) {
    json.key("options").begin_array();
    for (const OptionRepair& option : options.repairs) write_json_option(option, json);
    json.end_array();
    json.key("option_values_tried").number(options.values);
    if (options.at_small > 0) {
      json.key("option_values_tried_smaller").begin_object(true);
      json.key("layout").string(options.small);
      json.key("values").number(options.at_small);
      json.end_object();
    }
    if (!options.without_norm.empty()) {
      json.key("option_values_without_norm").begin_array();
      for (const diagnosis::OptionValue& one : options.without_norm) {
        json.begin_object(true);
        json.key("option").string(one.option);
        json.key("value").value(one.value, true);
        json.end_object();
      }
      json.end_array();
    }
    if (options.without_verdict > 0) json.key("option_values_without_verdict").number(options.without_verdict);
    if (!options.cut_off.empty()) {
      json.key("options_cut_off").string(options.cut_off);
      json.key("options_not_tried").number(options.options_left);
    }
  }
  if (!findings.lost_ties.empty()) json.key("lost_ties").string(findings.lost_ties);
  json.key("repairs").begin_array();
  for (const Repair& repair : findings.repairs) write_json_repair(repair, json);
  json.end_array();
  json.key("found").number(findings.found);
  json.key("tried").number(findings.tried);
  if (findings.without_norm > 0) json.key("without_norm").number(findings.without_norm);
  if (!findings.cut_off.empty()) {
    json.key("cut_off").string(findings.cut_off);
    json.key("not_tried").begin_object(true);
    if (!findings.not_tried.uncounted) json.key("edits").number(findings.not_tried.edits);
    json.key("pairs").boolean(findings.not_tried.pairs);
    json.key("first_edits").number(findings.not_tried.first_edits);
    json.end_object();
  }
  json.key("time").begin_object(true);
  json.key("repair_s").seconds(findings.seconds);
  json.end_object();
  json.end_object();
  json.finish();
}

}  // namespace lockstep::report
