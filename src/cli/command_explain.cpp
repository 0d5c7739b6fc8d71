// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <stdexcept>

#include "src/base/budget.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/report/explain_svg.h"

namespace lockstep::cli {

namespace {

struct ExplainArguments : CommonOptions {
  std::string file, parameter, step;
  bool all = false;
};

int run(const ExplainArguments& arguments) {
  const std::string file = one_scenario_file("explain", arguments.file);
  CheckOptions check;
  check.host = check.parametric_where_large = false;
  check.blame = arguments.format == "svg";  // which shows the step at fault; the tables do not
  const Budget budget(Budget::replay + (check.blame ? Budget::search : 0));
  const CheckResult result = check_file(file, check);
  if (result.machine_failed) throw std::runtime_error(result.errors.front().message);
  if (result.verdict == Verdict::error) throw InputError(result.errors);
  Output output(arguments.output, report::kind_of_format(arguments.format));
  ExplainOptions explain;
  explain.parameter = arguments.parameter;
  explain.step = arguments.step;
  explain.all = arguments.all;
  explain.verbose = arguments.verbose;
  explain.color = use_color(arguments, output.terminal());
  const auto write_explanation = arguments.format == "json"  ? explain_json
                                 : arguments.format == "svg" ? report::explain_svg
                                                             : explain_text;
  write_explanation(result, explain, output.writer());
  output.commit();
  return exit_right;
}

}  // namespace

Command explain_command() {
  const auto arguments = std::make_shared<ExplainArguments>();
  Command command;
  command.name = "explain";
  command.summary = "Show what every rank holds after every step.";
  command.text =
      "Replays a scenario and prints, for one parameter, a grid of the ranks with the formula that each holds after "
      "every step: rows "
      "are pipeline stages, columns data-parallel ranks, further axes stand one below the other. Without --parameter "
      "it is the first "
      "that comes out wrong, or the model's first. Exit status 0 whatever the verdict is.";
  command.examples = {
      {"lockstep explain scenario.json", "the first wrong parameter through all steps"},
      {"lockstep explain scenario.json --parameter embedding.word_embeddings.weight", "one parameter"},
      {"lockstep explain scenario.json --step dp_reduce_scatter", "one step"},
      {"lockstep explain scenario.json -f svg -o scenario.svg",
       "a picture of the ranks before and after the step at fault"},
  };
  command.options =
      join({{{"FILE", "", std::string(file_help), {}, &arguments->file},
             {"-p,--parameter",
              "NAME",
              "The parameter to explain: a name, a glob or tag:NAME, of which the first wrong one is "
              "taken.",
              {},
              &arguments->parameter},
             {"-s,--step", "STEP", "Only what this step leaves; STEP[N] in micro-batch N.", {}, &arguments->step},
             {"--all", "", "Every range of elements and micro-batch, not only the first ones.", {}, &arguments->all}},
            arguments->output_rows_without({"-q,--quiet"}, {"text", "json", "svg"})});
  command.options.push_back(set_row());
  command.options.push_back(include_row());
  command.uses_loops = true;
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
