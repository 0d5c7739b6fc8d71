// SPDX-License-Identifier: Apache-2.0
#include "src/tensors/header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep::tensors {

void count_elements(StoredTensor& tensor, std::uint64_t bits) {
  tensor.count = 1;
  bool too_large = false;
  for (const std::uint64_t extent : tensor.shape)
    too_large |= __builtin_mul_overflow(tensor.count, extent, &tensor.count) || extent >> 63 != 0;
  std::uint64_t all_bits = 0;
  too_large |= __builtin_mul_overflow(tensor.count, bits, &all_bits);
  if (too_large)
    throw HeaderError(fmt::format("the shape {} of tensor {} has more elements than 64 bits can count",
                                  shape_text(tensor.shape), in_quotes(tensor.name)));
  tensor.bytes = all_bits / 8 + (all_bits % 8 != 0);
}

std::string shape_text(const std::vector<std::uint64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string in_quotes(std::string_view text) {
  constexpr std::size_t most = 200;
  std::string result = "\"";
  for (const char c : text.substr(0, most)) {
    if (c >= ' ' && c <= '~') {
      result += c;
    } else {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return result + (text.size() > most ? "…\"" : "\"");
}

}  // namespace lockstep::tensors
