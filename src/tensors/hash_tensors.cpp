// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <memory>

#include "lockstep/tensor_file.h"
#include "src/numeric/parallel.h"
#include "src/tensors/element.h"

namespace lockstep {

std::vector<GradientHash> hash_tensors(const std::vector<TensorPlace>& tensors, std::uint64_t first, int threads) {
  std::vector<tensors::Part> parts;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors::add_parts(parts, i, tensors[i].stored().count, *tensors[i].stored().hashed);
  }
  // A hash is a sum: threads add what they have whenever they have it.
  const auto lanes = std::make_unique<std::atomic<std::uint64_t>[]>(2 * tensors.size());
  numeric::parallel_for(parts.size(), numeric::thread_count(threads), [&](std::size_t index) {
    thread_local tensors::Elements elements;
    const tensors::Part& part = parts[index];
    elements.read(tensors[part.tensor], part.begin, part.count);
    const GradientHash hash = elements.hash(0, part.count, first + part.begin);
    for (std::size_t lane = 0; lane < 2; ++lane)
      lanes[2 * part.tensor + lane].fetch_add(hash.lanes[lane], std::memory_order_relaxed);
  });
  std::vector<GradientHash> hashes(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) hashes[i] = {{lanes[2 * i].load(), lanes[2 * i + 1].load()}};
  return hashes;
}

}  // namespace lockstep
