// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "src/base/budget.h"
#include "src/cli/corpus_list.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/results.h"
#include "src/cli/scenario_row.h"
#include "src/cli/table.h"
#include "src/report/clean_text.h"

namespace lockstep::cli {

namespace {

struct ListArguments {
  std::string output;  // "": standard output
  std::string format = "text";
  bool corpus = false;
  std::vector<std::string> paths;
};

/// The current folder's scenarios, where it has a folder of that name.
std::string default_folder() { return std::filesystem::is_directory("scenarios") ? "scenarios" : "."; }

void write_files(Output& output, const std::string& format, const std::vector<ScenarioRow>& rows) {
  // A table to read names what the next command takes.
  const bool by_file = format == "text";
  Table table({{by_file ? "file" : "scenario", "scenario"},
               {"verdict", "verdict"},
               {"axes", "axes"},
               {"mistake", "mistake"},
               {"factor", "factor"},
               {"replicas", "replicas"},
               {"title", "title"}});
  for (const ScenarioRow& row : rows) {
    const bool markdown = format == "markdown";
    const std::string name = by_file ? row.file : markdown ? report::markdown_cell(row.name) : row.name;
    table.add({name, row.verdict, row.axes, row.mistake, row.factor, row.replicas,
               markdown ? report::markdown_text(row.title) : row.title});
  }
  table.write(output, format);
}

int run(const ListArguments& arguments) {
  const std::vector<std::string> paths =
      arguments.paths.empty() ? std::vector<std::string>{default_folder()} : arguments.paths;
  const std::vector<std::string> files = scenario_files(paths);
  if (files.empty()) return nothing_found(paths);
  std::vector<ScenarioRow> rows;
  int status = exit_right;
  check_files(files, CheckOptions::verdict_alone(), [&](const CheckResult& result) {
    try {
      const Budget budget(Budget::search);
      rows.push_back(row_of(result));
    } catch (const OverBudget& over) {
      // The other files have their rows all the same.
      tell(fmt::format("lockstep: {}: too large for a row: {}\n", report::one_line_text(result.file),
                       report::one_line_text(over.what())));
      status = std::max<int>(status, exit_usage);
    }
    if (result.verdict != Verdict::error) return;
    status = std::max(status, status_of(result));
    for (const Diagnostic& diagnostic : result.errors) tell(render(diagnostic));
  });
  Output output(arguments.output, report::kind_of_format(arguments.format));
  if (arguments.corpus) {
    write_corpus(output, arguments.format, rows);
  } else {
    write_files(output, arguments.format, rows);
  }
  output.commit();
  return status;
}

}  // namespace

Command list_command() {
  const auto arguments = std::make_shared<ListArguments>();
  Command command;
  command.name = "list";
  command.summary = "Print scenarios as a table: verdict, axes, kind of mistake, factor, title.";
  command.text =
      "Replays each scenario symbolically, and with the transformer engine where it speaks of edits of its model, and "
      "prints one row: its verdict, the axes larger than 1, the kind of "
      "mistake, "
      "the factor against the right gradient where it is one number for every wrong element (1 is right, `norm` where "
      "values are right and the gradient norm is not), and for a mismatch whether all replicas agree on it, so that "
      "comparing them would show nothing, or whether there is nothing to compare because each wrong element has one "
      "owner. Exit status 0 whatever the verdicts are, 2 if a file is not valid, 4 if there is none.\n\n"
      "With --corpus the rows are mistakes by project and number, with what a comparison of replicas and a comparison "
      "with one device that accepts a relative error of 8 % say; repairs have no row. A summary counts what these two "
      "miss.";
  command.examples = {
      {"lockstep list", "the scenarios in the folder scenarios, where there is one, else in the current folder"},
      {"lockstep list scenarios/", "every scenario of a folder and the folders in it"},
      {"lockstep list -f markdown scenarios/deepspeed/", "the table for a README"},
      {"lockstep list --corpus scenarios/", "the mistakes, their kinds, and who would see them"},
      {"lockstep list -f json scenarios/ -o table.json", "the same for programs"},
  };
  command.options = {
      {"[FILES]", "", std::string(files_help), {}, &arguments->paths},
      {"--corpus", "", "List mistakes by project, with their kind and what other tests see.", {}, &arguments->corpus},
      {"-f,--format", "KIND", "What to write.", {"text", "markdown", "json"}, &arguments->format},
      output_row(&arguments->output),
  };
  command.options.push_back(include_row());
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
