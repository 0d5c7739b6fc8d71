// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/diagnosis/oracle.h"
#include "src/diagnosis/repairs.h"
#include "src/diagnosis/shrink.h"

namespace lockstep::diagnosis {

/// The layouts around a small one, each read once and when it is first asked for: they tell what is right from what is
/// right by accident, such as a division by dp where dp is what the micro-batches are. Refers to the scenario.
class Neighbours {
 public:
  Neighbours(const Scenario& scenario, const FileSizes& smallest)
      : scenario_(scenario), sizes_(sizes_around(scenario, smallest)) {}

  /// Fills in `sizes`, `right_sizes`, `wrong_at` and `wrong_with`, once for each repair.
  void try_on(FoundRepair& repair);

 private:
  struct Neighbour {
    std::string name, of;  // what it differs in
    std::unique_ptr<SymbolicOracle> oracle;
  };
  void read();

  const Scenario& scenario_;
  std::vector<OtherSize> sizes_;
  std::vector<Neighbour> neighbours_;
  bool read_ = false;
};

}  // namespace lockstep::diagnosis
