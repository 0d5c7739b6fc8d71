// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/timeline.h"
#include "src/symbolic/contents.h"
#include "src/symbolic/forms.h"

namespace lockstep::symbolic {

/// What a norm counts on which a clipping factor depends.
struct ClipNorm {
  /// Elements of a piece up to where the next run begins, and what is counted there, sorted.
  struct Run {
    int logical = 0;
    int piece = 0;
    std::int64_t begin = 0;
    std::vector<int> forms;
    friend auto operator<=>(const Run&, const Run&) = default;
  };
  using Runs = std::vector<Run>;

  Runs summed;
  std::vector<std::vector<Runs>> means;  // of each call whose members take the mean of their norms: of each member
  friend auto operator<=>(const ClipNorm&, const ClipNorm&) = default;
};

/// What replays of schedules have in common that differ in their steps alone: forms, contents, references, and what
/// backward steps add. Each is worked out once, however many engines use the memory one after the other. It belongs to
/// the mesh, the model and the batch of the schedule that it was made for.
struct SymbolicMemory {
  explicit SymbolicMemory(const Schedule& schedule);

  /// One number for all backward steps that add the same.
  int number_of(const Step& step);
  /// Forms and contents that it holds: it only grows.
  std::size_t size() const { return forms.size() + contents.size(); }

  Forms forms;
  Contents contents{forms};
  std::vector<std::size_t> first;                                        // by rank: index of its first buffer
  std::vector<int> placement_class;                                      // by logical: alike ones have like references
  std::unordered_map<std::array<int, 4>, int, ListHash> backward_forms;  // by rank, class, micro-batch, step's number
  std::map<std::pair<std::string, std::vector<std::string>>, int> step_numbers;  // by `by` and uses
  std::map<std::tuple<int, int, int>, int> references;  // by placement class, piece, optimizer step
  std::map<std::pair<int, int>, std::optional<Rational>> ratios;
  std::map<ClipNorm, int> clip_factors;
};

}  // namespace lockstep::symbolic
