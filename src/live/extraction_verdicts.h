// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/live/collective_order.h"
#include "src/live/extraction_columns.h"
#include "src/live/extraction_norms.h"

namespace lockstep::live {

/// Composes the programs of an extraction, and says of what every rank's optimizer reads whether it is right.
class ExtractionVerdicts {
 public:
  /// `expected`: by optimizer step of the run. All but the options must outlive it; `expected` may be filled in later.
  ExtractionVerdicts(const Extraction& extraction, const RunFormulas& formulas, const std::map<int, Expected>& expected,
                     const VerifyOptions& options);
  ~ExtractionVerdicts();

  /// Every distinct result of an optimizer step, by parameter and elements, of the parameters that are not 0 in
  /// `chosen`, and what no optimizer reads. VerifiedPiece::piece is an index into pieces().
  std::vector<PieceFinding> findings(int step, const std::vector<char>& chosen);
  /// By parameter: elements of it that were told, in words.
  const std::vector<std::vector<std::string>>& pieces() const;
  /// Of the norms by which gradients are clipped in an optimizer step.
  NormFindings norms(int step);
  /// Calls that do not meet, and ranks that wait for ever.
  CollectiveOrder collectives() const;

 private:
  class Composition;
  std::unique_ptr<Composition> composition_;
};

}  // namespace lockstep::live
