// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "lockstep/diagnostic.h"
#include "src/numeric/loops.h"

#ifdef LOCKSTEP_HIGHWAY
#include "src/numeric/highway/setup.h"
// After setup.h.
#include <hwy/highway.h>
#endif

namespace lockstep::numeric {

namespace {

#ifdef LOCKSTEP_HIGHWAY
/// Highway's name in lower case, and AVX-512's own for what Highway calls AVX3.
std::string name_of(std::int64_t target) {
  if (target == HWY_AVX3) return "avx512";
  std::string name = hwy::TargetName(target);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

std::vector<Loops> find_loops() {
  std::vector<Loops> list;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (target == HWY_SCALAR || target == HWY_EMU128) continue;
    // One target after the other is the only one that Highway may choose.
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    Loops loops = portable_loops();
    loops.target = name_of(target);
    set_hash_loops(loops);
    set_arithmetic_loops(loops);
    set_residue_loops(loops);
    list.push_back(std::move(loops));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  list.push_back(portable_loops());
  return list;
}
#else
std::vector<Loops> find_loops() { return {portable_loops()}; }
#endif

const Loops& choose_loops() {
  const std::vector<Loops>& list = available_loops();
  const char* wanted = std::getenv("LOCKSTEP_TARGET");
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

}  // namespace

const std::vector<Loops>& available_loops() {
  static const std::vector<Loops> list = find_loops();
  return list;
}

const Loops& loops() {
  static const Loops& chosen = choose_loops();
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
