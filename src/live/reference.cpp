// SPDX-License-Identifier: Apache-2.0
#include "src/live/reference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "src/base/refuse.h"

namespace lockstep::live {

namespace {

std::vector<std::string> names_of(const DeclaredParameter& parameter) {
  std::vector<std::string> names = parameter.aliases;
  names.insert(names.begin(), parameter.name);
  return names;
}

/// "a, b are", "a is"; of many, the first.
std::string some_are(const std::vector<std::string>& names) {
  constexpr std::size_t most = 6;
  const std::size_t shown = std::min(most, names.size());
  return fmt::format("{}{} {}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "",
                     names.size() == 1 ? "is" : "are");
}

}  // namespace

ReferenceRun::ReferenceRun(const std::string& folder, const CapturedRun& run, int threads)
    : run_(read_run(folder, threads)),
      files_(run_, run_.header.sums % run.header.sums == 0 ? run.header.sums : run_.header.sums) {
  const Header& own = run_.header;
  if (own.world != 1)
    refuse(fmt::format("{}: the run has {} ranks; expected a reference on one, with the same model and data", folder,
                       own.world));
  // More sums make those of fewer.
  if (own.sums % run.header.sums != 0)
    refuse(
        fmt::format("{}: its \"sums\" is {}, and that of {} is {}; a reference needs as many sums, or a multiple of "
                    "them, so capture it anew with sums={}",
                    folder, own.sums, run.folder, run.header.sums, run.header.sums));
  for (const auto& [name, one, other] :
       {std::tuple("seed", own.seed, run.header.seed),
        std::tuple("one_of", static_cast<std::uint64_t>(own.one_of), static_cast<std::uint64_t>(run.header.one_of))}) {
    if (one != other)
      refuse(
          fmt::format("{}: its \"{}\" is {}, and that of {} is {}; only sketches that agree in it can be compared, "
                      "so one of the runs must be captured anew",
                      folder, name, one, run.folder, other));
  }
  match(run);
}

void ReferenceRun::match(const CapturedRun& run) {
  std::map<std::string, int, std::less<>> numbers;
  std::vector<std::string> known;
  for (std::size_t i = 0; i < run_.parameters.size(); ++i) {
    for (const std::string& name : names_of(run_.parameters[i].declared)) {
      if (numbers.emplace(name, static_cast<int>(i)).second) known.push_back(name);
    }
  }
  std::vector<std::string> without, others;
  std::vector<char> taken(run_.parameters.size());
  std::set<int> tied;  // that several of the run have for one
  for (const RunParameter& parameter : run.parameters) {
    const DeclaredParameter& declared = parameter.declared;
    int found = -1;
    for (const std::string& name : names_of(declared)) {
      const auto entry = numbers.find(name);
      if (found < 0 && entry != numbers.end()) found = entry->second;
    }
    counterpart_.push_back(found);
    if (found < 0) {
      if (!declared.frozen) without.push_back(declared.name);
      continue;
    }
    const auto place = static_cast<std::size_t>(found);
    const DeclaredParameter& other = run_.parameters[place].declared;
    if (taken[place] == 1) tied.insert(found);
    taken[place] = 1;
    if (other.shape == declared.shape) continue;
    counterpart_.back() = -1;
    unmatched_.push_back(fmt::format("{} has the shape [{}], and in the reference it is [{}]: it is not compared.",
                                     declared.name, fmt::join(declared.shape, ", "), fmt::join(other.shape, ", ")));
  }
  for (std::size_t i = 0; i < counterpart_.size(); ++i) {
    const DeclaredParameter& declared = run.parameters[i].declared;
    std::set<int> all;
    for (const std::string& name : names_of(declared)) {
      if (const auto entry = numbers.find(name); entry != numbers.end()) all.insert(entry->second);
    }
    if (counterpart_[i] < 0 || (all.size() < 2 && !tied.contains(counterpart_[i]))) continue;
    counterpart_[i] = -1;
    unmatched_.push_back(
        fmt::format("{} is one parameter with another in one of the runs, and not in the other: it is not compared.",
                    declared.name));
  }
  if (std::find(taken.begin(), taken.end(), 1) == taken.end())
    refuse(fmt::format("{}: no parameter has the name of one of {}{}; expected a run of the same model", run_.folder,
                       run.folder, without.empty() ? "" : fmt::format(", such as \"{}\"", without.front())));
  if (!without.empty())
    unmatched_.push_back(some_are(without) + " not in the reference" +
                         (without.size() == 1 ? did_you_mean(without.front(), known) : "") + ".");
  for (std::size_t i = 0; i < run_.parameters.size(); ++i) {
    const DeclaredParameter& declared = run_.parameters[i].declared;
    if (taken[i] == 0 && !declared.frozen) others.push_back(declared.name);
  }
  if (!others.empty()) unmatched_.push_back(some_are(others) + " in the reference alone.");
}

}  // namespace lockstep::live
