// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/cli/completion.h"

namespace lockstep::cli {

namespace {

/// Inside of single quotes, in a specification where [ ] and : have a meaning.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
      result += c;
    }
  }
  return result;
}

/// What follows "MESSAGE:" in a specification.
std::string action(const Offer& offer) {
  std::vector<std::string> words;
  for (const std::string& word : offer.words) words.push_back(escaped(word));
  if (offer.kind_of_file) return fmt::format("_lockstep_kind_of_file {}", fmt::join(words, " "));
  if (offer.list) return fmt::format("_values -s , engine {}", fmt::join(words, " "));
  const std::string endings = fmt::format("_files -g \"*.({})(-.)\"", fmt::join(offer.endings, "|"));
  if (!words.empty() && !offer.endings.empty())
    return fmt::format("_alternative \"words\\:word\\:({})\" \"files\\:file\\:_files\"", fmt::join(words, " "));
  if (!words.empty()) return fmt::format("({})", fmt::join(words, " "));
  if (offer.files) return "_files";
  if (!offer.endings.empty()) return endings;
  return offer.folders ? "_files -/" : " ";
}

std::string option_lines(const OptionRow& row) {
  const std::string help = escaped(first_sentence(row.help));
  const std::vector<std::string> flags = flags_of(row);
  const std::string others = is_repeated(row) ? "*" : fmt::format("({})", fmt::join(flags, " "));
  std::string text;
  for (const std::string& flag : flags) {
    const std::string sign = row.is_flag() ? "" : flag.starts_with("--") ? "=" : "+";
    const std::string value = row.is_flag() ? "" : fmt::format(":{}:{}", escaped(row.value), action(offer_of(row)));
    text += fmt::format("        '{}{}{}[{}]{}' \\\n", others, flag, sign, help, value);
  }
  return text;
}

std::string command_lines(const Command& command) {
  std::string text = fmt::format("    {})\n      _arguments -S \\\n", command.name);
  for (const OptionRow& row : options_of(command)) text += option_lines(row);
  text += "        '(- *)'{-h,--help}'[This help]' \\\n";
  std::size_t position = 0;
  for (const OptionRow& row : arguments_of(command)) {
    const std::string place = is_repeated(row) ? "*" : fmt::format("{}", ++position);
    const std::string name = row.flags.find("FILE") != std::string::npos ? "file" : escaped(row.flags);
    text += fmt::format("        '{}:{}:{}' \\\n", place, name, action(offer_of(row)));
  }
  text.resize(text.size() - 3);  // the last " \"
  return text + "\n      ;;\n";
}

}  // namespace

std::string zsh_completion(const std::vector<Command>& commands) {
  std::string names, cases;
  for (const Command& command : commands) {
    names += fmt::format("    '{}:{}'\n", command.name, escaped(first_sentence(command.summary)));
    cases += command_lines(command);
  }
  return fmt::format(R"ZSH(#compdef lockstep
# Completion of lockstep for zsh; printed by `lockstep completion zsh`.

_lockstep_commands() {{
  local -a commands=(
{}    'help:Help on a command'
  )
  _describe -t commands command commands
}}

# KIND=FILE.
_lockstep_kind_of_file() {{
  if compset -P '*='; then
    _files
  else
    compadd -S = -q -- "$@"
  fi
}}

_lockstep() {{
  local curcontext=$curcontext state line
  typeset -A opt_args
  _arguments -C '(- *)--version[Print the version]' '(- *)'{{-h,--help}}'[Help]' '1: :_lockstep_commands' '*:: :->rest' && return
  [[ $state == rest ]] || return
  case $words[1] in
{}    help) _arguments '1: :_lockstep_commands' ;;
  esac
}}

if [[ $funcstack[1] == _lockstep ]]; then
  _lockstep "$@"
else
  compdef _lockstep lockstep
fi
)ZSH",
                     names, cases);
}

}  // namespace lockstep::cli
