// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <set>

#include "lockstep/nccl.h"
#include "src/device/board.h"
#include "src/device/message.h"
#include "src/device/network_replay.h"
#include "src/device/shared_run.h"

namespace lockstep {

namespace device {

namespace {

/// The sets of processes that meet in some collective, each ascending.
std::vector<Processes> groups_of(const Timeline& timeline, const Folding& folding) {
  std::set<Processes> groups;
  std::set<std::vector<int>> seen;  // groups of ranks meet many times
  for (const Event& event : timeline.events) {
    if (!operation(event.op).collective) continue;
    std::vector<int> ranks;
    for (const Call& call : event.calls) ranks.push_back(call.rank);
    if (!seen.insert(ranks).second) continue;
    std::set<int> processes;
    for (const int rank : ranks) processes.insert(folding.process_of(rank));
    if (processes.size() > 1) groups.emplace(processes.begin(), processes.end());
  }
  return {groups.begin(), groups.end()};
}

/// What all GPUs have at least, so that every process cuts the same blocks.
GpuFacts least(const GpuFacts& own, Messenger& messenger) {
  GpuFacts facts = own;
  MessageWriter writer;
  writer.add(own.free_memory);
  for (const std::string& text : messenger.all_gather(writer.take()))
    facts.free_memory = std::min(facts.free_memory, MessageReader(text).take<std::uint64_t>());
  return facts;
}

HostResult replay(const Schedule& schedule, const Timeline& timeline, const HostOptions& options, NcclJob& job) {
  Messenger& messenger = job.job().messenger();
  SharedRun run(schedule, timeline, options, messenger);
  run.prepare();
  const GpuMemoryPlan memory(least(job.gpu().facts(), messenger), schedule, run.preparation(), run.tasks(),
                             options.block_elements, &run.folding());
  job.network().prepare(groups_of(timeline, run.folding()));
  NetworkReplay replay(job.gpu(), job.network(), schedule.model, memory.for_buffers, messenger.processes());
  HostResult result =
      run.run([&](const numeric::Task& task, const numeric::Plan& plan, const numeric::ReplayOptions& how) {
        const auto number = static_cast<std::size_t>(&task - run.tasks().data());
        LocalPlan local(plan, run.folding(), messenger.process());
        return replay.replay(number, plan, how, std::move(local), task.elements, memory.block_elements[number]);
      });
  if (!memory.note.empty() && messenger.process() == 0) result.notes.push_back(memory.note);
  return result;
}

/// Every process may look it up from here on.
[[noreturn]] void fail(NcclJob& job, const std::string& sentence) {
  job.board().fail(job.job().process(), Board::Cause::own, sentence);
  throw NcclFailure(sentence);
}

}  // namespace

}  // namespace device

NcclJob::NcclJob(Job& job, std::shared_ptr<device::Board> board, std::unique_ptr<device::Gpu> gpu,
                 std::unique_ptr<device::GpuNetwork> network)
    : job_(job), board_(std::move(board)), gpu_(std::move(gpu)), network_(std::move(network)) {}
NcclJob::~NcclJob() = default;

HostResult run_nccl(const Schedule& schedule, const Timeline& timeline, const HostOptions& options, NcclJob& job) {
  const int process = job.job().process(), processes = job.job().processes();
  if (timeline.step_ends.empty()) return process == 0 ? numeric::nothing_to_replay(schedule) : HostResult{};
  try {
    return device::replay(schedule, timeline, options, job);
  } catch (const device::OtherFailure& failure) {
    throw NcclFailure(failure.what(), true);
  } catch (const device::NetworkFailure& failure) {
    device::fail(job, failure.what());
  } catch (const device::GpuFailure& failure) {
    device::fail(job, fmt::format("process {} of {}: {}", process, processes, failure.what()));
  } catch (const std::bad_alloc&) {
    device::fail(job, fmt::format("process {} of {} is out of memory", process, processes));
  } catch (const InternalError& error) {
    job.board().fail(process, device::Board::Cause::own, fmt::format("a bug of lockstep: {}", error.what()));
    throw;
  }
}

}  // namespace lockstep
