// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "src/base/counted.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/results.h"
#include "src/report/clean_text.h"

namespace lockstep::cli {

namespace {

struct ReportArguments : CommonOptions {
  std::vector<std::string> paths;
};

int run(ReportArguments& arguments) {
  const std::vector<std::string> files = scenario_files(arguments.paths);
  if (files.empty()) return nothing_found(arguments.paths);
  if (arguments.output.empty() && isatty(STDOUT_FILENO) == 1)
    usage_error("the page is HTML, which a terminal does not show; name a file for it, such as -o report.html");
  arguments.format = "html";
  ReportSet reports(arguments, files.size() > 1);
  int status = exit_right;
  check_files(files, check_options(arguments), [&](const CheckResult& result) {
    reports.add(result);
    const int one = status_of(result);
    if (one != exit_wrong) status = std::max(status, one);
    for (const Diagnostic& error : result.errors) tell(render(error));
  });
  reports.finish();
  if (!arguments.output.empty())
    tell(fmt::format("wrote {}, a page of {}; a browser opens it\n", report::one_line_text(arguments.output),
                     counted(files.size(), "scenario")));
  return status;
}

}  // namespace

Command report_command() {
  const auto arguments = std::make_shared<ReportArguments>();
  Command command;
  command.name = "report";
  command.summary = "Write a page to look at: scenarios, their ranks and what these hold step by step.";
  command.text =
      "Checks each scenario as `check` does and writes one HTML file, which opens from disk and fetches nothing: a "
      "list "
      "with filters, the grid of all ranks, a timeline of the steps to play, what was got against what was expected, "
      "and the text of the scenario with the step at fault marked. It can be read without scripts. Exit status 0 "
      "whatever the verdicts are, 2 if a file is not valid.";
  command.examples = {
      {"lockstep report scenario.json -o report.html", "one scenario"},
      {"lockstep report scenarios/ -o report.html", "every scenario of a folder, with a list to choose from"},
      {"lockstep test scenarios/ --report html=report.html", "the same page beside a test"},
  };
  command.options = {
      {"FILES", "", std::string(files_help), {}, &arguments->paths},
      output_row(&arguments->output),
  };
  command.options = join({command.options, arguments->engine_rows()});
  command.options.push_back(set_row());
  command.options.push_back(include_row());
  command.uses_loops = true;
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
