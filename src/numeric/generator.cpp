// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/generator.h"

#include "src/numeric/loops.h"

namespace lockstep::numeric {

namespace {

std::uint64_t combine(std::uint64_t seed, std::uint64_t value) { return splitmix(seed, value); }

}  // namespace

std::uint64_t gradient_key(int logical, int source, int micro_batch, int site_use) {
  std::uint64_t key = combine(1, static_cast<std::uint64_t>(logical));
  key = combine(key, static_cast<std::uint64_t>(source));
  key = combine(key, static_cast<std::uint64_t>(micro_batch));
  return combine(key, static_cast<std::uint64_t>(site_use));
}

std::uint64_t leftover_key(int logical, std::string_view what, int rank) {
  std::uint64_t key = combine(2, static_cast<std::uint64_t>(logical));
  for (const char letter : what) key = combine(key, static_cast<unsigned char>(letter));
  return combine(key, static_cast<std::uint64_t>(rank + 1));
}

void generate(std::uint64_t key, int bits, std::uint64_t first, std::size_t count, std::int32_t* out) {
  for_stretches(key, bits, first, count, [&](const Numbers& numbers, std::size_t begin, std::size_t part) {
    loops().generate(numbers, part, out + begin);
  });
}

void generate_residues(std::uint64_t key, std::uint64_t first, std::size_t count, std::uint64_t* out) {
  loops().generate_residues(key, first, count, out);
}

}  // namespace lockstep::numeric
