// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace lockstep {

namespace {

enum class Wrong { nothing, some, all };

Wrong wrong_in(const BufferResult& buffer) {
  bool some = false, all = true;
  for (const PieceResult& piece : buffer.pieces) {
    some = some || !piece.right;
    all = all && !piece.right;
  }
  if (!some) return Wrong::nothing;
  return all ? Wrong::all : Wrong::some;
}

std::string name_buffer(const Model& model, int rank, int buffer) {
  const int parameter = model.local(rank).buffers[static_cast<std::size_t>(buffer)].parameters.front();
  return fmt::format("{} on rank {}", model.parameters()[static_cast<std::size_t>(parameter)].name, rank);
}

/// Whether anything is wrong that a whole replay of some buffers must see.
bool any_wrong_in_replayed(const SymbolicResult& symbolic, const HostResult& host) {
  for (std::size_t index = 0; index < host.buffers.size() && index < symbolic.buffers.size(); ++index) {
    if (host.buffers[index].replayed && wrong_in(symbolic.buffers[index]) != Wrong::nothing) return true;
  }
  return false;
}

/// The first buffer about which the findings differ, as a sentence.
std::string compare_buffers(const Model& model, const SymbolicResult& symbolic, const HostResult& host) {
  if (symbolic.buffers.size() != host.buffers.size()) {
    return fmt::format("symbolic compared {} buffers, host compared {}", symbolic.buffers.size(), host.buffers.size());
  }
  std::size_t differences = 0;
  std::string first;
  for (std::size_t index = 0; index < host.buffers.size(); ++index) {
    const BufferResult& exact = symbolic.buffers[index];
    const HostBuffer& numbers = host.buffers[index];
    if (!numbers.replayed) continue;
    const Wrong wrong = wrong_in(exact);
    // A sample need not meet the wrong elements, unless all of them are wrong.
    const bool host_must_see = host.sampled ? wrong == Wrong::all : wrong != Wrong::nothing;
    const bool host_may_see = wrong != Wrong::nothing;
    if (numbers.right ? !host_must_see : host_may_see) continue;
    if (differences++ > 0) continue;
    first = fmt::format("{} is {} for symbolic and {} for host", name_buffer(model, exact.rank, exact.buffer),
                        wrong == Wrong::nothing ? "right" : "wrong", numbers.right ? "right" : "wrong");
  }
  if (differences > 1) first += fmt::format(" (and {} more)", differences - 1);
  return first;
}

}  // namespace

std::string find_disagreement(const CheckResult& result, const CheckOptions& options) {
  if (!result.symbolic || !result.host) return "";
  const SymbolicResult& symbolic = *result.symbolic;
  const HostResult& host = *result.host;
  std::string difference;
  if (symbolic.step == host.step) {
    difference = compare_buffers(result.scenario->schedule->model, symbolic, host);
  } else if (host.step < symbolic.step) {
    difference = fmt::format("host finds wrong values after optimizer step {}, symbolic none before step {}", host.step,
                             symbolic.step);
  } else if (!host.sampled && any_wrong_in_replayed(symbolic, host)) {
    difference = fmt::format("symbolic finds wrong values after optimizer step {}, host none before step {}",
                             symbolic.step, host.step);
  }
  if (difference.empty()) return "";
  return fmt::format(
      "the engines disagree, which is a bug of lockstep: {}. Replay it with: lockstep check {}{} --seed {} -v",
      difference, result.file, options.host_forced ? " --engine symbolic,host" : "", options.seed);
}

}  // namespace lockstep
