// SPDX-License-Identifier: Apache-2.0
// The hash on every target of the machine, beside a plain sum and xxHash. All of them take turns, a mebibyte of cold
// memory each, on all cores at once: whatever else runs on the machine takes its share from all alike, and a piece
// takes less time than a program is left alone for. Medians count.
#include "benchmarks/hash_targets.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <functional>

#include "benchmarks/goal.h"
#include "benchmarks/measure.h"
#include "benchmarks/plain_sum.h"
#include "lockstep/numeric.h"
#include "src/numeric/kernels.h"
#include "src/numeric/loops.h"
#include "src/numeric/mix.h"
#include "src/numeric/parallel.h"

namespace lockstep::bench {

namespace {

constexpr std::size_t piece = 1 << 20, pieces = 128, passes = 24;

constexpr const char* replay_name = "replay of float32";

// What float32 has to reach, in percent: its loop is the slower one, so either may be the bound.
constexpr double of_read_bandwidth = 85, of_loop_alone = 95;

using Work = std::function<void(const std::uint64_t* words)>;

struct Row {
  std::string target, what;
  std::size_t element = 8;  ///< bytes
  int multiplications = 0;  ///< for each element
  Work work;
  std::vector<double> seconds;  ///< of a piece, from all threads
  double in_cache = 0;          ///< seconds for a piece that is read again and again, one core
  double median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

template <class Element>
Work hash_with(GradientHash (*sum_blocks)(const Element* values, std::size_t blocks,
                                          const numeric::HashFactors* factors)) {
  return [sum_blocks](const std::uint64_t* words) {
    // Blocks and their factors as in src/numeric/hash.cpp.
    constexpr std::size_t block = 512, blocks = piece / sizeof(Element) / block, at_once = 64;
    const auto* values = reinterpret_cast<const Element*>(words);
    std::array<numeric::HashFactors, at_once> factors;
    GradientHash hash;
    for (std::size_t i = 0; i < blocks; i += at_once) {
      for (std::size_t lane = 0; lane < 2; ++lane) {
        for (std::size_t b = 0; b < at_once; ++b) factors[b][lane] = numeric::splitmix(lane, i + b) | 1;
      }
      hash += sum_blocks(values + i * block, at_once, factors.data());
    }
    benchmark::DoNotOptimize(hash);
  };
}

/// Two ranks' gradients of half a piece each: generated, added, divided by 2, and the mean hashed; block by block, in
/// cache.
void replay(const std::uint64_t*) {
  constexpr std::size_t block = 4096;
  alignas(64) static thread_local float first[block], second[block];
  numeric::GeneratedTerm term;
  term.factor.multiply = 3;
  numeric::Factor half;
  half.divide = 2;
  GradientHash hash;
  for (std::size_t i = 0; i < piece / sizeof(float) / 2; i += block) {
    term.key = 1;
    numeric::set_generated(first, term, 12, i, block);
    term.key = 2;
    numeric::set_generated(second, term, 12, i, block);
    numeric::add(first, second, block);
    numeric::scale(first, half, block);
    hash += hash_elements(first, block, i);
  }
  benchmark::DoNotOptimize(hash);
}

std::vector<Row> make_rows() {
  std::vector<Row> rows;
  rows.push_back({"", "plain sum", 8, 0, [](const std::uint64_t* words) {
                    benchmark::DoNotOptimize(plain_sum(words, piece / sizeof(std::uint64_t)));
                  }});
  rows.push_back({"", "plain sum with prefetching", 8, 0, [](const std::uint64_t* words) {
                    benchmark::DoNotOptimize(prefetching_sum(words, piece / sizeof(std::uint64_t)));
                  }});
  rows.push_back({"", "xxHash, XXH3 of 128 bits", 8, 0,
                  [](const std::uint64_t* words) { benchmark::DoNotOptimize(XXH3_128bits(words, piece)); }});
  for (const numeric::Loops& loops : numeric::available_loops()) {
    rows.push_back({loops.target, "float64", 8, 2, hash_with(loops.sum_blocks_float64)});
    rows.push_back({loops.target, "float32", 4, 2, hash_with(loops.sum_blocks_float32)});
    rows.push_back({loops.target, "bfloat16", 2, 2, hash_with(loops.sum_blocks_bfloat16)});
    rows.push_back({loops.target, "float16", 2, 2, hash_with(loops.sum_blocks_float16)});
    rows.push_back({loops.target, "prime61", 8, 2, hash_with(loops.sum_blocks_residues)});
  }
  rows.push_back({numeric::loops().target, replay_name, 4, 0, replay});
  return rows;
}

std::vector<Row> measured;  // of the last repetition

/// Seconds for a piece of the fastest row: the read bandwidth. Some hashes read as fast as the sums.
double fastest() {
  double seconds = measured.front().median();
  for (const Row& row : measured) {
    if (row.what != replay_name) seconds = std::min(seconds, row.median());
  }
  return seconds;
}

void measure_in_cache(Row& row) {
  // The same memory again: what is left is the loop itself. The best counts: no other program can make it faster.
  alignas(64) static std::uint64_t words[piece / sizeof(std::uint64_t)];
  std::fill(std::begin(words), std::end(words), 0x3F0123453F012345u);
  row.in_cache = 1;
  for (int i = 0; i < 60; ++i) {
    const Stopwatch stopwatch;
    row.work(words);
    row.in_cache = std::min(row.in_cache, stopwatch.seconds());
  }
}

void hash_targets(benchmark::State& state) {
  const auto threads = static_cast<std::size_t>(numeric::thread_count(0));
  for ([[maybe_unused]] const auto iteration : state) {
    const Stopwatch all;
    measured = make_rows();
    std::vector<std::vector<std::vector<double>>> seconds(threads, std::vector<std::vector<double>>(measured.size()));
    numeric::parallel_for(threads, static_cast<int>(threads), [&](std::size_t thread) {
      std::vector<std::uint64_t> memory(pieces * piece / 8 + 8);
      std::uint64_t* begin = memory.data();
      while (reinterpret_cast<std::uintptr_t>(begin) % 64 != 0) ++begin;
      for (std::size_t i = 0; i < pieces * piece / 8; ++i) begin[i] = numeric::mix64(i) & 0x3FFF3FFF3FFF3FFFu;
      for (std::size_t i = 0; i < pieces * passes; ++i) {
        // In each pass another row gets a piece.
        const std::size_t row = (i % pieces + i / pieces) % measured.size();
        const Stopwatch stopwatch;
        measured[row].work(begin + i % pieces * (piece / 8));
        seconds[thread][row].push_back(stopwatch.seconds());
      }
    });
    for (std::size_t row = 0; row < measured.size(); ++row) {
      for (const auto& of_thread : seconds)
        measured[row].seconds.insert(measured[row].seconds.end(), of_thread[row].begin(), of_thread[row].end());
      measure_in_cache(measured[row]);
    }
    state.SetIterationTime(all.seconds());
  }
  const double read = fastest();
  double hash = 0;
  for (const Row& row : measured) {
    if (row.target.empty()) continue;
    state.counters[row.target + " " + row.what] = 100 * read / row.median();
    if (row.what != "float32") continue;
    const double wanted = std::max(read / of_read_bandwidth, row.in_cache / of_loop_alone) * 100;  // seconds
    state.counters[row.target + " float32 of wanted"] = 100 * wanted / row.median();
    if (row.target == numeric::loops().target) hash = row.median();
  }
  state.counters["replay"] = 100 * hash / measured.back().median();
  state.counters["read_gb_per_s_and_core"] = static_cast<double>(piece) / read / 1e9;
  state.counters[best_time] = 0;
  state.counters[peak_memory] = 0;
}

std::vector<Goal> goals() {
  std::vector<Goal> list;
  for (const numeric::Loops& loops : numeric::available_loops()) {
    if (loops.target != "avx512" && loops.target != "avx2") continue;
    const auto add = [&](const std::string& dtype, double limit) {
      list.push_back({fmt::format("hash of {} with {}, of the read bandwidth", dtype, loops.target), limit, "%",
                      Comparison::at_least, loops.target + " " + dtype});
    };
    add("float64", 92);
    add("prime61", 92);
    list.push_back({fmt::format("hash of float32 with {}, of {} % of the read bandwidth or {} % of the loop alone, "
                                "whichever is less",
                                loops.target, of_read_bandwidth, of_loop_alone),
                    100, "%", Comparison::at_least, loops.target + " float32 of wanted"});
    add("bfloat16", 30);
    add("float16", 30);
  }
  list.push_back({"generate, reduce, scale and hash, of the hash alone", 50, "%", Comparison::at_least, "replay"});
  return list;
}

const bool added = add_benchmark("hash_targets", hash_targets, goals());

}  // namespace

std::string hash_target_table() {
  if (measured.empty()) return "";
  std::string text =
      "| target | what | 10⁹ elements/s and core | GB/s and core | of the read bandwidth | multiplications per element "
      "| "
      "the loop alone, GB/s |\n|---|---|--:|--:|--:|--:|--:|\n";
  const double read = fastest();
  for (const Row& row : measured) {
    const double seconds = row.median(), bytes = static_cast<double>(piece);
    text += fmt::format("| {} | {} | {:.2f} | {:.1f} | {:.0f} % | {} | {:.1f} |\n", row.target, row.what,
                        bytes / static_cast<double>(row.element) / seconds / 1e9, bytes / seconds / 1e9,
                        100 * read / seconds, row.multiplications > 0 ? fmt::format("{}", row.multiplications) : "-",
                        bytes / row.in_cache / 1e9);
  }
  return text;
}

}  // namespace lockstep::bench
