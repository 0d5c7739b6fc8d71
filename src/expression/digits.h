// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "src/expression/node.h"

namespace lockstep::expression {

/// No number that an expression works out has more binary digits, above or below the line.
inline constexpr int most_digits = 8192;

/// At most how many binary digits a number can have: the ones above and below the line are at most 2 to these powers. A
/// whole number has none below. Where `divisor` is not 0, the number is a whole one by it, which is what `above` bounds
/// then, so that adding up halves does not make quarters of them.
struct Digits {
  std::int64_t above = 0, below = 0, divisor = below == 0 ? 1 : 0;
  bool are_few() const { return above <= most_digits && below <= most_digits; }
};
Digits digits_of(const Rational& number);
Digits most_of(const Digits& a, const Digits& b);

/// How many a name has.
using DigitsOfName = std::function<Digits(const std::string&)>;

/// How many the nodes of a tree have, each of which is asked once.
class DigitsOfNodes {
 public:
  explicit DigitsOfNodes(DigitsOfName of_name) : of_name_(std::move(of_name)) {}
  Digits operator()(const Node& node);

 private:
  Digits anew(const Node& node);

  DigitsOfName of_name_;
  OncePerNode<Digits> once_;
};

/// Whether evaluating the node itself, and not what stands below it, fails where the number has too many digits.
bool limits_digits(const Node& node);
/// Whether it is plain that no number in the tree has too many at any sizes, where names are sizes.
bool is_plainly_short(const Node& root);

/// Of what counts ranks, micro-batches or steps: there are at most 2 to the 20th of each.
inline constexpr Digits digits_of_a_size{20, 0};

}  // namespace lockstep::expression
