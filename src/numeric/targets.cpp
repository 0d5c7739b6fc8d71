// SPDX-License-Identifier: Apache-2.0
#include "src/numeric/targets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "lockstep/diagnostic.h"
#include "src/numeric/loops.h"

#if defined(LOCKSTEP_HIGHWAY) && defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lockstep::numeric {

namespace {

#ifdef LOCKSTEP_HIGHWAY
#ifdef __x86_64__
/// What Highway lets the compiler use for a target, and the system saves the registers of.
bool can_run(Target target) {
  __builtin_cpu_init();
  switch (target) {
    case Target::avx512:
      return can_run(Target::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512cd");
    case Target::avx2: {
      unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
      const bool has_f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
      return can_run(Target::sse4) && has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    }
    case Target::sse4:
      return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("aes");
    case Target::neon:
      return false;
  }
  return false;
}
#else
/// There is one family of vectors that every processor has.
bool can_run(Target) { return true; }
#endif

std::vector<Loops> find_loops() {
  std::vector<Loops> list;
  for (const auto& [target, name] : {std::pair(Target::avx512, "avx512"), std::pair(Target::avx2, "avx2"),
                                     std::pair(Target::sse4, "sse4"), std::pair(Target::neon, "neon")}) {
    if (hash_loops_of(target) == nullptr || !can_run(target)) continue;
    Loops loops = portable_loops();
    loops.target = name;
    hash_loops_of(target)(loops);
    arithmetic_loops_of(target)(loops);
    residue_loops_of(target)(loops);
    list.push_back(std::move(loops));
  }
  list.push_back(portable_loops());
  return list;
}
#else
std::vector<Loops> find_loops() { return {portable_loops()}; }
#endif

}  // namespace

const std::vector<Loops>& available_loops() {
  static const std::vector<Loops> list = find_loops();
  return list;
}

const Loops& loops_named(const char* wanted) {
  const std::vector<Loops>& list = available_loops();
  if (wanted == nullptr || *wanted == '\0') return list.front();
  std::vector<std::string> names;
  for (const Loops& loops : list) {
    if (loops.target == wanted) return loops;
    names.push_back(loops.target);
  }
  throw InputError({Diagnostic{{},
                               fmt::format("LOCKSTEP_TARGET is \"{}\", which this machine or this build does not have; "
                                           "known are {}{}",
                                           wanted, fmt::join(names, ", "), did_you_mean(wanted, names))}});
}

const Loops& loops() {
  static const Loops& chosen = loops_named(std::getenv("LOCKSTEP_TARGET"));
  return chosen;
}

bool highway_is_built() {
#ifdef LOCKSTEP_HIGHWAY
  return true;
#else
  return false;
#endif
}

}  // namespace lockstep::numeric
