// SPDX-License-Identifier: Apache-2.0
#include "src/device/gpu_program.h"

#include <algorithm>
#include <cmath>

#include "lockstep/collective.h"
#include "lockstep/local_step.h"
#include "src/base/at.h"
#include "src/device/network_meeting.h"
#include "src/device/program_writer.h"
#include "src/numeric/runs.h"

namespace lockstep::device {

namespace {

using kernels::Kind;
using kernels::Span;
using numeric::GeneratedTerm;
using numeric::PlannedEvent;

class ProgramMaker {
 public:
  ProgramMaker(const Model& model, const numeric::Plan& plan, const numeric::ReplayOptions& options,
               const GpuLayout& layout, const Block& block)
      : model_(model),
        plan_(plan),
        options_(options),
        layout_(layout),
        local_(layout.local()),
        block_(block),
        everything_(block.count() > 0 ? Intervals{{0, static_cast<std::int64_t>(block.count())}} : Intervals{}),
        expected_step_(plan.pieces.size(), -1),
        reference_hashed_(plan.pieces.size(), -1),
        writer_(options.bits),
        over_network_(writer_, layout, options.arithmetic == Arithmetic::prime61) {}

  GpuProgram make() {
    for (std::size_t piece = 0; piece < plan_.pieces.size(); ++piece)
      runs_.push_back(local_.piece_slot[piece] >= 0 ? find_stored_runs(piece) : std::vector<StoredRun>());
    for (std::size_t number = 0; number < plan_.events.size(); ++number) {
      const PlannedEvent& planned = plan_.events[number];
      writer_.at_event(number);
      if (!local_.meetings[number].members.empty()) {
        meet(planned, local_.meetings[number]);
      } else if (layout_.is_here(planned.nodes.front()) && !is_collective(planned)) {
        planned.event != nullptr ? apply(planned) : check(planned);
      }
    }
    return std::move(writer_.program);
  }

 private:
  static bool is_collective(const PlannedEvent& planned) {
    return planned.event != nullptr && operation(planned.event->op).collective;
  }
  std::vector<StoredRun> find_stored_runs(std::size_t piece) const {
    const numeric::PieceUse& use = plan_.pieces[piece];
    std::vector<StoredRun> stored;
    for (std::size_t i = 0; i < block_.elements().size(); ++i) {
      const Interval& elements = block_.elements()[i];
      const std::int64_t shift = block_.begin_of(i) - elements.begin;
      const Interval held = intersect(elements, Interval{0, use.numel});
      if (held.empty()) continue;
      for (const numeric::Run& run : numeric::find_runs(model_, use.logical, use.piece, held))
        stored.push_back({{run.local + shift, run.local + shift + run.count}, run.global});
    }
    return stored;
  }

  int piece_of(int node) const { return plan_.nodes[at(node)].piece; }
  /// The parts of the block on which a call acts: "on": "owned" is a view of the buffer.
  Intervals parts_of(const PlannedEvent& planned) const {
    const Intervals* view = planned.views.empty() ? nullptr : planned.views.front();
    return view != nullptr ? block_.places(*view) : everything_;
  }

  /// Spans for what of the piece is stored at `parts`.
  void add_runs(int piece, const Intervals& parts) {
    auto from = parts.begin();
    for (const StoredRun& run : runs_[at(piece)]) {
      // Both ascend: what ends in front of this run is of no use to later ones.
      while (from != parts.end() && from->end <= run.place.begin) ++from;
      for (auto part = from; part != parts.end() && part->begin < run.place.end; ++part) {
        const Interval both = intersect(*part, run.place);
        if (!both.empty())
          writer_.add_span(both, run.global + static_cast<std::uint64_t>(both.begin - run.place.begin));
      }
    }
  }

  /// The same, cut where a stretch of the generator ends, and with its terms.
  void add_runs(int piece, const Intervals& parts, const std::vector<GeneratedTerm>& terms) {
    writer_.instruction().terms = static_cast<std::uint32_t>(terms.size());
    std::vector<std::pair<std::uint64_t, std::uint64_t>> rows;  // stretch, offset of its addends
    const std::size_t first = writer_.program.spans.size();
    add_runs(piece, parts);
    const std::vector<Span> whole(writer_.program.spans.begin() + static_cast<std::ptrdiff_t>(first),
                                  writer_.program.spans.end());
    writer_.program.spans.resize(first);
    for (Span span : whole) {
      while (span.begin < span.end) {
        const std::uint64_t stretch = span.other >> 32;
        const std::uint64_t left = ((stretch + 1) << 32) - span.other;
        Span part = span;
        part.end = std::min(span.end, span.begin + left);
        if (rows.empty() || rows.back().first != stretch) {
          const auto known =
              std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.first == stretch; });
          if (known == rows.end()) {
            rows.emplace_back(stretch, add_addends(terms, stretch));
          } else {
            std::swap(*known, rows.back());
          }
        }
        part.what = rows.back().second;
        writer_.program.spans.push_back(part);
        span.other += part.end - part.begin;
        span.begin = part.end;
      }
    }
  }
  std::uint64_t add_addends(const std::vector<GeneratedTerm>& terms, std::uint64_t stretch) {
    const std::uint64_t offset = writer_.program.addends.size();
    for (const GeneratedTerm& term : terms) {
      const bool in_field = options_.arithmetic == Arithmetic::prime61;
      writer_.program.addends.push_back({in_field ? term.key : kernels::stretch_key(term.key, stretch),
                                         term.factor.multiply, term.factor.whole, term.factor.residue});
    }
    return offset;
  }

  /// A local step.
  void apply(const PlannedEvent& planned) {
    LocalChange change{*this, planned};
    apply_local(operation(planned.event->op), change);
  }
  /// One buffer in a local step, for apply_local().
  struct LocalChange {
    ProgramMaker& maker;
    const PlannedEvent& planned;

    void write(Kind kind, const auto& fill) const {
      fill(maker.writer_.begin(kind, maker.layout_.slot_of_node(planned.nodes.front())));
      for (const Interval& part : maker.parts_of(planned)) maker.writer_.add_span(part);
      maker.writer_.end();
    }
    void write_with_other(Kind kind) const {
      write(kind, [&](kernels::Instruction& made) { made.from = maker.layout_.slot_of_node(planned.from); });
    }
    void clear() const {
      write(Kind::zero, [](kernels::Instruction&) {});
    }
    void multiply() const {
      write(Kind::scale, [&](kernels::Instruction& made) { made.factor = factor(planned.by); });
    }
    void clip() const {}
    void take_over() const {
      if (planned.from != planned.nodes.front()) write_with_other(Kind::copy);
    }
    void add_buffer() const { write_with_other(Kind::accumulate); }
    void add_gradient() const { generate(); }
    void add_leftover() const { generate(); }
    void generate() const {
      if (planned.terms.empty()) return;
      const int node = planned.nodes.front();
      maker.writer_.begin(Kind::generate, maker.layout_.slot_of_node(node));
      maker.add_runs(maker.piece_of(node), maker.parts_of(planned), planned.terms);
      maker.writer_.end();
    }
  };
  static kernels::Factor factor(const numeric::Factor& of) { return {of.multiply, of.divide, of.residue}; }

  void meet(const PlannedEvent& planned, const LocalPlan::Meeting& members) {
    if (!operation(planned.event->op).changes()) return;
    std::vector<std::uint32_t> slots;
    slots.reserve(members.members.size());
    for (const std::size_t member : members.members) slots.push_back(layout_.slot_of_node(planned.nodes[member]));
    std::vector<Intervals> slices(planned.nodes.size());
    if (planned.views.empty() || plan_.aligned) {
      const Intervals* view = planned.views.empty() ? nullptr : planned.views.front();
      for (std::size_t member = 0; planned.cut != nullptr && member < slices.size(); ++member) {
        const Interval positions = planned.cut->slice(static_cast<int>(member));
        if (!positions.empty())
          slices[member] = block_.places(view != nullptr ? expand(*view, positions) : Intervals{positions});
      }
      return meet(planned, members, slots, parts_of(planned), slices);
    }
    // Members act on different elements: position k of one stretch meets position k of the others.
    std::vector<Intervals> views;
    std::vector<std::uint32_t> stretches;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const std::size_t member = members.members[i];
      const std::int64_t numel = plan_.pieces[at(piece_of(planned.nodes[member]))].numel;
      views.push_back(planned.views[member] != nullptr ? *planned.views[member] : Intervals{{0, numel}});
      if (size(views[i]) != size(views.front()))
        throw InternalError("members of a collective act on different numbers of elements");
      stretches.push_back(layout_.stretch_slot(i));
      move(stretches[i], slots[i], views[i], true);
    }
    const Interval all{0, size(views.front())};
    for (std::size_t member = 0; planned.cut != nullptr && member < slices.size(); ++member) {
      const Interval positions = intersect(planned.cut->slice(static_cast<int>(member)), all);
      if (!positions.empty()) slices[member] = {positions};
    }
    meet(planned, members, stretches, all.empty() ? Intervals{} : Intervals{all}, slices);
    for (std::size_t i = 0; i < slots.size(); ++i) move(slots[i], stretches[i], views[i], false);
  }

  /// Between a buffer's elements in `view` and a stretch of them without gaps.
  void move(std::uint32_t target, std::uint32_t from, const Intervals& view, bool to_stretch) {
    std::vector<std::pair<Interval, std::int64_t>> places;
    std::int64_t position = 0;
    for (const Interval& each : view) {
      const Interval stretch{position, position + each.size()};
      places.emplace_back(to_stretch ? stretch : each, to_stretch ? each.begin : stretch.begin);
      position = stretch.end;
    }
    writer_.move(target, from, places);
  }

  void meet(const PlannedEvent& planned, const LocalPlan::Meeting& members, const std::vector<std::uint32_t>& slots,
            const Intervals& everything, const std::vector<Intervals>& slices) {
    if (layout_.is_called(members)) return over_network_.write(planned, members, slots, everything, slices);
    kernels::Instruction& instruction = writer_.begin(Kind::collective, slots.front());
    instruction.first_member = static_cast<std::uint32_t>(writer_.program.members.size());
    instruction.members = static_cast<std::uint32_t>(slots.size());
    if (planned.event->root >= 0) instruction.root = static_cast<std::uint32_t>(planned.event->root);
    writer_.program.members.insert(writer_.program.members.end(), slots.begin(), slots.end());
    Members all{writer_, instruction, planned, everything, slices};
    apply_collective(operation(planned.event->op), all);
    writer_.end();
  }
  /// The members of a collective that are all here, for apply_collective(): one instruction says who receives what.
  struct Members {
    ProgramWriter& writer;
    kernels::Instruction& instruction;
    const PlannedEvent& planned;
    const Intervals& everything;
    const std::vector<Intervals>& slices_of_members;

    kernels::Received reduce() {
      if (planned.event->average) instruction.factor = factor(planned.by);
      return kernels::Received::sum;
    }
    kernels::Received root() { return kernels::Received::root; }
    kernels::Received slices() { return kernels::Received::owner; }
    void write(kernels::Received received, kernels::Receiver receiver) {
      instruction.received = received;
      instruction.receiver = receiver;
    }
    void write_on_everything(kernels::Received received, kernels::Receiver receiver) {
      write(received, receiver);
      for (const Interval& each : everything) writer.add_span(each);
    }
    void write_on_slices(kernels::Received received, kernels::Receiver receiver) {
      write(received, receiver);
      for (std::size_t member = 0; member < slices_of_members.size(); ++member) {
        for (const Interval& each : slices_of_members[member]) writer.add_span(each, 0, member);
      }
      writer.sort_spans();
    }
    void write_everywhere(kernels::Received received) { write_on_everything(received, kernels::Receiver::everyone); }
    void write_own_slices(kernels::Received received) { write_on_slices(received, kernels::Receiver::owner); }
    void write_every_slice(kernels::Received received) { write_on_slices(received, kernels::Receiver::everyone); }
    void write_root(kernels::Received received) { write_on_everything(received, kernels::Receiver::root); }
  };

  void compute_expected(int piece, int optimizer_step) {
    const std::size_t index = at(piece);
    const std::size_t step = at(optimizer_step);
    const numeric::PieceUse::Expected& sum = plan_.pieces[index].expected[step];
    const bool hashed = options_.hashes && options_.hashed[index];
    const Intervals share = hashed ? block_.places(local_.shares[index]) : Intervals{};
    writer_.begin(Kind::reference, layout_.slot_of_piece(piece));
    writer_.instruction().unit = std::ldexp(1.0, sum.unit);
    add_runs(piece, unite(block_.places(local_.compared[index][step]), share), sum.terms);
    writer_.end();
    expected_step_[index] = optimizer_step;
    // Ranks may end a step at different times, so that a step may be computed twice.
    if (share.empty() || reference_hashed_[index] >= optimizer_step) return;
    reference_hashed_[index] = optimizer_step;
    writer_.begin(Kind::hash, layout_.slot_of_piece(piece));
    writer_.instruction().result = layout_.result_of_reference(optimizer_step, piece);
    add_runs(piece, share);
    writer_.end();
  }

  void check(const PlannedEvent& planned) {
    const int node = planned.nodes.front(), piece = piece_of(node);
    if (expected_step_[at(piece)] != planned.optimizer_step) compute_expected(piece, planned.optimizer_step);
    writer_.begin(Kind::check, layout_.slot_of_node(node));
    writer_.instruction().from = layout_.slot_of_piece(piece);
    writer_.instruction().hashes = options_.hashes ? 1 : 0;
    writer_.instruction().result = layout_.result_of_check(planned.check);
    add_runs(piece, block_.places(*planned.owned));
    writer_.end();
  }

  const Model& model_;
  const numeric::Plan& plan_;
  const numeric::ReplayOptions& options_;
  const GpuLayout& layout_;
  const LocalPlan& local_;
  const Block& block_;
  Intervals everything_;
  std::vector<std::vector<StoredRun>> runs_;  // by piece
  std::vector<int> expected_step_;            // by piece: what its slot holds
  std::vector<int> reference_hashed_;         // by piece: the last step whose reference was hashed
  ProgramWriter writer_;
  NetworkMeeting over_network_;
};

}  // namespace

GpuProgram make_gpu_program(const Model& model, const numeric::Plan& plan, const numeric::ReplayOptions& options,
                            const GpuLayout& layout, const Block& block) {
  return ProgramMaker(model, plan, options, layout, block).make();
}

}  // namespace lockstep::device
