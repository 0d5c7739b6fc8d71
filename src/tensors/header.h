// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/tensor_file.h"

namespace lockstep::tensors {

/// What is wrong with a header: a sentence about the file, whose name goes before it.
class HeaderError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Headers longer than this are refused, as the formats' own readers do.
inline constexpr std::uint64_t longest_safetensors_header = 100'000'000;
inline constexpr std::uint64_t longest_npy_header = 1 << 20;

/// The tensors that the JSON header of a safetensors file describes, by their place in the file. Their elements begin
/// at byte `data_begin` of the file and fill it up to `file_size`; anything else, and whatever else is wrong, is thrown
/// as HeaderError.
std::vector<StoredTensor> read_safetensors_header(std::string_view header, std::uint64_t data_begin,
                                                  std::uint64_t file_size);

/// The tensor that the header of an .npy file describes: a Python dictionary. Its elements fill the file from
/// `data_begin` to `file_size`. Throws HeaderError. The name is left empty.
StoredTensor read_npy_header(std::string_view header, std::uint64_t data_begin, std::uint64_t file_size);

/// Sets count and bytes from the shape. `bits` is the size of an element. Throws HeaderError where they, or a
/// size of the shape, pass 64 bits.
void count_elements(StoredTensor& tensor, std::uint64_t bits);

/// `[2, 3]`.
std::string shape_text(const std::vector<std::uint64_t>& shape);

/// `text` in quotes for a message, its control characters and bytes beyond ASCII written as \xHH, cut where it is long.
std::string in_quotes(std::string_view text);

}  // namespace lockstep::tensors
