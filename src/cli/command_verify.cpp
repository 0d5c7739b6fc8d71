// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "lockstep/live.h"
#include "src/base/budget.h"
#include "src/cli/captured_loss.h"
#include "src/cli/options.h"
#include "src/cli/results.h"

namespace lockstep::cli {

namespace {

struct VerifyArguments : CommonOptions {
  std::string run;
  std::string loss, step, reference;
  std::vector<std::string> parameters;
};

int run(const VerifyArguments& arguments) {
  const Budget budget(Budget::file);
  VerifyOptions options;
  options.loss = given_loss(arguments.loss);
  if (!arguments.step.empty()) options.step = static_cast<int>(number_of("--step", arguments.step, INT32_MAX, 0));
  for (const std::string& item : arguments.parameters) {
    if (const auto mistake = Selectors::check(item)) usage_error(fmt::format("--parameter {}: {}", item, *mistake));
  }
  if (!arguments.parameters.empty()) options.parameters = Selectors(arguments.parameters);
  options.coefficients = arguments.verbose;
  ReportSet reports(arguments, false);
  options.reference = arguments.reference;
  const VerifyResult result = verify_run(arguments.run, options);
  reports.add(result);
  reports.finish();
  return gate_status(arguments, result.verdict() == VerifiedPiece::Verdict::right ? exit_right : exit_wrong);
}

}  // namespace

Command verify_command() {
  const auto arguments = std::make_shared<VerifyArguments>();
  Command command;
  command.name = "verify";
  command.summary = "Say of a captured training run which formula every rank's optimizer really got.";
  command.text =
      "Reads what a capture recorded of a run (docs/verify.md): sketches of every rank's gradients before they were "
      "synchronized, and of what the optimizers got. Finds by least squares the coefficients with which the "
      "contributions entered, rounds them to the fractions that they are within noise, and compares them with what "
      "one device would have, by what the ranks' loss is. Prints what is wrong first, in how many parameters and on "
      "which ranks, then the formulas, as `lockstep check` does. What cannot be told apart, what no contribution "
      "explains and what is missing in the run is said to be so. Exit status 0 if everything is right, 1 if "
      "something is wrong or undecided or the run is not complete, 2 if it cannot be read. With --reference, also "
      "compares what the ranks contribute with the gradients of a run on one device, so that a wrong local backward "
      "is told apart from a wrong synchronization.";
  command.examples = {
      {"lockstep verify run/", "every parameter, rank and optimizer step"},
      {"lockstep verify run/ --parameter '*norm*' -v", "some of them, with all coefficients and their errors"},
      {"lockstep verify run/ --loss token_mean", "each rank's loss is its own token mean"},
      {"lockstep verify run/ --reference one/", "against a capture of the same model and data on one rank"},
      {"lockstep verify run/ -f github --report junit=verify.xml --report html=verify.html",
       "annotations in the log of a GitHub job, test cases, and a page to look at"},
  };
  std::vector<OptionRow> output = arguments->output_rows(report_kinds());
  for (OptionRow& row : output) {
    if (row.flags == "-q,--quiet") row.help = "The verdict alone, on one line.";
    if (row.flags == "-v,--verbose")
      row.help = "Right results too, every coefficient with its error, and no limits on lists.";
  }
  command.options =
      join({{{"RUN", "", "The folder that a capture wrote.", {}, &arguments->run},
             loss_row(&arguments->loss),
             {"--reference",
              "RUN",
              "The folder of a captured run on one rank, of the same model with the same weights and data: the ranks' "
              "contributions must add up to its gradients.",
              {},
              &arguments->reference},
             {"--step", "N", "Look at this optimizer step alone.", {}, &arguments->step},
             {"--parameter",
              "GLOB",
              "Look at the parameters whose names fit, or do not with ! before it; numel>N works too. May be given "
              "several times.",
              {},
              &arguments->parameters}},
            std::move(output),
            {arguments->report_row()},
            arguments->gate_rows()});
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
