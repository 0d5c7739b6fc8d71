// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "src/transformer/matrix.h"
#include "src/transformer/task.h"

namespace lockstep::transformer {

enum class Communication { all_reduce, all_reduce_max, all_gather, reduce_scatter, all_to_all, send, receive };
std::string_view name_of(Communication kind);

/// What a rank asks for: a collective of `group`, or a message to or from `peer`.
struct Request {
  Communication kind = Communication::all_reduce;
  std::string site;        ///< where in the model: "mlp.reduce_from_tp"
  std::vector<int> group;  ///< ascending ranks, the caller among them; empty for messages
  int peer = -1;
  int channel = 0;  ///< of a message: those of different channels may overtake each other
  Real tensor;      ///< what it brings; nothing to receive
  /// all_gather, reduce_scatter: how many rows each member has or gets, in the group's order. all_to_all: how many rows
  /// this rank sends to each.
  std::vector<int> rows;
};

/// A run that cannot go on. `what` is one sentence; `lines` has one entry per rank concerned.
class CommunicationError : public std::runtime_error {
 public:
  enum class Kind { deadlock, mismatch, unmatched };
  struct Line {
    int rank = 0;
    std::string calls;           ///< "all_reduce mlp.reduce_from_tp of 4 × 8"
    std::int64_t call = 0;       ///< how many communications this rank began before
    std::vector<int> waits_for;  ///< ranks that have not come
  };
  CommunicationError(Kind kind, const std::string& what, std::vector<Line> lines);
  const Kind kind;
  const std::vector<Line> lines;
};

/// Virtual ranks in one thread. Each runs a program, a coroutine; where it awaits a communication it stops until all
/// that take part are there. The order in which ranks run is drawn from a seed; results do not depend on it, because
/// sums are taken in the order of the group.
///
/// Messages between two ranks arrive, channel by channel, in the order in which they were sent; sending does not block.
/// Collectives of one group meet in the order in which each member calls them, and must agree in kind, site and shape.
class Runtime {
 public:
  Runtime(int world, std::uint64_t seed);
  ~Runtime();

  /// Runs `program(rank)` on every rank to its end. Throws CommunicationError at the first moment at which ranks wait
  /// for each other, meet with different calls, or end with messages that nobody received; and what a program throws.
  void run(const std::function<Task<>(int rank)>& program);

  /// An awaitable for rank `rank`; its result is what the communication yields for it: for a send, nothing.
  /// all_to_all yields the rows of all members, one after the other, and their counts in `received`.
  class Communicate;
  Communicate communicate(int rank, Request request, std::vector<int>* received = nullptr);

  std::int64_t communications() const { return communications_; }

 private:
  struct Meeting;
  struct Rank;
  void begin(int rank, Request request, std::vector<int>* received);
  void meet(int rank);
  void finish(const std::vector<int>& group, Meeting& meeting);
  void message(int rank);
  void make_ready(int rank);
  int next_ready();
  [[noreturn]] void report_mismatch(const std::vector<int>& group, const Meeting& meeting) const;
  [[noreturn]] void report_stuck() const;
  void report_unmatched() const;

  std::vector<Rank> ranks_;
  std::vector<int> ready_;
  std::map<std::vector<int>, std::unique_ptr<Meeting>> meetings_;
  /// By sender, receiver and channel, first sent first.
  std::map<std::array<int, 3>, std::vector<Request>> messages_;
  std::uint64_t state_;
  std::int64_t communications_ = 0;
};

class Runtime::Communicate {
 public:
  Communicate(Runtime& runtime, int rank, Request request, std::vector<int>* received)
      : runtime_(runtime), rank_(rank), request_(std::move(request)), received_(received) {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> here);
  Real await_resume();

 private:
  Runtime& runtime_;
  int rank_;
  Request request_;
  std::vector<int>* received_;
};

}  // namespace lockstep::transformer
