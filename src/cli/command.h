// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::cli {

/// The exit statuses of the program, promised in docs/commands.md.
enum ExitStatus {
  exit_right = 0,
  exit_wrong = 1,    ///< something is wrong in what was checked
  exit_usage = 2,    ///< usage, a path that does not exist, a file that is not valid
  exit_failure = 3,  ///< the environment failed, or lockstep has a bug
  exit_nothing = 4,  ///< no file at all was checked
  exit_interrupted = 130,
  exit_closed_pipe = 141,
};

/// One option or argument of a command, bound to where its value goes.
struct OptionRow {
  std::string flags;                 ///< "-f,--format"; of an argument: "FILES", "[FILE]", "[FILES...]"
  std::string value;                 ///< "KIND"; "" for a flag
  std::string help;                  ///< one sentence
  std::vector<std::string> choices;  ///< allowed values; empty: any
  std::variant<bool*, std::string*, std::vector<std::string>*, std::uint64_t*> target;
  /// What completion offers besides `choices`: words, several separated by commas where `value` is "NAMES"; with a star
  /// in front the names of files, "*.npy", or "*" for all.
  std::vector<std::string> offers = {};

  bool is_argument() const { return flags.front() != '-'; }
  bool is_flag() const { return std::holds_alternative<bool*>(target); }
};

struct Example {
  std::string line;
  std::string meaning;
};

/// One command: all its words, its options and what it does. Help, parsing and the reference
/// document come from this table row.
struct Command {
  std::string name;
  std::string group;    ///< what it stands under in that list; set by all_commands()
  std::string summary;  ///< one line for the list of commands
  std::string text;     ///< what it does, in paragraphs
  std::vector<Example> examples;
  std::vector<OptionRow> options;
  std::function<int()> run;
  /// Where everything behind `--` goes, untouched; null: what stands there are arguments like any other.
  std::vector<std::string>* rest = nullptr;
  std::string rest_name;  ///< "ARGUMENTS..."
  /// It goes through elements, with the loops that LOCKSTEP_TARGET may name: a wrong name is said before anything else.
  bool uses_loops = false;
};

// One per command_NAME.cpp.
Command check_command();
Command prove_command();
Command test_command();
Command watch_command();
Command explain_command();
Command repair_command();
Command mutate_command();
Command report_command();
Command placements_command();
Command diff_command();
Command verify_command();
Command record_command();
Command extract_command();
Command matrix_command();
Command bisect_command();
Command show_command();
Command list_command();
Command import_command();
Command hash_command();
Command schema_command();
Command init_command();
Command version_command();
Command reference_command();
Command completion_command();
Command man_command();

/// All commands, in the order of the help, group by group.
std::vector<Command> all_commands();

/// The help of one command, and the list of all.
std::string command_help(const Command& command);
std::string program_help(const std::vector<Command>& commands);
/// What the exit statuses mean, in a sentence each: "0", "all as it should be".
std::vector<std::pair<std::string, std::string>> exit_status_meanings();
/// "-f, --format KIND", and the help with the choices behind it.
std::string flags_text(const OptionRow& row);
std::string help_text(const OptionRow& row);
/// "lockstep check [OPTIONS] FILES".
std::string usage(const Command& command);
/// docs/commands.md: every command with its options and examples.
std::string reference_markdown(const std::vector<Command>& commands);

/// Writes to standard output; exit status 0. Throws ClosedPipe.
int print_text(const std::string& text);

/// Reads the command line into the command's targets. Returns -1 to go on and run it, else the exit
/// status: the message, or the help, is written already.
int parse_arguments(const Command& command, const std::vector<std::string>& arguments);

/// The program's arguments, as run_program got them.
const std::vector<std::string>& command_line();

/// The whole program. Never throws.
int run_program(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
