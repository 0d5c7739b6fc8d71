// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/mesh.h"
#include "src/base/at.h"
#include "src/live/captured_run.h"

namespace lockstep::live {

/// Which parameters of a run are experts: those that some ranks of a pipeline stage hold and others have not. The n-th
/// of each rank are together one parameter of the scenario, of which every rank has its part along ep.
struct Experts {
  std::optional<Mesh> mesh;     ///< with ep; nothing where there are no experts
  std::vector<int> lead;        ///< by parameter: the first one of those that it is together with, itself where alone
  std::vector<int> coordinate;  ///< by parameter: on ep, of the ranks that hold it; -1: it is no expert
  std::vector<std::vector<int>> together;  ///< by lead: all, by coordinate; empty where alone
  std::vector<std::vector<int>> group;     ///< by rank: those that exchange tokens with it, by coordinate on ep

  int size() const { return mesh ? mesh->size(Axis::ep) : 1; }
  bool leads(int parameter) const { return lead[at(parameter)] == parameter; }
};

/// `axes`: those of the run's mesh, as the layout names them. Throws InputError where ranks hold parameters that others
/// of their stage have not, in a way that is no expert mesh's.
Experts find_experts(const CapturedRun& run, const std::vector<std::string>& axes);

/// The name of experts that are one parameter: "experts.0+2.weight".
std::string name_of_experts(const CapturedRun& run, const std::vector<int>& together);

}  // namespace lockstep::live
