// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <utility>

#include "src/base/budget.h"
#include "src/base/counted.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/written_scenario.h"
#include "src/diagnosis/any_sizes.h"
#include "src/diagnosis/lost_ties.h"
#include "src/diagnosis/option_repairs.h"
#include "src/diagnosis/repairs.h"
#include "src/diagnosis/verify_repair.h"
#include "src/report/blame_text.h"
#include "src/report/clean_text.h"
#include "src/report/repair_report.h"
#include "src/scenario/changed_keys.h"
#include "src/scenario/insert_edits.h"
#include "src/scenario/moved_references.h"

namespace lockstep::cli {

namespace {

struct RepairArguments : CommonOptions {
  std::string file, to, take, most = "3";
  bool write = false;
};

constexpr std::int64_t most_repairs = 1000;

/// The best ones that stand at the file's own sizes, at most `most`.
report::RepairFindings search(const CheckResult& result, std::size_t most) {
  const auto begin = std::chrono::steady_clock::now();
  report::RepairFindings findings;
  const diagnosis::RepairSearch found = [&] {
    const Budget budget(Budget::search, Budget::memory_of_a_proof);
    return diagnosis::find_repairs(result);
  }();
  findings.cut_off = found.cut_off;
  if (found.cut_off.empty() && found.limit > 0)
    findings.cut_off =
        fmt::format("of a layout of this size no more than {} are tried", counted(found.limit, "schedule"));
  findings.not_tried = found.not_tried;
  findings.tried = found.tried;
  findings.found = static_cast<int>(found.repairs.size()) + found.wrong_at_own_sizes;
  findings.repairs = diagnosis::best_repairs(result, found, most, &findings.without_norm);
  findings.found -= static_cast<int>(findings.without_norm);
  findings.without_norm += found.without_norm;
  findings.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return findings;
}

void search_options(const CheckResult& result, report::RepairFindings& findings) {
  const auto begin = std::chrono::steady_clock::now();
  findings.options = diagnosis::option_repairs(result);
  findings.lost_ties = diagnosis::lost_ties(result);
  findings.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Of two searches, the first of which has no repair to show.
report::RepairFindings both(const report::RepairFindings& first, report::RepairFindings second) {
  second.tried += first.tried;
  second.seconds += first.seconds;
  second.without_norm += first.without_norm;
  if (second.repairs.empty()) second.found += first.found;  // at a small layout alone, as those of the first
  if (second.cut_off.empty()) {
    second.cut_off = first.cut_off;
    second.not_tried = first.not_tried;
  }
  return second;
}

std::int64_t taken(const RepairArguments& arguments) {
  return arguments.take.empty() ? 1 : number_of("--take", arguments.take, most_repairs);
}

/// What --set changes is changed in this call alone; the file that would be written is the one as it is.
void want_no_changes(const RepairArguments& arguments) {
  if (scenario::changes_of_every_scenario().empty() || (arguments.to.empty() && !arguments.write)) return;
  usage_error(
      fmt::format("{} writes the file as it is, with its repair, and --set changes what is repaired: write the "
                  "change into the file first",
                  arguments.write ? "--write" : "--to"));
}

void write_repaired(const CheckResult& result, const report::RepairFindings& findings,
                    const RepairArguments& arguments) {
  const auto take = static_cast<std::size_t>(taken(arguments));
  if (take > findings.repairs.size())
    usage_error(fmt::format(
        "--take {}: there {} of {}", take,
        findings.repairs.size() == 1 ? "is 1 repair" : fmt::format("are {} repairs", findings.repairs.size()),
        result.file));
  std::vector<std::string> edits;
  for (const Edit& edit : findings.repairs[take - 1].edits) edits.push_back(report::one_line(to_json(edit)));
  // Where sizes are "any", the result is about a scenario of given ones.
  const Scenario as_written = read_scenario_file(result.file);
  const std::string path = arguments.write ? result.file : arguments.to;
  const std::string place = scenario_at(path, result.file);
  const std::string text = scenario::text_with_edits(as_written, edits, std::filesystem::path(place).parent_path());
  // The repair was found at sizes of its own; with "any" the whole may not be decided.
  if (const std::string why = why_no_scenario(place, text); !why.empty())
    usage_error(
        fmt::format("repair {} is right at the sizes that are shown, but with it {} is no valid scenario: {}; "
                    "the file is not written",
                    take, result.file, why));
  if (arguments.write) {
    Output kept(result.file + ".orig", report::ReadableText::Kind::as_is);
    kept.write(as_written.document.place().source->text);
    kept.commit();
  }
  Output repaired(path, report::ReadableText::Kind::as_is);
  if (arguments.write) repaired.may_replace_input();
  repaired.write(text);
  repaired.commit();
  tell(fmt::format(
      "wrote {} with repair {}{}\n", report::one_line_text(path), take,
      arguments.write ? fmt::format("; {} is as it was", report::one_line_text(result.file + ".orig")) : ""));
}

int run(const RepairArguments& arguments) {
  const auto most =
      static_cast<std::size_t>(std::max(number_of("--most", arguments.most, most_repairs), taken(arguments)));
  const std::string file = one_scenario_file("repair", arguments.file);
  if (arguments.write && file == standard_input_name)
    usage_error(
        "--write changes FILE, and standard input cannot be written to; --to writes the repaired scenario to a file");
  if (!arguments.take.empty() && !arguments.write && arguments.to.empty())
    usage_error("--take says which repair --write or --to writes; give one of these too");
  if (arguments.write && !arguments.to.empty())
    usage_error("--write changes FILE and --to writes another file; give one of them");
  if (arguments.write && std::filesystem::exists(file + ".orig"))
    usage_error(fmt::format("{}.orig exists, and --write would overwrite it; move it away, or use --to", file));
  want_no_changes(arguments);
  const Budget budget(Budget::file);  // for the memory of the replay and the search together
  const CheckResult result = check_file(file, CheckOptions::verdict_alone());
  if (result.machine_failed) throw std::runtime_error(result.errors.front().message);
  if (result.verdict == Verdict::error) throw InputError(result.errors);
  const bool changes = arguments.write && !arguments.output.empty();
  keep_apart({arguments.output, arguments.to, changes ? file : "", changes ? file + ".orig" : ""});
  for (const std::string& path : {arguments.output, arguments.to}) keep_what_was_read(path);
  if (!arguments.to.empty())
    scenario::moved_references(result.scenario->document, file,
                               std::filesystem::path(scenario_at(arguments.to, file)).parent_path());
  Output output(arguments.output,
                report::kind_of_format(arguments.format));  // what cannot be written is said before the search
  report::RepairFindings findings;
  if (result.verdict != Verdict::match) findings = search(result, most);
  if (result.verdict != Verdict::match && findings.repairs.empty() && result.written) {
    if (const auto there = diagnosis::at_two_of_any(result)) findings = both(findings, search(*there, most));
  }
  search_options(result, findings);
  if (arguments.format == "json") {
    report::repair_json(result, findings, output.writer());
  } else {
    report::repair_text(result, findings, use_color(arguments, output.terminal()), output.writer());
  }
  output.commit();
  if (result.verdict == Verdict::match) return exit_right;
  if (findings.repairs.empty() && findings.options.repairs.empty()) return exit_wrong;
  if (arguments.write || !arguments.to.empty()) write_repaired(result, findings, arguments);
  return exit_right;
}

}  // namespace

Command repair_command() {
  const auto arguments = std::make_shared<RepairArguments>();
  Command command;
  command.name = "repair";
  command.summary = "Find the edits that make a wrong schedule right.";
  command.text =
      "Where the steps are those of a framework, and the file has no edits of its own, tries other values of each of "
      "the framework's options first. Applies every edit of the schedule that the format can say, and two where no "
      "single one helps, to a small "
      "layout in which the same goes wrong, and prints those after which everything matches: what the file had before "
      "its edits first, then fewest edits, then least communication added, then nearest to what is there. Of edits "
      "that "
      "differ in the place alone one is shown first. Each is replayed at the file's own sizes by the symbolic engine "
      "and, with one parameter of each "
      "class, by the host; a large layout is decided by the parametric engine instead. Each is proved for every size "
      "by the parametric engine; what is wrong at some other size stands behind what is not, and the report says where "
      "it is wrong. Where the parametric engine does not decide, each axis in play was tried at 1 to 4, and the "
      "micro-batches at 1 to 3, one at a time. Mistakes in the model itself have "
      "no repair here. Exit status 0 if a repair was found "
      "or none is needed, 1 if none was found.";
  command.examples = {
      {"lockstep repair scenario.json", "the three best repairs"},
      {"lockstep repair scenario.json --write", "put the best one into the file; scenario.json.orig keeps the old one"},
      {"lockstep repair scenario.json --take 2 --to repaired.json", "write the second one elsewhere"},
  };
  command.options = join(
      {{{"FILE", "", std::string(file_help), {}, &arguments->file},
        {"--most", "N", "Repairs to show; default 3.", {}, &arguments->most},
        {"--write", "", "Add the repair to FILE's edits, and keep what was there as FILE.orig.", {}, &arguments->write},
        {"--to", "NEW", "Write the repaired scenario to NEW.", {}, &arguments->to},
        {"--take", "N", "Which repair --write and --to take; default 1.", {}, &arguments->take}},
       arguments->output_rows_without({"-q,--quiet"})});
  command.options.push_back(set_row());
  command.options.push_back(include_row());
  command.uses_loops = true;
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
