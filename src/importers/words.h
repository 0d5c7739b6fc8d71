// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/diagnostic.h"

namespace lockstep {

/// A word of a command line.
struct Word {
  std::string text;
  Place place;
  std::string unresolved;  ///< what keeps the text from being known, a sentence; "" where it is known
};

/// The words as a source whose lines and columns are those of the command line; their places are in it.
std::vector<Word> words_of_arguments(const std::vector<std::string>& arguments);

}  // namespace lockstep
