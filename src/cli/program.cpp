// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <new>

#include "lockstep/diagnostic.h"
#include "src/base/budget.h"
#include "src/cli/command.h"
#include "src/cli/engine_jobs.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/numeric/loops.h"
#include "src/report/clean_text.h"
#include "src/scenario/allowed_files.h"
#include "src/scenario/changed_keys.h"

namespace lockstep::cli {

namespace {

int no_such_command(const std::vector<Command>& commands, const std::string& name) {
  std::vector<std::string> known = {"help"};
  for (const Command& command : commands) known.push_back(command.name);
  std::string near = did_you_mean(name, known);
  std::error_code error;
  if (near.empty() && std::filesystem::exists(name, error))
    near = fmt::format("; did you mean `lockstep check {}`?", argument_for(name));
  tell(fmt::format("lockstep: there is no {} \"{}\"{}\nSee `lockstep --help`.\n",
                   name.starts_with('-') ? "option" : "command", report::one_line_text(name), near));
  return exit_usage;
}

int print_help(const std::vector<Command>& commands, const std::string& name) {
  for (const Command& command : commands) {
    if (command.name == name) return print_text(command_help(command));
  }
  const bool of_all = name.empty() || name == "help" || name == "-h" || name == "--help";
  return of_all ? print_text(program_help(commands)) : no_such_command(commands, name);
}

/// What --include was given, where the command has it.
void include_folders(const Command& command) {
  for (const OptionRow& row : command.options) {
    if (row.flags != "--include") continue;
    for (const std::string& folder : *std::get<std::vector<std::string>*>(row.target)) {
      std::error_code error;
      if (!std::filesystem::is_directory(folder, error))
        usage_error(fmt::format("--include {}: there is no such folder", folder));
      scenario::include_files_below(folder);
    }
  }
}

/// What --set was given, where the command has it; that of `import` is another.
void change_scenarios(const Command& command) {
  const auto changes = set_row().target;
  for (const OptionRow& row : command.options) {
    if (row.target == changes) scenario::set_in_every_scenario(*std::get<std::vector<std::string>*>(changes));
  }
}

int dispatch(const std::vector<std::string>& arguments) {
  const std::vector<Command> commands = all_commands();
  std::string name = arguments.empty() ? "help" : arguments.front();
  if (name == "--version") name = "version";
  if (name == "help" || name == "-h" || name == "--help")
    return print_help(commands, arguments.size() > 1 ? arguments[1] : "");
  for (const Command& command : commands) {
    if (command.name != name) continue;
    const int status = parse_arguments(command, {arguments.begin() + 1, arguments.end()});
    if (status >= 0) return status;
    include_folders(command);
    change_scenarios(command);
    if (command.uses_loops) numeric::loops();  // throws for what LOCKSTEP_TARGET should not be
    return command.run();
  }
  return no_such_command(commands, name);
}

}  // namespace

int print_text(const std::string& text) {
  Output output("");
  output.write(text);
  output.commit();
  return exit_right;
}

std::vector<Command> all_commands() {
  using Maker = Command (*)();
  const std::vector<std::pair<std::string, std::vector<Maker>>> groups = {
      {"Is it right?", {check_command, prove_command, test_command, watch_command, mutate_command}},
      {"What is wrong, and what helps?",
       {explain_command, report_command, repair_command, diff_command, placements_command}},
      {"The code itself, and training runs",
       {extract_command, matrix_command, bisect_command, verify_command, record_command}},
      {"Scenarios", {init_command, import_command, show_command, list_command, schema_command}},
      {"And", {hash_command, version_command, reference_command, completion_command, man_command}}};
  std::vector<Command> commands;
  for (const auto& [group, makers] : groups) {
    for (const Maker make : makers) {
      commands.push_back(make());
      commands.back().group = group;
    }
  }
  return commands;
}

namespace {

std::vector<std::string> arguments_of_the_program;

int run_dispatched(const std::vector<std::string>& arguments) {
  try {
    keep_standard_error();
    install_signal_handlers();
    return dispatch(arguments);
  } catch (const ClosedPipe&) {
    return exit_closed_pipe;
  } catch (const InputError& error) {
    for (const Diagnostic& diagnostic : error.diagnostics()) tell(render(diagnostic));
    return exit_usage;
  } catch (const OverBudget& over) {
    tell(fmt::format("lockstep: this scenario is too large: {}\n", report::clean_text(over.what())));
    return exit_usage;
  } catch (const std::bad_alloc&) {
    tell("lockstep: out of memory\n");
  } catch (const InternalError& error) {
    tell(fmt::format("lockstep: a bug of lockstep: {}\n", error.what()));
  } catch (const std::exception& error) {
    tell(fmt::format("lockstep: {}\n", report::clean_text(error.what())));
  }
  return exit_failure;
}

}  // namespace

const std::vector<std::string>& command_line() { return arguments_of_the_program; }

int run_program(const std::vector<std::string>& arguments) {
  arguments_of_the_program = arguments;
  silence_all_but_first(arguments);
  return hand_over_status(run_dispatched(arguments));
}

}  // namespace lockstep::cli
