// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "lockstep/cuda.h"
#include "lockstep/nccl.h"
#include "src/device/board.h"
#include "src/device/gpu_job.h"
#include "src/device/load_module.h"

namespace lockstep {

namespace {

/// Processes of this machine with a lower number, and all of them.
std::pair<int, int> place_on_the_machine(Job& job) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::vector<std::string> hosts = job.exchange(host.data());
  int before = 0, all = 0;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i] != host.data()) continue;
    ++all;
    before += static_cast<int>(i) < job.process();
  }
  return {before, all};
}

/// Every process looks for its GPU, so that all of them know whether one has none.
int choose_gpu(Job& job) {
  const auto [number, here] = place_on_the_machine(job);
  std::string why, own;
  const int gpus = device::count_gpus(why);
  // Launchers may show each process one of its own.
  if (gpus == 0) {
    own = fmt::format("process {} of {} finds no GPU{}; --engine mpi replays the same numbers on processors",
                      job.process(), job.processes(), why.empty() ? "" : ": cudaGetDeviceCount says " + why);
  } else if (gpus > 1 && number >= gpus) {
    own = fmt::format(
        "{} processes of the job are on a machine with {} GPUs; start at most one for each, or use --engine mpi", here,
        gpus);
  }
  const std::vector<std::string> all = job.exchange(own);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].empty()) throw NcclFailure(all[i], static_cast<int>(i) != job.process());
  }
  return gpus == 1 ? 0 : number;
}

}  // namespace

int count_gpus() {
  std::string why;
  const int gpus = device::count_gpus(why);
  if (gpus > 0) return gpus;
  throw NcclFailure(fmt::format(
      "the nccl engine finds no GPU: cudaGetDeviceCount says {}; --engine host replays the same numbers on this "
      "machine's processor, and --engine mpi in several processes",
      why.empty() ? "that there are none" : why));
}

std::unique_ptr<NcclJob> NcclJob::join(Job& job, std::shared_ptr<device::Board> board) {
  const std::chrono::milliseconds patience = device::nccl_patience(board != nullptr);
  if (board == nullptr) board = std::make_shared<device::Board>(job.processes());
  const auto fail = [&](const std::string& sentence) -> NcclFailure {
    board->fail(job.process(), device::Board::Cause::own, sentence);
    return NcclFailure(sentence);
  };
  try {
    const int number = choose_gpu(job);
    std::unique_ptr<device::Gpu> gpu = device::open_gpu(number);
    auto network = device::open_gpu_network({job.messenger(), *board, number, patience});
    return std::make_unique<NcclJob>(job, board, std::move(gpu), std::move(network));
  } catch (const device::OtherFailure& failure) {
    throw NcclFailure(failure.what(), true);
  } catch (const device::GpuFailure& failure) {
    throw fail(failure.what());
  } catch (const CudaFailure& failure) {
    throw fail(fmt::format("process {} of {}: {}", job.process(), job.processes(), failure.what()));
  }
}

}  // namespace lockstep
