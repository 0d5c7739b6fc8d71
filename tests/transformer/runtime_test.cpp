// SPDX-License-Identifier: Apache-2.0
#include "src/transformer/runtime.h"

#include <numeric>

#include "tests/cases.h"
#include "tests/catch.h"

using namespace lockstep::transformer;

namespace {

std::vector<int> all_ranks(int world) {
  std::vector<int> group(static_cast<std::size_t>(world));
  std::iota(group.begin(), group.end(), 0);
  return group;
}

Request collective(Communication kind, const std::string& site, std::vector<int> group, Real tensor,
                   std::vector<int> rows = {}) {
  Request request;
  request.kind = kind;
  request.site = site;
  request.group = std::move(group);
  request.tensor = std::move(tensor);
  request.rows = std::move(rows);
  return request;
}

Request message(Communication kind, const std::string& site, int peer, Real tensor = {}) {
  Request request;
  request.kind = kind;
  request.site = site;
  request.peer = peer;
  request.tensor = std::move(tensor);
  return request;
}

Real filled(Index rows, double value) { return Real(rows, 2, value); }

/// A ring: each rank passes a value on, adds what comes, and in the end all sum up.
Task<> ring(Runtime& runtime, int rank, int world, std::vector<double>& results) {
  double sum = 0;
  for (int round = 0; round < 3; ++round) {
    Request out = message(Communication::send, "ring", (rank + 1) % world, filled(1, rank + round * 0.1));
    co_await runtime.communicate(rank, std::move(out));
    Request in = message(Communication::receive, "ring", (rank + world - 1) % world);
    const Real came = co_await runtime.communicate(rank, std::move(in));
    sum += came(0, 0);
    Request add = collective(Communication::all_reduce, "sum", all_ranks(world), filled(1, sum * 0.3));
    const Real total = co_await runtime.communicate(rank, std::move(add));
    sum += total(0, 1);
  }
  results[static_cast<std::size_t>(rank)] = sum;
}

Task<> one_call(Runtime& runtime, int rank, Request request, Real& result, std::vector<int>* received = nullptr) {
  result = co_await runtime.communicate(rank, std::move(request), received);
}

CommunicationError error_of(int world, const std::function<Task<>(Runtime&, int)>& program, std::uint64_t seed = 0) {
  Runtime runtime(world, seed);
  try {
    runtime.run([&](int rank) { return program(runtime, rank); });
  } catch (const CommunicationError& error) {
    return error;
  }
  FAIL("the run came to its end");
  throw std::logic_error("not reached");
}

}  // namespace

TEST_CASE("results do not depend on the order in which ranks run") {
  std::vector<double> expected;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<double> results(7);
    Runtime runtime(7, seed);
    runtime.run([&](int rank) { return ring(runtime, rank, 7, results); });
    if (expected.empty()) expected = results;
    INFO("seed " << seed);
    CHECK(results == expected);
  }
}

TEST_CASE("thousands of ranks run in one process") {
  constexpr int ranks = lockstep::test::one_in > 1 ? 1000 : 4000;  // what each hands to all takes its square
  std::vector<double> results(ranks);
  Runtime runtime(ranks, 3);
  runtime.run([&](int rank) { return ring(runtime, rank, ranks, results); });
  CHECK(runtime.communications() == ranks * 9);
  CHECK(results[0] != results[1]);
}

TEST_CASE("collectives yield what their names say") {
  std::vector<Real> results(3);
  std::vector<std::vector<int>> received(3);
  const auto run = [&](Communication kind, const std::function<Real(int)>& tensor, std::vector<int> rows) {
    Runtime runtime(3, 1);
    runtime.run([&](int rank) {
      const auto place = static_cast<std::size_t>(rank);
      return one_call(runtime, rank, collective(kind, "site", {0, 1, 2}, tensor(rank), rows), results[place],
                      &received[place]);
    });
  };
  run(Communication::all_reduce, [](int rank) { return filled(1, rank + 1); }, {});
  for (const Real& result : results) CHECK(result == filled(1, 6));
  run(Communication::all_reduce_max, [](int rank) { return filled(1, rank == 1 ? 9 : -rank); }, {});
  for (const Real& result : results) CHECK(result == filled(1, 9));
  run(Communication::all_gather, [](int rank) { return filled(rank, rank); }, {0, 1, 2});
  for (const Real& result : results) {
    CHECK(result.rows() == 3);
    CHECK(result(0, 0) == 1);
    CHECK(result(2, 1) == 2);
  }
  const auto numbered = [](int) { return Real({{1, 2}, {3, 4}, {5, 6}}); };
  run(Communication::reduce_scatter, numbered, {2, 0, 1});
  CHECK(results[0].rows() == 2);
  CHECK(results[0](1, 1) == 12);
  CHECK(results[1].rows() == 0);
  CHECK(results[2](0, 0) == 15);
}

TEST_CASE("an all-to-all of uneven counts brings each member its rows in the order of the group") {
  const std::vector<std::vector<int>> counts = {{1, 2, 0}, {0, 0, 3}, {1, 1, 1}};
  std::vector<Real> results(3);
  std::vector<std::vector<int>> received(3);
  Runtime runtime(3, 5);
  runtime.run([&](int rank) {
    const auto place = static_cast<std::size_t>(rank);
    Real tensor(3, 1);
    for (int row = 0; row < 3; ++row) tensor(row, 0) = 10 * rank + row;
    return one_call(runtime, rank, collective(Communication::all_to_all, "site", {0, 1, 2}, tensor, counts[place]),
                    results[place], &received[place]);
  });
  CHECK(received[1] == std::vector<int>{2, 0, 1});
  REQUIRE(results[1].rows() == 3);
  CHECK(results[1](0, 0) == 1);
  CHECK(results[1](1, 0) == 2);
  CHECK(results[1](2, 0) == 21);
  CHECK(received[2] == std::vector<int>{0, 3, 1});
  CHECK(results[0].rows() == 2);
}

TEST_CASE("a deadlock is reported with its ranks, calls and those who did not come") {
  const CommunicationError error = error_of(3, [](Runtime& runtime, int rank) -> Task<> {
    if (rank == 2) co_return;
    Request request = collective(Communication::all_reduce, "mlp", {0, 1, 2}, filled(4, 0));
    co_await runtime.communicate(rank, std::move(request));
  });
  CHECK(error.kind == CommunicationError::Kind::deadlock);
  REQUIRE(error.lines.size() == 2);
  CHECK(error.lines[1].rank == 1);
  CHECK(error.lines[1].calls == "all_reduce mlp of 4 x 2");
  CHECK(error.lines[1].call == 1);
  CHECK(error.lines[1].waits_for == std::vector<int>{2});
  CHECK(std::string(error.what()) ==
        "2 ranks wait for others that never come: rank 0 in all_reduce mlp of 4 x 2 for rank 2");
}

TEST_CASE("receives in a circle are a deadlock") {
  const CommunicationError error = error_of(3, [](Runtime& runtime, int rank) -> Task<> {
    Request in = message(Communication::receive, "ring", (rank + 1) % 3);
    co_await runtime.communicate(rank, std::move(in));
    Request out = message(Communication::send, "ring", (rank + 2) % 3, filled(1, 1));
    co_await runtime.communicate(rank, std::move(out));
  });
  CHECK(error.kind == CommunicationError::Kind::deadlock);
  CHECK(error.lines.size() == 3);
  CHECK(error.lines[2].waits_for == std::vector<int>{0});
  CHECK(std::string(error.what()) == "3 ranks wait for others that never come: rank 0 in receive ring from rank 1");
  const CommunicationError alone = error_of(2, [](Runtime& runtime, int rank) -> Task<> {
    if (rank == 0) co_return;
    Request in = message(Communication::receive, "ring", 0);
    co_await runtime.communicate(rank, std::move(in));
  });
  CHECK(std::string(alone.what()) == "1 rank waits for others that never come: rank 1 in receive ring from rank 0");
}

TEST_CASE("members that meet with another kind, site or shape are a mismatch") {
  for (int variant = 0; variant < 3; ++variant) {
    const CommunicationError error = error_of(2, [variant](Runtime& runtime, int rank) -> Task<> {
      const bool odd = rank == 1;
      Request request =
          collective(odd && variant == 0 ? Communication::all_reduce_max : Communication::all_reduce,
                     odd && variant == 1 ? "other" : "mlp", {0, 1}, filled(odd && variant == 2 ? 3 : 4, 0));
      co_await runtime.communicate(rank, std::move(request));
    });
    CHECK(error.kind == CommunicationError::Kind::mismatch);
    CHECK(error.lines.size() == 2);
  }
}

TEST_CASE("a message that nobody receives, or under another name, is reported") {
  CommunicationError error = error_of(2, [](Runtime& runtime, int rank) -> Task<> {
    if (rank == 1) co_return;
    Request out = message(Communication::send, "pp.send_forward", 1, filled(2, 1));
    co_await runtime.communicate(rank, std::move(out));
  });
  CHECK(error.kind == CommunicationError::Kind::unmatched);
  CHECK(std::string(error.what()) == "rank 1 never received what rank 0 sent: send pp.send_forward of 2 x 2 to rank 1");
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const CommunicationError other = error_of(
        2,
        [](Runtime& runtime, int rank) -> Task<> {
          Request request = rank == 0 ? message(Communication::send, "forward 1", 1, filled(2, 1))
                                      : message(Communication::receive, "forward 0", 0);
          co_await runtime.communicate(rank, std::move(request));
        },
        seed);
    CHECK(other.kind == CommunicationError::Kind::mismatch);
  }
}

TEST_CASE("what a program throws ends the run") {
  Runtime runtime(2, 0);
  const auto program = [&](int rank) -> Task<> {
    if (rank == 1) throw std::out_of_range("broken");
    Request request = collective(Communication::all_reduce, "mlp", {0, 1}, filled(1, 0));
    co_await runtime.communicate(rank, std::move(request));
  };
  CHECK_THROWS_AS(runtime.run(program), std::out_of_range);
}
