// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/expression/node.h"

namespace lockstep::expression {

/// `value` as a number or truth value; ExpressionError at `node`, which yielded it, if it is none.
Rational number_of(const ExpressionValue& value, const Node& node);
bool truth_of(const ExpressionValue& value, const Node& node);

/// Whether it is `and` or `or`.
inline bool is_logical(const Node& node) {
  return node.kind == Node::Kind::binary && (node.text[0] == 'a' || node.text[0] == 'o');
}

/// Applies a binary operator but `and` and `or`, or a function. Throws ExpressionError.
ExpressionValue combine(const Node& node, const ExpressionValue& left, const ExpressionValue& right);
Rational call(const Node& node, const std::vector<Rational>& arguments);

}  // namespace lockstep::expression
