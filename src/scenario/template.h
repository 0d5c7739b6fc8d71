// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "lockstep/expression.h"
#include "lockstep/json.h"
#include "src/base/budget.h"
#include "src/expression/digits.h"

namespace lockstep::scenario {

/// As a message or a string of a file has it: "3/2", "true", a word without quotes.
std::string text_of(const ExpressionValue& value);

/// The language of framework and model files at the level of JSON values: conditionals, derived
/// names, rules, `{EXPR}` in strings. Mistakes are added at the place in the file.
class Template {
 public:
  Template(Environment environment, Diagnostics& diagnostics);
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;

  /// Gives a name a value: a scalar, or null for "no value", which drops what is exactly that name.
  void define(const std::string& name, const Json& value);
  /// A loop variable.
  void define(const std::string& name, std::int64_t value);
  /// A size of the layout: what is decided by it is kept as a condition on its name where sizes are kept.
  void define_size(const std::string& name, const Json& value);
  void undefine(const std::string& name);
  bool is_defined(const std::string& name) const { return names_.count(name) > 0 || nothing_.count(name) > 0; }
  /// The members of a "let", in order.
  void define_all(const Json& let);

  /// From now on names that "let" derives from sizes of the layout or the batch stand for their expressions in
  /// substitute(): what it gives then holds for other sizes as well.
  void keep_sizes() { keep_sizes_ = true; }
  /// The conditions on sizes that came out one way or the other on the way to what was asked for, as expressions of
  /// nothing but sizes: at sizes where they come out alike the answers are the same.
  const Expressions& decided() const { return decided_; }
  /// Adds one that somebody else decided: `condition` as plain() gives it.
  void note_decided(const Expression& condition);
  /// Adds that the expression, as it stands in the file, has this value: for whom takes the value itself.
  void note_value(const Json& expression, const ExpressionValue& value);

  std::optional<ExpressionValue> evaluate(const Json& value);
  /// evaluate() that must be a condition / a whole number.
  std::optional<bool> condition(const Json& value);
  std::optional<std::int64_t> whole(const Json& value);
  /// `value` without conditionals, and without what is exactly a name without a value; nothing
  /// where that drops it.
  std::optional<Json> resolve(const Json& value);
  /// What a value that is a conditional stands for, which may have others inside; null where that is nothing.
  const Json* chosen(const Json& value);
  /// A string with each `{EXPR}` replaced by its value.
  Json interpolate(const Json& text);
  /// A string that is exactly a defined name as the name's value; else interpolate().
  Json replace(const Json& text);
  /// An expression in which the defined names are replaced and constant parts worked out; as
  /// written where it uses none. Nothing where it is none, or has a mistake, which is added.
  std::optional<Expression> plain(const Json& value);
  /// The same as a value of a file; `value` itself where there is none. Throws OverBudget where its text would be too
  /// long to be read again.
  Json substitute(const Json& value);
  /// Adds `because` at the place that `place_of` gives for the names in the rule, for each rule
  /// that refuses.
  void apply_rules(const Json& rules, const std::function<Place(const std::set<std::string>&)>& place_of);
  /// The conditions of rules that refused, as expressions of nothing but sizes, where these are kept:
  /// at all sizes at which one of them holds the file refuses.
  /// With each what it says, in which names whose values hang on sizes stay in braces.
  const TextsOfExpressions& refusing() const { return refusing_; }
  /// The same of rules that hang on sizes and did not refuse here.
  const TextsOfExpressions& rules() const { return rules_; }

 private:
  using NodePointer = std::shared_ptr<const Expression::Node>;

  const Expression* parse(const Json& value);
  void derive(const std::string& name, const Json& value);
  /// Notes on what the values of the defined names in an expression hang.
  void note_use(const Expression::Node& node);
  void note_use(const std::string& name);
  /// Notes at which sizes a rule refuses.
  void note_rule(const Json& refuse, const std::string& because, TextsOfExpressions& rules);
  /// The text with the values of names in braces that are the same at all sizes.
  std::string without_sizes(const std::string& text) const;
  /// Notes at which sizes what "let" or a rule says has no value, taken or not, where nothing but options rules it out.
  /// `guard`: a condition without which nobody asks, or null.
  void note_faults(const Json& value, const NodePointer& guard = nullptr);
  void note_faults(const NodePointer& node, const NodePointer& guard, bool digits_are_noted = false);
  /// The same of one: that a number is 0, or is not; or that somebody asks at all.
  void note_fault(const Expression& number, const NodePointer& guard, const char* sign = "==");
  void note_fault(const NodePointer& guard);
  void note_coordinates(const Expression::Node& node, const NodePointer& guard);
  bool note_digits(const NodePointer& written, const NodePointer& guard);
  /// At most how many digits there are at any sizes.
  expression::Digits digits_of_name(const std::string& name) const;
  expression::Digits digits_of_value(const Json& value) const;
  unsigned kind_of(const Expression::Node& node) const;
  bool is_of_kind(const Expression::Node& node, unsigned kind) const;
  bool has_operands(const Expression::Node& node) const;
  /// Whether the value is of another kind at other sizes, or nothing.
  bool is_mixed(const Json& value) const;
  unsigned kinds(const Json& value) const;
  /// Whether it is plain that it is larger than 0 at all sizes, and a whole number where that is asked for.
  bool is_positive(const Expression::Node& node, bool whole) const;
  class Positive;
  /// The truth of a condition of nothing but options; none where sizes have a part in it.
  std::optional<bool> known_truth(const Expression::Node& node) const;
  bool uses_names(const Expression& expression) const;
  /// plain() of what was read.
  Expression plain_of(const Expression& written);
  /// With the defined names replaced.
  Expression with_names(const Expression& written) const;
  /// Throws OverBudget where `plain`, which is what is `written` at a place, is deeper than any that is parsed:
  /// whatever walks it goes as deep.
  void require_walkable(const Expression& plain, const Expression& written, const Place& place) const;
  /// What is said of an expression that is too long as a text, or too deep: of the first name in it of which that
  /// `is_so` by itself, if there is one.
  OverBudget out_of_reach(const Expression& written, const Place& place, const std::string& why,
                          const std::function<bool(const Expression&)>& is_so) const;

  Environment environment_;
  Diagnostics& diagnostics_;
  std::map<std::string, ExpressionValue, std::less<>> names_;
  std::set<std::string> nothing_;
  std::set<std::string, std::less<>> sizes_;  // of names_, those of define_size()
  bool keep_sizes_ = false;
  std::map<std::string, Expression, std::less<>> derived_;  // by name: an expression of nothing but sizes
  std::map<std::string, Place, std::less<>> places_;        // of these, where they are written
  Expressions decided_;
  TextsOfExpressions refusing_, rules_;
  std::map<std::string, Expressions, std::less<>> decided_for_;    // by name from "let"
  std::set<std::string, std::less<>> mixed_;                       // of these, by is_mixed()
  std::map<std::string, expression::Digits, std::less<>> digits_;  // of names from "let", at most
  // A loop evaluates the same few expressions thousands of times.
  std::unordered_map<std::string, Expression> parsed_;
};

/// Checks that expressions can use the name that a file defines: letters, digits and underscores,
/// and no word of the language.
bool check_defined_name(const Json::Member& member, Diagnostics& diagnostics);

/// A whole number as a JSON number, any other as a string such as "1/3".
Json json_of(const ExpressionValue& value, const Place& place);

}  // namespace lockstep::scenario
