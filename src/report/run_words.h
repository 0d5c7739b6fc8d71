// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/live.h"
#include "src/base/at.h"

namespace lockstep::report {

/// Results that a report shows as one: of the same parameter in several layers, with one formula on the same ranks.
struct RunRow {
  const VerifiedPiece* first = nullptr;
  std::string name;  ///< "layers.*.norm.weight (24)", "embedding.weight [0, 768)"
};

/// What every report says of a captured run, in words. The result must outlive it.
class RunWords {
 public:
  explicit RunWords(const VerifyResult& result);

  /// "dp 2 = 2 ranks, 1 optimizer step, 2 micro-batches, loss local_mean, ddp".
  std::string layout() const;
  /// "3 parameters, 3 distinct results compared: 2 right, 1 wrong": what several ranks get alike counts once.
  std::string counts() const;
  /// What a run that is right without a reference does not say; "" else.
  std::string not_checked() const;
  /// With how many parameters the contributions add up to the reference's gradient, and how nearly; "" without one.
  std::string reference() const;
  /// "norm.weight, on rank 1, in optimizer step 0"; of more than `most_names` names, layers folded, their number alone.
  std::string where(const VerifyFinding& finding, std::size_t most_names) const;
  /// Complexity: near linear in the pieces.
  std::vector<RunRow> rows(const std::vector<const VerifiedPiece*>& pieces) const;
  /// Those that are not right, wrong ones first; with `right` all, the right ones last.
  std::vector<const VerifiedPiece*> pieces(bool right) const;
  /// The ranks whose optimizers get it, and the optimizer step where the run has several.
  std::string ranks(const VerifiedPiece& piece, std::size_t most = 8) const;
  /// The parameters of which anything was compared, ascending.
  const std::vector<int>& compared() const { return compared_; }

 private:
  const std::string& name(int parameter) const { return result_.parameters[at(parameter)].name; }

  const VerifyResult& result_;
  std::vector<int> compared_;
};

/// "match", "mismatch", "undecided": the words of check, where it has them.
inline std::string_view verdict_word(VerifiedPiece::Verdict verdict) {
  return verdict == VerifiedPiece::Verdict::right   ? "match"
         : verdict == VerifiedPiece::Verdict::wrong ? "mismatch"
                                                    : "undecided";
}

}  // namespace lockstep::report
