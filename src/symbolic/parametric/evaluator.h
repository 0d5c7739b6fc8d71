// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/expression.h"
#include "src/expression/node.h"
#include "src/symbolic/parametric/size_ranges.h"
#include "src/symbolic/parametric/world.h"

namespace lockstep::parametric {

/// A name that diagrams do not have yet: they are made again with it.
struct NeedsConstant {
  int level = 0;
  int coordinate = 0;
};
/// What happens in one micro-batch is not what happens in every other: each must be looked at by itself.
struct NeedsUnrolling {
  std::string step;  ///< "" where it is the scenario as a whole
  std::string why;   ///< half a sentence
};
inline constexpr const char* some_micro_batches = "a parameter takes part in some micro-batches alone";

/// Where an expression is evaluated.
struct EvaluationContext {
  std::string step;
  int optimizer_step = 0;
  /// Counted from 0 in the optimizer step; -1 outside `each`.
  int micro_batch = -1;
  bool any_micro_batch = false;  ///< inside `each`, and what holds for it holds for every one
  std::string use = {};          ///< of a contribution whose factor this is: its piece has tokens of this use
};

/// Expressions of the scenario language over polynomials and conditions on the rank.
class Evaluator {
 public:
  Evaluator(World& world, Diagrams& diagrams) : world_(world), diagrams_(diagrams) {}

  /// A number, as a polynomial. Its tokens and coordinates are those of the rank that evaluates it.
  int number(const Expression& expression, const EvaluationContext& context);
  /// A condition on the rank, as a diagram.
  int condition(const Expression& expression, const EvaluationContext& context);
  /// 1 where the rank's coordinate on the axis is this one.
  int at(Axis axis, int coordinate, int name, const std::string& step);
  /// 1 where the rank's coordinates are among these, for each axis.
  template <class Only>
  int among(const std::vector<Only>& list, int name, const std::string& step) {
    int all = 1;
    for (const Only& only : list) {
      int one = 0;
      for (const int coordinate : only.coordinates) one = diagrams_.either(one, at(only.axis, coordinate, name, step));
      all = diagrams_.multiply(all, one);
    }
    return all;
  }
  /// Whether a condition on nothing but sizes holds at all that are open, or at none; nothing where that is not seen.
  std::optional<bool> truth(const Expression::Node& condition, const EvaluationContext& context);
  /// The values of a name of the layout at these sizes, 0 and 1 for what is true or false.
  std::optional<SizeRange> range_of(const std::string& name, const EvaluationContext& context);
  /// The signs that a polynomial has at the sizes that are open.
  Signs signs(int polynomial, const EvaluationContext& context) const;
  /// Name of a coordinate on a level; throws NeedsConstant where it has none.
  int constant_name(int level, int coordinate) const;

 private:
  using Node = Expression::Node;
  struct Value {
    bool truth = false;
    int value = 0;  ///< polynomial, or diagram of a condition
  };
  /// Throws DependsOnSizes where a number on the way may have more digits than it may have.
  void require_few_digits(const Node& root, const EvaluationContext& context);
  Value evaluate(const Node& node, const EvaluationContext& context);
  Value evaluate_anew(const Node& node, const EvaluationContext& context);
  int number(const Node& node, const EvaluationContext& context);
  int condition(const Node& node, const EvaluationContext& context);
  Value named(const Node& node, const EvaluationContext& context);
  Value binary(const Node& node, const EvaluationContext& context);
  int compare_rank(const Node& rank, const Node& other, std::string op, const EvaluationContext& context);
  void require_not_last(const Node& rank, const Node& other, int coordinate, const EvaluationContext& context) const;
  Value logical(const Node& node, const EvaluationContext& context);
  Value compared(const Node& node, const EvaluationContext& context);
  bool compare(const std::string& op, int difference, const EvaluationContext& context, const Node& node);
  int call(const Node& node, const EvaluationContext& context);
  int end(const Node& node, const Node& other, const EvaluationContext& context);
  /// The argument of which all the others are divisors, at every size that is open.
  std::optional<int> multiple_of_all(const std::vector<int>& arguments, const EvaluationContext& context);
  /// The same with quotients and products worked out ("tp * pp" for "world / dp"); null where that speaks of no fewer
  /// sizes and has no fewer calls.
  std::shared_ptr<const Node> simpler_than(const Node& node, const EvaluationContext& context);
  std::shared_ptr<const Node> worked_out(const std::shared_ptr<const Node>& node, const EvaluationContext& context);
  void count_spoken_of(const Node& node, const EvaluationContext& context, std::set<std::string>& names, int& calls);
  /// What tells the sizes apart at which a comparison holds, where its sides depend on `of_sides`.
  DependsOnSizes::Conditions conditions_with(const Node& comparison, DependsOnSizes::Conditions of_sides,
                                             const EvaluationContext& context);

  World& world_;
  Diagrams& diagrams_;
  expression::OncePerNode<Value> known_;  // of the expression that is evaluated
  bool simplifying_ = false;              ///< what fails meanwhile is not worked out again
};

/// Throws OutOfReach where one of these conditions on sizes comes out one way at some of the sizes that are open, and
/// the other way at others.
void require_decided(const Expressions& conditions, World& world);

}  // namespace lockstep::parametric
