// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>

#include "lockstep/check.h"
#include "src/base/counted.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/results.h"
#include "src/diagnosis/mutation.h"
#include "src/numeric/parallel.h"
#include "src/report/clean_text.h"
#include "src/report/mutation_report.h"
#include "src/scenario/moved_references.h"

namespace lockstep::cli {

namespace {

constexpr std::string_view mutants_help = "Write each mutant to FOLDER as a scenario that expects what became of it.";

struct MutateArguments : CommonOptions {
  std::vector<std::string> paths;
  std::string mutants;
};

/// Of one file. Neither where it is a file of a folder that is not right.
struct Answer {
  std::optional<diagnosis::Mutation> mutation;
  NoAnswer why_not;
};

Answer answer_of(const std::string& file, bool is_named, const std::string& folder) {
  try {
    const CheckResult result = check_file(file, CheckOptions::verdict_alone());
    if (result.machine_failed) throw std::runtime_error(result.errors.front().message);
    if (result.error_expected) return {};
    if (result.verdict == Verdict::error) throw InputError(result.errors);
    if (result.verdict != Verdict::match && !is_named) return {};
    if (result.verdict != Verdict::match)
      throw InputError({Diagnostic{
          {},
          fmt::format("{} is wrong before any edit: {}; only a right schedule has mutants (`lockstep check {}` "
                      "shows what is wrong, `lockstep repair {}` how to make it right)",
                      file, name_of(result.verdict), arguments_for(file), arguments_for(file))}});
    // What could not be written there is said before the work.
    if (!folder.empty()) scenario::with_references_from(result.scenario->document, file, folder);
    Answer answer = {diagnosis::mutate(result.scenario), {}};
    // The file says "any", or --set what it does not say.
    if (result.written != nullptr || !result.scenario->changes.empty()) answer.mutation->as_in_file = false;
    return answer;
  } catch (const std::exception&) {
    return {{}, no_answer(file, "mutants")};
  }
}

/// Each mutant as a scenario whose `expect` says what became of it: NAME-NUMBER.json.
void write_mutants(const std::vector<diagnosis::Mutation>& all, const std::string& folder) {
  int written = 0;
  for (const diagnosis::Mutation& one : all) {
    const std::string& from = one.scenario->file;
    const std::string stem = from == standard_input_name ? "stdin" : std::filesystem::path(from).stem().string();
    for (const diagnosis::Mutant& mutant : one.mutants) {
      Json document = scenario::with_references_from(mutant.document, from, folder);
      document.set("expect", Json::object({{"verdict", {}, Json::string(std::string(name_of(mutant.verdict)))}}));
      Output file(fmt::format("{}/{}-{:04}.json", folder, stem, ++written), report::ReadableText::Kind::json);
      file.write(write_json(document));
      file.commit();
    }
  }
  tell(fmt::format("wrote {} to {}; `lockstep test {}` runs {} again\n", counted(written, "mutant"),
                   report::one_line_text(folder), argument_for(folder), written == 1 ? "it" : "them"));
}

int run(const MutateArguments& arguments) {
  const auto jobs = arguments.jobs.empty() ? 0 : static_cast<int>(number_of("--jobs", arguments.jobs, 1024));
  const std::vector<std::string> files = scenario_files(arguments.paths);
  if (files.empty()) return nothing_found(arguments.paths);
  // What cannot be written is said before the work.
  Output output(arguments.output, report::kind_of_format(arguments.format));
  if (const std::string& folder = arguments.mutants; !folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error || !std::filesystem::is_empty(folder, error) || error)
      usage_error(fmt::format("--write-mutants takes a folder that is empty or not there yet; {} is neither", folder));
  }
  std::vector<Answer> answers(files.size());
  numeric::parallel_for(files.size(), numeric::thread_count(jobs), [&](std::size_t index) {
    const std::string name = files[index] == standard_input_name ? "-" : files[index];
    const bool is_named = std::count(arguments.paths.begin(), arguments.paths.end(), name) > 0;
    answers[index] = answer_of(files[index], is_named, arguments.mutants);
  });
  std::vector<diagnosis::Mutation> all;
  int status = exit_right;
  std::size_t passed_over = 0;
  for (Answer& answer : answers) {
    tell(answer.why_not.message);
    status = std::max(status, answer.why_not.status);
    if (answer.mutation)
      all.push_back(std::move(*answer.mutation));
    else if (answer.why_not.status == exit_right)
      ++passed_over;
  }
  if (passed_over > 0 && !arguments.quiet)
    tell(fmt::format("lockstep mutate: passed over {} of {}, which {} wrong before any edit\n", passed_over,
                     counted(files.size(), "file"), passed_over == 1 ? "is" : "are"));
  if (all.empty()) return status == exit_right ? exit_nothing : status;
  if (arguments.format == "json") {
    report::mutation_json(all, output.writer());
  } else {
    ReportOptions report;
    report.quiet = arguments.quiet;
    report.verbose = arguments.verbose;
    report.color = use_color(arguments, output.terminal());
    report::mutation_text(all, report, output.writer());
  }
  output.commit();
  if (!arguments.mutants.empty()) write_mutants(all, arguments.mutants);
  const bool explained = std::all_of(
      all.begin(), all.end(), [](const diagnosis::Mutation& one) { return one.unproved == 0 && one.cut_off.empty(); });
  return status == exit_right && !explained ? exit_wrong : status;
}

}  // namespace

Command mutate_command() {
  const auto arguments = std::make_shared<MutateArguments>();
  Command command;
  command.name = "mutate";
  command.summary = "Break a right schedule in every way that one edit can, and prove what is noticed.";
  command.text =
      "Applies every single edit to a schedule that is right: steps dropped, doubled and moved, other groups, factors, "
      "reductions and geometries, parameters in and out of a step, early and late, ranks left out. Each mutant is "
      "killed, which means that an engine finds it wrong, or proved to be right for every size. Both engines look at "
      "each at the file's own sizes, or, where these are more than 16 ranks or 4 micro-batches, at a small layout; "
      "if a mutant is right there, the parametric engine decides it for every size, and names the smallest at which it "
      "is wrong. If that engine cannot, neighbouring sizes are tried, and a mutant that is right there is counted as "
      "not proved. Exit status 0 if every mutant is killed or proved equivalent, 1 if one is not, 2 if a file is wrong "
      "before any edit.";
  command.examples = {
      {"lockstep mutate scenario.json", "what becomes of each kind of mutant"},
      {"lockstep mutate -v scenario.json", "every mutant, as an edit to try"},
      {"lockstep mutate scenario.json --write-mutants mutants/", "each as a scenario of its own, for `lockstep test`"},
  };
  command.options =
      join({{{"FILES", "", std::string(files_help), {}, &arguments->paths},
             {"--write-mutants", "FOLDER", std::string(mutants_help), {}, &arguments->mutants},
             {"-j,--jobs", "N", "Files to go through at once; default one per core.", {}, &arguments->jobs}},
            arguments->output_rows()});
  command.options.push_back(set_row());
  command.options.push_back(include_row());
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
