// SPDX-License-Identifier: Apache-2.0
#include "src/device/gpu_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "lockstep/diagnostic.h"
#include "src/device/socket_messenger.h"

namespace lockstep::device {

std::string GpuJobPlace::text() const {
  return fmt::format("{} {} {} {}", process, processes, board, fmt::join(sockets, " "));
}

std::optional<GpuJobPlace> gpu_job_place() {
  const char* variable = std::getenv(gpu_job_variable);
  if (variable == nullptr) return std::nullopt;
  std::istringstream text(variable);
  GpuJobPlace place;
  if (!(text >> place.process >> place.processes >> place.board)) return std::nullopt;
  for (int socket = 0; text >> socket;) place.sockets.push_back(socket);
  const int wanted = place.process == 0 ? place.processes - 1 : 1;
  const bool fits = place.process >= 0 && place.process < place.processes && place.board >= 0;
  return fits && static_cast<int>(place.sockets.size()) == wanted ? std::optional(place) : std::nullopt;
}

std::chrono::milliseconds nccl_patience(bool see) {
  constexpr double most = 1e6;
  const double standard = see ? 60 : 600;
  const char* variable = std::getenv("LOCKSTEP_NCCL_TIMEOUT");
  if (variable == nullptr || *variable == '\0') return std::chrono::milliseconds(static_cast<int>(1000 * standard));
  char* end = nullptr;
  const double seconds = std::strtod(variable, &end);
  if (*end != '\0' || !(seconds > 0) || seconds > most) {
    throw InputError({Diagnostic{
        {}, fmt::format("LOCKSTEP_NCCL_TIMEOUT takes a number of seconds above 0; found \"{}\"", variable)}});
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(1000 * seconds)));
}

GpuJob::GpuJob(const GpuJobPlace& place)
    : board(std::make_shared<Board>(place.board, place.processes)),
      job(std::make_unique<Job>(
          std::make_unique<SocketMessenger>(place.process, place.processes, place.sockets, *board))) {}

}  // namespace lockstep::device
