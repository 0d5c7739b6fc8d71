// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "benchmarks/hash_targets.h"
#include "benchmarks/measure.h"
#include "benchmarks/parametric.h"

namespace lockstep::bench {

namespace {

/// Three significant digits, without an exponent.
std::string number(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  return value >= 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.2f}", value);
}

std::string limit(const Goal& goal) {
  return fmt::format("{} {:g} {}", goal.comparison == Comparison::at_most ? "≤" : "≥", goal.limit, goal.unit);
}

std::string verdict(const Collector::Row& row) {
  if (row.failed) return "failed";
  return fmt::format("{} ×{}", row.margin() >= 1 ? "met" : "NOT MET", number(row.margin()));
}

std::string measured(const Collector::Row& row) {
  return row.failed ? "-" : fmt::format("{} {}", number(row.measured), row.goal.unit);
}

std::string memory(const Collector::Row& row) {
  return row.memory_mb > 0 ? fmt::format("{} MB", number(row.memory_mb)) : "-";
}

}  // namespace

void Collector::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    if (run.run_type != Run::RT_Iteration) continue;  // means and deviations of the repetitions
    Measured& of_benchmark = measured_[run.run_name.function_name];
    if (run.error_occurred) {
      of_benchmark.failed = true;
      continue;
    }
    for (const auto& [name, counter] : run.counters) {
      const double value = counter;
      auto& lowest = of_benchmark.lowest.try_emplace(name, value).first->second;
      lowest = std::min(lowest, value);
      auto& highest = of_benchmark.highest.try_emplace(name, value).first->second;
      highest = std::max(highest, value);
    }
  }
}

double Collector::Row::margin() const {
  return goal.comparison == Comparison::at_most ? goal.limit / measured : measured / goal.limit;
}

std::vector<Collector::Row> Collector::rows() const {
  std::vector<Row> rows;
  for (const Benchmark& benchmark : benchmarks()) {
    const auto found = measured_.find(benchmark.name);
    if (found == measured_.end()) continue;
    const Measured& values = found->second;
    for (const Goal& goal : benchmark.goals) {
      // One that does not count what its goal asks for has failed; not all tell of memory.
      Row row{.goal = goal, .failed = values.failed || !values.highest.contains(goal.counter)};
      if (!row.failed) {
        const bool lower = goal.comparison == Comparison::at_most && goal.counter != peak_memory;
        row.measured = (lower ? values.lowest : values.highest).at(goal.counter);
        if (const auto memory = values.highest.find(peak_memory); memory != values.highest.end())
          row.memory_mb = memory->second;
        for (const auto& [name, value] : values.highest) {
          if (name == best_time || name == peak_memory || name == goal.counter || name.find(' ') != std::string::npos)
            continue;  // a name with a space has a row of its own
          row.details += fmt::format("{}{} {}", row.details.empty() ? "" : ", ", name, number(value));
        }
      }
      rows.push_back(row);
    }
  }
  return rows;
}

std::string text_table(const std::vector<Collector::Row>& rows) {
  std::string text = fmt::format("{:<45} {:>14} {:>14} {:>14} {:>9}\n", "what", "measured", "goal", "", "peak");
  for (const Collector::Row& row : rows) {
    text += fmt::format("{:<45} {:>14} {:>14} {:>14} {:>9}  {}\n", row.goal.name, measured(row), limit(row.goal),
                        verdict(row), memory(row), row.details);
  }
  return text;
}

std::string document(const std::vector<Collector::Row>& rows) {
  std::string text = fmt::format(R"(<!-- Written by tools/bench --write; the text stands in benchmarks/table.cpp. -->
# How fast lockstep is

`tools/bench` measures this on your machine; the goals stand beside the benchmarks in `benchmarks/`. These figures are from
{}.

| what | measured | goal | | peak memory |
|---|--:|--:|---|--:|
)",
                                 machine());
  for (const Collector::Row& row : rows) {
    text += fmt::format("| {} | {} | {} | {} | {} |\n", row.goal.name, measured(row), limit(row.goal), verdict(row),
                        memory(row));
  }
  text += R"(
"met ×3" is three times better than the goal: a third of the time, or three times the rate.

## The parametric engine, from 8 ranks to a million

)";
  text += parametric_table();
  text += R"(
- The schedule is read before, which is not counted. The verdict is: `run_parametric`, as `lockstep check` calls it for a large layout.
- *Operations* are steps that classes of parameters went through. *Allocated* is every byte that the C++ program asked
  `operator new` for, whatever became of it. Both are the same on every run, and the goals compare them with those on
  16 ranks; with 8 ranks, two of each group, there are fewer ways to stand to each other. Times are the best iteration's;
  at a million ranks they are not flat, although the counts are.
- The layout is tp 2, pp 2 and the rest dp; the model is four layers of GPT-2 with a tied embedding. *Right* is Megatron's
  distributed optimizer with the bucket of its own that the embedding has; *#844* is without it: the two stages cut the
  embedding differently, and their slices overlap in stretches whose number grows with dp. Of these one of each kind is looked at.
- What a report then shows of single ranks is not in these figures: its formulas name the contributions of all ranks.
  Nor does time stay the same with four or more different cuts of one parameter, with different cuts along several axes at
  once, or where the number of tokens of a single rank decides whether something is wrong: then the overlaps are gone through
  one after the other.

## The hash, target by target

)";
  text += hash_target_table();
  text += R"(
- All rows take turns in one run: each gets a mebibyte of memory that is in no cache, on all cores at once, and then the next.
  So whatever else the machine does, it does to all of them. The median of all turns counts;
  these are the last of three repetitions, and the table above has each row's best. The fastest row is the read bandwidth: a plain sum of
  64-bit words, with prefetching or without, or a hash that is as fast; the hash goes through two pages at once, and asks for those that come next. XXH3 is built for the compiler's default instruction set.
- A *multiplication* is one of 32 × 32 → 64 bits. A vector of 512 bits holds eight of them, of 256 bits four, of 128 bits
  two; so AVX-512 needs a quarter of an instruction for an element, AVX2 half of one, SSE4 one.
- *The loop alone* goes through the same mebibyte again and again, which the second-level cache holds: the bound that its
  instructions set, whatever memory does. Where it is far above the read bandwidth, memory is the bound.
- The *replay* makes the gradients of two ranks, adds them, divides by two and hashes the mean, block by block, and its bytes
  are those of both ranks. The goal compares it with the hash of float32 on the same target.

## How it was measured

- A release build with the compiler's default instruction set; loops over elements are built for every target that
  `lockstep version` lists, and the program takes the fastest. Every benchmark ran at least 0.3 s, three times; the best
  iteration counts, since what other programs take is not lockstep's. Of memory the most counts.
- **#844** is `scenarios/megatron/844.json`: reading the file, walking all ranks, the symbolic engine, and for each way in which
  a buffer is wrong the step at fault. *With hashes* adds the host engine on every element of every rank, on all cores:
  163 million elements for each data-parallel coordinate.
- **1,024 ranks** is `scenarios/scale/llama3-70b-tp8-pp8-dp16.json`, measured in the same way.
- **Host replay, of the read bandwidth**: in each iteration, all cores add up 256 MiB of memory that is in no cache, and then
  replay #844, without the file and the walk. The bytes are those of the gradients of all ranks, each counted once, although
  the schedule writes, reduces, compares and hashes them several times, and the reference adds up the same numbers by itself. A fraction of
  what the machine can do depends less on the machine than seconds do.
- **Start** and **small files** are whole processes, from their start to their end, with their report written to nowhere.
  The small files are four GPT-2 layers on two to twelve ranks with Megatron's schedule, all right or one in ten with a bug,
  for which the step at fault is searched. In each iteration all cores first read and expand the same files, and do no more.
- The last four are each large in one way, and are reading, checking and reporting: ranks whose buffers meet
  no others, so that each has its gradients compared with a reference; experts to whose gradients all ranks contribute; formulas that
  grow with each micro-batch; edits, each of one parameter.
- Peak memory is the most that the process held (resident), the program itself included. What the
  benchmarks themselves need for measuring the bandwidth is not counted.

Time is never part of the tests: a slow machine must not fail them.
)";
  return text;
}

}  // namespace lockstep::bench
