// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <memory>

#include "lockstep/tensor_file.h"
#include "src/numeric/parallel.h"
#include "src/tensors/element.h"
#include "src/tensors/shard.h"

namespace lockstep {

namespace {

/// hash(elements, part) for all parts of all tensors, on several threads.
template <class HashPart>
std::vector<GradientHash> hash_parts(const std::vector<TensorPlace>& tensors, int threads, const HashPart& hash_part) {
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
    const GradientHash hash = hash_part(elements, part);
    for (std::size_t lane = 0; lane < 2; ++lane)
      lanes[2 * part.tensor + lane].fetch_add(hash.lanes[lane], std::memory_order_relaxed);
  });
  std::vector<GradientHash> hashes(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) hashes[i] = {{lanes[2 * i].load(), lanes[2 * i + 1].load()}};
  return hashes;
}

}  // namespace

std::vector<GradientHash> hash_tensors(const std::vector<TensorPlace>& tensors, std::uint64_t first, int threads) {
  return hash_parts(tensors, threads, [&](const tensors::Elements& elements, const tensors::Part& part) {
    return elements.hash(0, part.count, first + part.begin);
  });
}

std::vector<GradientHash> hash_shards(const std::vector<TensorPlace>& tensors, const std::vector<TensorShard>& shards,
                                      int threads) {
  std::vector<tensors::ShardRuns> runs;
  for (std::size_t i = 0; i < tensors.size(); ++i) runs.emplace_back(tensors[i].stored().shape, shards.at(i));
  return hash_parts(tensors, threads, [&](const tensors::Elements& elements, const tensors::Part& part) {
    GradientHash sum;
    runs[part.tensor].for_each(
        part.begin, part.begin + part.count, [&](std::uint64_t begin, std::uint64_t count, std::uint64_t global) {
          sum += elements.hash(static_cast<std::size_t>(begin - part.begin), static_cast<std::size_t>(count), global);
        });
    return sum;
  });
}

}  // namespace lockstep
