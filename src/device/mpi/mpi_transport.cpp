// SPDX-License-Identifier: Apache-2.0
// The module that speaks MPI. Nothing else in lockstep includes mpi.h or is linked with it.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

#include "src/base/at.h"
#include "src/device/transport.h"
#include "src/numeric/prime61.h"

namespace lockstep::device {

namespace {

// MPI counts in int.
constexpr std::size_t most_at_once = std::size_t{1} << 30;

int as_int(std::size_t count) { return static_cast<int>(count); }

// The signature is MPI's.
void add_residues(void* from, void* to, int* count, MPI_Datatype*) {  // NOLINT(readability-non-const-parameter)
  const auto* source = static_cast<const std::uint64_t*>(from);
  auto* target = static_cast<std::uint64_t*>(to);
  for (int i = 0; i < *count; ++i) target[i] = numeric::add61(target[i], source[i]);
}

class MpiTransport : public Transport {
 public:
  MpiTransport() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &process_);
    MPI_Comm_size(MPI_COMM_WORLD, &processes_);
    MPI_Comm_group(MPI_COMM_WORLD, &world_);
    MPI_Op_create(add_residues, 1, &sum_of_residues_);
    MPI_Comm here = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &processes_here_);
    MPI_Comm_free(&here);
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;
  ~MpiTransport() override {
    for (auto& [group, communicator] : communicators_) MPI_Comm_free(&communicator);
    MPI_Op_free(&sum_of_residues_);
    MPI_Group_free(&world_);
    MPI_Finalize();
  }

  int process() const override { return process_; }
  int processes() const override { return processes_; }
  int processes_here() const override { return processes_here_; }

  void all_reduce(const Processes& group, Number number, void* values, std::size_t count) override {
    MPI_Comm communicator = communicator_of(group);
    in_parts(values, number, count, [&](void* part, int some) {
      MPI_Allreduce(MPI_IN_PLACE, part, some, type_of(number), sum_of(number), communicator);
    });
  }

  void reduce_scatter(const Processes& group, Number number, const void* send, void* receive,
                      const std::vector<std::size_t>& counts) override {
    const std::vector<int> some(counts.begin(), counts.end());
    MPI_Reduce_scatter(send, receive, some.data(), type_of(number), sum_of(number), communicator_of(group));
  }

  void all_gather(const Processes& group, Number number, const void* send, void* receive,
                  const std::vector<std::size_t>& counts) override {
    const std::vector<int> some(counts.begin(), counts.end());
    std::vector<int> begins;
    int begin = 0;
    for (const int count : some) {
      begins.push_back(begin);
      begin += count;
    }
    MPI_Comm communicator = communicator_of(group);
    int own = 0;
    MPI_Comm_rank(communicator, &own);
    MPI_Allgatherv(send, some[at(own)], type_of(number), receive, some.data(), begins.data(), type_of(number),
                   communicator);
  }

  void broadcast(const Processes& group, Number number, void* values, std::size_t count, std::size_t root) override {
    MPI_Comm communicator = communicator_of(group);
    in_parts(values, number, count,
             [&](void* part, int some) { MPI_Bcast(part, some, type_of(number), as_int(root), communicator); });
  }

  void reduce(const Processes& group, Number number, void* values, std::size_t count, std::size_t root) override {
    MPI_Comm communicator = communicator_of(group);
    const bool is_root = group[root] == process_;
    in_parts(values, number, count, [&](void* part, int some) {
      MPI_Reduce(is_root ? MPI_IN_PLACE : part, is_root ? part : nullptr, some, type_of(number), sum_of(number),
                 as_int(root), communicator);
    });
  }

  std::vector<std::string> gather(const std::string& text) override {
    std::vector<std::string> texts;
    if (process_ != 0) {
      std::uint64_t length = text.size();
      MPI_Send(&length, 1, MPI_UINT64_T, 0, 0, MPI_COMM_WORLD);
      for (std::size_t begin = 0; begin < text.size(); begin += most_at_once) {
        MPI_Send(text.data() + begin, as_int(std::min(most_at_once, text.size() - begin)), MPI_BYTE, 0, 1,
                 MPI_COMM_WORLD);
      }
      return texts;
    }
    texts.push_back(text);
    for (int process = 1; process < processes_; ++process) {
      std::uint64_t length = 0;
      MPI_Recv(&length, 1, MPI_UINT64_T, process, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      std::string& received = texts.emplace_back(length, '\0');
      for (std::size_t begin = 0; begin < length; begin += most_at_once) {
        MPI_Recv(received.data() + begin, as_int(std::min(most_at_once, length - begin)), MPI_BYTE, process, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      }
    }
    return texts;
  }

  std::vector<std::string> all_gather(const std::string& text) override {
    std::vector<std::string> texts;
    for (int process = 0; process < processes_; ++process) {
      std::uint64_t length = text.size();
      MPI_Bcast(&length, 1, MPI_UINT64_T, process, MPI_COMM_WORLD);
      std::string& said = texts.emplace_back(process == process_ ? text : std::string(length, '\0'));
      for (std::size_t begin = 0; begin < length; begin += most_at_once)
        MPI_Bcast(said.data() + begin, as_int(std::min(most_at_once, length - begin)), MPI_BYTE, process,
                  MPI_COMM_WORLD);
    }
    return texts;
  }

  [[noreturn]] void abort(int status) override {
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
  }

 private:
  static MPI_Datatype type_of(Number number) {
    switch (number) {
      case Number::float32:
        return MPI_FLOAT;
      case Number::float64:
        return MPI_DOUBLE;
      case Number::residue:
        break;
    }
    return MPI_UINT64_T;
  }
  MPI_Op sum_of(Number number) const { return number == Number::residue ? sum_of_residues_ : MPI_SUM; }

  template <class Call>
  static void in_parts(void* values, Number number, std::size_t count, const Call& call) {
    for (std::size_t begin = 0; begin < count; begin += most_at_once) {
      call(static_cast<char*>(values) + begin * bytes_of(number), as_int(std::min(most_at_once, count - begin)));
    }
  }

  // One communicator for each set of processes, made by its members alone.
  MPI_Comm communicator_of(const Processes& group) {
    if (group.size() == static_cast<std::size_t>(processes_)) return MPI_COMM_WORLD;
    const auto [found, is_new] = communicators_.try_emplace(group, MPI_COMM_NULL);
    if (is_new) {
      MPI_Group members = MPI_GROUP_NULL;
      MPI_Group_incl(world_, as_int(group.size()), group.data(), &members);
      MPI_Comm_create_group(MPI_COMM_WORLD, members, 0, &found->second);
      MPI_Group_free(&members);
    }
    return found->second;
  }

  int process_ = 0, processes_ = 1, processes_here_ = 1;
  MPI_Group world_ = MPI_GROUP_NULL;
  MPI_Op sum_of_residues_ = MPI_OP_NULL;
  std::map<Processes, MPI_Comm> communicators_;
};

}  // namespace

}  // namespace lockstep::device

extern "C" __attribute__((visibility("default"))) lockstep::device::Transport* lockstep_open_transport() {
  return new lockstep::device::MpiTransport;
}
