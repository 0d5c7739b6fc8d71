// SPDX-License-Identifier: Apache-2.0
#include "lockstep/hash.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "src/numeric/mix.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

GradientHash hash_of_values(const std::vector<float>& values, std::uint64_t first = 0) {
  return hash_elements(values.data(), values.size(), first);
}
GradientHash hash_of_values(const std::vector<double>& values, std::uint64_t first = 0) {
  return hash_elements(values.data(), values.size(), first);
}

// A structured change must be seen by each lane alone: with two lanes at fault at once nothing
// could be counted.
bool differ_in_both_lanes(const GradientHash& a, const GradientHash& b) {
  return a.lanes[0] != b.lanes[0] && a.lanes[1] != b.lanes[1];
}

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

struct Vector {
  std::string domain, hash;
  std::uint64_t first = 0;
  std::vector<std::string> elements;
};

std::string read_document() {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/docs/hash.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Vector> read_vectors() {
  std::vector<Vector> result;
  std::istringstream text(read_document());
  for (std::string line; std::getline(text, line);) {
    if (line.find("` |") == std::string::npos || line.rfind("| ", 0) != 0) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(2));
    for (std::string cell; std::getline(row, cell, '|');) {
      const auto begin = cell.find_first_not_of(" `"), end = cell.find_last_not_of(" `");
      cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
    }
    if (cells.size() != 4 || cells[3].size() != 32) continue;
    Vector vector{cells[0], cells[3], std::stoull(cells[1]), {}};
    std::istringstream elements(cells[2] == "(none)" ? "" : cells[2]);
    for (std::string element; elements >> element;) vector.elements.push_back(element);
    result.push_back(vector);
  }
  return result;
}

template <class Element, class Read>
std::vector<Element> read_elements(const Vector& vector, Read read) {
  std::vector<Element> values;
  for (const std::string& element : vector.elements) values.push_back(static_cast<Element>(read(element)));
  return values;
}

GradientHash hash_of_values(const Vector& vector) {
  const auto number = [](const std::string& text) { return std::strtod(text.c_str(), nullptr); };
  const auto whole = [](const std::string& text) { return std::strtoull(text.c_str(), nullptr, 0); };
  if (vector.domain == "float32") return hash_of_values(read_elements<float>(vector, number), vector.first);
  if (vector.domain == "float64") return hash_of_values(read_elements<double>(vector, number), vector.first);
  if (vector.domain == "bfloat16" || vector.domain == "float16") {
    const auto values = read_elements<std::uint16_t>(vector, whole);
    const auto hash = vector.domain == "bfloat16" ? hash_bfloat16 : hash_float16;
    return hash(values.data(), values.size(), vector.first);
  }
  const auto values = read_elements<std::uint64_t>(vector, whole);
  return hash_residues(values.data(), values.size(), vector.first);
}

}  // namespace

TEST_CASE("the hash agrees with the test vectors in docs/hash.md") {
  const std::vector<Vector> vectors = read_vectors();
  REQUIRE(vectors.size() == 29);
  for (const Vector& vector : vectors) {
    INFO(vector.domain << " " << vector.first);
    CHECK(hash_of_values(vector).to_string() == vector.hash);
  }
}

TEST_CASE("the Python in docs/hash.md gives the same test vectors") {
  if (std::system("python3 --version > /dev/null 2>&1") != 0) return;
  const std::string document = read_document();
  const std::string fence = "```python\n";
  const auto begin = document.find(fence) + fence.size();
  std::string program = document.substr(begin, document.find("```", begin) - begin);
  for (const Vector& vector : read_vectors()) {
    program += "assert gradient_hash('" + vector.domain + "', [";
    const bool is_number = vector.domain == "float32" || vector.domain == "float64";  // the others are bit patterns
    for (const std::string& element : vector.elements) {
      program += (is_number ? "float('" + element + "')" : element) + ", ";
    }
    program += "], " + std::to_string(vector.first) + ") == '" + vector.hash + "'\n";
  }
  program += "print('agreed')\n";
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("lockstep-hash-" + std::to_string(std::random_device()()) + ".py");
  std::ofstream(path) << program;
  CHECK(std::system(("python3 " + path.string() + " > /dev/null").c_str()) == 0);
  std::filesystem::remove(path);
}

TEST_CASE("hashes of shards add up to the hash of the whole, wherever it is cut") {
  const std::vector<float> values = random_values(1300, 1);
  const std::uint64_t first = (std::uint64_t{1} << 40) - 700;
  const GradientHash whole = hash_of_values(values, first);
  for (std::size_t cut = 0; cut <= values.size(); ++cut) {
    GradientHash sum = hash_elements(values.data(), cut, first);
    sum += hash_elements(values.data() + cut, values.size() - cut, first + cut);
    REQUIRE(sum == whole);
  }
  GradientHash one_by_one;
  for (std::size_t i = values.size(); i-- > 0;) one_by_one += hash_elements(&values[i], 1, first + i);
  CHECK(one_by_one == whole);
  const std::vector<double> wide(values.begin(), values.end());
  const GradientHash wide_whole = hash_of_values(wide, first);
  for (std::size_t cut = 0; cut <= wide.size(); cut += 13) {
    GradientHash sum = hash_elements(wide.data() + cut, wide.size() - cut, first + cut);
    sum += hash_elements(wide.data(), cut, first);
    REQUIRE(sum == wide_whole);
  }
}

TEST_CASE("minus zero hashes as zero and every NaN alike, and nothing else does") {
  const auto one = [](auto value) { return hash_elements(&value, 1, 5); };
  CHECK(one(-0.0f) == one(0.0f));
  CHECK(one(-0.0) == one(0.0));
  CHECK_FALSE(one(std::numeric_limits<float>::denorm_min()) == one(0.0f));
  CHECK_FALSE(one(-std::numeric_limits<double>::denorm_min()) == one(0.0));
  for (const std::uint32_t bits : {0x7F800001u, 0x7FC00000u, 0xFF800001u, 0xFFFFFFFFu, 0x7FFFFFFFu}) {
    CHECK(one(std::bit_cast<float>(bits)) == one(std::numeric_limits<float>::quiet_NaN()));
  }
  for (const std::uint64_t bits : {0x7FF0000000000001u, 0xFFF8000000000123u, 0xFFFFFFFFFFFFFFFFu}) {
    CHECK(one(std::bit_cast<double>(bits)) == one(std::numeric_limits<double>::quiet_NaN()));
  }
  CHECK_FALSE(one(std::numeric_limits<float>::infinity()) == one(-std::numeric_limits<float>::infinity()));
  CHECK_FALSE(one(std::numeric_limits<float>::infinity()) == one(std::numeric_limits<float>::quiet_NaN()));
  const auto distinct = [](auto hash) {
    std::set<std::string> hashes;
    for (unsigned pattern = 0; pattern < 65536; ++pattern) {
      const auto bits = static_cast<std::uint16_t>(pattern);
      hashes.insert(hash(&bits, 1, 5).to_string());
    }
    return hashes.size();
  };
  // All patterns but -0 and all NaN but one: 2 · 127 patterns of bfloat16 are NaN, 2 · 1023 of float16.
  CHECK(distinct(hash_bfloat16) == 65536 - 1 - 2 * 127 + 1);
  CHECK(distinct(hash_float16) == 65536 - 1 - 2 * 1023 + 1);
}

TEST_CASE("every single-bit change is seen in both lanes") {
  const std::vector<float> values = random_values(1024, 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (int bit = 0; bit < 32; ++bit) {
      const auto changed = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[i]) ^ (1u << bit));
      REQUIRE(differ_in_both_lanes(hash_elements(&changed, 1, i), hash_elements(&values[i], 1, i)));
    }
    const double wide = values[i];
    for (int bit = 0; bit < 64; ++bit) {
      const double changed = std::bit_cast<double>(std::bit_cast<std::uint64_t>(wide) ^ (std::uint64_t{1} << bit));
      REQUIRE(differ_in_both_lanes(hash_elements(&wide, 1, i), hash_elements(&changed, 1, i)));
    }
  }
}

TEST_CASE("swapped elements and moved runs are seen in both lanes") {
  // Small integers, as gradients of a test are: many equal differences.
  std::mt19937 random(3);
  std::vector<float> values(2048);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 16));
  const GradientHash before = hash_of_values(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (const std::size_t distance : {1u, 2u, 64u, 511u, 512u, 513u, 1024u}) {
      const std::size_t j = i + distance;
      if (j >= values.size() || values[i] == values[j]) continue;
      std::vector<float> swapped = values;
      std::swap(swapped[i], swapped[j]);
      REQUIRE(differ_in_both_lanes(hash_of_values(swapped), before));
    }
  }
  for (std::size_t shift = 1; shift < values.size(); ++shift) {
    std::vector<float> moved = values;
    std::rotate(moved.begin(), moved.begin() + static_cast<std::ptrdiff_t>(shift), moved.end());
    REQUIRE(differ_in_both_lanes(hash_of_values(moved), before));
    REQUIRE(differ_in_both_lanes(hash_of_values(values, shift), before));
  }
}

TEST_CASE("the same swap made forwards in one block and backwards in another is seen") {
  std::vector<float> values(512 * 64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 2);
  const GradientHash before = hash_of_values(values);
  for (std::size_t a = 0; a < 64; ++a) {
    for (std::size_t b = a + 1; b < 64; ++b) {
      std::vector<float> changed = values;
      std::swap(changed[512 * a + 6], changed[512 * a + 7]);
      std::swap(changed[512 * b + 8], changed[512 * b + 9]);
      REQUIRE(differ_in_both_lanes(hash_of_values(changed), before));
      // One element up here, the same one down there.
      changed = values;
      changed[512 * a + 6] += 1;
      changed[512 * b + 7] -= 1;
      REQUIRE(differ_in_both_lanes(hash_of_values(changed), before));
    }
  }
}

TEST_CASE("signs that flip in pairs are seen") {
  const std::vector<float> values = random_values(700, 4);
  const GradientHash before = hash_of_values(values);
  // A flip changes a lane by ± 2^31 times a 32-bit key, so that among 244,650 pairs a lane alone
  // may miss one; both may not.
  int missed_by_a_lane = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t j = i + 1; j < values.size(); ++j) {
      GradientHash change;
      for (const std::size_t k : {i, j}) {
        const float flipped = -values[k];
        const GradientHash now = hash_elements(&flipped, 1, k), was = hash_elements(&values[k], 1, k);
        for (int lane = 0; lane < 2; ++lane) change.lanes[lane] += now.lanes[lane] - was.lanes[lane];
      }
      REQUIRE_FALSE(change == GradientHash{});
      missed_by_a_lane += change.lanes[0] == 0 || change.lanes[1] == 0;
    }
  }
  CHECK(missed_by_a_lane <= 1);
  std::vector<float> all = values;
  for (float& value : all) value = -value;
  CHECK(differ_in_both_lanes(hash_of_values(all), before));
}

TEST_CASE("scaling everything, constants at another place and missing zeros are seen") {
  for (std::size_t count = 1; count < 1500; count += 7) {
    const std::vector<float> values = random_values(count, static_cast<unsigned>(count));
    std::vector<float> doubled = values, negated = values;
    for (float& value : doubled) value *= 2;
    REQUIRE(differ_in_both_lanes(hash_of_values(doubled), hash_of_values(values)));
    for (const float constant : {0.0f, 1.0f, -3.5f}) {
      const std::vector<float> constants(count, constant), longer(count + 1, constant);
      REQUIRE(differ_in_both_lanes(hash_of_values(constants), hash_of_values(constants, 1)));
      REQUIRE(differ_in_both_lanes(hash_of_values(constants), hash_of_values(constants, 512)));
      REQUIRE(differ_in_both_lanes(hash_of_values(constants), hash_of_values(longer)));
      const std::vector<double> wide(count, constant), wide_longer(count + 1, constant);
      REQUIRE(differ_in_both_lanes(hash_of_values(wide), hash_of_values(wide, 1)));
      REQUIRE(differ_in_both_lanes(hash_of_values(wide), hash_of_values(wide_longer)));
    }
  }
  CHECK(hash_of_values(std::vector<float>{}) == GradientHash{});
}

TEST_CASE("the hash of random tensors behaves like a random number") {
  // Each of the 128 bits is set in about half of 4,000 tensors that differ in one element.
  std::vector<float> values = random_values(64, 5);
  std::vector<int> set(128, 0);
  std::set<std::uint64_t> high_halves;
  for (int i = 0; i < 4000; ++i) {
    values[static_cast<std::size_t>(i % 64)] = static_cast<float>(i) * 0.37f;
    const GradientHash hash = hash_of_values(values);
    high_halves.insert(hash.lanes[0] >> 32);
    for (int bit = 0; bit < 128; ++bit)
      set[static_cast<std::size_t>(bit)] += static_cast<int>(hash.lanes[bit / 64] >> (bit % 64) & 1);
  }
  for (int bit = 8; bit < 128; ++bit) {
    if (bit % 64 < 8) continue;  // the low bits of a tensor hash depend on the low bits of its values alone
    INFO("bit " << bit);
    CHECK(std::abs(set[static_cast<std::size_t>(bit)] - 2000) < 200);
  }
  CHECK(high_halves.size() >= 3998);
}

TEST_CASE("no key multiplies by zero and none occurs twice") {
  for (std::uint64_t lane = 0; lane < 2; ++lane) {
    std::set<std::uint64_t> low, high;
    for (std::uint64_t j = 0; j < 512; ++j) {
      const std::uint64_t key = numeric::splitmix(0, 512 * lane + j);
      low.insert(key & 0xFFFFFFFFu);
      high.insert(key >> 32);
    }
    CHECK(low.size() == 512);
    CHECK(high.size() == 512);
    CHECK(low.count(0) == 0);
    CHECK(high.count(0) == 0);
  }
}
