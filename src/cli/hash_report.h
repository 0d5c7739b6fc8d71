// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/tensor_file.h"
#include "src/cli/output.h"
#include "src/report/json_writer.h"

namespace lockstep::cli {

/// `text` without control characters, which would move the terminal's cursor.
std::string printable(std::string_view text);

/// Hashes file by file, as text or JSON.
class HashReport {
 public:
  HashReport(const std::string& path, const std::string& format);
  /// `hashes` belong to those of `tensors` that have a hash, in their order. `head`: the file is named before.
  void file(const TensorFile& file, const std::vector<TensorPlace>& tensors, const std::vector<GradientHash>& hashes,
            bool head);
  void finish();

 private:
  Output output_;
  report::JsonWriter json_;
  bool is_json_;
};

/// Tensors of one name in two files; at least one of them is there.
struct TensorPair {
  std::optional<TensorPlace> a, b;

  const StoredTensor& any() const { return a ? a->stored() : b->stored(); }
  bool alone() const { return !a || !b; }
  /// Both are there, and another dtype or shape already tells them apart.
  bool differs_in_kind() const;
  /// Both are there, of one kind, and have no hash.
  bool skipped() const;
  bool comparable() const { return !alone() && !differs_in_kind() && !skipped(); }
};

/// By name, in the order of the first file, then what the second has alone.
std::vector<TensorPair> pair_tensors(const std::vector<TensorPlace>& a, const std::vector<TensorPlace>& b);

struct Comparison {
  const TensorFile &a, &b;
  std::vector<TensorPair> pairs;
  std::vector<TensorDifference> differences;  ///< by pair; only those of comparable ones mean something
};

/// Returns the exit status.
int write_comparison(const Comparison& comparison, const std::string& path, const std::string& format, bool quiet,
                     bool verbose);

}  // namespace lockstep::cli
