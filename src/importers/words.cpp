// SPDX-License-Identifier: Apache-2.0
#include "src/importers/words.h"

#include <cctype>

namespace lockstep::importers {

Word unknown_word(const Place& place, const std::string& reason) {
  return {std::string(1, unknown_text), place, reason, {reason}};
}

std::vector<Word> split_word(const Word& word) {
  const Place& place = word.place;
  const bool literal = place.source != nullptr && place.end - place.begin == word.text.size() &&
                       place.source->text.compare(place.begin, word.text.size(), word.text) == 0;
  std::vector<Word> parts;
  std::size_t unknown = 0;
  const auto is_space = [&](std::size_t i) { return std::isspace(static_cast<unsigned char>(word.text[i])) != 0; };
  for (std::size_t begin = 0; begin < word.text.size();) {
    if (is_space(begin)) {
      ++begin;
      continue;
    }
    Word& part = parts.emplace_back();
    std::size_t end = begin;
    for (; end < word.text.size() && !is_space(end); ++end) {
      if (word.text[end] != unknown_text) continue;
      part.reasons.push_back(unknown < word.reasons.size() ? word.reasons[unknown] : "a control character stands here");
      ++unknown;
    }
    part.text = word.text.substr(begin, end - begin);
    part.place = place;
    if (parts.size() == 1) part.defaults = word.defaults;
    if (literal) {
      part.place.end = place.begin + end;
      part.place.begin = place.begin + begin;
    }
    if (!part.reasons.empty()) part.unresolved = part.reasons.front();
    begin = end;
  }
  return parts;
}

std::vector<Word> words_of_arguments(const std::vector<std::string>& arguments) {
  auto source = std::make_shared<Source>();
  source->name = "arguments";
  std::vector<Word> words;
  for (const std::string& argument : arguments) {
    if (!source->text.empty()) source->text += ' ';
    const std::size_t begin = source->text.size();
    source->text += argument;
    words.push_back({argument, {source, begin, source->text.size(), ""}, ""});
  }
  return words;
}

}  // namespace lockstep::importers
