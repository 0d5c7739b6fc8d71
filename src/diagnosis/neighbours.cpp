// SPDX-License-Identifier: Apache-2.0
#include "src/diagnosis/neighbours.h"

namespace lockstep::diagnosis {

void Neighbours::read() {
  read_ = true;
  for (const auto& [of, sizes] : sizes_) {
    const std::shared_ptr<const Scenario> there = read_at(scenario_, sizes);
    if (there == nullptr) continue;
    neighbours_.push_back({sizes.to_string(), of,
                           std::make_unique<SymbolicOracle>(*there->schedule, one_of_each_class(*there->schedule))});
  }
}

void Neighbours::try_on(FoundRepair& repair) {
  if (repair.tried_around) return;
  if (!read_) read();
  repair.tried_around = true;
  const std::vector<Edit> edits = repair.plain_edits();
  for (Neighbour& neighbour : neighbours_) {
    const OracleAnswer answer = neighbour.oracle->answer(edits);
    // A step that this size does not need is not there to be edited.
    if (answer.state == OracleAnswer::State::not_applicable) continue;
    ++repair.sizes;
    if (answer.right()) {
      ++repair.right_sizes;
      continue;
    }
    repair.wrong_with.insert(neighbour.of);
    if (repair.wrong_at.empty()) repair.wrong_at = neighbour.name;
  }
}

}  // namespace lockstep::diagnosis
