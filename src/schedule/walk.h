// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <queue>
#include <string>
#include <vector>

#include "lockstep/collective.h"
#include "src/schedule/calls.h"
#include "src/schedule/meeting.h"
#include "src/schedule/ownership.h"

namespace lockstep::schedule {

/// A member of a group, for owned_after().
struct OwningMember {
  const Intervals& before;
  const Intervals& view;
  const Cut* cut = nullptr;  ///< of the view
  int position = 0;
  bool is_root = false;

  Intervals owned() const { return before; }
  Intervals slice() const { return expand(view, cut->slice(position)); }
  Intervals in_slice() const { return intersect(before, slice()); }
  Intervals and_view() const { return unite(before, view); }
  Intervals if_root() const { return is_root ? before : Intervals{}; }
};

/// Walks all ranks through the unrolled list. Time is the position in that list: a rank executes
/// position p at time p, or as soon as it is released from a collective that it waits in.
class Walk {
 public:
  /// The timeline has a memory, and nothing else.
  Walk(const Schedule& schedule, Timeline& timeline, AtRace at_race);
  void run();

 private:
  /// An asynchronous step between its call and its wait.
  struct InFlight {
    const Step* step = nullptr;
    const std::vector<int>* buffers = nullptr;
    Meeting* meeting = nullptr;                       // null once complete
    std::optional<std::size_t> event = std::nullopt;  // once complete, where it changes anything
    bool waited_for = false;                          // by a wait that the schedule does not have
  };
  struct RankState {
    std::size_t next = 0;  // position that it executes next
    const Step* waits_in = nullptr;
    Meeting* meeting = nullptr;  // that it is blocked in
    std::vector<InFlight> in_flight;
    std::optional<InFlight> passing;  // the wait that it stands in
    bool stopped = false;             // a race ended it
  };

  void run_time(std::size_t time);
  void advance(int rank, std::size_t time);
  void execute(int rank, const Position& position, std::size_t time);
  void local(int rank, const Position& position, const std::vector<int>& buffers, std::size_t time);
  void own(int rank, const Position& position, const std::vector<int>& buffers, std::size_t time);
  void collective(int rank, const Position& position, const std::vector<int>& buffers, std::size_t time);
  void wait(int rank, const Position& position);
  void passed(int rank, const InFlight& flight);
  bool waits_instead(int rank, InFlight& flight);
  void end_of_list(int rank, const Position& position);
  bool races(int rank, const Position& position, const std::vector<int>& buffers);
  void complete(Meeting& meeting, std::size_t time);
  void report_race(int rank, const Position& position, const std::string& step, const std::string& name, int buffer,
                   const Step& in_flight);

  MemberCall member_call(int rank, const Position& position, const std::vector<int>& buffers, int group);
  int root_in(int group, const Step& step, int rank);
  void change(int rank, int buffer, Intervals owned);
  void apply_ownership(const Event& event, int group);
  void report_stuck();
  void keep_completed();

  const Schedule* schedule_;
  Timeline* timeline_;
  Calls calls_;
  Ownership ownership_;
  Meetings meetings_;
  AtRace at_race_;
  std::vector<Position> positions_;
  std::vector<RankState> ranks_;
  std::priority_queue<int, std::vector<int>, std::greater<>> ready_;
  std::vector<std::vector<std::vector<Intervals>>> owned_;  // by optimizer step and rank
  std::vector<std::vector<std::size_t>> ends_;              // by optimizer step and rank
  std::vector<int> finished_;                               // by optimizer step: ranks
  // The first rank of an `own` and its buffer: by step, optimizer step, micro-batch, group and logical parameter.
  std::map<std::tuple<const Step*, int, int, int, int>, std::pair<int, int>> owners_;
};

}  // namespace lockstep::schedule
