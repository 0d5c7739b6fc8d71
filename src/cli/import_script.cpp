// SPDX-License-Identifier: Apache-2.0
#include "src/cli/import_script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>

#include "src/base/counted.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/script_run.h"
#include "src/report/clean_text.h"

namespace lockstep::cli {

namespace {

/// The script that is to be run, alone.
const std::string& one_script(const std::vector<std::string>& files, const std::string& format) {
  if (format != "megatron")
    usage_error(fmt::format("--run runs launch scripts of Megatron-LM, and {} has none: leave it out", format));
  if (files.size() != 1 || files.front() == "-")
    usage_error(fmt::format("--run runs one launch script that is a file, found {}",
                            files.size() == 1 ? "standard input" : counted(files.size(), "file")));
  return files.front();
}

/// Why the script may have started something else than it would, in sentences.
std::vector<Diagnostic> hints(const ScriptRun& run, bool has_arguments) {
  std::vector<Diagnostic> result;
  const std::string& script = run.source->name;
  constexpr std::size_t longest = 200;
  const std::string said = report::one_line_text(run.said.substr(0, longest));
  if (run.status < 0) {
    result.push_back({{},
                      fmt::format("{} was stopped: it takes longer than {} seconds, or writes down too much", script,
                                  script_seconds)});
  } else if (run.status != 0) {
    result.push_back(
        {{},
         fmt::format("{} ended with status {}{}; what it takes from its environment is given with --set NAME=VALUE",
                     script, run.status, said.empty() ? "" : fmt::format(", and said last \"{}\"", said))});
  }
  static const std::regex positional(R"(\$(\{)?[1-9@*])");
  if (!has_arguments && std::regex_search(run.source->text, positional))
    result.push_back(
        {{}, fmt::format("{} may take arguments ($1 and so on), and was given none; they stand after --", script)});
  return result;
}

/// The programs that were started besides the training, which has the most options, as to work something out; each
/// once.
std::vector<std::string> other_programs(const ScriptRun& run) {
  const auto options = [](const std::vector<std::string>& command) {
    return std::count_if(command.begin(), command.end(),
                         [](const std::string& word) { return word.starts_with("--"); });
  };
  const auto training =
      std::max_element(run.commands.begin(), run.commands.end(),
                       [&](const auto& one, const auto& other) { return options(one) < options(other); });
  std::vector<std::string> names;
  for (auto command = run.commands.begin(); command != run.commands.end(); ++command) {
    if (command != training && std::find(names.begin(), names.end(), command->front()) == names.end())
      names.push_back(command->front());
  }
  return names;
}

}  // namespace

Imported import_script(const std::vector<std::string>& files, ImportRequest request) {
  const std::string& script = one_script(files, request.format);
  const ScriptRun run = run_script(script, request.variables, request.arguments);
  const std::vector<Diagnostic> more = hints(run, !request.arguments.empty());
  std::vector<Diagnostic> mistakes;
  Imported imported;
  if (run.commands.empty()) {
    mistakes.push_back({{}, fmt::format("{} started no program that is known to start training", script)});
  } else {
    request.files = {as_plain_script(run)};
    request.arguments.clear();
    request.variables.clear();
    try {
      imported = import_configuration(request);
    } catch (const InputError& error) {
      mistakes = error.diagnostics();
    }
  }
  if (!mistakes.empty()) {
    mistakes.insert(mistakes.end(), more.begin(), more.end());
    throw InputError(std::move(mistakes));
  }
  if (run.status != 0) imported.assumed.push_back(more.front().message + ".");
  if (const std::vector<std::string> others = other_programs(run); !others.empty())
    imported.assumed.push_back(
        fmt::format("The script started {} too, which did nothing: what it reads of {} was empty.",
                    fmt::join(others, ", "), others.size() == 1 ? "it" : "them"));
  if (run.asked_for_gpus)
    imported.assumed.emplace_back(
        "It asked for the GPUs of this machine, and was told of eight; --world-size says otherwise.");
  return imported;
}

}  // namespace lockstep::cli
