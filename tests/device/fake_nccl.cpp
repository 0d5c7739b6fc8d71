// SPDX-License-Identifier: Apache-2.0
#include "tests/device/fake_nccl.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "kernels/numbers.h"

namespace {

struct Operation {
  enum Kind { all_reduce, reduce, reduce_scatter, all_gather, broadcast, send, receive } kind = all_reduce;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  double factor = 1;
  int peer = 0;  // or the root

  bool agrees(const Operation& other) const {
    return kind == other.kind && count == other.count && type == other.type && factor == other.factor &&
           peer == other.peer;
  }
};

/// What a member brings to a meeting of all members of a communicator.
struct Post {
  enum Kind { operations, split, finalize } kind = operations;
  std::vector<Operation> list;
  int color = 0, key = 0;
  ncclComm_t* child = nullptr;
  bool gone = false;  // who brought it has aborted since: its memory may be another's, and nobody gets a result
};

struct Round {
  std::vector<std::optional<Post>> posts;
  std::size_t arrived = 0;
  bool done = false;
};

struct Clique {
  std::size_t size = 0;
  std::vector<ncclComm_t> members;
  std::size_t joined = 0;
  std::vector<Round> rounds;
};

struct World {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  std::set<ncclComm_t> alive;
  std::vector<std::string> violations;
  std::map<std::string, int> calls;
  std::map<std::pair<std::string, int>, ncclResult_t> failures;
  int aborted = 0, gpus = 64, ids = 0, done = 0;
  bool one_gpu = false;
  int working = -1;  // device
  std::chrono::milliseconds work_time{};
  cudaError_t work_end = cudaSuccess;
  int failing_rank = -1, failing_after = 0;
  ncclResult_t later = ncclSuccess;
  std::mt19937 random{1};
};

World world;

struct Pending {
  std::shared_ptr<Clique> clique;
  std::size_t round;
  ncclComm_t communicator;
};
thread_local std::vector<Pending> stream_of_thread;
thread_local int depth = 0;
thread_local int device_of_thread = -1;
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::chrono::steady_clock::time_point work_until{};
thread_local std::vector<std::pair<ncclComm_t, Operation>> grouped;

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  std::size_t rank = 0, posted = 0;
  std::map<int, std::pair<double, ncclDataType_t>> operations;
  int next_operation = ncclNumOps + 1;
  int polls = 0;
  bool finalized = false;
};

namespace {

using lockstep::kernels::Number;

void violate(const std::string& what) { world.violations.push_back(what); }

/// What a call returns that is to fail.
std::optional<ncclResult_t> begin_call(const std::string& name) {
  const auto found = world.failures.find({name, ++world.calls[name]});
  return found == world.failures.end() ? std::nullopt : std::optional(found->second);
}

template <class Work>
void with_type(ncclDataType_t type, const Work& work) {
  switch (type) {
    case ncclUint64:
      return work(static_cast<lockstep::kernels::Residue*>(nullptr));
    case ncclFloat16:
      return work(static_cast<lockstep::kernels::Float16*>(nullptr));
    case ncclFloat32:
      return work(static_cast<float*>(nullptr));
    case ncclFloat64:
      return work(static_cast<double*>(nullptr));
    case ncclBfloat16:
      return work(static_cast<lockstep::kernels::Bfloat16*>(nullptr));
  }
}

std::size_t width_of(ncclDataType_t type) {
  std::size_t width = 0;
  with_type(type, [&]<class Stored>(Stored*) { width = sizeof(Stored); });
  return width;
}

/// The sum of `count` elements from `skip` on, in any order of the members.
std::string sum_of(const std::vector<Operation>& calls, std::size_t skip, std::size_t count) {
  std::string result(count * width_of(calls.front().type), '\0');
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < calls.size(); ++i) order.push_back(i);
  std::shuffle(order.begin(), order.end(), world.random);
  with_type(calls.front().type, [&]<class Stored>(Stored*) {
    bool lost = false;
    for (std::size_t i = 0; i < count; ++i) {
      typename Number<Stored>::Value sum{};
      for (const std::size_t member : order) {
        Stored stored;
        std::memcpy(&stored, static_cast<const char*>(calls[member].from) + (skip + i) * sizeof(Stored),
                    sizeof(Stored));
        auto value = Number<Stored>::load(stored);
        const double factor = calls[member].factor;
        if (factor != 1) value = static_cast<decltype(value)>(static_cast<double>(value) * factor);
        sum = Number<Stored>::load(Number<Stored>::store(sum + value, lost));
      }
      const Stored stored = Number<Stored>::store(sum, lost);
      std::memcpy(result.data() + i * sizeof(Stored), &stored, sizeof(Stored));
    }
    if (lost) violate("a sum was rounded to 16 bits");
  });
  return result;
}

void put(void* to, std::size_t begin, ncclDataType_t type, const std::string& values) {
  if (!values.empty()) std::memcpy(static_cast<char*>(to) + begin * width_of(type), values.data(), values.size());
}

std::string values_of(const Operation& call) {
  return {static_cast<const char*>(call.from), call.count * width_of(call.type)};
}

void perform(const std::vector<Operation>& calls) {
  const Operation& first = calls.front();
  const auto root = static_cast<std::size_t>(first.peer);
  switch (first.kind) {
    case Operation::all_reduce: {
      const std::string sum = sum_of(calls, 0, first.count);
      for (const Operation& call : calls) put(call.to, 0, call.type, sum);
      return;
    }
    case Operation::reduce:
      return put(calls[root].to, 0, first.type, sum_of(calls, 0, first.count));
    case Operation::reduce_scatter: {
      std::vector<std::string> sums;
      for (std::size_t i = 0; i < calls.size(); ++i) sums.push_back(sum_of(calls, i * first.count, first.count));
      for (std::size_t i = 0; i < calls.size(); ++i) put(calls[i].to, 0, first.type, sums[i]);
      return;
    }
    case Operation::all_gather: {
      std::string all;
      for (const Operation& call : calls) all += values_of(call);
      for (const Operation& call : calls) put(call.to, 0, first.type, all);
      return;
    }
    case Operation::broadcast: {
      const std::string values = values_of(calls[root]);
      for (const Operation& call : calls) put(call.to, 0, first.type, values);
      return;
    }
    case Operation::send:
    case Operation::receive:
      return;
  }
}

/// Sends of one member to another meet its receives from that in order.
void deliver(const Round& round) {
  std::map<std::pair<int, int>, std::vector<std::string>> sent;
  for (std::size_t i = 0; i < round.posts.size(); ++i) {
    for (const Operation& each : round.posts[i]->list) {
      if (each.kind == Operation::send) sent[{static_cast<int>(i), each.peer}].push_back(values_of(each));
    }
  }
  for (std::size_t i = 0; i < round.posts.size(); ++i) {
    for (const Operation& each : round.posts[i]->list) {
      if (each.kind != Operation::receive) continue;
      auto& from = sent[{each.peer, static_cast<int>(i)}];
      if (from.empty() || from.front().size() != each.count * width_of(each.type)) {
        violate("a receive that nothing fits is sent to");
        continue;
      }
      put(each.to, 0, each.type, from.front());
      from.erase(from.begin());
    }
  }
  for (const auto& [pair, rest] : sent) {
    if (!rest.empty()) violate("a send that nobody receives");
  }
}

void make_children(Round& round) {
  std::map<int, std::vector<std::pair<int, std::size_t>>> colors;
  for (std::size_t i = 0; i < round.posts.size(); ++i) {
    if (round.posts[i]->color != NCCL_SPLIT_NOCOLOR) colors[round.posts[i]->color].emplace_back(round.posts[i]->key, i);
  }
  for (auto& [color, members] : colors) {
    std::sort(members.begin(), members.end());
    const auto clique = std::make_shared<Clique>();
    clique->size = clique->joined = members.size();
    for (std::size_t i = 0; i < members.size(); ++i) {
      auto* child = new ncclComm{clique, i};
      clique->members.push_back(child);
      world.alive.insert(child);
      *round.posts[members[i].second]->child = child;
    }
  }
}

void finish(Round& round) {
  if (std::any_of(round.posts.begin(), round.posts.end(), [](const auto& post) { return post->gone; })) return;
  round.done = true;
  const Post& first = *round.posts.front();
  for (const auto& post : round.posts) {
    if (post->kind != first.kind) return violate("members make different calls");
  }
  if (first.kind == Post::split) return make_children(round);
  if (first.kind == Post::finalize) return;
  ++world.done;
  const bool pairs = first.list.front().kind >= Operation::send;
  if (pairs) return deliver(round);
  for (const auto& post : round.posts) {
    if (post->list.size() != first.list.size()) return violate("members make different numbers of calls in a group");
  }
  for (std::size_t number = 0; number < first.list.size(); ++number) {
    std::vector<Operation> calls;
    for (const auto& post : round.posts) calls.push_back(post->list[number]);
    for (const Operation& call : calls) {
      if (!call.agrees(calls.front())) return violate("members call with arguments that do not agree");
    }
    perform(calls);
  }
}

ncclResult_t post(ncclComm_t communicator, Post what) {
  Clique& clique = *communicator->clique;
  if (clique.joined < clique.size) violate("a communicator is used before it is ready");
  if (communicator->finalized) violate("a communicator is used after ncclCommFinalize");
  const std::size_t number = communicator->posted++;
  if (clique.rounds.size() <= number) clique.rounds.resize(number + 1);
  Round& round = clique.rounds[number];
  round.posts.resize(clique.size);
  if (what.kind == Post::operations) stream_of_thread.push_back({communicator->clique, number, communicator});
  round.posts[communicator->rank] = std::move(what);
  communicator->polls = 0;
  if (++round.arrived == clique.size) finish(round);
  return ncclInProgress;
}

bool overlaps(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto* x = static_cast<const char*>(a);
  const auto* y = static_cast<const char*>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

void check_places(const Operation& call, const ncclComm& communicator) {
  const std::size_t bytes = call.count * width_of(call.type), own = communicator.rank * bytes;
  const std::size_t all = communicator.clique->size * bytes;
  const auto* from = static_cast<const char*>(call.from);
  const auto* to = static_cast<const char*>(call.to);
  switch (call.kind) {
    case Operation::all_reduce:
    case Operation::broadcast:
    case Operation::reduce:
      if (to != nullptr && from != nullptr && from != to && overlaps(from, bytes, to, bytes))
        violate("what is received overlaps what is sent");
      return;
    case Operation::reduce_scatter:
      if (overlaps(from, all, to, bytes) && to != from + own) violate("an own part in another's place");
      return;
    case Operation::all_gather:
      if (overlaps(from, bytes, to, all) && from != to + own) violate("an own part in another's place");
      return;
    case Operation::send:
    case Operation::receive:
      return;
  }
}

ncclResult_t collective(const char* name, Operation call, ncclRedOp_t operation, ncclComm_t communicator,
                        cudaStream_t stream) {
  const std::lock_guard lock(world.mutex);
  if (const auto failure = begin_call(name)) return *failure;
  if (!world.alive.contains(communicator)) {
    violate(std::string(name) + " on what is no communicator");
    return ncclInvalidArgument;
  }
  if (stream != nullptr) violate("another stream than the kernels'");
  if (last_error != cudaSuccess) violate("an error of CUDA was left behind");
  if (call.count == 0) violate(std::string(name) + " of nothing");
  const bool reduces = call.kind <= Operation::reduce_scatter;
  if (reduces && call.type == ncclUint64) violate("residues are added up as numbers");
  if (reduces && operation == ncclAvg) call.factor = 1.0 / static_cast<double>(communicator->clique->size);
  if (reduces && operation > ncclNumOps) {
    const auto found = communicator->operations.find(operation);
    if (found == communicator->operations.end() || found->second.second != call.type) {
      violate("an operation of another communicator or type");
      return ncclInvalidArgument;
    }
    call.factor = found->second.first;
    // NCCL before 2.29.7 leaves the last elements as they were (github.com/NVIDIA/nccl/issues/1950).
    if (communicator->clique->size == 1) violate("a factor for one rank alone");
  }
  check_places(call, *communicator);
  if (depth > 0) {
    grouped.emplace_back(communicator, call);
    return ncclSuccess;
  }
  if (call.kind >= Operation::send) violate("a send or receive outside of a group");
  return post(communicator, {Post::operations, {call}});
}

void give_back(ncclComm_t communicator) {
  if (world.alive.erase(communicator) == 0) return violate("a communicator is given back twice");
  for (ncclComm_t& member : communicator->clique->members) {
    if (member == communicator) member = nullptr;
  }
  for (Round& round : communicator->clique->rounds) {
    if (round.done || round.posts.size() <= communicator->rank) continue;
    if (auto& post = round.posts[communicator->rank]) post->gone = true;
  }
  stream_of_thread.erase(std::remove_if(stream_of_thread.begin(), stream_of_thread.end(),
                                        [&](const Pending& each) { return each.communicator == communicator; }),
                         stream_of_thread.end());
  delete communicator;
}

}  // namespace

namespace lockstep::test {

void FakeNccl::reset(int gpus) {
  const std::lock_guard lock(world.mutex);
  world.cliques.clear();
  for (ncclComm_t each : world.alive) delete each;
  world.alive.clear();
  world.violations.clear();
  world.calls.clear();
  world.failures.clear();
  world.aborted = world.done = 0;
  world.gpus = gpus;
  world.one_gpu = false;
  world.failing_rank = -1;
  world.working = -1;
}
std::vector<std::string> FakeNccl::violations() {
  const std::lock_guard lock(world.mutex);
  return world.violations;
}
std::map<std::string, int> FakeNccl::calls() {
  const std::lock_guard lock(world.mutex);
  return world.calls;
}
int FakeNccl::communicators() {
  const std::lock_guard lock(world.mutex);
  return static_cast<int>(world.alive.size());
}
int FakeNccl::aborted() {
  const std::lock_guard lock(world.mutex);
  return world.aborted;
}
void FakeNccl::fail(const std::string& name, int number, ncclResult_t result) {
  const std::lock_guard lock(world.mutex);
  world.failures[{name, number}] = result;
}
void FakeNccl::fail_later(int rank, int collectives, ncclResult_t result) {
  const std::lock_guard lock(world.mutex);
  world.failing_rank = rank;
  world.failing_after = collectives;
  world.later = result;
}
void FakeNccl::work(int rank, std::chrono::milliseconds time, cudaError_t end) {
  const std::lock_guard lock(world.mutex);
  world.working = rank;
  world.work_time = time;
  world.work_end = end;
}
void FakeNccl::share_gpus() {
  const std::lock_guard lock(world.mutex);
  world.one_gpu = true;
}

}  // namespace lockstep::test

extern "C" {

cudaError_t cudaSetDevice(int device) {
  device_of_thread = device;
  return device >= 0 && device < world.gpus ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = world.gpus;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", world.one_gpu ? 0 : device);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaStreamQuery(cudaStream_t) {
  const std::lock_guard lock(world.mutex);
  if (device_of_thread == world.working) {
    const auto now = std::chrono::steady_clock::now();
    if (work_until == decltype(work_until)()) work_until = now + world.work_time;
    if (now < work_until) return last_error = cudaErrorNotReady;
    if (world.work_end != cudaSuccess) return world.work_end;
  }
  for (const Pending& each : stream_of_thread) {
    if (!each.clique->rounds[each.round].done) return last_error = cudaErrorNotReady;
  }
  stream_of_thread.clear();
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidDevice ? "invalid device ordinal" : "an error";
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorInvalidDevice ? "cudaErrorInvalidDevice" : "cudaErrorOther";
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSystemError   ? "unhandled system error"
         : result == ncclRemoteError ? "remote process exited"
                                     : "?";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(world.mutex);
  if (const auto failure = begin_call("ncclGetUniqueId")) return *failure;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "clique %d", ++world.ids);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const std::lock_guard lock(world.mutex);
  if (const auto failure = begin_call("ncclCommInitRankConfig")) return *failure;
  if (config->blocking != 0) violate("a communicator that blocks");
  std::shared_ptr<Clique>& clique = world.cliques[id.internal];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  clique->size = static_cast<std::size_t>(ranks);
  clique->members.resize(clique->size);
  *communicator = new ncclComm{clique, static_cast<std::size_t>(rank)};
  clique->members[static_cast<std::size_t>(rank)] = *communicator;
  world.alive.insert(*communicator);
  ++clique->joined;
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* child, ncclConfig_t* config) {
  const std::lock_guard lock(world.mutex);
  if (const auto failure = begin_call("ncclCommSplit")) return *failure;
  if (config->blocking != 0) violate("a communicator that blocks");
  return post(parent, {Post::split, {}, color, key, child});
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  const std::lock_guard lock(world.mutex);
  if (const auto failure = begin_call("ncclCommFinalize")) return *failure;
  const ncclResult_t result = post(communicator, {Post::finalize, {}});
  communicator->finalized = true;
  return result;
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  const std::lock_guard lock(world.mutex);
  if (const auto failure = begin_call("ncclCommDestroy")) return *failure;
  if (!communicator->operations.empty()) violate("an operation was not given back");
  give_back(communicator);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  const std::lock_guard lock(world.mutex);
  ++world.calls["ncclCommAbort"];
  ++world.aborted;
  give_back(communicator);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  const std::lock_guard lock(world.mutex);
  if (const auto failure = begin_call("ncclCommGetAsyncError")) return *failure;
  const Clique& clique = *communicator->clique;
  *state = ncclSuccess;
  if (static_cast<int>(communicator->rank) == world.failing_rank && world.done >= world.failing_after) {
    *state = world.later;
  } else if (clique.joined < clique.size || ++communicator->polls == 1) {
    *state = ncclInProgress;
  } else if (communicator->posted > 0) {
    const Round& last = clique.rounds[communicator->posted - 1];
    const Post& own = *last.posts[communicator->rank];
    if (own.kind != Post::operations && !last.done) *state = ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* operation, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t communicator) {
  const std::lock_guard lock(world.mutex);
  if (const auto failure = begin_call("ncclRedOpCreatePreMulSum")) return *failure;
  if (residence != ncclScalarHostImmediate) violate("a scalar that is not read at once");
  double factor = 1;
  with_type(type, [&]<class Stored>(Stored*) {
    Stored stored;
    std::memcpy(&stored, scalar, sizeof stored);
    factor = static_cast<double>(Number<Stored>::load(stored));
  });
  *operation = static_cast<ncclRedOp_t>(communicator->next_operation++);
  communicator->operations[*operation] = {factor, type};
  return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t operation, ncclComm_t communicator) {
  const std::lock_guard lock(world.mutex);
  if (const auto failure = begin_call("ncclRedOpDestroy")) return *failure;
  if (communicator->operations.erase(operation) == 0) violate("an operation is given back that is none");
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  return collective("ncclAllReduce", {Operation::all_reduce, send, receive, count, type}, operation, communicator,
                    stream);
}
ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t communicator, cudaStream_t stream) {
  return collective("ncclReduce", {Operation::reduce, send, receive, count, type, 1, root}, operation, communicator,
                    stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  return collective("ncclReduceScatter", {Operation::reduce_scatter, send, receive, count, type}, operation,
                    communicator, stream);
}
ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return collective("ncclAllGather", {Operation::all_gather, send, receive, count, type}, ncclSum, communicator,
                    stream);
}
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return collective("ncclBroadcast", {Operation::broadcast, send, receive, count, type, 1, root}, ncclSum, communicator,
                    stream);
}
ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return collective("ncclSend", {Operation::send, send, nullptr, count, type, 1, peer}, ncclSum, communicator, stream);
}
ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return collective("ncclRecv", {Operation::receive, nullptr, receive, count, type, 1, peer}, ncclSum, communicator,
                    stream);
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  const std::lock_guard lock(world.mutex);
  if (--depth > 0) return ncclSuccess;
  std::map<ncclComm_t, Post> posts;
  for (auto& [communicator, call] : grouped) posts[communicator].list.push_back(call);
  grouped.clear();
  if (const auto failure = begin_call("ncclGroupEnd")) return *failure;
  for (auto& [communicator, each] : posts) post(communicator, std::move(each));
  return ncclInProgress;
}
}
