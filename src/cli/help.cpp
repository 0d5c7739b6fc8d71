// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "src/cli/command.h"

namespace lockstep::cli {

namespace {

constexpr std::size_t help_width = 100;

/// `text` in lines of at most help_width columns, all after the first indented.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string result;
  std::size_t column = indent;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (column > indent && column + 1 + word.size() > help_width) {
      result += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
    begin = end + 1;
  }
  return result;
}

std::string rows_help(const Command& command, bool arguments) {
  std::string text;
  std::size_t width = 0;
  for (const OptionRow& row : command.options) width = std::max(width, flags_text(row).size());
  for (const OptionRow& row : command.options) {
    if (row.is_argument() != arguments) continue;
    text += fmt::format("  {:<{}}  {}\n", flags_text(row), width, wrapped(help_text(row), width + 4));
  }
  if (!arguments) text += fmt::format("  {:<{}}  This help.\n", "-h, --help", width);
  return text;
}

}  // namespace

std::string flags_text(const OptionRow& row) {
  std::string text;
  for (const char c : row.flags) text += c == ',' ? std::string(", ") : std::string(1, c);
  if (!row.value.empty()) text += " " + row.value;
  return text;
}

std::string help_text(const OptionRow& row) {
  std::string text = row.help;
  if (row.choices.empty()) return text;
  std::string choices;
  for (const std::string& choice : row.choices) choices += (choices.empty() ? "" : ", ") + choice;
  return fmt::format("{} One of: {}.", text, choices);
}

std::string usage(const Command& command) {
  std::string line = "lockstep " + command.name;
  const bool has_options = std::any_of(command.options.begin(), command.options.end(),
                                       [](const OptionRow& row) { return !row.is_argument(); });
  if (has_options) line += " [OPTIONS]";
  for (const OptionRow& row : command.options) {
    if (row.is_argument()) line += " " + row.flags;
  }
  if (command.rest != nullptr) line += " [-- " + command.rest_name + "]";
  return line;
}

std::string command_help(const Command& command) {
  std::string text = fmt::format("usage: {}\n\n{}\n", usage(command), wrapped(command.text, 0));
  const std::string arguments = rows_help(command, true);
  if (!arguments.empty()) text += "\narguments\n" + arguments;
  text += "\noptions\n" + rows_help(command, false);
  text += "\nexamples\n";
  for (const Example& example : command.examples) {
    text += fmt::format("  {}\n      {}\n", example.line, wrapped(example.meaning, 6));
  }
  return text;
}

std::string program_help(const std::vector<Command>& commands) {
  std::string text =
      "lockstep: does every rank end up with the gradient that one device would have computed?\n\n"
      "usage: lockstep COMMAND [OPTIONS] [ARGUMENTS]\n";
  std::string group;
  for (const Command& command : commands) {
    if (command.group != group) text += fmt::format("\n{}\n", command.group);
    group = command.group;
    text += fmt::format("  {:<10} {}\n", command.name, command.summary);
  }
  text += "\n`lockstep COMMAND --help` explains a command, with examples. `lockstep init` writes a first scenario.\n";
  return text;
}

std::vector<std::pair<std::string, std::string>> exit_status_meanings() {
  return {{"0", "all as it should be"},
          {"1", "something is wrong in what was checked"},
          {"2", "usage, a path that does not exist, a file that cannot be read or is not valid"},
          {"3", "the environment failed, or lockstep has a bug (engines disagree)"},
          {"4", "no file at all was checked"},
          {"130", "interrupted"},
          {"141", "closed pipe"}};
}

std::string reference_markdown(const std::vector<Command>& commands) {
  std::string text =
      "# Commands\n\nPrinted by `lockstep reference`; do not edit by hand.\n\n"
      "Exit status: ";
  for (const auto& [status, meaning] : exit_status_meanings())
    text += fmt::format("{}{} {}", status == "0" ? "" : "; ", status, meaning);
  text += ". With several files the largest of 0 to 3.\n";
  for (const Command& command : commands) {
    text += fmt::format("\n## lockstep {}\n\n{}\n\n```\n{}\n```\n", command.name, command.text, usage(command));
    if (!command.options.empty()) {
      text += "\n| option | meaning |\n|---|---|\n";
      for (const OptionRow& row : command.options)
        text += fmt::format("| `{}` | {} |\n", flags_text(row), help_text(row));
    }
    text += "\n";
    for (const Example& example : command.examples) text += fmt::format("- `{}`: {}\n", example.line, example.meaning);
  }
  return text;
}

}  // namespace lockstep::cli
