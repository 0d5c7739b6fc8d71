// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>

#include "src/base/budget.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/written_scenario.h"

namespace lockstep::cli {

namespace {

struct ShowArguments : CommonOptions {
  std::string file;
  bool resolved = false;
};

/// The text of "framework:NAME" or "model:NAME".
const std::string& builtin_text(const std::string& kind, const std::string& name) {
  const bool framework = kind == "framework";
  const std::string* text = framework ? builtin_framework(name) : builtin_model(name);
  if (text != nullptr) return *text;
  const std::vector<std::string> known = framework ? builtin_frameworks() : builtin_models();
  const std::string near = did_you_mean(name, known);
  usage_error(fmt::format("there is no {} \"{}\"{}", kind, name,
                          near.empty() ? fmt::format("; there are {}", fmt::join(known, ", ")) : near));
}

int run(const ShowArguments& arguments) {
  const std::size_t colon = arguments.file.find(':');
  const std::string kind = arguments.file.substr(0, colon);
  if (colon != std::string::npos && (kind == "framework" || kind == "model")) {
    const std::string& text = builtin_text(kind, arguments.file.substr(colon + 1));
    Output output(arguments.output, report::ReadableText::Kind::as_is);
    output.write(text);
    output.commit();
    return exit_right;
  }
  if (!std::filesystem::exists(arguments.file)) {
    for (const auto& [prefix, text] : {std::pair("framework", builtin_framework(arguments.file)),
                                       std::pair("model", builtin_model(arguments.file))}) {
      if (text == nullptr) continue;
      usage_error(fmt::format("there is no file {}; did you mean \"{}:{}\"?", arguments.file, prefix, arguments.file));
    }
  }
  const Budget budget(Budget::search);
  const Scenario scenario = read_scenario_file(one_scenario_file("show", arguments.file));
  if (arguments.resolved) want_same_verdict(scenario);
  Output output(arguments.output,
                arguments.resolved ? report::ReadableText::Kind::json : report::kind_of_format(arguments.format));
  if (arguments.resolved) {
    output.write(write_json(scenario.resolved));
  } else if (arguments.format == "json") {
    show_json(scenario, output.writer());
  } else {
    show_text(scenario, arguments.verbose, output.writer());
  }
  output.commit();
  return exit_right;
}

/// For completion.
std::vector<std::string> shown_words() {
  std::vector<std::string> words = {"*.json", "*.jsonc"};
  for (const std::string& name : builtin_frameworks()) words.push_back("framework:" + name);
  for (const std::string& name : builtin_models()) words.push_back("model:" + name);
  return words;
}

}  // namespace

Command show_command() {
  const auto arguments = std::make_shared<ShowArguments>();
  Command command;
  command.name = "show";
  command.summary = "Show a scenario's layout, groups, parameters and steps, or a built-in file.";
  command.text =
      "Prints what a scenario expands to: the layout with its process groups, the parameters with their placements "
      "(S(0) Shard, R "
      "Replicate, P Partial, as in DTensor), and the steps. As JSON it also holds `groups` (of each axis, and of each "
      "step with an "
      "`over`) and `geometry` (of each reduce-scatter: buckets, offsets, each rank's slice of each parameter) whole.";
  command.examples = {
      {"lockstep show scenario.json", "layout, groups, parameters, steps"},
      {"lockstep show scenario.json --resolved", "plain parameters and steps: a valid scenario with the same verdict"},
      {"lockstep show -f json scenario.json", "with all groups and the geometry, to compare with a framework's own"},
      {"lockstep show framework:megatron", "the built-in schedule of a framework; model:NAME works too"},
  };
  command.options =
      join({{{"FILE",
              "",
              "Scenario file, framework:NAME or model:NAME; - is standard input.",
              {},
              &arguments->file,
              shown_words()},
             {"--resolved", "", "Print the scenario with plain parameters and plain steps.", {}, &arguments->resolved}},
            arguments->output_rows_without({"-q,--quiet"})});
  command.options.push_back(set_row());
  command.options.push_back(include_row());
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
