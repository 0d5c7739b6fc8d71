// SPDX-License-Identifier: Apache-2.0
#include "src/cli/man.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/utf8.h"

namespace lockstep::cli {

namespace {

/// The code of the character of `length` bytes that `text` begins with.
unsigned code_point(std::string_view text, std::size_t length) {
  unsigned code = static_cast<unsigned char>(text[0]) & (length == 1 ? 0x7FU : 0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3FU);
  return code;
}

/// As text of a page, all ASCII: what roff would take for its own is escaped, `code` is bold.
std::string roff(const std::string& text) {
  std::string result;
  bool bold = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = std::max<std::size_t>(utf8_length(std::string_view(text).substr(at)), 1);
    if (length > 1) {
      result += fmt::format("\\[u{:04X}]", code_point(std::string_view(text).substr(at), length));
    } else if (text[at] == '`') {
      bold = !bold;
      result += bold ? "\\fB" : "\\fR";
    } else if (text[at] == '\n') {
      const bool paragraph = text.compare(at, 2, "\n\n") == 0;
      result += paragraph ? "\n.PP\n" : "\n";
      if (paragraph) ++at;
    } else if (text[at] == '\\') {
      result += "\\e";
    } else if (text[at] == '-') {
      result += "\\-";
    } else if (text[at] == '\'') {
      result += "\\(aq";
    } else if (text[at] == '^') {
      result += "\\(ha";
    } else if (text[at] == '~') {
      result += "\\(ti";
    } else {
      result += text[at];
    }
    at += length;
  }
  return result.starts_with('.') ? "\\&" + result : result;
}

std::string head(const std::string& title, const std::string& name, const std::string& summary) {
  std::string upper = title;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  // Without a date: the same sources give the same page.
  return fmt::format(".TH {} 1 \"\" \"lockstep {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n", roff(upper),
                     LOCKSTEP_VERSION, roff(name), roff(summary));
}

std::string rows_text(const std::vector<OptionRow>& options, bool arguments) {
  std::string text;
  for (const OptionRow& row : options) {
    if (row.is_argument() != arguments) continue;
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(flags_text(row)), roff(help_text(row)));
  }
  return text;
}

std::string exit_statuses() {
  std::string text = ".SH EXIT STATUS\n";
  for (const auto& [status, meaning] : exit_status_meanings())
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", status, roff(meaning));
  return text + ".PP\nWith several files the largest of 0 to 3.\n";
}

}  // namespace

std::string man_page(const Command& command) {
  std::string summary = command.summary;
  if (summary.ends_with('.')) summary.pop_back();
  std::string text = head("lockstep-" + command.name, "lockstep-" + command.name, summary);
  text += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR\n.SH DESCRIPTION\n{}\n", roff(usage(command)), roff(command.text));
  const std::string arguments = rows_text(command.options, true);
  if (!arguments.empty()) text += ".SH ARGUMENTS\n" + arguments;
  text += ".SH OPTIONS\n" + rows_text(command.options, false) + ".TP\n\\fB\\-h, \\-\\-help\\fR\nThis help.\n";
  text += ".SH EXAMPLES\n";
  for (const Example& example : command.examples)
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(example.line), roff(example.meaning));
  return text + exit_statuses() + ".SH SEE ALSO\n\\fBlockstep\\fR(1)\n";
}

std::string man_page(const std::vector<Command>& commands) {
  std::string text = head("lockstep", "lockstep", "exact checker of gradient synchronization in distributed training");
  text +=
      ".SH SYNOPSIS\n\\fBlockstep\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]\n.SH DESCRIPTION\n"
      "Does every rank end up with the gradient that one device would have computed? lockstep replays the schedule "
      "that "
      "a scenario file describes, and answers exactly. \\fBlockstep init\\fR writes a first scenario.\n.SH COMMANDS\n";
  for (const Command& command : commands)
    text += fmt::format(".TP\n\\fBlockstep\\-{}\\fR(1)\n{}\n", command.name, roff(command.summary));
  text += exit_statuses();
  text += ".SH ENVIRONMENT\n";
  for (const auto& [name, meaning] :
       {std::pair("NO_COLOR", "If set and not empty, text is not coloured."),
        std::pair("CLICOLOR_FORCE, FORCE_COLOR",
                  "If set and neither empty nor 0, text is coloured in files and pipes too."),
        std::pair("LOCKSTEP_TARGET", "The instruction set of the loops over elements; lockstep version lists them.")})
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", name, roff(meaning));
  text += ".SH SEE ALSO\n";
  for (const Command& command : commands)
    text += fmt::format("\\fBlockstep\\-{}\\fR(1){}\n", command.name, &command == &commands.back() ? "" : ",");
  return text;
}

}  // namespace lockstep::cli
