// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "src/device/messenger.h"

namespace lockstep::device {

/// What a buffer that is sent consists of.
enum class Number { float32, float64, residue };  ///< residue: modulo 2^61 - 1, 64 bits

constexpr std::size_t bytes_of(Number number) { return number == Number::float32 ? 4 : 8; }

/// How the processes of a job add up and hand on numbers. Every call is a collective of the processes in `group`, one
/// of which is the caller: all of them make it, with the same arguments but for the values, and all calls in one order
/// that is the same everywhere. Counts are in numbers. A failure of the network or of another process ends the program.
///
/// The one implementation in the program is that of src/device/mpi, in a module of its own, so that a program that does
/// not use MPI loads nothing of it.
class Transport : public Messenger {
 public:
  using Messenger::all_gather;

  /// Every process gets the sum.
  virtual void all_reduce(const Processes& group, Number number, void* values, std::size_t count) = 0;
  /// `send` has counts[0] numbers for the first process of the group, then counts[1] for the second, …; each gets the
  /// sum of what is for it in `receive`.
  virtual void reduce_scatter(const Processes& group, Number number, const void* send, void* receive,
                              const std::vector<std::size_t>& counts) = 0;
  /// `receive` gets counts[0] numbers from the first process of the group, then counts[1] from the second, ….
  virtual void all_gather(const Processes& group, Number number, const void* send, void* receive,
                          const std::vector<std::size_t>& counts) = 0;
  /// `root` is an index into `group`.
  virtual void broadcast(const Processes& group, Number number, void* values, std::size_t count, std::size_t root) = 0;
  /// The root gets the sum; what the others hold afterwards is undefined.
  virtual void reduce(const Processes& group, Number number, void* values, std::size_t count, std::size_t root) = 0;
};

/// What the module exports, under the name lockstep_open_transport: joins the job, and the caller owns the result,
/// whose destruction leaves the job. At most once in a process.
using OpenTransport = Transport*();
inline constexpr const char* open_transport_name = "lockstep_open_transport";

}  // namespace lockstep::device
