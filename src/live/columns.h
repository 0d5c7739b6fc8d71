// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/live/captured_run.h"
#include "src/live/expected.h"
#include "src/live/sketch_files.h"
#include "src/live/vectors.h"

namespace lockstep::live {

/// A contribution to a piece, or several that are the same, which one of them names.
struct Column {
  int rank = 0, step = 0, micro_batch = 0;   ///< of the lowest
  std::vector<std::pair<int, int>> members;  ///< rank and micro-batch of all, ascending
  Vector values;                             ///< its sketch
  Dtype dtype = Dtype::float32;              ///< the coarsest of its members
  /// With what coefficient it should enter: each member once, those that see the same tokens together once.
  std::optional<Rational> expected;
  const Expected* likely = nullptr;  ///< knows what is likely; null: several that see different tokens
  int different = 1;                 ///< members that see different tokens
};

std::vector<const Column*> pointers(const std::vector<Column>& columns);

/// The hashes of sketches without a sum that is not zero. Those of one piece are of zeros, and so are the same, if the
/// files are what they say.
class ZeroHashes {
 public:
  /// False where it contradicts what was added before.
  bool add(const SketchedTensor& tensor);

 private:
  std::map<Dtype, GradientHash> hashes_;
};

inline constexpr const char* not_of_zeros = "has no sum that is not zero, and its hash is not that of zeros";

/// The contributions to one piece in one optimizer step.
struct Columns {
  std::vector<Column> columns;             ///< by rank and micro-batch, without those that are zero
  std::vector<std::pair<int, int>> zeros;  ///< rank and micro-batch of those
  ZeroHashes zero_hashes;
  std::uint64_t non_finite = 0;
  std::vector<int> non_finite_ranks;
  std::string missing;  ///< why some are not known: a sentence without a period; ""
  /// An axis along which ranks that see the same tokens contribute different things, and nothing says whether these are
  /// parts of the parameter or shares of its gradient; -1: none.
  int unsaid_axis = -1;
};

/// Whether the run says what ranks along an axis of its mesh have of a parameter where they see the same tokens and
/// yield different gradients: the tensors that are cut along it say so of all. Along cp and sp, where these are no data
/// axes, it is shares; what several pipeline stages have is added up, as tied embeddings are.
bool is_said_along(const CapturedRun& run, std::size_t axis);
/// The same of one parameter: not where weights that differ, or the same ones on stages that nothing ties, raise the
/// question anew.
bool is_said_along(const CapturedRun& run, std::size_t axis, int parameter);

/// Whether ranks may have computed one thing in other orders of summation, which differ by a few roundings.
bool nearly_equal(const Vector& a, const Vector& b, Dtype dtype);

/// `tensors`: all contributions to the piece, by rank. The columns keep a pointer to `expected`.
Columns gather_columns(const CapturedRun& run, SketchFiles& files, const Expected& expected, int step,
                       const std::vector<const SketchedTensor*>& tensors);

}  // namespace lockstep::live
