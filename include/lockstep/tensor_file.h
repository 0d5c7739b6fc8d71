// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/hash.h"
#include "lockstep/model.h"

namespace lockstep {

/// One tensor of a file: row-major, little-endian, in one piece.
struct StoredTensor {
  std::string name;             ///< of an .npy file, which stores none: the file's name without its ending
  std::string dtype;            ///< lockstep's name of it; of a dtype without a hash, the file's own ("I64", "<i8")
  std::optional<Dtype> hashed;  ///< none: the dtype has no hash
  std::vector<std::uint64_t> shape;
  std::uint64_t count = 0;  ///< elements
  std::uint64_t begin = 0;  ///< where the first element stands, in bytes from the beginning of the file
  std::uint64_t bytes = 0;
};

/// A safetensors or .npy file, open for reading. Which of them it is, its content says. The header was read and checked
/// against the file's size; elements are read when they are asked for.
class TensorFile {
 public:
  /// Throws InputError, with a sentence that names the file, for whatever is wrong with it.
  explicit TensorFile(std::string path);
  ~TensorFile();
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

  const std::string& path() const { return path_; }
  std::string_view format() const { return format_; }  ///< "safetensors" or "npy"
  /// In the order in which their elements stand in the file.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

  /// Reads `size` bytes from byte `begin` on. May be called from several threads at once. Throws InputError where the
  /// file cannot be read or has become shorter.
  void read(std::uint64_t begin, void* to, std::size_t size) const;

 private:
  void read_header();
  [[noreturn]] void refuse(const std::string& sentence) const;

  std::string path_;
  std::string_view format_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  std::vector<StoredTensor> tensors_;
};

/// A tensor in a file.
struct TensorPlace {
  const TensorFile* file = nullptr;
  std::size_t tensor = 0;  ///< index into TensorFile::tensors()

  const StoredTensor& stored() const { return file->tensors()[tensor]; }
};

/// Where a shard lies in the whole tensor that it was cut from, by dimension: the index of its first element, and the
/// whole's size.
struct TensorShard {
  std::vector<std::uint64_t> begin, whole;
};

/// The hash of each tensor; all must have one. Element 0 of each counts as global index `first`. Reads about a
/// megabyte at a time on each of `threads` threads (0: one per core), whatever the tensors' sizes.
std::vector<GradientHash> hash_tensors(const std::vector<TensorPlace>& tensors, std::uint64_t first, int threads = 0);

/// The same for shards: an element counts at its row-major index in the whole, so that the hashes of all shards of a
/// tensor add up to its hash, along whichever dimensions it was cut. One shard for each tensor, with as many
/// dimensions, begin + size <= whole in each, and a whole of fewer than 2^64 elements.
std::vector<GradientHash> hash_shards(const std::vector<TensorPlace>& tensors, const std::vector<TensorShard>& shards,
                                      int threads = 0);

/// What differs between two tensors of one dtype and shape. Equal is what hashes alike: -0 and 0, any two NaN.
struct TensorDifference {
  struct Range {
    std::uint64_t begin = 0, end = 0;  ///< elements; all of them differ
    std::string first_a, first_b;      ///< the values of the first
  };
  GradientHash hash_a, hash_b;
  std::uint64_t elements = 0;  ///< that differ
  std::uint64_t ranges = 0;    ///< of them, as long as they can be
  std::vector<Range> first;    ///< the first of these ranges
};

/// Compares two tensors of one dtype, which has a hash, and one shape: hashes of blocks, then of their halves where
/// these differ, and so on down to elements. `first` as in hash_tensors; at most `most_ranges` ranges are kept.
TensorDifference compare_tensors(const TensorPlace& a, const TensorPlace& b, std::uint64_t first,
                                 std::size_t most_ranges, int threads = 0);

}  // namespace lockstep
