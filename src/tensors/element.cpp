// SPDX-License-Identifier: Apache-2.0
#include "src/tensors/element.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/diagnostic.h"
#include "src/model/dtype_bytes.h"

namespace lockstep::tensors {

namespace {

constexpr std::size_t part_bytes = 1 << 20;

template <class Element>
Element element(const std::vector<std::uint64_t>& memory, std::size_t index) {
  Element value;
  std::memcpy(&value, reinterpret_cast<const char*>(memory.data()) + index * sizeof value, sizeof value);
  return value;
}

float float_of_float16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16, size = bits & 0x7FFFu;
  if (size >= 0x7C00u) return std::bit_cast<float>(sign | 0x7F800000u | (size & 0x3FFu) << 13);
  if (size < 0x400u) return std::copysign(static_cast<float>(size) * 0x1p-24f, std::bit_cast<float>(sign));
  return std::bit_cast<float>(sign | ((size << 13) + ((127u - 15u) << 23)));
}

template <class Value>
bool values_differ(Value a, Value b) {
  return a != b && !(std::isnan(a) && std::isnan(b));
}

}  // namespace

void add_parts(std::vector<Part>& parts, std::size_t tensor, std::uint64_t count, Dtype dtype) {
  const std::uint64_t most = part_bytes / model::bytes_of(dtype);
  for (std::uint64_t begin = 0; begin < count; begin += most)
    parts.push_back({tensor, begin, static_cast<std::size_t>(std::min(most, count - begin))});
}

void Elements::read(const TensorPlace& place, std::uint64_t begin, std::size_t count) {
  const StoredTensor& stored = place.stored();
  dtype_ = *stored.hashed;
  size_ = model::bytes_of(dtype_);
  memory_.resize(std::max(memory_.size(), (count * size_ + 7) / 8));
  place.file->read(stored.begin + begin * size_, memory_.data(), count * size_);
}

GradientHash Elements::hash(std::size_t begin, std::size_t count, std::uint64_t first) const {
  // The memory was filled by the system with elements of this type.
  const void* at = reinterpret_cast<const char*>(memory_.data()) + begin * size_;
  switch (dtype_) {
    case Dtype::float32:
      return hash_elements(static_cast<const float*>(at), count, first);
    case Dtype::float64:
      return hash_elements(static_cast<const double*>(at), count, first);
    case Dtype::bfloat16:
      return hash_bfloat16(static_cast<const std::uint16_t*>(at), count, first);
    case Dtype::float16:
      return hash_float16(static_cast<const std::uint16_t*>(at), count, first);
  }
  throw InternalError("a dtype without a hash");
}

float Elements::float32(std::size_t index) const {
  if (dtype_ == Dtype::float32) return element<float>(memory_, index);
  const auto bits = element<std::uint16_t>(memory_, index);
  return dtype_ == Dtype::float16 ? float_of_float16(bits) : std::bit_cast<float>(std::uint32_t{bits} << 16);
}

bool Elements::differs(const Elements& other, std::size_t index) const {
  if (dtype_ == Dtype::float64)
    return values_differ(element<double>(memory_, index), element<double>(other.memory_, index));
  return values_differ(float32(index), other.float32(index));
}

std::string Elements::text(std::size_t index) const {
  if (dtype_ != Dtype::float64) return fmt::format("{}", float32(index));
  return fmt::format("{}", element<double>(memory_, index));
}

}  // namespace lockstep::tensors
