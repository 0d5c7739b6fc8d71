// SPDX-License-Identifier: Apache-2.0
#include "src/device/stream_order.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "src/base/at.h"

namespace lockstep::device {

namespace {

// Stream 0 is for what runs in order. With many ranks several share a stream, which orders more than the schedule does.
constexpr unsigned reference_stream = 1, first_rank_stream = 2, rank_streams = 16,
                   first_side_stream = first_rank_stream + rank_streams, side_streams = streams - first_side_stream;

/// As long as a few large kernels take.
constexpr std::uint64_t longest_delay_ns = 50'000;

unsigned stream_of(int rank) { return first_rank_stream + static_cast<unsigned>(rank) % rank_streams; }

bool any_asynchronous(const Event& event) {
  return std::any_of(event.calls.begin(), event.calls.end(), [](const Call& call) { return call.step->async; });
}

}  // namespace

StreamOrder::StreamOrder(const Timeline& timeline, const numeric::Plan& plan) : plan_(&plan) {
  std::set<std::size_t> in_plan;
  for (const numeric::PlannedEvent& planned : plan.events) {
    if (planned.event == nullptr || !any_asynchronous(*planned.event)) continue;
    asynchronous_ = true;
    in_plan.insert(static_cast<std::size_t>(planned.event - timeline.events.data()));
  }
  if (!asynchronous_) return;
  std::size_t number = 0;
  for (const WaitPassed& wait : timeline.waits) {
    if (!in_plan.contains(wait.event)) continue;
    const auto stands_before = [&](const numeric::PlannedEvent& planned) {
      if (planned.event != nullptr) return static_cast<std::size_t>(planned.event - timeline.events.data());
      const std::size_t rank = at(plan.nodes[at(planned.nodes.front())].node.rank);
      return timeline.rank_ends[at(planned.optimizer_step)][rank];
    };
    while (number < plan.events.size() && stands_before(plan.events[number]) < wait.before) ++number;
    waits_.push_back({number, wait.rank, &timeline.events[wait.event]});
  }
}

/// One run of launch().
class StreamOrder::Launches {
 public:
  Launches(const StreamOrder& order, Gpu& gpu, kernels::Domain domain, const GpuBuffers& buffers, std::uint64_t delays,
           const std::function<void(const kernels::Instruction&)>& describe)
      : order_(order), gpu_(gpu), domain_(domain), buffers_(buffers), delays_(delays), describe_(describe) {}

  void run(const std::vector<kernels::Instruction>& instructions) {
    for (auto begin = instructions.begin(); begin != instructions.end();) {
      auto end = begin;
      while (end != instructions.end() && end->event == begin->event) ++end;
      pass_waits(begin->event);
      const numeric::PlannedEvent& planned = order_.plan_->events[begin->event];
      if (planned.event == nullptr) {
        compare(planned, begin, end);
      } else {
        perform(*planned.event, begin, end);
      }
      begin = end;
    }
  }

 private:
  using At = std::vector<kernels::Instruction>::const_iterator;

  /// A mark behind all that a stream was given so far; none where that is nothing.
  std::optional<std::uint32_t> mark_of(unsigned stream) {
    if (!used_[stream]) return std::nullopt;
    std::optional<std::uint32_t>& mark = marks_[stream];
    if (!mark) {
      gpu_.use_stream(stream);
      gpu_.record(next_mark_);
      mark = next_mark_++;
    }
    return mark;
  }
  void wait(unsigned stream, const std::optional<std::uint32_t>& mark) {
    if (!mark || mark == marks_[stream]) return;
    gpu_.use_stream(stream);
    gpu_.wait_for(*mark);
    marks_[stream].reset();
    used_[stream] = true;
  }
  void launch(unsigned stream, const kernels::Instruction& instruction) {
    describe_(instruction);
    gpu_.use_stream(stream);
    gpu_.perform(domain_, instruction, buffers_);
    marks_[stream].reset();
    used_[stream] = true;
  }

  void pass_waits(std::size_t before) {
    for (; next_wait_ < order_.waits_.size() && order_.waits_[next_wait_].before <= before; ++next_wait_) {
      const Wait& passed = order_.waits_[next_wait_];
      for (const std::uint32_t mark : ends_[passed.event]) wait(stream_of(passed.rank), mark);
    }
  }

  void perform(const Event& event, At begin, At end) {
    const bool side = any_asynchronous(event);
    const unsigned on = side ? first_side_stream + sides_++ % side_streams : stream_of(event.calls.front().rank);
    for (const Call& call : event.calls) {
      if (stream_of(call.rank) != on) wait(on, mark_of(stream_of(call.rank)));
    }
    // Where elements move, collectives share memory that is none of the schedule's.
    const bool moves = std::any_of(begin, end, [](const auto& each) { return each.kind == kernels::Kind::move; });
    if (moves) wait(on, end_of_moves_);
    if (side && delays_ != 0) delay(on);
    for (At each = begin; each != end; ++each) launch(on, *each);
    if (moves) end_of_moves_ = mark_of(on);
    if (side) ends_[&event].push_back(*mark_of(on));
    for (const Call& call : event.calls) {
      if (!call.step->async && stream_of(call.rank) != on) wait(stream_of(call.rank), mark_of(on));
    }
  }

  void delay(unsigned stream) {
    const std::uint64_t drawn = kernels::splitmix(delays_, sides_);
    if (drawn % 2 == 0) return;
    gpu_.use_stream(stream);
    gpu_.delay((drawn >> 1) % longest_delay_ns);
    marks_[stream].reset();
    used_[stream] = true;
  }

  /// References are no rank's: who reads one waits for it, and who writes the next waits for the readers.
  void compare(const numeric::PlannedEvent& planned, At begin, At end) {
    const unsigned own = stream_of(order_.plan_->nodes[at(planned.nodes.front())].node.rank);
    for (At each = begin; each != end; ++each) {
      if (each->kind == kernels::Kind::check) {
        Reference& reference = references_[each->from];
        wait(own, reference.written);
        launch(own, *each);
        reference.readers[own] = *mark_of(own);
        continue;
      }
      Reference& reference = references_[each->target];
      for (const auto& [stream, mark] : reference.readers) wait(reference_stream, mark);
      reference.readers.clear();
      launch(reference_stream, *each);
      reference.written = mark_of(reference_stream);
    }
  }

  struct Reference {
    std::optional<std::uint32_t> written;
    std::map<unsigned, std::uint32_t> readers;  // by stream
  };

  const StreamOrder& order_;
  Gpu& gpu_;
  kernels::Domain domain_;
  const GpuBuffers& buffers_;
  std::uint64_t delays_;
  const std::function<void(const kernels::Instruction&)>& describe_;
  std::array<std::optional<std::uint32_t>, streams> marks_;
  std::array<bool, streams> used_{};
  std::uint32_t next_mark_ = 0;
  unsigned sides_ = 0;  // asynchronous steps so far
  std::size_t next_wait_ = 0;
  std::map<const Event*, std::vector<std::uint32_t>> ends_;  // of asynchronous steps
  std::optional<std::uint32_t> end_of_moves_;
  std::map<std::uint32_t, Reference> references_;  // by slot
};

void StreamOrder::launch(Gpu& gpu, kernels::Domain domain, const GpuProgram& program, const GpuBuffers& buffers,
                         std::uint64_t delays, const std::function<void(const kernels::Instruction&)>& describe) const {
  Launches(*this, gpu, domain, buffers, delays, describe).run(program.instructions);
  gpu.use_stream(0);
}

}  // namespace lockstep::device
