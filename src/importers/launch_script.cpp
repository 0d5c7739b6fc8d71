// SPDX-License-Identifier: Apache-2.0
#include "src/importers/launch_script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "lockstep/rational.h"
#include "src/importers/batch_lines.h"
#include "src/importers/redact.h"
#include "src/importers/shell.h"

namespace lockstep::importers {

namespace {

std::optional<std::int64_t> whole_number(const std::string& text) {
  const std::optional<Rational> number = Rational::parse(text);
  const std::optional<std::int64_t> value = number ? number->to_int64() : std::nullopt;
  return value && *value > 0 && *value <= 1'000'000 ? value : std::nullopt;
}

/// The value of one of `flags` among `words`: "--nnodes 4" or "--nnodes=4".
std::optional<std::int64_t> value_of(const std::vector<Word>& words, const std::vector<std::string>& flags) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!words[i].unresolved.empty()) continue;
    // "-n16", as srun reads it.
    for (const std::string& flag : flags) {
      const std::string& text = words[i].text;
      if (flag.size() == 2 && text.size() > 2 && text.starts_with(flag) &&
          text.find_first_not_of("0123456789", 2) == std::string::npos)
        return whole_number(text.substr(2));
    }
    const std::size_t equals = words[i].text.find('=');
    if (std::find(flags.begin(), flags.end(), words[i].text.substr(0, equals)) == flags.end()) continue;
    if (equals != std::string::npos) return whole_number(words[i].text.substr(equals + 1));
    if (i + 1 < words.size() && words[i + 1].unresolved.empty()) return whole_number(words[i + 1].text);
  }
  return std::nullopt;
}

std::int64_t world_of(const std::vector<Word>& launcher, const std::map<std::string, std::string>& batch) {
  const auto variable = [&](const char* name) {
    const auto found = batch.find(name);
    return found != batch.end() ? whole_number(found->second) : std::nullopt;
  };
  const std::vector<std::string> per_node_flags = {"--nproc_per_node", "--nproc-per-node"};
  const bool says_per_node = std::any_of(launcher.begin(), launcher.end(), [&](const Word& word) {
    const std::string flag = word.text.substr(0, word.text.find('='));
    return std::find(per_node_flags.begin(), per_node_flags.end(), flag) != per_node_flags.end();
  });
  if (says_per_node) {
    const auto per_node = value_of(launcher, per_node_flags);
    if (!per_node) return 0;  // a variable, or "gpu": what the batch system starts are launchers, not ranks
    auto nodes = value_of(launcher, {"--nnodes"});
    const bool says_nodes = std::any_of(launcher.begin(), launcher.end(),
                                        [](const Word& word) { return word.text.starts_with("--nnodes"); });
    if (!nodes && !says_nodes) nodes = 1;  // torchrun's default
    return nodes.value_or(0) * *per_node;
  }
  const auto says = [&](std::string_view flag) {
    return std::any_of(launcher.begin(), launcher.end(),
                       [&](const Word& word) { return word.text.substr(0, word.text.find('=')) == flag; });
  };
  if (const auto of_deepspeed = value_of(launcher, {"--num_gpus"})) {
    // Without --num_nodes it takes all hosts of its list, which is none where nobody names one.
    const bool is_alone = !says("--num_nodes") && !says("--hostfile") && !says("-H");
    return *of_deepspeed * (is_alone ? 1 : value_of(launcher, {"--num_nodes"}).value_or(0));
  }
  if (const auto tasks = value_of(launcher, {"-n", "--ntasks", "-np"})) return *tasks;
  auto nodes = value_of(launcher, {"-N", "--nodes"});
  auto each = value_of(launcher, {"--ntasks-per-node", "--tasks-per-node"});
  const auto of_job = variable("SLURM_NTASKS");
  if (of_job && !nodes && !each) return *of_job;
  if (!nodes) nodes = variable("SLURM_NNODES");
  if (!each) each = variable("SLURM_NTASKS_PER_NODE");
  return nodes && each ? *nodes * *each : of_job.value_or(0);
}

/// Of a program that starts its ranks itself, as slime does with Ray; 0: it does not say.
std::int64_t world_of_actors(const std::vector<Word>& arguments) {
  const auto nodes = value_of(arguments, {"--actor-num-nodes"});
  const auto each = value_of(arguments, {"--actor-num-gpus-per-node"});
  return nodes && each ? *nodes * *each : 0;
}

/// The words of a script that may be the names of variables; `certain`: those behind a dollar sign or in front of =.
std::vector<std::string> names_in(const std::string& text, bool certain) {
  const auto is_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::set<std::string> names;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    while (end < text.size() && is_name(text[end])) ++end;
    const bool marked = (begin > 0 && (text[begin - 1] == '$' || text[begin - 1] == '{')) || text[end] == '=';
    if (end > begin && (marked || !certain)) names.insert(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return {names.begin(), names.end()};
}

/// Commands that only show what they are given.
bool prints(const std::string& command) {
  return command == "echo" || command == "printf" || command == "cat" || command == "tee";
}

/// Commands that are held in one word, as those of `bash -c` and eval, taken apart.
std::vector<Word> unpacked(const std::vector<Word>& words) {
  std::vector<Word> result;
  for (const Word& word : words) {
    const bool is_command =
        word.text.find(".py") != std::string::npos && word.text.find_first_of(" \n\t") != std::string::npos;
    if (!is_command) {
      result.push_back(word);
      continue;
    }
    for (Word& part : split_word(word)) {
      if (part.text != "\\") result.push_back(std::move(part));
    }
  }
  return result;
}

/// What the arguments rest on that another environment may change. `sourced`: lines that read another script;
/// `unnamed`: lines that may set any variable.
std::vector<std::string> notes_of(const std::vector<Word>& arguments, const std::vector<int>& sourced,
                                  const std::vector<int>& unnamed) {
  std::vector<std::string> notes;
  if (!sourced.empty()) {
    notes.push_back(fmt::format("What another script sets is not known: line{} {} read{} one; give --set NAME=VALUE.",
                                sourced.size() == 1 ? "" : "s", fmt::join(sourced, ", "),
                                sourced.size() == 1 ? "s" : ""));
  }
  if (!unnamed.empty()) {
    notes.push_back(fmt::format(
        "Line{} {} may set variables whose names are not known here; give --set NAME=VALUE where another value counts.",
        unnamed.size() == 1 ? "" : "s", fmt::join(unnamed, ", ")));
  }
  std::set<std::string> defaults;
  for (const Word& word : arguments) {
    for (const std::string& name : word.defaults) defaults.insert(is_environment_name(name) ? name : "a hidden name");
  }
  if (!defaults.empty()) {
    notes.push_back(
        fmt::format("Not set in the script, so that its own default was taken: {}; give --set NAME=VALUE "
                    "for another value.",
                    fmt::join(defaults, ", ")));
  }
  return notes;
}

/// Whether the word stands in the script as all arguments of a function, or of the script itself.
bool is_all_arguments(const Word& word, const Source& script) {
  return !word.unresolved.empty() && word.text == std::string(1, unknown_text) && word.place.source.get() == &script &&
         script.text.compare(word.place.begin, word.place.end - word.place.begin, "$@") == 0;
}

bool passes_on(const ShellCommand& command, const Source& script) {
  return std::ranges::any_of(command.words, [&](const Word& word) { return is_all_arguments(word, script); });
}

constexpr std::ptrdiff_t fewest_arguments = 3;

/// The functions that start a training and are called once, each with its call.
std::map<std::string, const ShellCommand*> trainings_in_functions(const std::vector<ShellCommand>& commands,
                                                                  const Source& script,
                                                                  const std::function<bool(const Word&)>& known) {
  std::map<std::string, std::vector<const ShellCommand*>> calls;
  for (const ShellCommand& command : commands) {
    const bool trains = !command.function.empty() && !prints(command.words.front().text) &&
                        (passes_on(command, script) || std::ranges::count_if(command.words, known) >= fewest_arguments);
    if (trains) calls[command.function];
  }
  for (const ShellCommand& command : commands) {
    const auto found = calls.find(command.words.front().text);
    if (found != calls.end()) found->second.push_back(&command);
  }
  std::map<std::string, const ShellCommand*> result;
  for (const auto& [function, all] : calls) {
    if (all.size() == 1) result.emplace(function, all.front());
  }
  return result;
}

/// The words of a command in a function, with those of the function's call where it passes them on.
std::vector<Word> with_arguments(const ShellCommand& command, const ShellCommand& call, const Source& script) {
  std::vector<Word> words;
  for (const Word& word : command.words) {
    if (is_all_arguments(word, script)) {
      words.insert(words.end(), call.words.begin() + 1, call.words.end());
    } else {
      words.push_back(word);
    }
  }
  return words;
}

}  // namespace

Launch read_launch_script(const std::shared_ptr<const Source>& source, const std::vector<std::string>& variables,
                          const std::function<bool(const std::string&)>& is_argument, Diagnostics& diagnostics) {
  std::map<std::string, std::string> given = batch_variables(source->text);
  const std::map<std::string, std::string> batch = given;
  for (const std::string& text : variables) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      diagnostics.add({}, "--set takes NAME=VALUE, such as NNODES=4; found no name or no equals sign");
      continue;
    }
    const std::string name = text.substr(0, equals);
    const std::vector<std::string> names = names_in(source->text, false);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      diagnostics.add({}, fmt::format("--set: the script has no variable {}{}", name,
                                      did_you_mean(name, names_in(source->text, true))));
    }
    given[name] = text.substr(equals + 1);
  }
  if (!diagnostics.empty()) return {};
  std::vector<Launch> found;
  std::vector<int> lines, sourced, unnamed;
  const std::vector<ShellCommand> commands = read_shell(source, given, diagnostics);
  if (!diagnostics.empty()) return {};
  const auto known_word = [&](const Word& word) { return is_argument(word.text.substr(0, word.text.find('='))); };
  const std::map<std::string, const ShellCommand*> calls = trainings_in_functions(commands, *source, known_word);
  for (const ShellCommand& command : commands) {
    if (command.words.front().text == "exit" && !command.is_conditional) break;
    if (command.sets_unnamed) unnamed.push_back(command.line);
    if (prints(command.words.front().text)) continue;
    if (command.words.front().text == "source" || command.words.front().text == ".") sourced.push_back(command.line);
    // A function that starts a training is counted, and not its call, whose words are the function's arguments.
    if (const auto call = calls.find(command.words.front().text); call != calls.end() && call->second == &command)
      continue;
    const auto call = calls.find(command.function);
    const std::vector<Word> words =
        unpacked(call != calls.end() ? with_arguments(command, *call->second, *source) : command.words);
    if (std::ranges::count_if(words, known_word) < fewest_arguments) continue;
    for (const auto& [name, at] : command.set_later != nullptr ? *command.set_later : std::map<std::string, int>()) {
      if (given.contains(name)) continue;
      diagnostics.add({},
                      fmt::format("line {} sets {}, which the function of line {} reads, and when it is called is not "
                                  "followed; give --run, which lets bash run the script, or --set {}=VALUE",
                                  at, is_environment_name(name) ? name : "a variable", command.line,
                                  is_environment_name(name) ? name : "NAME"));
    }
    const auto first = std::ranges::find_if(words, known_word);
    // The program is the last Python file in front of the arguments; without one they begin with the first that is
    // known.
    auto program = std::find_if(std::make_reverse_iterator(first), words.rend(),
                                [](const Word& word) { return word.text.ends_with(".py"); });
    const auto begin = program != words.rend() ? program.base() : first;
    Launch& launch = found.emplace_back();
    launch.arguments = {begin, words.end()};
    launch.world = world_of({words.begin(), begin}, batch);
    if (launch.world == 0) launch.world = world_of_actors({begin, words.end()});
    launch.notes = notes_of(words, sourced, unnamed);
    if (program != words.rend()) {
      launch.program = program->text.substr(program->text.rfind('/') + 1);
      launch.place = program->place;
    }
    lines.push_back(command.line);
  }
  if (found.size() == 1) return std::move(found.front());
  if (found.empty()) {
    diagnostics.add(
        {source, 0, 0, ""},
        "this script has no command with three or more arguments of the framework; give these arguments without "
        "the script: lockstep import megatron -- ARGUMENTS, and with --deepspeed among them its configuration in front "
        "of --");
  } else {
    // What names no program may be a function of the script that holds the other command.
    constexpr const char* call = " (or --run, which lets bash read it, where one is a function that the other calls)";
    const bool calls = std::ranges::any_of(found, [](const Launch& launch) { return launch.program.empty(); });
    diagnostics.add({source, 0, 0, ""}, fmt::format("this script starts a training more than once, in lines {}; give "
                                                    "the arguments of one alone: lockstep import "
                                                    "megatron -- ARGUMENTS{}",
                                                    fmt::join(lines, " and "), calls ? call : ""));
  }
  return {};
}

}  // namespace lockstep::importers
