// SPDX-License-Identifier: Apache-2.0
// A module in the place of the one that speaks NCCL: processes meet by files in the folder that LOCKSTEP_TEST_NETWORK
// names, on a machine with LOCKSTEP_TEST_GPUS GPUs. For tests of what is around a network: who starts processes, who
// ends them, and what is said. LOCKSTEP_TEST_FAULT makes one of them misbehave: "KIND PROCESS NUMBER", at its NUMBER-th
// call: `dies` by a signal, `fails`, `stops` for ever.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <thread>

#include "kernels/numbers.h"
#include "src/base/at.h"
#include "src/device/gpu.h"
#include "src/device/nccl_module.h"
#include "src/device/watch.h"

namespace {

using namespace lockstep;
using namespace lockstep::device;
using kernels::Domain;
using kernels::Number;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class FileNetwork : public GpuNetwork {
 public:
  explicit FileNetwork(const NetworkSettings& settings)
      : board_(settings.board),
        process_(settings.messenger.process()),
        names_(static_cast<std::size_t>(settings.messenger.processes())),
        watch_(settings.board, process_, names_, settings.patience) {
    for (std::size_t i = 0; i < names_.size(); ++i)
      names_[i] = "process " + std::to_string(i) + " (GPU " + std::to_string(i) + ")";
    std::istringstream(variable("LOCKSTEP_TEST_FAULT")) >> fault_ >> faulty_ >> faulty_call_;
  }

  void prepare(const std::vector<Processes>&) override {}
  void go_to(const ReplayPlace& place) override {
    place_ = place;
    board_.write(process_, Board::State::works, place_);
  }
  void finish_own() override {}
  void all_reduce(const Processes& group, Domain domain, const void* send, void* receive, std::uint64_t count,
                  double factor) override {
    const auto all = meet(group, send, count * bytes_of(domain));
    put(receive, sum_of(all, domain, 0, count, factor));
  }
  void reduce(const Processes& group, Domain domain, const void* send, void* receive, std::uint64_t count,
              std::size_t root, double factor) override {
    const auto all = meet(group, send, count * bytes_of(domain));
    if (group[root] == process_) put(receive, sum_of(all, domain, 0, count, factor));
  }
  void reduce_scatter(const Processes& group, Domain domain, const void* send, void* receive,
                      const std::vector<std::uint64_t>& counts, double factor) override {
    const auto all = meet(group, send, offset_of(counts, counts.size()) * bytes_of(domain));
    const std::size_t own = own_in(group);
    put(receive, sum_of(all, domain, offset_of(counts, own), counts[own], factor));
  }
  void all_gather(const Processes& group, Domain domain, const void* send, void* receive,
                  const std::vector<std::uint64_t>& counts) override {
    std::string whole;
    for (const std::string& each : meet(group, send, counts[own_in(group)] * bytes_of(domain))) whole += each;
    put(receive, whole);
  }
  void broadcast(const Processes& group, Domain domain, void* values, std::uint64_t count, std::size_t root) override {
    put(values, meet(group, values, count * bytes_of(domain))[root]);
  }
  void exchange(const Processes& group, Domain domain, const void* send, void* receive,
                const std::vector<std::uint64_t>& counts, std::uint64_t stride) override {
    const auto all = meet(group, send, offset_of(counts, counts.size()) * bytes_of(domain));
    const std::size_t own = own_in(group), width = bytes_of(domain);
    for (std::size_t i = 0; i < all.size(); ++i)
      put(static_cast<char*>(receive) + i * stride * width,
          all[i].substr(offset_of(counts, own) * width, counts[own] * width));
  }

 private:
  static void put(void* to, const std::string& values) { std::memcpy(to, values.data(), values.size()); }
  static std::uint64_t offset_of(const std::vector<std::uint64_t>& counts, std::size_t part) {
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < part; ++i) offset += counts[i];
    return offset;
  }
  std::size_t own_in(const Processes& group) const {
    std::size_t own = 0;
    while (group[own] != process_) ++own;
    return own;
  }

  template <class Stored>
  static std::string sum(const std::vector<std::string>& all, std::uint64_t begin, std::uint64_t count, double factor) {
    std::string result(count * sizeof(Stored), '\0');
    bool lost = false;
    for (std::uint64_t i = 0; i < count; ++i) {
      typename Number<Stored>::Value total{};
      for (const std::string& each : all) {
        Stored stored;
        std::memcpy(&stored, each.data() + (begin + i) * sizeof stored, sizeof stored);
        total += static_cast<decltype(total)>(static_cast<double>(Number<Stored>::load(stored)) * factor);
      }
      const Stored stored = Number<Stored>::store(total, lost);
      std::memcpy(result.data() + i * sizeof stored, &stored, sizeof stored);
    }
    return result;
  }
  static std::string sum_of(const std::vector<std::string>& all, Domain domain, std::uint64_t begin,
                            std::uint64_t count, double factor) {
    switch (domain) {
      case Domain::float32:
        return sum<float>(all, begin, count, factor);
      case Domain::float64:
        return sum<double>(all, begin, count, factor);
      case Domain::bfloat16:
        return sum<kernels::Bfloat16>(all, begin, count, factor);
      case Domain::float16:
        return sum<kernels::Float16>(all, begin, count, factor);
      case Domain::prime61:
        break;
    }
    throw NetworkFailure("residues are no numbers that a network adds up");
  }

  void misbehave() {
    if (process_ != faulty_ || ++calls_ != faulty_call_) return;
    if (fault_ == "dies") raise(SIGKILL);
    if (fault_ == "fails") throw NetworkFailure("a call failed in " + names_[at(process_)] + " during " + place_.what);
    while (fault_ == "stops") std::this_thread::sleep_for(std::chrono::seconds(1));
  }

  /// What all processes of the group bring.
  std::vector<std::string> meet(const Processes& group, const void* values, std::uint64_t bytes) {
    misbehave();
    namespace fs = std::filesystem;
    std::string name = std::to_string(numbers_[group]++) + "-of";
    for (const int each : group) name += "-" + std::to_string(each);
    const auto path_of = [&](int process) {
      return fs::path(variable("LOCKSTEP_TEST_NETWORK")) / (name + "-from-" + std::to_string(process));
    };
    const fs::path own = path_of(process_);
    std::ofstream(own.string() + ".part", std::ios::binary)
        .write(static_cast<const char*>(values), static_cast<std::streamsize>(bytes));
    fs::rename(own.string() + ".part", own);
    watch_.begin(group, place_);
    std::vector<std::string> all;
    for (const int each : group) {
      while (!fs::exists(path_of(each))) {
        watch_.look();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      std::stringstream text;
      text << std::ifstream(path_of(each), std::ios::binary).rdbuf();
      all.push_back(text.str());
    }
    watch_.end();
    return all;
  }

  Board& board_;
  int process_;
  std::vector<std::string> names_;
  Watch watch_;
  ReplayPlace place_;
  std::map<Processes, int> numbers_;
  std::string fault_;
  int faulty_ = -1, faulty_call_ = 0, calls_ = 0;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) lockstep::device::GpuNetwork* lockstep_open_gpu_network(
    const lockstep::device::NetworkSettings& settings) {
  return new FileNetwork(settings);
}

extern "C" __attribute__((visibility("default"))) int lockstep_count_gpus(std::string& why) {
  const std::string count = variable("LOCKSTEP_TEST_GPUS");
  if (count.empty()) why = "\"no test\"";
  return count.empty() ? 0 : std::stoi(count);
}
