// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "lockstep/check.h"
#include "lockstep/gradient_state.h"
#include "lockstep/mesh.h"
#include "lockstep/numeric.h"

namespace lockstep::report {

/// Ranks that hold equal content of one parameter: the same piece, owned elements, forms, hashes.
struct RankGroup {
  std::vector<int> ranks;                  ///< ascending
  int buffer = 0;                          ///< of the first rank: index into its LocalModel
  const BufferResult* symbolic = nullptr;  ///< of the first rank; null where the engine did not run
  const HostBuffer* host = nullptr;        ///< null where the host has nothing to say of this step
  Intervals unowned;                       ///< elements for which nobody answers
  bool wrong = false;                      ///< in value, or holding unowned elements
};

/// What was found about one parameter name. A rank stands under the first name of its buffer.
struct ParameterFinding {
  int parameter = 0;              ///< index into Model::parameters()
  bool wrong = false;             ///< in value, in norm, or unowned
  std::vector<RankGroup> groups;  ///< by first rank
  Intervals unowned;              ///< on any rank
  int like = -1;                  ///< wrong just like this parameter, whose ranks are listed; -1: its own are
  std::string not_shown;          ///< half a sentence: why no rank is listed; "" where one is
};

/// The findings of a scenario that was replayed, in model order: the wrong ones, or with `all` every
/// parameter. Right ranks are listed with `all` only.
/// Complexity: near linear in the number of buffers on all ranks.
std::vector<ParameterFinding> collect_findings(const CheckResult& result, bool all);

/// Whether the expert mesh is worth a word: it is cut in another way than the dense one.
bool has_expert_mesh(const Layout& layout);
/// The coordinates of a rank on the axes larger than 1, slowest first.
std::vector<std::pair<std::string, int>> coordinates(const Mesh& mesh, int rank);

}  // namespace lockstep::report
