// SPDX-License-Identifier: Apache-2.0
#include "src/device/transport.h"

#include <numeric>

#include "lockstep/mpi.h"
#include "src/numeric/prime61.h"
#include "tests/catch.h"
#include "tests/device/thread_transport.h"

using namespace lockstep;
using namespace lockstep::test;

// Each collective against what it must yield, for every subset of the processes and every kind of number. The same over
// threads, which tests the threads of mpi_engine_test.cpp, and over MPI, where tests/device/test_mpi_transport.py
// starts this program under mpirun.

namespace {

template <class Value>
constexpr Number number_of = std::is_same_v<Value, float>    ? Number::float32
                             : std::is_same_v<Value, double> ? Number::float64
                                                             : Number::residue;

/// Element i of process p; as residues so large that their sums wrap around.
template <class Value>
Value value(int process, std::size_t i) {
  if constexpr (std::is_same_v<Value, std::uint64_t>) {
    return numeric::prime61 - 1 - static_cast<std::uint64_t>(process) * 1000 - i;
  } else {
    return static_cast<Value>(process * 1000 + static_cast<int>(i) - 500);
  }
}

template <class Value>
Value sum(const Processes& group, std::size_t i) {
  Value total{};
  for (const int process : group) {
    if constexpr (std::is_same_v<Value, std::uint64_t>) {
      total = numeric::add61(total, value<Value>(process, i));
    } else {
      total += value<Value>(process, i);
    }
  }
  return total;
}

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);  // Catch2's macros are for one thread alone
}

template <class Value>
std::vector<Value> values_of(int process, std::size_t count) {
  std::vector<Value> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(value<Value>(process, i));
  return result;
}

template <class Value>
void test_group(device::Transport& transport, const Processes& group, std::size_t count) {
  const Number number = number_of<Value>;
  const int own = transport.process();
  std::vector<Value> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = sum<Value>(group, i);

  std::vector<Value> values = values_of<Value>(own, count);
  transport.all_reduce(group, number, values.data(), count);
  require(values == all, "all_reduce");

  // Slices of different lengths, some of them empty.
  std::vector<std::size_t> counts;
  std::size_t given = 0, begin = 0, place = 0;
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (group[i] == own) {
      place = i;
      begin = given;
    }
    counts.push_back(i + 1 == group.size() ? count - given : std::min(count - given, i % 3 * 2));
    given += counts.back();
  }
  const std::vector<Value> send = values_of<Value>(own, count);
  std::vector<Value> part(counts[place]);
  transport.reduce_scatter(group, number, send.data(), part.data(), counts);
  require(std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(begin)), "reduce_scatter");

  std::vector<Value> gathered(count);
  transport.all_gather(group, number, send.data() + begin, gathered.data(), counts);
  std::size_t at = 0;
  for (std::size_t i = 0; i < group.size(); ++i) {
    for (std::size_t k = 0; k < counts[i]; ++k, ++at) require(gathered[at] == value<Value>(group[i], at), "all_gather");
  }

  for (std::size_t root = 0; root < group.size(); ++root) {
    values = send;
    transport.broadcast(group, number, values.data(), count, root);
    require(values == values_of<Value>(group[root], count), "broadcast");
    values = send;
    transport.reduce(group, number, values.data(), count, root);
    if (root == place) require(values == all, "reduce");
  }
}

void test_all(device::Transport& transport) {
  const int processes = transport.processes();
  for (unsigned set = 1; set < 1u << processes; ++set) {
    if ((set >> transport.process() & 1u) == 0) continue;
    Processes group;
    for (int process = 0; process < processes; ++process) {
      if ((set >> process & 1u) != 0) group.push_back(process);
    }
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{70'000}}) {
      if (count > 100 && set + 1 != 1u << processes) continue;  // large ones once
      test_group<float>(transport, group, count);
      test_group<double>(transport, group, count);
      test_group<std::uint64_t>(transport, group, count);
    }
  }
  const std::string own = std::string(static_cast<std::size_t>(transport.process()) * 100'000, 'x');
  const std::vector<std::string> everywhere = transport.all_gather(own);
  const std::vector<std::string> at_first = transport.gather(own);
  require(everywhere.size() == static_cast<std::size_t>(processes), "all_gather of texts");
  for (std::size_t i = 0; i < everywhere.size(); ++i)
    require(everywhere[i] == std::string(i * 100'000, 'x'), "all_gather of texts");
  require(at_first == (transport.process() == 0 ? everywhere : std::vector<std::string>()), "gather of texts");
}

}  // namespace

TEST_CASE("every collective yields what it should, for every group of threads") {
  for (const int processes : {1, 2, 3, 5}) ThreadJob(processes).run(test_all);
}

TEST_CASE("threads whose calls do not fit are told so") {
  const auto wrong = [](device::Transport& transport) {
    std::vector<double> values(4);
    transport.all_reduce({0, 1}, Number::float64, values.data(), transport.process() == 0 ? 4 : 3);
  };
  CHECK_THROWS_AS(ThreadJob(2).run(wrong), std::logic_error);
}

TEST_CASE("every collective yields what it should, for every group of MPI's processes", "[.mpi]") {
  const std::unique_ptr<MpiJob> job = MpiJob::join();
  CHECK_NOTHROW(test_all(job->transport()));
}
