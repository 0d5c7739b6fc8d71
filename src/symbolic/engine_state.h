// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/symbolic.h"
#include "src/base/at.h"
#include "src/schedule/walk_memory.h"
#include "src/symbolic/memory.h"

namespace lockstep {

/// What the symbolic engine knows of one replay: what every buffer of every rank holds.
struct SymbolicEngine::State {
  /// `memory` is null where the replay has one of its own.
  State(const Schedule& schedule, const Timeline& timeline, symbolic::SymbolicMemory* memory);

  // Replay (engine_events.cpp).
  void happen(const Event& event);
  void local(const Event& event);
  struct LocalChange;
  int gradient(const Event& event, int buffer);
  void collective(const Event& event);
  void aligned(const Event& event, std::size_t position, std::vector<int>& values);
  void shifted(const Event& event, std::size_t position, std::vector<int>& values);
  /// Content number of a buffer; a buffer never written is 0 everywhere.
  int& held(int slot, int rank, int buffer);
  int slot(const std::string& name);
  std::size_t index(int rank, int buffer) const { return memory.first[at(rank)] + static_cast<std::size_t>(buffer); }
  const LocalBuffer& local_buffer(int rank, int buffer) const { return schedule.model.local(rank).buffers[at(buffer)]; }
  /// All copies of a logical parameter get gradients in the name of the first.
  int original_of(int rank, int buffer) const { return schedule.model.original(local_buffer(rank, buffer).logical); }

  /// What an optimizer reads in the end: for the elements that the rank owns, ascending, calls `visit` with an interval
  /// and its form.
  template <typename Visit>
  void visit_handed_over(int rank, int buffer, int optimizer_step, const Visit& visit) const {
    const auto step = static_cast<std::size_t>(optimizer_step);
    const Intervals& owned = timeline.owned[step][at(rank)][at(buffer)];
    auto part = owned.begin();
    std::int64_t begin = 0;
    for (const symbolic::Contents::Segment& segment : contents.content(snapshots[step][index(rank, buffer)])) {
      while (part != owned.end() && part->end <= begin) ++part;
      for (auto own = part; own != owned.end() && own->begin < segment.end; ++own) {
        const Interval common = intersect(*own, Interval{begin, segment.end});
        if (!common.empty()) visit(common, segment.form);
      }
      begin = segment.end;
    }
  }

  // Comparison (engine_verdict.cpp, engine_norm.cpp).
  SymbolicResult result_of(int optimizer_step);
  void compare(int optimizer_step, SymbolicResult& result);
  void find_unowned(int optimizer_step, SymbolicResult& result) const;
  void compare_replicas(SymbolicResult& result) const;
  void count_norm(int optimizer_step, SymbolicResult& result);
  int reference(int logical, int piece, int optimizer_step);
  std::optional<Rational> ratio(int form, int reference);

  // Clipping (engine_clip.cpp).
  void keep_norm(const Event& event);
  /// Number of the factor that the rank of the call clips by now.
  int clip_factor(const Call& call);
  /// That of the right norm.
  int right_clip_factor(int optimizer_step);
  symbolic::ClipNorm counts_of(const std::vector<int>& calls);
  symbolic::ClipNorm::Runs counts_of_one_device(int optimizer_step);
  int factor_of(symbolic::ClipNorm norm);
  /// What one device hands to the optimizer: clipped, where a rank clips in this optimizer step.
  int expected(int logical, int piece, int optimizer_step);

  // Names for reports (engine_terms.cpp).
  std::vector<Term> terms(int form, int logical, int piece);
  Rational by(const Term& term);

  const Schedule& schedule;
  const Timeline& timeline;
  const Contributions& contributions;
  Factors factors;
  std::unique_ptr<symbolic::SymbolicMemory> own;
  symbolic::SymbolicMemory& memory;
  symbolic::Forms& forms;
  symbolic::Contents& contents;

  std::map<std::string, int> slots;         // buffer names
  std::vector<std::vector<int>> buffers;    // by slot and index: content, -1 never written
  std::vector<std::vector<int>> snapshots;  // by optimizer step and index: what `result` held

  struct NormCall {
    std::size_t event = 0;
    std::vector<std::vector<int>> held;  // by member and position: content at that time
  };
  std::vector<NormCall> norm_calls;
  struct NormsOfRank {
    int optimizer_step = -1;
    std::vector<int> calls;  // index into norm_calls
  };
  std::vector<NormsOfRank> norms_of;               // by rank: what it has counted in this optimizer step
  std::map<std::vector<int>, int> clip_factor_of;  // by such calls
  std::vector<int> right_factors;                  // by optimizer step; none before the first clip
  std::map<int, ClipFactor> clip_names;            // by factor
  std::map<int, int> other_norms;                  // by rank: wrong ones that it clipped by first
  std::set<int> clipped_steps;                     // optimizer steps in which a rank clips

  std::map<const Step*, int> step_numbers;  // of the memory
  // Backward events by optimizer step, micro-batch and rank, made when first needed.
  std::map<std::tuple<int, int, int>, std::vector<std::size_t>> backward_events;
  std::map<std::tuple<int, int, int, int>, Rational> factors_of_terms;
};

}  // namespace lockstep
