// SPDX-License-Identifier: Apache-2.0
#include "lockstep/expression.h"

#include <algorithm>
#include <utility>

#include "src/expression/node.h"
#include "src/expression/parsed_once.h"
#include "src/expression/values.h"

namespace lockstep {

using expression::Node;
using expression::NodePointer;

namespace {

/// Whether a sum runs over all axes that the tokens are split along.
bool sums_everything(const Node& sum) {
  const auto has = [&](Axis axis) { return std::find(sum.axes.begin(), sum.axes.end(), axis) != sum.axes.end(); };
  return has(Axis::cp) && has(Axis::sp) && (has(Axis::dp) || (has(Axis::dp_shard) && has(Axis::dp_replicate)));
}

}  // namespace

InputError mistake_in(const Place& place, const ExpressionError& error, const std::string& where) {
  Place at = place;
  if (at.source && at.begin < at.source->text.size() && at.source->text[at.begin] == '"') {
    at.begin += 1 + error.offset;
    at.end = at.begin + error.length;
  }
  return InputError({{at, std::string(error.what()) + " (" + where + ")"}});
}

Expression::Expression() : Expression(ExpressionValue(Rational(0))) {}

Expression::Expression(ExpressionValue constant) {
  auto node = std::make_shared<Node>();
  node->value = std::move(constant);
  content_ = std::make_shared<const Content>(Content{std::move(node), ""});
}

Expression Expression::parse(std::string_view text) { return Expression(expression::parse_once(text)); }

ExpressionValue Expression::evaluate(const Environment& environment) const {
  return expression::evaluate(*content_->root, environment);
}

Rational Expression::number(const Environment& environment) const {
  return expression::number_of(evaluate(environment), *content_->root);
}

bool Expression::truth(const Environment& environment) const {
  return expression::truth_of(evaluate(environment), *content_->root);
}

std::optional<ExpressionValue> Expression::constant(const Environment& environment) const {
  Environment anywhere = environment;
  anywhere.rank.reset();
  anywhere.step.reset();
  anywhere.micro_batch.reset();
  const NodePointer folded = expression::fold(content_->root, anywhere);
  if (folded->kind != Node::Kind::value) return std::nullopt;
  return folded->value;
}

Expression Expression::substitute(const std::map<std::string, ExpressionValue, std::less<>>& names) const {
  Environment environment;
  environment.names = &names;
  return Expression(std::make_shared<const Content>(Content{expression::fold(content_->root, environment), ""}));
}

Expression Expression::substitute(const std::map<std::string, ExpressionValue, std::less<>>& names,
                                  const std::map<std::string, Expression, std::less<>>& expressions) const {
  Environment environment;
  environment.names = &names;
  expression::NodesByName nodes;
  for (const auto& [name, expression] : expressions) nodes.emplace(name, expression.root());
  return of(expression::fold(content_->root, environment, &nodes));
}

std::string Expression::text() const { return was_parsed() ? content_->text : to_string(); }

const std::string& Expression::parsed_text() const { return content_->text; }

const Node& Expression::tree() const { return *content_->root; }

const NodePointer& Expression::root() const { return content_->root; }

Expression Expression::of(NodePointer tree) {
  return Expression(std::make_shared<const Content>(Content{std::move(tree), ""}));
}

std::string Expression::to_string() const { return expression::print(*content_->root); }

bool Expression::uses_rank() const {
  return expression::any_node(*content_->root, [](const Node& node) {
    return node.kind == Node::Kind::rank_axis || node.kind == Node::Kind::tokens ||
           (node.kind == Node::Kind::sum && !sums_everything(node));
  });
}

bool Expression::uses_micro_batch() const {
  return expression::any_node(*content_->root, [](const Node& node) {
    return node.kind == Node::Kind::micro_batch || node.kind == Node::Kind::tokens ||
           (node.kind == Node::Kind::sum && !node.all_micro_batches);
  });
}

bool Expression::uses_step() const {
  return expression::any_node(*content_->root, [](const Node& node) {
    return node.kind == Node::Kind::step || node.kind == Node::Kind::tokens || node.kind == Node::Kind::sum ||
           (node.kind == Node::Kind::name && node.text == "micro_batches");
  });
}

bool operator==(const Expression& a, const Expression& b) {
  const NodePointer &one = a.content_->root, &other = b.content_->root;
  const auto same = [](const Node& some, const Node& tree) { return expression::compare(some, tree) == 0; };
  return same(*one, *other) || same(*expression::fold(one, {}), *expression::fold(other, {}));
}

bool ExpressionOrder::operator()(const Expression& a, const Expression& b) const {
  return expression::compare(a.tree(), b.tree()) < 0;
}

std::set<std::string> Expression::names() const {
  std::set<std::string> names;
  expression::any_node(*content_->root, [&](const Node& node) {
    if (node.kind == Node::Kind::name) names.insert(node.text);
    return false;
  });
  return names;
}

}  // namespace lockstep
