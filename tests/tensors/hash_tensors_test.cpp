// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "lockstep/diagnostic.h"
#include "lockstep/tensor_file.h"
#include "tests/catch.h"
#include "tests/tensors/files.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::vector<float> random_values(std::size_t count) {
  std::mt19937 random(7);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random()) - 2e9f;
  return values;
}

template <class Element>
std::string array(const std::vector<Element>& values, const std::string& descr) {
  return npy(npy_header(descr, "(" + std::to_string(values.size()) + ",)"), bytes_of(values));
}

template <class Element>
TensorDifference compare(const std::vector<Element>& a, const std::vector<Element>& b, const std::string& descr,
                         std::size_t most = 8) {
  const Folder folder;
  const TensorFile file_a(folder.write("a.npy", array(a, descr))), file_b(folder.write("b.npy", array(b, descr)));
  return compare_tensors({&file_a, 0}, {&file_b, 0}, 0, most, 2);
}

}  // namespace

TEST_CASE("a tensor of many parts has the hash of the whole, on any number of threads, whole or as a shard") {
  const Folder folder;
  const std::vector<float> values = random_values(1'200'001);
  const std::string data = bytes_of(values);
  // At an odd place in the file, behind another tensor.
  const std::string path = folder.write(
      "x.safetensors",
      safetensors(
          "{\"first\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"x\":{\"dtype\":\"F32\",\"shape\":"
          "[1200001],\"data_offsets\":[3,4800007]}}",
          "abc" + data));
  const TensorFile file(path);
  for (const int threads : {1, 2, 5}) {
    CHECK(hash_tensors({{&file, 1}}, 0, threads)[0] == hash_elements(values.data(), values.size(), 0));
    CHECK(hash_tensors({{&file, 1}}, 12345, threads)[0] == hash_elements(values.data(), values.size(), 12345));
  }
}

TEST_CASE("a file that becomes shorter while it is open is told, not crashed on") {
  const Folder folder;
  const std::string path = folder.write("x.npy", array(random_values(1000), "<f4"));
  const TensorFile file(path);
  std::filesystem::resize_file(path, 2000);
  CHECK(contains(refusal([&] { hash_tensors({{&file, 0}}, 0); }), "it has become shorter"));
}

TEST_CASE("exactly the elements that differ are found, in ranges that go on over the borders of parts") {
  const std::vector<float> before = random_values(1'000'000);
  std::vector<float> after = before;
  const auto change = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) after[i] = before[i] + 4096;
  };
  CHECK(compare(before, after, "<f4").elements == 0);
  change(0, 1);
  change(500, 505);
  change(262'100, 262'200);  // over the border at 262,144
  change(524'288, 524'289);
  change(999'999, 1'000'000);
  const TensorDifference found = compare(before, after, "<f4");
  CHECK(found.elements == 1 + 5 + 100 + 1 + 1);
  CHECK(found.ranges == 5);
  REQUIRE(found.first.size() == 5);
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> expected = {
      {0, 1}, {500, 505}, {262'100, 262'200}, {524'288, 524'289}, {999'999, 1'000'000}};
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(found.first[i].begin == expected[i].first);
    CHECK(found.first[i].end == expected[i].second);
    CHECK(std::stof(found.first[i].first_a) == before[expected[i].first]);
    CHECK(std::stof(found.first[i].first_b) == after[expected[i].first]);
  }
  CHECK(found.hash_a == hash_elements(before.data(), before.size(), 0));
  CHECK(found.hash_b == hash_elements(after.data(), after.size(), 0));
  const TensorDifference few = compare(before, after, "<f4", 2);
  CHECK(few.ranges == 5);
  CHECK(few.first.size() == 2);
  CHECK(few.elements == found.elements);
}

TEST_CASE("where everything differs it is one range, and every second element is as many ranges") {
  const std::vector<float> before(600'000, 1.0f);
  std::vector<float> after(600'000, 2.0f);
  TensorDifference found = compare(before, after, "<f4", 1);
  CHECK(found.elements == 600'000);
  CHECK(found.ranges == 1);
  REQUIRE(found.first.size() == 1);
  CHECK(found.first[0].end == 600'000);
  for (std::size_t i = 0; i < after.size(); i += 2) after[i] = 1.0f;
  found = compare(before, after, "<f4", 3);
  CHECK(found.elements == 300'000);
  CHECK(found.ranges == 300'000);
  REQUIRE(found.first.size() == 3);
  CHECK(found.first[2].begin == 5);
}

TEST_CASE("minus zero equals zero and NaN equals NaN in every dtype; values are printed as they are") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(compare<float>({0, nan, 1}, {-0.0f, -nan, 1}, "<f4").elements == 0);
  CHECK(compare<double>({0, nan, 1}, {-0.0, -nan, 1}, "<f8").elements == 0);
  CHECK(compare<std::uint16_t>({0, 0x7C01, 0x3C00}, {0x8000, 0xFE00, 0x3C00}, "<f2").elements == 0);
  const TensorDifference wide = compare<double>({1, 0.1}, {1, 0.1 + 1e-17 + 2e-17}, "<f8");
  REQUIRE(wide.first.size() == 1);
  CHECK(wide.first[0].first_a == "0.1");
  CHECK(wide.first[0].first_b == "0.10000000000000003");
  const TensorDifference half = compare<std::uint16_t>({0x3C00, 0x0001, 0x7C00}, {0xC000, 0x0001, 0x7BFF}, "<f2");
  REQUIRE(half.first.size() == 2);
  CHECK(half.first[0].first_a == "1");
  CHECK(half.first[0].first_b == "-2");
  CHECK(half.first[1].first_a == "inf");
  CHECK(half.first[1].first_b == "65504");
}
