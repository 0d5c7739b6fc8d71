// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "src/base/at.h"
#include "src/base/counted.h"
#include "src/diagnosis/agreement.h"
#include "src/diagnosis/engine_details.h"

namespace lockstep::diagnosis {

namespace {

using Key = std::tuple<int, int, int>;  // source rank, micro-batch, site and use
using Coefficients = std::map<Key, Rational>;

Key source_key_of(const Term& term) { return {term.rank, term.micro_batch, term.site_use}; }

/// Nothing where something stands among the terms that is no contribution to the same element.
std::optional<Coefficients> coefficients_of(const std::vector<Term>& terms, const std::vector<Term>& unseen) {
  Coefficients result;
  for (const Term& term : terms) {
    if (term.foreign || !term.leftover.empty()) return std::nullopt;
    const bool hidden = std::any_of(unseen.begin(), unseen.end(),
                                    [&](const Term& other) { return source_key_of(other) == source_key_of(term); });
    if (!hidden) result[source_key_of(term)] += term.coefficient;
  }
  return result;
}

bool overlap(const Interval& a, const Interval& b) { return a.begin < b.end && b.begin < a.end; }

bool any_overlap(const Intervals& list, const Interval& interval) {
  return std::any_of(list.begin(), list.end(), [&](const Interval& one) { return overlap(one, interval); });
}

class Comparison {
 public:
  Comparison(const CheckResult& result, const SymbolicDetail& symbolic)
      : model_(result.scenario->schedule->model), engine_(*symbolic.engine), symbolic_(symbolic.found) {}

  std::string difference(const TransformerResult& found) const {
    if (found.failure)
      return fmt::format("nothing in the model was edited, and the transformer's ranks do not find together: {}",
                         found.failure->what);
    if (found.step < symbolic_.step)
      return fmt::format("transformer finds wrong values after optimizer step {}, symbolic none before step {}",
                         found.step, symbolic_.step);
    if (found.step > symbolic_.step) return must_be_seen_before(found) ? passed(found) : "";
    if (found.buffers.size() != symbolic_.buffers.size())
      return fmt::format("symbolic compared {}, transformer {}", counted(symbolic_.buffers.size(), "buffer"),
                         found.buffers.size());
    for (std::size_t i = 0; i < found.buffers.size(); ++i) {
      std::string sentence = compare(symbolic_.buffers[i], found.buffers[i]);
      if (!sentence.empty()) return sentence;
    }
    return "";
  }

 private:
  /// Whether something that is wrong for the symbolic engine stands out in a step that the transformer passed.
  bool must_be_seen_before(const TransformerResult& found) const {
    const std::vector<Intervals>& clear = found.clear_before.at(static_cast<std::size_t>(symbolic_.step));
    for (std::size_t i = 0; i < clear.size() && i < symbolic_.buffers.size(); ++i) {
      const std::vector<PieceResult>& pieces = symbolic_.buffers[i].pieces;
      if (std::any_of(pieces.begin(), pieces.end(), [&](const PieceResult& piece) {
            return !piece.right_unclipped && any_overlap(clear[i], piece.elements);
          }))
        return true;
    }
    return false;
  }

  std::string passed(const TransformerResult& found) const {
    return fmt::format("symbolic finds wrong values after optimizer step {}, transformer none before step {}",
                       symbolic_.step, found.step);
  }

  std::string name(const TransformerBuffer& buffer) const {
    const LocalBuffer& local = model_.local(buffer.rank).buffers[at(buffer.buffer)];
    return fmt::format("{} on rank {}", model_.parameters()[at(local.parameters.front())].name, buffer.rank);
  }

  std::string compare(const BufferResult& exact, const TransformerBuffer& found) const {
    const bool right = std::all_of(exact.pieces.begin(), exact.pieces.end(),
                                   [](const PieceResult& piece) { return piece.right_unclipped; });
    const bool visible = std::any_of(exact.pieces.begin(), exact.pieces.end(), [&](const PieceResult& piece) {
      return !piece.right_unclipped && any_overlap(found.clear, piece.elements);
    });
    if (right != found.right && (right || visible))
      return fmt::format("{} is {} for symbolic and {} for transformer", name(found), right ? "right" : "wrong",
                         found.right ? "right" : "wrong");
    for (const TransformerPiece& piece : found.pieces) {
      for (const PieceResult& stretch : exact.pieces) {
        if (!overlap(stretch.elements, piece.elements)) continue;
        std::string sentence = compare(found, piece, stretch);
        if (!sentence.empty()) return sentence;
      }
    }
    return "";
  }

  std::string compare(const TransformerBuffer& found, const TransformerPiece& piece, const PieceResult& stretch) const {
    if (!piece.terms) return "";
    const auto measured = coefficients_of(*piece.terms, piece.unseen);
    const auto exact = coefficients_of(engine_.terms(stretch.form, found.rank, found.buffer), piece.unseen);
    // What is foreign or left over may be zero here, and cannot be told from nothing.
    if (!exact || measured == exact) return "";
    const auto print = [](const std::optional<Coefficients>& coefficients) {
      if (!coefficients) return std::string("what is no contribution to it");
      std::string text;
      for (const auto& [key, value] : *coefficients)
        text += fmt::format("{}{} g{}.{}", text.empty() ? "" : " + ", value.to_string(), std::get<0>(key),
                            std::get<1>(key));
      return text.empty() ? std::string("0") : text;
    };
    return fmt::format("elements [{}, {}) of {} hold {} for symbolic and {} for transformer",
                       std::max(piece.elements.begin, stretch.elements.begin),
                       std::min(piece.elements.end, stretch.elements.end), name(found), print(exact), print(measured));
  }

  const Model& model_;
  const SymbolicEngine& engine_;
  const SymbolicResult& symbolic_;
};

/// Whether the gradients of the scenario's model lie as the scenario claims. The symbolic engine takes its word for it.
bool placements_hold(const Scenario& scenario, std::uint64_t seed) {
  TransformerOptions options;
  options.seed = seed;
  try {
    return observe_placements(scenario, options).agrees();
  } catch (const InputError&) {
    return true;  // ranks that do not find together: that is what is to be told
  }
}

}  // namespace

std::string compare_with_transformer(const CheckResult& result, const EngineResult& above, const EngineResult& own,
                                     const CheckOptions& options) {
  const auto* symbolic = detail_of<SymbolicDetail>(above);
  const std::optional<Preset>& preset = result.scenario->preset;
  if (symbolic == nullptr || (preset && !preset->edits.empty())) return "";
  std::string difference = Comparison(result, *symbolic).difference(detail_of<TransformerDetail>(own)->found);
  return difference.empty() || placements_hold(*result.scenario, options.seed) ? difference : "";
}

}  // namespace lockstep::diagnosis
