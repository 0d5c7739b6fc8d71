// SPDX-License-Identifier: Apache-2.0
#include "src/device/network_meeting.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/numbers.h"
#include "lockstep/collective.h"
#include "src/base/at.h"

namespace lockstep::device {

namespace {

using kernels::Kind;
using kernels::Received;
using kernels::Receiver;

bool is_power_of_two(double value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5;
}

}  // namespace

/// Elements of a slot in the order in which they go over the network, as they lie there: in the slot itself where they
/// follow each other, else moved together in another.
struct NetworkMeeting::Stretch {
  std::uint32_t slot = 0;
  std::vector<Intervals> parts;        ///< by process, or one for all
  std::vector<std::uint64_t> offsets;  ///< of the parts; one more than parts
  NetworkCall::Place place;
  bool moved = false;

  std::uint64_t count() const { return offsets.back(); }
  NetworkCall::Place part(std::size_t number) const { return {place.slot, place.begin + offsets[number]}; }
  std::vector<std::uint64_t> counts() const {
    std::vector<std::uint64_t> result;
    for (std::size_t i = 0; i < parts.size(); ++i) result.push_back(offsets[i + 1] - offsets[i]);
    return result;
  }
};

/// For apply_collective(): what is received and where it is written decide together which call is made.
struct NetworkMeeting::Members {
  NetworkMeeting& meeting;

  Received reduce() { return Received::sum; }
  Received root() { return Received::root; }
  Received slices() { return Received::owner; }
  void write_everywhere(Received received) {
    if (received == Received::sum) return meeting.reduce_for_all();
    if (received == Received::root) return meeting.spread_from_root();
    throw InternalError(unknown);
  }
  void write_own_slices(Received received) {
    if (received != Received::sum) throw InternalError(unknown);
    meeting.reduce_slices();
  }
  void write_every_slice(Received received) {
    if (received != Received::owner) throw InternalError(unknown);
    meeting.gather();
  }
  void write_root(Received received) {
    if (received != Received::sum) throw InternalError(unknown);
    meeting.reduce_for_root();
  }
  static constexpr const char* unknown = "a collective that the network engine has no call for";
};

void NetworkMeeting::write(const numeric::PlannedEvent& planned, const LocalPlan::Meeting& folded, const Slots& slots,
                           const Intervals& everything, const std::vector<Intervals>& slices) {
  planned_ = &planned;
  folded_ = &folded;
  slots_ = &slots;
  everything_ = &everything;
  slices_ = &slices;
  Members members{*this};
  apply_collective(operation(planned.event->op), members);
}

void NetworkMeeting::reduce_for_all() {
  const std::uint32_t first = slots_->front();
  if (!alone()) add_up(first, *everything_);
  const Stretch stretch = stretch_of(first, {*everything_});
  reduce(NetworkCall::Kind::all_reduce, stretch);
  move_out(stretch, true);
  average(first, *everything_);
  if (!alone()) hand_out(first, *everything_);
}

void NetworkMeeting::reduce_for_root() {
  // Whoever is not the root keeps what it has.
  const bool in_place = alone() && !in_field_;
  const std::uint32_t sum = in_place ? slots_->front() : layout_.sum_slot();
  if (!in_place) add_up(sum, *everything_);
  const Stretch stretch = stretch_of(sum, {*everything_});
  if (NetworkCall* made = reduce(NetworkCall::Kind::reduce, stretch); made != nullptr) made->root = folded_->at[root()];
  if (!root_is_here()) return;
  move_out(stretch, true);
  average(sum, *everything_);
  if (in_place) return;
  writer_.begin(Kind::copy, slot_of_root()).from = sum;
  for (const Interval& each : *everything_) writer_.add_span(each);
  writer_.end();
}

void NetworkMeeting::reduce_slices() {
  // Outside of its own slice every member keeps what it has.
  const bool in_place = alone() && !in_field_;
  const std::uint32_t sum = in_place ? slots_->front() : layout_.sum_slot();
  if (!in_place) add_up(sum, all_slices());
  const Stretch stretch = stretch_of(sum, parts_by_process());
  if (NetworkCall* made = reduce(NetworkCall::Kind::reduce_scatter, stretch); made != nullptr)
    made->to = stretch.part(own());
  move_out(stretch, false);
  average(sum, own_slices());
  if (!in_place) deal(sum);
}

void NetworkMeeting::spread_from_root() {
  const std::uint32_t holder = root_is_here() ? slot_of_root() : slots_->front();
  const Stretch stretch = stretch_of(holder, {*everything_});
  if (root_is_here()) move_in(stretch, true);
  if (stretch.count() > 0) call(NetworkCall::Kind::broadcast, stretch).root = folded_->at[root()];
  if (!root_is_here()) move_out(stretch, true);
  if (!alone()) hand_out(holder, *everything_);
}

void NetworkMeeting::gather() {
  const std::uint32_t first = slots_->front();
  if (!alone()) {
    kernels::Instruction& collect = begin_local(first);
    collect.received = Received::owner;
    collect.receiver = Receiver::root;
    for (std::size_t i = 0; i < slots_->size(); ++i) {
      for (const Interval& each : (*slices_)[folded_->members[i]]) writer_.add_span(each, 0, i);
    }
    writer_.sort_spans();
    writer_.end();
  }
  const Stretch stretch = stretch_of(first, parts_by_process());
  move_in(stretch, false);
  if (stretch.count() > 0) call(NetworkCall::Kind::all_gather, stretch).from = stretch.part(own());
  move_out(stretch, true);
  if (!alone()) hand_out(first, all_slices());
}

std::uint32_t NetworkMeeting::slot_of_root() const {
  const auto found = std::find(folded_->members.begin(), folded_->members.end(), root());
  return (*slots_)[at(found - folded_->members.begin())];
}

kernels::Instruction& NetworkMeeting::begin_local(std::uint32_t more) {
  kernels::Instruction& instruction = writer_.begin(Kind::collective, slots_->front());
  std::vector<std::uint32_t>& members = writer_.program.members;
  instruction.first_member = static_cast<std::uint32_t>(members.size());
  instruction.members = instruction.root = static_cast<std::uint32_t>(slots_->size());
  members.insert(members.end(), slots_->begin(), slots_->end());
  members.push_back(more);
  return instruction;
}

void NetworkMeeting::add_up(std::uint32_t target, const Intervals& places) {
  kernels::Instruction& sum = begin_local(target);
  sum.received = Received::sum;
  sum.receiver = Receiver::root;
  for (const Interval& each : places) writer_.add_span(each);
  writer_.end();
}

void NetworkMeeting::hand_out(std::uint32_t from, const Intervals& places) {
  kernels::Instruction& copies = begin_local(from);
  copies.received = Received::root;
  copies.receiver = Receiver::everyone;
  for (const Interval& each : places) writer_.add_span(each);
  writer_.end();
}

void NetworkMeeting::deal(std::uint32_t from) {
  kernels::Instruction& copies = begin_local(from);
  copies.received = Received::root;
  copies.receiver = Receiver::owner;
  for (std::size_t i = 0; i < slots_->size(); ++i) {
    for (const Interval& each : (*slices_)[folded_->members[i]]) writer_.add_span(each, 0, i);
  }
  writer_.sort_spans();
  writer_.end();
}

double NetworkMeeting::network_factor() const {
  // A network multiplies each contribution by the factor rounded to a float, and adds the products up. For a power of
  // two that is exact. For others it is not: 41 divided by 41 is 1, but 41 times the float next to 1/41 is 0.99999994.
  if (!planned_->event->average || in_field_) return 1;
  // Of one process alone NCCL before 2.29.7 leaves the last elements as they were
  // (github.com/NVIDIA/nccl/issues/1950).
  if (folded_->processes.size() == 1) return 1;
  const numeric::Factor& by = planned_->by;
  return is_power_of_two(by.multiply) && is_power_of_two(by.divide) ? by.multiply / by.divide : 1;
}

void NetworkMeeting::average(std::uint32_t slot, const Intervals& places) {
  if (!planned_->event->average || network_factor() != 1) return;
  const numeric::Factor& by = planned_->by;
  writer_.begin(Kind::scale, slot).factor = {by.multiply, by.divide, by.residue};
  for (const Interval& each : places) writer_.add_span(each);
  writer_.end();
}

std::vector<Intervals> NetworkMeeting::parts_by_process() const {
  std::vector<Intervals> parts(folded_->processes.size());
  for (std::size_t member = 0; member < folded_->at.size(); ++member) {
    Intervals& part = parts[folded_->at[member]];
    part.insert(part.end(), (*slices_)[member].begin(), (*slices_)[member].end());
  }
  return parts;
}

Intervals NetworkMeeting::own_slices() const {
  Intervals result;
  for (const std::size_t member : folded_->members) result = unite(result, (*slices_)[member]);
  return result;
}

Intervals NetworkMeeting::all_slices() const {
  Intervals result;
  for (const Intervals& slice : *slices_) result = unite(result, slice);
  return result;
}

NetworkMeeting::Stretch NetworkMeeting::stretch_of(std::uint32_t slot, std::vector<Intervals> parts) const {
  Stretch stretch;
  stretch.slot = slot;
  stretch.parts = std::move(parts);
  stretch.offsets.push_back(0);
  bool together = true;
  std::optional<Interval> whole;
  for (const Intervals& part : stretch.parts) {
    for (const Interval& each : part) {
      together = together && (!whole || whole->end == each.begin);
      whole = Interval{whole ? whole->begin : each.begin, each.end};
    }
    stretch.offsets.push_back(stretch.offsets.back() + static_cast<std::uint64_t>(size(part)));
  }
  stretch.moved = !together;
  if (stretch.moved) {
    stretch.place = {layout_.packed_slot(), 0};
  } else {
    stretch.place = {slot, whole ? static_cast<std::uint64_t>(whole->begin) : 0};
  }
  return stretch;
}

void NetworkMeeting::move_in(const Stretch& stretch, bool all) {
  if (!stretch.moved) return;
  std::vector<std::pair<Interval, std::int64_t>> places;
  for (std::size_t part = 0; part < stretch.parts.size(); ++part) {
    if (!all && part != own()) continue;
    auto position = static_cast<std::int64_t>(stretch.offsets[part]);
    for (const Interval& each : stretch.parts[part]) {
      places.push_back({{position, position + each.size()}, each.begin});
      position += each.size();
    }
  }
  writer_.move(stretch.place.slot, stretch.slot, places);
}

void NetworkMeeting::move_out(const Stretch& stretch, bool all) {
  if (!stretch.moved) return;
  std::vector<std::pair<Interval, std::int64_t>> places;
  for (std::size_t part = 0; part < stretch.parts.size(); ++part) {
    if (!all && part != own()) continue;
    auto position = static_cast<std::int64_t>(stretch.offsets[part]);
    for (const Interval& each : stretch.parts[part]) {
      places.push_back({each, position});
      position += each.size();
    }
  }
  writer_.move(stretch.slot, stretch.place.slot, places);
}

NetworkCall& NetworkMeeting::call(NetworkCall::Kind kind, const Stretch& stretch) {
  NetworkCall& made = writer_.program.calls.emplace_back();
  made.kind = kind;
  made.before = writer_.program.instructions.size();
  made.event = writer_.event();
  made.group = folded_->processes;
  made.from = made.to = stretch.place;
  made.counts = stretch.counts();
  return made;
}

NetworkCall* NetworkMeeting::reduce(NetworkCall::Kind kind, const Stretch& stretch) {
  move_in(stretch, true);
  if (in_field_) {
    add_residues(stretch);
    return nullptr;
  }
  if (stretch.count() == 0) return nullptr;
  NetworkCall& made = call(kind, stretch);
  made.factor = network_factor();
  return &made;
}

void NetworkMeeting::add_residues(const Stretch& stretch) {
  if (stretch.count() == 0) return;
  const std::uint64_t processes = folded_->processes.size(), pack = kernels::pack<kernels::Residue>;
  const std::uint64_t length = ((stretch.count() + processes - 1) / processes + pack - 1) / pack * pack;
  std::vector<std::uint64_t> counts;
  for (std::uint64_t i = 0; i < processes; ++i)
    counts.push_back(std::min((i + 1) * length, stretch.count()) - std::min(i * length, stretch.count()));
  NetworkCall& exchange = call(NetworkCall::Kind::exchange, stretch);
  exchange.counts = counts;
  exchange.to = {layout_.exchange_slot(), 0};
  exchange.stride = length;
  // The parts are the slots of this instruction, and the first gets their sum.
  kernels::Instruction& sum = writer_.begin(Kind::collective, 0);
  std::vector<std::uint32_t>& members = writer_.program.members;
  sum.first_member = static_cast<std::uint32_t>(members.size());
  sum.members = static_cast<std::uint32_t>(processes);
  for (std::uint32_t i = 0; i < processes; ++i) members.push_back(i);
  sum.received = Received::sum;
  sum.receiver = Receiver::root;
  sum.root = 0;
  if (counts[own()] > 0) writer_.add_span({0, static_cast<std::int64_t>(counts[own()])});
  exchange.sum = writer_.end_outside();
  NetworkCall& gather = call(NetworkCall::Kind::all_gather, stretch);
  gather.counts = std::move(counts);
  gather.from = {layout_.exchange_slot(), 0};
}

}  // namespace lockstep::device
