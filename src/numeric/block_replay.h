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
#include "src/numeric/generator.h"
#include "src/numeric/kept_numbers.h"
#include "src/numeric/kernels.h"
#include "src/numeric/loops.h"
#include "src/numeric/replay.h"
#include "src/numeric/runs.h"
#include "src/numeric/shared_blocks.h"

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
        blocks_(stride_),
        expected_(plan.pieces.size()),
        sums_(stride_),
        kept_(stride_),
        runs_(plan.pieces.size()) {}

  void run(const Interval& block) {
    block_ = block;
    count_ = static_cast<std::size_t>(block.size());
    contents_.assign(plan_.nodes.size(), {});
    references_.assign(plan_.pieces.size(), {});
    kept_.clear();
    for (std::size_t i = 0; i < plan_.pieces.size(); ++i) {
      const PieceUse& piece = plan_.pieces[i];
      find_runs(model_, piece.logical, piece.piece, intersect(block, Interval{0, piece.numel}), runs_[i]);
    }
    for (const PlannedEvent& planned : plan_.events) {
      if (planned.event) {
        apply(planned);
      } else {
        check(planned);
      }
    }
    for (std::size_t i = 0; i < plan_.pieces.size(); ++i) hash_reference(static_cast<int>(i));
  }

  using Elements = typename SharedBlocks<Value>::Elements;

  /// What a buffer holds: zeros, numbers of the generator times a factor, or elements. The first two are not written
  /// out before something reads them one by one.
  struct Content {
    Elements elements;                      ///< where there are any
    const std::int32_t* numbers = nullptr;  ///< else, kept ones where there are any
    float factor = 0;
    bool is_zero() const { return !elements && numbers == nullptr; }
  };

  // The algebra of apply_collective; its values are contents.
  Content reduce(const std::vector<Content>& values, bool average) {
    const Factor* factor = average ? average_ : nullptr;
    Elements result = blocks_.take();
    if constexpr (std::is_same_v<Value, float>) {
      numbers_.clear();
      const Value* elements = nullptr;  // of the one that holds some, where any holds numbers
      for (const Content& value : values) {
        if (value.elements) {
          elements = value.elements.read();
        } else {
          numbers_.push_back({value.numbers, value.factor});
        }
      }
      if (!numbers_.empty()) {
        add_all(result.write(), elements, numbers_, factor, acted_on_);
        return {result};
      }
    }
    terms_.clear();
    for (const Content& value : values) terms_.push_back(value.elements.read());
    add_all(result.write(), terms_, factor, acted_on_);
    return {result};
  }
  /// The source holds elements.
  void place(Content& target, const Intervals& elements, const Content& source) {
    if (elements.size() == 1 && elements.front().size() == static_cast<std::int64_t>(acted_on_)) {
      target = source;
    } else if (!elements.empty() && !(target.elements == source.elements)) {
      Value* to = write(target);
      for (const Interval& interval : elements) {
        std::memcpy(to + interval.begin, source.elements.read() + interval.begin,
                    static_cast<std::size_t>(interval.size()) * sizeof(Value));
      }
    }
  }

 private:
  Value* write(Content& content) {
    if (content.elements && !content.elements.is_shared()) return content.elements.write();
    Elements own = blocks_.take();
    if (content.elements) {
      std::copy_n(content.elements.read(), count_, own.write());
    } else if (content.numbers != nullptr) {
      if constexpr (std::is_same_v<Value, float>) convert(content.numbers, content.factor, count_, own.write());
    } else {
      std::fill_n(own.write(), count_, Value{});
    }
    content = {std::move(own)};
    return content.elements.write();
  }
  const Value* read(Content& content) { return content.elements ? content.elements.read() : write(content); }
  Content& content_of(int node) { return contents_[at(node)]; }
  Value* expected(int piece) {
    AlignedVector<Value>& values = expected_[at(piece)];
    if (values.empty()) values.resize(stride_);
    return values.data();
  }
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
      if (view == nullptr) {
        apply_locally(planned, {0, static_cast<std::int64_t>(count_)});
      } else {
        for (const Interval& part : within(*view, block_)) apply_locally(planned, part);
      }
    }
    settle(planned);
  }

  /// A local step on part of the block.
  void apply_locally(const PlannedEvent& planned, const Interval& part) {
    LocalChange change{*this, planned, part, static_cast<std::size_t>(part.size())};
    apply_local(operation(planned.event->op), change);
  }
  /// Part of a buffer in a local step, for apply_local(). What is not written to is shared, or not there yet.
  struct LocalChange {
    BlockReplay& replay;
    const PlannedEvent& planned;
    const Interval& part;
    std::size_t count;

    bool is_whole() const { return count == replay.count_; }
    Content& target() { return replay.content_of(planned.nodes.front()); }
    Content& from() { return replay.content_of(planned.from); }
    Value* target_elements() { return replay.write(target()) + part.begin; }
    void clear() {
      if (is_whole()) {
        target() = {};
      } else {
        std::fill_n(target_elements(), count, Value{});
      }
    }
    void multiply() { scale(target_elements(), planned.by, count); }
    void clip() {}
    void take_over() {
      if (planned.from == planned.nodes.front()) return;
      if (is_whole()) {
        target() = Content(from());
      } else {
        std::memcpy(target_elements(), replay.read(from()) + part.begin, count * sizeof(Value));
      }
    }
    void add_buffer() {
      if (is_whole() && target().is_zero()) {
        target() = Content(from());
      } else {
        Value* sum = target_elements();
        add(sum, replay.read(from()) + part.begin, count);
      }
    }
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
        Content& content = content_of(node);
        if (content.is_zero() && here.size() == static_cast<std::int64_t>(count_)) {
          content = generated(term, first);
        } else {
          add_generated(write(content) + here.begin, term, options_.bits, first, static_cast<std::size_t>(here.size()));
        }
      }
    }
  }

  /// The whole block.
  Content generated(const GeneratedTerm& term, std::uint64_t first) {
    if constexpr (std::is_same_v<Value, float>) {
      if (std::int32_t* kept = kept_.keep(term.key, first, count_)) {
        generate(term.key, options_.bits, first, count_, kept);
        return {{}, kept, static_cast<float>(term.factor.multiply)};
      }
    }
    Elements elements = blocks_.take();
    set_generated(elements.write(), term, options_.bits, first, count_);
    return {std::move(elements)};
  }

  void collective_in_block(const PlannedEvent& planned) {
    const Intervals* view = planned.views.empty() ? nullptr : planned.views.front();
    take_values(planned);
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
    for (std::size_t i = 0; i < planned.nodes.size(); ++i) content_of(planned.nodes[i]) = std::move(values_[i]);
  }

  /// What the members hold; the nodes are left without, so that it is shared with nobody. Elements, but where all hold
  /// numbers, or all but one that holds elements, and nothing is done but to add them up.
  void take_values(const PlannedEvent& planned) {
    values_.clear();
    for (const int node : planned.nodes) values_.push_back(std::move(content_of(node)));
    const bool reduces = operation(planned.event->op).value == Operation::Value::reduction;
    const auto has_numbers = [](const Content& value) { return value.numbers != nullptr; };
    const auto others = std::find_if_not(values_.begin(), values_.end(), has_numbers);
    const bool one_other = others != values_.end() && others->elements && values_.size() > 1 &&
                           std::all_of(std::next(others), values_.end(), has_numbers);
    if (reduces && (others == values_.end() || one_other)) return;
    for (Content& value : values_) read(value);
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
    values_.assign(views.size(), {});
    slices_.assign(planned.nodes.size(), {});
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (static_cast<std::size_t>(size(views[i])) != length)
        throw InternalError("members of a collective act on different numbers of elements");
      Elements stretch = blocks_.take();
      Value* to = stretch.write();
      const Value* from = read(content_of(planned.nodes[i]));
      for (const Interval& interval : views[i]) to = std::copy(from + interval.begin, from + interval.end, to);
      values_[i] = {std::move(stretch)};
      if (planned.cut)
        slices_[i] = within({planned.cut->slice(static_cast<int>(i))}, {0, static_cast<std::int64_t>(length)});
    }
    everything_ = within({{0, static_cast<std::int64_t>(length)}}, {0, static_cast<std::int64_t>(length)});
    apply_row(planned, length);
    for (std::size_t i = 0; i < views.size(); ++i) {
      const Value* from = values_[i].elements.read();
      Value* to = write(content_of(planned.nodes[i]));
      for (const Interval& interval : views[i]) {
        std::copy_n(from, static_cast<std::size_t>(interval.size()), to + interval.begin);
        from += interval.size();
      }
    }
    values_.clear();
  }

  void apply_row(const PlannedEvent& planned, std::size_t count) {
    acted_on_ = count;
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
        Content& content = content_of(node);
        if (!(brain ? round_to_bfloat16(write(content), count_) : fits_float16(read(content), count_)))
          throw InternalError("a value was rounded to 16 bits in an exact replay");
      }
    }
  }

  void compute_expected(int piece);
  void generate_expected(std::size_t piece, const PieceUse::Expected& sum);
  bool find_kept(std::size_t piece, const PieceUse::Expected& sum);
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

  /// What a comparison with the reference found. It keeps the elements from being written over.
  struct Compared {
    Elements elements;
    Interval part;
    bool right = true;
    GradientHash got;
  };
  /// What is known of a piece's reference in one optimizer step.
  struct ReferenceOfPiece {
    int step = -1;
    int hashed_step = -1;      ///< the last whose hash is in the findings
    bool is_computed = false;  ///< in `expected_`
    Interval part;             ///< of the hash; empty: there is none
    GradientHash hash;
    Compared last;  ///< buffers of several ranks may hold the same block
  };
  const GradientHash& expected_hash(int piece, const Interval& part);
  void hash_reference(int piece);
  void begin_reference(int piece, int optimizer_step);
  bool is_expected(int node, int piece, const Interval& part);
  const Compared& compare(int node, int piece, const Interval& part);

  void check(const PlannedEvent& planned) {
    const int node = planned.nodes.front();
    const int piece = plan_.nodes[at(node)].piece;
    begin_reference(piece, planned.optimizer_step);
    Findings::Check& found = findings_.checks[at(planned.check)];
    for (const Interval& owned : *planned.owned) {
      const Interval part = intersect(owned, block_);
      if (part.empty()) continue;
      const Compared& compared = compare(node, piece, part);
      if (!compared.right) found.right = false;
      if (!options_.hashes) continue;
      found.expected += expected_hash(piece, part);
      found.got += compared.got;
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

  SharedBlocks<Value> blocks_;
  std::vector<AlignedVector<Value>> expected_;  // by piece
  AlignedVector<Whole> sums_;
  KeptNumbers kept_;
  std::vector<Content> contents_;             // by node
  std::vector<ReferenceOfPiece> references_;  // by piece
  std::vector<std::vector<Run>> runs_;        // by piece
  Interval block_;
  std::size_t count_ = 0;
  std::vector<Multiple<std::int32_t>> multiples_;  // of find_kept()
  // For one collective; kept for their memory.
  std::vector<Content> values_;
  std::vector<Multiple<float>> numbers_;
  std::vector<const Value*> terms_;
  std::vector<Intervals> slices_;
  Intervals everything_;
  std::size_t acted_on_ = 0;  // elements
  const Factor* average_ = nullptr;
};

/// Whether the replay generated all numbers of the sum before: they are in `multiples_` then.
template <class Value>
bool BlockReplay<Value>::find_kept(std::size_t piece, const PieceUse::Expected& sum) {
  if constexpr (!std::is_same_v<Value, float>) return false;
  const std::vector<Run>& runs = runs_[piece];
  if (runs.size() != 1 || begin_of(runs.front()) != 0 || static_cast<std::size_t>(runs.front().count) != count_)
    return false;
  multiples_.clear();
  for (const GeneratedTerm& term : sum.terms) {
    const std::int32_t* numbers = kept_.find(term.key, runs.front().global, count_);
    if (numbers == nullptr) return false;
    multiples_.push_back({numbers, static_cast<std::int32_t>(term.factor.whole)});
  }
  return true;
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
void BlockReplay<Value>::compute_expected(int piece) {
  ReferenceOfPiece& reference = references_[at(piece)];
  if (reference.is_computed) return;
  reference.is_computed = true;
  const PieceUse::Expected& sum = plan_.pieces[at(piece)].expected[at(reference.step)];
  if (!find_kept(at(piece), sum)) return generate_expected(at(piece), sum);
  if constexpr (std::is_same_v<Value, float>) {
    loops().add_up_float32(expected(piece), std::ldexp(1.0f, sum.unit), multiples_.data(), multiples_.size(), count_);
  }
}

/// From here on the reference of this piece is that of this step.
template <class Value>
void BlockReplay<Value>::begin_reference(int piece, int optimizer_step) {
  ReferenceOfPiece& reference = references_[at(piece)];
  if (reference.step == optimizer_step) return;
  hash_reference(piece);
  const int hashed = reference.hashed_step;
  reference = {};
  reference.step = optimizer_step;
  reference.hashed_step = hashed;
}

template <class Value>
bool BlockReplay<Value>::is_expected(int node, int piece, const Interval& part) {
  const Value* values = read(content_of(node));
  const ReferenceOfPiece& reference = references_[at(piece)];
  const auto count = static_cast<std::size_t>(part.size());
  if constexpr (std::is_same_v<Value, float>) {
    const PieceUse::Expected& sum = plan_.pieces[at(piece)].expected[at(reference.step)];
    if (!reference.is_computed && count == count_ && find_kept(at(piece), sum))
      return loops().equal_sum_float32(values, std::ldexp(1.0f, sum.unit), multiples_.data(), multiples_.size(), count);
  }
  compute_expected(piece);
  const auto begin = static_cast<std::size_t>(part.begin - block_.begin);
  return equal(values + begin, expected(piece) + begin, count);
}

template <class Value>
auto BlockReplay<Value>::compare(int node, int piece, const Interval& part) -> const Compared& {
  ReferenceOfPiece& reference = references_[at(piece)];
  const Elements& elements = content_of(node).elements;
  const auto same = [](const Interval& a, const Interval& b) { return a.begin == b.begin && a.end == b.end; };
  if (elements && elements == reference.last.elements && same(part, reference.last.part)) return reference.last;
  const bool right = is_expected(node, piece, part);
  reference.last = {content_of(node).elements, part, right, {}};
  if (!options_.hashes) return reference.last;
  // What is equal has the same hash.
  if (!right || !same(part, reference.part)) reference.last.got = hash_of(elements.read(), piece, part);
  if (right && !same(part, reference.part)) {
    reference.part = part;
    reference.hash = reference.last.got;
  } else if (right) {
    reference.last.got = reference.hash;
  }
  return reference.last;
}

template <class Value>
const GradientHash& BlockReplay<Value>::expected_hash(int piece, const Interval& part) {
  ReferenceOfPiece& reference = references_[at(piece)];
  if (reference.part.empty() || reference.part.begin != part.begin || reference.part.end != part.end) {
    compute_expected(piece);
    reference.part = part;
    reference.hash = hash_of(expected(piece), piece, part);
  }
  return reference.hash;
}

/// Adds the reference's hash to the findings, once for each step: ranks may end a step at different times.
template <class Value>
void BlockReplay<Value>::hash_reference(int piece) {
  ReferenceOfPiece& reference = references_[at(piece)];
  if (!options_.hashes || !options_.hashed[at(piece)] || reference.step <= reference.hashed_step) return;
  reference.hashed_step = reference.step;
  findings_.reference[at(reference.step)][at(piece)] +=
      expected_hash(piece, intersect(block_, Interval{0, plan_.pieces[at(piece)].numel}));
}

}  // namespace lockstep::numeric
