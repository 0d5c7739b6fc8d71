// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/generator.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "src/numeric/prime61.h"
#include "tests/catch.h"

using namespace lockstep::numeric;

namespace {

std::vector<std::int32_t> numbers(std::uint64_t key, int bits, std::uint64_t first, std::size_t count) {
  std::vector<std::int32_t> result(count);
  generate(key, bits, first, count, result.data());
  return result;
}

}  // namespace

TEST_CASE("numbers are never 0, stay in their range and fill it with both signs") {
  for (const int bits : {0, 1, 4, 12, 20, max_generator_bits}) {
    INFO(bits);
    const auto values = numbers(gradient_key(3, 1, 2, 0), bits, 1000, 100'000);
    const std::int32_t largest = std::int32_t{1} << bits;
    double sum = 0;
    std::int32_t top = 0;
    std::size_t negative = 0;
    for (const std::int32_t value : values) {
      REQUIRE(value != 0);
      REQUIRE(std::abs(value) <= largest);
      top = std::max(top, std::abs(value));
      sum += std::abs(value);
      negative += value < 0;
    }
    CHECK(top > largest - largest / 1000 - 1);
    const double mean = (1.0 + largest) / 2;
    CHECK(std::abs(sum / 1e5 - mean) < mean / 50);
    CHECK(std::abs(static_cast<double>(negative) - 5e4) < 1000);
  }
}

TEST_CASE("every value of a small range is equally frequent") {
  std::map<std::int32_t, int> counts;
  for (const std::int32_t value : numbers(gradient_key(0, 0, 0, 0), 4, 0, 64'000)) ++counts[value];
  CHECK(counts.size() == 32);
  for (const auto& [value, count] : counts) CHECK(std::abs(count - 2000) < 250);
}

TEST_CASE("a shard is generated as the same elements of the whole are") {
  const std::uint64_t key = gradient_key(7, 5, 0, 1);
  const std::uint64_t first = (std::uint64_t{1} << 32) - 50;  // across two stretches
  const auto whole = numbers(key, 20, first, 100);
  for (std::size_t i = 0; i < 100; ++i) CHECK(numbers(key, 20, first + i, 1)[0] == whole[i]);
  CHECK(numbers(key, 20, first + 30, 40) == std::vector<std::int32_t>(whole.begin() + 30, whole.begin() + 70));
  CHECK(std::equal(whole.begin() + 50, whole.end(), numbers(key, 20, 0, 50).begin()) == false);
}

TEST_CASE("unknowns that differ in anything have unrelated numbers") {
  std::set<std::uint64_t> keys;
  std::size_t made = 0;
  for (int logical = 0; logical < 4; ++logical) {
    for (int source = 0; source < 8; ++source) {
      for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
        for (int use = 0; use < 3; ++use, ++made) keys.insert(gradient_key(logical, source, micro_batch, use));
      }
    }
    for (int rank = -1; rank < 8; ++rank) {
      for (const char* what : {"parameter", "momentum", "p"}) {
        keys.insert(leftover_key(logical, what, rank));
        ++made;
      }
    }
  }
  CHECK(keys.size() == made);
  // Letters of a leftover are no ranks or micro-batches of a gradient.
  CHECK(leftover_key(0, "pq", 4) != gradient_key(0, 'p', 'q', 5));
  // Few elements of two unknowns agree by chance, and none all along at some distance.
  const auto a = numbers(gradient_key(0, 0, 0, 0), 12, 0, 20'000), b = numbers(gradient_key(0, 1, 0, 0), 12, 0, 20'000);
  for (std::size_t distance = 0; distance < 40; ++distance) {
    int equal = 0, related = 0;
    for (std::size_t i = 0; i + distance < a.size(); ++i) {
      equal += a[i + distance] == b[i];
      related += distance > 0 && a[i + distance] == a[i];
    }
    CHECK(equal < 20);
    CHECK(related < 20);
  }
}

TEST_CASE("unknowns keep their numbers, so that hashes of other days can be compared") {
  CHECK(gradient_key(0, 0, 0, 0) == 0xe28195ddd9ee4956);
  CHECK(gradient_key(3, 1, 2, 4) == 0x7e247c206d081add);
  CHECK(leftover_key(0, "gradient", -1) == 0x49c39a82a645c31a);
  CHECK(leftover_key(3, "parameter", 2) == 0x80b4539d939948b7);
}

TEST_CASE("residues are spread over the field without 0") {
  std::vector<std::uint64_t> values(10'000), shifted(100);
  generate_residues(9, 0, values.size(), values.data());
  generate_residues(9, 500, shifted.size(), shifted.data());
  CHECK(std::equal(shifted.begin(), shifted.end(), values.begin() + 500));
  double sum = 0;
  for (const std::uint64_t value : values) {
    REQUIRE(value > 0);
    REQUIRE(value < prime61);
    sum += static_cast<double>(value);
  }
  CHECK(std::abs(sum / 1e4 / static_cast<double>(prime61) - 0.5) < 0.02);
  CHECK(std::set<std::uint64_t>(values.begin(), values.end()).size() == values.size());
}

TEST_CASE("the field adds, multiplies and inverts modulo 2^61 - 1") {
  CHECK(add61(prime61 - 1, 1) == 0);
  CHECK(add61(prime61 - 1, prime61 - 1) == prime61 - 2);
  CHECK(multiply61(prime61 - 1, prime61 - 1) == 1);
  CHECK(multiply61(std::uint64_t{1} << 60, 4) == 2);
  CHECK(multiply61(0, 5) == 0);
  for (const std::uint64_t a :
       {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}, std::uint64_t{12345678901}, prime61 - 1}) {
    CHECK(multiply61(a, inverse61(a)) == 1);
  }
}
