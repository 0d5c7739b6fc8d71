// SPDX-License-Identifier: Apache-2.0
#include "src/base/budget.h"
#include "src/base/utf8.h"
#include "src/expression/node.h"

namespace lockstep::expression {
namespace {

/// How strongly an operator binds; what stands inside must bind at least as strongly.
enum Binding { disjunction = 1, conjunction, negation, comparison, sum, product, unary, primary };

Binding binding(const Node& node) {
  switch (node.kind) {
    case Node::Kind::negate:
      return unary;
    case Node::Kind::logical_not:
      return negation;
    case Node::Kind::binary:
      if (node.text == "or") return disjunction;
      if (node.text == "and") return conjunction;
      if (node.text == "+" || node.text == "-") return sum;
      if (node.text == "*" || node.text == "/") return product;
      return comparison;
    case Node::Kind::value:
      if (const auto* number = std::get_if<Rational>(&node.value)) return number->is_integer() ? primary : product;
      return primary;
    default:
      return primary;
  }
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("''") : std::string(1, c);
  return result + "'";
}

std::string value(const ExpressionValue& content) {
  if (const auto* number = std::get_if<Rational>(&content)) return number->to_string();
  if (const auto* truth = std::get_if<bool>(&content)) return *truth ? "true" : "false";
  return quoted(std::get<std::string>(content));
}

std::string tokens(const std::string& use) { return use == "main" ? "tokens" : "tokens." + use; }

using NamesOfNodes = std::unordered_map<const Node*, std::string>;

/// Writes a tree until it has more than `most` characters.
class Printer {
 public:
  /// `names`: what is written for some of the nodes below the first.
  explicit Printer(std::size_t most, const NamesOfNodes* names = nullptr) : most_(most), names_(names) {}

  void print(const Node& node) {
    if (!fits()) return;
    const auto child = [&node](std::size_t i) -> const Node& { return *node.children[i]; };
    switch (node.kind) {
      case Node::Kind::value:
        text_ += value(node.value);
        return;
      case Node::Kind::name:
      case Node::Kind::end:
        text_ += node.text;
        return;
      case Node::Kind::rank_axis:
        text_.append("rank.").append(name_of(node.axis));
        return;
      case Node::Kind::micro_batch:
        text_ += "micro_batch";
        return;
      case Node::Kind::step:
        text_ += "step";
        return;
      case Node::Kind::tokens:
        text_ += tokens(node.text);
        return;
      case Node::Kind::sum:
        text_ += "sum(" + tokens(node.text);
        for (const Axis axis : node.axes) text_.append(", ").append(name_of(axis));
        text_ += node.all_micro_batches ? ", micro_batch)" : ")";
        return;
      case Node::Kind::negate:
        text_ += "-";
        return inside(child(0), unary);
      case Node::Kind::logical_not:
        text_ += "not ";
        return inside(child(0), negation);
      case Node::Kind::binary: {
        const Binding own = binding(node);
        // Operators group to the left; comparisons do not group at all.
        inside(child(0), own == comparison ? sum : own);
        text_.append(" ").append(node.text).append(" ");
        return inside(child(1), static_cast<Binding>(own + 1));
      }
      case Node::Kind::call:
        text_.append(node.text).append("(");
        for (std::size_t i = 0; i < node.children.size(); ++i) {
          if (i > 0) text_ += ", ";
          inside(child(i), disjunction);
        }
        text_ += ")";
        return;
    }
  }

  bool fits() const { return text_.size() <= most_; }
  std::string& text() { return text_; }

 private:
  void inside(const Node& child, Binding at_least) {
    if (names_ != nullptr) {
      if (const auto name = names_->find(&child); name != names_->end()) {
        text_ += name->second;
        return;
      }
    }
    const bool brackets = binding(child) < at_least;
    if (brackets) text_ += "(";
    print(child);
    if (brackets) text_ += ")";
  }

  std::size_t most_;
  const NamesOfNodes* names_;
  std::string text_;
};

/// The nodes that stand several times in a tree, those that others are made of first.
class SharedNodes {
 public:
  explicit SharedNodes(const NodePointer& root) {
    visit(root);
    for (const NodePointer& node : order_) {
      if (node != root && seen_.at(node.get()) > 1) all.push_back(node);
    }
  }
  std::vector<NodePointer> all;

 private:
  void visit(const NodePointer& node) {
    if (node->children.empty() || ++seen_[node.get()] > 1) return;
    for (const NodePointer& child : node->children) visit(child);
    order_.push_back(node);
  }

  std::unordered_map<const Node*, int> seen_;
  std::vector<NodePointer> order_;
};

}  // namespace

std::optional<std::string> print(const Node& node, std::size_t most) {
  Printer printer(most);
  printer.print(node);
  return printer.fits() ? std::optional(std::move(printer.text())) : std::nullopt;
}

std::string print(const Node& node) {
  constexpr std::size_t most = 10'000'000;
  if (auto text = print(node, most)) return *std::move(text);
  throw OverBudget("an expression, written out, has more than 10 million characters");
}

std::string shown(const Node& node) {
  constexpr std::size_t most = 1000;
  Printer printer(most);
  printer.print(node);
  return shortened(printer.text(), most);
}

std::string SharedText::print(const NodePointer& root) {
  constexpr std::size_t any_length = std::string::npos;
  const auto written = [&](const Node& node) {
    Printer printer(any_length, &names_);
    printer.print(node);
    return std::move(printer.text());
  };
  for (const NodePointer& node : SharedNodes(root).all) {
    if (names_.count(node.get()) > 0) continue;
    std::string text = written(*node);
    std::string name = "shared_" + std::to_string(texts_.size() + 1);
    texts_.emplace_back(name, std::move(text));
    names_.emplace(node.get(), std::move(name));
    named_.push_back(node);
  }
  return written(*root);
}

}  // namespace lockstep::expression
