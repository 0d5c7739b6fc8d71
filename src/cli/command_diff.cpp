// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "lockstep/comparison.h"
#include "lockstep/extraction_comparison.h"
#include "src/base/budget.h"
#include "src/cli/extraction_file.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/scenario/changed_keys.h"

namespace lockstep::cli {

namespace {

struct DiffArguments : CommonOptions {
  std::vector<std::string> files;
  std::vector<std::string> old_changes, new_changes;
  std::vector<std::string> names;
  bool this_layout = false;
};

/// `against_code`: it is the only scenario, so that --old alone changes it.
std::shared_ptr<const Scenario> read_side(const std::string& file, const std::vector<std::string>& changes,
                                          bool against_code = false) {
  const auto example = [&](const std::string& change) {
    return "--old " + change + (against_code ? "" : " --new " + change);
  };
  Scenario scenario = scenario::read_changed_scenario(file, changes);
  scenario.changes = changes;
  if (!scenario.layout.any.empty())
    usage_error(
        fmt::format("{} has an axis of size \"any\", and diff compares the ranks of one layout: give it a size, "
                    "such as {}",
                    file, example("layout.dp=4")));
  if (scenario.schedule == nullptr)
    usage_error(
        fmt::format("{} has any number of micro-batches, and diff compares the calls of one: give it, such as "
                    "{}",
                    file, example("batch.micro_batches=4")));
  return std::make_shared<const Scenario>(std::move(scenario));
}

template <typename Comparison>
void write_comparison(const DiffArguments& arguments, const Comparison& comparison) {
  Output output(arguments.output, report::kind_of_format(arguments.format));
  if (arguments.format == "json")
    comparison_json(comparison, output.writer());
  else
    comparison_text(comparison, arguments.verbose, use_color(arguments, output.terminal()), output.writer());
  output.commit();
}

int exit_status_of(const ExtractionComparison& comparison) {
  if (!comparison.apart.empty()) return exit_usage;
  return comparison.verdict() == ExtractionComparison::Verdict::same ? exit_right : exit_wrong;
}

/// "SCENARIO=CODE" of --name.
ParameterNames parameter_names(const std::vector<std::string>& arguments) {
  ParameterNames names;
  for (const std::string& each : arguments) {
    const std::size_t equals = each.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == each.size())
      usage_error(
          fmt::format("--name {}: expected SCENARIO=CODE, such as --name 'layers.*.wq=layers.*.attention.wq'", each));
    names.emplace_back(each.substr(0, equals), each.substr(equals + 1));
    const auto stars = [](const std::string& text) { return std::count(text.begin(), text.end(), '*'); };
    if (stars(names.back().first) != stars(names.back().second))
      usage_error(fmt::format("--name {}: a star stands for the same text in both, so both need as many", each));
  }
  return names;
}

/// A scenario against the code that is to do what it says.
int compare_expected(const DiffArguments& arguments, const std::string& file,
                     const std::shared_ptr<const Source>& code) {
  if (!arguments.new_changes.empty() || arguments.this_layout)
    usage_error(fmt::format("{} is what `lockstep extract` has written: --new and --this-layout are for scenarios",
                            code->name));
  const Budget budget(2 * Budget::file, Budget::memory_of_a_proof);
  const auto scenario = read_side(file, arguments.old_changes, true);
  const ExtractionComparison comparison = compare_with_scenario(*scenario, code, parameter_names(arguments.names));
  write_comparison(arguments, comparison);
  return exit_status_of(comparison);
}

/// Of extractions, one of which is there. `files`: the old one and the new one, which may be the same.
int compare_code(const DiffArguments& arguments, const std::array<std::string, 2>& files,
                 const std::array<std::shared_ptr<const Source>, 2>& code) {
  if (code[0] == nullptr) return compare_expected(arguments, files[0], code[1]);
  if (!arguments.old_changes.empty() || !arguments.new_changes.empty() || arguments.this_layout)
    usage_error(fmt::format(
        "{} is what `lockstep extract` has written: --old, --new and --this-layout are for scenarios", files[0]));
  if (arguments.files.size() == 1)
    usage_error(
        fmt::format("{} alone is compared with nothing: name a second extraction, or before it a scenario", files[0]));
  if (code[1] == nullptr)
    usage_error(
        fmt::format("{} is what `lockstep extract` has written, and {} is not: what is expected comes first, "
                    "as in lockstep diff {} {}",
                    files[0], files[1], argument_for(files[1]), argument_for(files[0])));
  if (!arguments.names.empty())
    usage_error("--name is for a scenario against an extraction: two extractions have the code's names");
  const Budget budget(2 * Budget::file);
  const ExtractionComparison comparison = compare_extractions(code[0], code[1]);
  write_comparison(arguments, comparison);
  return exit_status_of(comparison);
}

int run(const DiffArguments& arguments) {
  if (arguments.files.size() > 2)
    usage_error(fmt::format("diff takes two files, or one with --old or --new, found {}", arguments.files.size()));
  if (arguments.files.size() == 2 && arguments.files[0] == "-" && arguments.files[1] == "-")
    usage_error("diff - -: standard input is one file, and diff compares two: name the other one");
  scenario_files(arguments.files);  // says of both where there is none
  const std::array<std::string, 2> files = {one_scenario_file("diff", arguments.files.front()),
                                            one_scenario_file("diff", arguments.files.back())};
  const std::array<std::shared_ptr<const Source>, 2> code = {
      extraction_at(files[0]), arguments.files.size() == 1 ? nullptr : extraction_at(files[1])};
  if (code[0] != nullptr || code[1] != nullptr) return compare_code(arguments, files, code);
  if (!arguments.names.empty()) usage_error("--name is for a scenario against what `lockstep extract` has written");
  if (arguments.files.size() == 1 && arguments.old_changes.empty() && arguments.new_changes.empty())
    usage_error(
        fmt::format("{} alone is compared with nothing: name a second file, or say what is to be otherwise, such "
                    "as --new use_distributed_optimizer=true",
                    files[0]));
  const Budget budget(2 * Budget::file, Budget::memory_of_a_proof);
  const auto before = read_side(files[0], arguments.old_changes), after = read_side(files[1], arguments.new_changes);
  ScheduleComparison comparison = compare(before, after);
  if (!arguments.this_layout && comparison.apart.empty()) comparison.every_size = compare_every_size(*before, *after);
  write_comparison(arguments, comparison);
  if (!comparison.apart.empty()) return exit_usage;
  const bool other_elsewhere =
      comparison.every_size && comparison.every_size->proof.verdict == SameProof::Verdict::other;
  return comparison.same() && !other_elsewhere ? exit_right : exit_wrong;
}

}  // namespace

Command diff_command() {
  const auto arguments = std::make_shared<DiffArguments>();
  Command command;
  command.name = "diff";
  command.summary = "Compare two schedules: the gradients that they hand to the optimizers, and what they communicate.";
  command.text =
      "Replays two scenarios over the same ranks and parameters symbolically, or one scenario with two sets of "
      "options, and says whether every rank's optimizer gets the same gradient from both, exactly: if not, for which "
      "parameters, ranks and elements, with both formulas, whether either of them is right or not. Then whether that "
      "holds for every size of the axes that both leave open, as `lockstep prove` finds it: if not, for which sizes, "
      "with the smallest. Then who owns which elements, and the steps that came, went, moved, or send more or less: "
      "calls of groups, and the bytes that all ranks send, counted as by ring algorithms and without padding. Exit "
      "status 0 if the gradients are the same, 1 if they are not, here or at another size, 2 if the two cannot be "
      "compared. Two files of `lockstep extract`, as of the code before and after a change, are compared in the same "
      "way, for the layout that they were extracted for; where it is not known what an optimizer gets, that is said, "
      "and the exit status is 1. A scenario and an extraction are compared so as well: what is expected, such as a "
      "framework with its options, and what its code does. Sums are of the same ranks' contributions then; a rank, a "
      "micro-batch or a parameter that has nothing on the other side is said.";
  command.examples = {
      {"lockstep diff old.json new.json", "two files"},
      {"lockstep diff scenario.json --new use_distributed_optimizer=true", "one file, with an option changed"},
      {"lockstep diff scenario.json --new framework=./megatron-patched.jsonc",
       "a framework file against a changed one"},
      {"lockstep diff old.json new.json -f json", "the same for a program"},
      {"lockstep diff expected.json step.json", "a scenario against the code that is to do what it says"},
      {"lockstep diff main.json pull-request.json", "the code itself, which `lockstep extract` has looked at twice"},
  };
  command.options = join(
      {{{"FILES",
         "",
         "The old scenario and the new one; or one, with --old or --new; or two extractions; or a scenario and an "
         "extraction.",
         {},
         &arguments->files},
        {"--old",
         "KEY=VALUE",
         "Change this in the old one: an option of its framework, framework itself, an axis (two layouts of different "
         "size cannot be compared: change it in both), micro_batches, such as micro_batches=4, or a key with dots. May "
         "be given several times.",
         {},
         &arguments->old_changes},
        {"--new", "KEY=VALUE", "The same in the new one.", {}, &arguments->new_changes},
        {"--name",
         "SCENARIO=CODE",
         "What the code calls a parameter of the scenario, against an extraction; * stands for the "
         "same text in both. May be given several times.",
         {},
         &arguments->names},
        {"--this-layout", "", "Compare the layout at hand alone.", {}, &arguments->this_layout}},
       arguments->output_rows_without({"-q,--quiet"})});
  command.options.push_back(include_row());
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
