// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/live/captured_run.h"
#include "src/live/event.h"

namespace lockstep::live {

/// What captures and extractions declare alike. Mistakes are added to the event's diagnostics.

/// "mesh" and "data_axes", for a header whose world is known. `ranks_given`: its "ranks" must be there; else they may
/// be left out, and are row by row.
void read_mesh(const Event& event, Header& header, bool ranks_given = true);
/// "loss"; nothing where it is null or missing.
std::optional<CapturedLoss> read_loss(const Event& event);
/// "versions"; none where there are none.
std::vector<std::pair<std::string, std::string>> read_versions(const Event& event);
/// A "parameter", but for its id. Nothing where its shape or its pieces are not to be used.
std::optional<DeclaredParameter> read_declared(const Event& event);
/// "range" or "box" of a part of a parameter, in `json`; empty intervals, and a mistake, where it is none.
std::vector<Interval> read_piece(const Event& event, const Json& json, const DeclaredParameter& parameter);
/// A "gap", but for its parameters.
CaptureGap read_gap(const Event& event);
/// "micro_batches" and "tokens" of a "step": at least as many as have yielded contributions by then.
void read_micro_batches(const Event& event, RankStep& step);
/// "partial": by bit, axes of the mesh.
std::uint32_t read_partial(const Event& event, const std::vector<std::string>& axes);

}  // namespace lockstep::live
