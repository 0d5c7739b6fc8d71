// SPDX-License-Identifier: Apache-2.0
//
// Where a number has more digits than an expression may have, evaluating it is an error at these sizes, which no
// polynomial and no range shows.
#include <functional>

#include "src/expression/digits.h"
#include "src/symbolic/parametric/cases.h"
#include "src/symbolic/parametric/evaluator.h"

namespace lockstep::parametric {

void Evaluator::require_few_digits(const Node& root, const EvaluationContext& context) {
  if (expression::is_plainly_short(root)) return;
  const auto range_of_name = [&](const std::string& name) { return range_of(name, context); };
  expression::DigitsOfNodes digits([&](const std::string& name) {
    const std::optional<SizeRange> range = range_of_name(name);
    return range && range->high ? expression::digits_of(range->high->floor()) : expression::digits_of_a_size;
  });
  const auto may_be_long = [&](const Node& node) { return expression::limits_digits(node) && !digits(node).are_few(); };
  if (!expression::any_node(root, may_be_long)) return;
  const auto is_bounded = [&](const Node& node) {
    const auto range = number_in_ranges(node, [&](const std::string& name) {
      std::optional<SizeRange> of_name = range_of_name(name);
      if (of_name && !of_name->high) of_name->high = Rational(largest_size);
      return of_name;
    });
    return digits(node).below == 0 && range && range->low && range->high && !(*range->low < -largest_number()) &&
           !(largest_number() < *range->high);
  };
  const auto is_short = [&](const Node& node) {
    const auto& children = node.children;
    return is_bounded(node) || (node.text == "/" && is_bounded(*children[0]) && is_bounded(*children[1]));
  };
  DependsOnSizes::Conditions open;  // by which it is decided whether somebody asks, and then whether it is too long
  const auto add_where_long = [&](const auto& self, const std::shared_ptr<const Node>& node) -> void {
    constexpr std::size_t most = 16;
    if (open.size() >= most) return;
    // What is below a whole number that is long enough is not asked.
    if (may_be_long(*node) && digits(*node).below == 0) {
      open.push_back(expression::binary_node(">", node, expression::value_node(largest_number())));
      open.push_back(expression::binary_node("<", node, expression::value_node(-largest_number())));
      return;
    }
    for (const auto& child : node->children) self(self, child);
  };
  expression::OncePerNode<bool> once;
  const std::function<bool(const Node&)> look_at = [&](const Node& node) {
    return once(node, [&] {
      if (may_be_long(node) && !is_short(node)) {
        add_where_long(add_where_long, std::make_shared<const Node>(node));
        throw DependsOnSizes(context.step,
                             "\"" + expression::shown(node) + "\" may have more than " +
                                 std::to_string(expression::most_digits) + " binary digits",
                             open);
      }
      for (const auto& child : node.children) {
        look_at(*child);
        if (node.text != "and" && node.text != "or") continue;
        const std::optional<bool> holds = truth(*child, context);
        if (holds == (node.text == "or")) break;
        if (!holds) open.push_back(child);
      }
      return true;
    });
  };
  look_at(root);
}

}  // namespace lockstep::parametric
