// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "src/device/board.h"
#include "src/device/messenger.h"

namespace lockstep::device {

/// Processes of one machine that one program has started: each is joined to process 0 by a socket.
class SocketMessenger : public Messenger {
 public:
  /// `sockets`: of process 0 one to each other process, in their order; of the others the one to process 0. They are
  /// closed in the end.
  SocketMessenger(int process, int processes, std::vector<int> sockets, const Board& board);
  SocketMessenger(const SocketMessenger&) = delete;
  SocketMessenger& operator=(const SocketMessenger&) = delete;
  ~SocketMessenger() override;

  int process() const override { return process_; }
  int processes() const override { return processes_; }
  int processes_here() const override { return processes_; }

  // Throw OtherFailure where another process has ended.
  std::vector<std::string> gather(const std::string& text) override;
  std::vector<std::string> all_gather(const std::string& text) override;

  /// Ends this process; whoever started it ends the others.
  [[noreturn]] void abort(int status) override;

 private:
  void send(std::size_t socket, const std::string& text) const;
  std::string receive(std::size_t socket) const;
  void send_bytes(std::size_t socket, const char* bytes, std::size_t count) const;
  void receive_bytes(std::size_t socket, char* bytes, std::size_t count) const;
  [[noreturn]] void lost(std::size_t socket) const;

  int process_, processes_;
  std::vector<int> sockets_;
  const Board& board_;
};

}  // namespace lockstep::device
