// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/rational.h"

namespace lockstep::symbolic {

/// Coefficient times the elements of a source from `offset` on.
struct SourceTerm {
  Rational coefficient;
  int source = 0;
  std::int64_t offset = 0;
};

/// How a content that no terms say stands to them.
enum class NoSum {
  perhaps,   ///< nobody knows: it may be a sum of them
  never,     ///< it is none, whatever gradients are, and neither is a sum with it
  in_flight  ///< the same: a collective writes there that nobody has waited for
};

/// What is known of elements [first, first + count): the sum of the terms, or why nobody knows.
struct ContentPart {
  std::int64_t first = 0, count = 0;
  std::vector<SourceTerm> terms;
  std::string unknown;  ///< "": the terms say it
  NoSum no_sum = NoSum::perhaps;
};

/// By ascending elements, without overlaps. Elements that no part covers were not followed.
using ProgramContent = std::vector<ContentPart>;

enum class ProgramOp {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  send,
  recv,
  barrier
};

/// The other rank of a send or a receive, on each rank that runs the program.
struct ProgramPeer {
  int only = -1;                                    ///< the same on all; else by rank
  std::shared_ptr<const std::vector<int>> of_rank;  ///< -1: none
  int on(int rank) const { return of_rank == nullptr ? only : (*of_rank)[static_cast<std::size_t>(rank)]; }
};

/// A collective, a send or a receive of one rank.
struct ProgramCall {
  ProgramOp op = ProgramOp::barrier;
  int group = -1;             ///< index into RankPrograms::groups; of sends and receives it says nothing
  int root = -1;              ///< position in the group; -1: none
  ProgramPeer peer;           ///< of a send or a receive
  std::int64_t elements = 0;  ///< that the rank puts in
  std::string dtype, reduce;  ///< "" where there is none
  Rational factor = 1;        ///< of premul_sum
  std::vector<std::int64_t> input_splits, output_splits;  ///< by position; empty: equal parts
  bool async = false;    ///< the rank goes on, up to the first that reads the output; else it waits
  ProgramContent input;  ///< what of the gradients goes in
  int output = -1;       ///< the source that it defines; -1: none
  std::string words;     ///< for reasons: "all_reduce of 8 float32 elements at train.py:9 in main"
};

/// An unknown of a program: a contribution of the rank's own, or what a call brings.
struct ProgramSource {
  int call = -1;  ///< index into RankProgram::calls; -1: a contribution
  std::int64_t elements = 0;
};

/// What ranks do to their gradients: the linear function from their sources to what their optimizers read.
struct RankProgram {
  std::vector<ProgramSource> sources;
  std::vector<ProgramCall> calls;       ///< in the order of the rank
  std::vector<ProgramContent> results;  ///< in the order in which optimizers read them
  /// All calls and results in the rank's order: a call by its index, a result by ~index.
  std::vector<int> order;
};

/// The process group that a call of a program names, on each rank that runs the program.
struct ProgramGroup {
  int only = -1;             ///< the same on all; else by rank
  std::vector<int> of_rank;  ///< indices into RankPrograms::members
  int on(int rank) const { return only >= 0 ? only : of_rank[static_cast<std::size_t>(rank)]; }
};

/// The programs of all ranks, each once.
struct RankPrograms {
  std::vector<RankProgram> programs;
  std::vector<int> program_of;            ///< by rank
  std::vector<std::vector<int>> members;  ///< of each process group, in the group's order
  std::vector<ProgramGroup> groups;
  /// By rank, a number for the data that it sees: contributions of ranks that see other data are never alike. Empty:
  /// nothing is known of that.
  std::vector<int> data_of;

  int world() const { return static_cast<int>(program_of.size()); }
  const RankProgram& of(int rank) const {
    return programs[static_cast<std::size_t>(program_of[static_cast<std::size_t>(rank)])];
  }
};

/// Positions of ranks in their process groups.
class GroupPositions {
 public:
  /// `programs` must outlive it.
  explicit GroupPositions(const RankPrograms& programs);
  /// Of a member. Complexity: logarithmic.
  std::size_t of(int group, int rank) const;

 private:
  const RankPrograms& programs_;
  std::vector<std::vector<std::pair<int, std::size_t>>> sorted_;  // by group; empty where its members ascend
};

/// Of the parts into which a member's elements fall: that at a position. Without splits they are equal.
inline std::int64_t part_at(const std::vector<std::int64_t>& splits, std::int64_t whole, std::size_t members,
                            std::size_t position) {
  return splits.empty() ? whole / static_cast<std::int64_t>(members) : splits[position];
}

/// The calls that a content reads, each once, ascending.
std::vector<int> calls_read(const RankProgram& program, const ProgramContent& content);

}  // namespace lockstep::symbolic
