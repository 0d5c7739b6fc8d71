// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/diagnostic.h"
#include "src/symbolic/formula_reference.h"

namespace lockstep {
namespace {

using formula::is_digit;
using formula::is_letter;
using formula::Names;
using formula::Reference;
using formula::References;
using formula::Scanner;

constexpr int nesting_limit = 200;

/// A number, or a linear form: `factor` times the sum of `terms` (which may repeat).
struct Value {
  bool is_number = true;
  Rational factor = 1;
  std::vector<Term> terms;
};

class Parser {
 public:
  Parser(Names& names, std::string_view text) : names_(names), scanner_{text, 0}, references_(names, scanner_) {}

  std::vector<Term> whole() {
    Value value = sum();
    if (scanner_.at < scanner_.text.size())
      scanner_.fail("expected an operator or the end of the formula", scanner_.at);
    if (value.is_number && !value.factor.is_zero()) {
      scanner_.fail(
          "a formula is made of gradients, as in \"(g0+g1)/2\", but this is the number " + value.factor.to_string(), 0);
    }
    apply_factor(value);
    formula::sort_terms(value.terms);
    std::vector<Term> merged;
    for (Term& term : value.terms) {
      if (!merged.empty() && same_name(merged.back(), term)) {
        merged.back().coefficient += term.coefficient;
      } else {
        merged.push_back(std::move(term));
      }
    }
    std::erase_if(merged, [](const Term& term) { return term.coefficient.is_zero(); });
    return merged;
  }

 private:
  static bool same_name(const Term& a, const Term& b) {
    const auto key = [](const Term& t) {
      return std::tuple(t.foreign, t.rank, t.micro_batch, t.site_use, std::string_view(t.leftover), t.logical, t.piece,
                        t.offset, t.clips);
    };
    return key(a) == key(b);
  }

  static void apply_factor(Value& value) {
    if (value.is_number || value.factor.is_one()) return;
    for (Term& term : value.terms) term.coefficient *= value.factor;
    value.factor = 1;
  }

  Value sum() {
    Value left = product();
    while (scanner_.peek() == '+' || scanner_.peek() == '-') {
      const std::size_t offset = scanner_.at;
      const bool minus = scanner_.text[scanner_.at++] == '-';
      Value right = product();
      if (minus) right.factor = -right.factor;
      if (left.is_number && right.is_number) {
        left.factor += right.factor;
      } else if (right.is_number || left.is_number) {
        Value& number = left.is_number ? left : right;
        if (!number.factor.is_zero()) {
          scanner_.fail("a number and a gradient cannot be added; multiply the number with a gradient", offset);
        }
        if (left.is_number) left = std::move(right);
      } else {
        apply_factor(left);
        apply_factor(right);
        left.terms.insert(left.terms.end(), std::make_move_iterator(right.terms.begin()),
                          std::make_move_iterator(right.terms.end()));
      }
    }
    return left;
  }

  Value product() {
    Value left = factor();
    while (scanner_.peek() == '*' || scanner_.peek() == '/') {
      const std::size_t offset = scanner_.at;
      const bool divides = scanner_.text[scanner_.at++] == '/';
      Value right = factor();
      if (divides && !right.is_number) scanner_.fail("a formula cannot divide by a gradient", offset);
      if (divides && right.factor.is_zero()) scanner_.fail("division by zero", offset);
      if (!left.is_number && !right.is_number) {
        scanner_.fail("two gradients cannot be multiplied: formulas are linear", offset);
      }
      if (left.is_number && !right.is_number) std::swap(left, right);
      left.factor = divides ? left.factor / right.factor : left.factor * right.factor;
    }
    return left;
  }

  Value factor() {
    const char next = scanner_.peek();
    const std::size_t offset = scanner_.at;
    if (next == '-' || next == '(') {
      if (++nesting_ > nesting_limit) {
        scanner_.fail("the formula is nested deeper than " + std::to_string(nesting_limit) + " levels", offset);
      }
      ++scanner_.at;
      Value value = next == '-' ? factor() : sum();
      if (next == '(') scanner_.expect(')');
      if (next == '-') value.factor = -value.factor;
      --nesting_;
      return value;
    }
    if (is_digit(next)) return {true, scanner_.number(), {}};
    if (is_letter(next) || next == '\'') return name();
    scanner_.fail(next == '\0' ? "expected a gradient such as \"g3\", but the formula ends"
                               : "expected a gradient such as \"g3\"",
                  offset);
  }

  Value name() {
    const std::size_t offset = scanner_.at;
    const bool quoted = scanner_.directly() == '\'';
    const std::string first = scanner_.word();
    if (!quoted && first == "sum" && scanner_.peek() == '(') return sum_over_axes(offset);
    if (!quoted && references_.is_clip(first)) return clipped(references_.clip(offset, first));
    if (!quoted && References::is_gradient(first)) {
      if (first == "g")
        scanner_.fail("a gradient needs its rank, as in \"g3\"; \"g\" by itself stands in \"sum(g, AXES)\" alone",
                      offset);
      const Reference reference = references_.gradient(offset, first);
      const int rank = *reference.rank;
      return {false, 1, references_.expand(reference, rank, references_.frame_of(reference, rank), true)};
    }
    return {false, 1, {references_.leftover(offset, first)}};
  }

  /// What stands in the parenthesis that is next, clipped by `factor`.
  Value clipped(const ClipFactor& factor) {
    const std::size_t offset = scanner_.at;
    if (++nesting_ > nesting_limit) {
      scanner_.fail("the formula is nested deeper than " + std::to_string(nesting_limit) + " levels", offset);
    }
    scanner_.expect('(');
    Value value = sum();
    scanner_.expect(')');
    --nesting_;
    if (value.is_number && !value.factor.is_zero()) scanner_.fail("gradients are clipped, not numbers", offset);
    for (Term& term : value.terms)
      term.clips.insert(std::upper_bound(term.clips.begin(), term.clips.end(), factor), factor);
    return value;
  }

  /// sum(g3.1[NAME], AXES…, micro_batch); the parenthesis is next.
  Value sum_over_axes(std::size_t offset) {
    scanner_.expect('(');
    scanner_.peek();
    const std::size_t begin = scanner_.at;
    const std::string first = scanner_.word();
    if (first.empty() || !References::is_gradient(first))
      scanner_.fail("\"sum\" adds gradients: write \"sum(g, AXES)\" or \"sum(g3, AXES)\"", begin);
    const Reference reference = references_.gradient(begin, first);
    std::vector<Axis> fixed(std::begin(formula::digits), std::end(formula::digits));
    while (scanner_.accept(',')) {
      scanner_.peek();
      const std::size_t axis_begin = scanner_.at;
      const std::string axis_name = scanner_.word();
      if (axis_name == "micro_batch") {
        if (reference.micro_batch) scanner_.fail("the sum names one micro-batch and runs over all of them", axis_begin);
        continue;  // a name without a micro-batch means all of them
      }
      const std::optional<Axis> axis = axis_named(axis_name);
      if (!axis || is_expert_axis(*axis)) {
        static const std::vector<std::string> known = {"tp", "cp",       "sp",           "dp",
                                                       "pp", "dp_shard", "dp_replicate", "micro_batch"};
        const std::string hint = did_you_mean(axis_name, known);
        scanner_.fail(
            fmt::format("a sum runs over tp, cp, sp, dp, pp, dp_shard, dp_replicate and micro_batch; found \"{}\"{}",
                        axis_name, hint),
            axis_begin);
      }
      std::erase(fixed, *axis);
      if (*axis == Axis::dp)
        std::erase_if(fixed, [](Axis a) { return a == Axis::dp_shard || a == Axis::dp_replicate; });
    }
    scanner_.expect(')');
    const Mesh& mesh = names_.schedule().mesh;
    const int base = reference.rank.value_or(names_.rank());
    const formula::Frame frame = references_.frame_of(reference, base);
    const int step = reference.micro_batch ? names_.step_of(*reference.micro_batch) : names_.own_step().value_or(0);
    Value value{false, 1, {}};
    for (const auto& [rank, slots] : names_.support(frame, step)) {
      const auto same = [&, source = rank](Axis axis) {
        return mesh.coordinate(source, axis) == mesh.coordinate(base, axis);
      };
      if (!std::all_of(fixed.begin(), fixed.end(), same)) continue;
      std::vector<Term> terms = references_.expand(reference, rank, frame, false);
      value.terms.insert(value.terms.end(), terms.begin(), terms.end());
    }
    if (value.terms.empty()) scanner_.fail("nothing contributes to this sum", offset);
    return value;
  }

  Names& names_;
  Scanner scanner_;
  References references_;
  int nesting_ = 0;
};

}  // namespace

std::vector<Term> parse_formula(const Schedule& schedule, int rank, int buffer, const std::string& text,
                                const std::vector<Term>& support) {
  Names names(schedule, rank, buffer, support);
  return Parser(names, text).whole();
}

}  // namespace lockstep
