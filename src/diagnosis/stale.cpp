// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/stale.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lockstep/operation.h"
#include "lockstep/scenario.h"
#include "lockstep/symbolic.h"
#include "lockstep/timeline.h"
#include "src/base/at.h"

namespace lockstep::diagnosis {

namespace {

/// "pp 1 dp 0", or "rank 3" where no axis says it.
std::string place_of(const Mesh& mesh, int rank) {
  std::string text;
  for (const Axis axis : {Axis::pp, Axis::dp, Axis::sp, Axis::cp, Axis::tp}) {
    if (mesh.size(axis) > 1)
      text += fmt::format("{}{} {}", text.empty() ? "" : " ", name_of(axis), mesh.coordinate(rank, axis));
  }
  return text.empty() ? fmt::format("rank {}", rank) : text;
}

/// Who owns an element of a logical parameter just before an event.
class Owners {
 public:
  Owners(const CheckResult& result, int logical, std::int64_t element, std::size_t event)
      : schedule_(*result.scenario->schedule), timeline_(*result.timeline) {
    const int step = timeline_.events[event].optimizer_step;
    last_.resize(static_cast<std::size_t>(schedule_.mesh.world()));
    owned_.resize(last_.size(), 1);
    for (const OwnershipChange& change : timeline_.ownership) {
      if (change.event >= event || timeline_.events[change.event].optimizer_step != step) continue;
      if (change.buffer != schedule_.model.buffer_of(change.rank, logical)) continue;
      const auto rank = static_cast<std::size_t>(change.rank);
      owned_[rank] = std::any_of(change.owned.begin(), change.owned.end(), [&](const Interval& interval) {
        return interval.begin <= element && element < interval.end;
      });
      last_[rank] = change.event;
    }
  }

  bool owns(int rank) const { return owned_[at(rank)] != 0; }
  /// The step that took it away.
  std::string taken_by(int rank) const {
    const std::optional<std::size_t>& event = last_[at(rank)];
    if (!event) return "";
    for (const Call& call : timeline_.events[*event].calls) {
      if (call.rank == rank) return call.step->name;
    }
    return "";
  }
  /// A rank of the same stage that owns it, -1: none.
  int owner_beside(int rank, int logical) const {
    const Model& model = schedule_.model;
    const auto piece = [&](int of) {
      const int buffer = model.buffer_of(of, logical);
      return buffer < 0 ? -1 : model.local(of).buffers[at(buffer)].piece;
    };
    for (int other = 0; other < schedule_.mesh.world(); ++other) {
      if (owns(other) && piece(other) == piece(rank) &&
          schedule_.mesh.coordinate(other, Axis::pp) == schedule_.mesh.coordinate(rank, Axis::pp))
        return other;
    }
    return -1;
  }

 private:
  const Schedule& schedule_;
  const Timeline& timeline_;
  std::vector<std::optional<std::size_t>> last_;
  std::vector<char> owned_;
};

}  // namespace

std::string stale_slices(const CheckResult& result, const BufferDivergence& divergence) {
  if (divergence.point.step.empty()) return "";
  const Event& event = result.timeline->events[divergence.point.event];
  if (operation(event.op).value != Operation::Value::reduction) return "";
  const Schedule& schedule = *result.scenario->schedule;
  const LocalBuffer& local = schedule.model.local(divergence.rank).buffers[at(divergence.buffer)];
  std::optional<std::int64_t> element;
  for (const BufferResult& buffer : symbolic_of(result)->buffers) {
    if (buffer.rank != divergence.rank || buffer.buffer != divergence.buffer) continue;
    for (const PieceResult& piece : buffer.pieces) {
      if (!piece.right && piece.form == divergence.form && !element) element = piece.elements.begin;
    }
  }
  if (!element) return "";
  const Owners owners(result, local.logical, *element, divergence.point.event);
  for (const Call& call : event.calls) {
    if (owners.owns(call.rank) || call.rank == divergence.rank) continue;
    const std::string step = owners.taken_by(call.rank);
    const int owner = owners.owner_beside(call.rank, local.logical);
    if (step.empty()) continue;
    const Mesh& mesh = schedule.mesh;
    return fmt::format(
        "adds slices that {} left stale: what {} gets for its element {} includes the stale copy of {}{}", step,
        place_of(mesh, divergence.rank), *element, place_of(mesh, call.rank),
        owner < 0 ? "" : fmt::format("; the reduced one is on {}", place_of(mesh, owner)));
  }
  return "";
}

}  // namespace lockstep::diagnosis
