// SPDX-License-Identifier: Apache-2.0
// The module that speaks NCCL. Nothing else in lockstep includes its header or is linked with it. The GPU's memory and
// kernels are those of the module that speaks CUDA: both work in the context that a process has on its GPU, and on its
// default stream, so that what one launches runs behind what the other did.
#include <cuda_runtime.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "src/base/at.h"
#include "src/device/gpu.h"
#include "src/device/nccl_module.h"
#include "src/device/watch.h"

namespace lockstep::device {

namespace {

using kernels::Domain;

std::string quoted(const std::string& text) { return '"' + text + '"'; }

std::string advice(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
      return "another program may hold the GPU's memory; NCCL_DEBUG=WARN in the environment says more";
    case ncclSystemError:
      return "a small /dev/shm, or a network interface that is blocked (NCCL_SOCKET_IFNAME chooses one) are common "
             "causes; NCCL_DEBUG=WARN in the environment says more";
    case ncclRemoteError:
      return "another process ended or lost its network; NCCL_DEBUG=WARN in the environment says more";
    default:
      return "NCCL_DEBUG=WARN in the environment says more; --engine cuda replays all ranks on one GPU";
  }
}

ncclDataType_t type_of(Domain domain) {
  switch (domain) {
    case Domain::float32:
      return ncclFloat32;
    case Domain::float64:
      return ncclFloat64;
    case Domain::bfloat16:
      return ncclBfloat16;
    case Domain::float16:
      return ncclFloat16;
    case Domain::prime61:
      break;
  }
  return ncclUint64;
}

class NcclNetwork final : public GpuNetwork {
 public:
  explicit NcclNetwork(const NetworkSettings& settings)
      : messenger_(settings.messenger),
        board_(settings.board),
        process_(settings.messenger.process()),
        gpu_(settings.gpu),
        watch_(settings.board, process_, names_, settings.patience) {
    for (int i = 0; i < messenger_.processes(); ++i) everybody_.push_back(i);
    names_.resize(everybody_.size());
    name(process_, gpu_);
    place_.what = "the start of NCCL";
    check_cuda(cudaSetDevice(gpu_), "cudaSetDevice");
    const ncclUniqueId id = meet();
    ncclConfig_t config = settings_of_a_communicator();
    // A call that waits for others returns at once, and its end is polled, so that who does not come is noticed.
    guarded([&] {
      watch_.begin(everybody_, place_);
      check(ncclCommInitRankConfig(&world_, messenger_.processes(), id, process_, &config), "ncclCommInitRankConfig");
      settle(world_, "ncclCommInitRankConfig");
      watch_.end();
    });
  }
  NcclNetwork(const NcclNetwork&) = delete;
  NcclNetwork& operator=(const NcclNetwork&) = delete;
  ~NcclNetwork() override {
    if (failed_) return;
    try {
      place_.what = "the end of NCCL";
      drop_communicators();
      finish(world_);
    } catch (const GpuFailure&) {
      abort();  // everything was said before
    }
  }

  void prepare(const std::vector<Processes>& groups) override {
    constexpr std::size_t most_communicators = 256;
    std::vector<Processes> wanted;
    for (const Processes& group : groups) {
      if (group != everybody_ && !known_.contains(group)) wanted.push_back(group);
    }
    place_ = {0, 0, 0, "the making of communicators"};
    guarded([&] {
      if (known_.size() + wanted.size() > most_communicators) {
        drop_communicators();
        wanted.clear();
        std::copy_if(groups.begin(), groups.end(), std::back_inserter(wanted),
                     [&](const Processes& group) { return group != everybody_; });
      }
      // Groups without a common process are split off together.
      while (!wanted.empty()) {
        std::vector<Processes> together, later;
        std::set<int> taken;
        for (Processes& group : wanted) {
          const bool fits = std::none_of(group.begin(), group.end(), [&](int each) { return taken.contains(each); });
          if (fits) taken.insert(group.begin(), group.end());
          (fits ? together : later).push_back(std::move(group));
        }
        split(together);
        wanted = std::move(later);
      }
    });
  }

  void go_to(const ReplayPlace& place) override {
    place_ = place;
    board_.write(process_, Board::State::works, place_);
  }
  void finish_own() override {
    guarded([&] { finish_kernels(); });
  }

  void all_reduce(const Processes& group, Domain domain, const void* send, void* receive, std::uint64_t count,
                  double factor) override {
    with_operation(group, domain, factor, [&](ncclComm_t communicator, ncclRedOp_t sum) {
      call(group, "ncclAllReduce",
           [&] { return ncclAllReduce(send, receive, count, type_of(domain), sum, communicator, stream); });
    });
  }

  void reduce(const Processes& group, Domain domain, const void* send, void* receive, std::uint64_t count,
              std::size_t root, double factor) override {
    with_operation(group, domain, factor, [&](ncclComm_t communicator, ncclRedOp_t sum) {
      call(group, "ncclReduce", [&] {
        return ncclReduce(send, receive, count, type_of(domain), sum, static_cast<int>(root), communicator, stream);
      });
    });
  }

  void reduce_scatter(const Processes& group, Domain domain, const void* send, void* receive,
                      const std::vector<std::uint64_t>& counts, double factor) override {
    with_operation(group, domain, factor, [&](ncclComm_t communicator, ncclRedOp_t sum) {
      if (equal(counts)) {
        return call(group, "ncclReduceScatter", [&] {
          return ncclReduceScatter(send, receive, counts.front(), type_of(domain), sum, communicator, stream);
        });
      }
      const std::size_t own = own_in(group);
      in_group(group, "ncclReduce", counts, [&](std::size_t i, std::uint64_t offset) {
        return ncclReduce(at(send, domain, offset), i == own ? receive : nullptr, counts[i], type_of(domain), sum,
                          static_cast<int>(i), communicator, stream);
      });
    });
  }

  void all_gather(const Processes& group, Domain domain, const void* send, void* receive,
                  const std::vector<std::uint64_t>& counts) override {
    ncclComm_t communicator = communicator_of(group);
    if (equal(counts)) {
      return call(group, "ncclAllGather",
                  [&] { return ncclAllGather(send, receive, counts.front(), type_of(domain), communicator, stream); });
    }
    const std::size_t own = own_in(group);
    in_group(group, "ncclBroadcast", counts, [&](std::size_t i, std::uint64_t offset) {
      void* const to = at(receive, domain, offset);
      return ncclBroadcast(i == own ? send : to, to, counts[i], type_of(domain), static_cast<int>(i), communicator,
                           stream);
    });
  }

  void broadcast(const Processes& group, Domain domain, void* values, std::uint64_t count, std::size_t root) override {
    ncclComm_t communicator = communicator_of(group);
    call(group, "ncclBroadcast", [&] {
      return ncclBroadcast(values, values, count, type_of(domain), static_cast<int>(root), communicator, stream);
    });
  }

  void exchange(const Processes& group, Domain domain, const void* send, void* receive,
                const std::vector<std::uint64_t>& counts, std::uint64_t stride) override {
    ncclComm_t communicator = communicator_of(group);
    const std::uint64_t own = counts[own_in(group)];
    call(group, "ncclSend and ncclRecv", [&] {
      return all_at_once([&] {
        std::uint64_t offset = 0;
        for (std::size_t i = 0; i < counts.size(); ++i) {
          const int peer = static_cast<int>(i);
          if (counts[i] > 0) {
            check(ncclSend(at(send, domain, offset), counts[i], type_of(domain), peer, communicator, stream),
                  "ncclSend");
          }
          if (own > 0) {
            check(ncclRecv(at(receive, domain, i * stride), own, type_of(domain), peer, communicator, stream),
                  "ncclRecv");
          }
          offset += counts[i];
        }
      });
    });
  }

 private:
  static constexpr cudaStream_t stream = nullptr;

  static ncclConfig_t settings_of_a_communicator() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return config;
  }

  /// Process 0's identifier, and what the processes are called.
  ncclUniqueId meet() {
    ncclUniqueId id{};
    if (process_ == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::array<char, 64> bus{}, host{};
    check_cuda(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()) - 1, gpu_), "cudaDeviceGetPCIBusId");
    gethostname(host.data(), host.size() - 1);
    const std::string where = std::string(host.data()) + ' ' + bus.data() + ' ' + std::to_string(gpu_);
    const std::vector<std::string> all =
        messenger_.all_gather(std::string(reinterpret_cast<const char*>(&id), sizeof id) + where);
    std::map<std::string, std::size_t> first;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string gpu = all[i].substr(sizeof id), place = gpu.substr(0, gpu.rfind(' '));
      name(static_cast<int>(i), std::stoi(gpu.substr(gpu.rfind(' ') + 1)));
      const auto [other, is_new] = first.emplace(place, i);
      if (!is_new)
        throw NetworkFailure(
            names_[i] + " has the GPU of process " + std::to_string(other->second) +
            ", and NCCL refuses two processes on one GPU: start at most one for each GPU of a machine, or "
            "use --engine cuda, which has all ranks on one");
    }
    std::memcpy(&id, all.front().data(), sizeof id);
    return id;
  }
  void name(int process, int gpu) {
    names_[lockstep::at(process)] = "process " + std::to_string(process) + " (GPU " + std::to_string(gpu) + ")";
  }

  [[noreturn]] void fail(const std::string& call, const std::string& why, const std::string& what_to_do) const {
    throw NetworkFailure(call + " failed in " + names_[lockstep::at(process_)] + " of " +
                         std::to_string(everybody_.size()) + " during " + place_.what + ": " + why + "; " + what_to_do);
  }
  void check_cuda(cudaError_t error, const std::string& call) const {
    if (error == cudaSuccess) return;
    fail(call, quoted(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) + ")",
         "another program may have the GPU; --engine host needs none");
  }
  void check(ncclResult_t result, const std::string& call) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    std::string why = quoted(ncclGetErrorString(result));
    const char* last = ncclGetLastError(world_);
    if (last != nullptr && *last != '\0') why += std::string(" (") + last + ")";
    fail(call, why, advice(result));
  }

  /// What goes wrong in work() ends all communicators, so that no kernel waits on the GPU for ever.
  template <class Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (...) {
      abort();
      throw;
    }
  }
  void abort() {
    if (failed_) return;
    failed_ = true;
    for (const auto& [group, communicator] : communicators_) ncclCommAbort(communicator);
    if (world_ != nullptr) ncclCommAbort(world_);
    // Behind that of its parent, which waits for the thread that writes it.
    if (splitting_ != nullptr) ncclCommAbort(splitting_);
  }

  void pause() const { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

  /// Until NCCL is done with what a call of it began.
  void settle(ncclComm_t communicator, const std::string& call) {
    while (true) {
      ncclResult_t state = ncclSuccess;
      check(ncclCommGetAsyncError(communicator, &state), "ncclCommGetAsyncError");
      check(state, call);
      if (state == ncclSuccess) return;
      watch_.look();
      pause();
    }
  }

  /// cudaStreamQuery that leaves nothing behind for those who ask for the last error.
  static cudaError_t query_stream() {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaErrorNotReady) static_cast<void>(cudaGetLastError());
    return state;
  }

  /// Kernels of lockstep come to an end, so that a process whose GPU is busy with them is not missed, however long that
  /// takes; and what fails before a call of NCCL begins is no failure of that call.
  void finish_kernels() {
    constexpr std::chrono::seconds between_signs{1};
    auto sign = std::chrono::steady_clock::now();
    while (true) {
      const cudaError_t state = query_stream();
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady) {
        fail("a kernel of lockstep", quoted(cudaGetErrorString(state)) + " (" + cudaGetErrorName(state) + ")",
             "launches are not waited for: with CUDA_LAUNCH_BLOCKING=1 in the environment the failure names its own "
             "step; --engine host needs no GPU");
      }
      if (const auto why = board_.failure()) throw OtherFailure(*why);
      if (const auto now = std::chrono::steady_clock::now(); now - sign >= between_signs) {
        board_.write(process_, Board::State::works, place_);
        sign = now;
      }
      pause();
    }
  }

  template <class Begin>
  void call(const Processes& group, const std::string& name, const Begin& begin) {
    ncclComm_t communicator = communicator_of(group);
    guarded([&] {
      finish_kernels();
      watch_.begin(group, place_);
      check(begin(), name);
      settle(communicator, name);
      while (true) {
        const cudaError_t state = query_stream();
        if (state == cudaSuccess) break;
        if (state != cudaErrorNotReady) check_cuda(state, name);
        ncclResult_t failure = ncclSuccess;
        check(ncclCommGetAsyncError(communicator, &failure), "ncclCommGetAsyncError");
        check(failure, name);
        watch_.look();
        pause();
      }
      watch_.end();
    });
  }

  /// The calls of work() as one, which is ended in any case: inside of it nothing could be aborted.
  template <class Work>
  ncclResult_t all_at_once(const Work& work) {
    check(ncclGroupStart(), "ncclGroupStart");
    try {
      work();
    } catch (...) {
      ncclGroupEnd();
      throw;
    }
    return ncclGroupEnd();
  }

  /// One call for each process's part that is not empty.
  template <class Each>
  void in_group(const Processes& group, const std::string& name, const std::vector<std::uint64_t>& counts,
                const Each& each) {
    call(group, name, [&] {
      return all_at_once([&] {
        std::uint64_t offset = 0;
        for (std::size_t i = 0; i < counts.size(); ++i) {
          if (counts[i] > 0) check(each(i, offset), name);
          offset += counts[i];
        }
      });
    });
  }

  template <class Work>
  void with_operation(const Processes& group, Domain domain, double factor, const Work& work) {
    ncclComm_t communicator = communicator_of(group);
    if (factor == 1) return work(communicator, ncclSum);
    // NCCL multiplies by 1/n then: exact, because the factor is a power of two.
    if (factor * static_cast<double>(group.size()) == 1) return work(communicator, ncclAvg);
    union {
      double float64;
      float float32;
      std::uint16_t bits;
    } scalar{};
    bool lost = false;
    switch (domain) {
      case Domain::float64:
        scalar.float64 = factor;
        break;
      case Domain::float32:
        scalar.float32 = static_cast<float>(factor);
        break;
      case Domain::bfloat16:
        scalar.bits = kernels::to_bfloat16(static_cast<float>(factor), lost);
        break;
      case Domain::float16:
        scalar.bits = kernels::to_float16(static_cast<float>(factor), lost);
        break;
      case Domain::prime61:
        lost = true;
        break;
    }
    if (lost) throw std::logic_error("a factor that the type of the values does not have");
    ncclRedOp_t sum = ncclSum;
    guarded([&] {
      check(ncclRedOpCreatePreMulSum(&sum, &scalar, type_of(domain), ncclScalarHostImmediate, communicator),
            "ncclRedOpCreatePreMulSum");
    });
    work(communicator, sum);
    guarded([&] { check(ncclRedOpDestroy(sum, communicator), "ncclRedOpDestroy"); });
  }

  void split(const std::vector<Processes>& groups) {
    const auto own = std::find_if(groups.begin(), groups.end(), [&](const Processes& group) {
      return std::find(group.begin(), group.end(), process_) != group.end();
    });
    const int color = own == groups.end() ? NCCL_SPLIT_NOCOLOR : static_cast<int>(own - groups.begin());
    ncclConfig_t config = settings_of_a_communicator();
    watch_.begin(everybody_, place_);
    check(ncclCommSplit(world_, color, process_, &splitting_, &config), "ncclCommSplit");
    settle(world_, "ncclCommSplit");  // before that the new one may not be known
    if (own != groups.end()) {
      ncclComm_t communicator = communicators_.emplace(*own, splitting_).first->second;
      splitting_ = nullptr;
      settle(communicator, "ncclCommSplit");
    }
    known_.insert(groups.begin(), groups.end());
    watch_.end();
  }

  void drop_communicators() {
    while (!communicators_.empty()) {
      finish(communicators_.begin()->second);
      communicators_.erase(communicators_.begin());  // only now: what fails before is aborted with the others
    }
    known_.clear();
  }
  void finish(ncclComm_t communicator) {
    watch_.begin(everybody_, place_);
    check(ncclCommFinalize(communicator), "ncclCommFinalize");
    settle(communicator, "ncclCommFinalize");
    check(ncclCommDestroy(communicator), "ncclCommDestroy");
    watch_.end();
  }

  ncclComm_t communicator_of(const Processes& group) const {
    if (group == everybody_) return world_;
    const auto found = communicators_.find(group);
    if (found == communicators_.end()) throw std::logic_error("a group of processes without a communicator");
    return found->second;
  }
  std::size_t own_in(const Processes& group) const {
    return static_cast<std::size_t>(std::find(group.begin(), group.end(), process_) - group.begin());
  }
  static bool equal(const std::vector<std::uint64_t>& counts) {
    return std::all_of(counts.begin(), counts.end(), [&](std::uint64_t each) { return each == counts.front(); });
  }
  static const void* at(const void* values, Domain domain, std::uint64_t offset) {
    return static_cast<const char*>(values) + offset * bytes_of(domain);
  }
  static void* at(void* values, Domain domain, std::uint64_t offset) {
    return static_cast<char*>(values) + offset * bytes_of(domain);
  }

  Messenger& messenger_;
  Board& board_;
  int process_, gpu_;
  std::vector<std::string> names_;
  Watch watch_;
  Processes everybody_;
  ReplayPlace place_;
  ncclComm_t world_ = nullptr;
  ncclComm_t splitting_ = nullptr;  // where NCCL, later and in a thread of its own, writes what is split off
  std::map<Processes, ncclComm_t> communicators_;  // of this process
  std::set<Processes> known_;                      // of all processes
  bool failed_ = false;
};

}  // namespace

}  // namespace lockstep::device

extern "C" __attribute__((visibility("default"))) lockstep::device::GpuNetwork* lockstep_open_gpu_network(
    const lockstep::device::NetworkSettings& settings) {
  return new lockstep::device::NcclNetwork(settings);
}

extern "C" __attribute__((visibility("default"))) int lockstep_count_gpus(std::string& why) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess) return count;
  why = lockstep::device::quoted(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) + ")";
  return 0;
}
