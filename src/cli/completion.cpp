// SPDX-License-Identifier: Apache-2.0
#include "src/cli/completion.h"

#include <algorithm>
#include <iterator>

namespace lockstep::cli {

Offer offer_of(const OptionRow& row) {
  Offer offer;
  for (const std::vector<std::string>& words : {row.choices, row.offers}) {
    for (const std::string& word : words) {
      if (word == "*")
        offer.files = true;
      else if (word.starts_with("*."))
        offer.endings.push_back(word.substr(2));
      else
        offer.words.push_back(word);
    }
  }
  offer.list = row.value == "NAMES";
  offer.kind_of_file = row.value == "KIND=FILE";
  offer.folders = row.value == "FOLDER";
  if (row.value == "FILE" || row.value == "NEW") offer.files = true;
  if (row.is_argument() && offer.nothing() && row.flags.find("FILE") != std::string::npos)
    offer.endings = {"json", "jsonc"};
  return offer;
}

std::vector<std::string> flags_of(const OptionRow& row) {
  const std::size_t comma = row.flags.find(',');
  if (comma == std::string::npos) return {row.flags};
  return {row.flags.substr(0, comma), row.flags.substr(comma + 1)};
}

std::vector<OptionRow> options_of(const Command& command) {
  std::vector<OptionRow> rows;
  std::copy_if(command.options.begin(), command.options.end(), std::back_inserter(rows),
               [](const OptionRow& row) { return !row.is_argument(); });
  return rows;
}

std::vector<OptionRow> arguments_of(const Command& command) {
  std::vector<OptionRow> rows;
  std::copy_if(command.options.begin(), command.options.end(), std::back_inserter(rows),
               [](const OptionRow& row) { return row.is_argument(); });
  return rows;
}

bool is_repeated(const OptionRow& row) { return std::holds_alternative<std::vector<std::string>*>(row.target); }

std::string first_sentence(const std::string& text) {
  std::size_t end = std::min(text.find(". "), text.size());
  end = std::min(end, text.find("; "));
  std::string sentence = text.substr(0, end);
  if (sentence.ends_with('.')) sentence.pop_back();
  std::erase(sentence, '`');
  return sentence;
}

}  // namespace lockstep::cli
