// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "lockstep/diagnostic.h"
#include "src/cli/man.h"
#include "src/cli/options.h"
#include "src/cli/output.h"

namespace lockstep::cli {

namespace {

struct ManArguments {
  std::string command, output, folder;
};

void write_page(const std::string& path, const std::string& page) {
  Output output(path, report::ReadableText::Kind::as_is);
  output.write(page);
  output.commit();
}

std::string page_of(const std::string& name, const std::vector<Command>& commands) {
  if (name.empty()) return man_page(commands);
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (command.name == name) return man_page(command);
    names.push_back(command.name);
  }
  usage_error(fmt::format("there is no command \"{}\"{}", name, did_you_mean(name, names)));
}

int run(const ManArguments& arguments) {
  const std::vector<Command> commands = all_commands();
  if (arguments.folder.empty()) {
    write_page(arguments.output, page_of(arguments.command, commands));
    return exit_right;
  }
  if (!arguments.command.empty() || !arguments.output.empty())
    usage_error("--folder writes all pages; leave out the command and --output");
  std::error_code error;
  std::filesystem::create_directories(arguments.folder, error);
  if (error) usage_error(fmt::format("cannot make the folder {}: {}", arguments.folder, error.message()));
  write_page(arguments.folder + "/lockstep.1", man_page(commands));
  for (const Command& command : commands)
    write_page(fmt::format("{}/lockstep-{}.1", arguments.folder, command.name), man_page(command));
  return exit_right;
}

}  // namespace

Command man_command() {
  const auto arguments = std::make_shared<ManArguments>();
  Command command;
  command.name = "man";
  command.summary = "Print the manual page of a command.";
  command.text =
      "Prints a page for man, of one command or, without a name, of the program, from the table that parses the "
      "commands. `cmake --install` and the packages put all pages where man looks for them.";
  command.examples = {
      {"lockstep man check", "the page of one command; `lockstep man check | man -l -` shows it"},
      {"lockstep man --folder share/man/man1", "all pages"},
  };
  command.options = {
      {"[COMMAND]", "", "The command; default the program itself.", {}, &arguments->command},
      {"--folder", "FOLDER", "Write the pages of all commands to FOLDER.", {}, &arguments->folder},
      output_row(&arguments->output),
  };
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
