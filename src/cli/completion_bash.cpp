// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/cli/completion.h"

namespace lockstep::cli {

namespace {

// What is the same for every command. Works from bash 3.2 on, and needs no bash-completion.
constexpr std::string_view before = R"BASH(# Completion of lockstep for bash; printed by `lockstep completion bash`.

# What is offered: each word of $2, or of standard input, that begins with $1.
_lockstep_words() {
  local word
  for word in $2; do [[ $word != "$1"* ]] || COMPREPLY+=("$word"); done
}

# Files that begin with $1 and have one of the endings behind it, or any without, and folders.
_lockstep_files() {
  local begin=$1 name ending
  shift
  compopt -o filenames 2>/dev/null
  while IFS= read -r name; do
    if [[ -d $name || $# -eq 0 ]]; then COMPREPLY+=("$name"); continue; fi
    for ending in "$@"; do [[ $name != *."$ending" ]] || COMPREPLY+=("$name"); done
  done < <(compgen -f -- "$begin")
}

_lockstep_folders() {
  local name
  compopt -o filenames 2>/dev/null
  while IFS= read -r name; do COMPREPLY+=("$name"); done < <(compgen -d -- "$1")
}

# One more word of $2 in a list with commas.
_lockstep_list() {
  local last=${1##*,} word
  compopt -o nospace 2>/dev/null
  for word in $2; do [[ $word != "$last"* ]] || COMPREPLY+=("${1%"$last"}$word"); done
}

# KIND=FILE.
_lockstep_kind_of_file() {
  local at
  if [[ $1 == *=* ]]; then
    _lockstep_files "${1#*=}"
    for at in "${!COMPREPLY[@]}"; do COMPREPLY[at]=${1%%=*}=${COMPREPLY[at]}; done
  else
    compopt -o nospace 2>/dev/null
    _lockstep_words "$1" "$2"
    for at in "${!COMPREPLY[@]}"; do COMPREPLY[at]+="="; done
  fi
}

)BASH";

constexpr std::string_view after = R"BASH(
_lockstep() {
  # Readline breaks words at = and :, where the program does not.
  local words=() word glued='' i
  for ((i = 1; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ ${#words[@]} -gt 0 && ( $glued || $word == [=:] ) ]]; then
      words[${#words[@]} - 1]=${words[${#words[@]} - 1]}$word
    else
      words+=("$word")
    fi
    glued=
    [[ $word != [=:] ]] || glued=1
  done
  local count=${#words[@]} command=${words[0]} current=${words[${#words[@]} - 1]} head='' at
  COMPREPLY=()
  if [[ $count -eq 1 ]]; then
    _lockstep_words "$current" "$(_lockstep_commands) help --help --version"
  elif [[ $count -eq 2 && $command == help ]]; then
    _lockstep_words "$current" "$(_lockstep_commands)"
  elif [[ $current == --*=* ]]; then
    head=${current%%=*}=
    _lockstep_value "$command" "${current%%=*}" "${current#*=}"
    for at in "${!COMPREPLY[@]}"; do COMPREPLY[at]=$head${COMPREPLY[at]}; done
  elif _lockstep_value "$command" "${words[count - 2]}" "$current"; then
    :
  elif [[ $current == -* ]]; then
    _lockstep_words "$current" "$(_lockstep_options "$command")"
  else
    # How many arguments stand before this one.
    local arguments=0
    for ((i = 1; i < count - 1; ++i)); do
      if [[ ${words[i]} == -?* ]]; then
        ! _lockstep_value "$command" "${words[i]}" "" || ((++i))
      else
        ((++arguments))
      fi
    done
    COMPREPLY=()
    _lockstep_argument "$command" "$arguments" "$current"
  fi
  # What stands in front of the last break is on the line already.
  head=$current
  while [[ -n $head && ( ${head: -1} != [=:] || $COMP_WORDBREAKS != *"${head: -1}"* ) ]]; do head=${head%?}; done
  for at in "${!COMPREPLY[@]}"; do COMPREPLY[at]=${COMPREPLY[at]#"$head"}; done
}

complete -F _lockstep lockstep
)BASH";

std::string offer_text(const Offer& offer, std::string_view value) {
  const std::string words = fmt::format("\"{}\"", fmt::join(offer.words, " "));
  if (offer.kind_of_file) return fmt::format("_lockstep_kind_of_file {} {}", value, words);
  if (offer.list) return fmt::format("_lockstep_list {} {}", value, words);
  std::string text;
  const auto add = [&](const std::string& call) { text += (text.empty() ? "" : "; ") + call; };
  if (!offer.words.empty()) add(fmt::format("_lockstep_words {} {}", value, words));
  if (offer.files) add(fmt::format("_lockstep_files {}", value));
  if (!offer.endings.empty()) add(fmt::format("_lockstep_files {} {}", value, fmt::join(offer.endings, " ")));
  if (offer.folders) add(fmt::format("_lockstep_folders {}", value));
  return text.empty() ? ":" : text;
}

}  // namespace

std::string bash_completion(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  std::string options, values, arguments;
  for (const Command& command : commands) {
    names.push_back(command.name);
    std::vector<std::string> flags;
    for (const OptionRow& row : options_of(command)) {
      std::vector<std::string> cases;
      for (const std::string& flag : flags_of(row)) {
        flags.push_back(flag);
        cases.push_back(fmt::format("\"{} {}\"", command.name, flag));
      }
      if (!row.is_flag())
        values += fmt::format("    {}) {} ;;\n", fmt::join(cases, " | "), offer_text(offer_of(row), "\"$3\""));
    }
    options += fmt::format("    {}) echo {} -h --help ;;\n", command.name, fmt::join(flags, " "));
    std::size_t position = 0;
    for (const OptionRow& row : arguments_of(command)) {
      const std::string place = is_repeated(row) ? "*" : fmt::format("{}", position);
      arguments += fmt::format("    \"{} \"{}) {} ;;\n", command.name, place, offer_text(offer_of(row), "\"$3\""));
      ++position;
    }
  }
  return fmt::format(
      "{}_lockstep_commands() {{ echo {}; }}\n\n_lockstep_options() {{\n  case $1 in\n{}  esac\n}}\n\n"
      "# The value $3 of the option $2 of the command $1. Fails where it takes none.\n"
      "_lockstep_value() {{\n  case \"$1 $2\" in\n{}    *) return 1 ;;\n  esac\n}}\n\n"
      "# The argument $3 of the command $1, with $2 others before it.\n"
      "_lockstep_argument() {{\n  case \"$1 $2\" in\n{}  esac\n}}\n{}",
      before, fmt::join(names, " "), options, values, arguments, after);
}

}  // namespace lockstep::cli
