// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/expression.h"

namespace lockstep {

/// One operation of an expression. Immutable once it is built; nodes are shared, also inside of one tree, which then
/// has far more places than nodes: whatever walks one looks at each node once (OncePerNode, any_node).
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
  int depth = 1;             ///< of the tree below
  std::uint32_t places = 1;  ///< in the tree below, a shared node's as often as it stands there; at most `most_places`
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

inline constexpr std::uint32_t most_places = 1'000'000'000;
/// A tree of so few places is walked as it stands.
inline constexpr std::uint32_t few_places = 64;
/// No text of what stands for names of "let" is longer, for readers or for who reads it again.
inline constexpr std::size_t longest_text = 10'000;

/// Gives a node its operands, and what follows from them.
void set_children(Node& node, std::vector<NodePointer> children);
NodePointer value_node(ExpressionValue value);
NodePointer name_node(std::string name);
NodePointer binary_node(const char* sign, NodePointer left, NodePointer right);
NodePointer not_node(NodePointer condition);

/// A total order, fewer places first; 0 where both are the same tree, whatever they share.
int compare(const Node& a, const Node& b);

/// What was found out of the nodes of a tree, each of which is asked once.
template <typename Value>
class OncePerNode {
 public:
  template <typename Find>
  Value operator()(const Node& node, const Find& find) {
    if (node.places <= few_places) return find();
    if (known_ == nullptr) known_ = std::make_unique<std::unordered_map<const Node*, Value>>();
    if (const auto known = known_->find(&node); known != known_->end()) return known->second;
    Value value = find();
    known_->emplace(&node, value);
    return value;
  }
  void forget() { known_.reset(); }

 private:
  std::unique_ptr<std::unordered_map<const Node*, Value>> known_;  // for few trees one is made
};

/// Whether it is true of a node of the tree.
template <typename Predicate>
bool any_node(const Node& root, const Predicate& predicate) {
  OncePerNode<bool> once;
  const auto any = [&](const auto& self, const Node& node) -> bool {
    return once(node, [&] {
      return predicate(node) || std::any_of(node.children.begin(), node.children.end(),
                                            [&](const NodePointer& child) { return self(self, *child); });
    });
  };
  return any(any, root);
}

/// Words that are no names.
const std::vector<std::string>& functions();

NodePointer parse(std::string_view text);
ExpressionValue evaluate(const Node& node, const Environment& environment);
/// `node` with all parts worked out whose value does not depend on what `environment` leaves out. `nodes`: what stands
/// for names, and is worked out already; no name of `environment` is among them.
using NodesByName = std::map<std::string, NodePointer, std::less<>>;
NodePointer fold(const NodePointer& node, const Environment& environment, const NodesByName* nodes = nullptr);
/// Throws OverBudget where that has millions of characters.
std::string print(const Node& node);
/// Nothing where it has more than `most` characters.
std::optional<std::string> print(const Node& node, std::size_t most);
/// For messages: a long one ends in "…".
std::string shown(const Node& node);

/// Trees as texts in which parts that stand there several times have names, and are written once.
class SharedText {
 public:
  std::string print(const NodePointer& root);
  /// "shared_1" and what it stands for; each of them names earlier ones alone.
  const std::vector<std::pair<std::string, std::string>>& names() const { return texts_; }

 private:
  std::vector<std::pair<std::string, std::string>> texts_;
  std::unordered_map<const Node*, std::string> names_;
  std::vector<NodePointer> named_;  // a node of the same address would have its name
};
/// "the number 3", "the truth value true", "the string 'x'".
std::string describe(const ExpressionValue& value);

}  // namespace expression
}  // namespace lockstep
