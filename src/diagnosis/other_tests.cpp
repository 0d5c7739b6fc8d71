// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/other_tests.h"

#include <algorithm>
#include <map>

#include "lockstep/scenario.h"
#include "lockstep/symbolic.h"
#include "lockstep/transformer.h"
#include "src/base/at.h"
#include "src/diagnosis/difference.h"

namespace lockstep::diagnosis {

namespace {

/// What owners of the same elements say of the norm.
Replicas compare_norms(const CheckResult& result) {
  struct Owner {
    Interval elements;
    int norm;
  };
  std::map<std::pair<int, int>, std::vector<Owner>> owners;  // by logical and piece
  const Model& model = result.scenario->schedule->model;
  for (const BufferResult& buffer : symbolic_of(result)->buffers) {
    const LocalBuffer& local = model.local(buffer.rank).buffers[at(buffer.buffer)];
    const int norm = symbolic_of(result)->norm_of[at(buffer.rank)];
    for (const Interval& owned : buffer.owned)
      owners[{model.original(local.logical), local.piece}].push_back({owned, norm});
  }
  Replicas found = Replicas::alone;
  for (auto& [key, list] : owners) {
    std::sort(list.begin(), list.end(),
              [](const Owner& a, const Owner& b) { return a.elements.begin < b.elements.begin; });
    const Owner* longest = nullptr;  // so far: whatever meets an earlier one meets this one
    for (const Owner& owner : list) {
      if (longest != nullptr && owner.elements.begin < longest->elements.end) {
        if (owner.norm != longest->norm) return Replicas::differ;
        found = Replicas::agree;
      }
      if (longest == nullptr || owner.elements.end > longest->elements.end) longest = &owner;
    }
  }
  return found;
}

/// The square of got/expected of each rank's norm, were all elements of the gradient of one size; nothing where a count
/// is no number, or the right number of what is not final.
std::optional<std::vector<Rational>> squared_norm_ratios(const CheckResult& result) {
  const Model& model = result.scenario->schedule->model;
  Rational elements(0);
  for (int logical = 0; logical < static_cast<int>(model.logicals().size()); ++logical) {
    if (model.is_trained_tensor(logical)) elements += Rational(model.logicals()[at(logical)].numel);
  }
  std::map<int, Rational> counted;  // by rank
  for (const NormResult& norm : symbolic_of(result)->norm) {
    const std::optional<Rational> times = Rational::parse(norm.counted);
    if (!times || norm.counted == norm.expected) return std::nullopt;
    counted.emplace(norm.rank, elements).first->second += (*times - Rational(1)) * Rational(norm.elements);
  }
  std::vector<Rational> ratios;
  for (const auto& [rank, all] : counted) ratios.push_back(all / elements);
  return ratios;
}

}  // namespace

bool any_value_wrong(const SymbolicResult& symbolic) {
  return std::any_of(symbolic.buffers.begin(), symbolic.buffers.end(), [](const BufferResult& buffer) {
    return std::any_of(buffer.pieces.begin(), buffer.pieces.end(),
                       [](const PieceResult& piece) { return !piece.right; });
  });
}

std::string_view name_of(Replicas replicas) {
  switch (replicas) {
    case Replicas::agree:
      return "agree";
    case Replicas::differ:
      return "differ";
    case Replicas::alone:
      return "nothing to compare";
  }
  return "";
}

bool wrong_in_model_alone(const CheckResult& result) {
  const SymbolicResult* symbolic = symbolic_of(result);
  const TransformerResult* transformer = transformer_of(result);
  return result.verdict == Verdict::mismatch && transformer != nullptr && !transformer->match &&
         !transformer->failure && symbolic != nullptr && symbolic->match;
}

bool wrong_in_norm_alone(const CheckResult& result) {
  const SymbolicResult* symbolic = symbolic_of(result);
  return symbolic != nullptr && !symbolic->norm.empty() && symbolic->unowned.empty() && !any_value_wrong(*symbolic);
}

Replicas compare_replicas(const CheckResult& result) {
  const SymbolicResult& symbolic = *symbolic_of(result);
  const auto any = [](const std::vector<bool>& list, bool value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  if (wrong_in_model_alone(result)) {
    const TransformerResult& transformer = *transformer_of(result);
    if (any(transformer.replicas_agree, false)) return Replicas::differ;
    return any(transformer.replicated, true) ? Replicas::agree : Replicas::alone;
  }
  if (any(symbolic.replicas_agree, false)) return Replicas::differ;
  const Replicas norms = symbolic.norm.empty() ? Replicas::alone : compare_norms(result);
  if (norms == Replicas::differ || !any_value_wrong(symbolic)) return norms;
  return any(symbolic.replicated, true) ? Replicas::agree : norms;
}

bool within_tolerance(const CheckResult& result, const Rational& tolerance) {
  if (wrong_in_model_alone(result)) {
    const double most = static_cast<double>(tolerance.numerator().to_int64().value()) /
                        static_cast<double>(tolerance.denominator().to_int64().value());
    const std::vector<TransformerBuffer>& buffers = transformer_of(result)->buffers;
    return std::all_of(buffers.begin(), buffers.end(),
                       [&](const TransformerBuffer& buffer) { return buffer.relative <= most; });
  }
  if (!symbolic_of(result)->unowned.empty()) return false;
  const Rational low = Rational(1) - tolerance, high = Rational(1) + tolerance;
  for (const Difference& difference : differences(result)) {
    if (difference.leftover || difference.foreign || difference.left_out || difference.missing || difference.clips)
      return false;
    if (*difference.least < low || *difference.most > high) return false;
  }
  const std::optional<std::vector<Rational>> ratios = squared_norm_ratios(result);
  return ratios && std::all_of(ratios->begin(), ratios->end(),
                               [&](const Rational& ratio) { return low * low <= ratio && ratio <= high * high; });
}

}  // namespace lockstep::diagnosis
