// SPDX-License-Identifier: Apache-2.0
#include "src/importers/words.h"

namespace lockstep {

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

}  // namespace lockstep
