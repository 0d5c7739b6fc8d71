// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/live/captured_run.h"
#include "src/symbolic/programs.h"

namespace lockstep::live {

/// A part of a parameter that programs name: [first, end) of row-major indices, or a box. Programs may name parts that
/// overlap.
struct Region {
  int parameter = 0;            ///< the run's number
  std::vector<Interval> piece;  ///< one interval of indices, or one for each dimension
  std::int64_t elements = 0;
  std::optional<std::int64_t> begin;  ///< where it is one stretch of indices: the first
};

/// What a backward pass of a program yields.
struct ExtractedContribution {
  int source = 0;  ///< of the program
  int step = 0, micro_batch = 0;
  int region = 0;                        ///< index into Extraction::regions
  std::int64_t first = 0, elements = 0;  ///< of the region, in its own order
  std::uint32_t partial = 0;             ///< by bit, axes along which it is a share of a sum
  int line = 0;
};

/// What an optimizer of a program reads.
struct ExtractedResult {
  int step = 0;
  int region = 0;
  std::int64_t first = 0, elements = 0;
  int content = -1;        ///< index into RankProgram::results; -1: no gradient
  std::vector<int> ranks;  ///< of the program, that read it, ascending; empty: all
  int line = 0;
};

/// The sum of the squares of all that the rank's optimizer reads of a parameter in a step: a source of one element.
struct ExtractedSquare {
  int source = 0, step = 0;
  int parameter = 0;  ///< the run's number
};

/// The norm by which a rank clips gradients.
struct ExtractedNorm {
  int step = 0;
  int content = 0;              ///< index into RankProgram::results: its square
  std::vector<int> parameters;  ///< that are clipped by it
  std::string call;
  double loss_scale = 1;  ///< that a loss scaler has in them then
  int line = 0;
};

/// What an extraction says of a program beside the linear function.
struct ExtractedProgram {
  std::vector<int> ranks, played;  ///< ascending
  std::vector<ExtractedContribution> contributions;
  std::vector<ExtractedResult> results;
  const std::vector<int>& ranks_of(const ExtractedResult& result) const {
    return result.ranks.empty() ? ranks : result.ranks;
  }
  std::vector<int> contribution_of;  ///< by source; -1: what a call brings, or squares
  std::vector<ExtractedSquare> squares;
  std::vector<int> square_of;             ///< by source; -1: no squares
  std::vector<ExtractedNorm> norms;       ///< in the order of the rank
  std::vector<CapturedCollective> calls;  ///< as RankProgram::calls; their groups are not filled in
  bool stopped = false;                   ///< behind the last optimizer step that was looked at: it would have gone on
};

/// Why some ranks were run and others not, where what these do was told by what ranks at other coordinates do.
struct ChosenRanks {
  std::vector<std::string> complete;  ///< axes at each coordinate of which ranks were run
  std::vector<std::string> even;      ///< axes along which the first, the second and the last were
  std::vector<int> compared;          ///< that chance has chosen: they did what was predicted of them
};

/// A training step as the code does it: the program of every rank.
struct Extraction {
  CapturedRun run;  ///< its ranks have steps and gaps alone
  symbolic::RankPrograms programs;
  std::vector<ExtractedProgram> details;  ///< by program
  std::vector<Region> regions;
  std::optional<ChosenRanks> chosen;  ///< else programs that were run are those of all
  std::int64_t counts_taken = 0;      ///< counts of ranks that were not run, told by ranks at the same coordinates
  /// For the reader: who says what ranks along an axis hold of parameters, and what was taken to be so.
  std::vector<std::string> sentences;
};

/// Reads an extraction (docs/extract.md). Throws InputError with everything that is wrong with it, with its place.
Extraction read_extraction(const std::shared_ptr<const Source>& source);

/// The ranks that were run to find out what all do, ascending.
std::vector<int> played_ranks(const Extraction& extraction);
/// Sentences: how many these are, whose program the others are taken to run, and how many counts are taken from others;
/// "" where all were run.
std::string not_played_words(const Extraction& extraction);

}  // namespace lockstep::live
