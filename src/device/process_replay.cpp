// SPDX-License-Identifier: Apache-2.0
#include "src/device/process_replay.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "lockstep/local_step.h"
#include "src/base/at.h"
#include "src/device/block.h"
#include "src/device/meeting.h"
#include "src/numeric/kernels.h"
#include "src/numeric/runs.h"

namespace lockstep::device {

namespace {

using numeric::GeneratedTerm;
using numeric::PlannedEvent;

/// Calls work(place, global) for each stretch of elements that is in `run` and in `places`.
template <class Work>
void for_each_common(const std::vector<StoredRun>& runs, const Intervals& places, const Work& work) {
  for (const StoredRun& run : runs) {
    for (const Interval& each : places) {
      const Interval common = intersect(run.place, each);
      if (!common.empty()) work(common, run.global + static_cast<std::uint64_t>(common.begin - run.place.begin));
    }
  }
}

template <class Value>
class ProcessReplay {
 public:
  ProcessReplay(const Model& model, const numeric::Plan& plan, const numeric::ReplayOptions& options,
                const LocalPlan& local, Transport& transport, std::size_t stride, numeric::Findings& findings)
      : model_(model),
        plan_(plan),
        options_(options),
        local_(local),
        meeting_(transport),
        stride_(stride),
        findings_(findings),
        data_(static_cast<std::size_t>(local.slots) * stride_),
        expected_(static_cast<std::size_t>(local.piece_slots) * stride_),
        runs_(plan.pieces.size()) {}

  void run(const Block& block) {
    block_ = &block;
    count_ = block.count();
    std::fill(data_.begin(), data_.end(), Value{});
    expected_step_.assign(plan_.pieces.size(), -1);
    reference_hashed_.assign(plan_.pieces.size(), -1);
    for (std::size_t piece = 0; piece < plan_.pieces.size(); ++piece) {
      if (local_.piece_slot[piece] >= 0) find_stored_runs(piece);
    }
    for (std::size_t i = 0; i < plan_.events.size(); ++i) {
      const PlannedEvent& planned = plan_.events[i];
      if (!local_.meetings[i].members.empty()) {
        meet(planned, local_.meetings[i]);
      } else if (is_here(planned.nodes.front()) && !is_collective(planned)) {
        planned.event != nullptr ? apply(planned) : check(planned);
      }
    }
  }

 private:
  static bool is_collective(const PlannedEvent& planned) {
    return planned.event != nullptr && operation(planned.event->op).collective;
  }
  bool is_here(int node) const { return local_.slot[at(node)] >= 0; }
  Value* data(int node) { return data_.data() + static_cast<std::size_t>(local_.slot[at(node)]) * stride_; }
  Value* expected(std::size_t piece) {
    return expected_.data() + static_cast<std::size_t>(local_.piece_slot[piece]) * stride_;
  }
  std::size_t piece_of(int node) const { return static_cast<std::size_t>(plan_.nodes[at(node)].piece); }

  void find_stored_runs(std::size_t piece) {
    const numeric::PieceUse& use = plan_.pieces[piece];
    std::vector<StoredRun>& stored = runs_[piece];
    stored.clear();
    for (std::size_t i = 0; i < block_->elements().size(); ++i) {
      const Interval& elements = block_->elements()[i];
      const std::int64_t shift = block_->begin_of(i) - elements.begin;
      const Interval held = intersect(elements, Interval{0, use.numel});
      if (held.empty()) continue;
      for (const numeric::Run& run : numeric::find_runs(model_, use.logical, use.piece, held))
        stored.push_back({{run.local + shift, run.local + shift + run.count}, run.global});
    }
  }

  void apply(const PlannedEvent& planned) {
    // "on": "owned" is a view of the one buffer.
    const Intervals* view = planned.views.empty() ? nullptr : planned.views.front();
    const Intervals whole{{0, static_cast<std::int64_t>(count_)}};
    for (const Interval& part : view != nullptr ? block_->places(*view) : whole) apply_to(planned, part);
    settle(planned.nodes.front());
  }

  /// A local step on part of what is stored.
  void apply_to(const PlannedEvent& planned, const Interval& part) {
    LocalChange change{*this, planned, part, data(planned.nodes.front()) + part.begin,
                       static_cast<std::size_t>(part.size())};
    apply_local(operation(planned.event->op), change);
  }
  /// Part of a buffer in a local step, for apply_local().
  struct LocalChange {
    ProcessReplay& replay;
    const PlannedEvent& planned;
    const Interval& part;
    Value* target;
    std::size_t count;

    const Value* from() const { return replay.data(planned.from) + part.begin; }
    void clear() { std::fill_n(target, count, Value{}); }
    void multiply() { numeric::scale(target, planned.by, count); }
    void clip() {}
    void take_over() {
      if (from() != target) std::copy_n(from(), count, target);
    }
    void add_buffer() { numeric::add(target, from(), count); }
    void add_gradient() { replay.generate_terms(planned, part); }
    void add_leftover() { replay.generate_terms(planned, part); }
  };

  void generate_terms(const PlannedEvent& planned, const Interval& part) {
    const int node = planned.nodes.front();
    for (const StoredRun& run : runs_[piece_of(node)]) {
      const Interval here = intersect(part, run.place);
      if (here.empty()) continue;
      const std::uint64_t first = run.global + static_cast<std::uint64_t>(here.begin - run.place.begin);
      for (const GeneratedTerm& term : planned.terms) {
        numeric::add_generated(data(node) + here.begin, term, options_.bits, first,
                               static_cast<std::size_t>(here.size()));
      }
    }
  }

  void meet(const PlannedEvent& planned, const LocalPlan::Meeting& members) {
    values_.clear();
    for (const std::size_t member : members.members) values_.push_back(data(planned.nodes[member]));
    const auto stored = static_cast<std::int64_t>(count_);
    if (planned.views.empty() || plan_.aligned) {
      const Intervals* view = planned.views.empty() ? nullptr : planned.views.front();
      slices_.assign(planned.nodes.size(), {});
      for (std::size_t i = 0; planned.cut != nullptr && i < slices_.size(); ++i) {
        const Interval slice = planned.cut->slice(static_cast<int>(i));
        if (!slice.empty()) slices_[i] = block_->places(view != nullptr ? expand(*view, slice) : Intervals{slice});
      }
      const Intervals whole{{0, stored}};
      meeting_.apply(planned, members, values_, slices_, view != nullptr ? block_->places(*view) : whole, stored);
    } else {
      meet_in_stretches(planned, members);
    }
    for (const std::size_t member : members.members) settle(planned.nodes[member]);
  }

  // Members act on different elements: position k of one stretch meets position k of the others.
  void meet_in_stretches(const PlannedEvent& planned, const LocalPlan::Meeting& members) {
    std::vector<Intervals> views;
    std::vector<std::vector<Value>> stretches;
    for (std::size_t i = 0; i < members.members.size(); ++i) {
      const std::size_t member = members.members[i];
      const std::int64_t numel = plan_.pieces[piece_of(planned.nodes[member])].numel;
      const Intervals* view = planned.views[member];
      views.push_back(view != nullptr ? *view : Intervals{{0, numel}});
      std::vector<Value>& stretch = stretches.emplace_back();
      for (const Interval& each : views.back())
        stretch.insert(stretch.end(), values_[i] + each.begin, values_[i] + each.end);
      if (stretch.size() != stretches.front().size())
        throw InternalError("members of a collective act on different numbers of elements");
    }
    const Interval all{0, static_cast<std::int64_t>(stretches.front().size())};
    slices_.assign(planned.nodes.size(), {});
    for (std::size_t i = 0; planned.cut != nullptr && i < slices_.size(); ++i) {
      const Interval slice = intersect(planned.cut->slice(static_cast<int>(i)), all);
      if (!slice.empty()) slices_[i] = {slice};
    }
    const std::vector<Value*> whole = values_;
    for (std::size_t i = 0; i < stretches.size(); ++i) values_[i] = stretches[i].data();
    meeting_.apply(planned, members, values_, slices_, all.empty() ? Intervals{} : Intervals{all}, all.end);
    for (std::size_t i = 0; i < stretches.size(); ++i) {
      const Value* from = stretches[i].data();
      for (const Interval& each : views[i]) {
        std::copy_n(from, each.size(), whole[i] + each.begin);
        from += each.size();
      }
    }
  }

  // The bound was checked beforehand; a rounding here is a mistake of ours.
  void settle(int node) {
    if constexpr (std::is_same_v<Value, float>) {
      const bool kept = options_.arithmetic == Arithmetic::bfloat16  ? numeric::round_to_bfloat16(data(node), count_)
                        : options_.arithmetic == Arithmetic::float16 ? numeric::fits_float16(data(node), count_)
                                                                     : true;
      if (!kept) throw InternalError("a value was rounded to 16 bits in an exact replay");
    }
  }

  GradientHash hash_of(const Value* values, std::size_t piece, const Intervals& places) const {
    GradientHash result;
    for_each_common(runs_[piece], places, [&](const Interval& place, std::uint64_t global) {
      result +=
          numeric::hash(values + place.begin, static_cast<std::size_t>(place.size()), global, options_.arithmetic);
    });
    return result;
  }

  /// Where the elements are stored that this process hashes for the reference of the whole piece.
  Intervals share_of(std::size_t piece) const {
    return options_.hashes && options_.hashed[piece] ? block_->places(local_.shares[piece]) : Intervals{};
  }

  void compute_expected(std::size_t piece, int optimizer_step) {
    const std::size_t step = at(optimizer_step);
    const numeric::PieceUse::Expected& sum = plan_.pieces[piece].expected[step];
    const Intervals share = share_of(piece);
    const Intervals wanted = unite(block_->places(local_.compared[piece][step]), share);
    // Whole numbers first, rounded once: 32 bits hold what float32 holds exactly.
    using Whole = std::conditional_t<std::is_same_v<Value, float>, std::int32_t,
                                     std::conditional_t<std::is_same_v<Value, double>, std::int64_t, std::uint64_t>>;
    std::vector<Whole> sums(count_);
    for_each_common(runs_[piece], wanted, [&](const Interval& place, std::uint64_t global) {
      const auto length = static_cast<std::size_t>(place.size());
      for (const GeneratedTerm& term : sum.terms) {
        if constexpr (std::is_same_v<Value, std::uint64_t>) {
          numeric::add_reference(term.key, term.factor.residue, global, length, sums.data() + place.begin);
        } else {
          numeric::add_reference(term.key, options_.bits, term.factor.whole, global, length, sums.data() + place.begin);
        }
      }
    });
    Value* out = expected(piece);
    for (const Interval& each : wanted) {
      const auto begin = static_cast<std::size_t>(each.begin), end = static_cast<std::size_t>(each.end);
      if constexpr (std::is_same_v<Value, std::uint64_t>) {
        std::copy(sums.begin() + each.begin, sums.begin() + each.end, out + begin);
      } else {
        const auto unit = static_cast<Value>(std::ldexp(1.0, sum.unit));
        for (std::size_t i = begin; i < end; ++i) out[i] = static_cast<Value>(sums[i]) * unit;
      }
    }
    expected_step_[piece] = optimizer_step;
    // Ranks may end a step at different times, so that a step may be computed twice.
    if (share.empty() || reference_hashed_[piece] >= optimizer_step) return;
    reference_hashed_[piece] = optimizer_step;
    findings_.reference[step][piece] += hash_of(out, piece, share);
  }

  void check(const PlannedEvent& planned) {
    const int node = planned.nodes.front();
    const std::size_t piece = piece_of(node);
    if (expected_step_[piece] != planned.optimizer_step) compute_expected(piece, planned.optimizer_step);
    numeric::Findings::Check& found = findings_.checks[at(planned.check)];
    const Value* wanted = expected(piece);
    for (const Interval& place : block_->places(*planned.owned)) {
      const bool right =
          numeric::equal(data(node) + place.begin, wanted + place.begin, static_cast<std::size_t>(place.size()));
      if (!right) found.right = false;
      if (!options_.hashes) continue;
      const GradientHash expected_hash = hash_of(wanted, piece, {place});
      found.expected += expected_hash;
      found.got += right ? expected_hash : hash_of(data(node), piece, {place});
    }
  }

  const Model& model_;
  const numeric::Plan& plan_;
  const numeric::ReplayOptions& options_;
  const LocalPlan& local_;
  FoldedMeeting<Value> meeting_;
  std::size_t stride_;
  numeric::Findings& findings_;
  std::vector<Value> data_, expected_;
  std::vector<std::vector<StoredRun>> runs_;  // by piece; those that are here
  std::vector<int> expected_step_;            // by piece: what `expected_` holds
  std::vector<int> reference_hashed_;         // by piece: the last step whose reference was hashed
  const Block* block_ = nullptr;
  std::size_t count_ = 0;
  std::vector<Value*> values_;  // of one collective; kept for their memory
  std::vector<Intervals> slices_;
};

/// The same in all processes: the one that holds most sets the size.
std::int64_t elements_of_a_block(const numeric::Plan& plan, const LocalPlan& local) {
  if (!plan.aligned) return std::max<std::int64_t>(plan.numel, 1);
  constexpr std::int64_t scratch = 4;  // buffers that a collective needs besides
  const std::int64_t fitting = block_bytes / 8 / (local.most_slots + scratch);
  return std::clamp(fitting, least_block_elements, most_block_elements);
}

template <class Value>
void replay_blocks(const Model& model, const numeric::Plan& plan, const numeric::ReplayOptions& options,
                   const LocalPlan& local, Transport& transport, const Intervals& elements,
                   numeric::Findings& findings) {
  const std::vector<Block> blocks =
      cut_into_blocks(elements, elements_of_a_block(plan, local), plan.aligned ? transport.processes() : 1);
  std::size_t stride = 0;
  for (const Block& block : blocks) stride = std::max(stride, block.count());
  ProcessReplay<Value> replay(model, plan, options, local, transport, stride, findings);
  for (const Block& block : blocks) replay.run(block);
}

}  // namespace

numeric::Findings replay_in_process(const Model& model, const numeric::Plan& plan,
                                    const numeric::ReplayOptions& options, const LocalPlan& local, Transport& transport,
                                    const Intervals& elements) {
  numeric::Findings findings;
  findings.checks.resize(static_cast<std::size_t>(plan.checks));
  const std::size_t steps = plan.pieces.empty() ? 0 : plan.pieces.front().expected.size();
  findings.reference.assign(steps, std::vector<GradientHash>(plan.pieces.size()));
  if (elements.empty()) return findings;
  switch (options.arithmetic) {
    case Arithmetic::bfloat16:
    case Arithmetic::float16:
    case Arithmetic::float32:
      replay_blocks<float>(model, plan, options, local, transport, elements, findings);
      break;
    case Arithmetic::float64:
      replay_blocks<double>(model, plan, options, local, transport, elements, findings);
      break;
    case Arithmetic::prime61:
      replay_blocks<std::uint64_t>(model, plan, options, local, transport, elements, findings);
      break;
  }
  return findings;
}

}  // namespace lockstep::device
