// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/intervals.h"
#include "lockstep/operation.h"
#include "lockstep/schedule.h"

namespace lockstep {

/// One rank's call of one step.
struct Call {
  int rank = 0;
  int optimizer_step = 0;  ///< of this member; calls of different optimizer steps can meet
  const Step* step = nullptr;
  /// Indices into LocalModel::buffers of the selected ones, in model order.
  const std::vector<int>* buffers = nullptr;
  /// By position in `buffers`: the elements that the call acts on, taken together as one stretch;
  /// empty: the whole buffers. Filled for "on": "owned", for an all_gather that undoes such a
  /// reduce_scatter, and for norm (whose `buffers` are those that count).
  std::vector<Intervals> owned;
};

/// Something that happens to buffers: a local step on one rank, or a collective of a group.
struct Event {
  Op op = Op::zero;
  int time = 0;  ///< unrolled position in the list, through all optimizer steps
  int optimizer_step = 0;
  int micro_batch = -1;     ///< of the calling iteration, counted from 0 in the step; -1 outside `each`
  std::vector<Call> calls;  ///< local: one; collective: the group's members, ascending
  Rational by{1};           ///< scale, leftover
  bool average = false;     ///< reductions
  int root = -1;            ///< index into calls
  /// reduce_scatter, all_gather: how each position is cut, one slice per member of `calls`; in
  /// elements of the buffer, or where `Call::owned` is filled in elements of that stretch.
  std::vector<Cut> cuts;
};

/// After event `event` (index into Timeline::events), `rank` owns `owned` of its buffer.
struct OwnershipChange {
  std::size_t event = 0;
  int rank = 0;
  int buffer = 0;
  Intervals owned;
};

/// A rank passed a `wait` for an asynchronous step that it was a member of.
struct WaitPassed {
  std::size_t before = 0;  ///< in front of this event; events.size(): behind all of them
  int rank = 0;
  std::size_t event = 0;  ///< what it waited for
};

/// How the walk over all ranks ended.
struct Outcome {
  enum class Kind { complete, deadlock, invalid_collective, race };
  struct Stuck {
    int rank = 0;
    std::string waits_in;        ///< the step
    std::vector<int> for_ranks;  ///< members that have not come
  };
  struct MemberCall {
    int rank = 0;
    std::string calls;      ///< the step that it called
    std::vector<int> with;  ///< the other members
    std::string brings;     ///< "all_reduce of 2 parameters, 768 elements, float32"
  };
  struct Race {
    int rank = 0;
    std::string step;       ///< the step that touches; "" at the end of the list
    std::string touches;    ///< the buffer: "grad of NAME"
    std::string in_flight;  ///< the asynchronous step
  };
  Kind kind = Kind::complete;
  int optimizer_step = 0;
  std::string why;  ///< invalid_collective: what does not agree
  std::vector<Stuck> stuck;
  std::vector<MemberCall> member_calls;
  std::vector<Race> races;
};

/// What happens in a schedule, independent of any values: who meets whom, in which order, what is
/// cut where, who owns what. Every engine replays `events` in order over its own kind of value.
///
/// Events refer to the schedule that the timeline was made from; it must outlive it.
struct Timeline {
  std::vector<Event> events;
  /// By optimizer step: index of the first event after it; steps that all ranks completed only.
  std::vector<std::size_t> step_ends;
  /// By completed optimizer step and rank: index of the first event after this rank's list ended.
  /// At most step_ends; less only where calls of different optimizer steps meet.
  std::vector<std::vector<std::size_t>> rank_ends;
  std::vector<OwnershipChange> ownership;  ///< in order of `event`
  /// In order of `before`. An engine that replays the events in order has no use for them: they are what holds a rank
  /// back from an asynchronous step where steps run side by side.
  std::vector<WaitPassed> waits;
  /// By completed optimizer step, rank and buffer: what the optimizer gets.
  std::vector<std::vector<std::vector<Intervals>>> owned;
  /// By completed optimizer step, rank and buffer: buffers of one number answer together for
  /// every element.
  std::vector<std::vector<std::vector<int>>> family;
  Outcome outcome;

  std::deque<std::vector<int>> selections;  ///< what Call::buffers points into
};

/// What walk() does where a step touches what is in flight, or a list ends while something is.
enum class AtRace {
  ends,   ///< the run ends, as Outcome::race
  waits,  ///< the rank waits first, as if the missing `wait` stood there; these waits are not listed in Timeline::waits
};

/// Walks every rank through the schedule. Deterministic: at equal times ranks go in ascending
/// order. Mistakes that show only here (division by zero on a rank that evaluates it, a geometry
/// that does not divide) are thrown as InputError.
/// Complexity: near linear in ranks × (steps × selected buffers).
Timeline walk(const Schedule& schedule, AtRace at_race = AtRace::ends);

/// The value of `by` of a step on a rank. Used by engines for `backward`, where the
/// rank is the one whose tokens a contribution stems from.
class Factors {
 public:
  explicit Factors(const Schedule& schedule) : schedule_(&schedule) {}
  /// `micro_batch` is counted from 0 in the optimizer step, -1 outside `each`.
  Rational by(const Step& step, int rank, int optimizer_step, int micro_batch) const;

 private:
  const Schedule* schedule_;
};

/// One contribution that a rank's backward adds to a buffer.
struct Contribution {
  int source = 0;        ///< the rank that names it: lowest of those that compute the same, or whose tokens they are
  int evaluated_on = 0;  ///< the rank on which `by` is evaluated
  int site_use = 0;      ///< index into Logical::uses
};
/// Finds contributions fast. Concurrent reads are safe.
class Contributions {
 public:
  explicit Contributions(const Schedule& schedule);
  /// What `rank`'s backward of micro-batch `micro_batch` (from 0 in `optimizer_step`) adds to its
  /// buffer `buffer`; `uses` limits it (empty: all). In the order of its sites, uses and sources.
  std::vector<Contribution> of(int rank, int buffer, int optimizer_step, int micro_batch,
                               const std::vector<std::string>& uses) const;
  /// At least as many as any micro-batch adds to the buffer; without looking at each.
  std::int64_t most(int rank, int buffer) const;
  /// Buffers of one rank with one class have the same contributions.
  int class_of(int rank, int buffer) const;
  int classes() const { return class_count_; }

 private:
  int named_by(int rank, int buffer, int parameter, int micro_batch) const;
  const Schedule* schedule_;
  std::vector<std::vector<int>> class_of_;  // by local model and buffer
  int class_count_ = 0;
  std::vector<Groups> dispatch_groups_;  // by distinct dispatch list
  std::vector<int> dispatch_of_;         // by parameter, -1: none
};

}  // namespace lockstep
