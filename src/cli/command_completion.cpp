// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "src/cli/completion.h"
#include "src/cli/options.h"
#include "src/cli/output.h"

namespace lockstep::cli {

namespace {

struct CompletionArguments {
  std::string shell, output;
};

std::string script(const std::string& shell) {
  const std::vector<Command> commands = all_commands();
  return shell == "bash"  ? bash_completion(commands)
         : shell == "zsh" ? zsh_completion(commands)
                          : fish_completion(commands);
}

}  // namespace

Command completion_command() {
  const auto arguments = std::make_shared<CompletionArguments>();
  Command command;
  command.name = "completion";
  command.summary = "Print the script that makes a shell complete lockstep's commands, options and files.";
  command.text =
      "Prints a script for bash, zsh or fish, from the table that parses the commands. `cmake --install` and the "
      "packages put all three where the shells look for them.";
  command.examples = {
      {"source <(lockstep completion bash)", "in ~/.bashrc, or in a shell that runs"},
      {"lockstep completion zsh -o ~/.zfunc/_lockstep", "into a folder of $fpath"},
      {"lockstep completion fish -o ~/.config/fish/completions/lockstep.fish", "where fish looks"},
  };
  command.options = {
      {"SHELL", "", "The shell.", {"bash", "zsh", "fish"}, &arguments->shell},
      output_row(&arguments->output),
  };
  command.run = [arguments] {
    Output output(arguments->output, report::ReadableText::Kind::as_is);
    output.write(script(arguments->shell));
    output.commit();
    return static_cast<int>(exit_right);
  };
  return command;
}

}  // namespace lockstep::cli
