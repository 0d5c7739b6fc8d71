// SPDX-License-Identifier: Apache-2.0
#include "src/cli/import_script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>

#include "src/base/counted.h"
#include "src/cli/files.h"
#include "src/cli/options.h"
#include "src/cli/script_needs.h"
#include "src/cli/script_run.h"
#include "src/importers/batch_lines.h"
#include "src/report/clean_text.h"

namespace lockstep::cli {

namespace {

/// The script that is to be run; behind it there may be DeepSpeed's configuration.
const std::string& one_script(const std::vector<std::string>& files, const std::string& format) {
  if (format != "megatron")
    usage_error(fmt::format("--run runs launch scripts of Megatron-LM, and {} has none: leave it out", format));
  constexpr std::size_t most = 2;
  if (!files.empty() && files.front() == "-")
    usage_error("--run runs one launch script that is a file, found standard input");
  if (files.empty() || files.size() > most)
    usage_error(fmt::format(
        "--run runs one launch script that is a file, and behind it may stand DeepSpeed's configuration; found {}",
        counted(files.size(), "file")));
  return files.front();
}

/// Which arguments the script takes and was not given, in a sentence; "" where there are none.
std::string missing_arguments(const ScriptRun& run, std::size_t given) {
  const std::vector<ScriptArgument> all = script_arguments(run.source->text);
  const bool lacks = std::any_of(all.begin() + static_cast<std::ptrdiff_t>(std::min(given, all.size())), all.end(),
                                 [](const ScriptArgument& argument) { return argument.is_used; });
  if (!lacks) return "";
  if (shifts_arguments(run.source->text)) {
    return given > 0 ? "" : fmt::format("{} takes options and was given none; write them after --", run.source->name);
  }
  return fmt::format("{} takes {} and was given {}; write {} after --, in this order: {}", run.source->name,
                     counted(all.size(), "argument"), given == 0 ? "none" : std::to_string(given),
                     given == 0 ? "them" : "the others as well", text_of(all, given));
}

/// Why the script may have started something else than it would, in sentences: what it said last, what nothing sets.
std::vector<Diagnostic> hints(const ScriptRun& run, const ImportRequest& request) {
  std::vector<Diagnostic> result;
  const std::string& script = run.source->name;
  constexpr std::size_t longest = 200;
  const std::string said = report::one_line_text(run.said.substr(0, longest));
  if (run.status < 0) {
    result.push_back({{},
                      fmt::format("{} was stopped: it takes longer than {} seconds, or writes down too much", script,
                                  script_seconds)});
    return result;
  }
  std::string texts = run.source->text;  // what one of them sets, the others read
  for (const std::string& text : run.sourced) texts += "\n" + text;
  std::vector<std::string> set = request.variables;
  for (const auto& [name, value] : run.batch) set.push_back(fmt::format("{}={}", name, value));
  const std::vector<std::string> unset = unset_variables(texts, set);
  static const std::regex missing_file(R"(: (/[A-Za-z0-9_./+-]+): No such file or directory$)");
  std::smatch file;
  const bool lacks_file = std::regex_search(said, file, missing_file);
  const std::string advice =
      lacks_file ? fmt::format(
                       "{} is not here: a file of the machine that it was written for, or named with a variable "
                       "that is given with --set NAME=VALUE",
                       report::one_line_text(file[1].str()))
      : unset.empty() ? "what it takes from its environment is given with --set NAME=VALUE"
                      : fmt::format("it takes from its environment {}: give --set {}=VALUE{}", fmt::join(unset, ", "),
                                    unset.front(), unset.size() > 1 ? " and so on" : "");
  if (run.status != 0) {
    result.push_back({{},
                      fmt::format("{} ended with status {}{}; {}", script, run.status,
                                  said.empty() ? "" : fmt::format(", and said last \"{}\"", said), advice)});
  } else if (!said.empty()) {
    result.push_back({{}, fmt::format("{} said last \"{}\"; {}", script, said, advice)});
  } else if (!unset.empty()) {
    result.push_back({{}, fmt::format("{}: {}", script, advice)});
  }
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
    // Its lists of GPUs are answered.
    const bool lists = run.asked_for_gpus && command->front() == "nvidia-smi";
    const std::string name = lists ? "nvidia-smi (where it lists no GPUs)" : command->front();
    if (command != training && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

/// How many GPUs nvidia-smi and PyTorch tell of: as src/cli/script_run.sh does.
std::string gpus_told(const ScriptRun& run) {
  const auto found = run.batch.find("SLURM_GPUS_ON_NODE");
  return found != run.batch.end() ? found->second : "eight";
}

/// What the script was told, or found, that is not so elsewhere.
void add_notes(const ScriptRun& run, const std::vector<std::string>& variables, Imported& imported) {
  std::vector<std::string> read;
  const auto is_given = [&](const std::string& name) {
    return std::any_of(variables.begin(), variables.end(),
                       [&](const std::string& one) { return one.starts_with(name + "="); });
  };
  const auto is_read = [&](const std::string& name) {
    return reads_variable(run.source->text, name) ||
           std::any_of(run.sourced.begin(), run.sourced.end(),
                       [&](const std::string& text) { return reads_variable(text, name); });
  };
  for (const auto& [name, value] : first_node_variables()) {
    if (!is_given(name) && is_read(name)) read.push_back(fmt::format("{}, which was {} here", name, value));
  }
  if (!read.empty())
    imported.assumed.push_back(
        fmt::format("It reads {}, as on a first node; --set says otherwise.", fmt::join(read, ", and ")));
  std::vector<std::string> of_slurm;
  std::vector<std::string> unset;
  for (const std::string& name : importers::layout_variables()) {
    if (is_given(name) || !is_read(name)) continue;
    if (const auto found = run.batch.find(name); found != run.batch.end()) {
      of_slurm.push_back(fmt::format("{} {}", name, found->second));
    } else {
      unset.push_back(name);
    }
  }
  if (!of_slurm.empty())
    imported.assumed.push_back(
        fmt::format("Its #SBATCH lines say {}; --set says otherwise.", fmt::join(of_slurm, ", ")));
  if (!unset.empty())
    imported.assumed.push_back(
        fmt::format("It reads {}, which nothing here has set; --set says otherwise.", fmt::join(unset, ", ")));
  if (const std::vector<std::string> others = other_programs(run); !others.empty())
    imported.assumed.push_back(
        fmt::format("The script started {} too, which did nothing: what it reads of {} was empty.",
                    fmt::join(others, ", "), others.size() == 1 ? "it" : "them"));
  if (run.asked_for_nodes)
    imported.assumed.emplace_back(
        "It asked the batch system for the names of its nodes, and was told of one; --set SLURM_NNODES=N gives "
        "others.");
  if (run.asked_for_gpus)
    imported.assumed.push_back(fmt::format(
        "It asked for the GPUs of this machine, and was told of {}; --world-size says otherwise.", gpus_told(run)));
  if (run.had_placeholders)
    imported.assumed.emplace_back("Its <placeholders> were taken as they are: put in what they stand for.");
  if (!run.elsewhere.empty())
    imported.assumed.push_back(
        fmt::format("It reads a file in a folder that is not here; that of its repository was taken: {}.",
                    fmt::join(run.elsewhere, ", ")));
  if (!run.made.empty())
    imported.assumed.push_back(
        fmt::format("It writes to folders that were not there, and were made: {}.", fmt::join(run.made, ", ")));
}

}  // namespace

Imported import_script(const std::vector<std::string>& files, ImportRequest request) {
  const std::string& script = one_script(files, request.format);
  const std::shared_ptr<const Source> deepspeed =
      files.size() > 1 ? read_source(files.back(), "a configuration of DeepSpeed") : nullptr;
  const std::vector<std::string> variables = request.variables;
  const ScriptRun run = run_script(script, variables, request.arguments);
  const std::vector<Diagnostic> more = hints(run, request);
  const std::string missing = missing_arguments(run, request.arguments.size());
  std::vector<Diagnostic> mistakes;
  Imported imported;
  if (run.commands.empty()) {
    mistakes.push_back({{}, fmt::format("{} started no program that is known to start training", script)});
  } else {
    request.files = {as_plain_script(run)};
    if (deepspeed != nullptr || run.deepspeed != nullptr)
      request.files.push_back(deepspeed != nullptr ? deepspeed : run.deepspeed);
    request.arguments.clear();
    request.variables.clear();
    try {
      imported = import_configuration(request);
    } catch (const InputError& error) {
      mistakes = error.diagnostics();
    }
  }
  if (!mistakes.empty()) {
    // Others may follow from it: it comes first.
    if (!missing.empty()) mistakes.insert(mistakes.begin(), Diagnostic{{}, missing});
    mistakes.insert(mistakes.end(), more.begin(), more.end());
    throw InputError(std::move(mistakes));
  }
  if (run.status != 0) imported.assumed.push_back(more.front().message + ".");
  add_notes(run, variables, imported);
  return imported;
}

}  // namespace lockstep::cli
