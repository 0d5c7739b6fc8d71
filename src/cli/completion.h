// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/cli/command.h"

namespace lockstep::cli {

/// What a shell offers where a value of a row is expected.
struct Offer {
  std::vector<std::string> words;
  bool list = false;                 ///< several of the words, separated by commas
  bool kind_of_file = false;         ///< one of the words, "=", and any file
  bool files = false;                ///< any file
  std::vector<std::string> endings;  ///< files with these endings, "json", and folders
  bool folders = false;

  bool nothing() const { return words.empty() && !files && endings.empty() && !folders; }
};
Offer offer_of(const OptionRow& row);

/// "-f" and "--format".
std::vector<std::string> flags_of(const OptionRow& row);
/// The options, and the arguments in their order.
std::vector<OptionRow> options_of(const Command& command);
std::vector<OptionRow> arguments_of(const Command& command);
/// Whether as many words may stand there as one likes.
bool is_repeated(const OptionRow& row);

/// The first sentence of a text, without its period and without the marks around code.
std::string first_sentence(const std::string& text);

/// The scripts that make a shell complete commands, options and values, from the table of the commands.
std::string bash_completion(const std::vector<Command>& commands);
std::string zsh_completion(const std::vector<Command>& commands);
std::string fish_completion(const std::vector<Command>& commands);

}  // namespace lockstep::cli
