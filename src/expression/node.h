// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/expression.h"

namespace lockstep {

/// One operation of an expression. Immutable once it is built; nodes are shared.
struct Expression::Node {
  enum class Kind {
    value,      // `value`
    name,       // `text`: an option, an axis size, …
    rank_axis,  // rank.AXIS: `axis`
    micro_batch,
    step,
    end,     // first, last: `text`
    tokens,  // `text`: the use
    sum,     // sum(tokens, …): `text`, `axes`, `all_micro_batches`
    negate,
    logical_not,
    binary,  // `text`: + - * / < <= > >= == != and or
    call,    // `text`: the function
  };
  Kind kind = Kind::value;
  std::size_t offset = 0;  ///< of the operator or word, in the text that was parsed
  std::size_t length = 1;
  int depth = 1;  ///< of the tree below
  ExpressionValue value;
  std::string text;
  Axis axis = Axis::dp;
  std::vector<Axis> axes;
  bool all_micro_batches = false;
  std::vector<std::shared_ptr<const Node>> children;
};

/// What copies of an expression share.
struct Expression::Content {
  std::shared_ptr<const Node> root;
  std::string text;  ///< that was parsed; "" where none was
};

namespace expression {

using Node = Expression::Node;
using NodePointer = std::shared_ptr<const Node>;

inline constexpr int nesting_limit = 200;
/// `1+1+…+1` makes a tree as deep as it is long; everything that walks a tree recurses.
inline constexpr int depth_limit = 1000;

/// Words that are no names.
const std::vector<std::string>& functions();

NodePointer parse(std::string_view text);
ExpressionValue evaluate(const Node& node, const Environment& environment);
/// `node` with all parts worked out whose value does not depend on what `environment` leaves out.
NodePointer fold(const NodePointer& node, const Environment& environment);
std::string print(const Node& node);
/// "the number 3", "the truth value true", "the string 'x'".
std::string describe(const ExpressionValue& value);

}  // namespace expression
}  // namespace lockstep
