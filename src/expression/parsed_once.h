// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "src/expression/node.h"

namespace lockstep::expression {

/// While it lives, each short text that this thread parses is parsed once: a search and a proof read the same file for
/// many layouts, and the conditions of a framework for each of them. One inside of another does nothing.
class ParsedOnce {
 public:
  ParsedOnce();
  ParsedOnce(const ParsedOnce&) = delete;
  ParsedOnce& operator=(const ParsedOnce&) = delete;
  ~ParsedOnce();

 private:
  bool is_outermost_;
};

/// What parse() makes of a text. Throws ExpressionError.
std::shared_ptr<const Expression::Content> parse_once(std::string_view text);

}  // namespace lockstep::expression
