// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "lockstep/live.h"
#include "src/base/budget.h"
#include "src/cli/captured_loss.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/report/clean_text.h"

namespace lockstep::cli {

namespace {

struct RecordArguments {
  std::string run, output, loss, step;
  bool keep = false;
};

int run(const RecordArguments& arguments) {
  const Budget budget(Budget::file);
  RecordOptions options;
  options.loss = given_loss(arguments.loss);
  if (!arguments.step.empty()) options.step = static_cast<int>(number_of("--step", arguments.step, INT32_MAX, 0));
  Output output(arguments.output, report::ReadableText::Kind::json);
  const RecordedRun recorded = record_run(arguments.run, options);
  keep_inputs(arguments.output, {arguments.run});
  const bool meets = recorded.unmet.empty();
  if (meets || arguments.keep) {
    output.write(write_json(recorded.scenario));
    output.commit();
  }
  std::string text;
  for (const std::string& sentence : recorded.unmet) text += fmt::format("✗ {}\n", report::one_line_text(sentence));
  for (const std::string& sentence : recorded.notes) text += fmt::format("note: {}\n", report::one_line_text(sentence));
  text += meets
              ? fmt::format("the recorded schedule predicts what was measured in {}\n",
                            recorded.results == 1 ? "its one result" : fmt::format("all {} results", recorded.results))
              : fmt::format("the recorded schedule does not predict what was measured: it is not what the run did{}\n",
                            arguments.keep ? "" : ", and is not written (--keep writes it)");
  tell(text);
  return meets ? exit_right : exit_wrong;
}

}  // namespace

Command record_command() {
  const auto arguments = std::make_shared<RecordArguments>();
  Command command;
  command.name = "record";
  command.summary = "Write the schedule of a captured training run as a scenario.";
  command.text =
      "Reads what a capture recorded of a run (docs/record.md) and writes it as a scenario: the layout, the "
      "parameters and how the ranks cut them, and the collectives that carried gradients, by name of the place in "
      "the program that called them. Then check, prove, repair and diff work on it. What ranks do by themselves, "
      "such as dividing, no collective shows: it is taken from the coefficients that `lockstep verify` recovers, and "
      "said to be so. The formulas that the scenario predicts are held against the measured ones, for every "
      "parameter and rank: where they are not the same, nothing is written. Exit status 0 if they are the same, 1 if "
      "they are not, 2 if the run says too little for a scenario.";
  command.examples = {
      {"lockstep record run/ -o scenario.json", "then: lockstep check scenario.json"},
      {"lockstep record run/ --step 3", "one optimizer step, to standard output"},
  };
  command.options = {
      {"RUN", "", "The folder that a capture wrote.", {}, &arguments->run},
      {"-o,--output", "FILE", "Write the scenario to this file instead of standard output.", {}, &arguments->output},
      loss_row(&arguments->loss),
      {"--step", "N", "Record this optimizer step alone.", {}, &arguments->step},
      {"--keep", "", "Write the scenario even if it does not predict what was measured.", {}, &arguments->keep},
  };
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
