// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/kernels.h"

#include <cmath>
#include <cstring>
#include <string>

#include "kernels/host_launch.h"
#include "kernels/steps.h"
#include "src/numeric/generator.h"
#include "src/numeric/prime61.h"
#include "tests/catch.h"
#include "tests/kernels/stored.h"

using namespace lockstep;
using namespace lockstep::kernels;
using namespace lockstep::test;

// Every kernel on the host's launch layer, held against the loops of the host engine, on awkward sizes and places.

namespace {

const std::vector<std::size_t> sizes = {0, 1, 2, 3, 7, 31, 127, 509, 511, 512, 513, 1031, 2053};

/// Some slots of elements, and what the host engine makes of the same.
template <class Stored>
struct Bench {
  using Value = HostValue<Stored>;

  Bench(std::size_t count_, std::size_t slots, unsigned seed_) : count(count_), seed(seed_) {
    stride = (count / pack<Stored> + 1) * pack<Stored>;
    for (std::size_t slot = 0; slot < slots; ++slot)
      values.push_back(small_numbers<Stored>(stride, seed * 17 + static_cast<unsigned>(slot)));
    memory.resize(slots * stride / pack<Stored> + 1);
    for (std::size_t slot = 0; slot < slots; ++slot)
      std::copy_n(stored<Stored>(values[slot]).data(), stride, data() + slot * stride);
  }

  Stored* data() { return memory.front().at; }
  Tables tables() const { return {spans.data(), terms.data(), members.data()}; }

  StepArguments<Stored> arguments(Instruction instruction) {
    instruction.spans = spans.size();
    instruction.begin = spans.empty() ? 0 : spans.front().begin;
    instruction.end = spans.empty() ? 0 : spans.back().end;
    return {instruction, tables(), data(), stride, results.data()};
  }
  template <Kind kind>
  void change(Instruction instruction) {
    instruction.kind = kind;
    launch_on_host(ChangeKernel<Stored, kind>{arguments(instruction)}, 1 + seed % 4, 32 * (1 + seed % 3), 0, seed);
  }
  template <Kind kind>
  void check(Instruction instruction) {
    instruction.kind = kind;
    using Kernel = CheckKernel<Stored, kind>;
    launch_on_host(Kernel{arguments(instruction)}, 1 + seed % 4, 32 * (1 + seed % 3), Kernel::shared_bytes, seed);
  }
  /// Every slot holds, to the bit, what `values` says.
  void require_values() {
    for (std::size_t slot = 0; slot < values.size(); ++slot) {
      const std::vector<Stored> wanted = stored<Stored>(values[slot]);
      const Stored* found = data() + slot * stride;
      std::size_t same = 0;
      while (same < stride && std::memcmp(&wanted[same], found + same, sizeof(Stored)) == 0) ++same;
      INFO("slot " << slot << ", " << stride << " elements, the first so many are equal");
      REQUIRE(same == stride);
    }
  }

  std::size_t count, stride = 0;
  unsigned seed;
  std::vector<Together<Stored, pack<Stored>>> memory;
  std::vector<std::vector<Value>> values;
  std::vector<Span> spans;
  std::vector<Addend> terms;
  std::vector<std::uint32_t> members;
  std::vector<std::uint64_t> results = std::vector<std::uint64_t>(16, 0);
};

/// Stretches of `count` elements with gaps between them: whole packs, parts of one, and single elements.
std::vector<Interval> stretches(std::size_t count, unsigned seed) {
  std::vector<Interval> result;
  auto begin = static_cast<std::int64_t>(seed % 5);
  const std::int64_t lengths[] = {1, 100, 3, 512, 17, 5, 1000, 8};
  for (unsigned i = seed; begin < static_cast<std::int64_t>(count); ++i) {
    const std::int64_t end = std::min(begin + lengths[i % 8], static_cast<std::int64_t>(count));
    result.push_back({begin, end});
    begin = end + (i % 3);
  }
  return result;
}

template <class Stored>
numeric::Factor host_factor(const Factor& factor) {
  numeric::Factor result;
  result.multiply = factor.multiply;
  result.divide = factor.divide;
  result.residue = factor.residue;
  return result;
}

template <class Work>
void for_each_size(const Work& work) {
  unsigned seed = 0;
  for (const std::size_t size : sizes) {
    for (int i = 0; i < 3; ++i, ++seed) {
      INFO(size << " elements, seed " << seed);
      work(size, seed);
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("steps on one buffer do what the host engine does", "", float, double, Bfloat16, Float16, Residue) {
  using Value = HostValue<TestType>;
  for_each_size([](std::size_t size, unsigned seed) {
    const std::vector<Interval> places = stretches(size, seed);
    const auto bench = [&] {
      Bench<TestType> made(size, 3, seed);
      for (const Interval& each : places)
        made.spans.push_back({static_cast<std::uint64_t>(each.begin), static_cast<std::uint64_t>(each.end)});
      return made;
    };
    const auto for_each_place = [&](const auto& work) {
      for (const Interval& each : places) work(each.begin, static_cast<std::size_t>(each.size()));
    };
    {
      Bench<TestType> scaled = bench();
      Instruction instruction{.target = 1};
      instruction.factor = {-6, 2, 12345};
      scaled.template change<Kind::scale>(instruction);
      for_each_place([&](std::int64_t begin, std::size_t count) {
        numeric::scale(scaled.values[1].data() + begin, host_factor<TestType>(instruction.factor), count);
      });
      scaled.require_values();
    }
    {
      Bench<TestType> added = bench();
      added.template change<Kind::accumulate>({.target = 0, .from = 2});
      for_each_place([&](std::int64_t begin, std::size_t count) {
        numeric::add(added.values[0].data() + begin, added.values[2].data() + begin, count);
      });
      added.require_values();
      added.template change<Kind::accumulate>({.target = 2, .from = 2});  // onto itself it doubles
      for_each_place([&](std::int64_t begin, std::size_t count) {
        numeric::add(added.values[2].data() + begin, added.values[2].data() + begin, count);
      });
      added.require_values();
    }
    {
      Bench<TestType> copied = bench();
      copied.template change<Kind::copy>({.target = 2, .from = 1});
      for_each_place([&](std::int64_t begin, std::size_t count) {
        std::copy_n(copied.values[1].data() + begin, count, copied.values[2].data() + begin);
      });
      copied.template change<Kind::zero>({.target = 0});
      for_each_place(
          [&](std::int64_t begin, std::size_t count) { std::fill_n(copied.values[0].data() + begin, count, Value{}); });
      copied.require_values();
    }
    {
      Bench<TestType> moved(size, 2, seed);
      std::uint64_t place = 0;
      for (auto each = places.rbegin(); each != places.rend(); ++each) {
        const auto length = static_cast<std::uint64_t>(each->size());
        moved.spans.push_back({place, place + length, static_cast<std::uint64_t>(each->begin)});
        std::copy_n(moved.values[0].data() + each->begin, each->size(), moved.values[1].data() + place);
        place += length;
      }
      moved.template change<Kind::move>({.target = 1, .from = 0});
      moved.require_values();
    }
  });
}

TEMPLATE_TEST_CASE("packs are moved whole where they lie at packs, and gathered where they do not", "", float, double,
                   Bfloat16, Float16, Residue) {
  constexpr std::size_t half = 1040;
  for (const std::uint64_t off : {0u, 1u, 2u, 4u, 8u}) {
    INFO("read from " << off << " places further");
    Bench<TestType> bench(2 * half, 2, static_cast<unsigned>(off));
    bench.spans = {{0, half, half - off}, {half, 2 * half, off}};
    for (std::size_t i = 0; i < half; ++i) {
      bench.values[1][i] = bench.values[0][half - off + i];
      bench.values[1][half + i] = bench.values[0][off + i];
    }
    bench.template change<Kind::move>({.target = 1, .from = 0});
    bench.require_values();
  }
}

TEMPLATE_TEST_CASE("contributions and the reference are those of the host engine, across 2^32 too", "", float, double,
                   Bfloat16, Float16, Residue) {
  using Value = HostValue<TestType>;
  constexpr bool in_field = std::is_same_v<TestType, Residue>;
  for_each_size([](std::size_t size, unsigned seed) {
    Bench<TestType> bench(size, 2, seed);
    const std::vector<std::uint64_t> keys = {numeric::gradient_key(1, static_cast<int>(seed), 0, 0), 77};
    const int bits = static_cast<int>(seed % 3);
    std::vector<std::vector<Value>> added = bench.values;
    std::fill(added[1].begin(), added[1].end(), Value{});
    for (const std::uint64_t stretch : {0, 1}) {
      for (std::size_t i = 0; i < 2; ++i) {
        Addend& term = bench.terms.emplace_back();
        term.key = in_field ? keys[i] : stretch_key(keys[i], stretch);
        term.multiply = i == 0 ? 2 : -1;
        term.whole = i == 0 ? 4 : -2;
        term.residue = i == 0 ? 2 : numeric::prime61 - 1;
      }
    }
    // The stretches stand behind each other in the tensor, with 2^32 in their middle.
    std::uint64_t global = (std::uint64_t{1} << 32) - size / 2;
    for (const Interval& each : stretches(size, seed)) {
      const auto begin = static_cast<std::uint64_t>(each.begin), length = static_cast<std::uint64_t>(each.size());
      const std::uint64_t boundary = std::uint64_t{1} << 32;
      const std::uint64_t low = global < boundary ? std::min(length, boundary - global) : 0;
      if (low > 0) bench.spans.push_back({begin, begin + low, global, 0});
      if (low < length) bench.spans.push_back({begin + low, begin + length, global + low, 2});
      for (std::size_t i = 0; i < 2; ++i) {
        numeric::GeneratedTerm term;
        term.key = keys[i];
        term.factor = host_factor<TestType>({bench.terms[i].multiply, 1, bench.terms[i].residue});
        for (auto& values : added) numeric::add_generated(values.data() + each.begin, term, bits, global, length);
      }
      global += length;
    }
    bench.template change<Kind::generate>({.target = 0, .bits = bits, .terms = 2});
    Instruction reference{.target = 1, .bits = bits, .terms = 2};
    reference.unit = 0.5;
    bench.template change<Kind::reference>(reference);
    for (const Span& span : bench.spans) {
      for (std::uint64_t i = span.begin; i < span.end; ++i) {
        bench.values[0][i] = added[0][i];
        bench.values[1][i] = added[1][i];  // 4 and -2 in units of a half are 2 and -1
      }
    }
    bench.require_values();
    REQUIRE(bench.results[lost_result] == 0);
  });
}

TEMPLATE_TEST_CASE("collectives give every member what the table of operations says", "", float, double, Bfloat16,
                   Float16, Residue) {
  for_each_size([](std::size_t size, unsigned seed) {
    for (const Received received : {Received::sum, Received::owner, Received::root}) {
      for (const Receiver receiver : {Receiver::everyone, Receiver::owner, Receiver::root}) {
        Bench<TestType> bench(size, 6, seed);
        bench.members = {4, 0, 5, 2};
        for (const Interval& each : stretches(size, seed)) {
          bench.spans.push_back({static_cast<std::uint64_t>(each.begin), static_cast<std::uint64_t>(each.end), 0,
                                 static_cast<std::uint64_t>(each.begin) % 4});
        }
        Instruction instruction{.members = 4, .received = received, .receiver = receiver, .root = 2};
        instruction.factor = {2, 1, 2};
        bench.template change<Kind::collective>(instruction);
        const auto before = bench.values;
        for (const Span& span : bench.spans) {
          const std::size_t owner = bench.members[span.what], root = bench.members[2];
          for (std::uint64_t i = span.begin; i < span.end; ++i) {
            auto value = before[received == Received::owner ? owner : root][i];
            if (received == Received::sum) value = 2 * (before[4][i] + before[0][i] + before[5][i] + before[2][i]);
            if (receiver == Receiver::everyone) {
              for (const std::uint32_t slot : bench.members) bench.values[slot][i] = value;
            } else {
              bench.values[receiver == Receiver::owner ? owner : root][i] = value;
            }
          }
        }
        bench.require_values();
      }
    }
  });
}

TEMPLATE_TEST_CASE("hashes and comparisons are those of the host engine", "", float, double, Bfloat16, Float16,
                   Residue) {
  for_each_size([](std::size_t size, unsigned seed) {
    Bench<TestType> bench(size, 2, seed);
    const bool same = seed % 3 == 0;
    if (same) {
      bench.values[1] = bench.values[0];
      std::copy_n(bench.data(), bench.stride, bench.data() + bench.stride);
    }
    std::uint64_t global = (std::uint64_t{1} << 32) - size / 2 + seed, different = 0;
    GradientHash got, expected;
    for (const Interval& each : stretches(size, seed)) {
      const auto begin = static_cast<std::uint64_t>(each.begin);
      const auto length = static_cast<std::size_t>(each.size());
      bench.spans.push_back({begin, begin + length, global});
      got += numeric::hash(bench.values[0].data() + begin, length, global, arithmetic_of<TestType>());
      expected += numeric::hash(bench.values[1].data() + begin, length, global, arithmetic_of<TestType>());
      for (std::size_t i = 0; i < length; ++i) different += bench.values[0][begin + i] != bench.values[1][begin + i];
      global += length + seed % 2 * 100;
    }
    bench.template check<Kind::hash>({.target = 1, .result = 1});
    REQUIRE(bench.results[1] == expected.lanes[0]);
    REQUIRE(bench.results[2] == expected.lanes[1]);
    bench.template check<Kind::check>({.target = 0, .from = 1, .result = 3});
    REQUIRE(bench.results[3] == different);
    REQUIRE(bench.results[4] == got.lanes[0]);
    REQUIRE(bench.results[5] == got.lanes[1]);
    REQUIRE(bench.results[6] == expected.lanes[0]);
    REQUIRE(bench.results[7] == expected.lanes[1]);
    bench.template check<Kind::check>({.target = 0, .from = 1, .hashes = 0, .result = 8});
    REQUIRE(bench.results[8] == different);
    for (std::size_t i = 9; i < 16; ++i) REQUIRE(bench.results[i] == 0);
    REQUIRE((different == 0) == (same || size == 0 || bench.spans.empty() || got == expected));
  });
}

TEMPLATE_TEST_CASE("whole stretches are hashed wherever the global indices of their packs begin", "", float, double,
                   Bfloat16, Float16, Residue) {
  constexpr std::size_t size = 5 * hash_block + 77;
  for (const std::size_t begin : {0u, 3u, 16u}) {
    for (const std::uint64_t offset : {0u, 1u, 2u, 4u, 8u, 496u, 512u}) {
      INFO("places from " << begin << " on, global indices " << offset << " further");
      Bench<TestType> bench(size, 2, static_cast<unsigned>(begin + offset));
      bench.spans = {{begin, size, begin + offset}};
      const auto hash_of = [&](std::size_t slot) {
        return numeric::hash(bench.values[slot].data() + begin, size - begin, begin + offset,
                             arithmetic_of<TestType>());
      };
      std::uint64_t different = 0;
      for (std::size_t i = begin; i < size; ++i) different += bench.values[0][i] != bench.values[1][i];
      bench.template check<Kind::hash>({.target = 1, .result = 1});
      CHECK(bench.results[1] == hash_of(1).lanes[0]);
      CHECK(bench.results[2] == hash_of(1).lanes[1]);
      bench.template check<Kind::check>({.target = 0, .from = 1, .result = 3});
      CHECK(bench.results[3] == different);
      CHECK(bench.results[4] == hash_of(0).lanes[0]);
      CHECK(bench.results[5] == hash_of(0).lanes[1]);
      CHECK(bench.results[6] == hash_of(1).lanes[0]);
      CHECK(bench.results[7] == hash_of(1).lanes[1]);
    }
  }
}

TEMPLATE_TEST_CASE("a value that 16 bits cannot hold is counted", "", Bfloat16, Float16) {
  Bench<TestType> bench(300, 1, 1);
  bench.spans = {{0, 300}};
  Instruction instruction{.target = 0};
  instruction.factor.multiply = 2;
  bench.template change<Kind::scale>(instruction);
  CHECK(bench.results[lost_result] == 0);
  instruction.factor.multiply = 1.0 + 0x1p-15;
  bench.template change<Kind::scale>(instruction);
  CHECK(bench.results[lost_result] > 0);
}
