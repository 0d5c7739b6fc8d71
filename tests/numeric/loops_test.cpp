// SPDX-License-Identifier: Apache-2.0
// Every target that this machine can run computes the same bits as the portable loops: at every length and at offsets
// that no vector is aligned to.
#include "src/numeric/loops.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "src/numeric/generator.h"
#include "src/numeric/prime61.h"
#include "tests/catch.h"

using namespace lockstep;
using namespace lockstep::numeric;

namespace {

constexpr std::size_t longest = 700;

/// Lengths around every width of vectors, and some longer ones.
std::vector<std::size_t> lengths() {
  std::vector<std::size_t> list;
  for (std::size_t count = 0; count <= 67; ++count) list.push_back(count);
  for (const std::size_t count : {127u, 128u, 129u, 255u, 300u, 509u, 511u, 512u}) list.push_back(count);
  return list;
}

/// Calls check(loops) for every target but the portable one.
template <class Check>
void for_each_target(const Check& check) {
  for (const Loops& loops : available_loops()) {
    INFO("target " << loops.target);
    if (loops.target != "portable") check(loops);
  }
}

/// Patterns of all kinds, among them zeros of both signs, infinities, NaN and the numbers next to them.
template <class Bits>
std::vector<Bits> patterns(Bits infinity, unsigned seed) {
  constexpr auto sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const std::array<Bits, 10> special = {0,
                                        sign,
                                        infinity,
                                        static_cast<Bits>(infinity | sign),
                                        static_cast<Bits>(infinity + 1),
                                        static_cast<Bits>((infinity | sign) + 1),
                                        static_cast<Bits>(infinity - 1),
                                        static_cast<Bits>(~Bits{0}),
                                        static_cast<Bits>(~sign),
                                        1};
  std::mt19937_64 random(seed);
  std::vector<Bits> list(longest);
  for (Bits& bits : list) bits = random() % 3 == 0 ? special[random() % special.size()] : static_cast<Bits>(random());
  return list;
}

template <class Element, class Bits>
std::vector<Element> elements(const std::vector<Bits>& bits) {
  static_assert(sizeof(Element) == sizeof(Bits));
  std::vector<Element> list(bits.size());
  std::memcpy(list.data(), bits.data(), bits.size() * sizeof(Bits));
  return list;
}

template <class Element>
void compare_sums(GradientHash (*Loops::*sum)(const Element*, std::size_t, std::size_t),
                  const std::vector<Element>& values) {
  for_each_target([&](const Loops& loops) {
    for (const std::size_t count : lengths()) {
      for (const std::size_t offset : {0u, 1u, 2u, 3u, 5u, 8u, 13u, 31u, 150u}) {
        for (const std::size_t place : {std::size_t{0}, std::size_t{1}, std::size_t{7}, 512 - count}) {
          if (place + count > 512) continue;
          INFO(count << " elements at " << offset << ", place " << place);
          const GradientHash expected = (portable_loops().*sum)(values.data() + offset, count, place);
          REQUIRE((loops.*sum)(values.data() + offset, count, place) == expected);
        }
      }
    }
  });
}

std::vector<float> floats(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> list(longest);
  for (float& value : list) value = std::uniform_real_distribution<float>(-100, 100)(random);
  return list;
}

std::vector<double> doubles(unsigned seed) {
  const std::vector<float> narrow = floats(seed);
  std::vector<double> list(narrow.begin(), narrow.end());
  for (double& value : list) value /= 3;
  return list;
}

std::vector<std::uint64_t> residues(unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> list(longest);
  for (std::uint64_t& value : list) value = random() % 4 == 0 ? prime61 - 1 - random() % 3 : random() % prime61;
  list[3] = 0;
  return list;
}

/// Runs work(loops, values) on parts of copies of `before`: the same bits as the portable loops leave, and nothing
/// beside the part changes.
template <class Value, class Work>
void compare_results(const std::vector<Value>& before, const Work& work) {
  for_each_target([&](const Loops& loops) {
    for (const std::size_t count : lengths()) {
      for (const std::size_t offset : {0u, 1u, 3u, 6u}) {
        INFO(count << " elements at " << offset);
        std::vector<Value> expected = before, found = before;
        work(portable_loops(), expected.data() + offset, offset, count);
        work(loops, found.data() + offset, offset, count);
        REQUIRE(std::memcmp(found.data(), expected.data(), before.size() * sizeof(Value)) == 0);
      }
    }
  });
}

}  // namespace

TEST_CASE(
    "the first of the available loops is the fastest, the last the portable one, and each has a name of its own") {
  const std::vector<Loops>& list = available_loops();
  REQUIRE_FALSE(list.empty());
  CHECK(list.back().target == "portable");
  std::set<std::string> names;
  for (const Loops& loops : list) names.insert(loops.target);
  CHECK(names.size() == list.size());
  const auto place = [&](const std::string& target) {
    return std::find_if(list.begin(), list.end(), [&](const Loops& loops) { return loops.target == target; }) -
           list.begin();
  };
  if (names.contains("avx512")) CHECK(place("avx512") < place("avx2"));
  if (names.contains("avx2")) CHECK(place("avx2") < place("sse4"));
}

TEST_CASE("every target sums products of a block as the portable one does") {
  compare_sums<float>(&Loops::sum_float32, elements<float>(patterns<std::uint32_t>(0x7F800000u, 1)));
  compare_sums<double>(&Loops::sum_float64, elements<double>(patterns<std::uint64_t>(std::uint64_t{0x7FF} << 52, 2)));
  compare_sums<std::uint16_t>(&Loops::sum_bfloat16, patterns<std::uint16_t>(0x7F80, 3));
  compare_sums<std::uint16_t>(&Loops::sum_float16, patterns<std::uint16_t>(0x7C00, 4));
  compare_sums<std::uint64_t>(&Loops::sum_residues, residues(5));
}

namespace {

template <class Element>
void compare_block_sums(GradientHash (*Loops::*sum)(const Element*, std::size_t, std::size_t),
                        GradientHash (*Loops::*sum_blocks)(const Element*, std::size_t, const HashFactors*),
                        const std::vector<Element>& some) {
  constexpr std::size_t most = 19, block = 512;  // of 16 bits, eight are hashed beside each other
  std::vector<Element> values;
  while (values.size() < most * block + 3) values.insert(values.end(), some.begin(), some.end());
  std::mt19937_64 random(24);
  std::array<HashFactors, most> factors;
  for (HashFactors& of_block : factors) of_block = {random(), random()};
  for (const Loops& loops : available_loops()) {
    for (std::size_t blocks = 0; blocks <= most; ++blocks) {
      for (const std::size_t offset : {0u, 1u, 3u}) {
        INFO(loops.target << ", " << blocks << " blocks at " << offset);
        GradientHash expected;
        for (std::size_t b = 0; b < blocks; ++b) {
          const GradientHash of_block = (portable_loops().*sum)(values.data() + offset + b * block, block, 0);
          for (std::size_t lane = 0; lane < 2; ++lane) expected.lanes[lane] += factors[b][lane] * of_block.lanes[lane];
        }
        REQUIRE((loops.*sum_blocks)(values.data() + offset, blocks, factors.data()) == expected);
      }
    }
  }
}

/// One element after the other, each alone among ordinary ones, in blocks and places that are drawn.
template <class Element>
void compare_alone(GradientHash (*Loops::*sum_blocks)(const Element*, std::size_t, const HashFactors*),
                   std::vector<Element> ordinary, const std::vector<Element>& special) {
  constexpr std::size_t blocks = 9, block = 512;
  std::mt19937_64 random(25);
  while (ordinary.size() < blocks * block) ordinary.push_back(ordinary[random() % longest]);
  std::array<HashFactors, blocks> factors;
  for (HashFactors& of_block : factors) of_block = {random(), random()};
  for (int draw = 0; draw < 400; ++draw) {
    std::vector<Element> values = ordinary;
    const std::size_t at = random() % (blocks * block);
    values[at] = special[static_cast<std::size_t>(draw) % special.size()];
    const GradientHash expected = (portable_loops().*sum_blocks)(values.data(), blocks, factors.data());
    for_each_target([&](const Loops& loops) {
      INFO("seed 25, draw " << draw << ", element " << at);
      REQUIRE((loops.*sum_blocks)(values.data(), blocks, factors.data()) == expected);
    });
  }
}

}  // namespace

TEST_CASE("every target sums whole blocks, each times its factors, as the sums of the blocks say") {
  compare_block_sums<float>(&Loops::sum_float32, &Loops::sum_blocks_float32,
                            elements<float>(patterns<std::uint32_t>(0x7F800000u, 1)));
  compare_block_sums<double>(&Loops::sum_float64, &Loops::sum_blocks_float64,
                             elements<double>(patterns<std::uint64_t>(std::uint64_t{0x7FF} << 52, 2)));
  compare_block_sums<std::uint16_t>(&Loops::sum_bfloat16, &Loops::sum_blocks_bfloat16,
                                    patterns<std::uint16_t>(0x7F80, 3));
  compare_block_sums<std::uint16_t>(&Loops::sum_float16, &Loops::sum_blocks_float16,
                                    patterns<std::uint16_t>(0x7C00, 4));
  compare_block_sums<std::uint64_t>(&Loops::sum_residues, &Loops::sum_blocks_residues, residues(5));
}

TEST_CASE("a minus zero, a NaN or an infinity alone among ordinary numbers is hashed alike on every target") {
  using Float = std::numeric_limits<float>;
  using Double = std::numeric_limits<double>;
  compare_alone<float>(&Loops::sum_blocks_float32, floats(8),
                       {-0.0f, Float::quiet_NaN(), -Float::quiet_NaN(), Float::signaling_NaN(), 0.0f, Float::infinity(),
                        -Float::infinity(), Float::denorm_min(), -Float::denorm_min(), Float::lowest()});
  compare_alone<double>(&Loops::sum_blocks_float64, doubles(9),
                        {-0.0, Double::quiet_NaN(), -Double::quiet_NaN(), Double::signaling_NaN(), 0.0,
                         Double::infinity(), -Double::infinity(), Double::denorm_min(), -Double::denorm_min(),
                         std::bit_cast<double>(std::uint64_t{0x80000000})});
}

TEST_CASE("every target generates the same numbers") {
  for (const int bits : {0, 1, 7, 20, max_generator_bits}) {
    for (const std::uint32_t first : {0u, 5u, 0xFFFFFF00u}) {
      INFO(bits << " bits from " << first);
      const Numbers numbers{0x123456789ABCDEFu, first, bits};
      const auto at = [&](std::size_t offset) {
        return Numbers{numbers.key, numbers.first + static_cast<std::uint32_t>(offset), bits};
      };
      compare_results(std::vector<std::int32_t>(longest),
                      [&](const Loops& loops, std::int32_t* out, std::size_t offset, std::size_t count) {
                        loops.generate(at(offset), count, out);
                      });
      compare_results(floats(6), [&](const Loops& loops, float* out, std::size_t offset, std::size_t count) {
        loops.add_numbers_float32(out, 0.25f, at(offset), count);
      });
      compare_results(floats(6), [&](const Loops& loops, float* out, std::size_t offset, std::size_t count) {
        loops.set_numbers_float32(out, offset == 1 ? 0.0f : -0.25f, at(offset), count);
      });
      compare_results(doubles(7), [&](const Loops& loops, double* out, std::size_t offset, std::size_t count) {
        loops.set_numbers_float64(out, offset == 1 ? 0.0 : 3.0, at(offset), count);
      });
      compare_results(doubles(7), [&](const Loops& loops, double* out, std::size_t offset, std::size_t count) {
        loops.add_numbers_float64(out, -3.0, at(offset), count);
      });
      compare_results(std::vector<std::int32_t>(longest, 5),
                      [&](const Loops& loops, std::int32_t* sums, std::size_t offset, std::size_t count) {
                        loops.add_numbers_int32(sums, bits < 28 ? -7 : 1, at(offset), count);
                      });
      compare_results(std::vector<std::int64_t>(longest, 5),
                      [&](const Loops& loops, std::int64_t* sums, std::size_t offset, std::size_t count) {
                        loops.add_numbers_int64(sums, (std::int64_t{1} << 33) - 3, at(offset), count);
                        loops.add_numbers_int64(sums, -(std::int64_t{1} << 30), at(offset), count);
                      });
    }
  }
  compare_results(residues(8), [&](const Loops& loops, std::uint64_t* out, std::size_t offset, std::size_t count) {
    loops.generate_residues(99, ~std::uint64_t{0} - 300 + offset, count, out);
  });
}

TEST_CASE("every target adds, multiplies and divides to the same bits") {
  const std::vector<float> narrow = floats(9);
  const std::vector<double> wide = doubles(10);
  const std::vector<std::uint64_t> whole = residues(11);
  std::vector<std::int32_t> numbers(narrow.begin(), narrow.end());
  numbers[5] = std::numeric_limits<std::int32_t>::min();
  compare_results(floats(12), [&](const Loops& loops, float* values, std::size_t offset, std::size_t count) {
    loops.add_float32(values, values, narrow.data() + offset, count);
    loops.multiply_float32(values, 0.7f, count);
    loops.divide_float32(values, 3, count);
  });
  compare_results(doubles(13), [&](const Loops& loops, double* values, std::size_t offset, std::size_t count) {
    loops.add_float64(values, wide.data() + offset, values, count);
    loops.multiply_float64(values, 0.7, count);
    loops.divide_float64(values, 3, count);
  });
  for (const std::uint64_t factor : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{1} << 32,
                                     (std::uint64_t{1} << 60) + 12345, prime61 - 1}) {
    INFO("factor " << factor);
    compare_results(residues(14),
                    [&](const Loops& loops, std::uint64_t* values, std::size_t offset, std::size_t count) {
                      loops.add_residues(values, values, whole.data() + offset, count);
                      loops.multiply_residues(values, factor, count);
                    });
  }
  compare_results(floats(18), [&](const Loops& loops, float* out, std::size_t offset, std::size_t count) {
    loops.convert_float32(out, 0.125f, numbers.data() + offset, count);
  });
  numbers[5] = -3;
  compare_results(floats(18), [&](const Loops& loops, float* out, std::size_t offset, std::size_t count) {
    const std::int32_t *first = numbers.data() + offset, *second = numbers.data() + longest - offset - count;
    const Multiple<std::int32_t> multiples[] = {{first, 3}, {second, -2}};
    loops.add_up_float32(out, 0.125f, multiples, 2, count);
    bool right = true;
    for (std::size_t i = 0; i < count; ++i)
      right &= out[i] == 0.125f * static_cast<float>(3 * first[i] - 2 * second[i]);
    REQUIRE(right);
    REQUIRE(loops.equal_sum_float32(out, 0.125f, multiples, 2, count));
    for (std::size_t i = 0; i < count; ++i) {
      out[i] += 1;
      REQUIRE_FALSE(loops.equal_sum_float32(out, 0.125f, multiples, 2, count));
      out[i] -= 1;
    }
    REQUIRE(loops.equal_sum_float32(out, 0.125f, multiples, 2, count));
  });
}

TEST_CASE("every target adds up many terms in their order and multiplies the sum") {
  const std::vector<float> narrow = floats(19);
  const std::vector<double> wide = doubles(20);
  const std::vector<std::int32_t> numbers(narrow.begin(), narrow.end());
  std::vector<float> eighths(numbers.begin(), numbers.end());
  for (float& value : eighths) value /= 8;
  for (const std::size_t terms : {1u, 2u, 3u, 7u}) {
    INFO(terms << " terms");
    compare_results(floats(21), [&](const Loops& loops, float* out, std::size_t offset, std::size_t count) {
      std::vector<const float*> values;
      for (std::size_t k = 0; k < terms; ++k) values.push_back(narrow.data() + (offset + 11 * k) % 100);
      loops.add_all_float32(out, 0.7f, values.data(), terms, count);
      for (std::size_t i = 0; i < count; ++i) {
        float sum = values[0][i];
        for (std::size_t k = 1; k < terms; ++k) sum += values[k][i];
        REQUIRE(out[i] == sum * 0.7f);
      }
    });
    compare_results(doubles(22), [&](const Loops& loops, double* out, std::size_t offset, std::size_t count) {
      std::vector<const double*> values;
      for (std::size_t k = 0; k < terms; ++k) values.push_back(wide.data() + (offset + 11 * k) % 100);
      loops.add_all_float64(out, 0.7, values.data(), terms, count);
    });
    for (const bool beside : {false, true}) {
      compare_results(floats(23), [&](const Loops& loops, float* out, std::size_t offset, std::size_t count) {
        std::vector<Multiple<float>> multiples;
        for (std::size_t k = 0; k < terms; ++k)
          multiples.push_back({numbers.data() + (offset + 11 * k) % 100, 0.5f * static_cast<float>(k) - 0.75f});
        const float* elements = beside ? eighths.data() + offset % 100 : nullptr;
        loops.add_multiples_float32(out, 3, elements, multiples.data(), terms, count);
        for (std::size_t i = 0; i < count; ++i) {
          float sum = beside ? elements[i] : 0;
          for (const Multiple<float>& term : multiples) sum += term.factor * static_cast<float>(term.numbers[i]);
          REQUIRE(out[i] == 3 * sum);
        }
      });
    }
  }
}

TEST_CASE("every target sees one element that differs, wherever it stands") {
  const std::vector<float> narrow = floats(15);
  const std::vector<double> wide = doubles(16);
  const std::vector<std::uint64_t> whole = residues(17);
  for_each_target([&](const Loops& loops) {
    for (const std::size_t count : lengths()) {
      std::vector<float> other = narrow;
      std::vector<double> other_wide = wide;
      std::vector<std::uint64_t> other_whole = whole;
      const auto equal = [&] {
        const std::array<bool, 3> found = {loops.equal_float32(narrow.data() + 1, other.data() + 1, count),
                                           loops.equal_float64(wide.data() + 1, other_wide.data() + 1, count),
                                           loops.equal_residues(whole.data() + 1, other_whole.data() + 1, count)};
        REQUIRE(found[0] == found[1]);
        REQUIRE(found[1] == found[2]);
        return found[0];
      };
      REQUIRE(equal());
      for (std::size_t i = 0; i < count; ++i) {
        other[i + 1] += 1;
        other_wide[i + 1] += 1;
        other_whole[i + 1] += 1;
        REQUIRE_FALSE(equal());
        other = narrow;
        other_wide = wide;
        other_whole = whole;
      }
      other[0] = other[count + 1] = -1e9f;  // beside it
      other_wide[0] = other_wide[count + 1] = -1e9;
      other_whole[0] = other_whole[count + 1] = prime61 + 1;
      REQUIRE(equal());
    }
  });
}
