// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "lockstep/collective.h"
#include "lockstep/local_step.h"
#include "src/base/at.h"
#include "src/numeric/kept_numbers.h"
#include "src/numeric/kernels.h"
#include "src/numeric/loops.h"
#include "src/numeric/replay.h"
#include "src/numeric/runs.h"

namespace lockstep::numeric {

/// The elements of `set` in `block`, counted from its beginning.
Intervals within(const Intervals& set, const Interval& block);

/// One block of elements of all buffers of a plan, in cache. Value is float, double or a residue.
template <class Value>
class BlockReplay {
 public:
  BlockReplay(const Model& model, const Plan& plan, const ReplayOptions& options, std::int64_t block,
              Findings& findings)
      : model_(model),
        plan_(plan),
        options_(options),
        stride_(static_cast<std::size_t>(block)),
        findings_(findings),
        data_(plan.nodes.size() * stride_),
        expected_(plan.pieces.size() * stride_),
        scratch_(stride_),
        sums_(stride_),
        kept_(stride_),
        runs_(plan.pieces.size()) {}

  void run(const Interval& block) {
    block_ = block;
    count_ = static_cast<std::size_t>(block.size());
    is_zero_.assign(plan_.nodes.size(), 1);
    expected_step_.assign(plan_.pieces.size(), -1);
    reference_hashed_.assign(plan_.pieces.size(), -1);
    expected_hashes_.assign(plan_.pieces.size(), {});
    kept_.clear();
    for (std::size_t i = 0; i < plan_.pieces.size(); ++i) {
      const PieceUse& piece = plan_.pieces[i];
      runs_[i] = find_runs(model_, piece.logical, piece.piece, intersect(block, Interval{0, piece.numel}));
    }
    for (const PlannedEvent& planned : plan_.events) {
      if (planned.event) {
        apply(planned);
      } else {
        check(planned);
      }
    }
  }

  // The algebra of apply_collective; a Value* is a member's elements.
  Value* reduce(const std::vector<Value*>& values, bool average) {
    if (values.size() == 1) {
      std::copy_n(values.front(), reduced_count_, scratch_.data());
    } else {
      add(scratch_.data(), values[0], values[1], reduced_count_);
    }
    for (std::size_t i = 2; i < values.size(); ++i) add(scratch_.data(), values[i], reduced_count_);
    if (average) scale(scratch_.data(), *average_, reduced_count_);
    return scratch_.data();
  }
  void place(Value* target, const Intervals& elements, const Value* source) {
    if (target == source) return;
    for (const Interval& interval : elements) {
      std::memcpy(target + interval.begin, source + interval.begin,
                  static_cast<std::size_t>(interval.size()) * sizeof(Value));
    }
  }

 private:
  Value* data(int node) {
    Value* values = place_of(node);
    char& is_zero = is_zero_[at(node)];
    if (is_zero) std::fill_n(values, count_, Value{});
    is_zero = 0;
    return values;
  }
  Value* place_of(int node) { return data_.data() + static_cast<std::size_t>(node) * stride_; }
  Value* expected(int piece) { return expected_.data() + static_cast<std::size_t>(piece) * stride_; }
  std::size_t begin_of(const Run& run) const { return static_cast<std::size_t>(run.local - block_.begin); }

  void apply(const PlannedEvent& planned) {
    if (operation(planned.event->op).collective) {
      if (planned.views.empty() || plan_.aligned) {
        collective_in_block(planned);
      } else {
        collective_of_stretches(planned);
      }
    } else {
      // "on": "owned" is a view of the one buffer.
      const Intervals* view = planned.views.empty() ? nullptr : planned.views.front();
      const Interval block{0, static_cast<std::int64_t>(count_)};
      for (const Interval& part : view ? within(*view, block_) : Intervals{block}) apply_locally(planned, part);
    }
    settle(planned);
  }

  /// A local step on part of the block.
  void apply_locally(const PlannedEvent& planned, const Interval& part) {
    LocalChange change{*this, planned, part, static_cast<std::size_t>(part.size())};
    apply_local(operation(planned.event->op), change);
  }
  /// Part of a buffer in a local step, for apply_local(). A buffer that is 0 throughout is not touched before it must.
  struct LocalChange {
    BlockReplay& replay;
    const PlannedEvent& planned;
    const Interval& part;
    std::size_t count;

    Value* target() { return replay.data(planned.nodes.front()) + part.begin; }
    const Value* from() { return replay.data(planned.from) + part.begin; }
    void clear() {
      if (count == replay.count_) {
        replay.is_zero_[at(planned.nodes.front())] = 1;
      } else {
        std::fill_n(target(), count, Value{});
      }
    }
    void multiply() { scale(target(), planned.by, count); }
    void take_over() { std::memmove(target(), from(), count * sizeof(Value)); }
    void add_buffer() { add(target(), from(), count); }
    void add_gradient() { replay.generate_terms(planned, part); }
    void add_leftover() { replay.generate_terms(planned, part); }
  };

  void generate_terms(const PlannedEvent& planned, const Interval& part) {
    const int node = planned.nodes.front();
    for (const Run& run : runs_[at(plan_.nodes[at(node)].piece)]) {
      const auto begin = static_cast<std::int64_t>(begin_of(run));
      const Interval here = intersect(part, Interval{begin, begin + run.count});
      if (here.empty()) continue;
      const std::uint64_t first = run.global + static_cast<std::uint64_t>(here.begin - begin);
      for (const GeneratedTerm& term : planned.terms) {
        char& is_zero = is_zero_[at(node)];
        if (is_zero && here.size() == static_cast<std::int64_t>(count_)) {
          set_terms(place_of(node), term, first);
          is_zero = 0;
        } else {
          add_generated(data(node) + here.begin, term, options_.bits, first, static_cast<std::size_t>(here.size()));
        }
      }
    }
  }

  /// The whole block.
  void set_terms(Value* values, const GeneratedTerm& term, std::uint64_t first) {
    if constexpr (std::is_same_v<Value, float>) {
      if (std::int32_t* kept = kept_.keep(term.key, first, count_))
        return set_generated_and_keep(values, kept, term, options_.bits, first, count_);
    }
    set_generated(values, term, options_.bits, first, count_);
  }

  void collective_in_block(const PlannedEvent& planned) {
    const Intervals* view = planned.views.empty() ? nullptr : planned.views.front();
    values_.clear();
    for (const int node : planned.nodes) values_.push_back(data(node));
    slices_.resize(planned.nodes.size());
    everything_.assign(count_ > 0 ? 1 : 0, Interval{0, static_cast<std::int64_t>(count_)});
    if (view) everything_ = within(*view, block_);
    for (std::size_t i = 0; i < planned.nodes.size(); ++i) {
      slices_[i].clear();
      if (!planned.cut) continue;
      const Interval slice = planned.cut->slice(static_cast<int>(i));
      if (view) {
        slices_[i] = within(expand(*view, slice), block_);
        continue;
      }
      const Interval here = intersect(slice, block_);
      if (!here.empty()) slices_[i].push_back({here.begin - block_.begin, here.end - block_.begin});
    }
    apply_row(planned, count_);
  }

  // Members act on different elements: position k of one stretch meets position k of the others.
  void collective_of_stretches(const PlannedEvent& planned) {
    const auto whole = [&](std::size_t member) {
      const int piece = plan_.nodes[at(planned.nodes[member])].piece;
      return Intervals{{0, plan_.pieces[at(piece)].numel}};
    };
    std::vector<Intervals> views;
    for (std::size_t i = 0; i < planned.nodes.size(); ++i)
      views.push_back(planned.views[i] ? *planned.views[i] : whole(i));
    const auto length = static_cast<std::size_t>(size(views.front()));
    std::vector<std::vector<Value>> stretches;
    values_.clear();
    slices_.assign(planned.nodes.size(), {});
    for (std::size_t i = 0; i < views.size(); ++i) {
      std::vector<Value>& stretch = stretches.emplace_back();
      const Value* from = data(planned.nodes[i]);
      for (const Interval& interval : views[i])
        stretch.insert(stretch.end(), from + interval.begin, from + interval.end);
      if (stretch.size() != length) throw InternalError("members of a collective act on different numbers of elements");
      if (planned.cut)
        slices_[i] = within({planned.cut->slice(static_cast<int>(i))}, {0, static_cast<std::int64_t>(length)});
    }
    for (std::vector<Value>& stretch : stretches) values_.push_back(stretch.data());
    everything_ = within({{0, static_cast<std::int64_t>(length)}}, {0, static_cast<std::int64_t>(length)});
    apply_row(planned, length);
    for (std::size_t i = 0; i < views.size(); ++i) {
      const Value* from = stretches[i].data();
      for (const Interval& interval : views[i]) {
        std::copy_n(from, static_cast<std::size_t>(interval.size()), data(planned.nodes[i]) + interval.begin);
        from += interval.size();
      }
    }
  }

  void apply_row(const PlannedEvent& planned, std::size_t count) {
    reduced_count_ = count;
    average_ = &planned.by;
    apply_collective(operation(planned.event->op), *this, values_, slices_, everything_, planned.event->root,
                     planned.event->average);
  }

  // The bound was checked beforehand; a rounding here is a mistake of ours.
  void settle(const PlannedEvent& planned) {
    if constexpr (std::is_same_v<Value, float>) {
      if (options_.arithmetic == Arithmetic::float32) return;
      const bool brain = options_.arithmetic == Arithmetic::bfloat16;
      for (const int node : planned.nodes) {
        if (!(brain ? round_to_bfloat16(data(node), count_) : fits_float16(data(node), count_)))
          throw InternalError("a value was rounded to 16 bits in an exact replay");
      }
    }
  }

  void compute_expected(int piece, int optimizer_step);
  void generate_expected(std::size_t piece, const PieceUse::Expected& sum);
  bool add_up_kept(std::size_t piece, const PieceUse::Expected& sum);
  GradientHash hash_of(const Value* values, int piece, const Interval& elements) const {
    GradientHash result;
    for (const Run& run : runs_[at(piece)]) {
      const Interval part = intersect(elements, Interval{run.local, run.local + run.count});
      if (part.empty()) continue;
      result += hash(values + (part.begin - block_.begin), static_cast<std::size_t>(part.size()),
                     run.global + static_cast<std::uint64_t>(part.begin - run.local), options_.arithmetic);
    }
    return result;
  }

  /// The reference's hash and those of the ranks that hold the same elements are computed once.
  const GradientHash& expected_hash(int piece, const Interval& part) {
    ExpectedHash& kept = expected_hashes_[at(piece)];
    if (kept.of.empty() || kept.of.begin != part.begin || kept.of.end != part.end)
      kept = {part, hash_of(expected(piece), piece, part)};
    return kept.hash;
  }

  void check(const PlannedEvent& planned) {
    const int node = planned.nodes.front();
    const int piece = plan_.nodes[at(node)].piece;
    if (expected_step_[at(piece)] != planned.optimizer_step) compute_expected(piece, planned.optimizer_step);
    Findings::Check& found = findings_.checks[at(planned.check)];
    for (const Interval& owned : *planned.owned) {
      const Interval part = intersect(owned, block_);
      if (part.empty()) continue;
      const std::size_t begin = static_cast<std::size_t>(part.begin - block_.begin);
      const bool right = equal(data(node) + begin, expected(piece) + begin, static_cast<std::size_t>(part.size()));
      if (!right) found.right = false;
      if (!options_.hashes) continue;
      const GradientHash wanted = expected_hash(piece, part);
      found.expected += wanted;
      found.got += right ? wanted : hash_of(data(node), piece, part);
    }
  }

  const Model& model_;
  const Plan& plan_;
  const ReplayOptions& options_;
  std::size_t stride_;
  Findings& findings_;
  // Whole numbers first, rounded once: 32 bits hold what float32 holds exactly.
  using Whole = std::conditional_t<std::is_same_v<Value, float>, std::int32_t,
                                   std::conditional_t<std::is_same_v<Value, double>, std::int64_t, std::uint64_t>>;
  struct ExpectedHash {
    Interval of;  ///< local elements; empty: not computed
    GradientHash hash;
  };

  std::vector<Value> data_, expected_, scratch_;
  std::vector<Whole> sums_;
  KeptNumbers kept_;
  std::vector<Multiple> multiples_;            // kept for its memory
  std::vector<char> is_zero_;                  // by node: nothing was written, and its data are not there yet
  std::vector<ExpectedHash> expected_hashes_;  // by piece: of what `expected_` holds
  std::vector<std::vector<Run>> runs_;         // by piece
  std::vector<int> expected_step_;             // by piece: what `expected_` holds
  std::vector<int> reference_hashed_;          // by piece: the last step whose reference was hashed
  Interval block_;
  std::size_t count_ = 0;
  // For one collective; kept for their memory.
  std::vector<Value*> values_;
  std::vector<Intervals> slices_;
  Intervals everything_;
  std::size_t reduced_count_ = 0;
  const Factor* average_ = nullptr;
};

/// What generate_expected() does, where the replay generated all numbers of the sum before.
template <class Value>
bool BlockReplay<Value>::add_up_kept(std::size_t piece, const PieceUse::Expected& sum) {
  if constexpr (std::is_same_v<Value, float>) {
    const std::vector<Run>& runs = runs_[piece];
    if (runs.size() != 1 || begin_of(runs.front()) != 0 || static_cast<std::size_t>(runs.front().count) != count_)
      return false;
    multiples_.clear();
    for (const GeneratedTerm& term : sum.terms) {
      const std::int32_t* numbers = kept_.find(term.key, runs.front().global, count_);
      if (numbers == nullptr) return false;
      multiples_.push_back({numbers, static_cast<std::int32_t>(term.factor.whole)});
    }
    loops().add_up_float32(expected(static_cast<int>(piece)), std::ldexp(1.0f, sum.unit), multiples_.data(),
                           multiples_.size(), count_);
    return true;
  } else {
    return false;
  }
}

template <class Value>
void BlockReplay<Value>::generate_expected(std::size_t piece, const PieceUse::Expected& sum) {
  Value* out = expected(static_cast<int>(piece));
  std::fill_n(sums_.data(), count_, Whole{0});
  for (const Run& run : runs_[piece]) {
    for (const GeneratedTerm& term : sum.terms) {
      if constexpr (std::is_same_v<Value, std::uint64_t>) {
        add_reference(term.key, term.factor.residue, run.global, static_cast<std::size_t>(run.count),
                      sums_.data() + begin_of(run));
      } else {
        add_reference(term.key, options_.bits, term.factor.whole, run.global, static_cast<std::size_t>(run.count),
                      sums_.data() + begin_of(run));
      }
    }
  }
  if constexpr (std::is_same_v<Value, std::uint64_t>) {
    std::copy_n(sums_.data(), count_, out);
  } else {
    convert(sums_.data(), static_cast<Value>(std::ldexp(1.0, sum.unit)), count_, out);
  }
}

template <class Value>
void BlockReplay<Value>::compute_expected(int piece, int optimizer_step) {
  const auto index = static_cast<std::size_t>(piece);
  const PieceUse::Expected& sum = plan_.pieces[index].expected[at(optimizer_step)];
  if (!add_up_kept(index, sum)) generate_expected(index, sum);
  expected_step_[index] = optimizer_step;
  expected_hashes_[index] = {};
  // Ranks may end a step at different times, so that a step may be computed twice.
  if (options_.hashes && options_.hashed[index] && reference_hashed_[index] < optimizer_step) {
    reference_hashed_[index] = optimizer_step;
    GradientHash& total = findings_.reference[at(optimizer_step)][index];
    total += expected_hash(piece, intersect(block_, Interval{0, plan_.pieces[index].numel}));
  }
}

}  // namespace lockstep::numeric
