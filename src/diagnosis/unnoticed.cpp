// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/unnoticed.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "lockstep/rational.h"
#include "lockstep/scenario.h"
#include "lockstep/symbolic.h"
#include "src/base/at.h"
#include "src/diagnosis/other_tests.h"

namespace lockstep::diagnosis {

namespace {

/// Marks logical parameters that have a wrong gradient; a norm may count others wrongly.
std::vector<char> wrong_logicals(const Model& model, const SymbolicResult& symbolic) {
  std::vector<char> wrong(model.logicals().size());
  for (const BufferResult& buffer : symbolic.buffers) {
    char& one = wrong[at(model.original(model.local(buffer.rank).buffers[at(buffer.buffer)].logical))];
    for (const PieceResult& piece : buffer.pieces) one |= static_cast<char>(!piece.right);
  }
  return wrong;
}

/// Whether ranks hand over a wrong gradient of every element that they own of the marked parameters.
bool wrong_everywhere(const CheckResult& result, const SymbolicResult& symbolic, const std::vector<char>& wrong) {
  if (result.timeline == nullptr || at(result.step) >= result.timeline->owned.size()) return false;
  const Model& model = result.scenario->schedule->model;
  const auto is_marked = [&](int rank, std::size_t buffer) {
    return wrong[at(model.original(model.local(rank).buffers[buffer].logical))] != 0;
  };
  std::int64_t owned = 0, found = 0;
  const auto& ranks = result.timeline->owned[at(result.step)];
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::size_t buffer = 0; buffer < ranks[rank].size(); ++buffer) {
      if (!is_marked(static_cast<int>(rank), buffer)) continue;
      for (const Interval& one : ranks[rank][buffer]) owned += one.size();
    }
  }
  for (const BufferResult& buffer : symbolic.buffers) {
    for (const PieceResult& piece : buffer.pieces) found += piece.right ? 0 : piece.elements.size();
  }
  return found == owned;
}

/// got/expected of the norm of all gradients, were all elements of one size and the marked ones `ratio` times too
/// large.
double norm_ratio(const Model& model, const std::vector<char>& wrong, const Rational& exact) {
  const auto number = [](const auto& whole) { return static_cast<double>(whole.to_int64().value_or(1)); };
  const double ratio = number(exact.numerator()) / number(exact.denominator());
  double got = 0, expected = 0;
  for (std::size_t logical = 0; logical < wrong.size(); ++logical) {
    if (!model.is_trained_tensor(static_cast<int>(logical))) continue;
    const auto elements = static_cast<double>(model.logicals()[logical].numel);
    expected += elements;
    got += elements * (wrong[logical] != 0 ? ratio * ratio : 1);
  }
  return std::sqrt(got / expected);
}

std::string replicas_sentence(const CheckResult& result) {
  switch (compare_replicas(result)) {
    case Replicas::agree:
      return "All replicas agree: a comparison of ranks with each other shows nothing.";
    case Replicas::alone:
      return "Every wrong element has one owner: there are no replicas to compare.";
    case Replicas::differ:
      return "";
  }
  return "";
}

}  // namespace

std::vector<std::string> who_would_not_notice(const CheckResult& result) {
  std::vector<std::string> sentences;
  const SymbolicResult* symbolic = symbolic_of(result);
  if (symbolic == nullptr || result.verdict != Verdict::mismatch) return sentences;
  const Model& model = result.scenario->schedule->model;
  const std::vector<char> wrong = wrong_logicals(model, *symbolic);
  bool all = true;
  for (std::size_t logical = 0; logical < wrong.size(); ++logical)
    all = all && (wrong[logical] != 0 || !model.is_trained_tensor(static_cast<int>(logical)));
  if (!wrong_in_norm_alone(result)) sentences.push_back(replicas_sentence(result));
  if (sentences.size() == 1 && sentences.front().empty()) sentences.clear();
  const std::optional<Rational> ratio = overall_ratio(result);
  if (ratio && !ratio->is_one() && !ratio->is_zero()) {
    const std::string factor = ratio->to_string();
    const bool counts_right = symbolic->norm.empty();  // of the norm
    const bool everywhere = wrong_everywhere(result, *symbolic, wrong);
    all = all && everywhere;
    std::string sentence = all ? fmt::format("Every gradient is {} times the right one", factor)
                               : fmt::format("What is wrong is {} times the right gradient", factor);
    if (counts_right && everywhere && *ratio > 0) {
      sentence +=
          all ? std::string(", and so is the gradient norm")
              : fmt::format("; the gradient norm is {:.3g} times the right one if all elements have the same size",
                            norm_ratio(model, wrong, *ratio));
    }
    sentences.push_back(sentence + ".");
    // Of a factor that is not the same in each step, or turns the sign, Adam notices.
    const bool is_constant = result.scenario->schedule->batch.steps() == 1 && *ratio > 0;
    if (is_constant)
      sentences.push_back(
          "Adam does not notice a constant factor: its update does not depend on the size of the gradient.");
    if (all && counts_right && is_constant)
      sentences.push_back(
          "Where clipping acts with the factor and without it, nothing of the factor is left after the clip.");
  }
  if (within_tolerance(result, Rational(8, 100)))
    sentences.push_back("A comparison with one device that accepts 8 % passes.");
  if (symbolic->norm_squared_factor)
    sentences.push_back(
        fmt::format("The square of the gradient norm is {} times the right one.", *symbolic->norm_squared_factor));
  return sentences;
}

}  // namespace lockstep::diagnosis
