// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "lockstep/transformer.h"
#include "src/base/budget.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"

namespace lockstep::cli {

namespace {

struct PlacementsArguments : CommonOptions {
  std::string file;
};

int run(const PlacementsArguments& arguments) {
  const Budget budget(Budget::search);
  const Scenario scenario = read_scenario_file(one_scenario_file("placements", arguments.file));
  TransformerOptions options;
  options.seed = arguments.seed;
  const PlacementReport report = observe_placements(scenario, options);
  Output output(arguments.output, report::kind_of_format(arguments.format));
  if (arguments.format == "json")
    placements_json(scenario, report, output.writer());
  else
    placements_text(scenario, report, use_color(arguments, output.terminal()), output.writer());
  output.commit();
  return report.agrees() ? exit_right : exit_wrong;
}

}  // namespace

Command placements_command() {
  const auto arguments = std::make_shared<PlacementsArguments>();
  Command command;
  command.name = "placements";
  command.summary = "Compare the placements that a model claims with those that its gradients have.";
  command.text =
      "Runs a real transformer of the scenario's preset, forward and backward, on its rank grid, and looks at what "
      "each "
      "rank's backward yields for every parameter on every axis: R (all of it), P (its own share), S(0) or S(1) (a "
      "piece, cut along that dimension), D behind it where the tokens of the whole axis come to an expert. Where the "
      "scenario claims something else, the line says what it is. Only the model counts, not the schedule. For small "
      "sizes, as --engine transformer of check. Exit status 0 if all is as claimed and adds up, 1 if not.";
  command.examples = {
      {"lockstep placements scenario.json", "a table of parameters and axes"},
      {"lockstep placements -f json scenario.json", "the same for a program"},
  };
  command.options = join({{{"FILE", "", std::string(file_help), {}, &arguments->file}},
                          arguments->output_rows_without({"-q,--quiet", "-v,--verbose"}),
                          {{"--seed", "N", "Seed of the parameters and tokens.", {}, &arguments->seed}}});
  command.options.push_back(set_row());
  command.options.push_back(include_row());
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
