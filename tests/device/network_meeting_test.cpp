// SPDX-License-Identifier: Apache-2.0
#include "src/device/network_meeting.h"

#include <numeric>
#include <random>

#include "src/device/gpu_network.h"
#include "src/device/packed_program.h"
#include "tests/catch.h"
#include "tests/device/host_gpu.h"

using namespace lockstep;
using namespace lockstep::test;
using namespace lockstep::device;

// Collectives on elements with gaps, of ranks folded on processes whose network is a loop over them.

namespace {

constexpr std::uint64_t stride = 512;
constexpr int members = 6;

/// A group of six ranks, one buffer each.
numeric::Plan plan_of(const Event& event) {
  numeric::Plan plan;
  numeric::PlannedEvent planned;
  planned.event = &event;
  for (int rank = 0; rank < members; ++rank) {
    plan.nodes.push_back({{rank, 0, 0}, 0, false});
    planned.nodes.push_back(rank);
  }
  plan.pieces.resize(1);
  planned.by.multiply = 1;
  planned.by.divide = members;
  plan.events.push_back(planned);
  return plan;
}

/// One process: its program, and its buffers.
struct Process {
  Process(const numeric::Plan& plan, int processes, int number, const Intervals& everything,
          const std::vector<Intervals>& slices)
      : layout(plan, LocalPlan(plan, Folding(members, processes), number),
               processes == 1 ? Network::always : Network::between) {
    ProgramWriter writer(0);
    NetworkMeeting meeting(writer, layout, false);
    const LocalPlan::Meeting& folded = layout.local().meetings.front();
    std::vector<std::uint32_t> slots;
    for (const std::size_t member : folded.members) slots.push_back(layout.slot_of_node(static_cast<int>(member)));
    meeting.write(plan.events.front(), folded, slots, everything, slices);
    program = std::move(writer.program);
    values.assign(layout.slots() * stride, -7);
  }
  double* at(const NetworkCall::Place& place) { return values.data() + place.slot * stride + place.begin; }
  /// Everything up to the next call.
  void run() {
    const std::size_t end = next < program.calls.size() ? program.calls[next].before : program.instructions.size();
    const PackedProgram packed(program);
    std::vector<std::uint64_t> results(8);
    for (; done < end; ++done) {
      gpu->perform(kernels::Domain::float64, program.instructions[done],
                   {values.data(), stride, packed.tables(packed.bytes().data()), results.data()});
    }
  }

  GpuLayout layout;
  GpuProgram program;
  std::vector<double> values;
  std::size_t done = 0, next = 0;
  std::unique_ptr<Gpu> gpu = std::make_unique<HostGpu>(host_facts(), 3u);
};

/// The next call of all processes.
void call(std::vector<std::unique_ptr<Process>>& all) {
  const NetworkCall made = all.front()->program.calls[all.front()->next];
  std::vector<std::vector<double>> sent;
  const std::uint64_t whole = std::accumulate(made.counts.begin(), made.counts.end(), std::uint64_t{0});
  for (std::size_t i = 0; i < all.size(); ++i) {
    const NetworkCall& own = all[i]->program.calls[all[i]->next];
    REQUIRE(own.kind == made.kind);
    REQUIRE(own.counts == made.counts);
    const std::uint64_t count = made.kind == NetworkCall::Kind::all_gather ? made.counts[i] : whole;
    sent.emplace_back(all[i]->at(own.from), all[i]->at(own.from) + count);
  }
  std::vector<double> sum(whole);
  for (std::uint64_t k = 0; k < whole && made.kind != NetworkCall::Kind::all_gather; ++k) {
    for (const auto& each : sent) sum[k] += each[k] * made.factor;
  }
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    double* to = all[i]->at(all[i]->program.calls[all[i]->next++].to);
    switch (made.kind) {
      case NetworkCall::Kind::all_reduce:
        std::copy(sum.begin(), sum.end(), to);
        break;
      case NetworkCall::Kind::reduce:
        if (i == made.root) std::copy(sum.begin(), sum.end(), to);
        break;
      case NetworkCall::Kind::broadcast:
        std::copy(sent[made.root].begin(), sent[made.root].end(), to);
        break;
      case NetworkCall::Kind::reduce_scatter:
        std::copy_n(sum.begin() + static_cast<std::ptrdiff_t>(offset), made.counts[i], to);
        offset += made.counts[i];
        break;
      case NetworkCall::Kind::all_gather:
        for (const auto& each : sent) to = std::copy(each.begin(), each.end(), to);
        break;
      case NetworkCall::Kind::exchange:
        FAIL("an exchange of what are no residues");
    }
  }
}

}  // namespace

TEST_CASE("collectives on elements with gaps do to every member what they should, and nothing else") {
  std::mt19937 random(5);
  for (const Op op : {Op::all_reduce, Op::reduce, Op::reduce_scatter, Op::all_gather, Op::broadcast}) {
    for (const int processes : {1, 2, 3, 4, 6}) {
      for (const bool gaps : {false, true}) {
        Event event;
        event.op = op;
        event.root = op == Op::reduce || op == Op::broadcast ? 4 : -1;
        event.average = op == Op::reduce || op == Op::reduce_scatter;
        // Slices of unequal lengths, one of them empty, each in two parts where there are gaps.
        std::vector<Intervals> slices;
        Intervals everything;
        std::int64_t next = 3;
        for (int member = 0; member < members; ++member) {
          Intervals slice;
          for (int part = 0; member != 2 && part < (gaps ? 2 : 1); ++part) {
            slice.push_back({next, next + 5 + 3 * member});
            next = slice.back().end + (gaps ? 4 : 0);
          }
          everything = unite(everything, slice);
          slices.push_back(slice);
        }
        const numeric::Plan plan = plan_of(event);
        std::vector<std::unique_ptr<Process>> all;
        for (int i = 0; i < processes; ++i)
          all.push_back(std::make_unique<Process>(plan, processes, i, everything, slices));
        std::vector<std::vector<double>> before, after;
        const auto buffer_of = [&](int member) {
          Process& process = *all[static_cast<std::size_t>(Folding(members, processes).process_of(member))];
          return process.at({process.layout.slot_of_node(member), 0});
        };
        for (int member = 0; member < members; ++member) {
          before.emplace_back();
          for (std::uint64_t i = 0; i < stride; ++i) before.back().push_back(6.0 * static_cast<int>(random() % 100));
          std::copy(before.back().begin(), before.back().end(), buffer_of(member));
        }
        after = before;
        const auto each_of = [](const Intervals& places, const auto& work) {
          for (const Interval& each : places) {
            for (auto i = static_cast<std::size_t>(each.begin); i < static_cast<std::size_t>(each.end); ++i) work(i);
          }
        };
        for (std::size_t member = 0; member < members; ++member) {
          const auto sum_at = [&](std::size_t i) {
            double sum = 0;
            for (const auto& each : before) sum += each[i];
            after[member][i] = event.average ? sum / members : sum;
          };
          if (op == Op::all_reduce || (op == Op::reduce && member == 4)) each_of(everything, sum_at);
          if (op == Op::reduce_scatter) each_of(slices[member], sum_at);
          if (op == Op::broadcast) each_of(everything, [&](std::size_t i) { after[member][i] = before[4][i]; });
          for (std::size_t from = 0; op == Op::all_gather && from < members; ++from)
            each_of(slices[from], [&](std::size_t i) { after[member][i] = before[from][i]; });
        }
        for (auto& process : all) process->run();
        while (all.front()->next < all.front()->program.calls.size()) {
          call(all);
          for (auto& process : all) process->run();
        }
        INFO(operation(op).name << " in " << processes << " processes" << (gaps ? " with gaps" : ""));
        for (int member = 0; member < members; ++member) {
          INFO("member " << member);
          CHECK(std::vector<double>(buffer_of(member), buffer_of(member) + stride) ==
                after[static_cast<std::size_t>(member)]);
        }
      }
    }
  }
}
