// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "lockstep/collective.h"
#include "src/base/at.h"
#include "src/device/local_plan.h"
#include "src/device/transport.h"
#include "src/numeric/kernels.h"

namespace lockstep::device {

template <class Value>
constexpr Number number_of = std::is_same_v<Value, float>    ? Number::float32
                             : std::is_same_v<Value, double> ? Number::float64
                                                             : Number::residue;

/// The effect of a collective's table row where its members are folded on processes: those of one process are reduced
/// there first, and what is left is one collective of the transport. Members stand in the order of their ranks, and
/// ranks are folded in that order, so that what goes to or comes from each process lies together. Value is float,
/// double or a residue.
template <class Value>
class FoldedMeeting {
 public:
  explicit FoldedMeeting(Transport& transport) : transport_(transport) {}

  /// `values` are the stored elements of the members that are here, in the order of `members.members`; `slices` are
  /// those for which each member answers, of all members; `everything` those that meet. All are places among `count`
  /// stored elements, and the same for every member.
  void apply(const numeric::PlannedEvent& planned, const LocalPlan::Meeting& members, const std::vector<Value*>& values,
             const std::vector<Intervals>& slices, const Intervals& everything, std::int64_t count) {
    CallChoice choice{*this, planned, members, values, slices, everything, count};
    apply_collective(operation(planned.event->op), choice);
  }

 private:
  enum class Received { sum, root, slices };
  /// For apply_collective(): what is received and where it is written decide together which call is made.
  struct CallChoice {
    FoldedMeeting& meeting;
    const numeric::PlannedEvent& planned;
    const LocalPlan::Meeting& members;
    const std::vector<Value*>& values;
    const std::vector<Intervals>& parts;
    const Intervals& everything;
    std::int64_t count;

    Received reduce() {
      meeting.add_up(values, everything, count);
      return Received::sum;
    }
    Received root() { return Received::root; }
    Received slices() { return Received::slices; }
    void write_everywhere(Received received) {
      if (received == Received::sum) return meeting.reduce_for_all(planned, members, values, everything);
      if (received == Received::root) return meeting.spread(planned, members, values, everything);
      throw InternalError(unknown);
    }
    void write_own_slices(Received received) {
      if (received != Received::sum) throw InternalError(unknown);
      meeting.reduce_slices(planned, members, values, parts);
    }
    void write_every_slice(Received received) {
      if (received != Received::slices) throw InternalError(unknown);
      meeting.gather(members, values, parts);
    }
    void write_root(Received received) {
      if (received != Received::sum) throw InternalError(unknown);
      meeting.reduce_for_root(planned, members, values, everything);
    }
    static constexpr const char* unknown = "a collective that the mpi engine has no call for";
  };

  static constexpr Number number = number_of<Value>;

  static bool alone(const LocalPlan::Meeting& members) { return members.processes.size() == 1; }

  static void pack(const Value* from, const Intervals& places, std::vector<Value>& packed) {
    for (const Interval& each : places) packed.insert(packed.end(), from + each.begin, from + each.end);
  }
  /// Returns what follows behind what was taken.
  static const Value* unpack(const Value* packed, const Intervals& places, Value* to) {
    for (const Interval& each : places) {
      std::copy_n(packed, each.size(), to + each.begin);
      packed += each.size();
    }
    return packed;
  }

  /// sum_ becomes the sum of the members that are here, at the places of `everything`.
  void add_up(const std::vector<Value*>& values, const Intervals& everything, std::int64_t count) {
    sum_.resize(static_cast<std::size_t>(count));
    for (const Interval& each : everything) {
      std::copy_n(values.front() + each.begin, each.size(), sum_.data() + each.begin);
      for (std::size_t i = 1; i < values.size(); ++i)
        numeric::add(sum_.data() + each.begin, values[i] + each.begin, static_cast<std::size_t>(each.size()));
    }
  }

  static void average(const numeric::PlannedEvent& planned, std::vector<Value>& values) {
    if (planned.event->average) numeric::scale(values.data(), planned.by, values.size());
  }

  void reduce_for_all(const numeric::PlannedEvent& planned, const LocalPlan::Meeting& members,
                      const std::vector<Value*>& values, const Intervals& everything) {
    sent_.clear();
    pack(sum_.data(), everything, sent_);
    if (!alone(members)) transport_.all_reduce(members.processes, number, sent_.data(), sent_.size());
    average(planned, sent_);
    for (Value* value : values) unpack(sent_.data(), everything, value);
  }

  void reduce_for_root(const numeric::PlannedEvent& planned, const LocalPlan::Meeting& members,
                       const std::vector<Value*>& values, const Intervals& everything) {
    const std::size_t root = at(planned.event->root);
    sent_.clear();
    pack(sum_.data(), everything, sent_);
    if (!alone(members)) transport_.reduce(members.processes, number, sent_.data(), sent_.size(), members.at[root]);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (members.members[i] != root) continue;
      average(planned, sent_);
      unpack(sent_.data(), everything, values[i]);
    }
  }

  void reduce_slices(const numeric::PlannedEvent& planned, const LocalPlan::Meeting& members,
                     const std::vector<Value*>& values, const std::vector<Intervals>& slices) {
    sent_.clear();
    for (const Intervals& slice : slices) pack(sum_.data(), slice, sent_);
    if (!alone(members)) {
      const std::vector<std::size_t> counts = counts_of(members, slices);
      received_.resize(counts[members.at[members.members.front()]]);
      transport_.reduce_scatter(members.processes, number, sent_.data(), received_.data(), counts);
      sent_.swap(received_);
    }
    average(planned, sent_);
    const Value* next = sent_.data();
    for (std::size_t i = 0; i < values.size(); ++i) next = unpack(next, slices[members.members[i]], values[i]);
  }

  void spread(const numeric::PlannedEvent& planned, const LocalPlan::Meeting& members,
              const std::vector<Value*>& values, const Intervals& everything) {
    const std::size_t root = at(planned.event->root);
    sent_.clear();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (members.members[i] == root) pack(values[i], everything, sent_);
    }
    if (sent_.empty()) sent_.resize(static_cast<std::size_t>(size(everything)));
    if (!alone(members)) transport_.broadcast(members.processes, number, sent_.data(), sent_.size(), members.at[root]);
    for (Value* value : values) unpack(sent_.data(), everything, value);
  }

  void gather(const LocalPlan::Meeting& members, const std::vector<Value*>& values,
              const std::vector<Intervals>& slices) {
    sent_.clear();
    for (std::size_t i = 0; i < values.size(); ++i) pack(values[i], slices[members.members[i]], sent_);
    if (!alone(members)) {
      const std::vector<std::size_t> counts = counts_of(members, slices);
      std::size_t all = 0;
      for (const std::size_t count : counts) all += count;
      received_.resize(all);
      transport_.all_gather(members.processes, number, sent_.data(), received_.data(), counts);
      sent_.swap(received_);
    }
    const Value* next = sent_.data();
    for (const Intervals& slice : slices) {
      const Value* from = next;
      for (Value* value : values) next = unpack(from, slice, value);
    }
  }

  /// Elements of the slices of each process's members.
  static std::vector<std::size_t> counts_of(const LocalPlan::Meeting& members, const std::vector<Intervals>& slices) {
    std::vector<std::size_t> counts(members.processes.size());
    for (std::size_t member = 0; member < members.at.size(); ++member)
      counts[members.at[member]] += static_cast<std::size_t>(size(slices[member]));
    return counts;
  }

  Transport& transport_;
  std::vector<Value> sum_, sent_, received_;  // kept for their memory
};

}  // namespace lockstep::device
