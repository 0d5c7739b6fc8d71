// SPDX-License-Identifier: Apache-2.0
#include "src/scenario/model_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "src/expression/node.h"
#include "src/scenario/template.h"

namespace lockstep::scenario {

namespace {

using Node = Expression::Node;
using Names = std::set<std::string>;

bool is_size_name(const std::string& name) {
  return axis_named(name) || name == "world" || name == "micro_batches" || name == "pipeline_groups_agree" ||
         name == "instance_groups_agree";
}

class ModelSizes {
 public:
  ModelSizes(const OptionValues& sizes, const Json& let, const Json& rules, Reading& reading)
      : reading_(reading), environment_(file_environment(reading)), values_(environment_, ignored_) {
    values_.keep_sizes();
    for (const auto& [name, size] : sizes) values_.define(name, size.value);
    values_.define_all(let);
    values_.apply_rules(rules, [](const auto&) { return Place{}; });
    for (const Json::Member& member : let.members()) {
      if (mentions_size(member.value)) sized_.insert(member.key);
    }
  }

  void walk(const std::vector<Json>& items, const Json& common) {
    for (const Json& item : items) {
      if (item.find("for") != nullptr) {
        loop(item, common);
      } else if (item.find("if") != nullptr) {
        conditional(item, common);
      } else {
        parameter(item, common);
      }
    }
  }

  void finish() {
    reading_.decided_conditions.insert(values_.decided().begin(), values_.decided().end());
    reading_.rules.insert(values_.rules().begin(), values_.rules().end());
  }

 private:
  static std::optional<Expression> parsed(const std::string& text) {
    try {
      return Expression::parse(text);
    } catch (const ExpressionError&) {
      return std::nullopt;
    }
  }

  bool is_sized(const std::string& name) const { return sized_.count(name) > 0 || is_size_name(name); }
  bool is_sized(const Node& node) const {
    return expression::any_node(node,
                                [&](const Node& part) { return part.kind == Node::Kind::name && is_sized(part.text); });
  }
  bool mentions_size(const Json& value) const {
    if (value.is_string()) {
      const auto expression = parsed(value.text());
      return expression && is_sized(expression->tree());
    }
    const auto any = [&](const Json& part) { return mentions_size(part); };
    return std::any_of(value.items().begin(), value.items().end(), any) ||
           std::any_of(value.members().begin(), value.members().end(),
                       [&](const Json::Member& member) { return member.key != "if" && mentions_size(member.value); });
  }

  /// The model was read at the present sizes, and is another one at others.
  void depends(const std::string& what, const Json& text) {
    Names names;
    const auto plain = values_.plain(text);
    for (const std::string& name : plain ? plain->names() : Names()) {
      const auto loop = sizes_of_loop_.find(name);
      if (loop != sizes_of_loop_.end()) names.insert(loop->second.begin(), loop->second.end());
      if (is_size_name(name)) names.insert(name);
    }
    using expression::binary_node, expression::NodePointer, expression::value_node;
    for (const std::string& name : names) {
      const NodePointer size = expression::name_node(name), now = value_node(expression::evaluate(*size, environment_));
      const NodePointer mark = binary_node("!=", value_node(what), value_node(std::string()));
      reading_.decided_conditions.insert(Expression::of(binary_node("and", mark, binary_node("==", size, now))));
    }
  }

  /// A product in which one axis stands once, beside factors that no size changes; the axis.
  std::optional<std::string> axis_of_product(const Node& node) const {
    if (node.kind == Node::Kind::name && axis_named(node.text)) return node.text;
    if (node.kind != Node::Kind::binary || node.text != "*") return std::nullopt;
    for (const std::size_t i : {0U, 1U}) {
      if (!is_sized(*node.children[1 - i])) return axis_of_product(*node.children[i]);
    }
    return std::nullopt;
  }

  /// UNIT * ceil(SIZE / UNIT), where UNIT is a number, or that many times an axis; the axis.
  std::optional<std::string> axis_of_padding(const Node& node) const {
    if (node.kind != Node::Kind::binary || node.text != "*") return std::nullopt;
    for (const std::size_t i : {0U, 1U}) {
      const Node &unit = *node.children[i], &rounded = *node.children[1 - i];
      if (rounded.kind != Node::Kind::call || rounded.text != "ceil") continue;
      const Node& quotient = *rounded.children[0];
      if (quotient.kind != Node::Kind::binary || quotient.text != "/" || is_sized(*quotient.children[0]) ||
          expression::compare(*quotient.children[1], unit) != 0)
        continue;
      if (unit.kind != Node::Kind::call || unit.text != "max" || is_sized(*unit.children[0])) continue;
      return unit.children.size() == 2 ? axis_of_product(*unit.children[1]) : std::nullopt;
    }
    return std::nullopt;
  }

  /// `floor(NUMBER * pp / NUMBER) == NUMBER * pp + STAGE`: the block of a layer, and the stage that a block is dealt
  /// to.
  bool deals_to_stages(const Node& node) const {
    if (node.kind != Node::Kind::binary || node.text != "==") return false;
    const Node &block = *node.children[0], &place = *node.children[1];
    if (block.kind != Node::Kind::call || block.text != "floor") return false;
    const Node& quotient = *block.children[0];
    if (quotient.kind != Node::Kind::binary || quotient.text != "/" || is_sized(*quotient.children[1]) ||
        axis_of_product(*quotient.children[0]) != "pp")
      return false;
    return place.kind == Node::Kind::binary && place.text == "+" && axis_of_product(*place.children[0]) == "pp" &&
           is_stage(*place.children[1]);
  }
  bool is_stage(const Node& node) const { return node.kind == Node::Kind::name && stages_.count(node.text) > 0; }

  bool uses_loop(const Node& node) const {
    return expression::any_node(
        node, [&](const Node& part) { return part.kind == Node::Kind::name && local_.count(part.text) > 0; });
  }

  void condition(const Json& text) {
    const auto written = text.is_string() ? parsed(text.text()) : std::nullopt;
    const auto plain = values_.plain(text);
    if (!written || !plain || !is_sized(plain->tree())) return;
    if (deals_to_stages(plain->tree())) return;
    if (uses_loop(written->tree())) return depends("the condition \"" + text.text() + "\" of the model file", text);
    reading_.decided_conditions.insert(*plain);
  }

  void conditional(const Json& item, const Json& common) {
    condition(*item.find("if"));
    for (const char* branch : {"then", "else"}) {
      if (const Json* chosen = item.find(branch)) walk({*chosen}, common);
    }
  }

  void loop(const Json& item, const Json& outer) {
    const Names sized = sized_, local = local_, stages = stages_, dealt = dealt_;
    const Json* variables = item.find("for");
    for (const Json::Member& variable : variables->members()) {
      local_.insert(variable.key);
      const auto counts = [&](const Json& count) {
        const auto plain = values_.plain(count);
        if (!plain || !is_sized(plain->tree())) return;
        sized_.insert(variable.key);
        Names& names = sizes_of_loop_[variable.key];
        for (const std::string& name : plain->names()) {
          if (is_size_name(name)) names.insert(name);
        }
        const Node& tree = plain->tree();
        const bool quotient = tree.kind == Node::Kind::binary && tree.text == "/" && !is_sized(*tree.children[0]) &&
                              axis_of_product(*tree.children[1]) == "ep";
        if (tree.kind == Node::Kind::name && tree.text == "pp") {
          stages_.insert(variable.key);
        } else if (quotient) {
          dealt_.insert(variable.key);
        } else {
          depends("the loop over \"" + variable.key + "\" of the model file", count);
        }
      };
      each_branch(variable.value, counts);
    }
    if (const Json* let = item.find("let")) {
      for (const Json::Member& member : let->members()) {
        local_.insert(member.key);
        each_branch(member.value, [](const Json&) {});
        if (!mentions_size(member.value)) continue;
        sized_.insert(member.key);
        each_branch(member.value,
                    [&](const Json& text) { depends("\"" + member.key + "\" in a loop of the model file", text); });
      }
    }
    if (const Json* when = item.find("when")) condition(*when);
    Json common = outer;
    if (const Json* own = item.find("common")) {
      for (const Json::Member& member : own->members()) common.set(member.key, member.value);
    }
    if (const Json* inner = item.find("parameters")) walk(inner->items(), common);
    sized_ = sized, local_ = local, stages_ = stages, dealt_ = dealt;
  }

  /// Each text that a value may come to, and on the way the conditions that choose it.
  void each_branch(const Json& value, const std::function<void(const Json&)>& visit) {
    if (value.is_string()) visit(value);
    for (const Json& item : value.items()) each_branch(item, visit);
    if (const Json* chosen_by = value.find("if")) condition(*chosen_by);
    for (const Json::Member& member : value.members()) {
      if (member.key != "if") each_branch(member.value, visit);
    }
  }

  void parameter(const Json& item, const Json& common) {
    Json whole = common;
    for (const Json::Member& member : item.members()) whole.set(member.key, member.value);
    const Json* shard = whole.find("shard");
    for (const Json::Member& member : whole.members()) {
      if (member.key == "when") {
        condition(member.value);
      } else {
        each_branch(member.value, [&](const Json& text) { value(member.key, text, shard); });
      }
    }
  }

  void value(const std::string& key, const Json& text, const Json* shard) {
    const std::string what = "\"" + key + "\" in the model file";
    constexpr std::string_view expressions[] = {"shape", "stage", "chunk", "shard", "micro_batches", "frozen"};
    if (std::count(std::begin(expressions), std::end(expressions), key) == 0) return interpolated(key, what, text);
    const auto plain = values_.plain(text);
    if (!plain || !is_sized(plain->tree())) return;
    const Node& tree = plain->tree();
    if (key == "stage" && is_stage(tree)) return;
    if (key == "shape") {
      auto axis = axis_of_product(tree);
      if (!axis) axis = axis_of_padding(tree);
      if (axis && shard != nullptr && shard->find(*axis) != nullptr) return;
    }
    depends(what, text);
  }

  /// A text with {EXPR}, or one that is a name.
  void interpolated(const std::string& key, const std::string& what, const Json& text) {
    const std::string& from = text.text();
    const auto look_at = [&](const std::string& part) {
      const Json inner = Json::string(part);
      const auto plain = values_.plain(inner);
      if (!plain || !is_sized(plain->tree())) return;
      const bool numbered = plain->tree().kind == Node::Kind::name && dealt_.count(plain->tree().text) > 0;
      if (key != "name" || !numbered) depends(what, inner);
    };
    // "tp" is an axis there, and no size.
    if (sized_.count(from) > 0) look_at(from);
    if (values_.is_defined(from)) values_.plain(text);
    for (std::size_t open = from.find('{'); open != std::string::npos; open = from.find('{', open + 1)) {
      const std::size_t close = from.find('}', open);
      if (close != std::string::npos && parsed(from.substr(open + 1, close - open - 1)))
        look_at(from.substr(open + 1, close - open - 1));
    }
  }

  Reading& reading_;
  Environment environment_;
  Diagnostics ignored_;
  Template values_;
  Names sized_;                                 ///< names that have other values at other sizes
  Names local_;                                 ///< of loops
  Names stages_, dealt_;                        ///< loop variables over pp, and over a rank's experts
  std::map<std::string, Names> sizes_of_loop_;  ///< by variable: which its count depends on
};

}  // namespace

void note_sizes_of_model(const OptionValues& sizes, const Json& let, const Json& rules,
                         const std::vector<Json>& parameters, Reading& reading) {
  ModelSizes walker(sizes, let, rules, reading);
  walker.walk(parameters, Json::object());
  walker.finish();
}

}  // namespace lockstep::scenario
