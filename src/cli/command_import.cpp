// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>

#include "lockstep/importer.h"
#include "src/cli/files.h"
#include "src/cli/import_flight_recorder.h"
#include "src/cli/import_script.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/results.h"

namespace lockstep::cli {

namespace {

struct ImportArguments : CommonOptions {
  std::string kind;
  std::vector<std::string> files;
  std::vector<std::string> rest;                         // after --
  std::string world, tp, pp, cp, sp, ep, micro_batches;  // "": not given
  std::string model;
  std::vector<std::string> sizes, options, variables;
  bool run = false;
  bool ignore_unknown = false;
  bool check = false;
};

/// Such an option asks for something else than a report of the verdict, so it would be dropped in silence.
void refuse_report_options(const ImportArguments& arguments) {
  for (const auto& [given, option] :
       {std::pair(arguments.format != "text", "--format"), std::pair(!arguments.reports.empty(), "--report"),
        std::pair(!arguments.engines.empty(), "--engine"), std::pair(arguments.seed != 0, "--seed"),
        std::pair(arguments.verbose, "--verbose")}) {
    if (given) {
      usage_error(fmt::format("{}: there is a verdict to report only with --check; add --check, or leave {} out",
                              option, option));
    }
  }
}

/// Dumps are compared, and become no scenario.
void refuse_configuration_options(const ImportArguments& arguments) {
  for (const auto& [given, option] :
       {std::pair(arguments.check, "--check"), std::pair(arguments.ignore_unknown, "--ignore-unknown"),
        std::pair(!arguments.tp.empty(), "--tp"), std::pair(!arguments.pp.empty(), "--pp"),
        std::pair(!arguments.cp.empty(), "--cp"), std::pair(!arguments.sp.empty(), "--sp"),
        std::pair(!arguments.ep.empty(), "--ep"), std::pair(!arguments.micro_batches.empty(), "--micro-batches"),
        std::pair(!arguments.model.empty(), "--model"), std::pair(!arguments.sizes.empty(), "--size"),
        std::pair(!arguments.options.empty(), "--option"), std::pair(!arguments.variables.empty(), "--set"),
        std::pair(arguments.run, "--run"), std::pair(!arguments.rest.empty(), "--"),
        std::pair(!arguments.reports.empty(), "--report"), std::pair(!arguments.engines.empty(), "--engine"),
        std::pair(arguments.seed != 0, "--seed")}) {
    if (given)
      usage_error(fmt::format("{}: dumps of the Flight Recorder are no configuration; leave {} out", option, option));
  }
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const ImportFormat& format : import_formats()) names.push_back(format.name);
  names.emplace_back(flight_recorder_format);
  return names;
}

ImportRequest request_of(const ImportArguments& arguments) {
  const std::vector<std::string> names = format_names();
  if (std::find(names.begin(), names.end(), arguments.kind) == names.end()) {
    const std::string meant = did_you_mean(arguments.kind, names);
    usage_error(fmt::format("there is no configuration format \"{}\"{} {}", arguments.kind,
                            meant.empty() ? "; there are" : meant + " There are", fmt::join(names, ", ")));
  }
  ImportRequest request;
  request.format = arguments.kind;
  request.arguments = arguments.rest;
  request.world = number_of("--world-size", arguments.world, largest_import_size);
  request.tp = number_of("--tp", arguments.tp, largest_import_size);
  request.pp = number_of("--pp", arguments.pp, largest_import_size);
  request.cp = number_of("--cp", arguments.cp, largest_import_size);
  request.sp = number_of("--sp", arguments.sp, largest_import_size);
  request.ep = number_of("--ep", arguments.ep, largest_import_size);
  request.micro_batches = number_of("--micro-batches", arguments.micro_batches, largest_import_size);
  request.model = arguments.model;
  request.sizes = arguments.sizes;
  request.options = arguments.options;
  request.variables = arguments.variables;
  request.ignore_unknown = arguments.ignore_unknown;
  if (arguments.run) return request;
  for (const std::string& file : expanded_files(arguments.files))
    request.files.push_back(read_source(file, "a configuration"));
  return request;
}

/// "words" in lines of at most 100 columns, all indented.
std::string lines_of(const std::vector<std::string>& words) {
  std::string text, line = " ";
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i] + (i + 1 < words.size() ? "," : "");
    if (line.size() + 1 + word.size() > 100 && line.size() > 1) {
      text += line + "\n";
      line = "   ";
    }
    line += " " + word;
  }
  return text + line + "\n";
}

/// The account of the keys: what was used, what does not matter and why, what was assumed.
std::string account(const Imported& imported) {
  std::string text;
  std::size_t width = 0;
  std::vector<std::string> written;
  for (const ImportedKey& key : imported.used) {
    const std::string_view between = key.value.empty() ? "" : key.key.starts_with("--") ? " " : " = ";
    written.push_back(fmt::format("{}{}{}", key.key, between, key.value));
    width = std::max(width, std::min<std::size_t>(written.back().size(), 48));
  }
  if (!imported.used.empty()) text += "used\n";
  for (std::size_t i = 0; i < written.size(); ++i) {
    text += fmt::format("  {:<{}}  {}\n", written[i], width, imported.used[i].meaning);
  }
  if (!imported.ignored.empty()) text += "does not matter for gradients\n";
  std::vector<std::string> reasons;
  std::map<std::string, std::vector<std::string>> keys;
  for (const ImportedKey& key : imported.ignored) {
    if (keys[key.meaning].empty()) reasons.push_back(key.meaning);
    keys[key.meaning].push_back(key.key);
  }
  for (const std::string& reason : reasons) {
    std::vector<std::string>& words = keys[reason];
    words.front() = reason + ": " + words.front();
    text += lines_of(words);
  }
  if (!imported.not_judged.empty())
    text += "not judged, the model of --model is in its place\n" + lines_of(imported.not_judged);
  if (!imported.unknown.empty()) text += "not known, left out\n" + lines_of(imported.unknown);
  if (!imported.assumed.empty()) text += "not in the configuration\n";
  for (const std::string& sentence : imported.assumed) text += "  " + sentence + "\n";
  text += "judged as\n  " + imported.release + "\n";
  return text;
}

/// What a report calls the scenario: the file that it is in, or what it was made from.
std::string name_of(const ImportArguments& arguments) {
  if (!arguments.output.empty() && arguments.output != "-") return arguments.output;
  return arguments.files.empty() ? "arguments" : arguments.files.front();
}

int run(const ImportArguments& arguments) {
  if (arguments.kind == flight_recorder_format) {
    refuse_configuration_options(arguments);
    return import_flight_recorder(arguments, arguments.files,
                                  number_of("--world-size", arguments.world, largest_import_size));
  }
  if (!arguments.check) refuse_report_options(arguments);
  const Imported imported = arguments.run ? import_script(arguments.files, request_of(arguments))
                                          : import_configuration(request_of(arguments));
  const std::string text = write_json(imported.scenario);
  // Read as the scenario that it is, so that what its framework refuses is said now.
  const auto scenario = std::make_shared<const Scenario>(read_imported(imported, name_of(arguments)));
  if (!arguments.quiet) tell(account(imported));
  if (!arguments.output.empty() || !arguments.check) {
    Output output(arguments.output, report::ReadableText::Kind::json);
    output.write(text);
    output.commit();
  }
  if (!arguments.check) return exit_right;
  CommonOptions report = arguments;
  report.output.clear();  // it is the scenario's
  ReportSet reports(report, false);
  const CheckResult result = check_scenario(scenario, check_options(arguments));
  reports.add(result);
  reports.finish();
  return status_of(result);
}

std::string formats_text() {
  std::string text;
  for (const ImportFormat& format : import_formats())
    text += fmt::format(" {} ({}): {}.", format.name, format.title, format.reads);
  return text +
         " And flight-recorder: dumps of PyTorch's Flight Recorder as JSON, one of each rank, or a folder of them. "
         "They become no scenario; collectives that do not meet, that a rank does not issue and that ranks wait in are "
         "named (docs/flight-recorder.md), as text or with -f json, with the exit status of `lockstep verify`.";
}

std::vector<OptionRow> rows(ImportArguments& arguments) {
  std::vector<OptionRow> output = arguments.output_rows();
  for (OptionRow& row : output) {
    if (row.flags == "-o,--output")
      row.help = "Write the scenario to FILE instead of standard output; it appears only when it is complete.";
    if (row.flags == "-f,--format") row.help = "With --check: the format of the report.";
    if (row.flags == "-q,--quiet") row.help = "Do not list the keys; with --check, one line.";
  }
  return join(
      {{{"FORMAT", "", "The configuration's format.", {}, &arguments.kind, format_names()},
        {"[FILES...]",
         "",
         "The configuration; - is standard input. Several files are merged where the framework does so.",
         {},
         &arguments.files,
         {"*"}},
        {"--check", "", "Go on to the verdict, as `lockstep check` does.", {}, &arguments.check},
        {"--run",
         "",
         "megatron: let bash run the launch script, by way of bubblewrap or unshare without the machine's other files "
         "and network; commands that start programs write down their arguments "
         "(docs/import.md). --set sets its environment; its arguments stand after --.",
         {},
         &arguments.run},
        {"--ignore-unknown",
         "",
         "Leave out keys that lockstep does not know, in place of an error.",
         {},
         &arguments.ignore_unknown},
        {"--world-size",
         "N",
         "The number of ranks, where the configuration does not say it, or in place of what a launch script says.",
         {},
         &arguments.world},
        {"--tp", "N", "Tensor-parallel size, for configurations that do not hold it.", {}, &arguments.tp},
        {"--pp", "N", "Pipeline-parallel size, likewise.", {}, &arguments.pp},
        {"--cp", "N", "Context-parallel size, likewise.", {}, &arguments.cp},
        {"--sp", "N", "Ulysses sequence-parallel size, likewise.", {}, &arguments.sp},
        {"--ep", "N", "Expert-parallel size, likewise.", {}, &arguments.ep},
        {"--micro-batches",
         "N",
         "Micro-batches per optimizer step, in place of what the configuration says.",
         {},
         &arguments.micro_batches},
        {"--model",
         "PRESET",
         "The model, where the configuration says nothing about it; of Megatron's, in the place of one that lockstep "
         "does not "
         "describe: layout and schedule are judged then.",
         {},
         &arguments.model},
        {"--size",
         "KEY=VALUE",
         "A size of the model, such as layers=12; may be given several times.",
         {},
         &arguments.sizes},
        {"--option",
         "NAME=VALUE",
         "An option of the framework's schedule, in place of what the configuration says or leaves open; may be given "
         "several times.",
         {},
         &arguments.options},
        {"--set",
         "NAME=VALUE",
         "A variable of a launch script that is set outside of it; may be given several times.",
         {},
         &arguments.variables}},
       output,
       {arguments.report_rows().front()},
       arguments.engine_rows()});
}

}  // namespace

Command import_command() {
  const auto arguments = std::make_shared<ImportArguments>();
  Command command;
  command.name = "import";
  command.summary = "Turn a framework's own configuration into a scenario.";
  command.text =
      "Reads the configuration of a training framework and writes the scenario that it stands for: layout, model, "
      "batch and schedule. Nothing in it is executed, but with --run. On standard error it lists the keys that it "
      "used, those that do "
      "not matter for gradients, and what it had to assume; a key that it does not know and that may matter is an "
      "error. The scenario expects the verdict match, so that `lockstep test` is a gate for it. Texts such as paths, "
      "tokens and host names never reach its output." +
      formats_text();
  command.examples = {
      {"lockstep import megatron --world-size 16 --check -- --tensor-model-parallel-size 8 --num-layers 32 "
       "--hidden-size 4096 "
       "--num-attention-heads 32 --micro-batch-size 1 --global-batch-size 8 --max-position-embeddings 4096",
       "is this combination of options right?"},
      {"lockstep import megatron train.log -o step.json", "from the arguments that Megatron-LM printed into its log"},
      {"lockstep import megatron train.sh --set NNODES=4 --check",
       "a launch script, one of whose variables is set elsewhere"},
      {"lockstep import deepspeed ds_config.json --world-size 64 --sp 4 --model llama3-8b",
       "say what that file does not hold"},
      {"lockstep import gpt-neox 20B.yml cluster.yml --world-size 96", "several files, merged"},
      {"lockstep import accelerate default_config.yaml ds_config.json --check -q",
       "with the DeepSpeed configuration that it names"},
      {"lockstep import flight-recorder traces/", "why do the ranks wait for each other?"},
  };
  command.options = rows(*arguments);
  command.options.push_back(include_row());
  command.rest = &arguments->rest;
  command.rest_name = "ARGUMENTS...";
  command.run = [arguments] { return run(*arguments); };
  return command;
}

}  // namespace lockstep::cli
