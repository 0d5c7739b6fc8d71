// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/diagnostic.h"

namespace lockstep::importers {

/// A word of a command line.
struct Word {
  std::string text;
  Place place;
  std::string unresolved;  ///< what keeps the text from being known, a sentence; "" where it is known
  /// One sentence for each `unknown_text` in the text, where a part of it is not known.
  std::vector<std::string> reasons = {};
  /// Variables that are not set and whose default in the script stands in the text: "TP" of ${TP:-2}.
  std::set<std::string> defaults = {};
};

/// Stands in a word for what is not known.
constexpr char unknown_text = '\x01';
Word unknown_word(const Place& place, const std::string& reason);

/// A word split at its spaces. Each part knows its own place where the word stands in the source as it is; the first
/// has the defaults of all.
std::vector<Word> split_word(const Word& word);

/// The words as a source whose lines and columns are those of the command line; their places are in it.
std::vector<Word> words_of_arguments(const std::vector<std::string>& arguments);

}  // namespace lockstep::importers
