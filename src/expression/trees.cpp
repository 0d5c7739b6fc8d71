// SPDX-License-Identifier: Apache-2.0
//
// Trees whose parts are shared: a name of "let" that stands for names which stand for names has as many places as two
// to the power of its length, and no more nodes than the file has operators.
#include <functional>
#include <unordered_set>

#include "src/expression/node.h"

namespace lockstep::expression {
namespace {

int order(std::size_t a, std::size_t b) { return a < b ? -1 : a > b ? 1 : 0; }

int order(const ExpressionValue& a, const ExpressionValue& b) {
  if (a.index() != b.index()) return order(a.index(), b.index());
  return a == b ? 0 : a < b ? -1 : 1;
}

struct PairHash {
  std::size_t operator()(const std::pair<const Node*, const Node*>& pair) const {
    constexpr std::size_t odd = 0x9E3779B97F4A7C15;
    return std::hash<const Node*>()(pair.first) * odd ^ std::hash<const Node*>()(pair.second);
  }
};

class Comparison {
 public:
  int operator()(const Node& a, const Node& b) {
    if (&a == &b) return 0;
    if (const int found = of_the_nodes(a, b)) return found;
    if (a.children.empty()) return 0;
    const bool is_large = a.places > few_places;
    if (is_large && equal_ == nullptr) equal_ = std::make_unique<Pairs>();
    if (is_large && equal_->count({&a, &b}) > 0) return 0;
    for (std::size_t i = 0; i < a.children.size(); ++i) {
      if (const int found = (*this)(*a.children[i], *b.children[i])) return found;
    }
    if (is_large) equal_->emplace(&a, &b);
    return 0;
  }

 private:
  static int of_the_nodes(const Node& a, const Node& b) {
    using Kind = Node::Kind;
    if (a.places != b.places) return order(a.places, b.places);
    if (a.kind != b.kind) return order(static_cast<std::size_t>(a.kind), static_cast<std::size_t>(b.kind));
    if (a.kind == Kind::value) return order(a.value, b.value);
    if (a.children.size() != b.children.size()) return order(a.children.size(), b.children.size());
    // What has no children and no text of its own may still remember the word that it was written as.
    const bool has_text = a.kind != Kind::rank_axis && a.kind != Kind::micro_batch && a.kind != Kind::step;
    if (const int words = has_text ? a.text.compare(b.text) : 0) return words;
    if (a.axis != b.axis) return a.axis < b.axis ? -1 : 1;
    if (a.axes != b.axes) return a.axes < b.axes ? -1 : 1;
    return order(a.all_micro_batches ? 1 : 0, b.all_micro_batches ? 1 : 0);
  }

  using Pairs = std::unordered_set<std::pair<const Node*, const Node*>, PairHash>;
  std::unique_ptr<Pairs> equal_;  // for few trees one is made
};

}  // namespace

int compare(const Node& a, const Node& b) { return Comparison()(a, b); }

void set_children(Node& node, std::vector<NodePointer> children) {
  node.depth = 1;
  node.places = 1;
  for (const NodePointer& child : children) {
    node.depth = std::max(node.depth, child->depth + 1);
    node.places = std::min(node.places + child->places, most_places);
  }
  node.children = std::move(children);
}

NodePointer value_node(ExpressionValue value) {
  auto node = std::make_shared<Node>();
  node->value = std::move(value);
  return node;
}

NodePointer name_node(std::string name) {
  auto node = std::make_shared<Node>();
  node->kind = Node::Kind::name;
  node->text = std::move(name);
  return node;
}

NodePointer binary_node(const char* sign, NodePointer left, NodePointer right) {
  auto node = std::make_shared<Node>();
  node->kind = Node::Kind::binary;
  node->text = sign;
  set_children(*node, {std::move(left), std::move(right)});
  return node;
}

NodePointer not_node(NodePointer condition) {
  auto node = std::make_shared<Node>();
  node->kind = Node::Kind::logical_not;
  node->text = "not";
  set_children(*node, {std::move(condition)});
  return node;
}

}  // namespace lockstep::expression
