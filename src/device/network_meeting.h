// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/device/local_plan.h"
#include "src/device/program_writer.h"

namespace lockstep::device {

/// Writes collectives whose members are folded on several GPUs: instructions reduce the members that are here, a call
/// of the network joins the processes, and instructions hand the result to the members here. Members stand in the order
/// of their ranks, and ranks are folded in that order, so that what goes to or comes from each process lies together.
///
/// Where one member is here and its elements follow each other, the network works on its buffer itself. Otherwise the
/// sum stands in a slot of its own where it must not overwrite a buffer, and elements with gaps are moved together.
class NetworkMeeting {
 public:
  /// `in_field`: residues, which no network adds up: their parts are exchanged, added up in a kernel, and gathered.
  NetworkMeeting(ProgramWriter& writer, const GpuLayout& layout, bool in_field)
      : writer_(writer), layout_(layout), in_field_(in_field) {}

  /// `slots`: of the members that are here, in the order of `folded.members`; `everything`: the places that meet;
  /// `slices`: those for which each member answers, of all members.
  void write(const numeric::PlannedEvent& planned, const LocalPlan::Meeting& folded,
             const std::vector<std::uint32_t>& slots, const Intervals& everything,
             const std::vector<Intervals>& slices);

 private:
  struct Stretch;
  struct Members;
  using Slots = std::vector<std::uint32_t>;

  void reduce_for_all();
  void reduce_for_root();
  void reduce_slices();
  void spread_from_root();
  void gather();

  bool alone() const { return slots_->size() == 1; }
  std::size_t own() const { return folded_->at[folded_->members.front()]; }
  bool root_is_here() const { return folded_->at[root()] == own(); }
  std::size_t root() const { return static_cast<std::size_t>(planned_->event->root); }
  std::uint32_t slot_of_root() const;

  /// Begins a collective of the members here and one slot more, which has the number of their count.
  kernels::Instruction& begin_local(std::uint32_t more);
  /// target = sum of the members here, at places.
  void add_up(std::uint32_t target, const Intervals& places);
  /// Every member here = from.
  void hand_out(std::uint32_t from, const Intervals& places);
  /// Each member here = from, in its own slice.
  void deal(std::uint32_t from);
  /// Averages what is in a slot, unless the network has done so.
  void average(std::uint32_t slot, const Intervals& places);
  double network_factor() const;

  Stretch stretch_of(std::uint32_t slot, std::vector<Intervals> parts) const;
  std::vector<Intervals> parts_by_process() const;
  Intervals own_slices() const;
  Intervals all_slices() const;
  void move_in(const Stretch& stretch, bool all);
  void move_out(const Stretch& stretch, bool all);
  NetworkCall& call(NetworkCall::Kind kind, const Stretch& stretch);
  /// Over the processes. The call, where one is made and may be added to; else null.
  NetworkCall* reduce(NetworkCall::Kind kind, const Stretch& stretch);
  void add_residues(const Stretch& stretch);

  ProgramWriter& writer_;
  const GpuLayout& layout_;
  bool in_field_;
  const numeric::PlannedEvent* planned_ = nullptr;  // what is written just now
  const LocalPlan::Meeting* folded_ = nullptr;
  const Slots* slots_ = nullptr;
  const Intervals* everything_ = nullptr;
  const std::vector<Intervals>* slices_ = nullptr;
};

}  // namespace lockstep::device
