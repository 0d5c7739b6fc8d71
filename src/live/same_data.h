// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "src/live/verify.h"

namespace lockstep::live {

/// Data-parallel ranks that contributed the same to an optimizer step, in all parameters. Whether such ranks'
/// contributions were added up no result says: the average of equal gradients is each of them.
class SameData {
 public:
  SameData(const CapturedRun& run, SketchFiles& files, const Expected& expected, int step, const Cells& cells);

  /// Makes of results that are right, and to which such ranks contributed, undecided ones.
  void doubt(const Cell& cell, std::vector<PieceFinding>& findings) const;

 private:
  void tell_apart(const Columns& found);
  /// By class, the data-parallel ranks that nothing tells apart and that yield something.
  std::vector<std::vector<int>> same() const;

  const CapturedRun& run_;
  std::vector<int> class_of_;  // by data coordinate; -1: no rank that has it left a file
  std::vector<char> yields_;   // by data coordinate: something that is not zero
  std::string words_;          // "": all are told apart
};

/// Where no rank's backward yielded anything but zeros, results that are right become undecided.
void doubt_zeros(std::vector<PieceFinding>& findings);

}  // namespace lockstep::live
