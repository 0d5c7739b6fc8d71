// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lockstep/check.h"
#include "lockstep/numeric.h"
#include "lockstep/parametric.h"
#include "lockstep/symbolic.h"
#include "lockstep/transformer.h"
#include "src/base/at.h"

namespace lockstep {

namespace {

bool is_wrong(const BufferResult& buffer) {
  return std::any_of(buffer.pieces.begin(), buffer.pieces.end(), [](const PieceResult& piece) { return !piece.right; });
}

void sort_once(std::vector<int>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

}  // namespace

WrongSet wrong_set(const CheckResult& result) {
  WrongSet wrong;
  if (result.verdict != Verdict::mismatch) return wrong;
  const Model& model = result.scenario->schedule->model;
  const auto add = [&](int rank, int buffer) {
    wrong.ranks.push_back(rank);
    wrong.parameters.push_back(model.local(rank).buffers[at(buffer)].parameters.front());
  };
  if (const SymbolicResult* exact = exact_of(result); exact != nullptr) {
    for (const BufferResult& buffer : exact->buffers) {
      if (is_wrong(buffer)) add(buffer.rank, buffer.buffer);
    }
    for (const UnownedResult& unowned : exact->unowned) add(unowned.rank, unowned.buffer);
    for (const NormResult& norm : exact->norm) {
      wrong.ranks.push_back(norm.rank);
      wrong.parameters.push_back(norm.parameter);
    }
    if (const ParametricSample* sample = sample_of(result); sample != nullptr) {
      for (const auto& [parameter, other] : sample->like) wrong.parameters.push_back(parameter);
      for (const auto& [parameter, why] : sample->not_shown) wrong.parameters.push_back(parameter);
    }
  } else if (const HostResult* numbers = numbers_of(result); numbers != nullptr) {
    for (const HostBuffer& buffer : numbers->buffers) {
      if (!buffer.right) add(buffer.rank, buffer.buffer);
    }
  }
  if (const TransformerResult* transformer = transformer_of(result); transformer != nullptr) {
    for (const TransformerBuffer& buffer : transformer->buffers) {
      if (!buffer.right) add(buffer.rank, buffer.buffer);
    }
  }
  sort_once(wrong.ranks);
  sort_once(wrong.parameters);
  return wrong;
}

}  // namespace lockstep
