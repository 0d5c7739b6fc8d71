// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "src/cli/options.h"
#include "src/cli/output.h"

namespace lockstep::cli {

namespace {

struct SchemaArguments {
  std::string output;
  bool markdown = false;
};

}  // namespace

Command schema_command() {
  const auto arguments = std::make_shared<SchemaArguments>();
  Command command;
  command.name = "schema";
  command.summary = "Print the JSON Schema of scenario files.";
  command.text =
      "Prints the JSON Schema (2020-12) of scenario files, which editors use to complete and check them, or the keys "
      "as Markdown "
      "tables. Both come from the table that the parser itself uses.";
  command.examples = {
      {"lockstep schema -o scenario.schema.json", "write the schema to a file"},
      {"lockstep schema --markdown", "the keys as tables for people"},
  };
  command.options = {
      {"--markdown", "", "Print the keys as Markdown tables instead.", {}, &arguments->markdown},
      output_row(&arguments->output),
  };
  command.run = [arguments] {
    Output output(arguments->output, report::ReadableText::Kind::as_is);
    output.write(arguments->markdown ? scenario_key_tables() : write_json(scenario_schema()));
    output.commit();
    return static_cast<int>(exit_right);
  };
  return command;
}

}  // namespace lockstep::cli
