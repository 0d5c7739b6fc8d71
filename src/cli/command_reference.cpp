// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "src/cli/command.h"
#include "src/cli/options.h"
#include "src/cli/output.h"

namespace lockstep::cli {

Command reference_command() {
  const auto path = std::make_shared<std::string>();
  Command command;
  command.name = "reference";
  command.summary = "Print all commands and options as Markdown.";
  command.text =
      "Prints docs/commands.md: every command with its options and examples, from the table that parses them.";
  command.examples = {
      {"lockstep reference", "all commands as Markdown"},
      {"lockstep reference -o docs/commands.md", "renew the document"},
  };
  command.options = {
      output_row(path.get()),
  };
  command.run = [path] {
    Output output(*path, report::ReadableText::Kind::as_is);
    output.write(reference_markdown(all_commands()));
    output.commit();
    return static_cast<int>(exit_right);
  };
  return command;
}

}  // namespace lockstep::cli
