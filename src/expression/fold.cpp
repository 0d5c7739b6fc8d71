// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/expression/node.h"
#include "src/expression/values.h"

namespace lockstep::expression {
namespace {

bool is_value(const NodePointer& node) { return node->kind == Node::Kind::value; }

const bool* truth(const NodePointer& node) { return is_value(node) ? std::get_if<bool>(&node->value) : nullptr; }

/// `false and x`, `x and false`: false; `true and x`: x; and so for `or`. Null: neither side decides.
NodePointer decided(const std::string& op, const NodePointer& left, const NodePointer& right) {
  const bool deciding = op == "or";
  for (const auto& [one, other] : {std::pair(left, right), std::pair(right, left)}) {
    if (const bool* known = truth(one)) return *known == deciding ? one : other;
  }
  return nullptr;
}

/// A leaf that the environment plainly has no value for: what evaluation would say, without the message.
bool is_unknown(const Node& node, const Environment& environment) {
  switch (node.kind) {
    case Node::Kind::name:
      return environment.mesh == nullptr && environment.counts == nullptr &&
             (environment.names == nullptr || environment.names->count(node.text) == 0);
    case Node::Kind::rank_axis:
      return environment.mesh == nullptr || (!environment.rank && environment.mesh->size(node.axis) > 1);
    case Node::Kind::micro_batch:
      return !environment.micro_batch;
    case Node::Kind::step:
      return !environment.step && (environment.counts == nullptr || environment.counts->steps() > 1);
    case Node::Kind::tokens:
    case Node::Kind::sum:
      return environment.counts == nullptr || (!node.all_micro_batches && !environment.micro_batch);
    default:
      return false;
  }
}

class Folding {
 public:
  Folding(const Environment& environment, const NodesByName* nodes) : environment_(environment), nodes_(nodes) {}

  NodePointer operator()(const NodePointer& node) {
    if (nodes_ != nullptr && node->kind == Node::Kind::name) {
      if (const auto found = nodes_->find(node->text); found != nodes_->end()) return found->second;
    }
    if (is_value(node) || node->kind == Node::Kind::end || is_unknown(*node, environment_)) return node;
    return once_(*node, [&] { return anew(node); });
  }

 private:
  NodePointer anew(const NodePointer& node) {
    std::vector<NodePointer> children;
    children.reserve(node->children.size());
    bool changed = false, all_known = true;
    for (const NodePointer& child : node->children) {
      children.push_back((*this)(child));
      changed = changed || children.back() != child;
      all_known = all_known && (is_value(children.back()) || child->kind == Node::Kind::end);
    }
    if (is_logical(*node)) {
      if (NodePointer side = decided(node->text, children[0], children[1])) return side;
    }
    NodePointer folded = node;
    if (changed) {
      auto copy = std::make_shared<Node>(*node);
      set_children(*copy, std::move(children));
      folded = std::move(copy);
    }
    if (!all_known) return folded;
    // In `rank.pp == last` the left side as written says what `last` is.
    const bool has_end = std::any_of(node->children.begin(), node->children.end(),
                                     [](const NodePointer& child) { return child->kind == Node::Kind::end; });
    try {
      auto value = std::make_shared<Node>();
      value->value = evaluate(has_end ? *node : *folded, environment_);
      value->offset = node->offset;
      value->length = node->length;
      value->text = node->text;
      return value;
    } catch (const ExpressionError&) {
      // Stays as it is: a name from elsewhere, or a mistake that evaluation will report in its place.
      return has_end ? node : folded;
    }
  }

  const Environment& environment_;
  const NodesByName* nodes_;
  OncePerNode<NodePointer> once_;
};

}  // namespace

NodePointer fold(const NodePointer& node, const Environment& environment, const NodesByName* nodes) {
  return Folding(environment, nodes)(node);
}

}  // namespace lockstep::expression
