// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/cli/completion.h"

namespace lockstep::cli {

namespace {

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

/// Options of `complete` for a value. Fish's own completion of files is the fall-back where none of the flags is set.
std::string value_text(const Offer& offer) {
  if (offer.kind_of_file) return fmt::format("-r -a {}", quoted(fmt::format("{}=", fmt::join(offer.words, "= "))));
  if (offer.list)
    return fmt::format("-x -a {}", quoted(fmt::format("(__lockstep_list {})", fmt::join(offer.words, " "))));
  if (!offer.endings.empty()) {
    std::string text =
        fmt::format("-k -x -a {}", quoted(fmt::format("(__lockstep_files {})", fmt::join(offer.endings, " "))));
    if (!offer.words.empty()) text += fmt::format(" -a {}", quoted(fmt::format("{}", fmt::join(offer.words, " "))));
    return text;
  }
  if (!offer.words.empty()) return fmt::format("-x -a {}", quoted(fmt::format("{}", fmt::join(offer.words, " "))));
  if (offer.files) return "-r -F";
  if (offer.folders) return "-x -a '(__fish_complete_directories)'";
  return "-x";
}

std::string option_line(const std::string& command, const OptionRow& row) {
  std::string text = fmt::format("complete -c lockstep -n '__lockstep_command {}'", command);
  for (const std::string& flag : flags_of(row))
    text += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
  if (!row.is_flag()) text += " " + value_text(offer_of(row));
  return text + " -d " + quoted(first_sentence(row.help)) + "\n";
}

}  // namespace

std::string fish_completion(const std::vector<Command>& commands) {
  std::string text = R"FISH(# Completion of lockstep for fish; printed by `lockstep completion fish`.

# Whether the command is one of these.
function __lockstep_command
    set -l words (commandline -opc)
    test (count $words) -gt 1; and contains -- $words[2] $argv
end

function __lockstep_no_command
    test (count (commandline -opc)) -eq 1
end

# How many arguments stand before this one.
function __lockstep_before
    set -l words (string match -v -- '-*' (commandline -opc))
    test (count $words) -eq (math $argv[1] + 2)
end

# Files with these endings, and folders.
function __lockstep_files
    set -l token (commandline -ct)
    for name in $token*
        if test -d $name
            echo $name/
        else
            for ending in $argv
                string match -q -- "*.$ending" $name; and echo $name
            end
        end
    end
end

# One more word of a list with commas.
function __lockstep_list
    set -l begin (string replace -r '[^,]*$' '' -- (commandline -ct | string replace -r '^--[a-z-]*=' ''))
    printf '%s\n' $begin$argv
end

)FISH";
  text += "complete -c lockstep -f\n";
  std::vector<std::string> names;
  for (const Command& command : commands) {
    names.push_back(command.name);
    text += fmt::format("complete -c lockstep -n __lockstep_no_command -a {} -d {}\n", command.name,
                        quoted(first_sentence(command.summary)));
  }
  text += "complete -c lockstep -n __lockstep_no_command -a help -d 'Help on a command'\n";
  text += "complete -c lockstep -n __lockstep_no_command -l version -d 'Print the version'\n";
  text += "complete -c lockstep -s h -l help -d 'This help'\n";
  text += fmt::format("complete -c lockstep -n '__lockstep_command help' -a '{}'\n", fmt::join(names, " "));
  for (const Command& command : commands) {
    for (const OptionRow& row : options_of(command)) text += option_line(command.name, row);
    std::size_t position = 0;
    for (const OptionRow& row : arguments_of(command)) {
      const Offer offer = offer_of(row);
      const std::string place = is_repeated(row) ? "" : fmt::format("; and __lockstep_before {}", position);
      ++position;
      if (!offer.nothing())
        text += fmt::format("complete -c lockstep -n '__lockstep_command {}{}' {}\n", command.name, place,
                            offer.files ? "-F" : value_text(offer));
    }
  }
  return text;
}

}  // namespace lockstep::cli
