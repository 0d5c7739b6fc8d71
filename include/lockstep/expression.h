// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/diagnostic.h"
#include "lockstep/mesh.h"
#include "lockstep/rational.h"

namespace lockstep {

/// What an expression yields. Numbers and truth values do not mix; strings are only compared.
using ExpressionValue = std::variant<Rational, bool, std::string>;

/// Where expressions get token counts from (batch.h).
class TokenCounts {
 public:
  virtual ~TokenCounts() = default;
  /// Tokens of the piece at these dense coordinates in micro-batch `micro_batch`, counted through
  /// the optimizer steps.
  virtual std::int64_t tokens(const std::string& use, int micro_batch, int dp, int cp, int sp) const = 0;
  virtual int micro_batches(int step) const = 0;
  virtual int first_micro_batch(int step) const = 0;
  virtual int steps() const = 0;

  /// Coordinates first, first + stride, …: `count` of them.
  struct Range {
    int first = 0;
    int count = 1;
    int stride = 1;
  };
  /// Sum of tokens() over all pieces of a box. This one visits each; an override may know better.
  virtual Rational sum(const std::string& use, Range micro_batch, Range dp, Range cp, Range sp) const;
};

/// What the names in an expression mean while it is evaluated.
struct Environment {
  const Mesh* mesh = nullptr;           ///< axis sizes, world and other facts of the layout
  const TokenCounts* counts = nullptr;  ///< micro_batches, steps, tokens, sum(tokens, …)
  /// Options, model sizes, loop variables, `n` of a geometry: looked up first.
  const std::map<std::string, ExpressionValue, std::less<>>* names = nullptr;
  std::optional<int> rank;         ///< rank.AXIS
  std::optional<int> step;         ///< `step`, the optimizer step
  std::optional<int> micro_batch;  ///< inside `each`: counted from 0 in the optimizer step
};

/// A mistake in an expression: `offset` is a byte of its text.
class ExpressionError : public std::runtime_error {
 public:
  ExpressionError(const std::string& message, std::size_t at, std::size_t bytes = 1)
      : std::runtime_error(message), offset(at), length(bytes) {}
  std::size_t offset;
  std::size_t length;
};

/// The same as a mistake of the file that the expression stands in: at its characters, where `place` is a string in
/// quotes, and with `where` in brackets behind it, which says for whom it was evaluated.
InputError mistake_in(const Place& place, const ExpressionError& error, const std::string& where);

/// An expression of the scenario language (scenario-format.md, "Expressions"): exact rationals,
/// + - * /, one comparison, and or not, brackets, lcm min max floor ceil, names, rank.AXIS,
/// tokens, sum(tokens, …). Immutable; copies share. Concurrent evaluation is safe.
class Expression {
 public:
  Expression();  ///< the number 0
  explicit Expression(ExpressionValue constant);
  /// Throws ExpressionError for text that is no expression.
  static Expression parse(std::string_view text);

  /// Throws ExpressionError for an unknown name (with the nearest known one), for operands of the
  /// wrong type, for a name that has no meaning here (`micro_batch` outside `each`), for division
  /// by zero.
  ExpressionValue evaluate(const Environment& environment) const;
  /// evaluate() that must be a number / a truth value: else ExpressionError.
  Rational number(const Environment& environment) const;
  bool truth(const Environment& environment) const;

  /// The value if nothing in it depends on the rank, the micro-batch, the step or token counts.
  std::optional<ExpressionValue> constant(const Environment& environment) const;
  /// The same expression with the names in `names` replaced by their values and constant parts
  /// worked out.
  Expression substitute(const std::map<std::string, ExpressionValue, std::less<>>& names) const;
  /// The same, and names in `expressions` stand for these, which are shared and not worked out again. No name is in
  /// both.
  Expression substitute(const std::map<std::string, ExpressionValue, std::less<>>& names,
                        const std::map<std::string, Expression, std::less<>>& expressions) const;
  /// As text that parse() reads back to the same expression. An expression that shares its parts may be a text without
  /// end: OverBudget where it has millions of characters.
  std::string to_string() const;
  /// As it was parsed; to_string() where it was not.
  std::string text() const;
  bool was_parsed() const { return !parsed_text().empty(); }
  const std::string& parsed_text() const;  ///< "" where it was not

  bool uses_rank() const;         ///< rank.AXIS or tokens stand in it
  bool uses_micro_batch() const;  ///< micro_batch, or tokens of a single micro-batch
  bool uses_step() const;         ///< step, micro_batches or any token count
  /// Plain names that occur (axis sizes and options alike).
  std::set<std::string> names() const;

  /// Whether they are the same expression once their constant parts are worked out: 0.5 * dp and 1/2 * dp are, dp + tp
  /// and tp + dp are not.
  friend bool operator==(const Expression& a, const Expression& b);

  struct Node;
  struct Content;
  /// The expression as a tree, for engines that read it over other values (src/expression/node.h).
  const Node& tree() const;
  const std::shared_ptr<const Node>& root() const;
  /// The expression that such a tree is.
  static Expression of(std::shared_ptr<const Node> tree);

 private:
  explicit Expression(std::shared_ptr<const Content> content) : content_(std::move(content)) {}

  std::shared_ptr<const Content> content_;
};

/// A total order: shorter ones first. Equal ones have the same operations, however they were written.
struct ExpressionOrder {
  bool operator()(const Expression& a, const Expression& b) const;
};
using Expressions = std::set<Expression, ExpressionOrder>;
using TextsOfExpressions = std::map<Expression, std::string, ExpressionOrder>;

}  // namespace lockstep
