// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/gradient_state.h"
#include "lockstep/scenario.h"
#include "lockstep/timeline.h"

namespace lockstep {

namespace transformer {
class KnownReferences;
}

struct TransformerOptions {
  std::uint64_t seed = 0;  ///< of parameters and tokens
  /// Gradients of one device that other runs have computed (src/transformer/known_references.h); null: there are none.
  transformer::KnownReferences* references = nullptr;
};

/// What least squares found for a run of elements of a wrong buffer.
struct TransformerPiece {
  Interval elements;  ///< local
  bool right = true;
  /// The contributions that the values are made of, as Term of the symbolic engine; their coefficients are relative to
  /// what `backward` added. Nothing where the values are right, or where they are no such combination, or where there
  /// are too few elements to tell.
  std::optional<std::vector<Term>> terms;
  /// Contributions that are 0 on these elements, such as those of masked tokens: no one can see their coefficients.
  std::vector<Term> unseen;
};

/// The finding for one buffer of one rank.
struct TransformerBuffer {
  int rank = 0;
  int buffer = 0;  ///< index into its LocalModel
  bool right = true;
  /// The largest difference to the gradient of one device, in multiples of the bound on the rounding error of the
  /// element (docs/transformer.md): at most 1 where it is right.
  double error = 0;
  /// Length of the difference over that of the right gradient, of the owned elements; infinite where that is 0.
  double relative = 0;
  /// Local elements on which every contribution is so far above rounding that a wrong coefficient cannot stay unseen.
  Intervals clear;
  std::vector<TransformerPiece> pieces;  ///< of a wrong buffer: its owned elements
};

/// Ranks of the model itself that wait for each other or meet with different calls.
struct TransformerFailure {
  struct Line {
    int rank = 0;
    std::string calls;
    std::vector<int> waits_for;
  };
  bool deadlock = false;  ///< ranks wait for each other; else they meet with different calls
  std::string what;
  std::vector<Line> lines;
};

struct TransformerResult {
  bool match = false;
  int step = 0;                            ///< the first wrong optimizer step, else the last completed one
  std::vector<TransformerBuffer> buffers;  ///< every buffer of every rank, by rank and buffer, of that step
  /// TransformerBuffer::clear of the same buffers in each optimizer step before, all of which were right.
  std::vector<std::vector<Intervals>> clear_before;
  double largest_right = 0;   ///< largest error of the right buffers
  double smallest_wrong = 0;  ///< smallest error of the wrong ones; 0 where all are right
  /// By logical parameter, as in SymbolicResult: whether all owners of an element have the same value, within the bound
  /// on rounding, and whether some wrong element has several owners.
  std::vector<bool> replicas_agree, replicated;
  std::optional<TransformerFailure> failure;
};

/// Runs a real transformer, forward and backward, on the scenario's rank grid, sharded as Megatron shards it, then the
/// schedule's steps on its gradients, and compares what every rank hands to its optimizer with the same model on one
/// device. Nothing is taken from the placements that the scenario claims. Values only: no norms, no unowned elements.
///
/// Throws InputError, at the place in the scenario, for a model that is not one of the family "gpt" or has something
/// that the engine cannot run, and for one that is too large for it.
TransformerResult run_transformer(const Scenario& scenario, const Timeline& timeline,
                                  const TransformerOptions& options = {});

/// How the gradient of a parameter lies on the ranks along an axis, as DTensor would call it: "S(0)" (Shard), "R"
/// (every rank computes all of it), "P" (each its own share, as on every axis that splits the tokens), and "D" behind a
/// shard of an expert into which the tokens of the whole axis come.
struct ObservedPlacement {
  int parameter = 0;  ///< index into Model::parameters()
  Axis axis = Axis::tp;
  std::string claimed;
  std::string observed;  ///< "0" for a gradient that is zero but for rounding, which fits every claim
  bool agrees = false;
};

struct PlacementReport {
  std::vector<ObservedPlacement> placements;  ///< by parameter, for every axis larger than 1 but pp
  /// Tensors of one device that what was observed does not add up to.
  std::vector<std::string> incomplete;
  bool agrees() const;
};

/// Runs the transformer as run_transformer does, without the schedule, and looks at what each rank's backward really
/// yields. Throws InputError as run_transformer does.
PlacementReport observe_placements(const Scenario& scenario, const TransformerOptions& options = {});

}  // namespace lockstep
