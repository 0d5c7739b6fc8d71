// SPDX-License-Identifier: Apache-2.0
#include "src/device/socket_messenger.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "src/device/gpu.h"
#include "src/device/message.h"

namespace lockstep::device {

SocketMessenger::SocketMessenger(int process, int processes, std::vector<int> sockets, const Board& board)
    : process_(process), processes_(processes), sockets_(std::move(sockets)), board_(board) {}

SocketMessenger::~SocketMessenger() {
  for (const int socket : sockets_) close(socket);
}

std::vector<std::string> SocketMessenger::gather(const std::string& text) {
  std::vector<std::string> texts;
  if (process_ != 0) {
    send(0, text);
    return texts;
  }
  texts.push_back(text);
  for (std::size_t i = 0; i < sockets_.size(); ++i) texts.push_back(receive(i));
  return texts;
}

std::vector<std::string> SocketMessenger::all_gather(const std::string& text) {
  std::vector<std::string> texts = gather(text);
  if (process_ == 0) {
    MessageWriter all;
    for (const std::string& each : texts) all.add_text(each);
    const std::string message = all.take();
    for (std::size_t i = 0; i < sockets_.size(); ++i) send(i, message);
    return texts;
  }
  const std::string message = receive(0);
  MessageReader reader(message);
  while (!reader.at_end()) texts.emplace_back(reader.take_text());
  return texts;
}

void SocketMessenger::abort(int status) { std::_Exit(status); }

void SocketMessenger::send(std::size_t socket, const std::string& text) const {
  const std::uint64_t length = text.size();
  send_bytes(socket, reinterpret_cast<const char*>(&length), sizeof length);
  send_bytes(socket, text.data(), text.size());
}

std::string SocketMessenger::receive(std::size_t socket) const {
  std::uint64_t length = 0;
  receive_bytes(socket, reinterpret_cast<char*>(&length), sizeof length);
  std::string text(length, '\0');
  receive_bytes(socket, text.data(), text.size());
  return text;
}

void SocketMessenger::send_bytes(std::size_t socket, const char* bytes, std::size_t count) const {
  while (count > 0) {
    const ssize_t sent = ::send(sockets_[socket], bytes, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) lost(socket);
    bytes += sent;
    count -= static_cast<std::size_t>(sent);
  }
}

void SocketMessenger::receive_bytes(std::size_t socket, char* bytes, std::size_t count) const {
  while (count > 0) {
    const ssize_t received = ::recv(sockets_[socket], bytes, count, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) lost(socket);
    bytes += received;
    count -= static_cast<std::size_t>(received);
  }
}

void SocketMessenger::lost(std::size_t socket) const {
  const int other = process_ == 0 ? static_cast<int>(socket) + 1 : 0;
  throw OtherFailure(
      board_.failure().value_or(fmt::format("process {} ended while process {} waited for it", other, process_)));
}

}  // namespace lockstep::device
