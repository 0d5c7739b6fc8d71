// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>

#include "lockstep/prove.h"
#include "lockstep/report.h"
#include "src/base/budget.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/results.h"
#include "src/cli/written_scenario.h"
#include "src/report/clean_text.h"
#include "src/scenario/moved_references.h"

namespace lockstep::cli {

namespace {

struct ProveArguments : CommonOptions {
  std::vector<std::string> paths;
  std::string counterexample, open, budget = "1";
  bool proof = false;
};

constexpr std::int64_t largest_budget = 1000;

/// The axes that are open beside those that a layout names: --open.
Prover::Options open_axes(const std::string& text) {
  Prover::Options options;
  options.open = Prover::Options::Open::named;
  // As a layout names them.
  const std::vector<std::string> known = {"all", "tp", "cp", "sp", "dp", "dp_shard", "dp_replicate", "pp", "ep", "etp"};
  if (text.empty()) return options;
  for (const std::string& name : split_at(',', text)) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      usage_error(fmt::format("--open takes {}, separated by commas; found \"{}\"{}", fmt::join(known, ", "), name,
                              did_you_mean(name, known)));
    if (name == "all")
      options.open = Prover::Options::Open::all;
    else
      options.also_open.insert(*axis_named(name));
  }
  return options;
}

int run(const ProveArguments& arguments) {
  const std::int64_t budget = number_of("--budget", arguments.budget, largest_budget);
  Prover::Options options = open_axes(arguments.open);
  options.steps = arguments.proof;
  options.own_sizes = true;
  options.budget = static_cast<int>(budget);
  const std::vector<std::string> files = scenario_files(arguments.paths);
  if (files.empty()) return nothing_found(arguments.paths);
  if (!arguments.counterexample.empty() && files.size() != 1) {
    usage_error(fmt::format("--counterexample takes the one of a single scenario, but there are {} files; name one",
                            files.size()));
  }
  keep_apart({arguments.output, arguments.counterexample});
  keep_inputs(arguments.output, files);
  keep_inputs(arguments.counterexample, files);
  Output output(arguments.output, report::kind_of_format(arguments.format));
  ReportOptions report;
  report.quiet = arguments.quiet;
  report.verbose = arguments.verbose;
  report.several = files.size() > 1;
  report.color = use_color(arguments, output.terminal());
  const std::unique_ptr<ProofReporter> reporter = make_proof_reporter(arguments.format, report, output.writer());
  int status = exit_right;
  for (const std::string& file : files) {
    try {
      // What follows has budgets of its own; this one sees what they leave.
      const Budget memory(budget * Budget::file, budget * Budget::memory_of_a_proof);
      Scenario scenario = read_scenario_file(file);
      scenario.file = file;
      // Of framework files too.
      for (const std::string& path : {arguments.output, arguments.counterexample}) keep_what_was_read(path);
      const std::string place = scenario_at(arguments.counterexample, file);
      const auto moved = [&](const Json& document) {
        return scenario::with_references_from(document, file, std::filesystem::path(place).parent_path());
      };
      moved(scenario.document);  // what could not be written is said before the work
      const Prover prover(scenario, options);
      const Proof& proof = prover.proof();
      reporter->add(scenario, proof);
      output.flush();
      if (proof.verdict != Proof::Verdict::right) status = std::max<int>(status, exit_wrong);
      if (arguments.counterexample.empty()) continue;
      if (!proof.counterexample) {
        tell(fmt::format("lockstep prove: {} has no counterexample; {} was not written\n", report::one_line_text(file),
                         report::one_line_text(arguments.counterexample)));
        continue;
      }
      const std::string text = write_json(moved(proof.counterexample->document));
      if (const std::string why = why_no_scenario(place, text); !why.empty()) {
        tell(fmt::format(
            "lockstep prove: the counterexample of {} would be no valid scenario: {}; {} was not written\n",
            report::one_line_text(file), report::one_line_text(why), report::one_line_text(arguments.counterexample)));
        continue;
      }
      Output example(arguments.counterexample, report::ReadableText::Kind::json);
      example.write(text);
      example.commit();
    } catch (const ReplacedInput&) {
      throw;
    } catch (const std::exception&) {
      const NoAnswer why = no_answer(file, "a proof");  // the other files have theirs all the same
      tell(why.message);
      status = std::max(status, why.status);
    }
  }
  reporter->finish();
  output.commit();
  return status;
}

}  // namespace

Command prove_command() {
  const auto arguments = std::make_shared<ProveArguments>();
  Command command;
  command.name = "prove";
  command.summary = "Prove a schedule right for every size of its layout, or say for which it is wrong.";
  command.text =
      "Takes the sizes out of a scenario: those that are \"any\" where the file has some, else those of the axes that "
      "its layout names, and the number of micro-batches where every one goes through the same. --open takes more of "
      "them; the answer says of which axis it is about one size. "
      "Then it follows all ranks at once, exactly, in a time that does not depend on the sizes. The answer holds for "
      "every number of ranks and, where tokens are uneven, for every number of tokens: right for every size; or for "
      "which sizes it is wrong, with the smallest layout at which it is, replayed on every rank. Sizes that the "
      "scenario refuses are listed with its reason, and so is what a proof cannot follow; where the sizes in "
      "the file are among that they are replayed, and `lockstep check` decides about these. Exit status 0 if it is "
      "proved "
      "right, 1 if it is "
      "wrong for some size or not "
      "decided.";
  command.examples = {
      {"lockstep prove scenario.json", "for which sizes is it right?"},
      {"lockstep prove --open all scenario.json", "and for which of the axes that its layout does not name?"},
      {"lockstep prove scenario.json --counterexample smallest.json",
       "the smallest layout that is wrong, as a scenario"},
      {"lockstep prove --proof scenario.json", "what every rank holds after every step, for all sizes at once"},
      {"lockstep prove -q scenarios/", "one line for each scenario of a folder"},
  };
  command.options = join({{{"FILES", "", std::string(files_help), {}, &arguments->paths},
                           {"--counterexample",
                            "FILE",
                            "Write the smallest layout that is wrong to FILE, as a scenario.",
                            {},
                            &arguments->counterexample},
                           {"--open",
                            "AXES",
                            "Open these axes as well, as though the layout named them: names with commas between them, "
                            "such as cp,sp, or all for each that the framework, or the listed steps, the parameters or "
                            "the loss speak of.",
                            {},
                            &arguments->open},
                           {"--proof",
                            "",
                            "Print what the ranks hold after each step, in each case, for each class of parameters.",
                            {},
                            &arguments->proof},
                           {"--budget",
                            "N",
                            "Let each file take N times the work and the memory that are usual: some ten seconds and a "
                            "gigabyte, N at most 1000. What goes beyond is not decided, and named.",
                            {},
                            &arguments->budget}},
                          arguments->output_rows()});
  command.options.push_back(set_row());
  command.options.push_back(include_row());
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
